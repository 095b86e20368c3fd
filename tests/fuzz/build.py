"""Builds models from their descriptions, and data for them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import keras
import numpy as np
from keras import layers, optimizers

from .customs import Grown, Tied, Wrapped
from .rules import RULES, SHAPES, VOCABULARY, WIDTH
from .specs import Graph, Spec, Step, Training

BATCH = 2
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "accumulating": lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "adam": lambda: optimizers.Adam(0.1, clipnorm=1.0),
    "averaging": lambda: optimizers.Adam(0.1, use_ema=True, ema_momentum=0.9),
    "scheduled": lambda: optimizers.AdamW(
        optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), weight_decay=0.1
    ),
    "rmsprop": lambda: optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.1)),
}


def build(spec: Spec) -> Any:
    """Builds a model: the same one every time.

    What Keras itself cannot build or call is no case. On torch it has no QR, which
    an orthogonal start needs, and no einsum of several types in bfloat16, and no
    mask for an RNN that runs both ways; on TensorFlow few operations on sparse
    tensors.
    """
    try:
        model = _build(spec)
        if keras.backend.backend() == "torch":
            model(data(spec))
            model = _build(spec)
    except Exception:
        hypothesis.reject()
    return model


def _build(spec: Spec) -> Any:
    # Names start from nothing, so that a failure names the layers as before.
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(1)
    with policy(spec.policy):
        builder = _Builder()
        model = builder.model(spec)
        if spec.lora:
            for dense in builder.built_denses()[:1]:
                dense.enable_lora(2)
        if spec.frozen:
            model.trainable = False
        if spec.training is not None:
            compile_model(model, spec)
        if spec.trained:
            try:
                train(model, spec)
            except RuntimeError:
                pass  # On torch a model with nothing to learn cannot be trained.
            except Exception:  # Keras cannot train every model that is drawn.
                hypothesis.reject()
    return model


@contextlib.contextmanager
def policy(name: str) -> Iterator[None]:
    """Makes a dtype policy the default one."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class _Builder:
    """Builds one model; layers of nested graphs are at hand for ties."""

    def __init__(self) -> None:
        self.denses: list[Any] = []

    def model(self, spec: Spec) -> Any:
        if spec.form == "sequential":
            shape = SHAPES[spec.graph.inputs]
            return keras.Sequential([keras.Input(shape), *self.chain(spec.graph)])
        batch = BATCH if spec.fixed_batch else None
        inputs = symbols(spec.graph, spec.named_inputs, batch)
        outputs = self.outputs(spec.graph, keras.tree.flatten(inputs))
        if spec.form == "grown":
            return Grown(inputs, outputs, note={"what": [outputs]})
        model = keras.Model(inputs, outputs)
        if spec.form == "wrapped":
            model = Wrapped(model)
            model(data(spec))
        return model

    def outputs(self, graph: Graph, inputs: list[Any]) -> Any:
        tensors = list(inputs)
        made: list[Any] = []
        for step in graph.steps:
            made.append(self.make(step) if step.again is None else made[step.again])
            tensors += keras.tree.flatten(made[-1](*[tensors[i] for i in step.of]))
        outputs = [tensors[i] for i in graph.outputs()]
        if graph.named:
            return {f"out_{i}": output for i, output in enumerate(outputs)}
        return outputs if len(outputs) > 1 else outputs[0]

    def make(self, step: Step) -> Any:
        """Makes what a step calls."""
        if step.kind == "model":
            inputs = symbols(step.graph)
            outputs = self.outputs(step.graph, keras.tree.flatten(inputs))
            model = keras.Model(inputs, outputs)
            return model if len(step.of) == 1 else lambda *tensors: model([*tensors])
        if step.kind == "sequential":
            start = [keras.Input(SHAPES[step.graph.inputs])]
            if step.options.get("deferred"):
                start = []
            return keras.Sequential([*start, *self.chain(step.graph)])
        if step.kind == "tied":
            return self.tie(**step.options)
        rule = RULES[step.kind]
        made = rule.make(**rule.defaults | step.options)
        if step.kind == "dense":
            self.denses.append(made)
        return made

    def chain(self, graph: Graph) -> list[Any]:
        return [self.make(step) for step in graph.steps]

    def built_denses(self) -> list[Any]:
        return [dense for dense in self.denses if dense.built]

    def tie(self, how: str, number: int) -> Any:
        """Makes a layer that needs one of the Dense layers so far."""
        built = self.built_denses()
        if not built:
            lonely = layers.Dense(WIDTH)
            lonely.build((None, WIDTH))
            return Tied(lonely)
        source = built[number % len(built)]
        if how == "call":
            return source
        return Tied(source if how == "layer" else source.kernel)


def symbols(graph: Graph, named: bool = False, batch: int | None = None) -> Any:
    """The symbolic inputs of a graph: one, a list or a dict."""
    made = {}
    for i, kind in enumerate(graph.inputs):
        dtype = "int32" if kind == "t" else "float32"
        made[f"in_{i}"] = keras.Input(
            SHAPES[kind], batch, dtype=dtype, name=f"in_{i}" if named else None
        )
    return _structure(made, named)


def _structure(by_name: dict[str, Any], named: bool) -> Any:
    if named:
        return by_name
    values = list(by_name.values())
    return values if len(values) > 1 else values[0]


def data(spec: Spec, seed: int = 0) -> Any:
    """Inputs for a model."""
    generator = np.random.default_rng(seed)
    made = {}
    for i, kind in enumerate(spec.graph.inputs):
        shape = BATCH, *SHAPES[kind]
        if kind == "t":
            value = generator.integers(1, VOCABULARY, shape).astype("int32")
            value[0, -1] = 0
        else:
            value = generator.normal(size=shape).astype("float32")
        if kind == "s":
            value[1, -1] = 0
        made[f"in_{i}"] = value
    return _structure(made, spec.named_inputs)


def targets(spec: Spec) -> Any:
    """What the outputs of a model are compared with."""
    kinds, generator = spec.graph.kinds(), np.random.default_rng(2)
    shapes = [(BATCH, *SHAPES[kinds[i]]) for i in spec.graph.outputs()]
    values = [generator.normal(size=shape).astype("float32") for shape in shapes]
    return _structure({f"out_{i}": v for i, v in enumerate(values)}, spec.graph.named)


def compile_model(model: Any, spec: Spec) -> None:
    """Compiles a model as described, or plainly where nothing is."""
    training = spec.training or Training()
    metrics = keras.tree.map_structure(lambda _: "mae", targets(spec))
    metrics = [metrics] if metrics == "mae" else metrics
    model.compile(
        OPTIMIZERS[training.optimizer](),
        "mse",
        metrics=metrics if training.metrics else None,
        run_eagerly=training.eager,
        jit_compile=False if training.eager else "auto",
    )


def train(model: Any, spec: Spec) -> Any:
    """Trains for one step, with the same random numbers every time."""
    keras.utils.set_random_seed(3)
    return model.train_on_batch(data(spec), targets(spec))

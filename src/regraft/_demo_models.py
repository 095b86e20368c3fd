"""The models of the demo, and what to look at in a copy of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers, ops


@dataclass(frozen=True)
class Subject:
    """A model to copy, and what to call it and train it on."""

    title: str
    model: Any
    inputs: Any
    targets: Any = None


# --- models ------------------------------------------------------------------


def lambda_model() -> Subject:
    """The model of keras issue #12202."""
    inputs = keras.Input((4,))
    doubled = layers.Lambda(lambda x: [x, x])(inputs)
    model = keras.Model(inputs, layers.Add()(doubled))
    rng = np.random.default_rng(0)
    return Subject("Lambda(lambda x: [x, x]), then Add", model, _floats(rng, 8, 4))


class MaskedMean(keras.layers.Layer):
    """Averages the tokens that are not padding, and says how many there were."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x: Any, mask: Any = None) -> Any:
        """Returns the mean and the number of tokens that were averaged."""
        shown = ops.ones_like(x[..., 0]) if mask is None else ops.cast(mask, x.dtype)
        count = ops.sum(shown, axis=1, keepdims=True)
        return ops.sum(x * shown[..., None], axis=1) / count, count

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Nothing is left to be masked."""
        return None


def masked_transformer() -> Subject:
    """A frozen encoder of sequences that end in padding."""
    # Few different shapes: JAX compiles its random numbers for each.
    tokens = keras.Input((12,), dtype="int32")
    x = layers.Embedding(16, 16, mask_zero=True)(tokens)
    attention = layers.MultiHeadAttention(2, 8)
    x = layers.LayerNormalization()(layers.Add()([x, attention(x, x)]))
    x = layers.Dropout(0.1, seed=1)(layers.Dense(16, activation="gelu")(x))
    mean, count = MaskedMean()(x)
    model = keras.Model(tokens, [layers.Dense(2)(mean), count], name="encoder")
    model.trainable = False
    rng = np.random.default_rng(0)
    inputs = rng.integers(1, 16, (6, 12)).astype("int32")
    for row, length in enumerate(_lengths(inputs)):
        inputs[row, length:] = 0
    model(inputs, training=True)  # random streams move on
    return Subject("Masked transformer, frozen", model, inputs)


def trained_cnn() -> Subject:
    """A small network in the middle of its training."""
    model = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            layers.Conv2D(8, 3, trainable=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.3, seed=2),
            layers.Dense(2),
        ],
        name="cnn",
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    model.class_names = ["bright left", "bright right"]
    rng = np.random.default_rng(0)
    images, labels = _floats(rng, 256, 16, 16, 1), rng.integers(0, 2, 256)
    for image, label in zip(images, labels, strict=True):
        image[:, 8 * label : 8 * label + 8] += 0.5
    model.fit(images, labels, epochs=2, batch_size=32, verbose=0)
    return Subject("Compiled CNN, trained for two epochs", model, images, labels)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "Lambda model": lambda_model,
    "masked transformer": masked_transformer,
    "trained CNN": trained_cnn,
}


def _floats(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype("float32")


def _lengths(inputs: Any) -> list[int]:
    """How many tokens of each sequence are not padding."""
    return [len(inputs[0]) - 2 * (row % 4) for row in range(len(inputs))]


# --- what to look at -----------------------------------------------------------

# Is this of the original also in the copy? None: the original has none of it.
Check = Callable[[Subject, Any], bool | None]


def same_class(subject: Subject, copy: Any) -> bool | None:
    """The copy is of the same class."""
    return type(copy) is type(subject.model)


def same_names(subject: Subject, copy: Any) -> bool | None:
    """The model, its layers and its weights have the same names."""

    def names(model: Any) -> list[str]:
        parts = [*model.layers, *model.weights]
        return [model.name, *(getattr(p, "path", p.name) for p in parts)]

    return names(copy) == names(subject.model)


def same_weights(subject: Subject, copy: Any) -> bool | None:
    """All weights are equal, bit for bit."""
    weights = subject.model.weights
    return _bits(copy.weights) == _bits(weights) if weights else None


def own_memory(subject: Subject, copy: Any) -> bool | None:
    """Changing the copy's variables leaves the original's alone."""
    variables = subject.model.variables
    if not variables:
        return None
    before = _bits(variables)
    with untouched(copy):
        for variable in copy.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype))
        return _bits(variables) == before


def same_outputs(subject: Subject, copy: Any) -> bool | None:
    """Both compute the same outputs, bit for bit."""
    return _outputs(copy, subject) == _outputs(subject.model, subject)


def same_masks(subject: Subject, copy: Any) -> bool | None:
    """Padding reaches the layer that must not see it."""
    if not any(isinstance(layer, MaskedMean) for layer in subject.model.layers):
        return None
    _, count = copy(subject.inputs, training=False)
    expected = np.array(_lengths(subject.inputs), "float32")
    return np.array_equal(ops.convert_to_numpy(count)[:, 0], expected)


def same_flags(subject: Subject, copy: Any) -> bool | None:
    """The same parts can be trained, the model's own switch included."""

    def flags(model: Any) -> list[bool]:
        parts = [model, *model.layers, *model.variables]
        return [bool(part.trainable) for part in parts]

    return flags(copy) == flags(subject.model)


def same_attributes(subject: Subject, copy: Any) -> bool | None:
    """What the user put on the model is there."""
    names = getattr(subject.model, "class_names", None)
    return None if names is None else getattr(copy, "class_names", None) == names


def same_stream(subject: Subject, copy: Any) -> bool | None:
    """The next random numbers are the same ones: dropout drops the same units."""
    model = subject.model
    if len(model.variables) == len(model.weights):
        return None
    with untouched(model), untouched(copy):
        return _outputs(copy, subject, True) == _outputs(model, subject, True)


def same_compile(subject: Subject, copy: Any) -> bool | None:
    """The copy can be trained and evaluated without another `compile()`."""
    model = subject.model
    if not model.compiled:
        return None
    return bool(copy.compiled) and type(copy.optimizer) is type(model.optimizer)


def same_optimizer(subject: Subject, copy: Any) -> bool | None:
    """Step counter and moments are equal, bit for bit."""
    model = subject.model
    if not model.compiled:
        return None
    ours = getattr(copy, "optimizer", None)
    return ours is not None and _bits(ours.variables) == _bits(
        model.optimizer.variables
    )


def same_step(subject: Subject, copy: Any) -> bool | None:
    """One more step of training takes both to the same weights."""
    model = subject.model
    if not model.compiled:
        return None
    if not copy.compiled:
        return False
    with untouched(model), untouched(copy):
        for each in (model, copy):
            each.train_on_batch(subject.inputs[:32], subject.targets[:32])
        pairs = zip(_arrays(model.weights), _arrays(copy.weights), strict=True)
        return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


CHECKS: dict[str, Check] = {
    "class": same_class,
    "names": same_names,
    "weights, bit for bit": same_weights,
    "memory of its own": own_memory,
    "outputs, bit for bit": same_outputs,
    "masks": same_masks,
    "trainable flags": same_flags,
    "attributes of your own": same_attributes,
    "random streams": same_stream,
    "compiled": same_compile,
    "optimizer state": same_optimizer,
    "next training step": same_step,
}


@contextmanager
def untouched(model: Any) -> Iterator[None]:
    """Puts the values of all variables back in the end."""
    variables = [*model.variables, *model.metrics_variables]
    if getattr(model, "optimizer", None) is not None:
        variables += model.optimizer.variables
    before = _arrays(variables)
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def _outputs(model: Any, subject: Subject, training: bool = False) -> list[bytes]:
    outputs = model(subject.inputs, training=training)
    return [a.tobytes() for a in _arrays(keras.tree.flatten(outputs))]


def _bits(variables: Any) -> list[bytes]:
    return [a.tobytes() for a in _arrays(variables)]


def _arrays(values: Any) -> list[Any]:
    return [np.array(ops.convert_to_numpy(value)) for value in values]

"""`diff` and `verify` themselves: what they say, and what they leave alone."""

import random
import re
import subprocess
import sys
import threading
import warnings

import keras
import numpy as np
import pytest
from keras import layers
from keras.src.backend.common import global_state

import regraft

BACKEND = keras.backend.backend()
ROWS = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")


class Counting(layers.Layer):
    """Counts its calls, in Python and in a variable."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = 0
        self.log = []
        self.total = self.add_weight(shape=(), trainable=False, name="total")

    def call(self, x):
        self.calls += 1
        self.log.append(x.shape)
        self.total.assign(self.total + 1.0)
        return x


def mlp(compiled=False):
    x = keras.Input((4,), name="x")
    h = layers.Dense(3, "relu", name="first")(x)
    h = layers.BatchNormalization(name="norm")(Counting(name="counting")(h))
    h = layers.Dropout(0.5, seed=1, name="drop")(h)
    model = keras.Model(x, layers.Dense(2, name="second")(h), name="mlp")
    if compiled:
        model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
        model.train_on_batch(ROWS, ROWS[:, :2])
    return model


def linear(**kwargs):
    return keras.Sequential([keras.Input((4,)), layers.Dense(2, **kwargs)], name="net")


def paths(left, right, **kwargs):
    return [d.path for d in regraft.diff(left, right, **kwargs)]


# --- neither model is changed -------------------------------------------------


def state(model):
    """All that a careless comparison could leave behind in a model."""
    variables = [*model.variables, *[v for m in model.metrics for v in m.variables]]
    if model.compiled:
        variables += model.optimizer.variables
    counting = model.get_layer("counting")
    return {
        "values": [
            (v.path, keras.ops.convert_to_numpy(v).tobytes()) for v in variables
        ],
        "flags": [(op.name, op.trainable, op.built) for op in model.layers],
        "nodes": [
            (op.name, len(op._inbound_nodes), len(op._outbound_nodes))
            for op in model.operations
        ],
        "functions": [
            getattr(model, f"{name}_function") for name in ("train", "test", "predict")
        ],
        "calls": (counting.calls, list(counting.log)),
        "losses": len(model.losses),
        "attributes": {x.name: sorted(vars(x)) for x in [model, *model.layers]},
    }


def surroundings():
    """The random and naming state that models share with the rest of the program."""
    generator = global_state.get_global_attribute("global_seed_generator")
    found = {
        "names": dict(global_state.get_global_attribute("object_name_uids") or {}),
        "python": random.getstate(),
        "numpy": [np.asarray(x).tobytes() for x in np.random.get_state()],
        "keras": None if generator is None else np.array(generator.state).tobytes(),
    }
    if keras.backend.backend() == "torch":
        import torch

        found["torch"] = torch.get_rng_state().numpy().tobytes()
    return found


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_both_models_stay_as_they_are(compiled):
    model = mlp(compiled)
    twin = regraft.clone(model)
    twin.get_layer("drop").rate = 0.25
    before = state(model), state(twin), surroundings()
    proof = regraft.verify(model, twin)
    assert not proof.same
    after = state(model), state(twin), surroundings()
    for old, new in zip(before, after, strict=True):
        for key in old:
            assert new[key] == old[key], key


def test_compiled_functions_stay_where_they_are():
    model = mlp(compiled=True)
    function = model.train_function
    assert function is not None
    twin = regraft.clone(model)
    twin.make_predict_function()
    predict = twin.predict_function
    regraft.verify(model, twin)
    assert model.train_function is function
    assert twin.predict_function is predict


def test_comparison_that_is_broken_off_changes_nothing():
    model = mlp()
    twin = regraft.clone(model)
    twin.get_layer("drop").rate = 0.25
    before = state(model), state(twin)
    for difference in regraft.diff(model, twin):
        if "training" in difference.path:
            break
    assert (state(model), state(twin)) == before


def test_inputs_that_neither_model_takes_prove_nothing_and_change_nothing():
    model = mlp()
    twin = regraft.clone(model)
    before = state(model), state(twin)
    with pytest.raises(regraft.UsageError) as error:
        regraft.verify(model, twin, inputs=np.ones((2, 99)))
    text = str(error.value)
    assert "Neither model can be called on these inputs." in text
    assert "where: argument `inputs`" in text
    assert "inputs that 'mlp' takes" in text
    assert (state(model), state(twin)) == before


# --- what is said -------------------------------------------------------------


class Talkative:
    def __init__(self, words):
        self.words = words

    def __repr__(self):
        return "many\nlines\n" * 50


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 2),
        ("a\nb", "a\tb"),
        (np.zeros(2), np.ones(2)),
        (np.zeros((20, 20)), np.ones((20, 20))),
        (list(range(500)), "x" * 500),
        (Talkative(1), None),
        (layers.Dense(2, name="dense"), keras.Variable(np.ones((3, 3)), name="v")),
    ],
    ids=["int", "text", "array", "large_array", "long", "object", "keras"],
)
def test_difference_is_printed_on_one_line(left, right):
    text = str(regraft.Difference("net/dense.thing", left, right, "value"))
    assert text.startswith("net/dense.thing: value: ")
    assert " | " in text
    assert len(text.splitlines()) == 1
    assert len(text) < 250


def test_difference_shows_layers_and_variables_by_name():
    layer = layers.Dense(2, name="dense")
    layer.build((None, 3))
    text = str(regraft.Difference("net", layer, layer.kernel, "class"))
    assert text == "net: class: <Dense dense> | <Variable dense/kernel (3, 2)>"


def test_difference_says_how_far_numbers_are_apart():
    model = linear(name="dense")
    twin = regraft.clone(model)
    kernel = np.array(keras.ops.convert_to_numpy(model.layers[0].kernel))
    kernel[0, 0] += 0.5
    twin.layers[0].kernel.assign(kernel)
    difference = next(regraft.diff(model, twin))
    assert (difference.path, difference.why) == (
        "net/dense/kernel",
        "1 of 8 numbers, by up to 0.5",
    )


def test_numbers_that_are_not_finite_are_no_distance():
    layer = layers.Dense(1, use_bias=False)
    layer(np.ones((1, 3), "float32"))
    other = regraft.clone(layer)
    for values, why in (
        ([np.inf, 2, 3], "1 of 3 numbers, by up to 1"),
        ([np.inf, 1, np.inf], "1 of 3 numbers, by up to inf"),
        (
            [np.nan, 5, 3],
            "2 of 3 numbers, 1 with NaN, by up to 4",
        ),
        ([np.nan, 1, 3], "1 of 3 numbers, 1 with NaN"),
    ):
        layer.set_weights([np.array([[np.inf], [1], [3]], "float32")])
        other.set_weights([np.array(values, "float32")[:, None]])
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            found = [d.why for d in regraft.diff(layer, other, inputs=False)]
        assert found[0] == why


class Jitter(layers.Layer):
    """Draws from where nobody can tell it what to draw."""

    def call(self, x):
        return x + np.random.default_rng().normal()


def test_what_a_model_does_otherwise_each_time_is_not_compared():
    model = keras.Sequential([keras.Input((4,)), Jitter(), layers.Dense(2)], name="net")
    proof = regraft.verify(model, regraft.clone(model))
    assert proof.same
    assert proof.note.startswith(
        "net(inputs, inference) is another one each time, and was not compared: output"
    )
    other = regraft.clone(model)
    other.layers[-1].kernel.assign(other.layers[-1].kernel + 1)
    assert not regraft.verify(model, other).same


def test_proof_of_equal_models():
    model = linear(name="dense")
    twin = regraft.clone(model)
    proof = regraft.verify(model, twin)
    assert proof.same
    assert proof
    assert proof.differences == ()
    assert proof.raise_if_different() is proof
    assert (proof.left, proof.right) == ("net", "net")
    assert (proof.variables, proof.bytes) == (2, 4 * (8 + 2))
    assert proof.objects > 10
    assert re.fullmatch(
        r"net and net are the same: [\d,]+ objects, 2 variables, 40 bytes compared\.",
        str(proof),
    )


def test_proof_of_different_models():
    model = linear(name="dense")
    twin = regraft.clone(model)
    twin.layers[0].units = 3
    proof = regraft.verify(model, twin)
    assert not proof
    assert [str(d) for d in proof.differences] == ["net/dense.units: value: 2 | 3"]
    first, second = str(proof).splitlines()
    assert first.startswith("net and net differ in 1: ")
    assert second == "  net/dense.units: value: 2 | 3"
    with pytest.raises(regraft.DifferenceError) as caught:
        proof.raise_if_different()
    assert str(caught.value) == (
        "1 difference(s) between 'net' and 'net':\n"
        "  net/dense.units: value: 2 | 3\n"
        "  where: net/dense.units\n"
        "  expected: two models that are equal and share nothing mutable\n"
        "  received: 1 difference(s)\n"
        "  what to do: look at the first one; the others often follow from it"
    )
    assert isinstance(caught.value, AssertionError)


def test_long_list_of_differences_is_cut():
    model = linear()
    twin = regraft.clone(model)
    for i in range(25):
        setattr(twin.layers[0], f"extra_{i}", i)
    with pytest.raises(regraft.DifferenceError, match="… and 5 more") as caught:
        regraft.verify(model, twin).raise_if_different()
    assert str(caught.value).startswith("25 difference(s)")
    assert str(caught.value).count("extra_") == 20 + 1  # once more under `where`


def test_model_is_not_independent_of_itself():
    model = linear()
    proof = regraft.verify(model, model)
    assert [(d.path, d.why) for d in proof.differences] == [
        ("net", "one and the same object")
    ]
    assert proof.variables == 0


@pytest.mark.parametrize("wrong", ["net", None, keras.Model, np.ones(3)], ids=repr)
@pytest.mark.parametrize(
    "compare", [regraft.verify, lambda a, b: list(regraft.diff(a, b))]
)
@pytest.mark.parametrize("position", [0, 1])
def test_what_is_no_model_is_refused(compare, wrong, position):
    arguments = [linear(), linear()]
    arguments[position] = wrong
    with pytest.raises(regraft.UsageError) as caught:
        compare(*arguments)
    lines = str(caught.value).splitlines()
    assert lines[0] == "Only models, layers and Functions can be compared."
    assert lines[1] == f"  where: argument `{'ab'[position]}`"
    assert lines[2] == "  expected: a `keras.Model`, `keras.Layer` or `keras.Function`"
    assert f"(of type {type(wrong).__name__})" in lines[3]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError)


# --- what is compared ---------------------------------------------------------


def test_models_of_different_kinds():
    dense = layers.Dense(2)
    dense.build((None, 4))
    [first, *_] = regraft.diff(linear(), dense)
    assert first.why == "class"
    assert (first.left, first.right) == (keras.Sequential, layers.Dense)


def test_layers_and_functions():
    dense = layers.Dense(2, name="dense")
    dense.build((None, 4))
    assert regraft.verify(dense, regraft.clone(dense)).same
    x = keras.KerasTensor((2, 4))
    function = keras.Function(x, keras.ops.tanh(x))
    assert regraft.verify(function, regraft.clone(function)).same


def test_models_without_weights_or_shapes():
    unbuilt = keras.Sequential([layers.Dense(2)])
    assert regraft.verify(unbuilt, regraft.clone(unbuilt)).same
    other = regraft.clone(unbuilt)
    other.layers[0].units = 3
    assert paths(unbuilt, other) == [f"{unbuilt.name}/{unbuilt.layers[0].name}.units"]


def test_training_only():
    model = mlp()
    twin = regraft.clone(model)
    twin.get_layer("drop").rate = 0.25
    found = paths(model, twin)
    assert "mlp(inputs, training).output 0" in found
    assert "mlp(inputs, inference).output 0" not in found


def test_losses():
    model = linear(activity_regularizer=keras.regularizers.L2(0.5))
    twin = regraft.clone(model)
    twin.layers[0].activity_regularizer.l2 = 0.25
    found = paths(model, twin)
    assert "net(inputs, inference).loss 0" in found
    assert "net(inputs, inference).output 0" not in found


class Damped(layers.Layer):
    """Halves gradients, or not; the outputs do not show it."""

    damped = False

    def call(self, x):
        return x / 2 + keras.ops.stop_gradient(x / 2) if self.damped else x


def test_gradients():
    stack = [keras.Input((4,)), layers.Dense(2, name="dense"), Damped(name="damped")]
    model = keras.Sequential(stack, name="net")
    twin = regraft.clone(model)
    twin.layers[1].damped = True
    found = paths(model, twin)
    assert found[0] == "net/damped.damped"
    assert "net.<gradients>.0 net/dense/kernel" in found
    assert not [path for path in found if "output" in path]


def test_one_training_step():
    model = linear(name="dense")
    model.compile(keras.optimizers.SGD(0.25), "mse", jit_compile=False)
    twin = regraft.clone(model)
    twin.optimizer.learning_rate = 0.5
    found = paths(model, twin)
    step = "net.<after one training step>"
    assert [path for path in found if path.startswith(step) and "kernel" in path]
    assert not [path for path in found if "output" in path]


def test_state_that_a_call_moves():
    model = mlp()
    twin = regraft.clone(model)
    twin.get_layer("norm").momentum = 0.5
    found = paths(model, twin)
    assert "mlp(inputs, training).state norm/moving_mean" in found
    assert "mlp(inputs, inference).state norm/moving_mean" not in found


# --- on given inputs ----------------------------------------------------------


def test_given_inputs_are_used():
    model = keras.Sequential([keras.Input((2,), dtype="int32"), layers.Embedding(5, 3)])
    twin = regraft.clone(model)
    table = np.array(keras.ops.convert_to_numpy(model.layers[0].embeddings))
    table[4] += 1.0
    twin.layers[0].embeddings.assign(table)
    output = f"{model.name}(inputs, inference).output 0"
    assert output not in paths(model, twin, inputs=np.array([[0, 3]]))
    assert output in paths(model, twin, inputs=np.array([[0, 4]]))


class Pairwise(keras.Model):
    """Says nothing about its inputs."""

    def __init__(self):
        super().__init__(name="pairs")
        self.dense = layers.Dense(2)

    def call(self, inputs):
        return self.dense(inputs["a"]) - self.dense(inputs["b"])


def test_subclassed_model_on_given_inputs():
    model = Pairwise()
    inputs = {"a": ROWS, "b": 2 * ROWS}
    model(inputs)
    twin = regraft.clone(model)
    assert regraft.verify(model, twin, inputs=inputs).same
    twin.dense.activation = keras.activations.relu
    assert "pairs(inputs, inference).output 0" in paths(model, twin, inputs=inputs)


def test_given_inputs_are_not_changed():
    given = {"a": ROWS.copy(), "b": 2 * ROWS}
    model = Pairwise()
    model(given)
    regraft.verify(model, regraft.clone(model), inputs=given)
    assert list(given) == ["a", "b"]
    np.testing.assert_array_equal(given["a"], ROWS)


# --- global random streams ------------------------------------------------------


class Noisy(layers.Layer):
    """Adds numbers from a stream that belongs to nobody."""

    def __init__(self, draw):
        super().__init__(name="noisy")
        self.draw = draw

    def build(self, shape):
        pass

    def call(self, x):
        return x + self.draw(keras.ops.shape(x))


def draw_with_keras(shape):
    return keras.random.normal(shape)


def draw_with_numpy(shape):
    return np.random.normal(size=tuple(shape)).astype("float32")


def draw_with_tensorflow(shape):
    import tensorflow as tf

    return tf.random.normal(shape)


DRAWS = [draw_with_keras, draw_with_numpy]
if BACKEND == "tensorflow":
    DRAWS.append(draw_with_tensorflow)


@pytest.mark.parametrize("draw", DRAWS)
def test_global_random_streams_are_fixed_and_left_alone(draw):
    layer = Noisy(draw)
    layer.build((None, 3))
    twin = regraft.clone(layer)
    x = np.ones((2, 3), "float32")
    drawn = []
    for verifies in (False, True):
        keras.utils.set_random_seed(7)
        draw((1,))
        if verifies:
            assert regraft.verify(layer, twin, x).same
        drawn.append(keras.ops.convert_to_numpy(draw((4,))))
    assert np.array_equal(*drawn)


def test_symbolic_inputs_are_refused():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(regraft.UsageError) as caught:
        regraft.verify(model, regraft.clone(model), keras.Input((3,)))
    text = str(caught.value)
    assert "where: argument `inputs`" in text
    assert isinstance(caught.value, TypeError)
    assert "which is symbolic" in text
    assert "what to do: pass an array" in text


def test_drawing_inputs_moves_no_counter():
    layer = layers.Dense(2)
    layer.build((None, 3))
    before = keras.KerasTensor((1,)).name
    regraft.verify(layer, regraft.clone(layer))
    after = keras.KerasTensor((1,)).name
    assert int(after.rpartition("_")[2]) == int(before.rpartition("_")[2]) + 1


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's stream")
def test_a_stream_that_nobody_has_seeded():
    script = (
        "import keras, regraft\n"
        "layer = keras.layers.Dense(2)\n"
        "layer.build((None, 3))\n"
        "assert regraft.verify(layer, regraft.clone(layer)).same\n"
        "import tensorflow as tf\n"
        "assert not (tf.random.normal((8,)) == tf.random.normal((8,))).numpy().any()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_models_that_cannot_be_copied_are_not_called_the_same_unasked():
    def locked():
        layer = layers.Dense(2, name="dense")
        layer.build((None, 3))
        vars(layer)["lock"] = threading.Lock()
        return layer

    one, two = locked(), locked()
    two.set_weights(one.get_weights())
    with pytest.raises(regraft.UsageError) as caught:
        regraft.verify(one, two, np.ones((1, 3), "float32"))
    assert "neither can be copied" in str(caught.value)
    assert "pass `inputs=False`" in str(caught.value)
    assert regraft.verify(one, two, inputs=False).same


class Strict(layers.Layer):
    """Is called with data alone."""

    def __call__(self, data):
        return super().__call__(data)

    def call(self, data):
        return data * 2


def test_a_layer_that_cannot_be_told_that_it_is_trained():
    layer = Strict()
    x = np.ones((2, 3), "float32")
    layer(x)
    assert regraft.verify(layer, regraft.clone(layer), inputs=x).same


class Symbolic(layers.Layer):
    """Returns a symbolic tensor, whatever it is given."""

    def __init__(self, tensor):
        super().__init__()
        self.tensor = tensor

    def call(self, x):
        return self.tensor


def test_a_layer_that_returns_a_symbolic_tensor():
    layer = Symbolic(keras.Input((3,)))
    x = np.ones((2, 3), "float32")
    layer(x)
    assert regraft.verify(layer, regraft.clone(layer), inputs=x).same


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's")
def test_an_export_leaves_no_difference(tmp_path):
    inputs = keras.Input((5,))
    model = keras.Model(inputs, keras.layers.Dropout(0.2)(inputs))
    twin = regraft.clone(model)
    model.export(str(tmp_path / "model"), verbose=False)
    assert regraft.verify(model, twin).same


class OnlyBig(keras.Model):
    def __init__(self):
        super().__init__(name="big")
        self.dense = layers.Dense(2)

    def call(self, x):
        if float(keras.ops.max(x)) < 100:
            raise ValueError("only big numbers")
        return self.dense(x)


def test_a_proof_says_what_was_not_run():
    model = OnlyBig()
    big = np.full((2, 3), 200.0, "float32")
    model(big)
    proof = regraft.verify(model, regraft.clone(model))
    assert proof.same
    assert proof.note
    assert proof.note in str(proof)
    if keras.backend.backend() == "torch":  # Elsewhere it does not say what it takes.
        assert proof.note == "called on drawn inputs, which raises ValueError"
    assert regraft.verify(model, regraft.clone(model), big).note == ""
    told = regraft.verify(model, regraft.clone(model), inputs=False)
    assert told.note == "not called, as they were told"
    layer = layers.Dense(2)
    silent = regraft.verify(layer, regraft.clone(layer))
    assert silent.note == "not called, as they say nothing of their inputs"
    assert regraft.verify(layer, regraft.clone(layer), big).note == ""


def test_inputs_that_cannot_be_copied_are_told_of():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(regraft.UsageError) as raised:
        regraft.verify(model, regraft.clone(model), inputs=(i for i in range(3)))
    assert "copies of the inputs, which cannot be made" in str(raised.value)
    assert "argument `inputs`" in str(raised.value)


def test_what_predicting_leaves_on_one_of_two_models():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    model.evaluate(np.ones((2, 4)), np.ones((2, 2)), verbose=0)
    twin = regraft.clone(model)
    twin.predict(np.ones((2, 4)), verbose=0)
    assert regraft.verify(model, twin).same
    twin.stop_predicting = True  # The next loop takes it back.
    assert regraft.verify(model, twin).same
    assert not regraft.clone(twin).stop_predicting

"""Cases that cloners got wrong: how layers are connected and called."""

import keras
import numpy as np
import pytest
from conformance.checks import (
    COPIERS,
    assert_copy,
    assert_same_calls,
    by_clone,
    by_clone_model,
    call,
)
from keras import layers

import regraft

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(2, 4)).astype("float32")
FACTOR = 3.0


def scaled(x):
    return x * FACTOR


def squashed(x):
    return x / (1.0 + keras.ops.abs(x))


class Scale(layers.Layer):
    """Takes an argument besides its input."""

    def call(self, x, factor=1.0):
        return x * factor


def two_output_lambda():
    x = keras.Input((4,))
    y = layers.Lambda(lambda x: [x, x])(x)
    return keras.Model(x, layers.Add()(y)), ROWS


class Swap(layers.Layer):
    def call(self, inputs):
        return [inputs[1], inputs[0]]


def several_inputs_and_outputs():
    # The test that Keras got with its correction.
    x = keras.Input((4,))
    a, b = layers.Lambda(lambda x: [x + 1, x])(x)
    a, b = Swap()([a, b])
    return keras.Model(x, layers.Subtract()([a, layers.Dense(4)(b)])), ROWS


def two_output_lambda_in_the_middle():
    x = keras.Input((4,))
    a, b = layers.Lambda(lambda x: [x, 2.0 * x], name="split")(layers.Dense(3)(x))
    return keras.Model(x, [layers.Add()([a, b]), b]), ROWS


def plain():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(2)(layers.Dense(3, "relu")(x))), ROWS


def shared_layer():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    dense = layers.Dense(2, "tanh")
    return keras.Model([a, b], layers.Subtract()([dense(a), dense(b)])), [ROWS, -ROWS]


def layer_on_its_own_output():
    x = keras.Input((4,))
    dense = layers.Dense(4, "tanh")
    return keras.Model(x, dense(dense(dense(x)))), ROWS


def dropout():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dropout(0.5, seed=3)(layers.Dense(9)(x))), ROWS


def layer_in_nested_models():
    dense = layers.Dense(4, "tanh", name="shared")
    inner = keras.Sequential([keras.Input((4,)), dense], name="inner")
    x = keras.Input((4,))
    return keras.Model(x, layers.Subtract()([inner(x), dense(x)])), ROWS


def nested_model_called_twice():
    y = keras.Input((4,))
    inner = keras.Model(y, layers.Dense(2, "tanh")(y), name="inner")
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    return keras.Model([a, b], layers.Subtract()([inner(a), inner(b)])), [ROWS, -ROWS]


def nested_three_deep():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4, "tanh")])
    for depth in range(2):
        x = keras.Input((4,))
        model = keras.Model(x, layers.Dense(4)(model(x)), name=f"depth_{depth}")
    return model, ROWS


def two_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    difference = layers.Subtract()([a, layers.Dense(4)(b)])
    return keras.Model([a, b], difference), [ROWS, -ROWS]


def two_outputs():
    x = keras.Input((4,))
    h = layers.Dense(3, "relu")(x)
    heads = [layers.Dense(1, name="one")(h), layers.Dense(2, name="two")(h)]
    return keras.Model(x, heads), ROWS


def named_inputs_and_outputs():
    ins = {"a": keras.Input((4,), name="a"), "b": keras.Input((4,), name="b")}
    h = layers.Subtract()([layers.Dense(4)(ins["a"]), ins["b"]])
    outs = {"sum": layers.Dense(2)(h), "input": ins["b"], "hidden": h}
    return keras.Model(ins, outs), {"a": ROWS, "b": -ROWS}


def skip_connections():
    x = keras.Input((4,))
    h = layers.Dense(4, "relu")(x)
    for _ in range(3):
        h = layers.Add()([h, layers.Dense(4, "tanh")(h), x])
    return keras.Model(x, layers.Concatenate()([h, x])), ROWS


def sequential():
    stack = [keras.Input((4,)), layers.Dense(3, "relu"), layers.Dense(2)]
    return keras.Sequential(stack), ROWS


def keyword_argument():
    x = keras.Input((4,))
    return keras.Model(x, Scale()(layers.Dense(4)(x), factor=2.5)), ROWS


def tensor_as_keyword_argument():
    x = keras.Input((4,))
    return keras.Model(x, Scale()(x, factor=layers.Dense(4)(x))), ROWS


def training_fixed_in_the_graph():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dropout(0.5, seed=5)(x, training=True)), ROWS


def lambda_of_a_module_global():
    x = keras.Input((4,))
    return keras.Model(x, layers.Lambda(scaled)(layers.Dense(4)(x))), ROWS


def custom_activation():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(3, activation=squashed)(x)), ROWS


CASES = [
    two_output_lambda,
    several_inputs_and_outputs,
    two_output_lambda_in_the_middle,
    plain,
    shared_layer,
    layer_on_its_own_output,
    dropout,
    layer_in_nested_models,
    nested_model_called_twice,
    nested_three_deep,
    two_inputs,
    two_outputs,
    named_inputs_and_outputs,
    skip_connections,
    sequential,
    keyword_argument,
    tensor_as_keyword_argument,
    training_fixed_in_the_graph,
    lambda_of_a_module_global,
    custom_activation,
]


@pytest.mark.parametrize("build", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_copy_computes_the_same(build, copy):
    model, inputs = build()
    assert_copy(model, copy(model), inputs)


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_shared_layer_stays_one_layer(copy):
    model, _ = shared_layer()
    twin = copy(model)
    assert len(twin.layers) == len(model.layers) == 4
    assert len(twin.weights) == 2
    assert len(twin.layers[2]._inbound_nodes) == 2


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_layer_shared_across_nesting_stays_one_layer(copy):
    twin = copy(layer_in_nested_models()[0])
    assert twin.get_layer("shared") is twin.get_layer("inner").layers[0]
    assert len(twin.weights) == 2


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_batch_norm_of_the_copy_updates_its_own_statistics(copy):
    x = keras.Input((4,))
    model = keras.Model(x, layers.BatchNormalization(momentum=0.5)(x))
    model(ROWS, training=True)
    twin = copy(model)
    assert_same_calls(model, twin, ROWS, training=True)
    mean, twin_mean = model.layers[1].moving_mean, twin.layers[1].moving_mean
    np.testing.assert_array_equal(mean, twin_mean)
    assert np.any(np.array(mean) != 0)
    twin(ROWS, training=True)
    assert np.any(np.array(mean) != np.array(twin_mean))


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_calls_outside_of_the_model_do_not_come_along(copy):
    x, other = keras.Input((4,), name="x"), keras.Input((4,), name="other")
    dense = layers.Dense(4, "tanh")
    before = keras.Model(other, dense(other))
    model = keras.Model(x, dense(dense(x)))
    after = keras.Model(other, layers.Dense(2)(dense(other)))
    twin = copy(model)
    assert len(dense._inbound_nodes) == 4
    assert [x.name for x in twin.layers] == ["x", dense.name]
    _, second = twin.layers[1]._inbound_nodes
    assert twin.layers[1]._outbound_nodes == [second]
    assert_copy(model, twin, ROWS)
    # The other models still are what they were.
    assert before.layers[1] is after.layers[1] is dense
    assert_same_calls(before, before, ROWS)


@pytest.mark.parametrize("copy", [by_clone, by_clone_model])
def test_subclassed_model(copy):
    class Subclassed(keras.Model):
        def __init__(self, units):
            super().__init__()
            self.dense = layers.Dense(units)

        def call(self, x):
            return self.dense(x) * 2.0

    model = Subclassed(3)
    model(ROWS)
    twin = copy(model)
    assert_copy(model, twin, ROWS)
    assert twin.dense.units == 3
    assert twin.dense is not model.dense


def test_training_fixed_in_the_graph_really_drops():
    model, inputs = training_fixed_in_the_graph()
    [values], _ = call(regraft.clone(model), inputs)
    assert np.any(values == 0)


def test_dropout_of_both_comes_from_the_same_stream():
    model, inputs = dropout()
    call(model, inputs, training=True)
    twin = regraft.clone(model)
    for _ in range(2):
        assert_same_calls(model, twin, inputs, training=True)


def test_values_are_really_fresh():
    model, inputs = plain()
    twin = regraft.clone_model(model)
    for weight, new in zip(model.weights, twin.weights, strict=True):
        if weight.name == "kernel":
            assert not np.any(np.array(weight) == np.array(new))
    [values], _ = call(model, inputs)
    [new_values], _ = call(twin, inputs)
    assert not np.any(values == new_values)


def test_lambda_sees_the_module_global_as_it_is_now(monkeypatch):
    model, inputs = lambda_of_a_module_global()
    twin = regraft.clone(model)
    monkeypatch.setitem(globals(), "FACTOR", 10.0)
    assert_same_calls(model, twin, inputs)
    function = twin.layers[2].function
    assert function(1.0) == 10.0

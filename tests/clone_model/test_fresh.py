"""`clone_model` without further arguments: the same network with new weights."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import UsageError, clone_model

from .networks import (
    BACKEND,
    X,
    again,
    assert_independent,
    assert_same_network,
    call,
    mlp,
    numbers,
    sequential,
    shared,
)


@pytest.mark.parametrize("build", [mlp, shared, sequential])
def test_same_network_with_new_weights(build):
    model = build()
    new = clone_model(model)
    assert type(new) is type(model)
    assert new.name == model.name
    assert [x.name for x in new.layers] == [x.name for x in model.layers]
    for ours, theirs in zip(new.weights, model.weights, strict=True):
        same = np.array_equal(*map(ops.convert_to_numpy, (ours, theirs)))
        assert same == (ours.name == "bias")
    assert_independent(model, new)
    assert_same_network(model, new, X)


def test_unbuilt_sequential():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    new = clone_model(model)
    assert not new.built
    assert new(X).shape == (2, 2)
    assert not model.built


def test_subclassed_model_needs_no_config():
    class Net(keras.Model):
        def __init__(self, units=3):
            super().__init__()
            self.dense = layers.Dense(units)

        def call(self, x):
            return self.dense(x)

    model = Net(5)
    model(X)
    new = clone_model(model)
    assert type(new) is Net
    assert new(X).shape == (2, 5)
    assert_same_network(model, new, X)


def test_two_output_lambda_of_keras_issue_12202():
    x = keras.Input((4,))
    pair = layers.Lambda(lambda t: [t, t])(x)
    model = keras.Model(x, layers.Add()(pair))
    for new in (clone_model(model), clone_model(model, call_function=call)):
        assert_same_network(model, new, X)


def test_optional_input_and_frozen_model_stay_so():
    x = keras.Input((4,), optional=True, name="maybe")
    model = keras.Model(x, layers.Lambda(lambda t: ops.ones((1, 1)))(x))
    model.trainable = False
    for new in (clone_model(model), clone_model(model, call_function=call)):
        assert new.get_layer("maybe").optional
        assert new(None).shape == (1, 1)
        assert not new.trainable


@pytest.mark.skipif(BACKEND == "torch", reason="torch has no sparse inputs in Keras")
def test_sparse_input_stays_sparse():
    x = keras.Input((4,), sparse=True)
    model = keras.Model(x, layers.Dense(2)(x))
    for new in (clone_model(model), clone_model(model, clone_function=again)):
        assert new.inputs[0].sparse


@pytest.mark.parametrize("model", [layers.Dense(2), "mlp", keras.Model, None])
def test_only_models(model):
    with pytest.raises(ValueError, match="`clone_model` clones models") as caught:
        clone_model(model)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("argument", ["clone_function", "call_function"])
def test_functions_must_be_callable(argument):
    with pytest.raises(
        UsageError, match=f"Expected `{argument}` argument to be a call"
    ):
        clone_model(mlp(), **{argument: "again"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"clone_function": again},
        {"call_function": call},
        {"input_tensors": keras.KerasTensor((None, 4))},
    ],
)
def test_a_subclassed_model_has_no_graph_to_replay(arguments):
    class Net(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(
        UsageError, match="only supported for Functional and Sequential"
    ):
        clone_model(Net(), **arguments)


def chain():
    x = keras.Input((4,))
    y = layers.Dropout(0.5)(layers.Dense(3)(x))
    return keras.Model(x, layers.Dense(2)(y))


def fork():
    a, b = keras.Input((4,)), keras.Input((4,))
    both = layers.Concatenate()([layers.Dense(3)(a), layers.Dense(3)(b)])
    return keras.Model([a, b], [layers.Dense(2)(both), layers.Dense(1)(a)])


def recurrent():
    dense = layers.Dense(2, kernel_initializer="he_normal", bias_initializer="uniform")
    return keras.Sequential([keras.Input((6, 4)), layers.LSTM(3), dense])


@pytest.mark.parametrize("build", [chain, fork, recurrent])
def test_after_a_global_seed_the_weights_are_those_that_keras_draws(build):
    model = build()
    drawn = []
    for clone in (clone_model, keras.models.clone_model):
        keras.utils.set_random_seed(7)
        drawn.append(clone(model).variables)
    for ours, theirs in zip(*drawn, strict=True):
        np.testing.assert_array_equal(numbers([ours])[0], numbers([theirs])[0])

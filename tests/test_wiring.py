"""Tensors that say of whom they are."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft as rg

X = np.ones((2, 3), "float32")


def claimed():
    """An input of which another `InputLayer` says that it made it."""
    x = keras.Input((3,))
    model = keras.Model(x, layers.Dense(2)(x))
    keras.Input(tensor=x)
    return model


def claimed_sequential():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    keras.models.clone_model(model, input_tensors=model.inputs[0])
    return model


@pytest.mark.parametrize("build", [claimed, claimed_sequential])
def test_an_input_that_another_layer_claims(build):
    model = build()
    new = rg.clone(model)
    rg.verify(model, new).raise_if_different()
    old_layer, layer = (m.inputs[0]._keras_history.operation for m in (model, new))
    assert layer is not old_layer
    assert layer.name == old_layer.name
    np.testing.assert_array_equal(
        new.predict(X, verbose=0), model.predict(X, verbose=0)
    )
    assert keras.Model(new.inputs, new.outputs).count_params() == 8


def test_a_claimed_input_is_edited():
    new = rg.graph(claimed()).append(layers.Dense(5)).build()
    assert new(X).shape == (2, 5)


def test_an_input_that_nobody_made_is_told():
    model = claimed()
    new = rg.clone(model)
    history = new.inputs[0]._keras_history
    new.inputs[0]._keras_history = history._replace(operation=None)
    found = [str(d) for d in rg.diff(model, new, inputs=False)]
    assert any("another call" in line for line in found)

"""Parts of the model that functions find by way of globals."""

import functools
import types
import warnings
from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import layers

import regraft

pytestmark = pytest.mark.wiring

PART = layers.Dense(4, name="part")
SPACE = types.SimpleNamespace(part=PART)
METHOD = PART.__call__
PARTIAL = functools.partial(PART)
DEEP = [[{"part": PART}]]
UNUSED = types.SimpleNamespace(other=layers.Dense(4, name="other"))


class Registry:
    parts: ClassVar = {"part": PART}


def helper(x):
    return PART(x)


def helpers_helper(x):
    return helper(x)


READERS = {
    "helper": lambda x: helpers_helper(x),
    "SPACE": lambda x: SPACE.part(x),
    "METHOD": lambda x: METHOD(x),
    "PARTIAL": lambda x: PARTIAL(x),
    "DEEP": lambda x: DEEP[0][0]["part"](x),
    "Registry": lambda x: Registry.parts["part"](x),
}


def model_with(function):
    inputs = keras.Input((4,))
    outputs = layers.Lambda(function, output_shape=(4,), name="reads")(PART(inputs))
    return keras.Model(inputs, outputs, name="model")


@pytest.mark.parametrize("name", READERS)
def test_a_part_that_is_behind_a_global_warns(name):
    model = model_with(READERS[name])
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(model)
    (text,) = [str(warning.message) for warning in caught]
    if name == "helper":
        assert "The function `helper` reads `PART` (Dense 'part')" in text
    else:
        assert f"reads `{name}` (Dense 'part') from a module global" in text
    assert "where: model/reads.function" in text


def test_a_global_that_holds_parts_of_other_models_does_not_warn():
    model = model_with(lambda x: x * len(vars(UNUSED)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.clone(model)


class Scale(layers.Layer):
    def __init__(self):
        super().__init__(name="scale")
        self.factor = self.add_weight(shape=(), initializer="ones")

    def twice(self, x):
        return 2 * self.factor * x


SCALE = Scale()


def test_a_method_of_a_global_layer_is_bound_to_the_copy():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Lambda(SCALE.twice, output_shape=(4,))(inputs))
    twin = regraft.clone(model)
    assert twin.layers[-1].function.__self__ is not SCALE
    assert regraft.verify(model, twin).same


NORM = layers.BatchNormalization(name="norm")


class ReadsNorm(keras.Model):
    def __init__(self):
        super().__init__()
        self.norm, self.head = NORM, layers.Dense(1)

    def call(self, x, training=None):
        return self.head(NORM(x, training=training))


def test_what_both_models_read_is_told_and_left_alone():
    x = np.random.default_rng(0).random((4, 3), "float32")
    model = ReadsNorm()
    model.compile("sgd", "mse")
    model.train_on_batch(x, x[:, :1])
    with pytest.warns(regraft.GlobalReferenceWarning):
        twin = regraft.clone(model)
    before = [np.array(w) for w in NORM.get_weights()]
    proof = regraft.verify(model, twin, inputs=x)
    assert "both models read `NORM` from a module global" in str(proof)
    assert "not called" in proof.note
    assert not proof.same
    for old, new in zip(before, NORM.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


class NearNorm(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_pred - NORM.gamma[0]), axis=-1)


def test_what_the_losses_of_both_models_read_is_told():
    x = np.random.default_rng(0).random((4, 3), "float32")
    NORM(x)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile("sgd", NearNorm())
    proof = regraft.verify(model, regraft.clone(model), inputs=x)
    assert "both models read `NORM` from a module global" in str(proof)
    assert not proof.same

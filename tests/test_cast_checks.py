"""Values that another precision cannot hold, and files that cannot tell of it."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import regraft as rg

ROWS = np.ones((4, 5), "float32")


def dense(value):
    model = keras.Sequential([keras.Input((5,)), layers.Dense(2, name="dense")])
    model.layers[0].kernel.assign(np.full((5, 2), value))
    return model


@pytest.mark.parametrize("policy", ["float16", "mixed_float16"])
def test_weights_that_would_be_infinite_when_they_are_used(policy):
    with pytest.raises(rg.PrecisionError, match="too large for float16") as caught:
        rg.clone(dense(1e6 + 0.5), dtype=policy)
    assert "dense/kernel" in str(caught.value)
    assert "'mixed_bfloat16'" in str(caught.value)
    assert rg.clone(dense(1e4 + 0.5), dtype=policy).layers[0].kernel.shape == (5, 2)


def test_large_values_that_are_never_cast():
    model = keras.Sequential([keras.Input((5,)), layers.BatchNormalization()])
    model.layers[0].moving_variance.assign(np.full(5, 1e6 + 0.5))
    new = rg.clone(model, dtype="mixed_float16")
    assert new.layers[0].moving_variance.dtype == "float32"


@pytest.mark.parametrize("how", [{"compiled": "fresh"}, {"weights": "fresh"}])
def test_slots_that_start_anew_may_have_been_large(how):
    model = dense(0.5)
    model.compile("adam", "mse")
    model.train_on_batch(ROWS, ROWS[:, :2])
    slot = model.optimizer.variables[-1]
    slot.assign(np.full(slot.shape, 1e7))
    with pytest.raises(rg.PrecisionError, match="too large"):
        rg.clone(model, dtype="float16")
    new = rg.clone(model, dtype="float16", **how)
    assert {v.dtype for v in new.optimizer.variables[2:]} == {"float16"}


class Block(layers.Layer):
    """Makes a layer in the precision that is the default."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(3, **self.options())

    def options(self):
        return {}

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x)


class GoodBlock(Block):
    """Makes it in its own."""

    def options(self):
        return {"dtype": self.dtype_policy}


def model_of(layer):
    x = keras.Input((5,))
    return keras.Model(x, layer(x))


def test_a_precision_of_which_files_do_not_tell(tmp_path):
    with pytest.warns(rg.EditNotSavedWarning, match="files will not tell") as caught:
        new = rg.clone(model_of(Block(name="block")), dtype="bfloat16")
    (told,) = [w for w in caught if w.category is rg.EditNotSavedWarning]
    assert "where: block" in str(told.message)
    assert told.filename == __file__
    new.save(tmp_path / "model.keras")
    known = {"Block": Block}
    loaded = keras.models.load_model(tmp_path / "model.keras", custom_objects=known)
    assert loaded.get_layer("block").inner.kernel.dtype == "float32"


def test_a_precision_of_which_files_tell():
    with warnings.catch_warnings():
        warnings.simplefilter("error", rg.EditNotSavedWarning)
        rg.clone(model_of(GoodBlock()), dtype="bfloat16")
        rg.clone(model_of(keras.Sequential([layers.Dense(3)])), dtype="bfloat16")


def test_weights_that_a_layer_casts_by_itself():
    x = keras.Input((3,), dtype="int32")
    model = keras.Model(x, layers.Embedding(9, 2, name="words")(x))
    model.get_layer("words").embeddings.assign(np.full((9, 2), 1e6))
    with pytest.raises(rg.PrecisionError, match="too large for float16"):
        rg.clone(model, dtype="mixed_float16")


def test_large_numbers_are_always_whole():
    known, x = layers.Normalization(), keras.Input((5,))
    known.adapt(np.random.default_rng(0).random((9, 5)) * 1e6)
    assert rg.clone(keras.Model(x, known(x)), dtype="mixed_bfloat16").built


class Holding(Block):
    """Makes a variable of a value when it is made."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = keras.Variable(np.ones(3, "float32"))


def test_a_constructor_that_needs_memory_is_asked_as_well():
    with pytest.warns(rg.EditNotSavedWarning, match="files will not tell"):
        rg.clone(model_of(Holding()), dtype="bfloat16")


class Around(layers.Layer):
    """Has a layer in its configuration, and freezes it when it is made."""

    def __init__(self, part, **kwargs):
        super().__init__(**kwargs)
        self.part = part
        part.trainable = False

    def call(self, x):
        return self.part(x)

    def get_config(self):
        return {**super().get_config(), "part": self.part}


def test_asking_what_files_tell_changes_nothing():
    part = layers.Dense(3)
    model = model_of(Around(part))
    part.trainable = True
    assert rg.clone(model, dtype="bfloat16").layers[1].part.trainable
    rg.clone(model, dtype="mixed_bfloat16", keep=[part])
    assert part.trainable

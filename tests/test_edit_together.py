"""Edits that fit together and not alone, and notes about them."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft


def outer():
    """A model inside adds what it is given to what a layer of its own makes."""
    inner_x = keras.Input((5, 4), name="inner_x")
    i = layers.Dense(4, name="i2")(layers.Dense(3, name="i1")(inner_x))
    inner = keras.Model(inner_x, layers.Add(name="sum")([i, inner_x]), name="inner")
    x = keras.Input((5, 6), name="x")
    h = layers.Dense(4, name="first")(x)
    return keras.Model(x, layers.Add(name="last")([inner(h), h]), name="outer")


def narrower(old):
    return layers.Dense(2, name=old.name)


def test_layers_of_two_models_change_their_width_together():
    graph = regraft.graph(outer())
    new = graph.replace(("first", "inner/i2"), narrower).build(mismatch="fresh")
    assert new.output_shape == (None, 5, 2)
    assert new.get_layer("inner").input_shape == (None, 5, 2)
    for alone in ("first", "inner/i2"):
        with pytest.raises(regraft.UsageError, match="cannot be called there"):
            graph.replace(alone, narrower)


def test_an_input_changes_with_what_takes_it():
    x = keras.Input((3,), name="x")
    first = layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0] * 3, name="n")
    model = keras.Model(x, layers.Dense(2, name="d")(first(x)))
    graph = regraft.graph(model)

    def longer(old):
        if isinstance(old, keras.layers.InputLayer):
            return keras.Input((4,), name="x")
        return layers.Normalization(mean=[1.0] * 4, variance=[1.0] * 4, name="n")

    new = graph.replace(("x", "n"), longer).build(mismatch="fit")
    assert new.input_shape == (None, 4)
    old, fitted = (m.get_layer("d").kernel for m in (model, new))
    assert fitted.shape == (4, 2)
    np.testing.assert_array_equal(
        keras.ops.convert_to_numpy(fitted)[:3], keras.ops.convert_to_numpy(old)
    )


def test_an_input_becomes_nothing_else():
    graph = regraft.graph(outer())
    for wrong in (lambda old: layers.Dense(2), lambda old: None):
        with pytest.raises(regraft.UsageError) as error:
            graph.replace("x", wrong)
        assert "an input can only become another input" in str(error.value)
        assert "where: x" in str(error.value)
    with pytest.raises(regraft.UsageError, match="can only become another input"):
        graph.replace("inner/inner_x", lambda old: keras.Input((5, 9)))
    with pytest.raises(regraft.UsageError, match="this is an input of the model"):
        graph.replace("x", layers.Dense(2))


def test_a_layer_deep_inside_is_built_in_its_place():
    """The path of its variables has several parts."""
    each = layers.TimeDistributed(
        layers.TimeDistributed(layers.Dense(3, name="d"), name="second"), name="each"
    )
    model = keras.Sequential([keras.Input((2, 5, 4)), each], name="net")
    assert each.layer.layer.kernel.path.count("/") == 4
    new = regraft.graph(model).replace("each/second/d", layers.Dense(3, name="d"))
    built = new.build()
    assert [v.path for v in built.variables] == [v.path for v in model.variables]


def test_what_was_said_is_told():
    graph = regraft.graph(outer()).say("Nothing was done.")
    assert graph.notes == ("Nothing was done.",)
    assert regraft.lineage(graph.build()).notes == ("Nothing was done.",)

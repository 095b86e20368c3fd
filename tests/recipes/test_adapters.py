"""Bottlenecks between layers."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.nets import assert_copied, convnet, data, output, untouched
from regraft.recipes import insert_adapters

pytestmark = pytest.mark.wiring


@pytest.mark.parametrize("where", ["pool", "block/b1", ("stem_relu", "hidden")])
def test_nothing_changes_at_first(where):
    model = convnet()
    with untouched(model):
        new = insert_adapters(model, where, 2)
    x = data(model)
    np.testing.assert_array_equal(output(new, x), output(model, x))
    assert_copied(new, model)
    count = 2 if isinstance(where, tuple) else 1
    assert len(regraft.lineage(new)) == len(model.variables) + 4 * count


@pytest.mark.every_backend
def test_only_adapters_learn():
    model = convnet()
    model.compile("sgd", "mse")
    new = insert_adapters(model, ("block/b1", "pool"), 2, freeze=True)
    assert len(new.trainable_variables) == 8
    before = {v.path: keras.ops.convert_to_numpy(v) for v in new.variables}
    x = data(model)
    new.fit(x, np.ones((3, 4)), epochs=2, verbose=0)
    moved = {
        v.path for v in new.weights if not np.array_equal(before[v.path], v.numpy())
    }
    assert moved
    assert all("up" in path or "down" in path for path in moved)
    assert {v.path for v in new.trainable_variables} >= moved


def test_channels_first():
    x = keras.Input((3, 4, 5))
    h = layers.ReLU(name="relu")(x)
    model = keras.Model(x, layers.Flatten()(h))
    new = insert_adapters(model, "relu", 2, axis=1)
    assert [tuple(w.shape) for w in new.weights] == [
        (3, 2),
        (2, 1, 1),
        (2, 3),
        (3, 1, 1),
    ]
    given = data(model)
    np.testing.assert_array_equal(output(new, given), output(model, given))


def test_a_sequence_stays_one_and_learns_something():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="d")])
    new = insert_adapters(model, "d", 2, activation="relu")
    assert isinstance(new, keras.Sequential)
    new.compile("sgd", "mse")
    x = data(model)
    assert new.evaluate(x, np.zeros((3, 3)), verbose=0) > 0
    new.fit(x, np.zeros((3, 3)), epochs=3, verbose=0)
    assert not np.array_equal(output(new, x), output(model, x))


def test_inside_a_layer_the_shape_is_not_known():
    x = keras.Input((5, 4))
    model = keras.Model(x, layers.TimeDistributed(layers.Dense(3), name="each")(x))
    with pytest.raises(regraft.UsageError) as error:
        insert_adapters(model, "each/*", 2)
    assert "`insert_adapters` must know the shape" in str(error.value)
    assert "each/dense" in str(error.value)


def test_adapters_of_a_frozen_model_learn():
    model = convnet()
    model.trainable = False
    new = insert_adapters(model, ("hidden", "block/b2"), 2, freeze=True)
    assert len(new.trainable_variables) == 8
    assert all("adapter" in v.path for v in new.trainable_variables)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"size": 0}, "`size` must be a whole number from 1 on."),
        ({"axis": 7}, "`insert_adapters` must know the axis of the channels."),
        ({"axis": 0}, "received: axis=0"),
        ({"activation": "zork"}, "This is no activation."),
        ({"activation": layers.ReLU}, "where: argument `activation`"),
    ],
)
def test_wrong_arguments(arguments, text):
    with pytest.raises(regraft.UsageError) as error:
        insert_adapters(convnet(), "hidden", **{"size": 2, **arguments})
    assert text in str(error.value)

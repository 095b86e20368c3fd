"""Another head, or none."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.nets import (
    assert_copied,
    changed,
    convnet,
    data,
    output,
    outputs,
    untouched,
)
from regraft.recipes import features, swap_head

pytestmark = pytest.mark.wiring


@pytest.mark.every_backend
def test_a_new_head_and_all_other_weights():
    model = convnet()
    with untouched(model):
        new = swap_head(model, layers.Dense(7, name="seven"))
    assert new.output_shape == (None, 7)
    assert changed(new) == {"seven/kernel", "seven/bias", "head/kernel", "head/bias"}
    assert_copied(new, model)
    x = data(model)
    np.testing.assert_array_equal(
        output(features(model, "hidden"), x), output(features(new, "hidden"), x)
    )


def test_a_head_may_be_a_model_a_function_or_given_weights():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(9)])
    head = keras.Sequential([layers.Dropout(0.5), layers.Dense(2)], name="top")
    new = swap_head(model, head)
    assert isinstance(new, keras.Sequential)
    assert new.layers[-1].name == "top"
    assert new.output_shape == (None, 2)
    wider = swap_head(model, lambda old: layers.Dense(old.units + 1))
    assert wider.output_shape == (None, 10)
    ready = layers.Dense(2, kernel_initializer="ones")
    ready.build((None, 3))
    new = swap_head(model, ready)
    assert (keras.ops.convert_to_numpy(new.layers[-1].kernel) == 1).all()


def test_of_several_heads_one_is_chosen():
    x = keras.Input((4,))
    a, b = layers.Dense(2, name="a")(x), layers.Dense(3, name="b")(x)
    model = keras.Model(x, {"a": a, "b": b})
    new = swap_head(model, layers.Dense(5, name="c"), output=1)
    assert {k: v.shape for k, v in new.output.items()} == {
        "a": (None, 2),
        "b": (None, 5),
    }
    for wrong in (None, 2):
        with pytest.raises(regraft.UsageError) as error:
            swap_head(model, layers.Dense(5), output=wrong)
        assert "`swap_head` must be told which head." in str(error.value)
        assert "0: a, 1: b" in str(error.value)


def test_features_at_any_depth():
    model = convnet()
    x = data(model)
    with untouched(model):
        one = features(model, "pool")
        some = features(model, ("block/b1", "stem_relu", "hidden"))
    np.testing.assert_array_equal(
        output(one, x),
        output(keras.Model(model.input, model.get_layer("pool").output), x),
    )
    found = outputs(some, x)
    assert [a.shape[1:] for a in found] == [(8, 8, 6), (8, 8, 6), (5,)]
    np.testing.assert_array_equal(
        found[2],
        output(keras.Model(model.input, model.get_layer("hidden").output), x),
    )
    assert "head" not in [layer.name for layer in some.layers]
    assert_copied(some, model)
    assert len(features(model, layers.Conv2D).outputs) == 2


def test_a_graph_will_do():
    edited = regraft.graph(convnet()).remove("stem_relu")
    assert features(edited, "stem_bn").output_shape == (None, 8, 8, 6)
    assert swap_head(edited, layers.Dense(2)).output_shape == (None, 2)


def test_features_of_nothing():
    with pytest.raises(regraft.UsageError) as error:
        features(convnet(), "pol")
    assert "`features` found nothing to change." in str(error.value)
    assert "'pol'" in str(error.value)

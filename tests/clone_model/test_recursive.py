"""`recursive`: models and layers inside layers."""

import keras
import numpy as np
import pytest
from keras import layers

from regraft import UsageError, clone, clone_model

from .networks import (
    STEPS,
    Block,
    X,
    again,
    assert_independent,
    assert_same_network,
    assert_same_network_after_build,
    call,
    nested,
)


def test_nested_models_are_asked_for_whole_unless_recursive():
    model = nested()
    asked = []

    def record(layer):
        asked.append(layer.name)
        return layer

    clone_model(model, clone_function=record)
    assert sorted(asked) == ["add", "deep", "inner", "stack"]
    asked.clear()
    clone_model(model, clone_function=record, recursive=True)
    assert sorted(asked) == ["add", "deep"]


@pytest.mark.parametrize(
    "arguments", [{"clone_function": again}, {"call_function": call}, {}]
)
def test_a_layer_shared_by_all_levels_stays_shared(arguments):
    model = nested()
    new = clone_model(model, recursive=True, **arguments)
    deep = new.get_layer("deep")
    assert new.get_layer("inner").get_layer("deep") is deep
    assert new.get_layer("stack").layers == [deep]
    assert len(new.weights) == 2
    assert_independent(model, new)
    assert_same_network(model, new, X)


def test_a_call_function_reaches_nested_models():
    def drop(layer, *args, **kwargs):
        out = layer(*args, **kwargs)
        return layers.Dropout(0.5)(out) if layer.name == "deep" else out

    new = clone_model(nested(), call_function=drop, recursive=True)
    for model in (new.get_layer("inner"), new.get_layer("stack")):
        assert any(isinstance(layer, layers.Dropout) for layer in model.layers)
    assert isinstance(new.get_layer("stack"), keras.Sequential)
    new = clone_model(nested(), call_function=drop)
    assert len(new.get_layer("stack").layers) == 1


def test_unbuilt_nested_sequentials():
    model = keras.Sequential([keras.Sequential([layers.Dense(3, name="a")]), Block()])
    asked = []

    def record(layer):
        asked.append(layer.name)
        return again(layer)

    new = clone_model(model, clone_function=record, recursive=True)
    assert asked[0] == "a"
    assert not new.built
    assert_same_network_after_build(model, new)


def inside(layer):
    x = keras.Input((3, 2))
    return keras.Model(x, layer(x, x) if "attention" in layer.name else layer(x))


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (lambda: layers.TimeDistributed(layers.Dense(4)), layers.Dense),
        (lambda: layers.TimeDistributed(mlp_of(2)), layers.Dense),
        (lambda: layers.Bidirectional(layers.LSTM(2)), layers.LSTM),
        (lambda: layers.RNN([layers.GRUCell(2), layers.GRUCell(3)]), layers.GRUCell),
        (lambda: layers.MultiHeadAttention(2, 3), layers.EinsumDense),
        (lambda: Block(), layers.Dense),
    ],
)
def test_layers_inside_layers(layer, kind):
    model = inside(layer())
    found = []

    def flagged(layer):
        new = again(layer)
        new.flag = layer.name
        found.append(layer)
        return new

    new = clone_model(model, clone_function=flagged, recursive=True)
    kinds = [x for x in new._flatten_layers() if isinstance(x, kind)]
    assert kinds
    assert all(x.flag == x.name for x in kinds)
    assert len(kinds) == len([x for x in model._flatten_layers() if type(x) is kind])
    assert not any(hasattr(x, "flag") for x in model._flatten_layers())
    assert len({id(x) for x in found}) == len(found)
    assert model.layers[-1] in found
    assert new.layers[-1].flag == model.layers[-1].name
    assert len(new.weights) == len(model.weights)
    assert_independent(model, new)
    assert_same_network(model, new, STEPS)


def mlp_of(features):
    x = keras.Input((features,))
    return keras.Model(x, layers.Dense(3)(x))


def test_a_layer_inside_a_layer_is_replaced():
    def gru(layer):
        if isinstance(layer, layers.LSTM):
            return layers.GRU(2, go_backwards=layer.go_backwards, name=layer.name)
        return again(layer)

    model = inside(layers.Bidirectional(layers.LSTM(2), name="both"))
    new = clone_model(model, clone_function=gru, recursive=True)
    both = new.get_layer("both")
    assert isinstance(both.forward_layer, layers.GRU)
    assert isinstance(both.backward_layer, layers.GRU)
    assert isinstance(model.get_layer("both").forward_layer, layers.LSTM)
    assert new(STEPS).shape == (2, 4)


def test_a_layer_that_is_kept_gets_new_parts_in_a_copy():
    def relu(layer):
        if layer.name == "inner":
            return layers.Dense(layer.units, activation="relu", name="inner")
        return layer

    model = inside(Block(name="block"))
    new = clone_model(model, clone_function=relu, recursive=True)
    old_block, block = model.get_layer("block"), new.get_layer("block")
    assert block is not old_block
    assert block.gain is old_block.gain
    assert block.inner.activation is keras.activations.relu
    assert old_block.inner.activation is keras.activations.linear
    assert block.inner.built
    assert new(STEPS).shape == (2, 3, 3)
    same = clone_model(model, clone_function=lambda layer: layer, recursive=True)
    assert same.get_layer("block") is old_block


def test_a_layer_of_another_class_brings_its_own_parts():
    def plain(layer):
        if isinstance(layer, layers.Bidirectional):
            return layers.LSTM(4, name="one_way")
        assert not isinstance(layer, layers.LSTM)
        return layer

    model = inside(layers.Bidirectional(layers.LSTM(2)))
    new = clone_model(model, clone_function=plain, recursive=True)
    assert new.layers[-1].name == "one_way"


def test_layers_that_bring_their_weights_keep_them():
    x, y = keras.Input((4,)), keras.Input((4,))
    inner = keras.Model(y, layers.Dense(4)(y), name="inner")
    model = keras.Model(x, layers.Dense(2)(inner(x)))
    new = clone_model(model, clone_function=clone, recursive=True)
    for ours, theirs in zip(new.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


class OtherDense(layers.Dense):
    pass


def test_a_wrapper_that_holds_a_weight_of_its_layer():
    inputs = keras.Input((3,))
    wrapper = layers.SpectralNormalization(layers.Dense(2, name="d"), name="sn")
    model = keras.Model(inputs, wrapper(inputs))
    before = np.array(keras.ops.convert_to_numpy(wrapper.layer.kernel))

    def exchanged(make):
        def exchange(layer):
            return make(layer) if type(layer) is layers.Dense else layer

        return clone_model(model, clone_function=exchange, recursive=True)

    new = exchanged(lambda layer: OtherDense.from_config(layer.get_config()))
    made = new.get_layer("sn")
    assert made.kernel is made.layer.kernel
    assert made.kernel is not wrapper.layer.kernel
    assert [w.path for w in new.weights] == [w.path for w in model.weights]
    new(np.ones((2, 3), "float32"), training=True)
    np.testing.assert_array_equal(wrapper.layer.kernel, before)
    with pytest.raises(UsageError, match="has no such variable") as caught:
        exchanged(lambda _: layers.Activation("relu"))
    assert "sn/d/kernel" in str(caught.value)
    assert "put a layer with the same weights" in str(caught.value)


class Lends(layers.Layer):
    """Makes a weight that a layer inside uses as well."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = Borrows(name="inner")

    def build(self, shape):
        self.w = self.add_weight(shape=(3,), initializer="ones", name="w")
        self.inner.w = self.w

    def call(self, x):
        return self.inner(x) * self.w


class Borrows(layers.Layer):
    def call(self, x):
        return x * self.w


def test_a_layer_keeps_a_weight_that_it_lent_to_one_that_is_exchanged():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, Lends(name="lends")(inputs))

    def exchange(layer):
        return layers.Identity() if layer.name == "inner" else layer

    new = clone_model(model, clone_function=exchange, recursive=True)
    assert isinstance(new.get_layer("lends").inner, layers.Identity)
    assert [w.path for w in new.weights] == ["lends/w"]

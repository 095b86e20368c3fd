"""`clone_function`: layers that are replaced, kept or refused."""

from collections import OrderedDict

import keras
import numpy as np
import pytest
from keras import layers

from regraft import UsageError, clone_model

from .networks import (
    X,
    again,
    assert_independent,
    assert_same_network,
    call,
    mlp,
    numbers,
    sequential,
    shared,
    two_inputs,
)


def test_each_layer_is_asked_for_once_and_nothing_else():
    asked = []

    def record(layer):
        asked.append(layer.name)
        return again(layer)

    model = shared()
    new = clone_model(model, clone_function=record)
    assert asked == ["twice", "head"]
    assert len(new.get_layer("twice")._inbound_nodes) == 2
    assert [op.name for op in new.operations] == [op.name for op in model.operations]
    assert_independent(model, new)
    assert_same_network(model, new, X)


def test_calls_of_a_shared_layer_keep_their_order():
    x = keras.Input((4,))
    twice = layers.Dense(4, name="twice")
    late = twice(x)  # Called first, and needed last.
    y = layers.Dense(4)(layers.Dense(4)(twice(layers.Dense(4)(x))))
    model = keras.Model(x, [y, late])
    for arguments in ({"clone_function": again}, {"call_function": call}):
        new = clone_model(model, **arguments)
        index = new.outputs[1]._keras_history.node_index
        assert index == model.outputs[1]._keras_history.node_index
        assert_same_network(model, new, X)


def test_layers_can_be_replaced_and_kept():
    def more(layer):
        return layers.Dense(7, name="wide") if layer.name == "hidden" else layer

    model = sequential()
    kept = clone_model(model, clone_function=lambda layer: layer)
    assert type(kept) is keras.Sequential
    assert kept.layers == model.layers
    model = mlp()
    kept = clone_model(model, clone_function=lambda layer: layer)
    assert kept.get_layer("head") is model.get_layer("head")
    assert kept.inputs[0] is not model.inputs[0]
    with pytest.raises(ValueError, match="incompatible") as caught:
        clone_model(model, clone_function=more)
    assert "called mlp/head" in caught.value.__notes__[0]


@pytest.mark.parametrize("build", [mlp, shared, two_inputs, sequential])
@pytest.mark.parametrize("argument", ["clone_function", "call_function"])
def test_the_original_is_not_touched(build, argument):
    model = build()
    config = model.get_config()
    nodes = [(len(x._inbound_nodes), len(x._outbound_nodes)) for x in model.layers]
    values = model.get_weights()
    clone_model(model, **{argument: again if argument == "clone_function" else call})
    assert model.get_config() == config
    after = [(len(x._inbound_nodes), len(x._outbound_nodes)) for x in model.layers]
    assert after == nodes
    for a, b in zip(model.get_weights(), values, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_clone_function_must_return_a_layer():
    with pytest.raises(UsageError, match="did not return a layer") as caught:
        clone_model(mlp(), clone_function=lambda layer: layer.get_config())
    assert "where: mlp/hidden" in str(caught.value)
    inner = mlp("inner")
    outer = keras.Sequential([keras.Input((4,)), inner], name="outer")
    with pytest.raises(UsageError, match="where: outer/inner/hidden"):
        clone_model(outer, clone_function=lambda layer: None, recursive=True)


def test_another_number_of_outputs_is_an_error():
    x = keras.Input((3, 2))
    y, *_ = layers.LSTM(2, return_state=True, name="lstm")(x)
    model = keras.Model(x, y, name="reader")
    with pytest.raises(UsageError, match="returned other outputs") as caught:
        clone_model(model, clone_function=lambda layer: layers.LSTM(2))
    assert "where: reader/lstm" in str(caught.value)
    assert "3 symbolic tensor(s)" in str(caught.value)


class Keyed(layers.Layer):
    """Returns its input, times 1, 2 and so on, in a dict."""

    def __init__(self, keys, kind=dict, **kwargs):
        super().__init__(**kwargs)
        self.keys, self.kind = keys, kind

    def call(self, x):
        return self.kind((key, x * i) for i, key in enumerate(self.keys, 1))


def keyed():
    x = keras.Input((4,))
    outputs = Keyed("ba", name="keyed")(x)
    return keras.Model(x, outputs["b"] - 3 * outputs["a"], name="model")


def test_outputs_are_matched_by_key():
    def replace(layer):
        return Keyed("ba", OrderedDict) if layer.name == "keyed" else again(layer)

    new = clone_model(keyed(), clone_function=replace)
    # numpy rounds elsewhere.
    np.testing.assert_allclose(numbers(new(X))[0], X - 6 * X, rtol=1e-5)


def test_other_keys_of_outputs_are_an_error():
    def replace(layer):
        return Keyed("cb", name="other") if layer.name == "keyed" else again(layer)

    with pytest.raises(UsageError, match="returned outputs with other keys") as caught:
        clone_model(keyed(), clone_function=replace)
    text = str(caught.value)
    assert "where: model/keyed" in text
    assert "expected: outputs a, b" in text
    assert "received: outputs b, c from <Keyed name=other" in text


def test_a_renamed_output_is_renamed_in_the_losses():
    model = mlp()
    model.compile("sgd", loss={"head": "mse"}, metrics={"head": ["mae"]})

    def renamed(layer):
        return type(layer).from_config(
            {**layer.get_config(), "name": f"{layer.name}_2"}
        )

    new = clone_model(model, clone_function=renamed)
    assert new.output_names == ["head_2"]
    assert np.isfinite(new.train_on_batch(X, np.ones((2, 2)))[0])

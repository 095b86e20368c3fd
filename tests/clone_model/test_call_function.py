"""`call_function`: calls that are added, left out or changed."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import UsageError, clone_model

from .networks import X, again, assert_same_network, call, mlp, numbers, sequential


def drop_after_dense(layer, *args, **kwargs):
    out = layer(*args, **kwargs)
    return layers.Dropout(0.5)(out) if isinstance(layer, layers.Dense) else out


def test_a_call_function_inserts_layers():
    model = mlp()
    new = clone_model(model, call_function=drop_after_dense)
    kinds = [type(layer).__name__ for layer in new.layers]
    assert kinds == ["InputLayer", "Dense", "Dropout", "Dense", "Dropout"]
    assert len(model.layers) == 3
    assert new._flatten_layers() == [new, *new.layers]
    assert_same_network(model, new, X)


def test_a_call_function_sees_every_call():
    seen = []

    def record(layer, *args, **kwargs):
        seen.append((layer.name, len(args), sorted(kwargs)))
        return layer(*args, **kwargs)

    x = keras.Input((3, 2))
    state = layers.Dense(2, name="state")(layers.Flatten(name="flat")(x))
    y = layers.GRU(2, name="gru")(x, initial_state=state, training=True)
    clone_model(keras.Model(x, y * 2.0), call_function=record)
    assert seen[:3] == [
        ("flat", 1, []),
        ("state", 1, []),
        ("gru", 1, ["initial_state", "training"]),
    ]
    assert len(seen) == 4


def test_a_call_function_removes_a_layer():
    model = mlp()
    new = clone_model(
        model,
        call_function=lambda layer, x: x if layer.name == "head" else layer(x),
    )
    assert [layer.name for layer in new.layers] == ["x", "hidden"]
    assert len(new.weights) == 2


@pytest.mark.parametrize("value", [None, [], np.ones(3)])
def test_a_call_function_must_return_as_many_tensors(value):
    with pytest.raises(UsageError, match="where: mlp/hidden"):
        clone_model(mlp(), call_function=lambda layer, x: value)


def test_a_sequential_stays_one_while_it_is_a_sequence():
    model = sequential()
    model.compile("sgd", "mse")
    new = clone_model(model, call_function=drop_after_dense)
    assert type(new) is keras.Sequential
    assert [type(x).__name__ for x in new.layers] == ["Dense", "Dropout"] * 2
    assert new.compiled
    assert_same_network(model, new, X)
    new.add(layers.Dense(5))
    assert new(X).shape == (2, 5)


def test_a_sequential_that_branches_becomes_functional():
    model = sequential()
    model.trainable = False
    model.compile("sgd", "mse")
    new = clone_model(model, call_function=lambda layer, x: layer(x) + 1.0)
    assert not isinstance(new, keras.Sequential)
    assert (new.name, new.trainable, new.compiled) == (model.name, False, True)
    model.layers[1].bias.assign(np.ones(2))
    assert len(new.weights) == 4


def test_a_sequential_that_was_never_called_has_no_calls():
    model = keras.Sequential([layers.Dense(2)], name="later")
    with pytest.raises(UsageError, match="have not been called yet") as caught:
        clone_model(model, call_function=call)
    assert "where: later" in str(caught.value)
    new = clone_model(
        model, input_tensors=keras.Input((4,)), call_function=drop_after_dense
    )
    assert [type(x).__name__ for x in new.layers] == ["Dense", "Dropout"]


def test_arguments_of_calls_are_kept():
    x = keras.Input((4,))
    y = layers.Dropout(0.5, seed=1)(layers.Dense(4)(x), training=True)
    model = keras.Model(x, y)
    new = clone_model(model, clone_function=again)
    assert new.layers[-1]._inbound_nodes[0].arguments.kwargs == {"training": True}
    assert np.any(numbers(new(X))[0] == 0.0)


@pytest.mark.parametrize(
    "arguments", [{"clone_function": again}, {"call_function": call}]
)
def test_a_tied_weight_is_the_new_layers(arguments):
    model = tied()
    new = clone_model(model, **arguments)
    assert_same_network(model, new, X)
    new.get_layer("dense").kernel.assign(np.zeros((4, 4)))
    assert not np.any(numbers(new(X))[0])
    assert np.any(numbers(model(X))[0])


def tied():
    x = keras.Input((4,))
    dense = layers.Dense(4, name="dense")
    dense.build((None, 4))
    early = ops.matmul(x, dense.kernel)  # Before the layer is called.
    y = layers.Subtract()([early, ops.matmul(dense(x), dense.kernel)])
    return keras.Model(x, y, name="tied")


def test_a_tied_weight_without_a_counterpart():
    def identity(layer):
        return layers.Identity() if layer.name == "dense" else layer

    with pytest.raises(UsageError, match="has no such variable"):
        clone_model(tied(), clone_function=identity)


def test_a_free_variable_in_the_graph_is_copied():
    scale = keras.Variable(2.0)
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(x * scale) + scale)
    new = clone_model(model, clone_function=again)
    scale.assign(5.0)
    old = keras.Model(new.inputs, new.outputs)
    np.testing.assert_array_equal(numbers(new(X))[0], numbers(old(X))[0])
    assert not np.allclose(numbers(new(X))[0], numbers(model(X))[0])


def test_an_output_that_cannot_be_computed():
    model = mlp()
    for depth in model._nodes_by_depth.values():
        depth[:] = [node for node in depth if node.operation.name != "hidden"]
    with pytest.raises(UsageError, match="Output '0' of the model could not be comp"):
        clone_model(model, clone_function=again)

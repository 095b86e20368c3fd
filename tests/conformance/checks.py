"""Makes copies in every way regraft offers, and checks them without its help."""

import keras
import numpy as np
from keras.src.backend.common.masking import get_keras_mask

import regraft


def new_input(tensor):
    """An input like the one that `tensor` stands for."""
    layer = tensor._keras_history.operation
    return keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        name=layer.name,
        sparse=tensor.sparse,
        optional=layer.optional,
    )


def by_clone(model):
    return regraft.clone(model)


def by_clone_model(model):
    twin = regraft.clone_model(model)
    twin.set_weights(model.get_weights())
    return twin


def by_input_tensors(model):
    # Keras gives a Sequential that was never called `inputs` but no `input`.
    old = model.inputs if isinstance(model, keras.Sequential) else model.input
    inputs = keras.tree.map_structure(new_input, old)
    twin = regraft.clone_model(model, input_tensors=inputs)
    twin.set_weights(model.get_weights())
    return twin


COPIERS = (by_clone, by_clone_model, by_input_tensors)


def call(model, inputs, **kwargs):
    """The outputs of a call and the masks that leave with them, as arrays."""
    outputs = keras.tree.flatten(model(inputs, **kwargs))
    masks = [get_keras_mask(x) for x in outputs]
    values = [keras.ops.convert_to_numpy(x) for x in outputs]
    return values, [m if m is None else keras.ops.convert_to_numpy(m) for m in masks]


def assert_equal(left, right):
    """Arrays (or None) are the same in dtype, shape and every bit."""
    assert len(left) == len(right)
    for x, y in zip(left, right, strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert x.tobytes() == y.tobytes()


def assert_same_calls(model, twin, inputs, **kwargs):
    """Both compute the same, bit by bit, with the same masks."""
    values, masks = call(model, inputs, **kwargs)
    twin_values, twin_masks = call(twin, inputs, **kwargs)
    assert_equal(values, twin_values)
    assert_equal(masks, twin_masks)


def own_nodes(model):
    """The call nodes of a functional model; others have none of their own."""
    by_depth = getattr(model, "_nodes_by_depth", {})
    return [node for depth in sorted(by_depth) for node in by_depth[depth]]


def describe(model):
    """How the layers of a functional model are called, in words and numbers."""
    inputs = [
        (layer.name, layer.batch_shape, layer.dtype, layer.sparse, layer.optional)
        for layer in model.layers
        if isinstance(layer, keras.layers.InputLayer)
    ]
    calls = sorted(
        (
            node.operation.name,
            sorted(node.arguments.kwargs),
            [x.shape for x in node.input_tensors],
            [(x.shape, getattr(x, "_keras_mask", None) is None) for x in node.outputs],
        )
        for node in own_nodes(model)
        if isinstance(node.operation, keras.layers.Layer)
    )
    return inputs, calls


def graph_objects(model):
    """Every call node, symbolic tensor and symbolic mask in a graph."""
    nodes = own_nodes(model)
    tensors = [t for node in nodes for t in [*node.input_tensors, *node.outputs]]
    masks = [getattr(tensor, "_keras_mask", None) for tensor in tensors]
    return {id(x): x for x in [*nodes, *tensors, *masks] if x is not None}


def assert_independent(model, twin):
    """The copy has parts of its own, named like the original's."""
    assert type(twin) is type(model)
    assert twin.name == model.name
    assert [op.name for op in twin.layers] == [op.name for op in model.layers]
    assert describe(twin) == describe(model)
    assert [v.path for v in twin.weights] == [v.path for v in model.weights]
    assert not {id(x) for x in twin.layers} & {id(x) for x in model.layers}
    assert not {id(v) for v in twin.variables} & {id(v) for v in model.variables}
    assert len(twin.variables) == len(model.variables)
    assert not graph_objects(twin).keys() & graph_objects(model).keys()


def assert_copy(model, twin, inputs):
    """`twin` is another `model`: it stays what it is when the original changes."""
    assert_independent(model, twin)
    assert_same_calls(model, twin, inputs)
    assert_same_calls(model, twin, inputs, training=True)
    before = twin.get_weights()
    for weight in model.trainable_weights:
        weight.assign(np.full(weight.shape, 7.0))
    assert_equal(before, twin.get_weights())

"""The proof of pruning: the same as the old model with these channels at zero."""

import keras
import numpy as np
from keras import layers

import regraft
from recipes.nets import data, output, scrambled, untouched
from regraft.recipes import prune_channels


def sequence(shape, *parts):
    return scrambled(keras.Sequential([keras.Input(shape), *parts], name="net"))


def zeroed(model, places, kept, axis=-1):
    """Returns a model that multiplies channels by zero behind layers."""
    graph = regraft.graph(model)

    def mask(old):
        shape = graph.find(lambda node: node.layer is old)[0].outputs[0].shape
        # A channel may have become several neighbours.
        size = shape[axis]
        here = np.repeat(kept, size // len(kept)).astype("float32")
        after = -axis - 1 if axis < 0 else len(shape) - 1 - axis
        return layers.Rescaling(here.reshape((-1, *[1] * after)).tolist())

    return graph.insert(mask, after=places).build()


def assert_pruned(model, where, gone, places, *, axis=-1, given=None, **about):
    """Deletes channels, and proves what is left."""
    with untouched(model):
        new = prune_channels(model, where, gone, **about)
    node = regraft.graph(model).find(where)[0]
    size = next(
        getattr(getattr(node.layer, "layer", node.layer), name)
        for name in ("filters", "units", "output_dim", "partial_output_shape")
        if hasattr(getattr(node.layer, "layer", node.layer), name)
    )
    size = size if isinstance(size, int) else size[-1]
    kept = np.array([i not in gone for i in range(size)])
    masked = zeroed(model, places, kept, axis)
    x = data(model) if given is None else given
    wanted = output(masked, x)
    assert abs(wanted - output(model, x)).max() > 1e-3  # It makes a difference.
    np.testing.assert_allclose(output(new, x), wanted, atol=1e-5)
    assert new.count_params() < model.count_params()
    return new

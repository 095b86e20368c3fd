"""Small networks, and the questions that all recipes are asked."""

import contextlib

import keras
import numpy as np
from keras import layers

import regraft


def scrambled(model, seed=0):
    """Gives all weights values that nobody could guess, statistics included."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        if variable.dtype not in ("float32", "float16", "bfloat16"):
            continue
        if "variance" in variable.name:
            value = rng.uniform(0.5, 2.0, variable.shape)
        elif variable.name == "gamma":
            value = rng.uniform(0.5, 1.5, variable.shape)
        else:
            fan_in = max(1, int(np.prod(variable.shape[:-1])))
            value = rng.normal(size=variable.shape) / np.sqrt(fan_in)
        variable.assign(value)
    return model


def outputs(model, x):
    """Returns what a model computes in inference, as arrays."""
    found = keras.tree.flatten(model(x, training=False))
    return [keras.ops.convert_to_numpy(tensor) for tensor in found]


def output(model, x):
    [found] = outputs(model, x)
    return found


def data(model, batch=3, seed=1):
    """Returns random inputs of a model's shapes."""
    rng = np.random.default_rng(seed)
    arrays = [
        rng.normal(size=(batch, *(n or 6 for n in x.shape[1:]))).astype("float32")
        for x in model.inputs
    ]
    return arrays[0] if len(arrays) == 1 else arrays


@contextlib.contextmanager
def untouched(model):
    """Checks that a model is, to the last bit, what it was."""
    graph, before = regraft.graph(model), _state(model)
    yield
    assert regraft.graph(model) == graph
    after = _state(model)
    assert after.keys() == before.keys()
    for key, value in before.items():
        np.testing.assert_array_equal(after[key], value)


def _state(model):
    return {
        (i, v.path, v.trainable): keras.ops.convert_to_numpy(v).copy()
        for i, v in enumerate(model.variables)
    }


def changed(model):
    """Returns the paths of the variables that are not copies of old ones."""
    return {fate.path for fate in regraft.lineage(model) if fate.what != "copied"}


def assert_copied(model, old):
    """All weights that the lineage calls copied are, to the last bit."""
    values = {v.path: keras.ops.convert_to_numpy(v) for v in old.variables}
    news = {v.path: keras.ops.convert_to_numpy(v) for v in model.variables}
    copied = regraft.lineage(model).of("copied")
    assert copied
    for fate in copied:
        np.testing.assert_array_equal(news[fate.path], values[fate.source])


def convnet():
    """A convolutional network with a nested block and two branches."""
    x = keras.Input((8, 8, 3), name="image")
    h = layers.Conv2D(6, 3, padding="same", use_bias=False, name="stem")(x)
    h = layers.BatchNormalization(name="stem_bn")(h)
    h = layers.ReLU(name="stem_relu")(h)
    inner = keras.Input((8, 8, 6), name="block_x")
    b = layers.Conv2D(6, 3, padding="same", activation="relu", name="b1")(inner)
    b = layers.DepthwiseConv2D(3, padding="same", name="b2")(b)
    b = layers.BatchNormalization(name="b2_bn")(b)
    h = keras.Model(inner, layers.Add(name="b_add")([b, inner]), name="block")(h)
    h = keras.ops.relu(h)
    h = layers.GlobalAveragePooling2D(name="pool")(h)
    h = layers.Dense(5, activation="relu", name="hidden")(h)
    return scrambled(keras.Model(x, layers.Dense(4, name="head")(h), name="net"))

"""Deleted channels, and all that follows from them, layer by layer."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.cuts import assert_pruned, sequence
from recipes.nets import assert_copied, changed, data, output
from regraft.recipes import prune_channels

pytestmark = pytest.mark.wiring

IMAGE = (6, 6, 3)
# What stands behind a convolution "a" with four channels; "z" is the last layer in
# which they are still apart.
AFTER_CONV2D = {
    "conv": [layers.ReLU(name="z"), layers.Conv2D(2, 3)],
    "batch normalization": [
        layers.BatchNormalization(),
        layers.ReLU(name="z"),
        layers.Conv2D(2, 3, use_bias=False),
    ],
    "transposed": [layers.ELU(name="z"), layers.Conv2DTranspose(2, 3)],
    "depthwise": [
        layers.DepthwiseConv2D(2, depth_multiplier=2, activation="tanh"),
        layers.BatchNormalization(name="z"),
        layers.Conv2D(2, 1),
    ],
    "separable": [
        layers.LeakyReLU(name="z"),
        layers.SeparableConv2D(2, 2, depth_multiplier=3),
    ],
    "pooling": [
        layers.MaxPooling2D(2, 1),
        layers.AveragePooling2D(2, 1, name="z"),
        layers.Conv2D(2, 1),
    ],
    "padding": [
        layers.ZeroPadding2D(2),
        layers.Cropping2D(1),
        layers.UpSampling2D(2, name="z"),
        layers.Conv2D(2, 3),
    ],
    "noise": [
        layers.Dropout(0.5),
        layers.SpatialDropout2D(0.5),
        layers.GaussianNoise(1.0),
        layers.GaussianDropout(0.5),
        layers.AlphaDropout(0.5),
        layers.ActivityRegularization(0.1),
        layers.Rescaling(0.5, offset=1.0),
        layers.Activation("sigmoid", name="z"),
        layers.Dense(2),
    ],
    "slopes": [layers.PReLU(name="z"), layers.Conv2D(2, 3)],
    "shared slopes": [layers.PReLU(shared_axes=[1, 2], name="z"), layers.Conv2D(2, 3)],
    "same slope": [layers.PReLU(shared_axes=[1, 2, 3], name="z"), layers.Dense(2)],
    "global average": [layers.GlobalAveragePooling2D(name="z"), layers.Dense(2)],
    "global maximum": [
        layers.GlobalMaxPooling2D(keepdims=True, name="z"),
        layers.Flatten(),
        layers.Dense(2),
    ],
    "flatten": [layers.Activation("tanh", name="z"), layers.Flatten(), layers.Dense(2)],
    "reshape": [layers.Reshape((16, 4), name="z"), layers.Conv1D(2, 3)],
    "reshape all": [layers.Reshape((-1, 4), name="z"), layers.LSTM(2)],
    "permute": [
        layers.ReLU(name="z"),
        layers.Permute((3, 1, 2)),
        layers.Reshape((4, 16)),
        layers.Permute((2, 1)),
        layers.GRU(2),
    ],
    "other axis": [
        layers.Permute((3, 1, 2)),
        layers.Dense(2),
        layers.BatchNormalization(),
        layers.Permute((2, 3, 1), name="z"),
        layers.Conv2D(2, 1),
    ],
    "time distributed": [
        layers.ReLU(name="z"),
        layers.TimeDistributed(layers.Conv1D(2, 3)),
    ],
    "einsum": [layers.ReLU(name="z"), layers.EinsumDense("abcd,de->abce", (4, 4, 2))],
    "softmax of others": [
        layers.Softmax(axis=1, name="z"),
        layers.Dense(2),
    ],
}


@pytest.mark.parametrize("kind", AFTER_CONV2D)
def test_what_follows_a_convolution(kind):
    parts = [regraft.clone(layer) for layer in AFTER_CONV2D[kind]]
    first = layers.Conv2D(4, 3, activation="relu", name="a")
    model = sequence(IMAGE, first, *parts, layers.Dense(3, name="last"))
    new = assert_pruned(model, "a", [0, 2], "z")
    assert isinstance(new, keras.Sequential)
    assert_copied(new, model)
    assert not [path for path in changed(new) if path.startswith("last")]


# Layers whose channels are deleted, and the shape of what they are given.
MAKERS = {
    "dense": ((5,), lambda: layers.Dense(4, "relu", name="a"), layers.Dense(2)),
    "dense of sequences": ((5, 3), lambda: layers.Dense(4, name="a"), layers.GRU(2)),
    "conv1d": ((6, 3), lambda: layers.Conv1D(4, 3, name="a"), layers.Conv1D(2, 2)),
    "conv3d": (
        (4, 4, 4, 2),
        lambda: layers.Conv3D(4, 2, name="a"),
        layers.Conv3D(2, 2),
    ),
    "conv1d transposed": (
        (6, 3),
        lambda: layers.Conv1DTranspose(4, 3, name="a"),
        layers.SimpleRNN(2),
    ),
    "conv2d transposed": (
        IMAGE,
        lambda: layers.Conv2DTranspose(4, 3, name="a"),
        layers.Conv2DTranspose(2, 2),
    ),
    "conv3d transposed": (
        (3, 3, 3, 2),
        lambda: layers.Conv3DTranspose(4, 2, name="a"),
        layers.Conv3DTranspose(2, 2),
    ),
    "separable 1d": (
        (6, 3),
        lambda: layers.SeparableConv1D(4, 3, name="a"),
        layers.SeparableConv1D(2, 2),
    ),
    "separable 2d": (
        IMAGE,
        lambda: layers.SeparableConv2D(4, 3, use_bias=False, name="a"),
        layers.Bidirectional(layers.LSTM(2)),
    ),
    "time distributed": (
        (5, 6, 3),
        lambda: layers.TimeDistributed(layers.Conv1D(4, 3), name="a"),
        layers.TimeDistributed(layers.Dense(2)),
    ),
    "einsum": (
        (5, 3),
        lambda: layers.EinsumDense("abc,cd->abd", (5, 4), bias_axes="d", name="a"),
        layers.Bidirectional(layers.GRU(2)),
    ),
    "conv3d to convolutional lstm": (
        (4, 4, 4, 2),
        lambda: layers.Conv3D(4, 2, name="a"),
        layers.ConvLSTM2D(2, 2),
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_layers_that_make_channels(kind):
    shape, make, consumer = MAKERS[kind]
    middle = [layers.BatchNormalization(name="z")]
    if kind == "separable 2d":
        middle.append(layers.Reshape((16, 4)))
    model = sequence(shape, make(), *middle, regraft.clone(consumer))
    assert_pruned(model, "a", [3], "z")


def test_an_embedding():
    x = keras.Input((5,), dtype="int32")
    h = layers.Embedding(7, 4, mask_zero=True, name="a")(x)
    h = layers.Dropout(0.1, name="z")(h)
    model = keras.Model(x, layers.LSTM(3)(h))
    tokens = np.random.default_rng(0).integers(1, 7, (3, 5))
    new = assert_pruned(model, "a", [0, 3], "z", given=tokens)
    assert new.get_layer("a").output_dim == 2


def test_a_vector_at_each_time_and_an_image_of_a_vector():
    repeated = sequence(
        (5,), layers.Dense(4, name="a"), layers.RepeatVector(3, name="z"), layers.GRU(2)
    )
    assert_pruned(repeated, "a", [1], "z")
    image = sequence(
        (5,),
        layers.Dense(4, name="a"),
        layers.Reshape((1, 1, 4), name="z"),
        layers.Conv2D(2, 1),
    )
    assert_pruned(image, "a", [1], "z")
    # A pixel of two channels is two numbers of the vector.
    pixels = sequence(
        (5,),
        layers.Dense(4, name="a"),
        layers.ReLU(name="z"),
        layers.Reshape((2, 1, 2)),
        layers.Flatten(),
        layers.Dense(2),
    )
    assert_pruned(pixels, "a", [0, 1], "z")
    with pytest.raises(regraft.UsageError, match="would leave holes in its result"):
        prune_channels(pixels, "a", [1])


def test_channels_of_the_last_layer_are_missing_in_the_output():
    model = sequence((4,), layers.Dense(5, name="a"), layers.ReLU())
    new = prune_channels(model, "a", [1, -1])
    x = data(model)
    np.testing.assert_allclose(
        output(new, x), output(model, x)[:, [0, 2, 3]], atol=1e-6
    )


def test_a_function_chooses_the_channels():
    model = sequence(
        (4,),
        layers.Dense(5, name="a"),
        layers.Dense(6, name="b"),
        layers.Dense(2, name="c"),
    )

    def weakest(layer):
        norms = np.linalg.norm(keras.ops.convert_to_numpy(layer.kernel), axis=0)
        return np.argsort(norms)[: len(norms) // 2]

    new = prune_channels(model, ("a", "b"), weakest)
    assert [layer.units for layer in new.layers] == [3, 3, 2]
    assert changed(prune_channels(model, "a", [])) == set()


def channels_first(*parts):
    first = layers.Conv2D(4, 3, data_format="channels_first", name="a")
    return sequence((3, 6, 6), first, *parts)


CF = {"data_format": "channels_first"}
FIRST = {
    "conv": [layers.BatchNormalization(axis=1, name="z"), layers.Conv2D(2, 3, **CF)],
    "depthwise": [
        layers.DepthwiseConv2D(2, depth_multiplier=2, name="z", **CF),
        layers.Conv2D(2, 1, **CF),
    ],
    "separable": [layers.ReLU(name="z"), layers.SeparableConv2D(2, 2, **CF)],
    "pooling": [
        layers.MaxPooling2D(2, 1, name="z", **CF),
        layers.ZeroPadding2D(1, **CF),
        layers.UpSampling2D(2, **CF),
        layers.Conv2DTranspose(2, 2, **CF),
    ],
    "flatten": [layers.ReLU(name="z"), layers.Flatten(**CF), layers.Dense(2)],
    "flatten as it is": [layers.ReLU(name="z"), layers.Flatten(), layers.Dense(2)],
    "slopes": [layers.PReLU(name="z"), layers.Conv2D(2, 3, **CF)],
    "global": [layers.ReLU(name="z"), layers.GlobalMaxPooling2D(**CF), layers.Dense(2)],
}


@pytest.mark.parametrize("kind", FIRST)
def test_channels_first(kind, backend):
    if backend == "tensorflow":
        pytest.skip("TensorFlow has no channels_first convolutions on CPU")
    model = channels_first(*[regraft.clone(layer) for layer in FIRST[kind]])
    assert_pruned(model, "a", [1, 2], "z", axis=1)

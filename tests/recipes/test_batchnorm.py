"""Batch normalization as a part of the layer before it."""

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
    scrambled,
    untouched,
)
from regraft.recipes import fold_batchnorm

pytestmark = pytest.mark.wiring

FOLDABLE = {
    "dense": ((4,), lambda **k: layers.Dense(3, **k)),
    "dense of sequences": ((5, 4), lambda **k: layers.Dense(3, **k)),
    "conv1d": ((6, 4), lambda **k: layers.Conv1D(3, 2, **k)),
    "conv2d": ((6, 6, 4), lambda **k: layers.Conv2D(6, 3, groups=2, **k)),
    "conv3d": ((4, 4, 4, 2), lambda **k: layers.Conv3D(3, 2, **k)),
    "conv1d transposed": ((6, 4), lambda **k: layers.Conv1DTranspose(3, 2, **k)),
    "conv2d transposed": ((6, 6, 4), lambda **k: layers.Conv2DTranspose(3, 2, **k)),
    "conv3d transposed": ((3, 3, 3, 2), lambda **k: layers.Conv3DTranspose(3, 2, **k)),
    "depthwise 1d": (
        (6, 4),
        lambda **k: layers.DepthwiseConv1D(3, depth_multiplier=2, **k),
    ),
    "depthwise 2d": (
        (6, 6, 4),
        lambda **k: layers.DepthwiseConv2D(3, depth_multiplier=2, **k),
    ),
    "separable 1d": ((6, 4), lambda **k: layers.SeparableConv1D(3, 2, **k)),
    "separable 2d": ((6, 6, 4), lambda **k: layers.SeparableConv2D(3, 2, **k)),
}


@pytest.mark.parametrize("use_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("kind", FOLDABLE)
def test_each_kind_of_layer(kind, use_bias):
    shape, make = FOLDABLE[kind]
    x = keras.Input(shape)
    norm = layers.BatchNormalization(center=use_bias, scale=not use_bias, name="bn")
    h = layers.ReLU()(norm(make(use_bias=use_bias, name="layer")(x)))
    model = scrambled(keras.Model(x, h))
    with untouched(model):
        new = fold_batchnorm(model)
    given = data(model)
    np.testing.assert_allclose(output(new, given), output(model, given), atol=1e-5)
    assert not regraft.graph(new).find(layers.BatchNormalization)
    assert new.get_layer("layer").use_bias


def test_channels_first(backend):
    if backend == "tensorflow":
        pytest.skip("TensorFlow has no channels_first convolutions on CPU")
    x = keras.Input((3, 6, 6))
    h = layers.Conv2D(4, 3, data_format="channels_first")(x)
    right = layers.BatchNormalization(axis=1)(h)
    h = layers.Conv2D(4, 3, data_format="channels_first", name="other")(right)
    wrong = layers.BatchNormalization(name="wrong")(h)
    model = scrambled(keras.Model(x, wrong))
    new = fold_batchnorm(model)
    assert [n.path for n in regraft.graph(new).find(layers.BatchNormalization)] == [
        "wrong"
    ]
    given = data(model)
    np.testing.assert_allclose(output(new, given), output(model, given), atol=1e-5)


def test_what_cannot_be_folded_stays():
    x = keras.Input((4,))
    active = layers.BatchNormalization(name="n1")(layers.Dense(4, "relu")(x))
    twice = layers.Dense(4, name="twice")
    used = layers.Dense(4, name="used")(active)
    h = layers.BatchNormalization(name="n2")(used) + used
    h = layers.BatchNormalization(name="n3")(twice(twice(h)))
    shared = layers.BatchNormalization(name="n4")
    h = shared(layers.Dense(4)(shared(layers.Dense(4)(h))))
    out = layers.Dense(4, name="out")(h)
    after_input = layers.BatchNormalization(name="n6")(x)
    last = layers.BatchNormalization(name="n5")(out)
    model = scrambled(keras.Model(x, [out, last, after_input]))
    new = fold_batchnorm(model)
    assert regraft.lineage(new).notes == (
        "fold_batchnorm: 0 of 6 BatchNormalization layers folded",
    )
    assert changed(new) == set()


def test_what_learns_when_it_is_called_stays():
    x = keras.Input((4,))
    own = layers.BatchNormalization(name="own")(layers.Dense(4)(x), training=True)
    inner = keras.Sequential([layers.Dense(4), layers.BatchNormalization(name="in")])
    other = keras.Sequential([layers.Dense(4), layers.BatchNormalization(name="off")])
    h = other(inner(own, training=True), training=False)
    model = scrambled(keras.Model(x, h))
    new = fold_batchnorm(model)
    assert regraft.lineage(new).notes == (
        "fold_batchnorm: 1 of 3 BatchNormalization layers folded",
    )
    x = data(model)
    np.testing.assert_allclose(output(new, x), output(model, x), atol=1e-5)


@pytest.mark.every_backend
def test_inside_models_and_sequences():
    model = convnet()
    new = fold_batchnorm(model)
    assert changed(new) == {
        *("stem/kernel", "stem/bias", "b2/kernel", "b2/bias"),
        *(f"stem_bn/{v.name}" for v in model.get_layer("stem_bn").variables),
        *(f"b2_bn/{v.name}" for v in model.get_layer("stem_bn").variables),
    }
    assert_copied(new, model)
    x = data(model)
    np.testing.assert_allclose(output(new, x), output(model, x), atol=1e-5)
    sequence = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.BatchNormalization(), layers.ReLU()]
    )
    new = fold_batchnorm(scrambled(sequence))
    assert isinstance(new, keras.Sequential)
    assert len(new.layers) == 2


def test_a_network_of_keras():
    model = keras.applications.MobileNetV3Small(
        input_shape=(32, 32, 3), weights=None, classes=5, classifier_activation=None
    )
    # The first blocks will do: the example folds all of it.
    model = scrambled(regraft.recipes.features(model, "expanded_conv_4_add"))
    new = fold_batchnorm(model)
    assert regraft.lineage(new).notes == (
        "fold_batchnorm: 15 of 15 BatchNormalization layers folded",
    )
    assert new.count_params() < model.count_params()
    x = np.random.default_rng(0).uniform(0, 255, (2, 32, 32, 3)).astype("float32")
    old = output(model, x)
    np.testing.assert_allclose(output(new, x), old, atol=1e-5 * abs(old).max())
    assert_copied(new, model)


def test_changed_weights_are_not_folded():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="d"), layers.BatchNormalization()]
    )
    model.get_layer("d").enable_lora(2)
    assert len(fold_batchnorm(model).layers) == 2


class Squashed(layers.Dense):
    def call(self, x, training=None):
        return keras.ops.tanh(super().call(x))


class Standardized(layers.Conv2D):
    """Its `call` is that of a convolution, but what it calls is not."""

    def convolution_op(self, inputs, kernel):
        return super().convolution_op(inputs, kernel / 2.0)


class Rectified(layers.BatchNormalization):
    def call(self, x, training=None, mask=None):
        return keras.ops.relu(super().call(x, training=training, mask=mask))


class Named(layers.Dense):
    """Computes what a `Dense` computes."""

    def __init__(self, *args, tag=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.tag = tag

    def get_config(self):
        return {**super().get_config(), "tag": self.tag}


@pytest.mark.parametrize(
    ("shape", "layer", "norm", "count"),
    [
        ((4,), lambda: Squashed(3), layers.BatchNormalization, 0),
        ((6, 6, 2), lambda: Standardized(3, 2), layers.BatchNormalization, 0),
        ((4,), lambda: layers.Dense(3), Rectified, 0),
        ((4,), lambda: Named(3, tag="x"), layers.BatchNormalization, 1),
        (
            (4,),
            lambda: layers.Dense(3, activity_regularizer="l2"),
            layers.BatchNormalization,
            0,
        ),
        (
            (4,),
            lambda: layers.Dense(3, dtype="mixed_bfloat16"),
            lambda: layers.BatchNormalization(dtype="float32"),
            0,
        ),
    ],
    ids=["call", "method", "norm", "same", "regularizer", "precision"],
)
def test_only_what_computes_the_same_is_folded(shape, layer, norm, count):
    x = keras.Input(shape)
    model = scrambled(keras.Model(x, norm()(layer()(x))))
    new = fold_batchnorm(model)
    given = data(model)
    np.testing.assert_allclose(output(new, given), output(model, given), atol=1e-5)
    assert new.outputs[0].dtype == model.outputs[0].dtype
    assert f"{count} of 1" in regraft.lineage(new).notes[0]


@pytest.mark.parametrize("policy", ["float16", "bfloat16"])
def test_weights_that_would_be_too_large_are_not_folded(policy):
    x = keras.Input((5,), dtype=policy)
    layer = layers.Dense(3, dtype=policy)
    norm = layers.BatchNormalization(epsilon=1e-7, dtype=policy)
    model = keras.Model(x, norm(layer(x)))
    layer.kernel.assign(np.full((5, 3), 100.0))
    norm.moving_variance.assign(np.full(3, 1e-6))
    new = fold_batchnorm(model)
    # Half precision ends at 65504; bfloat16 has room.
    folded = int(policy == "bfloat16")
    assert f"{folded} of 1" in regraft.lineage(new).notes[0]
    given = np.full((1, 5), 1e-3)
    np.testing.assert_allclose(
        output(new, given).astype("float32"),
        output(model, given).astype("float32"),
        rtol=0.05,
    )


def test_what_was_put_on_a_layer_stays_on_it():
    x = keras.Input((4,))
    layer = layers.Dense(3, name="d")
    model = scrambled(keras.Model(x, layers.BatchNormalization()(layer(x))))
    layer.tag, layer.kernel.trainable = {"a": [7]}, False
    new = fold_batchnorm(model).get_layer("d")
    assert new.tag == {"a": [7]}
    assert new.tag is not layer.tag
    assert not new.kernel.trainable
    assert new.bias.trainable
    layer = layers.Dense(3, name="d")
    layer.own = keras.Variable(np.ones(3), name="own")
    model = keras.Model(x, layers.BatchNormalization()(layer(x)))
    with pytest.raises(regraft.UsageError) as error:
        fold_batchnorm(model)
    assert "weights of this layer cannot be changed" in str(error.value)
    assert "where: d: own" in str(error.value)

"""Another number of channels in the input."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.nets import assert_copied, changed, convnet, output, scrambled, untouched
from regraft.recipes import change_channels

pytestmark = pytest.mark.wiring

RNG = np.random.default_rng(0)


def images(channels, axis=-1, size=8):
    image = RNG.uniform(0, 255, (2, size, size, channels)).astype("float32")
    return np.moveaxis(image, -1, axis)


def assert_gray_is_the_same(model, n, size=8, axis=-1):
    """A gray image gives what it gave with three equal channels."""
    with untouched(model):
        new = change_channels(model, n)
    gray = images(1, axis, size)
    was, now = (np.repeat(gray, count, axis) for count in (3, n))
    old = output(model, was)
    np.testing.assert_allclose(output(new, now), old, atol=2e-5 * abs(old).max())
    return new


def assert_more_are_ignored_if_neutral(model, n, neutral=0.0, size=8, axis=-1):
    """New channels without information change nothing."""
    with untouched(model):
        new = change_channels(model, n)
    rgb = images(3, axis, size)
    more = np.full_like(np.repeat(rgb[..., :1], n - 3, -1), neutral)
    if axis == 1:
        more = np.full_like(np.repeat(rgb[:, :1], n - 3, 1), neutral)
    wide = np.concatenate([rgb, more], axis)
    old = output(model, rgb)
    np.testing.assert_allclose(output(new, wide), old, atol=2e-5 * abs(old).max())
    return new


@pytest.mark.every_backend
def test_gray_and_two_channels():
    model = convnet()
    new = assert_gray_is_the_same(model, 1)
    assert new.input_shape == (None, 8, 8, 1)
    assert new.get_layer("stem").kernel.shape == (3, 3, 1, 6)
    assert changed(new) == {"stem/kernel"}
    assert_copied(new, model)
    assert_gray_is_the_same(model, 2)


def test_more_channels_get_the_mean():
    model = convnet()
    new = assert_more_are_ignored_if_neutral(model, 5)
    old = keras.ops.convert_to_numpy(model.get_layer("stem").kernel)
    kernel = keras.ops.convert_to_numpy(new.get_layer("stem").kernel)
    np.testing.assert_array_equal(kernel[:, :, :3], old)
    for i in (3, 4):
        np.testing.assert_allclose(kernel[:, :, i], old.mean(2), rtol=1e-5)


def test_the_same_number_changes_nothing():
    model = convnet()
    regraft.verify(model, change_channels(model, 3)).raise_if_different()


def preprocessed(*first, axis=-1):
    where = "channels_first" if axis == 1 else "channels_last"
    shape = (3, 8, 8) if axis == 1 else (8, 8, 3)
    model = keras.Sequential(
        [
            keras.Input(shape, name="image"),
            *first,
            layers.ZeroPadding2D(1, data_format=where),
            layers.Conv2D(4, 3, data_format=where, name="conv"),
            layers.ReLU(),
        ]
    )
    return scrambled(model)


def test_behind_what_treats_channels_alike():
    model = preprocessed(
        layers.RandomFlip(),
        layers.Rescaling(1 / 255.0),
        layers.Normalization(axis=None, mean=2.0, variance=3.0),
        layers.ReLU(),
    )
    new = assert_gray_is_the_same(model, 1)
    assert new.get_layer("conv").kernel.shape == (3, 3, 1, 4)
    assert isinstance(new, keras.Sequential)


def adapted():
    layer = layers.Normalization()
    layer.adapt(images(3))
    return layer


@pytest.mark.parametrize(
    ("first", "neutral"),
    [
        (lambda: layers.Rescaling([0.1, 0.2, 0.3], offset=[1.0, 2.0, 3.0]), -10.0),
        (
            lambda: layers.Normalization(
                mean=[1.0, 2.0, 3.0], variance=[4.0, 5.0, 6.0]
            ),
            2.0,
        ),
        (adapted, None),
        (layers.BatchNormalization, None),
    ],
    ids=["rescaling", "normalization", "adapted", "batch normalization"],
)
def test_behind_what_treats_them_differently(first, neutral):
    model = preprocessed(first())
    new = assert_gray_is_the_same(model, 1)
    assert new.get_layer("conv").kernel.shape == (3, 3, 3, 4)
    assert isinstance(new, keras.Sequential)
    assert_gray_is_the_same(model, 2)
    if neutral is None:
        assert change_channels(model, 4).get_layer("conv").kernel.shape == (3, 3, 4, 4)
    else:
        assert_more_are_ignored_if_neutral(model, 4, neutral)


def test_statistics_of_more_channels():
    model = preprocessed(adapted())
    layer = model.layers[0]
    mean = float(keras.ops.convert_to_numpy(layer.mean).mean())
    assert_more_are_ignored_if_neutral(model, 6, mean)


def test_channels_first(backend):
    if backend == "tensorflow":
        pytest.skip("TensorFlow has no channels_first convolutions on CPU")
    model = preprocessed(axis=1)
    assert assert_gray_is_the_same(model, 1, axis=1).input_shape == (None, 1, 8, 8)
    assert_more_are_ignored_if_neutral(model, 4, axis=1)
    model = preprocessed(layers.BatchNormalization(axis=1), axis=1)
    assert_gray_is_the_same(model, 1, axis=1)
    assert_gray_is_the_same(model, 2, axis=1)


def test_models_inside_models():
    stem = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(4, 3, name="conv"), layers.ReLU()],
        name="stem",
    )
    x = keras.Input((8, 8, 3), name="x")
    scaled = layers.Rescaling(1 / 255.0)(x)
    h = layers.Flatten()(stem(scaled))
    skip = layers.Flatten()(layers.Conv2D(2, 3, name="skip")(scaled))
    model = scrambled(keras.Model(x, layers.Concatenate()([h, skip])))
    new = assert_gray_is_the_same(model, 1)
    assert changed(new) == {
        *("stem/conv/kernel", "stem/conv/bias", "skip/kernel", "skip/bias")
    }
    assert_more_are_ignored_if_neutral(model, 4)


def siamese():
    encoder = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.Flatten()], name="encoder"
    )
    a, b = keras.Input((8, 8, 3), name="a"), keras.Input((8, 8, 3), name="b")
    return keras.Model([a, b], layers.Subtract()([encoder(a), encoder(b)]))


def test_several_inputs():
    model = scrambled(siamese())
    new = change_channels(model, 1, input=("a", "b"))
    gray, other = images(1), images(1)
    old = output(model, [np.repeat(gray, 3, -1), np.repeat(other, 3, -1)])
    np.testing.assert_allclose(output(new, [gray, other]), old, rtol=1e-3, atol=1e-2)
    with pytest.raises(regraft.UsageError) as error:
        change_channels(model, 1, input="a")
    assert "also called with other tensors" in str(error.value)
    assert "where: encoder" in str(error.value)
    for wrong in (None, "c"):
        with pytest.raises(regraft.UsageError) as error:
            change_channels(model, 1, input=wrong)
        assert "`change_channels` must be told which input." in str(error.value)
        assert "one or more of a, b" in str(error.value)


@pytest.mark.slow
def test_a_network_with_preprocessing():
    model = keras.applications.EfficientNetV2B0(
        weights=None, input_shape=(32, 32, 3), classes=4, classifier_activation=None
    )
    model = scrambled(regraft.recipes.features(model, "block1a_project_activation"))
    new = assert_gray_is_the_same(model, 1, size=32)
    assert changed(new) == set()
    mean = 255 * (0.485 + 0.456 + 0.406) / 3
    new = assert_more_are_ignored_if_neutral(model, 4, mean, size=32)
    assert changed(new) == {"stem_conv/kernel"}
    assert_copied(new, model)


def test_what_is_refused():
    x = keras.Input((8, 8, 3), name="x")
    model = keras.Model(x, layers.DepthwiseConv2D(3, name="each")(x))
    with pytest.raises(regraft.UsageError) as error:
        change_channels(model, 4)
    assert "does not know what becomes of more channels here" in str(error.value)
    assert "where: each" in str(error.value)
    assert_gray_is_the_same(scrambled(model), 1)
    with pytest.raises(regraft.UsageError, match="the channels reach an output"):
        change_channels(keras.Model(x, layers.ReLU()(x)), 1)
    for wrong in (0, 1.0, True):
        with pytest.raises(TypeError, match="`n` must be a number of channels"):
            change_channels(model, wrong)


class Standardized(layers.Conv2D):
    def call(self, x):
        return keras.ops.tanh(super().call(x))


def test_classes_that_compute_something_else():
    x = keras.Input((8, 8, 3), name="x")
    model = scrambled(keras.Model(x, Standardized(2, 3, name="own")(x)))
    assert assert_gray_is_the_same(model, 1).get_layer("own").kernel.shape[2] == 3
    with pytest.raises(regraft.UsageError, match="what becomes of more channels"):
        change_channels(model, 4)


@pytest.mark.parametrize(
    ("first", "neutral"),
    [
        (lambda x: layers.Rescaling(1 / 127.5, offset=-1)(x), 127.5),
        (lambda x: x / 127.5 - 1.0, 127.5),
        (lambda x: x * 2.0, 0.0),
    ],
    ids=["layer", "operations", "zero"],
)
def test_new_channels_are_neutral_where_they_become_zero(first, neutral):
    x = keras.Input((8, 8, 3), name="x")
    model = scrambled(keras.Model(x, layers.Conv2D(2, 3)(first(x))))
    assert_more_are_ignored_if_neutral(model, 5, neutral)


@pytest.mark.parametrize("merge", [layers.Concatenate, layers.Add])
def test_merges_with_other_tensors_are_refused(merge):
    x = keras.Input((8, 8, 3), name="x")
    other = layers.Conv2D(3, 3, padding="same", name="other")(x)
    model = keras.Model(x, layers.Conv2D(2, 3)(merge(name="merge")([x, other])))
    for n in (1, 4):
        with pytest.raises(regraft.UsageError) as error:
            change_channels(model, n)
        assert "the channels are merged with other tensors" in str(error.value)
        assert "where: merge" in str(error.value)
        assert f"received: {merge.__name__}, which is given" in str(error.value)


def test_merges_of_tensors_that_all_have_the_channels():
    x = keras.Input((8, 8, 3), name="x")
    both = layers.Add()([x, layers.ReLU()(x)])
    assert_gray_is_the_same(scrambled(keras.Model(x, layers.Conv2D(2, 3)(both))), 1)


def test_numbers_for_each_channel_in_an_operation():
    x = keras.Input((8, 8, 3), name="x")
    h = keras.ops.clip(x, np.array([0.0, 50.0, 90.0], "float32"), 200.0)
    model = scrambled(keras.Model(x, layers.Conv2D(2, 3)(h)))
    assert_gray_is_the_same(model, 1)
    with pytest.raises(regraft.UsageError, match="what becomes of more channels"):
        change_channels(model, 4)

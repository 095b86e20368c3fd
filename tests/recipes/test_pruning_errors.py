"""What pruning refuses, and how it can be taught more."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.cuts import assert_pruned, sequence
from regraft.recipes import Cut, prune_channels, pruning_rule

pytestmark = pytest.mark.wiring


def refused(*parts, shape=(4, 4, 3), where="a", gone=(1,)):
    first = layers.Conv2D(4, 1, name="a")
    if len(shape) == 1:
        first = layers.Dense(4, name="a")
    model = sequence(shape, first, *parts)
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, where, gone)
    return str(error.value)


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (
            layers.LayerNormalization(name="x"),
            "what it does with channels is",
        ),
        (layers.GroupNormalization(2, name="x"), "is not known"),
        (layers.Lambda(lambda x: x, name="x"), "is not known"),
        (
            layers.Activation("softmax", name="x"),
            "its activation softmax mixes",
        ),
        (layers.Softmax(name="x"), "it divides by the sum over all channels"),
        (layers.Conv2D(4, 1, groups=2, name="x"), "its channels are in groups"),
        (layers.Rescaling([1.0, 2.0, 3.0, 4.0], name="x"), "a factor for each channel"),
        (layers.MaxPooling2D(2, data_format="channels_first", name="x"), "it mixes"),
        (layers.EinsumDense("...a,ab->...b", 2, name="x"), "does not name all axes"),
        (layers.TimeDistributed(layers.LayerNormalization(), name="x"), "inside it"),
        (
            layers.TimeDistributed(keras.Sequential([layers.Dense(2)]), name="x"),
            "inside it",
        ),
    ],
)
def test_layers_that_mix_channels(layer, why):
    text = refused(layer)
    kind = type(layer).__name__
    assert f"`prune_channels` cannot delete channels through a {kind}." in text
    assert "where: x" in text
    assert why in text
    assert "`regraft.recipes.pruning_rule`" in text


def test_operations_with_an_array():
    x = keras.Input((3,))
    h = layers.Dense(4, name="a")(x) * np.ones(4, "float32")
    with pytest.raises(regraft.UsageError, match="an array with a number for each"):
        prune_channels(keras.Model(x, layers.Dense(2)(h)), "a", [1])


def test_an_activation_of_the_layer_itself():
    model = sequence((3,), layers.Dense(4, "softmax", name="a"), layers.Dense(2))
    with pytest.raises(regraft.UsageError, match="its activation softmax mixes"):
        prune_channels(model, "a", [1])
    assert_pruned(
        sequence((3,), layers.Dense(4, lambda x: x * x, name="a"), layers.Dense(2)),
        *("a", [1], "a"),
    )


def test_channels_of_an_input_cannot_be_deleted():
    x = keras.Input((5, 5, 4))
    h = layers.Add(name="sum")([x, layers.Conv2D(4, 1, name="a")(x)])
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(keras.Model(x, layers.Flatten()(h)), "a", [1], together=True)
    assert "it gets channels of an input of the model" in str(error.value)
    h = layers.LayerNormalization(name="norm")(layers.Conv2D(4, 1)(x))
    h = layers.Add(name="sum")([h, layers.Conv2D(4, 1, name="a")(x)])
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(keras.Model(x, layers.Flatten()(h)), "a", [1], together=True)
    assert "channels of norm must be deleted with them" in str(error.value)


def test_states_of_recurrent_layers():
    x = keras.Input((5, 3))
    state = layers.Dense(2, name="a")(layers.Flatten()(x))
    model = keras.Model(x, layers.GRU(2, name="gru")(x, initial_state=state))
    with pytest.raises(regraft.UsageError, match="channels of its initial states"):
        prune_channels(model, "a", [1])


@pytest.mark.parametrize(
    ("channels", "text"),
    [
        ([4], "`channels` are not channels of this layer."),
        ([0, 1, 2, 3], "`prune_channels` would delete all channels."),
        (1, "`channels` must be numbers of channels."),
        ([True, False], "`channels` must be numbers of channels."),
        ("ab", "`channels` must be numbers of channels."),
        (lambda layer: None, "`channels` must be numbers of channels."),
    ],
)
def test_wrong_channels(channels, text):
    message = refused(layers.Dense(2), shape=(3,), gone=channels)
    assert text in message
    assert "where: a" in message


def test_wrong_places():
    message = refused(layers.BatchNormalization(name="bn"), where="bn")
    assert "this layer makes no channels of its own" in message
    assert "received: BatchNormalization" in message
    message = refused(where="nothing")
    assert "`prune_channels` found nothing to change." in message
    x = keras.Input((5, 4))
    model = keras.Model(x, layers.MultiHeadAttention(2, 2, name="m")(x, x))
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "m/query", [0])
    assert "this layer is inside another one" in str(error.value)
    assert "where: m/query" in str(error.value)


def test_weights_that_were_changed_before():
    model = sequence((3,), layers.Dense(4, name="a"), layers.Dense(2, name="b"))
    model.get_layer("b").enable_lora(2)
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "a", [1])
    assert "cannot be changed with its size" in str(error.value)
    assert "where: b: lora_kernel_a" in str(error.value)


class Doubled(layers.Dense):
    def call(self, x):
        return 2 * super().call(x)


class Renamed(layers.Dense):
    pass


class Scale(layers.Layer):
    """A factor for each channel."""

    def build(self, shape):
        self.factors = self.add_weight(shape=shape[-1:], name="factors")

    def call(self, x):
        return x * self.factors


def test_a_class_that_calls_something_else_is_not_known():
    model = sequence((3,), layers.Dense(4, name="a"), Doubled(2))
    with pytest.raises(regraft.UsageError, match="through a Doubled"):
        prune_channels(model, "a", [1])
    model = sequence((3,), layers.Dense(4, name="a"), Renamed(2))
    assert_pruned(model, "a", [1], "a")


def test_a_rule_of_ones_own():
    def build():
        return sequence(
            (3,), layers.Dense(4, name="a"), Scale(name="z"), layers.Dense(2)
        )

    with pytest.raises(regraft.UsageError, match="through a Scale"):
        prune_channels(build(), "a", [1])

    @pruning_rule(Scale, passes=True)
    def scale(step):
        assert isinstance(step.cut, Cut)
        kept = np.array(step.cut.kept)
        return step.cut, step.remade({"factors": lambda old: old[kept]})

    assert_pruned(build(), "a", [1], "z")


def test_numbers_for_each_channel_in_the_settings_of_an_operation():
    x = keras.Input((3,))
    low = np.array([0.0, -1.0, -2.0, -3.0], "float32")
    h = keras.ops.clip(layers.Dense(4, name="a")(x), low, 5.0)
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(keras.Model(x, h), "a", [1])
    assert "an array with a number for each channel" in str(error.value)


class Halved(layers.Conv2D):
    @property
    def kernel(self):
        return super().kernel / 2.0


def test_classes_that_compute_something_else():
    text = refused(Halved(2, 1, name="x"))
    assert "through a Halved." in text
    assert "what it does with channels is not known" in text


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_weights(mode):
    model = sequence((8,), layers.Dense(4, name="a"), layers.Dense(2))
    model.quantize(mode)
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "a", [0])
    assert "weights of this layer cannot be changed with its size" in str(error.value)
    assert f"received: {mode} weights" in str(error.value)


def test_weights_that_two_layers_share():
    dense = layers.Dense(4, name="d")
    times, x = keras.Input((5, 3), name="times"), keras.Input((3,), name="x")
    each = layers.Dense(2, name="left")(layers.TimeDistributed(dense, name="td")(times))
    model = keras.Model([times, x], [each, layers.Dense(2, name="right")(dense(x))])
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "d", [0])
    assert "layers that share weights would no longer do so" in str(error.value)
    assert "where: td and d" in str(error.value)
    left = prune_channels(model, "left", [0])
    assert len(left.weights) == len(model.weights)


def test_flags_and_attributes_stay():
    model = sequence((3,), layers.Dense(4, name="a"), layers.Dense(2, name="b"))
    layer = model.get_layer("a")
    layer.tag, layer.bias.trainable = 7, False
    new = prune_channels(model, "a", [0]).get_layer("a")
    assert new.tag == 7
    assert new.kernel.trainable
    assert not new.bias.trainable

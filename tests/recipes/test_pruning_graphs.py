"""Deleted channels in branches, in models inside models and in shared layers."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.cuts import assert_pruned
from recipes.nets import assert_copied, changed, data, output, scrambled
from regraft.recipes import prune_channels

pytestmark = pytest.mark.wiring

MERGES = [
    *(layers.Add, layers.Subtract, layers.Multiply, layers.Average),
    *(layers.Maximum, layers.Minimum),
]


def branches(merge):
    x = keras.Input((5, 5, 3))
    a = layers.ReLU(name="za")(layers.Conv2D(4, 3, name="a")(x))
    b = layers.BatchNormalization(name="zb")(layers.Conv2D(4, 3, name="b")(x))
    h = layers.Conv2D(2, 2, name="next")(merge([a, b]))
    return scrambled(keras.Model(x, layers.Flatten()(h)))


@pytest.mark.parametrize("merge", MERGES, ids=lambda kind: kind.__name__)
def test_two_branches(merge):
    assert_pruned(branches(merge()), ("a", "b"), [0, 3], ("za", "zb"))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "maximum"])
def test_operations_on_two_branches(name):
    model = branches(lambda pair: getattr(keras.ops, name)(*pair) * 0.5 + 1.0)
    after = {"add": "add_1", "subtract": "add", "multiply": "add", "maximum": "add"}
    graph = regraft.graph(model)
    last = graph["next"].sources[0].path
    assert last.startswith(after[name].split("_")[0])
    assert_pruned(model, ("a", "b"), [0, 3], last)


def test_one_behind_the_other():
    model = branches(layers.Concatenate())
    new = assert_pruned(model, "b", [1], "zb")
    assert new.get_layer("next").kernel.shape == (2, 2, 7, 2)
    both = prune_channels(model, ("a", "b"), [1, 2])
    assert both.get_layer("next").kernel.shape == (2, 2, 4, 2)
    other = branches(layers.Concatenate(axis=1))
    assert_pruned(other, ("a", "b"), [1], ("za", "zb"))
    with pytest.raises(regraft.UsageError, match="would lose different channels"):
        prune_channels(other, "a", [1])


def test_what_is_added_must_go_too():
    model = branches(layers.Add(name="sum"))
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "a", [1])
    assert "tensors that are merged would lose different channels" in str(error.value)
    assert "where: sum" in str(error.value)
    assert "what b make(s)" in str(error.value)
    assert "`together=True`" in str(error.value)
    assert_pruned(model, "a", [1], ("za", "zb"), together=True)


def residual():
    x = keras.Input((5, 5, 3))
    h = layers.Conv2D(4, 1, name="stem")(x)
    for i in range(2):
        block = layers.Conv2D(3, 3, padding="same", activation="relu", name=f"in{i}")(h)
        block = layers.Conv2D(4, 1, name=f"out{i}")(block)
        h = layers.Add(name=f"add{i}")([block, h])
        h = layers.ReLU(name=f"relu{i}")(h)
    h = layers.Concatenate()([h, layers.Conv2D(2, 1, name="more")(x)])
    return scrambled(keras.Model(x, layers.Dense(2)(layers.Flatten()(h))))


def test_a_chain_of_blocks_goes_together():
    new = assert_pruned(
        residual(), "out0", [0, 2], ("stem", "out0", "out1"), together=True
    )
    assert [new.get_layer(n).filters for n in ("stem", "out0", "out1")] == [2, 2, 2]
    # What is inside a block is nobody's business.
    model = residual()
    inside = assert_pruned(model, "in0", [0], "in0")
    assert_copied(inside, model)
    assert changed(inside) == {
        *("in0/kernel", "in0/bias", "out0/kernel", "out0/bias"),
    }


def test_a_factor_for_each_channel():
    x = keras.Input((5, 5, 3))
    h = layers.Conv2D(4, 3, activation="relu", name="a")(x)
    s = layers.Conv2D(2, 1, activation="relu")(
        layers.GlobalAveragePooling2D(keepdims=True)(h)
    )
    s = layers.Conv2D(4, 1, activation="sigmoid", name="excite")(s)
    h = layers.Multiply()([h, s])
    one = layers.Conv2D(1, 1, name="one")(h)  # Used for all channels.
    h = layers.Conv2D(2, 1)(layers.Multiply()([h, one]))
    model = scrambled(keras.Model(x, layers.Flatten()(h)))
    assert_pruned(model, "a", [1, 3], "a", together=True)


def nested(is_shared=False):
    inner_x = keras.Input((5, 5, 4), name="inner_x")
    i = layers.Conv2D(3, 1, activation="relu", name="i1")(inner_x)
    i = layers.Conv2D(4, 1, name="i2")(i)
    inner = keras.Model(inner_x, layers.Add()([i, inner_x]), name="inner")
    x = keras.Input((5, 5, 3))
    h = inner(layers.Conv2D(4, 1, name="a")(x))
    h = inner(layers.ReLU()(h)) if is_shared else h
    return scrambled(keras.Model(x, layers.Conv2D(2, 1, name="next")(h)))


@pytest.mark.parametrize("is_shared", [False, True])
def test_models_inside_models(is_shared):
    model = nested(is_shared)
    new = assert_pruned(model, "inner/i1", [0], "inner/i1")
    assert changed(new) == {"i1/kernel", "i1/bias", "i2/kernel", "i2/bias"}
    new = assert_pruned(model, ("a", "inner/i2"), [1], ("a", "inner/i2"))
    assert new.get_layer("inner").input_shape == (None, 5, 5, 3)
    assert_pruned(model, "a", [1], ("a", "inner/i2"), together=True)
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "a", [1])
    assert "inner/i2" in str(error.value)


def test_a_sequence_inside_and_outputs_of_models():
    x = keras.Input((5, 5, 3))
    inner = keras.Sequential(
        [layers.Conv2D(4, 3, name="c"), layers.BatchNormalization(name="z")],
        name="inner",
    )
    h = layers.Conv2D(2, 1, name="next")(inner(x))
    model = scrambled(keras.Model(x, h))
    new = assert_pruned(model, "inner/c", [2], "inner/z")
    assert isinstance(new.get_layer("inner"), keras.Sequential)


def test_shared_layers():
    x, y = keras.Input((5, 5, 3)), keras.Input((5, 5, 3))
    a, b = layers.Conv2D(4, 3, name="a"), layers.Conv2D(2, 1, name="b")
    model = keras.Model([x, y], layers.Subtract()([b(a(x)), b(a(y))]))
    assert_pruned(scrambled(model), "a", [1], "a")
    other = layers.Conv2D(4, 3, name="other")
    model = scrambled(keras.Model([x, y], layers.Add()([b(a(x)), b(other(y))])))
    assert_pruned(model, ("a", "other"), [1], ("a", "other"))
    with pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "a", [1])
    assert "called more than once would lose different channels" in str(error.value)
    assert "where: b and b (call 1)" in str(error.value)
    assert "1 channel(s) fewer, 0 channel(s) fewer" in str(error.value)


@pytest.mark.slow
def test_a_network_of_keras():
    model = keras.applications.ResNet50(
        weights=None, input_shape=(32, 32, 3), classes=4, classifier_activation=None
    )
    # The first stages will do.
    model = scrambled(regraft.recipes.features(model, "conv3_block1_out"))
    alone = assert_pruned(
        model, "conv2_block1_2_conv", [0, 5, 7], "conv2_block1_2_relu"
    )
    assert_copied(alone, model)
    gone = list(range(10, 40))
    stage = [f"conv2_block1_{i}_bn" for i in (0, 3)]
    stage += [f"conv2_block{i}_3_bn" for i in (2, 3)]
    assert_pruned(model, "conv2_block3_3_conv", gone, tuple(stage), together=True)


def test_a_mobile_network_of_keras():
    model = keras.applications.MobileNetV3Small(
        weights=None, input_shape=(32, 32, 3), classes=4
    )
    model = scrambled(regraft.recipes.features(model, "expanded_conv_4_add"))
    where = "expanded_conv_4_expand"
    x = data(model)
    new = prune_channels(model, where, range(8), together=True)
    assert new.count_params() < model.count_params()
    graph = regraft.graph(model)
    node = graph["expanded_conv_4_project"]
    kept = np.arange(graph[where].layer.filters) >= 8
    mask = layers.Rescaling(kept.astype("float32").tolist())
    masked = graph.insert(mask, after=graph[node.sources[0]]).build()
    squeeze = graph["expanded_conv_4_squeeze_excite_conv"]
    pooled = graph[squeeze.sources[0]]
    again = regraft.graph(masked).insert(regraft.clone(mask), after=pooled.path)
    np.testing.assert_allclose(output(new, x), output(again.build(), x), atol=1e-5)

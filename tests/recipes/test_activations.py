"""Other activations everywhere."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.nets import assert_copied, convnet, data, output, scrambled, untouched
from regraft.recipes import swap_activation

pytestmark = pytest.mark.wiring


def everywhere(of, layer, op):
    """One network, written with one activation in all the ways there are."""
    x = keras.Input((5, 4))
    h = layers.Dense(4, activation=of, name="argument")(x)
    h = layers.Activation(of, name="activation")(h)
    h = layer(name="layer")(h)
    h = op(h)
    inner = keras.Sequential(
        [keras.Input((5, 4)), layers.Dense(4, activation=of, name="d")], name="inner"
    )
    h = layers.TimeDistributed(layers.Dense(4, activation=of), name="each")(inner(h))
    h = layers.SimpleRNN(3, activation=of, return_sequences=True, name="rnn")(h)
    h = layers.Bidirectional(layers.GRU(3, activation=of, name="gru"), name="two")(h)
    return scrambled(keras.Model(x, layers.Dense(2)(h)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("relu", "gelu"),
        (keras.activations.relu, keras.activations.gelu),
        (keras.ops.relu, "gelu"),
    ],
)
def test_all_ways_to_write_an_activation(old, new):
    model = everywhere("relu", layers.ReLU, keras.ops.relu)
    with untouched(model):
        found = swap_activation(model, old, new)
    wanted = everywhere(
        "gelu", lambda name: layers.Activation("gelu", name=name), keras.ops.gelu
    )
    # `keras.ops.gelu` approximates, the activation does not.
    wanted = regraft.graph(wanted).set(
        lambda node: hasattr(node.layer, "approximate"), approximate=False
    )
    x = data(model)
    np.testing.assert_allclose(output(found, x), output(wanted.build(), x), atol=1e-6)
    assert_copied(found, model)
    assert not regraft.lineage(found).of("fresh")


def test_layers_with_other_arguments_are_something_else():
    x = keras.Input((4,))
    h = layers.ReLU(max_value=6, name="six")(x)
    h = layers.ReLU(negative_slope=0.1, name="leaky")(h)
    h = keras.activations.relu(h, max_value=2.0)
    model = keras.Model(x, layers.Dense(2, activation="relu", name="d")(h))
    graph = regraft.graph(swap_activation(model, "relu", "tanh"))
    assert graph["six"].kind is graph["leaky"].kind is layers.ReLU
    assert graph["d"].layer.activation is keras.activations.tanh
    six = regraft.graph(swap_activation(model, "relu6", "tanh"))
    assert six["six"].layer.activation is keras.activations.tanh
    assert six["d"].layer.activation is keras.activations.relu
    classes = regraft.graph(swap_activation(model, layers.ReLU, "tanh"))
    assert classes["six"].layer.activation is keras.activations.tanh
    assert classes["leaky"].layer.activation is keras.activations.tanh
    assert classes["d"].layer.activation is keras.activations.relu


def cube(x):
    return x * x * x


@pytest.mark.every_backend
def test_functions_of_ones_own():
    model = convnet()
    first = swap_activation(model, "relu", cube, where="*hidden")
    assert first.get_layer("hidden").activation is cube
    assert first.get_layer("stem_relu").__class__ is layers.ReLU
    back = swap_activation(first, cube, "relu")
    x = data(model)
    np.testing.assert_array_equal(output(back, x), output(model, x))


def test_attention_keeps_its_softmax():
    x = keras.Input((5, 4))
    h = layers.MultiHeadAttention(1, 2, name="attention")(x, x)
    model = keras.Model(x, layers.Softmax(name="top")(h))
    graph = regraft.graph(swap_activation(model, "softmax", "linear"))
    assert graph["top"].layer.activation is keras.activations.linear
    assert graph.find(layers.Softmax).one().path.startswith("attention/softmax")


def test_what_is_not_there_or_no_activation():
    with pytest.raises(regraft.UsageError, match="`swap_activation` found nothing"):
        swap_activation(convnet(), "tanh", "relu")
    with pytest.raises(TypeError, match="This is no activation"):
        swap_activation(convnet(), 3, "relu")
    for wrong in ("zork", layers.ELU, 3):
        with pytest.raises(TypeError) as error:
            swap_activation(convnet(), "relu", wrong)
        assert "This is no activation." in str(error.value)
        assert "where: argument `new`" in str(error.value)


class Shifted(layers.ReLU):
    def call(self, x):
        return super().call(x) + 1.0


def test_classes_that_compute_something_else_stay():
    x = keras.Input((4,))
    model = keras.Model(x, Shifted(name="own")(layers.ReLU(name="plain")(x)))
    graph = regraft.graph(swap_activation(model, "relu", "tanh"))
    assert graph["own"].kind is Shifted
    assert graph["plain"].kind is layers.Activation

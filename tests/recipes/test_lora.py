"""Low-rank weights on chosen layers."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.nets import convnet, data, output, scrambled, untouched
from regraft.recipes import add_lora

pytestmark = pytest.mark.wiring


def transformer():
    x = keras.Input((6,), dtype="int32", name="tokens")
    h = layers.Embedding(9, 8, name="embedding")(x)
    h = layers.LayerNormalization(name="norm")(
        h + layers.MultiHeadAttention(2, 4, name="attention")(h, h)
    )
    ffn = keras.Sequential([layers.Dense(16, "gelu"), layers.Dense(8)], name="ffn")
    h = layers.GlobalAveragePooling1D()(h + ffn(h))
    model = keras.Model(x, layers.Dense(3, name="head")(h), name="bert")
    return scrambled(model)


TOKENS = np.random.default_rng(0).integers(0, 9, (4, 6)).astype("int32")


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("head", 1),
        ("ffn/*", 2),
        (layers.Dense, 3),
        (("attention/query", "attention/value"), 2),
        ("embedding", 1),
        ("*", 8),
    ],
)
def test_nothing_changes_at_first_and_only_low_rank_weights_learn(where, count):
    model = transformer()
    with untouched(model):
        new = add_lora(model, where, 2)
    np.testing.assert_array_equal(output(new, TOKENS), output(model, TOKENS))
    assert len(new.trainable_variables) == 2 * count
    assert all("lora" in v.name for v in new.trainable_variables)
    assert len(new.variables) == len(model.variables) + 2 * count


@pytest.mark.every_backend
@pytest.mark.parametrize("is_compiled", [False, True])
def test_training_moves_the_low_rank_weights_alone(is_compiled):
    model = transformer()
    labels = np.array([0, 1, 2, 0])
    if is_compiled:
        model.compile("adam", "mse")
        model.fit(TOKENS, np.zeros((4, 3)), verbose=0)
    new = add_lora(model, ("head", "attention/*"), 2, alpha=4.0)
    if not is_compiled:
        new.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
    before = {v.path: keras.ops.convert_to_numpy(v) for v in new.variables}
    new.fit(TOKENS, np.zeros((4, 3)) if is_compiled else labels, epochs=2, verbose=0)
    for variable in new.weights:
        is_same = np.array_equal(before[variable.path], variable.numpy())
        assert is_same != ("lora" in variable.name), variable.path
    assert new.get_layer("head").lora_alpha == 4.0


@pytest.mark.every_backend
def test_convolutions_and_statistics():
    model = convnet()
    new = add_lora(model, layers.Conv2D, 2)
    x = data(model)
    np.testing.assert_array_equal(output(new, x), output(model, x))
    new.compile("sgd", "mse")
    new.fit(x, np.ones((3, 4)), verbose=0)
    norm, old = new.get_layer("stem_bn"), model.get_layer("stem_bn")
    np.testing.assert_array_equal(norm.moving_mean.numpy(), old.moving_mean.numpy())


def test_layers_without_low_rank_weights():
    with pytest.raises(regraft.UsageError) as error:
        add_lora(convnet(), "pool", 2)
    assert "`add_lora` found nothing to change." in str(error.value)
    assert "layers with `enable_lora`" in str(error.value)


def test_what_learns_when_it_is_called_computes_the_same():
    x = keras.Input((4,))
    h = layers.BatchNormalization(name="own")(layers.Dense(4)(x), training=True)
    inner = keras.Sequential([layers.Dense(4), layers.BatchNormalization(name="in")])
    model = scrambled(keras.Model(x, layers.Dense(2, name="head")(inner(h))))
    new = add_lora(model, "head", 2)
    assert not new.get_layer(inner.name).get_layer("in").trainable
    batch = data(model)
    np.testing.assert_array_equal(output(new, batch), output(model, batch))
    names = {variable.name for variable in new.trainable_variables}
    assert names == {"lora_kernel_a", "lora_kernel_b"}

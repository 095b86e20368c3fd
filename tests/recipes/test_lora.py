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


@pytest.mark.parametrize("frozen", ["head", "ffn", "attention", None])
def test_what_was_frozen_learns_by_its_low_rank_weights(frozen):
    model = transformer()
    (model if frozen is None else model.get_layer(frozen)).trainable = False
    with untouched(model):
        new = add_lora(model, ("head", "ffn/*", "attention/query"), 2)
    np.testing.assert_array_equal(output(new, TOKENS), output(model, TOKENS))
    assert len(new.trainable_variables) == 8
    assert all("lora" in v.name for v in new.trainable_variables)
    new.compile("sgd", "mse")
    before = {v.path: v.numpy().copy() for v in new.weights}
    new.fit(TOKENS, np.ones((4, 3)), verbose=0)
    moved = {v.path for v in new.weights if (v.numpy() != before[v.path]).any()}
    assert moved == {p for p in before if p.endswith(("kernel_b", "lora_b"))}


@pytest.mark.parametrize(
    ("rank", "alpha", "text"),
    [
        (0, None, "`rank` must be a whole number from 1 on."),
        (-1, None, "received: -1 (of type int)"),
        ("2", None, "received: '2' (of type str)"),
        (2.5, None, "where: argument `rank`"),
        (True, None, "received: True (of type bool)"),
        (2, "x", "`alpha` must be a number."),
    ],
)
def test_wrong_numbers(rank, alpha, text):
    with pytest.raises(TypeError) as error:
        add_lora(convnet(), "head", rank, alpha=alpha)
    assert text in str(error.value)


def test_layers_that_take_no_other_low_rank_weights():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3, kernel_constraint="non_neg", name="d")(x))
    with pytest.raises(regraft.UsageError) as error:
        add_lora(model, "d", 2)
    assert "This Dense takes no low-rank weights." in str(error.value)
    assert "where: d" in str(error.value)
    once = add_lora(convnet(), "head", 2)
    assert len(add_lora(once, layers.Dense, 2).trainable_variables) == 4
    for rank, alpha in ((3, None), (2, 4.0)):
        with pytest.raises(regraft.UsageError) as error:
            add_lora(once, layers.Dense, rank, alpha=alpha)
        assert "already has low-rank weights of another kind" in str(error.value)
        assert "where: head" in str(error.value)
        assert "received: rank=2, alpha=2" in str(error.value)

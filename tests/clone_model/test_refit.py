"""Layers that `clone_model` builds for another input shape, and their ties."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import CopyError, ShapeError, UsageError, clone_model

WIDE = np.random.default_rng(0).random((2, 5), "float32")


def numbers(x):
    return np.asarray(ops.convert_to_numpy(x))


def shapes(model):
    return sorted(tuple(w.shape) for w in model.weights)


# --- variables that calls are given -------------------------------------------


def with_bias(layer=None):
    x = keras.Input((4,))
    y = layers.Activation("relu", name="first")(x)
    dense = layer or layers.Dense(3, name="dense")
    return keras.Model(x, dense(y) + dense.bias, name="model")


def with_early_bias():
    x, z = keras.Input((4,)), keras.Input((3,))
    dense = layers.Dense(3, name="dense")
    dense.build((None, 4))
    early = z + dense.bias
    return keras.Model([x, z], dense(x) * early, name="model")


def assert_uses_its_own_bias(model, new, x):
    before = numbers(new(x))
    model.get_layer("dense").bias.assign([100.0] * 3)
    np.testing.assert_array_equal(numbers(new(x)), before)
    own = next(layer for layer in new.layers if hasattr(layer, "bias"))
    assert not any(v is model.get_layer("dense").bias for v in new.variables)
    own.bias.assign([7.0] * 3)
    assert not np.any(numbers(new(x)) == before)


def dense(layer):
    return layers.Dense(3)


def with_lora(layer):
    return layers.Dense(3, lora_rank=2)


REPLACED = [None, dense, with_lora]


def replaced(function):
    if function is None:
        return None
    return lambda layer: function(layer) if layer.name == "dense" else layer


@pytest.mark.parametrize("function", REPLACED)
def test_a_variable_of_a_fitted_layer_is_the_new_one(function):
    model = with_bias()
    new = clone_model(
        model, input_tensors=keras.Input((5,)), clone_function=replaced(function)
    )
    assert (5, 3) in shapes(new)
    assert_uses_its_own_bias(model, new, WIDE)


@pytest.mark.parametrize("function", REPLACED)
def test_a_variable_that_is_used_before_its_layer_is_fitted(function):
    model = with_early_bias()
    new = clone_model(
        model,
        input_tensors=[keras.Input((5,)), keras.Input((3,))],
        clone_function=replaced(function),
    )
    assert (5, 3) in shapes(new)
    assert_uses_its_own_bias(model, new, [WIDE, np.ones((2, 3), "float32")])


def test_a_variable_of_a_layer_behind_an_inserted_one():
    def insert(layer, *args, **kwargs):
        y = layer(*args, **kwargs)
        return layers.Dense(5)(y) if layer.name == "first" else y

    model = with_bias()
    new = clone_model(model, call_function=insert)
    before = numbers(new(WIDE[:, :4]))
    model.get_layer("dense").bias.assign([100.0] * 3)
    np.testing.assert_array_equal(numbers(new(WIDE[:, :4])), before)


def test_a_kernel_that_does_not_fit_its_use_is_an_error():
    x = keras.Input((4,))
    dense = layers.Dense(4)
    model = keras.Model(x, ops.matmul(dense(x), dense.kernel), name="model")
    with pytest.raises(ValueError, match=r"\(5, 4\)") as caught:
        clone_model(model, input_tensors=keras.Input((5,)))
    assert "called model/matmul" in caught.value.__notes__[0]


def test_a_kernel_that_changes_after_its_use():
    x, z = keras.Input((4,)), keras.Input((4, 3))
    dense = layers.Dense(3, name="dense")
    dense.build((None, 4))
    early = z + dense.kernel
    model = keras.Model([x, z], [early, dense(x)], name="model")
    with pytest.raises(ShapeError, match="after another call has used it") as caught:
        clone_model(model, input_tensors=[keras.Input((5,)), keras.Input((4, 3))])
    assert "where: model/dense: dense/kernel" in str(caught.value)


def test_variables_are_paired_by_name():
    class Other(layers.Layer):
        def build(self, shape):
            self.bias = self.add_weight(shape=(), name="bias")

        def call(self, x):
            return x[:, :3] + self.bias

    model = with_bias()
    wider = clone_model(model, clone_function=replaced(lambda _: layers.Dense(8)))
    own = wider.layers[2].bias
    before = numbers(wider(WIDE[:, :4]))
    own.assign_add([1.0] * 8)
    after = numbers(wider(WIDE[:, :4]))
    # Each sum is rounded.
    np.testing.assert_allclose(after - before, np.full((2, 8), 2), rtol=1e-5)
    with pytest.raises(UsageError, match="has no such variable"):
        clone_model(model, clone_function=replaced(lambda _: Other()))


# --- layers that are held by others -------------------------------------------


class Reader(layers.Layer):
    """Reads the kernel of another layer."""

    def __init__(self, other, **kwargs):
        super().__init__(**kwargs)
        self.other = other

    def call(self, x):
        return x * ops.sum(self.other.kernel)


def in_a_wrapper(*, wrapper_first):
    a, b = keras.Input((4,), name="a"), keras.Input((2, 4), name="b")
    dense = layers.Dense(3, name="dense")
    wrapper = layers.TimeDistributed(dense, name="wrapper")
    if wrapper_first:
        z, y = wrapper(b), dense(a)
    else:
        y, z = dense(a), wrapper(b)
    return keras.Model([a, b], [y, z], name="model")


@pytest.mark.parametrize("wrapper_first", [False, True])
def test_a_layer_and_a_wrapper_around_it_stay_tied(wrapper_first):
    model = in_a_wrapper(wrapper_first=wrapper_first)
    new = clone_model(model, input_tensors=[keras.Input((5,)), keras.Input((2, 5))])
    assert new.get_layer("wrapper").layer is new.get_layer("dense")
    assert shapes(new) == [(3,), (5, 3)]
    new.get_layer("dense").bias.assign([1.0] * 3)
    y, z = map(numbers, new([WIDE, np.stack([WIDE, WIDE], 1)]))
    np.testing.assert_array_equal(np.stack([y, y], 1), z)
    new.compile("adam", "mse")
    new.train_on_batch(
        [WIDE, np.stack([WIDE, WIDE], 1)], [np.ones((2, 3)), np.ones((2, 2, 3))]
    )
    if keras.backend.backend() == "torch":
        held = [tuple(p.shape) for p in new.parameters()]
        assert sorted(held) == [(3,), (5, 3)]


@pytest.mark.parametrize("wrapper_first", [False, True])
@pytest.mark.parametrize("sizes", [(4, 5), (5, 4)])
def test_a_layer_and_a_wrapper_on_different_widths(sizes, wrapper_first):
    model = in_a_wrapper(wrapper_first=wrapper_first)
    given = [keras.Input((sizes[0],)), keras.Input((2, sizes[1]))]
    with pytest.raises(ShapeError, match="has a part in common with it") as caught:
        clone_model(model, input_tensors=given)
    assert "'dense'" in str(caught.value)
    assert "'wrapper'" in str(caught.value)


def test_a_layer_that_reads_another_reads_the_fitted_one():
    x = keras.Input((4,))
    dense = layers.Dense(3, name="dense")
    model = keras.Model(x, Reader(dense, name="reader")(dense(x)))
    new = clone_model(model, input_tensors=keras.Input((5,)))
    assert new.get_layer("reader").other is new.get_layer("dense")
    new.get_layer("dense").kernel.assign(np.zeros((5, 3)))
    new.get_layer("dense").bias.assign(np.ones(3))
    assert not np.any(numbers(new(WIDE)))


def test_a_layer_that_was_read_before_it_is_fitted():
    x = keras.Input((4,))
    dense = layers.Dense(3, name="dense")
    dense.build((None, 4))
    y = Reader(dense, name="reader")(x)
    model = keras.Model(x, [y, dense(x)], name="model")
    with pytest.raises(ShapeError, match="has a part in common with it") as caught:
        clone_model(model, input_tensors=keras.Input((5,)))
    assert "Dense 'dense' on another shape, with parts of Reader 'reader'" in str(
        caught.value
    )


def test_a_variable_that_two_layers_share():
    class Borrower(layers.Layer):
        def __init__(self, kernel, **kwargs):
            super().__init__(**kwargs)
            self.kernel = kernel

        def call(self, x):
            return x * ops.sum(self.kernel)

    x = keras.Input((4,))
    dense = layers.Dense(3, name="dense")
    y = dense(x)
    kept = keras.Model(x, Borrower(dense.bias, name="borrower")(y), name="model")
    new = clone_model(kept, input_tensors=keras.Input((5,)))
    assert new.get_layer("borrower").kernel is new.get_layer("dense").bias
    lost = keras.Model(x, Borrower(dense.kernel, name="borrower")(y), name="model")
    with pytest.raises(ShapeError, match="A variable that two layers share") as caught:
        clone_model(lost, input_tensors=keras.Input((5,)))
    assert "Dense 'dense' on another shape, tied to Borrower 'borrower'" in str(
        caught.value
    )


def test_a_frozen_layer_stays_frozen():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(3, trainable=False, name="dense")(x))
    new = clone_model(model, input_tensors=keras.Input((5,)))
    assert not new.trainable_variables
    new.get_layer("dense").trainable = True
    assert len(new.trainable_variables) == 2


def test_an_optimizer_follows_a_fitted_layer():
    model = with_bias()
    model.compile("adam", "mse")
    model.train_on_batch(WIDE[:, :4], np.ones((2, 3)))
    new = clone_model(model, input_tensors=keras.Input((5,)))
    new.train_on_batch(WIDE, np.ones((2, 3)))
    slots = {tuple(v.shape) for v in new.optimizer.variables}
    assert slots == {(), (5, 3), (3,)}


# --- what starts in another way -----------------------------------------------


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_quantized_layer_is_drawn_and_quantized_again(mode, wrapped):
    x = keras.Input((3, 4))
    dense = layers.Dense(4, name="dense")
    y = layers.TimeDistributed(dense)(x) if wrapped else dense(x)
    model = keras.Model(x, y)
    dense.quantize(mode)
    new = clone_model(model, input_tensors=keras.Input((3, 6)))
    fitted = new.layers[1].layer if wrapped else new.layers[1]
    assert fitted.quantization_mode == mode
    assert {v.name: v.dtype for v in fitted.weights} == {
        v.name: v.dtype for v in dense.weights
    }
    assert np.any(numbers(fitted._kernel))
    assert np.all(np.any(numbers(new(np.ones((1, 3, 6)))), axis=-1))


def test_a_quantized_layer_that_can_only_be_made_as_a_whole_is_refused():
    x = keras.Input((3, 4))
    attention = layers.MultiHeadAttention(2, 3, name="attention")
    model = keras.Model(x, attention(x, x))
    model.quantize("int8")
    with pytest.raises(CopyError, match="A quantized variable cannot be drawn anew"):
        clone_model(model, input_tensors=keras.Input((3, 6)))


def test_what_adapt_learned_is_not_lost():
    x = keras.Input((4,))
    known = layers.Normalization(name="known")
    known.adapt(WIDE[:, :4])
    model = keras.Model(x, known(x), name="model")
    with pytest.raises(
        ShapeError, match=r"would lose what `adapt\(\)` learned"
    ) as caught:
        clone_model(model, input_tensors=keras.Input((5,)))
    assert "where: model/known: known/" in str(caught.value)
    assert "Normalization 'known' on another shape" in str(caught.value)
    same = clone_model(model, input_tensors=keras.Input((4,), batch_size=2))
    np.testing.assert_array_equal(
        numbers(same(WIDE[:, :4])), numbers(model(WIDE[:, :4]))
    )


def test_a_layer_that_learned_nothing_is_built_for_another_shape():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Normalization()(x))
    new = clone_model(model, input_tensors=keras.Input((5,)))
    np.testing.assert_array_equal(numbers(new(WIDE)), WIDE)

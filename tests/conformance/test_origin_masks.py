"""Cases that cloners got wrong: masks, and what layers do with them.

No cloner has to compute a mask: a layer finds the masks of its inputs by itself.
So a mask is lost by touching it, and no structure shows the loss, only numbers.
Each model here returns masked sequences as well as what was made of them.
"""

import keras
import numpy as np
import pytest
from conformance.checks import (
    COPIERS,
    assert_copy,
    assert_equal,
    assert_same_calls,
    by_clone,
    call,
)
from keras import layers, ops

import regraft

TOKENS = np.array([[3, 1, 0], [2, 0, 0]])
STEPS = np.array([[[1, 2], [3, 4], [0, 0]], [[5, 6], [0, 0], [0, 0]]], "float32")


class EveryOther(layers.Layer):
    """Makes a mask of its own, and says nothing about `supports_masking`."""

    def call(self, x):
        return x * 2.0

    def compute_mask(self, inputs, previous_mask=None):
        return ops.not_equal(inputs[..., 0], 1.0)


class Halves(layers.Layer):
    """Has two outputs; `masks` says which of them get the mask."""

    def __init__(self, masks, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.masks = masks

    def call(self, x):
        return x * 2.0, x * 3.0

    def compute_mask(self, inputs, previous_mask=None):
        if self.masks is None:
            return None
        return tuple(previous_mask if masked else None for masked in self.masks)


class ScaledMean(layers.Layer):
    """Averages the steps that are not masked, times a keyword argument."""

    def call(self, x, factor=1.0, mask=None):
        if mask is None:
            return factor * ops.mean(x, axis=1)
        weights = ops.cast(mask, x.dtype)[..., None]
        return factor * ops.sum(x * weights, axis=1) / ops.sum(weights, axis=1)

    def compute_mask(self, inputs, previous_mask=None):
        return None


def lstm(units=2, **kwargs):
    # Unrolled, there is no loop to compile; on torch there never is one.
    unroll = keras.backend.backend() != "torch"
    return layers.LSTM(units, unroll=unroll, **kwargs)


def mean():
    return layers.GlobalAveragePooling1D()


def tokens():
    return keras.Input((3,), dtype="int32", name="tokens")


def steps(name="steps"):
    return keras.Input((3, 2), name=name)


def embedding_into_lstm():
    x = tokens()
    h = layers.Embedding(5, 2, mask_zero=True)(x)
    return keras.Model(x, [h, lstm()(h)]), TOKENS


def masking_through_layers_into_lstm():
    x = steps()
    h = layers.Dropout(0.5, seed=1)(layers.Masking()(x))
    h = layers.TimeDistributed(layers.Dense(3))(layers.BatchNormalization()(h))
    return keras.Model(x, [h, lstm()(h)]), STEPS


def two_masks_concatenated():
    a, b = steps("a"), steps("b")
    h = layers.Concatenate(axis=1)([layers.Masking()(a), layers.Masking(5.0)(b)])
    return keras.Model([a, b], [h, mean()(h)]), [STEPS, STEPS[::-1].copy()]


def return_state():
    x = tokens()
    h = layers.Embedding(5, 2, mask_zero=True)(x)
    out, hidden, cell = lstm(return_sequences=True, return_state=True)(h)
    return keras.Model(x, [out, hidden, cell, mean()(out)]), TOKENS


def bidirectional_into_lstm():
    x = tokens()
    h = layers.Embedding(5, 2, mask_zero=True)(x)
    h = layers.Bidirectional(lstm(return_sequences=True))(h)
    return keras.Model(x, [h, lstm()(h)]), TOKENS


def out_of_a_nested_functional():
    y = steps("inner_steps")
    inner = keras.Model(y, layers.Masking()(layers.Masking(5.0)(y)), name="inner")
    x = steps()
    h = inner(x)
    return keras.Model(x, [h, mean()(h)]), STEPS


def out_of_a_nested_sequential():
    stack = [layers.Embedding(5, 2, mask_zero=True), layers.Dropout(0.1, seed=2)]
    inner = keras.Sequential(stack, name="inner")
    x = tokens()
    h = inner(x)
    return keras.Model(x, [h, mean()(h)]), TOKENS


def custom_compute_mask():
    x = steps()
    h = EveryOther()(x)
    return keras.Model(x, [h, mean()(h)]), STEPS


def two_outputs_one_mask():
    x = steps()
    a, b = Halves((False, True))(layers.Masking()(x))
    return keras.Model(x, [a, b, mean()(a), mean()(b)]), STEPS


def masked_into_two_output_lambda():
    x = steps()
    h = layers.Masking()(x)
    a, b = layers.Lambda(lambda x: [x, 2.0 * x])(h)
    return keras.Model(x, [h, a, mean()(a), mean()(b)]), STEPS


def lambda_with_a_mask():
    x = steps()
    h = layers.Lambda(lambda x: -x, mask=lambda x, mask: ops.any(x > 4, -1))(x)
    return keras.Model(x, [h, mean()(h)]), STEPS


def keyword_argument_and_mask():
    x = steps()
    h = layers.Masking()(x)
    return keras.Model(x, [h, ScaledMean()(h, factor=0.5)]), STEPS


def mask_given_as_argument():
    x, m = steps(), keras.Input((3,), dtype="bool", name="m")
    h = layers.Masking()(x)
    masked = ScaledMean()(layers.Dense(2)(x), mask=m)
    mask = np.array([[True, False, True], [False, True, True]])
    return keras.Model([x, m], [h, masked]), [STEPS, mask]


def initial_state_given_as_argument():
    x, s = tokens(), keras.Input((2,), name="s")
    h = layers.Embedding(5, 2, mask_zero=True)(x)
    state = [layers.Dense(2)(s), layers.Dense(2)(s)]
    out = lstm()(h, initial_state=state)
    return keras.Model([x, s], [h, out]), [TOKENS, np.ones((2, 2), "float32")]


CASES = [
    embedding_into_lstm,
    masking_through_layers_into_lstm,
    two_masks_concatenated,
    return_state,
    bidirectional_into_lstm,
    out_of_a_nested_functional,
    out_of_a_nested_sequential,
    custom_compute_mask,
    two_outputs_one_mask,
    masked_into_two_output_lambda,
    lambda_with_a_mask,
    keyword_argument_and_mask,
    mask_given_as_argument,
    initial_state_given_as_argument,
]


@pytest.mark.parametrize("build", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_copy_masks_the_same(build, copy):
    model, inputs = build()
    _, masks = call(model, inputs)
    assert any(mask is not None and not mask.all() for mask in masks)
    assert_copy(model, copy(model), inputs)


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_two_outputs_and_no_mask(copy):
    x = steps()
    a, b = Halves(None)(layers.Masking()(x))
    model = keras.Model(x, [a, mean()(b)])
    assert call(model, STEPS)[1] == [None, None]
    assert_copy(model, copy(model), STEPS)


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_masks_are_no_call_arguments(copy):
    model, _ = keyword_argument_and_mask()
    twin = copy(model)
    for either in (model, twin):
        [node] = either.layers[-1]._inbound_nodes
        assert node.arguments.kwargs == {"factor": 0.5}
        assert [x.shape for x in node.input_tensors] == [(None, 3, 2)]
    assert len(twin.operations) == len(model.operations) == 3


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_keyword_argument_and_mask_cloned_twice(copy):
    model, inputs = keyword_argument_and_mask()
    twin = copy(copy(model))
    assert_copy(model, twin, inputs)
    assert_copy(model, copy(model), inputs)  # The original can be cloned again.


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_copy_called_in_another_model_hands_on_its_mask(copy):
    model, inputs = out_of_a_nested_functional()
    inner = model.get_layer("inner")
    x = steps("outer_steps")
    outers = [keras.Model(x, mean()(part(x))) for part in (inner, copy(inner))]
    assert_same_calls(*outers, inputs)
    [values], _ = call(outers[1], inputs)
    assert np.any(values != STEPS.mean(axis=1))


@pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)
def test_masked_copy_is_saved_and_loaded(copy, tmp_path):
    model, inputs = masking_through_layers_into_lstm()
    twin = copy(model)
    twin.save(tmp_path / "twin.keras")
    loaded = keras.models.load_model(tmp_path / "twin.keras")
    assert_same_calls(model, loaded, inputs)


def test_mask_given_by_the_caller():
    x = steps()
    model = keras.Model(x, ScaledMean()(layers.Dense(2)(x)))
    twin = by_clone(model)
    mask = ops.convert_to_tensor([[True, True, False], [False, True, True]])
    assert_same_calls(model, twin, STEPS, mask=mask)
    assert np.any(call(twin, STEPS)[0][0] != call(twin, STEPS, mask=mask)[0][0])


def test_symbolic_masks_are_copied_too():
    model, _ = custom_compute_mask()
    twin = regraft.clone(model)
    old, new = model.outputs[0]._keras_mask, twin.outputs[0]._keras_mask
    assert new is not old
    assert (new.shape, new.dtype) == (old.shape, old.dtype)
    assert new._keras_history.operation is not old._keras_history.operation


def test_padding_does_not_count_in_the_copy():
    model, _ = embedding_into_lstm()
    twin = regraft.clone(model)
    padded = np.array([[3, 1, 0, 0], [2, 0, 0, 0]])
    [_, values], _ = call(twin, TOKENS)
    x = keras.Input((4,), dtype="int32")
    longer = keras.Model(x, twin.layers[2](twin.layers[1](x)))
    assert_equal(call(longer, padded)[0], [values])

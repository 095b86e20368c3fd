"""`input_tensors`: arrays, which fix an input for good."""

import keras
import numpy as np
import pytest
from keras import ops

from regraft import clone_model

from .networks import X, mlp, numbers, sequential, two_inputs


def as_tensor(x):
    return ops.convert_to_tensor(x)


@pytest.mark.parametrize("kind", [np.asarray, as_tensor, keras.Variable])
@pytest.mark.parametrize("build", [mlp, sequential])
def test_an_array_fixes_the_only_input(build, kind):
    model = build()
    new = clone_model(model, input_tensors=kind(X))
    name = model.inputs[0]._keras_history.operation.name
    assert new.inputs[0].name == f"input_wrapper_for_{name}"
    assert new.input_shape == (2, 4)
    assert type(new) is type(model)
    new.set_weights(model.get_weights())
    expected = numbers(model(X))[0]
    for fed in (np.zeros((2, 4)), None):
        np.testing.assert_array_equal(numbers(new(fed))[0], expected)


def test_an_array_fixes_one_of_several_inputs(tmp_path):
    model = two_inputs()
    mine = keras.Input((4,), name="mine")
    new = clone_model(model, input_tensors=[mine, X + 1])
    assert new.input == [mine]
    assert new.get_layer("input_wrapper_for_b")
    new.set_weights(model.get_weights())
    expected = numbers(model([X, X + 1]))[0]
    np.testing.assert_array_equal(numbers(new([X]))[0], expected)
    new.save(tmp_path / "fixed.keras")
    again = keras.saving.load_model(tmp_path / "fixed.keras")
    np.testing.assert_array_equal(numbers(again([X]))[0], expected)


def test_arrays_fix_all_of_several_inputs():
    model = two_inputs()
    new = clone_model(model, input_tensors=(X, X + 1))
    names = [x.name for x in new.inputs]
    assert names == ["input_wrapper_for_a", "input_wrapper_for_b"]
    new.set_weights(model.get_weights())
    expected = numbers(model([X, X + 1]))[0]
    np.testing.assert_array_equal(numbers(new([X * 0, X * 0]))[0], expected)


def test_an_array_in_a_nested_structure():
    a, b, c = (keras.Input((4,), name=name) for name in "abc")
    model = keras.Model({"left": (a, b), "right": c}, a - b * c)
    x = keras.Input((4,), name="x")
    new = clone_model(model, input_tensors={"left": (X, x), "right": X})
    assert new.input == {"left": (x,)}
    ours, expected = new({"left": (X + 1,)}), X - (X + 1) * X
    np.testing.assert_array_equal(numbers(ours)[0], expected)

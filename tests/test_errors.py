"""Bad arguments: each message says what, where, expected, received, what to do."""

import keras
import pytest
from keras import layers

import regraft


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((2,)), layers.Dense(2)], name="net")


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"weights": "frehs"}, ValueError, "Did you mean 'fresh'?"),
        ({"weights": None}, ValueError, "'copy' or 'share' or 'fresh'"),
        ({"compiled": "dropp"}, ValueError, "Did you mean 'drop'?"),
        ({"seed": "7"}, TypeError, "The seed must be a whole number."),
        ({"seed": 1.5}, TypeError, "received: 1.5 (of type float)"),
        ({"seed": True}, TypeError, "received: True (of type bool)"),
        ({"name": "a/b"}, TypeError, "`name` must be a string without slashes."),
        ({"prefix": 3}, TypeError, "`prefix` must be a string without slashes."),
    ],
)
def test_a_wrong_argument_is_refused_and_nothing_changes(model, arguments, kind, text):
    before = [weight.numpy().tobytes() for weight in model.weights]
    with pytest.raises(kind) as error:
        regraft.clone(model, **arguments)
    assert isinstance(error.value, regraft.UsageError)
    message = str(error.value)
    assert text in message
    for part in ("where: argument `", "expected: ", "received: ", "what to do: "):
        assert part in message
    assert [weight.numpy().tobytes() for weight in model.weights] == before


@pytest.mark.parametrize("thing", [None, "model.keras", keras.Model, [1, 2]])
def test_only_models_layers_and_functions_are_cloned(thing):
    for kind in (ValueError, TypeError, regraft.RegraftError):
        with pytest.raises(kind, match="Only models, layers and Functions"):
            regraft.clone(thing)


def test_a_traced_model_is_not_cloned(model):
    with (
        keras.StatelessScope(),
        pytest.raises(regraft.UsageError, match="while it is being traced") as error,
    ):
        regraft.clone(model)
    assert "where: net" in str(error.value)


def test_a_numpy_integer_is_a_seed(model):
    import numpy as np

    one, two = (regraft.clone(model, weights="fresh", seed=s) for s in (np.int64(3), 3))
    assert one.weights[0].numpy().tobytes() == two.weights[0].numpy().tobytes()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="SavedModels")
def test_a_part_of_a_saved_model_that_is_held_elsewhere_is_refused(model, tmp_path):
    import tensorflow as tf

    model.export(str(tmp_path), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path))
    layer = layers.Layer(name="holder")
    layer.parts = [loaded.variables[0], loaded]
    with pytest.raises(regraft.CopyError) as error:
        regraft.clone(layer)
    text = str(error.value)
    assert "A part of a SavedModel was met before the SavedModel itself." in text
    assert "where: holder.parts" in text
    assert regraft.clone(layer, keep=(loaded, loaded.variables[0])).parts[1] is loaded

"""What a model keeps that is called anew: class, attributes, training, paths."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import clone_model

from .networks import (
    Scale,
    Tagged,
    X,
    again,
    assert_independent,
    assert_same_network,
    call,
    mlp,
    numbers,
    sequential,
    shared,
    two_inputs,
)

REPLAYS = [
    {"clone_function": again},
    {"call_function": call},
    {"input_tensors": "own"},
]


def replay(model, arguments):
    if "input_tensors" in arguments:
        arguments = {"input_tensors": model.inputs}
    return clone_model(model, **arguments)


@pytest.mark.parametrize("arguments", REPLAYS, ids=["clone", "call", "inputs"])
def test_class_and_attributes_of_a_functional_subclass(arguments):
    model = Tagged(5, tag=["note"])
    model.trainable = False
    new = replay(model, arguments)
    assert type(new) is Tagged
    assert not new.trainable
    assert new.tag == ["note"]
    assert new.tag is not model.tag
    assert new.head is new.get_layer("head")
    assert new.features is new.get_layer("features").output
    assert new.spare is not model.spare
    assert len(new.weights) == len(model.weights)
    assert new.extractor.layers[-1] is new.get_layer("features")
    assert_same_network(model, new, X)
    assert_same_network(model.extractor, new.extractor, X)


@pytest.mark.parametrize("arguments", REPLAYS, ids=["clone", "call", "inputs"])
@pytest.mark.parametrize("build", [mlp, sequential])
def test_compile_configuration(build, arguments):
    def loss(y, p):
        return ops.mean(ops.abs(y - p))

    model = build()
    optimizer = keras.optimizers.Adam(0.25)
    model.compile(optimizer, loss, metrics=["mae"], run_eagerly=True)
    model.train_on_batch(X, np.ones((2, 2)))
    new = replay(model, arguments)
    assert new.compiled
    assert new.run_eagerly
    assert new.optimizer is not optimizer
    assert int(new.optimizer.iterations) == 0
    assert float(new.optimizer.learning_rate) == 0.25
    assert [v.shape for v in new.optimizer.variables] == [
        v.shape for v in optimizer.variables
    ]
    before = numbers(new.weights)
    new.train_on_batch(X, np.ones((2, 2)))
    assert not np.array_equal(numbers(new.weights)[0], before[0])
    assert int(new.optimizer.iterations) == 1
    assert int(optimizer.iterations) == 1


def test_an_optimizer_learns_about_inserted_weights():
    model = mlp()
    model.compile("adam", "mse")
    model.train_on_batch(X, np.ones((2, 2)))

    def norm(layer, x):
        out = layer(x)
        is_hidden = layer.name == "hidden"
        return layers.BatchNormalization(name="norm")(out) if is_hidden else out

    new = clone_model(model, call_function=norm)
    order = [w.path.split("/")[-2] for w in new.weights]
    assert order == ["hidden"] * 2 + ["norm"] * 4 + ["head"] * 2
    new.train_on_batch(X, np.ones((2, 2)))
    assert int(new.optimizer.iterations) == 1


@pytest.mark.parametrize("arguments", REPLAYS, ids=["clone", "call", "inputs"])
@pytest.mark.parametrize("build", [mlp, shared, two_inputs, sequential])
def test_a_replayed_model_can_be_saved(build, arguments, tmp_path):
    model = build()
    new = replay(model, arguments)
    new.save(tmp_path / "new.keras")
    loaded = keras.saving.load_model(tmp_path / "new.keras")
    x = [X, X] if len(model.inputs) == 2 else X
    assert_same_network(new, loaded, x)


def test_a_sequential_that_grew_layer_by_layer():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.add(layers.Dense(5))
    model.pop()
    model.add(layers.Dense(2))
    for arguments in REPLAYS:
        new = replay(model, arguments)
        assert_same_network(model, new, X)
        new.add(layers.Dense(6))
        assert new(X).shape == (2, 6)


def test_a_layer_without_a_configuration():
    model = keras.Sequential([keras.Input((4,)), Scale(2.0, lambda x: x + 1.0)])
    new = clone_model(model, input_tensors=keras.Input((4,)))
    assert_independent(model, new)
    assert_same_network(model, new, X)


def nested_sequence():
    inner = keras.Sequential([layers.Dense(4, name="i")], name="inner")
    parts = [keras.Input((4,)), inner, layers.Dense(2, name="e")]
    return keras.Sequential(parts, name="outer")


@pytest.mark.parametrize("build", [mlp, sequential, nested_sequence])
def test_new_layers_have_the_paths_of_the_old_ones(build):
    model = build()
    new = clone_model(model, clone_function=again, recursive=True)
    assert [v.path for v in new.weights] == [v.path for v in model.weights]


def test_an_unbuilt_sequence_on_a_tensor_has_the_paths_that_it_builds():
    def model():
        return keras.Sequential([layers.Dense(2, name="d")], name="unbuilt")

    built = model()
    built.build((None, 3))
    new = clone_model(model(), input_tensors=keras.Input((3,)))
    assert [v.path for v in new.weights] == [v.path for v in built.weights]

"""What Keras's own tests of `multi_gpu_model` described, and what failed then."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft

from .devices import BACKEND, HAS_GPU
from .models import BUILDERS, ROWS, TABLE, VALUES

TWO = ["cpu:0", "cpu:0"] if BACKEND == "torch" else ["cpu:0", "cpu:1"]
THREE = ["cpu:0"] * 3 if BACKEND == "torch" else ["cpu:0", "cpu:1", "cpu:2"]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}  # A product of matrices in other pieces.

without_gpu = pytest.mark.skipif(HAS_GPU, reason="a machine without GPUs")


@pytest.mark.parametrize(
    ("name", "cpu_merge", "cpu_relocation"),
    [
        ("origin", True, False),
        ("origin", False, True),
        ("sequential", True, False),
        ("several", False, True),
        ("masked_lstm", False, True),
    ],
)
def test_weights_and_outputs_are_kept(name, cpu_merge, cpu_relocation):
    build, x, y = BUILDERS[name]
    model = build()
    model.fit(x, y, verbose=0)
    many = regraft.multi_gpu_model(
        model, TWO, cpu_merge=cpu_merge, cpu_relocation=cpu_relocation
    )
    regraft.verify(model, regraft.gather(many)).raise_if_different()
    mine, other = (m.predict(x, verbose=0) for m in (model, many))
    keras.tree.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, **CLOSE), mine, other
    )


@pytest.mark.parametrize("rows", [7, 2, 1])
def test_any_number_of_rows_over_three_devices(rows):
    build, x, _ = BUILDERS["sequential"]
    model = build()
    many = regraft.multi_gpu_model(model, THREE)
    mine, other = (m.predict(x[:rows], verbose=0) for m in (model, many))
    assert other.shape == (rows, 2)
    np.testing.assert_allclose(mine, other, **CLOSE)


def test_siamese_branches_share_their_weights():
    encoder = keras.Sequential([keras.Input((5,)), layers.Dense(3, activation="tanh")])
    a, b = keras.Input((5,)), keras.Input((5,))
    distance = layers.Dense(1)(layers.Subtract()([encoder(a), encoder(b)]))
    model = keras.Model([a, b], distance)
    model.compile("sgd", "mse")
    one, many = regraft.clone(model), regraft.multi_gpu_model(model, TWO)
    for trained in (one, many):
        trained.fit([TABLE, TABLE[::-1]], VALUES[:, :1], verbose=0, shuffle=False)
    back = regraft.gather(many)
    assert len(back.trainable_weights) == 4
    for left, right in zip(one.weights, back.weights, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), **CLOSE)


def test_batch_statistics_are_those_of_the_whole_batch():
    x = keras.Input((5,))
    model = keras.Model(x, layers.BatchNormalization(momentum=0.5)(x))
    model.compile("sgd", "mse")
    rows = np.concatenate([np.zeros((4, 5)), np.ones((4, 5))]).astype("float32")
    many = regraft.multi_gpu_model(model, TWO)
    many.train_on_batch(rows, rows)
    norm = regraft.gather(many).layers[-1]
    np.testing.assert_allclose(norm.moving_mean.numpy(), np.full(5, 0.25), **CLOSE)
    np.testing.assert_allclose(norm.moving_variance.numpy(), np.full(5, 0.625), **CLOSE)


def test_it_is_saved_and_loaded_as_the_plain_model(tmp_path):
    build, x, y = BUILDERS["sequential"]
    many = regraft.multi_gpu_model(build(), TWO, cpu_relocation=True)
    many.fit(x, y, verbose=0)
    many.template.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert type(loaded) is keras.Sequential
    mine, other = (m.predict(x, batch_size=ROWS, verbose=0) for m in (loaded, many))
    np.testing.assert_allclose(mine, other, **CLOSE)


def test_an_output_that_is_named_twice():
    x = keras.Input((5,))
    dense = layers.Dense(2, name="same")
    model = keras.Model(x, [dense(x), dense(x * 2.0)])
    many = regraft.multi_gpu_model(model, TWO)
    assert many.output_names == model.output_names
    for left, right in zip(model.predict(TABLE), many.predict(TABLE), strict=True):
        np.testing.assert_allclose(left, right, **CLOSE)


@pytest.mark.parametrize("gpus", [1, [0], ["cpu:0"], []])
def test_fewer_than_two_devices_are_refused(gpus):
    model = BUILDERS["sequential"][0]()
    with pytest.raises(ValueError, match="needs two devices or more") as error:
        regraft.multi_gpu_model(model, gpus)
    assert "cpu:0" in str(error.value)


@without_gpu
@pytest.mark.parametrize("gpus", [None, 0])
def test_all_gpus_of_a_machine_that_has_none_are_refused(gpus):
    model = BUILDERS["sequential"][0]()
    with pytest.raises(ValueError, match="needs two devices or more"):
        regraft.multi_gpu_model(model, gpus)


@without_gpu
@pytest.mark.parametrize("gpus", [2, 8, [0, 1], ["gpu:0", "gpu:9"]])
def test_devices_that_are_not_there_are_refused_with_those_that_are(gpus):
    model = BUILDERS["sequential"][0]()
    with pytest.raises(ValueError, match="There is no device 'gpu:0'") as error:
        regraft.multi_gpu_model(model, gpus)
    assert "where: argument `gpus`" in str(error.value)
    assert "cpu:0" in str(error.value)

"""Data of every kind, options of `compile`, losses and state inside layers."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft

from .devices import BACKEND, some_devices
from .models import BUILDERS, TABLE, VALUES
from .test_training import FLOAT32, assert_close, numbers

BUILD = BUILDERS["sequential"][0]


def both(model, count=2):
    return regraft.clone(model), regraft.replicate(model, some_devices(count))


def assert_trained_alike(one, many, data=lambda: (TABLE, VALUES), **kwargs):
    mine, other = (m.fit(*data(), verbose=0, **kwargs).history for m in (one, many))
    assert_close(mine, other)
    assert_close(numbers(one), numbers(regraft.gather(many)))


@pytest.mark.parametrize(
    "options",
    [
        {"steps_per_execution": 2},
        {"run_eagerly": True},
        {"jit_compile": False},
        {"loss": "mae", "weighted_metrics": ["mse"]},
    ],
    ids=str,
)
def test_options_of_compile(options):
    if BACKEND == "torch" and "steps_per_execution" in options:
        pytest.skip("Keras knows one step only on torch")
    model = BUILD()
    model.compile(**{"optimizer": "sgd", "loss": "mse", **options})
    assert_trained_alike(*both(model), batch_size=4, shuffle=False)


def test_a_tf_dataset():
    tf = pytest.importorskip("tensorflow")
    data = tf.data.Dataset.from_tensor_slices((TABLE, VALUES)).batch(7)
    assert_trained_alike(*both(BUILD()), lambda: (data,))


def test_a_generator():
    def rows():
        for i in range(0, len(TABLE), 7):
            yield TABLE[i : i + 7], VALUES[i : i + 7]

    assert_trained_alike(*both(BUILD()), lambda: (rows(),))


class Sevens(keras.utils.PyDataset):
    def __len__(self):
        return 5

    def __getitem__(self, i):
        return TABLE[i * 7 : i * 7 + 7], VALUES[i * 7 : i * 7 + 7]


def test_a_dataset_of_keras():
    assert_trained_alike(*both(BUILD()), lambda: (Sevens(),), shuffle=False)


def test_class_weights():
    build, x, y = BUILDERS["cnn"]
    assert_trained_alike(
        *both(build()),
        lambda: (x, y),
        batch_size=8,
        shuffle=False,
        class_weight={0: 0.5, 1: 1.0, 2: 3.0},
    )


def test_validation_data():
    assert_trained_alike(
        *both(BUILD()),
        batch_size=8,
        shuffle=False,
        validation_data=(TABLE[:9], VALUES[:9]),
    )


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no sparse tensors on torch")
def test_sparse_inputs():
    sparse = pytest.importorskip("scipy.sparse")
    x = keras.Input((5,), sparse=True)
    model = keras.Model(x, layers.Dense(2)(x))
    model.compile("sgd", "mse")
    rows = sparse.random(30, 5, 0.4, format="csr", random_state=0).astype("float32")
    one, many = both(model)
    assert_trained_alike(one, many, lambda: (rows, VALUES), batch_size=8, shuffle=False)


def test_losses_that_layers_add():
    x = keras.Input((5,))
    h = layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l2")(x)
    model = keras.Model(x, layers.Dense(2)(h))
    model.compile("sgd", "mse", metrics=["mae"])
    assert_trained_alike(*both(model), batch_size=8, shuffle=False)


def test_the_ways_to_run_a_model():
    one, many = both(BUILD())
    for batch in (TABLE[:4], TABLE[:3]):
        for call in ("predict_on_batch", "__call__"):
            mine, other = (
                keras.ops.convert_to_numpy(getattr(m, call)(batch)) for m in (one, many)
            )
            np.testing.assert_allclose(mine, other, **FLOAT32)
        targets = VALUES[: len(batch)]
        mine, other = (m.test_on_batch(batch, targets) for m in (one, many))
        np.testing.assert_allclose(mine, other, **FLOAT32)
    many.set_weights([w * 0 for w in many.get_weights()])
    assert not many.predict(TABLE, verbose=0).any()


def test_weights_are_saved_and_loaded_alone(tmp_path):
    one, many = both(BUILD())
    many.set_weights([w + 1 for w in many.get_weights()])
    many.save_weights(tmp_path / "w.weights.h5")
    one.load_weights(tmp_path / "w.weights.h5")
    assert_close(numbers(one), numbers(regraft.gather(many)))


def test_frozen_layers_stay_frozen():
    model = BUILD()
    model.layers[0].trainable = False
    model.compile("sgd", "mse")
    one, many = both(model)
    assert_trained_alike(one, many, batch_size=8, shuffle=False)
    assert not regraft.gather(many).layers[0].trainable


def test_it_can_be_a_part_of_another_model():
    _, many = both(BUILD())
    x = keras.Input((5,))
    outer = keras.Model(x, many(x) * 2.0)
    expected = 2 * regraft.gather(many).predict(TABLE, verbose=0)
    np.testing.assert_allclose(outer.predict(TABLE, verbose=0), expected, **FLOAT32)


class Centred(layers.Layer):
    """Looks at all rows of a batch."""

    def call(self, x):
        return x - keras.ops.mean(x, axis=0, keepdims=True)


def test_a_layer_that_mixes_rows_is_right_or_refused():
    x = keras.Input((5,))
    small = layers.Dense(2, kernel_initializer=keras.initializers.RandomNormal(0.01))
    model = keras.Model(x, small(Centred()(x)), name="mixing")
    model.compile("sgd", "mse")
    one, many = both(model)
    if BACKEND == "jax":
        assert_trained_alike(one, many, batch_size=8, shuffle=False)
        return
    runs = [lambda: many.fit(TABLE, VALUES), lambda: many.predict(TABLE)]
    if BACKEND == "torch":  # Where a mere call is split, too.
        runs.append(lambda: many(TABLE))
    for run in runs:
        with pytest.raises(regraft.UsageError) as error:
            run()
        text = str(error.value)
        assert "The model mixes the rows of a batch" in text
        assert "where: mixing" in text
        assert "replicate it on JAX" in text

"""Under a distribution scope a clone has the layout of its original."""

import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from keras import layers

import regraft

BACKEND = keras.backend.backend()


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution runs on JAX")
def test_a_sharded_model_keeps_its_shards():
    distribution = keras.distribution
    mesh = distribution.DeviceMesh((2, 2), ("batch", "model"))
    layout = distribution.LayoutMap(mesh)
    layout[".*kernel"] = (None, "model")
    parallel = distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    with parallel.scope():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.Dense(2)])
        model.compile("adam", "mse")
        x, y = np.ones((4, 4), "float32"), np.ones((4, 2), "float32")
        model.fit(x, y, verbose=0)
        copy = regraft.clone(model)
        pairs = list(
            zip(
                model.variables + model.optimizer.variables,
                copy.variables + copy.optimizer.variables,
                strict=True,
            )
        )
        for old, new in pairs:
            assert new.value.sharding == old.value.sharding
            np.testing.assert_array_equal(old.numpy(), new.numpy())
        assert not pairs[0][1].value.sharding.is_fully_replicated
        assert list(regraft.diff(model, copy, inputs=False)) == []
        copy.fit(x, y, verbose=0)


MIRRORED = """
import keras
import numpy as np
import tensorflow as tf
from keras import layers
import regraft

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
    model.compile("adam", "mse", jit_compile=False)
x, y = np.ones((4, 4), "float32"), np.ones((4, 2), "float32")
model.fit(x, y, verbose=0)
copy = regraft.clone(model)
for old, new in zip(
    model.variables + model.optimizer.variables,
    copy.variables + copy.optimizer.variables,
    strict=True,
):
    assert type(new.value) is type(old.value), (type(old.value), type(new.value))
    assert new.value is not old.value
    assert len(new.value.values) == 2
    assert np.array_equal(old.numpy(), new.numpy())
for trained in (model, copy):
    trained.fit(x, y, verbose=0, shuffle=False)
for old, new in zip(model.variables, copy.variables, strict=True):
    assert np.array_equal(old.numpy(), new.numpy())
print("mirrored", type(new.value).__name__)
"""


@pytest.mark.skipif(BACKEND != "tensorflow", reason="a strategy of TensorFlow")
def test_a_mirrored_model_stays_mirrored():
    # In a process of its own: logical devices are set up before anything else.
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MIRRORED)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "mirrored Mirrored" in result.stdout


@pytest.mark.skipif(BACKEND != "torch", reason="devices of torch")
def test_a_tensor_stays_on_its_device():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    copy = regraft.clone(model)
    for old, new in zip(model.weights, copy.weights, strict=True):
        assert new.value.device == old.value.device
        assert new.value.requires_grad == old.value.requires_grad

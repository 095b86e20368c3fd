"""Under a distribution scope a clone has the layout of its original."""

import subprocess
import sys

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


def in_a_process(script, devices=2):
    """Runs a script with logical devices, which are set up before anything else."""
    result = subprocess.run(
        [sys.executable, "-c", LOGICAL_DEVICES.format(devices=devices) + script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


LOGICAL_DEVICES = """
import keras
import numpy as np
import tensorflow as tf
from keras import layers
import regraft

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * {devices}
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy([f"CPU:{{i}}" for i in range({devices})])
X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")


def held(variable):
    return [replica.numpy() for replica in variable.value.values]


def everything(model):
    return [*model.variables, *model.optimizer.variables]


def trained(*extra, **options):
    model = keras.Sequential([keras.Input((4,)), *extra, layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False, **options)
    model.fit(X, X[:, :1], batch_size=8, shuffle=False, verbose=0)
    return model
"""

on_tensorflow = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="a strategy of TensorFlow"
)

MIRRORED = """
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


@on_tensorflow
def test_a_mirrored_model_stays_mirrored():
    assert "mirrored Mirrored" in in_a_process(MIRRORED)


COUNTS = """
with strategy.scope():
    model = trained(metrics=["mae"])
copy = regraft.clone(model)
before, after = model.get_metrics_result(), copy.get_metrics_result()
assert before == after, (before, after)
for old, new in zip(model.metrics_variables, copy.metrics_variables, strict=True):
    assert type(new.value) is type(old.value)
    assert held(old) == held(new), (held(old), held(new))
    assert new.value.aggregation == old.value.aggregation
gathered = regraft.clone(model, device="cpu:1")
assert gathered.get_metrics_result() == before
print("counted", type(new.value).__name__)
"""


@on_tensorflow
def test_what_each_replica_has_counted_is_not_added_up_by_a_clone():
    assert "counted SyncOnRead" in in_a_process(COUNTS)


STATISTICS = """
with strategy.scope():
    model = trained(layers.BatchNormalization())
means = held(model.layers[0].moving_mean)
assert not np.array_equal(*means)
copy = regraft.clone(model)
for old, new in zip(model.variables, copy.variables, strict=True):
    assert np.array_equal(held(old), held(new)), old.path
expected = model.predict(X, batch_size=8, verbose=0)
assert np.array_equal(copy.predict(X, batch_size=8, verbose=0), expected)
small = regraft.clone(model, dtype="bfloat16")
wanted = [mean.astype(small.layers[0].moving_mean.numpy().dtype) for mean in means]
assert np.array_equal(held(small.layers[0].moving_mean), wanted)
print("replica by replica")
"""


@on_tensorflow
def test_each_replica_of_a_clone_has_the_statistics_of_its_own():
    assert "replica by replica" in in_a_process(STATISTICS)


IN_A_SCOPE = """
model = trained()
with strategy.scope():
    first = regraft.clone(model)  # The first of all, of which others are made.
copy = regraft.clone(model)
for new in (first, copy):
    new.set_weights(model.get_weights())
    for old, twin in zip(model.variables, new.variables, strict=True):
        assert type(old.value) is type(twin.value)
with strategy.scope():
    mixed = regraft.clone(model, dtype="mixed_float16")
    small = regraft.clone(model, dtype="bfloat16")
    fresh = regraft.clone(model, compiled="fresh")
    drawn = regraft.clone(model, weights="fresh")
for new in (mixed, small, fresh, drawn):
    for variable in everything(new):
        assert type(variable.value) is type(model.variables[0].value), variable.path
    new.fit(X, X[:, :1], verbose=0)
assert not tf.distribute.has_strategy()
print("plain")
"""


@on_tensorflow
@pytest.mark.parametrize("devices", [1, 2])
def test_a_plain_model_stays_plain_in_the_scope_of_a_strategy(devices):
    assert "plain" in in_a_process(IN_A_SCOPE, devices)


ANEW = """
with strategy.scope():
    model = trained(metrics=["mae"])
other = tf.distribute.MirroredStrategy(["CPU:1"])


def clones():
    yield regraft.clone(model, compiled="fresh")
    yield regraft.clone(model, weights="fresh", seed=3)
    yield regraft.clone(model, dtype="mixed_float16")


with strategy.scope():
    inside = list(clones())
drawn = []
for new in [*clones(), *inside]:
    for variable in everything(new):
        assert variable.value.distribute_strategy is strategy, variable.path
    drawn.append(held(new.layers[0].kernel))
    assert np.array_equal(*drawn[-1])
    new.fit(X, X[:, :1], batch_size=8, verbose=0)
assert np.array_equal(drawn[1], drawn[4])
with other.scope():
    elsewhere = regraft.clone(model, compiled="fresh")
    gathered = regraft.clone(model, device="cpu:0")
assert elsewhere.optimizer.variables[-1].value.distribute_strategy is strategy
gathered.fit(X, X[:, :1], verbose=0)
print("mirrored anew")
"""


@on_tensorflow
def test_optimizers_start_anew_under_their_strategy():
    assert "mirrored anew" in in_a_process(ANEW)


COMPARED = """
with strategy.scope():
    model = trained(layers.BatchNormalization(), metrics=["mae"])
copy = regraft.clone(model)
regraft.verify(model, copy).raise_if_different()
copy.layers[0].moving_mean.value.values[1].assign_add(np.ones(4, "float32"))
copy.metrics[0].total.value.values[1].assign_add(1)
found = [str(difference) for difference in regraft.diff(model, copy, inputs=False)]
assert len(found) == 2, found
assert "moving_mean.<replica 1>: 4 of 4 numbers, by up to 1" in found[0], found
assert "total.<replica 1>: 1 of 1 numbers, by up to 1" in found[1], found
called = [str(difference) for difference in regraft.diff(model, copy)]
assert len(called) > 2, called
gathered = regraft.clone(model, device="cpu:0")
apart = [difference.why for difference in regraft.diff(model, gathered, inputs=False)]
assert set(apart) == {"class", "device or sharding"}, apart
print("compared")
"""


@on_tensorflow
def test_mirrored_models_are_compared_replica_by_replica():
    assert "compared" in in_a_process(COMPARED)


@pytest.mark.skipif(BACKEND != "torch", reason="devices of torch")
def test_a_tensor_stays_on_its_device():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    copy = regraft.clone(model)
    for old, new in zip(model.weights, copy.weights, strict=True):
        assert new.value.device == old.value.device
        assert new.value.requires_grad == old.value.requires_grad

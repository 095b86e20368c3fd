"""Copies that lie elsewhere: on another device, or laid out over a mesh."""

import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest
from keras import layers

import regraft

BACKEND = keras.backend.backend()
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution runs on JAX")


def trained():
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8, activation="relu", name="wide"),
            layers.BatchNormalization(),
            layers.Dropout(0.2, seed=1),
            layers.Dense(2, name="narrow"),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"])
    step(model)
    return model


def step(model):
    x = np.arange(32, dtype="float32").reshape(8, 4) / 32
    return model.train_on_batch(x, x[:, :2])


def state_of(model):
    variables = [*model.variables, *model.optimizer.variables]
    return {v.path: np.asarray(keras.ops.convert_to_numpy(v)) for v in variables}


def assert_same_state(left, right):
    left, right = state_of(left), state_of(right)
    assert left.keys() == right.keys()
    for path, value in left.items():
        np.testing.assert_array_equal(value, right[path], err_msg=path)


def test_on_its_own_device_a_placed_copy_is_an_exact_copy():
    model = trained()
    copy = regraft.clone(model, device="cpu:0")
    assert_same_state(model, copy)
    assert step(model) == step(copy)
    assert_same_state(model, copy)


@pytest.mark.parametrize("name", ["cpu", "CPU:0", "/CPU:0", "/device:cpu:0"])
def test_a_device_has_many_names(name):
    model = trained()
    assert_same_state(model, regraft.clone(model, device=name))


def test_a_device_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(regraft.UsageError, match=r"(?s)no device 'tpu:7'.*cpu:0"):
        regraft.clone(trained(), device="tpu:7")


def test_shared_weights_cannot_lie_elsewhere():
    with pytest.raises(regraft.UsageError, match="Shared weights cannot lie in two"):
        regraft.clone(trained(), device="cpu:0", weights="share")


def test_fresh_weights_are_drawn_as_ever():
    model = trained()
    here = regraft.clone(model, weights="fresh", seed=5)
    there = regraft.clone(model, weights="fresh", seed=5, device="cpu:0")
    assert_same_state(here, there)


@on_jax
def test_a_copy_on_another_device_computes_there():
    import jax

    model = trained()
    copy = regraft.clone(model, device="cpu:2")
    assert {d for v in copy.variables for d in v.value.devices()} == {jax.devices()[2]}
    assert_same_state(model, copy)
    np.testing.assert_array_equal(step(model), step(copy))
    assert_same_state(model, copy)
    assert {d for v in copy.variables for d in v.value.devices()} == {jax.devices()[2]}
    back = regraft.clone(copy, device=jax.devices()[0])
    assert back.variables[0].value.devices() == {jax.devices()[0]}
    assert_same_state(model, back)


LOGICAL = """
import sys
sys.path.insert(0, {tests!r})
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
import regraft
from test_placement import assert_same_state, step, trained
model = trained()
copy = regraft.clone(model, device="cpu:1")
assert all(v.value.device.endswith("CPU:1") for v in copy.variables)
assert all(v.value.device.endswith("CPU:0") for v in model.variables)
assert_same_state(model, copy)
assert step(model) == step(copy)
assert_same_state(model, copy)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    mirrored = trained()
gathered = regraft.clone(mirrored, device="cpu:0")
assert_same_state(mirrored, gathered)
assert type(gathered.variables[0].value) is type(model.variables[0].value)
print("placed")
"""


@pytest.mark.skipif(BACKEND != "tensorflow", reason="logical devices of TensorFlow")
def test_a_copy_on_a_logical_device():
    import pathlib

    tests = str(pathlib.Path(__file__).parent)
    script = textwrap.dedent(LOGICAL.format(tests=tests))
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert run.stdout.strip() == "placed", run.stderr[-3000:]


def model_parallel(kernel=(None, "model")):
    distribution = keras.distribution
    mesh = distribution.DeviceMesh((2, 2), ("batch", "model"))
    layout = distribution.LayoutMap(mesh)
    layout[".*wide/kernel"] = kernel
    return distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


@on_jax
def test_a_model_is_laid_out_over_a_mesh_with_its_optimizer_and_brought_back():
    model = trained()
    parallel = model_parallel()
    spread = regraft.clone(model, distribution=parallel)
    assert_same_state(model, spread)
    kernel = spread.get_layer("wide").kernel
    assert kernel.value.addressable_shards[0].data.shape == (4, 4)
    slots = [v for v in spread.optimizer.variables if "wide_kernel" in v.path]
    assert len(slots) == 2
    for slot in slots:
        assert slot.value.sharding == kernel.value.sharding
    assert spread.get_layer("narrow").kernel.value.sharding.is_fully_replicated
    back = regraft.clone(spread, device="cpu:0")
    assert back.get_layer("wide").kernel.value.sharding.num_devices == 1
    regraft.verify(model, back, inputs=False).raise_if_different()

    with parallel.scope():
        there = step(spread)
    # The products over the split axis are summed in another order.
    np.testing.assert_allclose(there, step(model), rtol=1e-5)
    assert kernel.value.addressable_shards[0].data.shape == (4, 4)


@on_jax
def test_data_parallel_replicates_every_variable():
    spread = regraft.clone(trained(), distribution=keras.distribution.DataParallel())
    for variable in [*spread.variables, *spread.optimizer.variables]:
        assert variable.value.sharding.is_fully_replicated
        assert variable.value.sharding.num_devices == 4


@on_jax
def test_a_layout_that_does_not_divide_is_refused_with_path_shape_and_mesh():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="wide")])
    with pytest.raises(regraft.UsageError) as error:
        regraft.clone(model, distribution=model_parallel())
    text = str(error.value)
    for part in ("wide/kernel", "(4, 3)", "'model': 2", "LayoutMap"):
        assert part in text


def test_a_distribution_of_another_kind_is_refused():
    with pytest.raises(regraft.UsageError, match="must be a Keras distribution"):
        regraft.clone(trained(), distribution="data")


@on_jax
def test_one_place_only():
    with pytest.raises(regraft.UsageError, match="one device or on a mesh"):
        regraft.clone(trained(), device="cpu", distribution=model_parallel())


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has layouts")
def test_only_jax_has_layouts():
    class Odd(regraft._keras.Distribution):
        def __init__(self):
            pass

    with pytest.raises(regraft.UsageError, match="Only the JAX backend"):
        regraft.clone(trained(), distribution=Odd())

"""From one layout over a mesh to another: shard by shard, never all on one device."""

import gc
import itertools
import sys

import keras
import numpy as np
import pytest
from keras import layers

import regraft

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX")

SIDE = 64
WHOLE = SIDE * SIDE * 4  # The bytes of a kernel.
MAKING_ARRAYS = {
    "_array_shard_arg",
    "_put",
    "batched_device_put",
    "copy_values",
    "device_put",
    "laid_out",
    "make_array_from_callback",
    "shard_args",
    "shard_at",
    "shard_device_array",
    "shard_sharded_device_array_slow_path",
}


@pytest.fixture
def most(monkeypatch):
    """The most bytes of new arrays that lay at once on each device but the first.

    Looked at whenever a function that makes arrays returns. The largest array that was
    read as numbers is noted for the host.
    """
    import jax
    from jax._src.array import ArrayImpl

    found = {"host": 0}

    def buffers():
        shards = [
            shard
            for array in jax.live_arrays()
            if not array.is_deleted()
            for shard in array.addressable_shards
            if shard.device.id
        ]
        return {
            (shard.device.id, shard.data.unsafe_buffer_pointer()): shard.data.nbytes
            for shard in shards
        }

    def look(frame, event, _):
        if event != "return" or frame.f_code.co_name not in MAKING_ARRAYS:
            return
        sys.setprofile(None)
        now = dict.fromkeys((1, 2, 3), 0)
        live = buffers()
        before.intersection_update(live)  # What is freed may be given out anew.
        for (device, pointer), size in live.items():
            if (device, pointer) not in before:
                now[device] += size
        for device, size in now.items():
            found[device] = max(found.get(device, 0), size)
        sys.setprofile(look)

    read = ArrayImpl._value

    def reading(array):
        found["host"] = max(found["host"], array.nbytes)
        return read.fget(array)

    def watched(call):
        gc.collect()
        before.clear()
        before.update(buffers())
        found.clear()
        found["host"] = 0
        sys.setprofile(look)
        try:
            return call()
        finally:
            sys.setprofile(None)

    before = set()
    monkeypatch.setattr(ArrayImpl, "_value", property(reading))
    watched.found = found
    return watched


def over(shape, *axes):
    distribution = keras.distribution
    mesh = distribution.DeviceMesh(shape, ("batch", "model"))
    layout = distribution.LayoutMap(mesh)
    layout[".*kernel"] = axes
    return distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


@pytest.mark.parametrize("large", [2**26, 1], ids=["through the host", "exchanged"])
def test_no_device_gets_the_whole_of_a_variable(most, large, monkeypatch):
    from regraft._backends import _jax_relayout

    monkeypatch.setattr(_jax_relayout, "LARGE", large)
    model = keras.Sequential(
        [keras.Input((SIDE,)), layers.Dense(SIDE, use_bias=False, name="wide")]
    )
    model.compile(keras.optimizers.SGD(momentum=0.9), "mse")
    x = np.ones((4, SIDE), "float32")
    model.train_on_batch(x, x)
    expected = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    for layout in (
        over((1, 4), None, "model"),
        over((1, 4), "model", None),
        over((2, 2), "batch", "model"),
        over((4, 1), None, "batch"),
    ):
        copy = most(lambda m=model, d=layout: regraft.clone(m, distribution=d))
        # A quarter of the kernel and of its momentum, and as much on its way.
        share = 2 * WHOLE // 4
        assert set(most.found) == {"host", 1, 2, 3}
        for place in (1, 2, 3):
            assert share <= most.found[place] <= share + WHOLE // 4 + 64
        assert most.found["host"] <= WHOLE // 4
        model = copy
    back = most(lambda: regraft.clone(model, device="cpu:0"))
    assert max(most.found.values()) <= WHOLE // 4
    found = [*back.variables, *back.optimizer.variables]
    for value, variable in zip(expected, found, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, err_msg=variable.path)


def test_from_any_layout_to_any_other(monkeypatch):
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    from regraft._backends import _jax_relayout
    from regraft._backends.jax import _put, buffers

    devices = np.array(jax.devices())
    square, turned = (
        Mesh(d.reshape(2, 2), ("b", "m")) for d in (devices, devices[::-1])
    )
    shardings = [
        SingleDeviceSharding(devices[3]),
        NamedSharding(Mesh(devices[2:], ("m",)), PartitionSpec(None, "m")),
        NamedSharding(turned, PartitionSpec("b", "m")),
        *(
            NamedSharding(square, PartitionSpec(*axes))
            for axes in ((), (None, "m"), ("b",), ("m", "b"), (("b", "m"),))
        ),
    ]
    numbers = np.arange(32, dtype="float32").reshape(4, 8)
    gathers = 0
    for large in (2**26, 1):
        monkeypatch.setattr(_jax_relayout, "LARGE", large)
        for source, target in itertools.product(shardings, repeat=2):
            old = jax.device_put(numbers, source)
            [new] = _put([old], [target])
            assert new.sharding == target
            assert not buffers(old) & buffers(new)
            np.testing.assert_array_equal(new, numbers)
            if large == 1 and _jax_relayout.is_needed(old, target):
                same = source._device_assignment == target._device_assignment
                program = same and _jax_relayout._exchange(old.aval, source, target)
                gathers += program is None
    assert gathers  # XLA would gather for some pairs; these go through the host.

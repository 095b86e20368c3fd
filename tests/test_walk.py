"""The walk: depth, refusals and memory."""

import gc
import socket
import sys
import threading
import weakref

import keras
import numpy as np
import pytest
from holding import Holder
from keras import layers

import regraft

# --- depth -------------------------------------------------------------------


def in_a_deep_thread(function):
    """Keras recurses while it builds; only that part gets a deep stack."""
    result = []

    def run():
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(1_000_000)
        try:
            result.append(function())
        finally:
            sys.setrecursionlimit(limit)

    threading.stack_size(512 * 1024 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    return result[0]


def chain(length):
    """Wires a chain by hand: Keras's own check of a graph takes quadratic time."""
    inputs = keras.Input((2,))
    tensor = inputs
    for i in range(length):
        tensor = layers.Activation("linear", name=f"layer_{i}")(tensor)
    return inputs, tensor


def test_a_chain_of_10000_layers():
    inputs, output = chain(10_000)
    # A list of tensors reaches the whole chain through their histories.
    holder = Holder([inputs, output])
    limit = sys.getrecursionlimit()
    copy = regraft.clone(holder)
    assert sys.getrecursionlimit() == limit
    tensor, depth = copy.value[1], 0
    while not isinstance(tensor._keras_history.operation, layers.InputLayer):
        operation = tensor._keras_history.operation
        tensor = operation._inbound_nodes[0].input_tensors[0]
        depth += 1
    assert depth == 10_000
    assert tensor is copy.value[0]
    assert tensor is not inputs


def test_a_functional_chain_beyond_the_recursion_limit():
    model = in_a_deep_thread(lambda: keras.Model(*chain(1_500)))
    copy = regraft.clone(model)
    assert len(copy.layers) == 1_501
    x = np.ones((1, 2), "float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(copy(x)), x)


@pytest.mark.parametrize("container", ["list", "tuple", "dict"])
def test_containers_nested_10000_deep(container):
    nest = {
        "list": lambda inner: [inner],
        "tuple": lambda inner: (inner, [0]),
        "dict": lambda inner: {"inner": inner},
    }[container]
    value = nest(None)
    for _ in range(10_000):
        value = nest(value)
    layer = Holder()
    object.__setattr__(layer, "value", value)
    copy = regraft.clone(layer).value
    for _ in range(10_000):
        assert copy is not value
        copy, value = next(iter(_items(copy))), next(iter(_items(value)))


def _items(container):
    return container.values() if isinstance(container, dict) else container


# --- refusals ----------------------------------------------------------------


def generator():
    yield 1


REFUSED = {
    "file": lambda: open(__file__),  # noqa: SIM115
    "lock": threading.Lock,
    "socket": socket.socket,
    "generator": generator,
    "thread local": threading.local,
    "memory view": lambda: memoryview(bytearray(2)),
    "iterator over a generator": lambda: map(str, generator()),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_copied_is_refused_with_path_and_remedy(kind):
    resource = REFUSED[kind]()
    model = keras.Sequential([keras.Input((2,)), layers.Dense(2)], name="net")
    extra = {"things": [Holder(resource, name="holder")]}
    object.__setattr__(model.layers[0], "extra", extra)
    before = [w.numpy() for w in model.weights]
    with pytest.raises(regraft.CopyError) as error:
        regraft.clone(model)
    text = str(error.value)
    assert "cannot be copied" in text
    assert "net/dense" in text
    assert ".extra['things'][0].value" in text
    assert "keep=" in text
    assert "register_copier" in text
    for old, weight in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, weight.numpy())
    if hasattr(resource, "close"):
        resource.close()


def test_keep_shares_objects_classes_and_what_predicates_name():
    lock = threading.Lock()
    layer = Holder(lock)
    assert regraft.clone(layer, keep=(lock,)).value is lock
    assert regraft.clone(layer, keep=(type(lock),)).value is lock
    assert regraft.clone(layer, keep=[lambda obj: obj is lock]).value is lock
    assert regraft.clone(layer, keep=lock).value is lock


def test_a_kept_layer_is_shared_by_both_models():
    encoder = layers.Dense(3, name="encoder")
    model = keras.Sequential([keras.Input((2,)), encoder, layers.Dense(2)])
    copy = regraft.clone(model, keep=(encoder,))
    assert copy.layers[0] is encoder
    assert copy.layers[1] is not model.layers[1]
    x = np.ones((1, 2), "float32")
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(m(x)) for m in (model, copy))
    )
    assert copy.get_config()["layers"]


def test_register_copier_says_how():
    class Handle:
        def __init__(self, layer):
            self.lock = threading.Lock()
            self.layer = layer

    dense = layers.Dense(2)
    dense.build((None, 2))
    model = keras.Sequential([keras.Input((2,)), dense])
    object.__setattr__(model, "handle", Handle(dense))
    with pytest.raises(regraft.CopyError, match="lock"):
        regraft.clone(model)
    regraft.register_copier(Handle, lambda old, copy: Handle(copy(old.layer)))
    copy = regraft.clone(model)
    assert copy.handle.layer is copy.layers[0]

    class Lonely:
        def __init__(self):
            self.lock = threading.Lock()

    regraft.register_copier(Lonely, lambda old: Lonely())
    assert isinstance(regraft.clone(Holder(Lonely())).value, Lonely)


def test_register_copier_checks_its_arguments():
    with pytest.raises(regraft.UsageError, match="needs a class"):
        regraft.register_copier("Handle", lambda old: old)
    with pytest.raises(TypeError, match="needs a function"):
        regraft.register_copier(int, 3)


# --- memory ------------------------------------------------------------------


def trained():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
    model.compile("adam", "mse", run_eagerly=True)
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    return model


@pytest.mark.parametrize("dropped", ["original", "copy"])
def test_deleting_either_frees_it(dropped):
    model = trained()
    copy = regraft.clone(model)
    victim = model if dropped == "original" else copy
    parts = [victim, victim.layers[0], victim.layers[0].kernel, victim.optimizer]
    references = [weakref.ref(part) for part in parts]
    del parts, victim
    if dropped == "original":
        del model
        survivor = copy
    else:
        del copy
        survivor = model
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    survivor.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))


def test_100_clones_leave_no_growth():
    model = trained()
    regraft.clone(model)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(100):
        regraft.clone(model)
    gc.collect()
    # A cache may grow by an entry or two; a hundredth of a clone each is a leak.
    assert len(gc.get_objects()) - before < 100


def test_a_clone_leaves_no_work_to_the_garbage_collector():
    model = trained()
    regraft.clone(model)  # What is worked out once for a class.
    gc.collect()
    gc.disable()
    try:
        copy = regraft.clone(model)
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert copy is not model


def test_running_out_of_memory_releases_what_was_taken(monkeypatch):
    from regraft import _backends

    model = trained()
    regraft.clone(model)  # What is decided once for a class must not be the stand-in.
    backend = _backends.active()
    real, taken = backend.copy_values, []

    def scarce(values, walk, layouts=None):
        for new in real(values, walk, layouts):
            if len(taken) == 2:
                raise MemoryError("no more")
            taken.append(weakref.ref(new))
            yield new

    monkeypatch.setattr(backend, "copy_values", scarce)
    gc.collect()
    gc.disable()  # Memory must come back at once, not when cycles are collected.
    try:
        with pytest.raises(regraft.OutOfMemoryError) as error:
            regraft.clone(model)
        message = str(error.value)
        error.value.__cause__ = None  # A traceback holds what its frames hold.
        del error
        buffers = [reference() for reference in taken]
    finally:
        gc.enable()
    assert all(buffer is None or _is_empty(buffer) for buffer in buffers)
    assert "A device has no memory left for the copy." in message
    assert f"where: {model.name}" in message
    assert "received: no more" in message
    monkeypatch.undo()
    regraft.verify(model, regraft.clone(model)).raise_if_different()


def _is_empty(buffer):
    deleted = getattr(buffer, "is_deleted", None)
    return deleted() if deleted is not None else buffer.numel() == 0


def test_keep_is_asked_of_every_part_of_a_plain_object():
    class Settings:
        def __init__(self):
            self.table = {"rate": 1}
            self.other = {"rate": 1}

    layer = Holder(name="a")
    object.__setattr__(layer, "value", Settings())
    table = layer.value.table
    copy = regraft.clone(layer, keep=lambda obj: obj is table)
    assert copy.value.table is table
    assert copy.value.other is not layer.value.other

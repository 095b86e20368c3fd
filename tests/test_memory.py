"""Arrays and tensors that look into the same memory do so in a copy."""

from array import array

import keras
import numpy as np
import pytest
from holding import Holder, copied
from keras import layers

import regraft

pytestmark = pytest.mark.wiring


def tree():
    return np.arange(12.0).reshape(3, 4)


VIEWS = {
    "slice": lambda a: a[1:],
    "column": lambda a: a[:, 2],
    "reversed": lambda a: a[::-1, ::2],
    "transposed": lambda a: a.T,
    "flat": lambda a: a.reshape(-1),
    "bytes": lambda a: a.view("uint8"),
    "broadcast": lambda a: np.broadcast_to(a[0], (2, 4)),
    "view of a view": lambda a: a[1:][:, 1:],
    "subclass": lambda a: a.view(np.recarray)[1:],
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("how", VIEWS)
@pytest.mark.parametrize("first", ["owner", "view"])
def test_a_view_shows_what_is_written_to_the_array(how, order, first):
    if (how, order) == ("bytes", "F"):
        pytest.skip("NumPy refuses it")
    array = np.asarray(tree(), order=order)
    view = VIEWS[how](array)
    held = {"owner": array, "view": view}
    new = copied({name: held[name] for name in (first, *held)})
    new_array, new_view = new["owner"], new["view"]
    assert type(new_view) is type(view)
    assert new_view.flags.writeable == view.flags.writeable
    if how != "flat" or order == "C":  # Else it was a copy from the beginning.
        assert np.may_share_memory(new_array, new_view)
    assert not np.may_share_memory(array, new_view)
    new_array[1:] = 7
    new_array[0] = 8
    array[1:] = 7
    array[0] = 8
    assert new_view.tobytes() == view.tobytes()


def test_two_views_of_one_array_that_nobody_else_holds():
    whole = tree()
    left, right = copied([whole[:2], whole[1:]])
    left[1] = 5
    assert (right[0] == 5).all()
    assert whole[1, 0] == 4


def test_one_view_alone_is_copied_without_the_rest():
    part = copied(np.zeros(1000)[:10])
    assert part.base is None


@pytest.mark.parametrize("kind", [bytearray, lambda x: array("B", x)])
@pytest.mark.parametrize("is_first", [False, True])
def test_arrays_that_look_at_bytes(kind, is_first):
    raw = kind(bytes(range(12)))
    part = np.frombuffer(raw, "u1", offset=4)
    held = {"part": part, "turned": part[::-2], "pairs": np.frombuffer(raw, "u2")}
    held = {"raw": raw, **held} if is_first else {**held, "raw": raw}
    new = copied(held)
    assert new["raw"] is not raw
    assert new["raw"] == raw
    for name in ("part", "turned", "pairs"):
        np.testing.assert_array_equal(new[name], held[name])
    new["raw"][11] = 99
    assert (new["part"][7], new["turned"][0], new["pairs"][5] >> 8) == (99, 99, 99)
    assert raw[11] == part[7] == 11


def test_arrays_that_look_at_bytes_nobody_else_holds():
    raw = bytearray(8)
    layer = layers.Identity()
    layer.whole = np.frombuffer(raw, "u1")
    layer.half = np.frombuffer(raw, "u1", offset=4)
    layer.seen = np.asarray(memoryview(np.arange(3.0)))
    new = regraft.clone(layer)
    new.whole[4] = 7
    assert new.half[0] == 7
    assert raw == bytes(8)
    apart = regraft.clone(layer)
    assert regraft.verify(layer, apart).same
    apart.half = apart.half.copy()
    assert not regraft.verify(layer, apart).same


def test_a_tensor_of_torch_over_such_an_array():
    torch = pytest.importorskip("torch")
    raw = bytearray(8)
    whole = np.frombuffer(raw, "u1")
    new = copied({"whole": whole, "tensor": torch.from_numpy(whole), "raw": raw})
    new["whole"][0] = 9
    assert int(new["tensor"][0]) == new["raw"][0] == 9
    assert raw[0] == 0


def test_views_of_objects():
    items = np.array([[1], [2], [3], None], dtype=object)
    whole, part = copied([items, items[1:3]])
    assert whole[1] is part[0]
    assert whole[1] is not items[1]
    whole[2] = "new"
    assert part[1] == "new"


def test_a_tree_of_sums_goes_on_working():
    class SumTree:
        def __init__(self):
            self.sums = np.zeros(8)
            self.leaves = self.sums[4:]

    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.replay = SumTree()
    twin = regraft.clone(model)
    twin.replay.leaves[1] = 5
    assert twin.replay.sums[5] == 5
    assert not model.replay.sums.any()
    assert regraft.verify(model, regraft.clone(model)).same


def test_tensors_of_torch():
    torch = pytest.importorskip("torch")
    cache = torch.zeros(6, 4)
    keys, values = cache[:, :2], cache[:, 2:]
    new_cache, new_keys, new_values = copied([cache, keys, values])
    new_cache[0] = 5
    assert new_keys[0].tolist() == new_values[0].tolist() == [5, 5]
    assert not cache.any()
    first, second = copied([keys, cache[:, 1:3]])
    first[0, 1] = 3
    assert second[0, 0] == 3


def test_bytes_between_fields_say_nothing():
    layout = {"names": ["a", "b"], "formats": ["<i8", "u1"], "itemsize": 16}
    data = np.random.default_rng(0).bytes(16 * 50)
    layer = Holder(np.frombuffer(bytearray(data), np.dtype(layout)))
    twin = regraft.clone(layer)
    assert regraft.verify(layer, twin).same
    twin.value["b"][3] += 1
    assert not regraft.verify(layer, twin).same


def tied_by_data(torch):
    first, second = (torch.nn.Parameter(torch.randn(4)) for _ in range(2))
    second.data = first.data
    return first, second


def flat(torch):
    whole = torch.randn(8)
    return torch.nn.Parameter(whole[:4]), torch.nn.Parameter(whole[2:6])


def array_and_tensor(torch):
    array = np.arange(4, dtype="float32")
    return array, torch.from_numpy(array)


TORCH_TIES = {
    "tied by data": tied_by_data,
    "slices of one vector": flat,
    "detached": lambda torch: (x := torch.randn(4), x.detach()),
    "the data of a parameter": lambda torch: (
        x := torch.nn.Parameter(torch.randn(4)),
        x.data,
    ),
    "real numbers in complex ones": lambda torch: (
        x := torch.randn(4, dtype=torch.complex64),
        torch.view_as_real(x),
    ),
    "conjugated": lambda torch: (
        x := torch.randn(4, dtype=torch.complex64),
        x.conj(),
    ),
    "other bits": lambda torch: (x := torch.randn(4), x.view(torch.int32)),
    "tensor and storage": lambda torch: (x := torch.randn(4), x.untyped_storage()),
    "array and tensor": array_and_tensor,
    "tensor and array": lambda torch: (x := torch.randn(4), x.numpy()),
}


def all_numbers(value):
    value = value.detach().resolve_conj() if hasattr(value, "detach") else value
    return np.array(value).tolist()


@pytest.mark.parametrize("how", TORCH_TIES)
@pytest.mark.parametrize("turned", [False, True])
def test_memory_of_torch_that_two_look_into(how, turned):
    torch = pytest.importorskip("torch")
    first, second = TORCH_TIES[how](torch)
    before = all_numbers(second)
    if turned:
        new_second, new_first = copied([second, first])
    else:
        new_first, new_second = copied([first, second])
    assert type(new_second) is type(second)
    assert all_numbers(new_second) == before
    for value in (new_first, first):
        with torch.no_grad():
            value[2] = 5
        if value is new_first:
            assert all_numbers(second) == before
    assert all_numbers(new_second) == all_numbers(second) != before


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="variables of torch")
def test_variables_that_lie_in_the_same_memory():
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(3, name="a"), layers.Dense(3, name="b")]
    )
    model.get_layer("b").kernel.value.data = model.get_layer("a").kernel.value.data
    twin = regraft.clone(model)
    assert regraft.verify(model, twin).same
    twin.get_layer("a").kernel.assign(np.full((3, 3), 7))
    assert (keras.ops.convert_to_numpy(twin.get_layer("b").kernel) == 7).all()
    assert not (keras.ops.convert_to_numpy(model.get_layer("b").kernel) == 7).any()


def test_memory_that_only_one_model_looks_into_twice_is_a_difference():
    memory = np.zeros(6)
    tied, loose = Holder([memory[:3], memory[3:]]), Holder([np.zeros(3), np.zeros(3)])
    for left, right in ((tied, loose), (loose, tied)):
        reasons = [d.why for d in regraft.diff(left, right) if "value" in d.path]
        assert any(why.startswith("tie: ") for why in reasons)


def test_an_array_a_tensor_and_a_view_of_it():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(6)
    held = [tensor[1:], tensor, tensor.numpy()]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        new = dict(zip(order, copied([held[i] for i in order]), strict=True))
        new[2][3] = 5
        assert new[1][3] == new[0][2] == 5
        assert not tensor.any()

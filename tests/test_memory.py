"""Arrays and tensors that look into the same memory do so in a copy."""

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

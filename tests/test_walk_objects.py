"""Objects of every kind that a layer may hold."""

import collections
import dataclasses
import functools
import gc
import io
import random
import threading
import types
import weakref
from copy import deepcopy
from typing import ClassVar

import numpy as np
import pytest
from holding import Holder, copied
from keras import layers

import regraft

# --- kinds of objects --------------------------------------------------------


def test_cycles_keys_and_identities():
    layer = Holder(name="a")
    knot = [layer]
    knot.append(knot)
    by_layer = {layer: "self", (layer, 1): "pair"}
    by_identity = {id(layer): "address", (id(layer), 0): "call"}
    object.__setattr__(layer, "value", [knot, by_layer, by_identity, {layer}])
    copy = regraft.clone(layer)
    new_knot, new_by_layer, new_by_identity, members = copy.value
    assert new_knot[0] is copy
    assert new_knot[1] is new_knot
    assert new_by_layer == {copy: "self", (copy, 1): "pair"}
    assert new_by_identity == {id(copy): "address", (id(copy), 0): "call"}
    assert list(regraft.diff(layer, copy)) == []
    assert members == {copy}


def test_weak_references_point_at_copies_or_stay():
    inner, outside = Holder(name="inner"), Holder(name="outside")
    layer = Holder([inner, weakref.ref(inner), weakref.ref(outside)])
    object.__setattr__(inner, "value", weakref.WeakSet([layer, outside]))
    copy = regraft.clone(layer)
    assert copy.value[1]() is copy.value[0]
    assert copy.value[2]() is outside
    assert set(copy.value[0].value) == {copy, outside}


Pair = collections.namedtuple("Pair", ["left", "right"])


def test_weak_references_inside_what_cannot_be_filled_again():
    class Part:
        def size(self):
            return 1

    part = Part()
    ref, calls = weakref.ref(part), []
    value = {
        "tuple": (ref, 1),
        "nested": ((ref,),),
        "named": Pair(ref, 1),
        "frozen set": frozenset([ref]),
        "partial": functools.partial(print, ref),
        "default": lambda x, ref=ref: ref(),
        "method": weakref.WeakMethod(part.size),
        "proxy": weakref.proxy(part),
        "watched": weakref.ref(part, calls.append),
        "calls": calls,
        "part": part,  # Met after those that point at it.
    }
    value["again"] = value["tuple"]
    layer = Holder(value)
    twin = regraft.clone(layer)
    assert list(regraft.diff(layer, twin)) == []
    copy = twin.value
    new = copy["part"]
    assert new is not part
    assert copy["tuple"][0]() is copy["nested"][0][0]() is copy["named"].left() is new
    assert next(iter(copy["frozen set"]))() is copy["partial"].args[0]() is new
    assert copy["default"](0) is copy["method"]().__self__ is new
    assert copy["again"] is copy["tuple"]
    new.note = "mine"
    assert copy["proxy"].note == "mine"
    assert not hasattr(part, "note")
    copy.pop("part")
    del new, twin
    gc.collect()
    assert copy["tuple"][0]() is None
    assert copy["calls"] == [copy["watched"]]
    assert calls == []


@pytest.mark.parametrize("point", [weakref.proxy, lambda p: weakref.WeakMethod(p.size)])
def test_a_weak_pointer_at_the_original_is_a_difference(point):
    class Part:
        def size(self):
            return 1

    part = Part()
    layer = Holder([part, point(part)])
    copy = regraft.clone(layer)
    copy.value[1] = point(part)
    assert [d.why for d in regraft.diff(layer, copy)] == ["weak reference"]


def test_a_layer_that_knows_its_parent_weakly():
    outer, inner = Holder(name="outer"), Holder(name="inner")
    object.__setattr__(inner, "parent", weakref.ref(outer))
    outer.inner = inner
    copy = regraft.clone(outer)
    assert copy.inner.parent() is copy
    assert inner.parent() is outer


def test_weak_containers_point_at_copies_of_things_that_look_empty():
    class Empty(layers.Layer):
        def __len__(self):
            return 0

    inner = Empty()
    by_key = weakref.WeakKeyDictionary({inner: 1})
    by_value = weakref.WeakValueDictionary({"inner": inner})
    layer = Holder([inner, weakref.WeakSet([inner]), by_key, by_value])
    new, members, new_by_key, new_by_value = regraft.clone(layer).value
    assert new is not inner
    assert [id(x) for x in members] == [id(new)]
    assert [id(x) for x in new_by_key] == [id(new)]
    assert new_by_value["inner"] is new


class Thrifty:
    """Leaves out of pickles what it can work out, and what it cannot write."""

    def __init__(self, part):
        self.part, self.same, self.size = part, part, 3
        self.lock, self.notes = threading.Lock(), ["mine"]

    def __getstate__(self):
        return {"part": self.part}


def test_what_pickles_leave_out_is_copied_where_it_can_be():
    old = Thrifty([1])
    new = regraft.clone(Holder(old)).value
    assert new.part == [1]
    assert new.part is not old.part
    assert new.same is new.part
    assert new.size == 3
    assert not hasattr(new, "lock")
    assert new.notes == ["mine"]
    assert new.notes is not old.notes


class Steps:
    """Is made again from what it holds, and looks into it at once."""

    def __init__(self, steps):
        self.steps = steps
        self.names = [step.name for step in steps]

    def __reduce__(self):
        return type(self), (self.steps,)


class Fussy(Steps):
    def __reduce__(self):
        return type(self), ("nothing that has a name",)


def test_constructors_are_given_what_is_complete():
    steps = [Holder(name="first"), Holder(name="second")]
    layer = Holder({"before": steps, "steps": Steps(steps), "deep": Steps([*steps])})
    twin = regraft.clone(layer)
    copy = twin.value
    assert copy["steps"].names == copy["deep"].names == ["first", "second"]
    assert copy["steps"].steps is copy["before"]
    assert copy["deep"].steps[0] is copy["before"][0] is not steps[0]
    assert list(regraft.diff(layer, twin)) == []


def test_an_object_that_is_made_from_what_holds_it():
    step = Holder(name="step")
    steps = Steps([step])
    object.__setattr__(step, "value", [steps])
    layer = Holder([steps, step])
    twin = regraft.clone(layer)
    new_steps, new_step = twin.value
    assert new_step.value[0] is new_steps
    assert new_steps.steps[0] is new_step
    assert new_steps.names == ["step"]
    assert list(regraft.diff(layer, twin)) == []


def test_a_constructor_that_raises_is_a_refusal():
    layer = Holder(Fussy([]), name="net")
    with pytest.raises(regraft.CopyError, match="making it again failed") as error:
        regraft.clone(layer)
    assert "net.value" in str(error.value)


@dataclasses.dataclass(frozen=True)
class Key:
    name: str
    part: object


def test_frozen_sets_of_what_is_hashed_by_its_parts():
    inner = Holder(name="inner")
    keys = frozenset([Key("a", Key("b", (1, ("c",)))), Key("d", inner)])
    layer = Holder([{keys: 1}, keys, inner])
    by_keys, new_keys, new_inner = regraft.clone(layer).value
    assert new_keys == {Key("a", Key("b", (1, ("c",)))), Key("d", new_inner)}
    assert by_keys[new_keys] == 1


class CopiesItself:
    def __init__(self, *parts):
        self.parts = parts

    def __deepcopy__(self, memo):
        parts = [deepcopy(part, memo) for part in self.parts]
        return CopiesItself(*parts)


def test_objects_that_copy_themselves_meet_the_same_parts():
    inner, items = Holder(lambda: 1, name="inner"), [1, [2]]
    first, second = CopiesItself(inner, items), CopiesItself({"x": inner}, items)
    layer = Holder([first, second, inner, items])
    twin = regraft.clone(layer)
    new_first, new_second, new, new_items = twin.value
    assert new is not inner
    assert new_first.parts[0] is new_second.parts[0]["x"] is new
    assert new_first.parts[1] is new_second.parts[1] is new_items
    assert new_items == items
    assert new_items is not items
    assert list(regraft.diff(layer, twin)) == []


class Missing:
    pass


MISSING = Missing()


class Defaults:
    UNSET = Missing()


def test_sentinels_stay_what_code_asks_for():
    token, other = object(), Missing()
    assert regraft.clone(Holder(Defaults.UNSET)).value is Defaults.UNSET
    layer = Holder([MISSING, dataclasses.MISSING, token, other])
    copy = regraft.clone(layer)
    assert copy.value[0] is MISSING
    assert copy.value[1] is dataclasses.MISSING
    assert copy.value[2] is token
    assert copy.value[3] is not other
    assert list(regraft.diff(layer, copy)) == []
    copy.value[3] = other  # Anybody may put something on it.
    assert [d.why for d in regraft.diff(layer, copy)] == ["shared by both models"]


class Bag:
    def put(self, name, value):
        setattr(self, name, value)


class Box:
    def put(self, name, value):
        self.__dict__[name] = value


BAG, BOX = Bag(), Box()


@pytest.mark.parametrize("empty", [BAG, BOX])
def test_what_is_empty_and_can_be_filled_is_no_sentinel(empty):
    copy = regraft.clone(Holder(empty)).value
    copy.put("size", 3)
    assert not vars(empty)


class Named:
    def __init__(self, name):
        self.name = name


UNSET, SETTINGS = Named("<unset>"), Named("fast")


class Mode:
    """An enumeration by hand: code asks `mode is Mode.FAST`."""

    def __init__(self, name, factor):
        self.name, self.factor = name, factor


Mode.FAST, Mode.SLOW = Mode("fast", 2.0), Mode("slow", 1.0)


class Level:
    def __init__(self, number):
        self.number = number

    def raise_it(self):
        self.number += 1


Level.LOW = Level(1)


class Part:
    def __init__(self, layer):
        self.layer = layer


Part.DEFAULT = Part(layers.Dense(1))


def test_constants_stay_what_code_asks_for():
    kept = [Mode.FAST, Mode.SLOW]
    new = [Mode("fast", 2.0), Level.LOW, Part.DEFAULT]
    layer = Holder([*kept, *new, {Mode.FAST: 1}])
    copy = regraft.clone(layer)
    *found, by_mode = copy.value
    assert all(a is b for a, b in zip(found, kept, strict=False))
    assert all(a is not b for a, b in zip(found[len(kept) :], new, strict=True))
    assert by_mode[Mode.FAST] == 1
    assert list(regraft.diff(layer, copy)) == []


class Single:
    _one = None

    def __new__(cls):
        if cls._one is None:
            cls._one = super().__new__(cls)
            cls._one.calls = [0]
        return cls._one


class OneOfEach(type):
    _made: ClassVar = {}

    def __call__(cls):
        return cls._made.setdefault(cls, super().__call__())


class SingleByItsClass(metaclass=OneOfEach):
    pass


def test_what_there_is_but_once_stays_what_code_asks_for():
    for one in (UNSET, Single(), SingleByItsClass()):
        layer = Holder(one)
        copy = regraft.clone(layer)
        assert copy.value is one
        assert regraft.verify(layer, copy).same
    assert regraft.clone(Holder(SETTINGS)).value is not SETTINGS


class Clock:
    count = 0

    def tick(self):
        self.count += 1


class Ticking:
    def tick(self):
        self.count = 1


class Latest:
    last = None

    def __new__(cls):
        cls.last = made = super().__new__(cls)
        return made


CLOCK, TICKING, phase = Clock(), Ticking(), Named("phase")


def test_what_can_change_is_copied_though_a_module_or_its_class_holds_it():
    for one in (CLOCK, TICKING, phase, Latest()):
        layer = Holder(one)
        copy = regraft.clone(layer)
        assert copy.value is not one
        assert regraft.verify(layer, copy).same


@pytest.mark.parametrize(
    "stream", [np.random.mtrand._rand, random._inst, np.random.rand, random.gauss]
)
def test_the_streams_of_everybody_are_nobodys(stream):
    layer = Holder(stream)
    copy = regraft.clone(layer)
    assert copy.value == stream
    assert regraft.verify(layer, copy).same


def test_a_stream_of_its_own_is_copied():
    layer = Holder(np.random.RandomState(1))
    copy = regraft.clone(layer)
    assert copy.value is not layer.value
    assert copy.value.rand() == layer.value.rand()


def test_a_mapping_proxy_shows_the_copy_of_what_it_showed():
    items = {"a": 1}
    copy = regraft.clone(Holder([items, types.MappingProxyType(items)]))
    copy.value[0]["b"] = 2
    assert dict(copy.value[1]) == {"a": 1, "b": 2}
    assert items == {"a": 1}


@pytest.mark.parametrize("dtype", ["float32", "object", [("a", "f4"), ("b", "O")]])
def test_an_array_that_nobody_may_write_to_stays_so(dtype):
    array = np.zeros(2, dtype)
    free = regraft.clone(Holder(array)).value
    assert free.flags.writeable
    array.flags.writeable = False
    copy = regraft.clone(Holder(array)).value
    assert not copy.flags.writeable
    assert copy.dtype == array.dtype
    assert copy.tolist() == array.tolist()


def test_bound_builtin_methods_follow_their_owner():
    items = []
    layer = Holder([items, items.append, len, str.upper])
    copy = regraft.clone(layer)
    copy.value[1]("x")
    assert copy.value[0] == ["x"]
    assert items == []
    assert copy.value[2] is len


def test_containers_of_every_class():
    Point = collections.namedtuple("Point", "x y")
    value = [
        Point([1], 2),
        collections.OrderedDict(b=[1], a=[2]),
        collections.defaultdict(list, a=[1]),
        collections.Counter("aab"),
        collections.deque([[1], 2], maxlen=3),
        frozenset({("a", 1)}),
        types.MappingProxyType({"a": [1]}),
        bytearray(b"ab"),
        np.array([[1], None], dtype=object),
        io.BytesIO(b"abc"),
        slice(1, 2),
    ]
    copy = regraft.clone(Holder(value)).value
    for old, new in zip(value[:8], copy[:8], strict=True):
        assert type(new) is type(old)
        assert new == old
    assert copy[0].x is not value[0].x
    assert list(copy[1]) == ["b", "a"]
    assert copy[2].default_factory is list
    assert copy[4].maxlen == 3
    assert copy[8][0] == [1]
    assert copy[8][0] is not value[8][0]
    assert copy[9].getvalue() == b"abc"
    copy[9].write(b"x")
    assert value[9].getvalue() == b"abc"


# --- quick ways, and what deviates from them -----------------------------------


def test_an_empty_ordered_dict_with_an_attribute():
    value = collections.OrderedDict()
    value.order = [1]
    new = copied(value)
    assert new == value
    assert new.order == [1]
    assert new.order is not value.order


def test_a_tuple_with_a_large_number_stays_one_object():
    inner, holder = [], Holder()
    value = (inner, 2**70)
    inner.append(value)
    vars(holder)["value"] = [value, value]
    new = regraft.clone(holder).value
    assert new[0] is new[1] is new[0][0][0]
    assert new[0] is not value


class Annotated(layers.Layer):
    def build(self, input_shape: tuple) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        return x * self.scale


@pytest.mark.parametrize("kind", [Annotated, layers.ReLU])
def test_wrapped_methods_are_the_copys_in_all_they_carry(kind):
    layer = kind()
    layer.build((None, 3))
    copy = regraft.clone(layer)
    for name in ("build", "quantize"):
        old, new = vars(layer)[name], vars(copy)[name]
        assert new is not old
        assert new.__wrapped__.__self__ is copy
        assert {c.cell_contents for c in new.__closure__} == {copy, new.__wrapped__}
        assert new.__annotations__ == old.__annotations__
        assert vars(new).keys() == vars(old).keys()
        assert new.__doc__ == old.__doc__


class Attributes(dict):
    """The common idiom: items are attributes, and the other way round."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Answering(dict):
    """Raises a `KeyError` for attributes that it does not have."""

    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Backwards(list):
    def __iter__(self):
        return reversed(self)


class Sorted(dict):
    def keys(self):
        return sorted(dict.keys(self))

    def __iter__(self):
        return iter(self.keys())


def test_containers_whose_classes_have_their_own_ways():
    value = [
        Attributes(a=1),
        Attributes(a=[1], inner=Attributes(b=2)),
        Answering(a=Answering(b=[1])),
        Backwards([1, 2, 3]),
        Backwards([1, [2], 3]),
        Sorted(b=1, a=2),
    ]
    layer = Holder(value)
    twin = regraft.clone(layer)
    assert list(regraft.diff(layer, twin)) == []
    simple, deep, answering, atoms, items, by_name = twin.value
    for copy in (simple, deep, deep.inner):
        copy["new"] = 3
        assert copy.new == 3
        copy.other = 4
        assert copy["other"] == 4
    assert answering.a.b == [1]
    assert list.__repr__(atoms) == "[1, 2, 3]"
    assert list.__repr__(items) == "[1, [2], 3]"
    assert dict.__repr__(by_name) == "{'b': 1, 'a': 2}"
    assert list(value[0]) == ["a"]


def test_tracked_containers_with_attributes_or_parts_of_their_own():
    layer = layers.Dense(2)
    layer.plain = [1, (2, 3)]
    layer.shapes = {"input": (None, 3), "list": [4]}
    layer.marked = ["a"]
    layer.marked.note = [5]
    object.__setattr__(layer, "again", layer.marked)  # Keras would wrap it anew.
    copy = regraft.clone(layer)
    for name in ("plain", "shapes", "marked"):
        old, new = getattr(layer, name), getattr(copy, name)
        assert type(new) is type(old)
        assert new == old
        assert new is not old
        assert new.tracker is copy._tracker
    assert copy.shapes["list"] is not layer.shapes["list"]
    assert copy.marked.note == [5]
    assert copy.marked.note is not layer.marked.note
    assert copy.again is copy.marked


def test_a_tracker_whose_index_deviates_from_what_it_stores():
    layer = layers.Dense(2)
    layer.build((None, 3))
    tracker = layer._tracker
    tracker.stored_ids["layers"].add(id(layer))
    tracker.stored_ids["trainable_variables"].discard(id(layer.bias))
    copy = regraft.clone(layer)
    ids = copy._tracker.stored_ids
    assert ids["layers"] == {id(copy)}
    assert ids["trainable_variables"] == {id(copy.kernel)}
    assert copy._tracker.config["trainable_variables"][1] is copy._trainable_variables

"""One small edit to a plain Python value that a layer holds."""

import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import operator
import pathlib
import random
import types
import weakref

import keras
import numpy as np
import pytest
from keras import layers

import regraft


class Holder(layers.Layer):
    """A layer with something in it."""

    def __init__(self, thing):
        super().__init__(name="holder")
        # Set as it is: Keras would wrap containers, and lock them later.
        vars(self)["thing"] = thing

    def call(self, x):
        return x


class Slotted:
    __slots__ = ("size",)

    def __init__(self, size):
        self.size = size

    def method(self):
        return self.size


class Label(str):
    """A string that may have attributes."""


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Options:
    size: int = 1


def named(name):
    def function():
        return 1

    function.__name__ = name
    return function


Pair = collections.namedtuple("Pair", ["left", "right"])


def adder(number, *, extra=0):
    return lambda x: x + number + extra


def appender(items):
    return lambda x: items.append(x)


def with_default(number):
    def function(x, y=number):
        return x + y

    return function


def with_keyword_default(number):
    def function(x, *, y=number):
        return x + y

    return function


def with_attribute(number):
    def function(x):
        return x

    function.number = number
    return function


def labelled(text):
    label = Label(text)
    label.note = "a"
    return label


# Before and after; `diff` must report "holder.thing" and below.
@dataclasses.dataclass(frozen=True)
class Key:
    number: int


class KeyOfAll(enum.Enum):
    ONE = 1


class Thing:
    def __init__(self, number):
        self.number = number


class Tagged(np.ndarray):
    pass


class AsArray:
    def __init__(self, scale):
        self.scale = scale

    def __array__(self, dtype=None, copy=None):
        return np.zeros(2, dtype)


def tagged_array(tag):
    array = np.zeros(2).view(Tagged)
    array.tag = tag
    return array


def tagged_partial(tag):
    partial = functools.partial(min, 1)
    partial.tag = tag
    return partial


REPLACED = {
    "number_in_a_tuple_in_a_set": ({(1, 2)}, {(True, 2)}),
    "sign_in_a_tuple_in_a_set": ({(0.0,)}, {(-0.0,)}),
    "sign_of_a_complex_number": ({complex(0, 0.0)}, {complex(0, -0.0)}),
    "number_in_a_frozenset": ({frozenset({1}): 0}, {frozenset({True}): 0}),
    "digits_in_a_set": ({decimal.Decimal("1.0")}, {decimal.Decimal("1.00")}),
    "range_over_the_same": (range(0, 3, 2), range(0, 4, 2)),
    "name_of_a_function": (named("one"), named("two")),
    "ufunc": (np.frompyfunc(abs, 1, 1), np.frompyfunc(len, 1, 1)),
    "writeable": (np.zeros(2), np.frombuffer(bytes(16))),
    "none": (None, 0),
    "number": (1, 2),
    "true_for_one": (1, True),
    "float_for_int": (1, 1.0),
    "sign_of_zero": (0.0, -0.0),
    "nan": (float("nan"), 1.0),
    "complex": (1j, 2j),
    "string": ("a", "b"),
    "bytes": (b"a", b"b"),
    "bytearray": (bytearray(b"a"), bytearray(b"b")),
    "range": (range(3), range(4)),
    "type": (int, float),
    "class": (Slotted, Options),
    "abstract_class": (collections.abc.Sized, collections.abc.Hashable),
    "enum_member": (Color.RED, Color.BLUE),
    "path": (pathlib.PurePath("a"), pathlib.PurePath("b")),
    "tuple_item": ((1, 2), (1, 3)),
    "tuple_length": ((1, 2), (1, 2, 3)),
    "tuple_for_list": ([1], (1,)),
    "namedtuple_field": (Pair(1, 2), Pair(1, 3)),
    "list_item": ([1, 2], [1, 3]),
    "list_order": ([1, 2], [2, 1]),
    "list_length": ([1, 2], [1]),
    "nested_item": ([{"a": ({1},)}], [{"a": ({2},)}]),
    "dict_value": ({"a": 1}, {"a": 2}),
    "dict_key": ({"a": 1}, {"b": 1}),
    "dict_order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "dict_tuple_key": ({(1, 2): 3}, {(1, 4): 3}),
    "dict_large_key": ({1 << 40: 3}, {1 << 41: 3}),
    "set_member": ({1, 2}, {1, 3}),
    "set_size": ({1, 2}, {1}),
    "set_of_tuples": ({(1, 2)}, {(1, 3)}),
    "set_of_large_numbers": ({1 << 40}, {1 << 41}),
    "frozenset_member": (frozenset({1}), frozenset({2})),
    "deque_item": (collections.deque([1]), collections.deque([2])),
    "deque_length": (collections.deque([1], 2), collections.deque([1], 3)),
    "default_factory": (collections.defaultdict(int), collections.defaultdict(list)),
    "ordered_dict": (
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(b=2, a=1),
    ),
    "counter": (collections.Counter("aab"), collections.Counter("abb")),
    "array_item": (np.array([1.0, 2.0]), np.array([1.0, 3.0])),
    "array_sign_of_zero": (np.array([0.0]), np.array([-0.0])),
    "array_dtype": (np.array([1, 2]), np.array([1, 2], "int32")),
    "array_shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "array_object": (np.array([{"a": 1}]), np.array([{"a": 2}])),
    "array_mask": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "numpy_scalar": (np.float32(1), np.float32(2)),
    "numpy_scalar_type": (np.float32(1), np.float64(1)),
    "numpy_dtype": (np.dtype("int32"), np.dtype("int64")),
    "closure": (adder(1), adder(2)),
    "default": (with_default(1), with_default(2)),
    "keyword_default": (with_keyword_default(1), with_keyword_default(2)),
    "function_attribute": (with_attribute(1), with_attribute(2)),
    "lambda_code": (lambda x: x + 1, lambda x: x + 2),
    "builtin_function": (min, max),
    "itemgetter": (operator.itemgetter(1), operator.itemgetter(2)),
    "partial_function": (functools.partial(min, 1), functools.partial(max, 1)),
    "partial_argument": (functools.partial(min, 1), functools.partial(min, 2)),
    "partial_keyword": (functools.partial(min, key=1), functools.partial(min, key=2)),
    "method_of_another": (Slotted(1).method, Slotted(2).method),
    "dataclass_field": (Options(1), Options(2)),
    "slot": (Slotted(1), Slotted(2)),
    "namespace": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    "random_state": (random.Random(1), random.Random(2)),
    "numpy_random_state": (np.random.default_rng(1), np.random.default_rng(2)),
    "string_with_attributes": (labelled("a"), labelled("b")),
    "counter_state": (itertools.count(1), itertools.count(2)),
    "functions_in_a_set": ({min, max}, {min, abs}),
    "objects_in_a_set": ({Key(1), Key(2)}, {Key(1), Key(3)}),
    "plain_objects_in_a_set": ({Thing(1), Thing(2)}, {Thing(1), Thing(3)}),
    "large_numbers_in_a_set": ({1 << 40, 1 << 41}, {1 << 40, 1 << 42}),
    "sign_of_zero_in_a_set": ({0.0, 1.0}, {-0.0, 1.0}),
    "true_for_one_in_a_set": ({1, 2}, {True, 2}),
    "true_for_one_as_a_key": ({1: 0}, {True: 0}),
    "sign_of_zero_in_a_key": ({(0.0, 1): 0}, {(-0.0, 1): 0}),
    "sign_of_zero_in_a_complex_number": (complex(0, 0.0), complex(0, -0.0)),
    "digits_of_a_decimal": (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "signalling_decimal": (decimal.Decimal("sNaN"), decimal.Decimal("NaN")),
    "fold_of_a_time": (datetime.time(1, fold=0), datetime.time(1, fold=1)),
    "data_type": (np.dtype("float32"), np.dtype("float64")),
    "attribute_of_a_partial": (tagged_partial(1), tagged_partial(2)),
    "attribute_of_an_array": (tagged_array(1), tagged_array(2)),
    "fill_value": (np.ma.array([1], fill_value=3), np.ma.array([1], fill_value=4)),
    "attribute_beside_an_array": (AsArray(1), AsArray(2)),
}


class NoArray:
    def __array__(self, *args, **kwargs):
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [
        complex("nan"),
        decimal.Decimal("NaN"),
        {float("nan")},
        {Thing(1), Thing(1)},
        {KeyOfAll},
        NoArray(),
    ],
)
def test_a_copy_of_a_value_is_no_difference(value):
    layer = Holder(value)
    assert list(regraft.diff(layer, regraft.clone(layer))) == []


def test_numbers_of_numpy_that_are_none_are_the_same():
    values = [np.float32("nan"), np.datetime64("NaT")]
    assert list(regraft.diff(*(Holder([x.copy() for x in values]) for _ in "ab"))) == []


def test_weak_references_with_other_callbacks_differ():
    def referring(callback):
        thing = Thing(1)
        return Holder([thing, weakref.ref(thing, callback)])

    assert list(regraft.diff(referring(print), referring(len)))
    layer = referring(print)
    assert list(regraft.diff(layer, regraft.clone(layer))) == []


def test_weak_reference_to_a_function_that_is_copied():
    function = appender([1])
    layer = Holder([function, weakref.ref(function)])
    twin = regraft.clone(layer)
    assert twin.thing[1]() is twin.thing[0] is not function
    assert list(regraft.diff(layer, twin)) == []


def test_value_that_cannot_be_shown():
    class Mute:
        def __repr__(self):
            raise RuntimeError

    texts = [str(d) for d in regraft.diff(Holder(Mute()), Holder(1))]
    assert "holder.thing: value: <Mute> | 1" in texts


def test_sets_of_layers_that_are_equal_by_value():
    class ByNumber(layers.Layer):
        def __init__(self, number):
            super().__init__()
            self.number = number

        def __eq__(self, other):
            return self.number == other.number

        def __hash__(self):
            return hash(self.number)

    layer = Holder({ByNumber(1), ByNumber(2)})
    assert list(regraft.diff(layer, regraft.clone(layer))) == []


def test_sets_of_layers_of_one_name():
    inside = [keras.Sequential([layers.Dense(2, name="d")]) for _ in range(3)]
    model = keras.Sequential([keras.Input((2,)), *inside])
    object.__setattr__(model, "all", {part.layers[0] for part in inside})
    twin = regraft.clone(model)
    assert list(regraft.diff(model, twin)) == []
    twin.all.pop()
    twin.all.add(layers.Dense(2, name="d"))
    assert list(regraft.diff(model, twin, inputs=False))


@pytest.mark.parametrize("look", [lambda x: x[:], lambda x: x.T, lambda x: x[1:]])
def test_arrays_that_share_memory_differ(look):
    array = np.arange(6.0).reshape(2, 3)
    (found, *_) = regraft.diff(Holder(look(array)), Holder(look(array)))
    assert "shared buffer" in str(found)


def test_objects_in_the_sets_of_both_models_are_shared():
    things = {Thing(1), Thing(2)}
    found = list(regraft.diff(Holder(things), Holder(set(things))))
    assert any("shared by both models" in str(d) for d in found)


@pytest.mark.parametrize("name", REPLACED)
def test_replaced_value_is_found(name):
    before, after = REPLACED[name]
    for left, right in ((before, after), (after, before)):
        found = list(regraft.diff(Holder(left), Holder(right)))
        assert found
        # The layer also notes what it was made with.
        places = "holder.thing", "holder._auto_config"
        assert all(d.path.startswith(places) for d in found)
        assert found[0].path.startswith("holder.thing") or len(found) > 1


KEY = layers.Identity()


def _grow(proxy):
    proxy["a"].append(2)


# What works on values in place; each is done to the copy's.
CHANGED = {
    "list": ([1], lambda x: x.append(2)),
    "dict": ({"a": 1}, lambda x: x.update(b=2)),
    "set": ({1}, lambda x: x.add(2)),
    "array": (np.zeros(2), lambda x: x.fill(1)),
    "list_in_a_tuple": (([1],), lambda x: x[0].append(2)),
    "list_in_a_closure": (appender([1]), lambda x: x(2)),
    "list_of_a_method": ([1].append, lambda x: x(2)),
    "list_in_a_partial": (functools.partial(list, [1]), lambda x: x.args[0].append(2)),
    "object": (Options(), lambda x: setattr(x, "size", 2)),
    "attribute_added": (Options(), lambda x: setattr(x, "color", 2)),
    "attribute_removed": (types.SimpleNamespace(a=1), lambda x: delattr(x, "a")),
    "function": (with_attribute([1]), lambda x: x.number.append(2)),
    "generator": (random.Random(1), lambda x: x.random()),
    "numpy_generator": (np.random.default_rng(1), lambda x: x.random()),
    "objects_in_an_array": (
        np.array([np.zeros(2), [np.zeros(3)]], dtype=object),
        lambda x: x[1][0].fill(1),
    ),
    "layer_in_an_array": (
        np.array([layers.Dense(1)], dtype=object),
        lambda x: setattr(x[0], "units", 2),
    ),
    "objects_in_records": (
        np.array([(1, [2])], dtype=[("a", "f4"), ("b", object)]),
        lambda x: x["b"][0].append(3),
    ),
    "value_by_weak_key": (
        [KEY, weakref.WeakKeyDictionary({KEY: [1]})],
        lambda x: x[1][x[0]].append(2),
    ),
    "mapping_behind_a_proxy": (types.MappingProxyType({"a": [1]}), _grow),
}


def _found_after(change, layer):
    """What `diff` finds once the copy was changed, and it had found nothing before."""
    copy = regraft.clone(layer)
    assert not [str(d) for d in regraft.diff(layer, copy)]
    change(copy.thing)
    return list(regraft.diff(layer, copy))


@pytest.mark.parametrize("name", CHANGED)
def test_change_in_place_is_found(name):
    value, change = CHANGED[name]
    found = _found_after(change, Holder(value))
    assert found
    assert all(d.path.startswith("holder.thing") for d in found)


@pytest.mark.parametrize("name", CHANGED)
def test_shared_value_is_found(name):
    value, _ = CHANGED[name]
    layer = Holder(value)
    copy = regraft.clone(layer)
    vars(copy)["thing"] = value
    found = list(regraft.diff(layer, copy))
    assert found
    assert all(d.path.startswith("holder.thing") for d in found)
    assert "shared" in found[0].why


def _torch_changes():
    import torch

    eye, flip = torch.eye(3), torch.ones(3, dtype=torch.complex64).conj()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    return {
        "gradient": (torch.zeros(2), lambda x: x.requires_grad_(True)),
        "sparse": (eye.to_sparse(), lambda x: x._values().fill_(2)),
        "sparse_rows": (eye.to_sparse_csr(), lambda x: x.values().fill_(2)),
        "sparse_columns": (eye.to_sparse_csc(), lambda x: x.values().fill_(2)),
        "nested": (nested, lambda x: x.unbind()[1].fill_(2)),
        "quantized": (quantized, lambda x: x.copy_(torch.zeros(3))),
        "conjugate": (flip, lambda x: x.mul_(2)),
        "script": (
            torch.jit.script(torch.nn.Linear(2, 2)),
            lambda x: x.bias.data.fill_(2),
        ),
    }


TORCH_CHANGES = _torch_changes() if keras.backend.backend() == "torch" else {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TORCH_CHANGES)
def test_change_of_a_tensor_is_found(name):
    value, change = TORCH_CHANGES[name]
    layer = Holder(value)
    assert _found_after(change, layer)
    assert not [str(d) for d in regraft.diff(layer, regraft.clone(layer))]


UNCHANGEABLE = {
    "nan": float("nan"),
    "class": Slotted,
    "enum": Color.RED,
    "tuple": (1, ("a", frozenset({2}))),
    "function": labelled,
    "builtin": len,
    "module": itertools,
    "dtype": np.dtype("int32"),
    "scalar": np.float32(1),
    "activation": keras.activations.relu,
}


@pytest.mark.parametrize("name", UNCHANGEABLE)
def test_what_nobody_can_change_may_be_shared(name):
    left, right = (Holder(UNCHANGEABLE[name]) for _ in range(2))
    assert not [str(d) for d in regraft.diff(left, right)]


TIES = {
    "list": lambda: [1],
    "dict": lambda: {"a": 1},
    "object": lambda: Options(1),
    "array": lambda: np.zeros(2),
    "layer": lambda: layers.Dense(1, name="dense"),
    "variable": lambda: keras.Variable([1.0], name="v"),
}


@pytest.mark.parametrize("name", TIES)
def test_tie_is_found(name):
    make = TIES[name]
    tied = Holder([make()] * 2)
    apart = Holder([make(), make()])
    broken = next(regraft.diff(tied, apart), None)
    assert broken
    assert (broken.path, broken.why) == (
        "holder.thing[1]",
        "tie: one object became several",
    )
    made = next(regraft.diff(apart, tied), None)
    assert made
    assert (made.path, made.why) == (
        "holder.thing[1]",
        "tie: several objects became one",
    )


def test_weak_reference_to_another_is_found():
    layer = Holder(None)
    vars(layer)["thing"] = weakref.ref(layer)
    copy = regraft.clone(layer)
    assert copy.thing() is copy
    assert not list(regraft.diff(layer, copy))
    vars(copy)["thing"] = weakref.ref(layer)
    assert [d.path for d in regraft.diff(layer, copy)] == ["holder.thing"]


@pytest.mark.parametrize("name", ["_nodes", "_self_scale", "history"])
def test_attribute_with_a_name_that_keras_uses_elsewhere_is_found(name):
    layer, other = Holder(1), Holder(1)
    vars(layer)[name], vars(other)[name] = 1, 2
    assert [d.path for d in regraft.diff(layer, other)] == [f"holder.{name}"]


# --- functions whose code was written at run time -----------------------------


def written(factor):
    around = {"FACTOR": factor, "__name__": "nowhere"}
    exec("def scale(x):\n    return x * FACTOR", around)
    return around["scale"]


def test_globals_of_written_code_are_compared():
    one, same, other = (Holder(written(factor)) for factor in (2, 2, 3))
    assert not list(regraft.diff(one, same))
    assert any("FACTOR" in d.path for d in regraft.diff(one, other))

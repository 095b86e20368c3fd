"""One layer for each kind of Python object that people keep on a layer."""

import abc
import collections
import contextvars
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import logging
import math
import pathlib
import re
import threading
import types
import weakref

import keras
import numpy as np
from keras import layers, ops

from .data import floats
from .registry import case, learns


@dataclasses.dataclass
class Options:
    factor: float = 2.0
    tags: list = dataclasses.field(default_factory=lambda: ["a", {"b": 1}])


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    factor: float = 2.0


@dataclasses.dataclass
class Owner:
    """A plain object around a layer and a variable, which Keras cannot see."""

    layer: layers.Layer
    gate: keras.Variable


class Mode(enum.Enum):
    SLOW = 1
    FAST = 2


class Flag(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Slotted:
    __slots__ = ("__weakref__", "factor", "missing")

    def __init__(self):
        self.factor = 2.0


class Singleton:
    """Refuses to be copied."""

    def __copy__(self):
        raise TypeError("There is only one.")

    def __deepcopy__(self, memo):
        raise TypeError("There is only one.")

    def __reduce_ex__(self, protocol):
        raise TypeError("There is only one.")


class Plain:
    """An object that points at itself and at a list that two names share."""

    def __init__(self):
        self.me = self
        self.first = self.second = [1, 2]


class Strategy(abc.ABC):
    @abc.abstractmethod
    def apply(self, x): ...


class Doubling(Strategy):
    def apply(self, x):
        return 2.0 * x


Point = collections.namedtuple("Point", ["x", "y"])
SINGLETON = Singleton()


class Holder(layers.Layer):
    """Keeps `value` and, if it is given a function, uses it in its call."""

    def __init__(self, value, use=None):
        super().__init__()
        self.value = value
        self.use = use

    def call(self, x):
        return x if self.use is None else self.use(self.value, x)


def _holds(value, use=None):
    x = keras.Input((4,))
    y = layers.Dense(2)(Holder(value, use)(x))
    return learns(keras.Model(x, y), floats(4), floats(2))


PLAIN_VALUES = {
    "dataclass": lambda: Options(3.0),
    "frozen_dataclass": lambda: Frozen(3.0),
    "namedtuple": lambda: Point(1, [2, 3]),
    "enum": lambda: Mode.FAST,
    "enum_flag": lambda: Flag.A | Flag.B,
    "slots": Slotted,
    "self_reference": Plain,
    "uncopyable": lambda: SINGLETON,
    "numpy_array": lambda: np.arange(4.0),
    "numpy_object_array": lambda: np.array([1, "a", None], dtype=object),
    "numpy_scalar": lambda: np.float32(1.5),
    "numpy_dtype": lambda: np.dtype("float16"),
    "numpy_generator": lambda: np.random.default_rng(1),
    "set": lambda: {1, 2, "three"},
    "frozenset": lambda: frozenset({1, 2}),
    "deque": lambda: collections.deque([1, 2], maxlen=3),
    "defaultdict": lambda: collections.defaultdict(list, a=[1]),
    "counter": lambda: collections.Counter("aab"),
    "chain_map": lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    "mapping_proxy": lambda: types.MappingProxyType({"a": 1}),
    "simple_namespace": lambda: types.SimpleNamespace(a=1, b=[2]),
    "partial": lambda: functools.partial(math.pow, 2.0),
    "class": lambda: Options,
    "module": lambda: math,
    "logger": lambda: logging.getLogger("zoo"),
    "regex": lambda: re.compile(r"(\w+)-(\d+)"),
    "path": lambda: pathlib.PurePosixPath("a/b"),
    "bytes": lambda: [b"raw", bytearray(b"raw"), memoryview(b"raw")],
    "big_numbers": lambda: [10**40, 1j, decimal.Decimal("0.1"), float("nan")],
    "fraction": lambda: fractions.Fraction(1, 3),
    "dates": lambda: datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
    "slice_and_range": lambda: [slice(1, None, 2), range(3), Ellipsis],
    "lock": threading.RLock,
    "thread_local": threading.local,
    "context_variable": lambda: contextvars.ContextVar("zoo"),
    "string_io": lambda: io.StringIO("text"),
    "iterator": lambda: itertools.count(3),
    "generator": lambda: (n for n in range(3)),
    "type_annotation": lambda: dict[str, list[int]],
    "builtin_function": lambda: [len, "x".join, print],
    "cached_function": lambda: functools.lru_cache(math.sqrt),
    "deep_nest": lambda: [{"a": ({"b": [{"c": (1, [2])}]},)}],
    "empty_containers": lambda: [[], {}, (), set(), None],
}

for _name, _make in PLAIN_VALUES.items():
    case(f"attributes/{_name}")(lambda make=_make: _holds(make()))


@case("attributes/used_dataclass")
def _():
    return _holds(Options(3.0), lambda options, x: x * options.factor)


@case("attributes/used_strategy")
def _():
    return _holds(Doubling(), lambda strategy, x: strategy.apply(x))


@case("attributes/used_array")
def _():
    return _holds(np.arange(4, dtype="float32"), lambda a, x: ops.add(x, a))


@case("attributes/used_tensor")
def _():
    tensor = ops.convert_to_tensor(np.arange(4, dtype="float32"))
    return _holds(tensor, lambda shift, x: x + shift)


@case("attributes/tensors_in_a_dict")
def _():
    tensors = {"a": ops.ones(4), "b": [ops.zeros(4)]}
    return _holds(tensors, lambda t, x: x + t["a"] + t["b"][0])


@case("attributes/layer_hidden_in_an_object")
def _():
    dense = layers.Dense(4)
    dense.build((None, 4))
    owner = Owner(dense, keras.Variable(np.full(4, 2.0, "float32")))
    return _holds(owner, lambda o, x: o.layer(x) * o.gate)


@case("attributes/layer_hidden_in_a_deque")
def _():
    dense = layers.Dense(4)
    dense.build((None, 4))
    return _holds(collections.deque([dense]), lambda held, x: held[0](x))


@case("attributes/layer_as_a_dict_key")
def _():
    dense = layers.Dense(4)
    dense.build((None, 4))
    table = types.SimpleNamespace(width={dense: 4.0})
    return _holds(table, lambda t, x: sum(k(x) * v for k, v in t.width.items()))


@case("attributes/variable_in_a_namedtuple")
def _():
    gate = keras.Variable(np.full(4, 2.0, "float32"))
    return _holds(Point(gate, 1.0), lambda p, x: x * p.x + p.y)


@case("attributes/partial_over_a_layer")
def _():
    dense = layers.Dense(4)
    dense.build((None, 4))
    return _holds(functools.partial(dense, training=False), lambda f, x: f(x))


@case("attributes/bound_method_of_a_layer")
def _():
    dense = layers.Dense(4)
    dense.build((None, 4))
    return _holds(dense.call, lambda call, x: call(x))


@case("attributes/weak_reference")
def _():
    dense = layers.Dense(4)
    x = keras.Input((4,))
    y = Holder(weakref.ref(dense), lambda ref, x: x * ref().units)(dense(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("attributes/weak_dictionary")
def _():
    dense = layers.Dense(4)
    notes = weakref.WeakKeyDictionary({dense: 3.0})
    x = keras.Input((4,))
    y = Holder(notes, lambda n, x: x * sum(n.values()))(dense(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("attributes/another_layer_of_the_model")
def _():
    dense = layers.Dense(4)
    x = keras.Input((4,))
    y = Holder([dense], lambda held, x: held[0](x))(dense(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("attributes/shared_list")
def _():
    shared = [1.0, 2.0]
    x = keras.Input((4,))
    y = Holder(shared, lambda held, x: x * held[0])(x)
    y = Holder({"same": shared}, lambda held, x: x * held["same"][1])(y)
    return learns(keras.Model(x, layers.Dense(2)(y)), floats(4), floats(2))


@case("attributes/symbolic_tensor")
def _():
    x = keras.Input((4,))
    hidden = layers.Dense(4)(x)
    y = layers.Dense(2)(Holder(types.SimpleNamespace(seen=hidden))(hidden))
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("attributes/keras_objects")
def _():
    kept = {
        "initializer": keras.initializers.HeNormal(seed=1),
        "regularizer": keras.regularizers.L1(0.1),
        "constraint": keras.constraints.UnitNorm(),
        "loss": keras.losses.Huber(0.5),
        "optimizer": types.SimpleNamespace(it=keras.optimizers.SGD(0.1)),
        "schedule": keras.optimizers.schedules.CosineDecay(0.1, 10),
        "policy": keras.DTypePolicy("mixed_float16"),
        "callback": keras.callbacks.EarlyStopping(),
    }
    return _holds(kept)

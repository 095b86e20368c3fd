"""Objects of unusual classes, on a layer: what their copies are."""

import dataclasses
import datetime
import decimal
import functools
import gc
import pathlib
import random
import types
import weakref

import keras
import numpy as np
import pytest
from holding import Holder, copied, refused
from keras import layers

import regraft

pytestmark = pytest.mark.wiring


# --- methods of what belongs to a module ------------------------------------


def test_functions_of_global_generators_stay_with_them():
    value = [np.random.normal, random.random, random.shuffle]
    new = copied(value)
    assert all(map(lambda a, b: a is b or a.__self__ is b.__self__, value, new))
    np.random.seed(3)
    drawn = value[0]()
    np.random.seed(3)
    assert new[0]() == drawn


def test_a_generator_of_ones_own_is_copied_with_its_methods():
    generator = random.Random(5)
    new = copied([generator, generator.random])
    assert new[1].__self__ is new[0] is not generator
    assert new[1]() == generator.random()


# --- functions ----------------------------------------------------------------


@pytest.mark.parametrize("setter_first", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_a_function_follows_the_variable_that_another_one_sets(setter_first, nested):
    rate = 2.0

    def set_rate(value):
        nonlocal rate
        rate = value

    def read():
        return rate

    reader = (lambda: read()) if nested else read
    value = [set_rate, reader] if setter_first else [reader, set_rate]
    new = copied(value)
    (their_set, their_read) = new if setter_first else reversed(new)
    their_set(5.0)
    assert (reader(), their_read()) == (2.0, 5.0)
    set_rate(0.0)
    assert (reader(), their_read()) == (0.0, 5.0)


def test_what_shares_a_variable_that_is_set_differs():
    def counter():
        count = 0

        def increase():
            nonlocal count
            count += 1
            return count

        return increase, lambda: count

    one, other = Holder(counter()), Holder(counter())
    assert regraft.verify(one, other).same
    clone = regraft.clone(one)
    assert regraft.verify(one, clone).same
    mixed = types.FunctionType(
        clone.value[1].__code__, globals(), "<lambda>", None, one.value[1].__closure__
    )
    object.__setattr__(clone, "value", (clone.value[0], mixed))
    assert "tie" in str(regraft.verify(one, clone).differences[0])


def test_a_cache_is_not_shared():
    mask = functools.cache(lambda n: np.tril(np.ones((n, n))))
    mask(2)
    new = copied(mask)
    new(2)[:] = 7
    assert mask(2)[0, 0] == 1
    assert new.cache_info().currsize == 1


@functools.cache
def cached_in_a_module(n):
    return n


def test_a_cached_function_of_a_module_is_code():
    assert copied(cached_in_a_module) is cached_in_a_module


def test_a_vectorized_function_reads_the_copy():
    class Scaled(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = [1.0, 2.0]
            self.look_up = np.vectorize(lambda i: self.table[i], otypes=[float])

    layer = Scaled()
    layer.look_up([0])  # Makes the function and keeps it.
    twin = regraft.clone(layer)
    layer.table[0] = 7.0
    assert twin.look_up([0]) == [1.0]
    assert layer.look_up([0]) == [7.0]
    assert copied(np.add) is np.add


def test_a_property_over_a_layer_is_made_anew():
    inner = layers.Dense(2)
    new = copied(
        {
            "layer": inner,
            "property": property(lambda self: inner, doc="inner"),
            "cached": functools.cached_property(lambda self: inner),
        }
    )
    assert new["property"].fget(None) is new["layer"] is not inner
    assert new["property"].__doc__ == "inner"
    assert new["cached"].func(None) is new["layer"]
    plain = property(len)
    assert copied(plain) is plain


# --- what must be complete before it is hashed or read ------------------------


class Group:
    def __init__(self, members):
        self.members = members

    def __hash__(self):
        return hash(frozenset(self.members))

    def __eq__(self, other):
        return self.members == other.members


def test_a_key_whose_hash_is_made_of_a_set():
    layer = Holder(None)
    layer.inner = layers.Dense(2)
    object.__setattr__(layer, "value", {Group({layer.inner}): "x"})
    twin = regraft.clone(layer)
    assert twin.value[Group({twin.inner})] == "x"


class Position:
    index = 0

    def __init__(self, index):
        self.index = index

    def __getstate__(self):
        return {"index": self.index}


class Total:
    def __init__(self, positions):
        self.positions = positions
        self.total = sum(p.index for p in positions)

    def __getstate__(self):
        return {"positions": self.positions}

    def __setstate__(self, state):
        self.__init__(state["positions"])


def test_a_state_that_is_read_is_complete():
    assert copied(Total([Position(1), Position(2)])).total == 3


@dataclasses.dataclass(frozen=True)
class Key:
    inner: object


class Named:
    def __init__(self, name):
        self.name = name

    def __getstate__(self):
        return {"name": self.name}

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == other.name


def test_keys_inside_keys():
    new = copied({Key(Key(Named("a"))): 1, Key(types.SimpleNamespace): 2})
    assert new[Key(Key(Named("a")))] == 1


class Configured:
    def __init__(self, options):
        self.options = options
        self.name = options.name

    def __reduce__(self):
        return Configured, (self.options,)


def test_a_constructor_that_reads_a_namespace():
    options = types.SimpleNamespace(name="q", steps=[1])
    new = copied([options, Configured(options)])
    assert new[1].name == "q"
    assert new[1].options is new[0] is not options
    assert new[0].steps == [1]
    assert new[0].steps is not options.steps


# --- values -----------------------------------------------------------------------


def test_a_row_of_a_structured_array_is_copied():
    rows = np.array([(1, [2])], [("a", "i4"), ("b", object)])
    row = rows[0]
    new = copied(row)
    new["a"] = 9
    new["b"].append(3)
    assert (row["a"], row["b"]) == (1, [2])
    assert new.dtype == row.dtype


class Tagged(float):
    __slots__ = ("tag",)


class Dated(datetime.date):
    pass


class Money(decimal.Decimal):
    pass


class Folder(type(pathlib.Path())):
    pass


class Names(frozenset):
    pass


@pytest.mark.parametrize(
    "value",
    [Tagged(1.5), Dated(2024, 1, 2), Money("1.50"), Folder("a/b"), Names([1])],
    ids=lambda value: type(value).__name__,
)
def test_what_is_on_a_value_is_copied(value):
    value.tag = [1]
    new = copied(value)
    assert new == value
    assert type(new) is type(value)
    assert new.tag == [1]
    assert new.tag is not value.tag


def test_a_namespace_and_the_dict_of_its_attributes():
    class Thing:
        pass

    thing = Thing()
    space = types.SimpleNamespace(thing=thing, weak=weakref.ref(thing), parts=[1])
    new, attributes = copied([space, vars(space)])
    assert vars(new) is attributes
    assert new.weak() is new.thing is not thing
    assert new.parts == [1]
    assert new.parts is not space.parts
    text = refused([vars(space), space])
    assert "the dict of its attributes is held by another object" in text


@pytest.mark.parametrize("items", [{}, {"a": [1]}])
def test_a_dict_that_is_its_own_attributes(items):
    class Attributes(dict):
        def __init__(self, items):
            super().__init__(items)
            self.__dict__ = self

    value = Attributes(items)
    new = copied(value)
    new.x = 1
    assert new == {**items, "x": 1}
    assert value == items


# --- weak things ---------------------------------------------------------------------


class Reference(weakref.ref):
    pass


class Members(weakref.WeakSet):
    def __init__(self, name):
        super().__init__()
        self.name = name


class ByKey(weakref.WeakKeyDictionary):
    def __init__(self, name):
        super().__init__()
        self.name = name


class ByName(weakref.WeakValueDictionary):
    def __init__(self, name):
        super().__init__()
        self.name = name


def test_weak_things_keep_their_class_and_attributes():
    inner = layers.Dense(2)
    reference, members, by_key, by_name = (
        Reference(inner),
        Members("members"),
        ByKey("keys"),
        ByName("values"),
    )
    reference.note = [1]
    members.add(inner)
    by_key[inner] = 1
    by_name["x"] = inner
    new = copied([inner, reference, members, by_key, by_name])
    assert type(new[1]) is Reference
    assert new[1]() is new[0]
    assert new[1].note == [1]
    assert new[1].note is not reference.note
    assert [type(x) for x in new[2:]] == [Members, ByKey, ByName]
    assert [x.name for x in new[2:]] == ["members", "keys", "values"]
    assert list(new[2]) == list(new[3]) == list(new[4].values()) == [new[0]]


class Owner:
    def method(self):
        return self


@pytest.mark.parametrize("kind", ["ref", "method", "proxy"])
def test_callbacks_of_weak_references_are_kept(kind):
    owner, log = Owner(), []
    make = {
        "ref": lambda: weakref.ref(owner, log.append),
        "method": lambda: weakref.WeakMethod(owner.method, log.append),
        "proxy": lambda: weakref.proxy(owner, lambda proxy: log.append(1)),
    }
    new = copied([owner, make[kind](), log])
    del new[0]
    gc.collect()
    assert len(new[1]) == 1
    assert log == []


def test_a_finalizer_is_refused():
    owner = Owner()
    text = refused(weakref.finalize(owner, print, "gone"))
    assert "on what the original still uses" in text


class Deleting:
    def __del__(self):
        pass


def test_an_object_that_cleans_up_is_refused():
    text = refused(Deleting())
    assert "its `__del__` would be called for the copy" in text


# --- hooks on tensors ---------------------------------------------------------------


def forget_gradient(parameter):
    parameter.grad.zero_()


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch's hooks")
@pytest.mark.parametrize("after", [False, True])
def test_hooks_on_the_gradient_of_a_weight_are_copied(after):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    kernel = model.layers[0].kernel.value
    if after:
        kernel.register_post_accumulate_grad_hook(forget_gradient)
    else:
        kernel.register_hook(lambda gradient: gradient * 0)
    twin = regraft.clone(model)
    assert regraft.verify(model, twin).same
    before = twin.layers[0].kernel.numpy().copy()
    twin.train_on_batch(np.ones((2, 3), "float32"), np.ones((2, 2), "float32"))
    assert np.array_equal(twin.layers[0].kernel.numpy(), before)
    other = regraft.clone(model)
    hooks = "_post_accumulate_grad_hooks" if after else "_backward_hooks"
    getattr(other.layers[0].kernel.value, hooks).clear()
    assert not regraft.verify(model, other).same


class Buffer(bytearray):
    def __init__(self, size):
        super().__init__(size)
        self.marks = [size]


def test_a_buffer_keeps_its_bytes_and_attributes():
    buffer = Buffer(3)
    buffer[1] = 7
    new = copied(buffer)
    assert type(new) is Buffer
    assert bytes(new) == b"\x00\x07\x00"
    assert new.marks == [3]
    assert new.marks is not buffer.marks
    new[1] = 8
    assert buffer[1] == 7

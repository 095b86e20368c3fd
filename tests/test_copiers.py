"""`register_copier`: what a copier is given, and what becomes of what it makes."""

import copy
import threading

import keras
import numpy as np
import pytest
from keras import layers

import regraft as rg

X = np.random.default_rng(0).random((3, 4), "float32")


def network():
    return keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(4)])


class Locked:
    """Cannot be copied without a copier, and looks into what it is given."""

    def __init__(self, content):
        self.lock = threading.Lock()
        self.names = sorted(layer.name for layer in content)
        self.content = content


@pytest.mark.parametrize("kind", [list, tuple, set, frozenset, dict.fromkeys])
def test_parts_are_complete(kind):
    class Own(Locked):
        pass

    rg.register_copier(Own, lambda old, copy: Own(copy(old.content)))
    model = network()
    model.holder = Own(kind(model.layers))
    new = rg.clone(model)
    assert new.holder.names == model.holder.names
    assert set(new.holder.content) == set(new.layers)
    assert rg.verify(model, new).same


@pytest.mark.parametrize(("holder", "held"), [(0, 1), (0, 2), (1, 2), (2, 1)])
def test_layers_are_complete(holder, held):
    class Handle:
        def __init__(self, layer):
            self.layer, self.units = layer, layer.units

    rg.register_copier(Handle, lambda old, copy: Handle(copy(old.layer)))
    model = network()
    parts = (model, *model.layers)
    parts[holder].handle = Handle(parts[held])
    new = rg.clone(model)
    news = (new, *new.layers)
    assert news[holder].handle.layer is news[held]
    assert news[holder].handle.units == 4


def test_objects_that_hold_each_other():
    class Node:
        def __init__(self, others):
            self.others = others

    rg.register_copier(Node, lambda old, copy: Node(copy(old.others)))
    model, one, other = network(), Node([]), Node([])
    one.others.append(other)
    other.others.append(one)
    model.node = one
    new = rg.clone(model).node
    assert new is not one
    assert new.others[0].others[0] is new
    assert new.others[0] is not other


COPIERS = {
    "second": lambda old, copy: Pair(copy(old.layer)),
    "any name": lambda old, part_of: Pair(part_of(old.layer)),
    "default": lambda old, copy=None: Pair(copy(old.layer)),
    "keyword": lambda old, *, copy: Pair(copy(old.layer)),
}


class Pair:
    def __init__(self, layer):
        self.layer = layer


@pytest.mark.parametrize("how", COPIERS)
def test_every_way_to_ask_for_copy(how):
    rg.register_copier(Pair, COPIERS[how])
    model = network()
    model.pair = Pair(model.layers[0])
    new = rg.clone(model)
    assert new.pair.layer is new.layers[0]


def test_functions_that_take_the_object_alone():
    class Thing:
        def __init__(self, numbers=()):
            self.numbers = list(numbers)

    def again(old, deep=True):
        assert deep is True
        return Thing(old.numbers)

    for function in (
        copy.deepcopy,
        again,
        lambda old: Thing(old.numbers),
        lambda *given: again(*given),
        lambda old, *, copy=True: again(old, copy),
    ):
        rg.register_copier(Thing, function)
        model = network()
        model.thing = Thing([1, 2])
        new = rg.clone(model)
        assert new.thing is not model.thing
        assert new.thing.numbers == [1, 2]


def test_a_copier_that_fails_is_told_with_the_path():
    class Bad:
        pass

    rg.register_copier(Bad, lambda old: 1 / 0)
    model = network()
    model.layers[1].bad = Bad()
    with pytest.raises(ZeroDivisionError) as error:
        rg.clone(model)
    (note,) = error.value.__notes__
    assert note == f"regraft copied {model.name}/{model.layers[1].name}.bad"


class Encoder(layers.Dense):
    pass


def made_again(old):
    new = Encoder.from_config(old.get_config())
    new.build((None, 4))
    new.set_weights(old.get_weights())
    return new


@pytest.mark.parametrize("is_shared", [False, True])
def test_optimizers_of_layers_that_a_copier_made(is_shared):
    rg.register_copier(Encoder, (lambda old: old) if is_shared else made_again)
    model = keras.Sequential([keras.Input((4,)), Encoder(4), layers.Dense(4)])
    model.compile("adam", "mse")
    model.train_on_batch(X, X)
    new = rg.clone(model)
    assert (new.layers[0] is model.layers[0]) is is_shared
    tracked = new.optimizer._trainable_variables
    assert [v is w for v, w in zip(tracked, new.weights, strict=True)] == [True] * 4
    before = [np.array(w) for w in model.get_weights()]
    new.train_on_batch(X, X)
    changed = [
        not np.array_equal(a, b)
        for a, b in zip(before, model.get_weights(), strict=True)
    ]
    assert changed == [is_shared, is_shared, False, False]
    if not is_shared:
        model.train_on_batch(X, X)
        for mine, its in zip(model.get_weights(), new.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, its)


class Block(layers.Layer):
    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def build(self, shape):
        if not self.inner.built:
            self.inner.build(shape)

    def call(self, x):
        return self.inner(x)


class Holding:
    def __init__(self, *things):
        self.things = things


@pytest.mark.parametrize("is_late", [False, True])
def test_layers_that_a_copier_makes_inside_others(is_late):
    rg.register_copier(Encoder, made_again)
    model = keras.Sequential([keras.Input((4,)), Block(Encoder(4)), layers.Dense(4)])
    if is_late:  # Others hold the variable, too.
        model.other = Holding(model.layers[0].inner.kernel)
    model.compile("adam", "mse")
    model.train_on_batch(X, X)
    new = rg.clone(model)
    for _ in range(2):
        for mine, its in zip(model.get_weights(), new.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, its)
        model.train_on_batch(X, X)
        new.train_on_batch(X, X)
    if is_late:
        assert new.other.things[0] is new.layers[0].inner.kernel
    fresh = rg.clone(model, weights="fresh", seed=1)
    assert not np.array_equal(fresh.layers[1].kernel, model.layers[1].kernel)
    shared = rg.clone(model, weights="share")
    assert shared.layers[1].kernel is model.layers[1].kernel


class Wrapper(layers.Layer):
    def __init__(self, inner, extra, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.extra = inner, extra

    def call(self, x):
        return self.inner(x)


def test_a_copier_that_asks_for_parts_which_others_hold():
    def again(old, copy):
        return Wrapper(copy(old.inner), copy(old.extra), name=old.name)

    rg.register_copier(Wrapper, again)
    extra = Holding(layers.Dense(2))
    extra.things[0].build((None, 4))
    model = keras.Sequential([keras.Input((4,)), Wrapper(layers.Dense(4), extra)])
    wrapper = model.layers[0]
    model.other = Holding(wrapper.inner.kernel, extra)
    model.compile("adam", "mse")
    model.train_on_batch(X, X)
    new = rg.clone(model)
    assert new.other.things[1] is new.layers[0].extra
    assert new.other.things[0] is new.layers[0].inner.kernel
    kernel = new.layers[0].extra.things[0].kernel
    np.testing.assert_array_equal(kernel, extra.things[0].kernel)
    np.testing.assert_array_equal(
        new.predict(X, verbose=0), model.predict(X, verbose=0)
    )


class ByValue:
    name = None

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, ByValue) and self.name == other.name


def test_keys_that_are_hashed_by_what_they_hold():
    layer, key, box = layers.Identity(), ByValue("key"), Holding()
    key.friends, box.by_key = frozenset([box]), {key: 1, ByValue("other"): 2}
    layer.key = key
    new = rg.clone(layer)
    (box,) = new.key.friends
    assert box.by_key[new.key] == 1
    assert next(iter(box.by_key)) is new.key

"""Ids of objects that a model keeps, wherever it keeps them."""

import keras
import numpy as np
import pytest
from holding import Holder
from keras import layers, optimizers

import regraft

KEPT = {
    "attribute": lambda n: n,
    "list": lambda n: [1, n, "x"],
    "tuple": lambda n: (n, "x"),
    "tuple in a list": lambda n: [(n, "x")],
    "nested tuple": lambda n: ((n, 1), "x"),
    "dict": lambda n: {"a": n},
    "dict in a dict": lambda n: {"a": {"b": n}},
    "dict by numbers": lambda n: {1: n},
    "key": lambda n: {n: 1},
    "nested key": lambda n: {(("a", n), 1): 2},
    "frozenset as a key": lambda n: {frozenset([n]): 1},
    "set": lambda n: {n, 5},
    "tuple in a set": lambda n: {(n, 1)},
}


@pytest.mark.wiring
@pytest.mark.parametrize("where", KEPT)
@pytest.mark.parametrize("known_first", [False, True])
def test_an_id_becomes_that_of_the_copy(where, known_first):
    dense = layers.Dense(2, name="dense")
    kept = KEPT[where](id(dense))
    layer = Holder([dense, kept] if known_first else [kept, dense])
    twin = regraft.clone(layer)
    new = twin.value[not known_first]
    assert new is not dense
    assert twin.value[known_first] == KEPT[where](id(new))
    assert layer.value[known_first] == KEPT[where](id(dense))
    assert regraft.verify(layer, twin).same
    twin.value[known_first] = KEPT[where](id(dense))
    assert not regraft.verify(layer, twin).same


@pytest.mark.wiring
def test_an_id_on_a_layer_and_on_an_object_of_it():
    class Aimed:
        def __init__(self, target):
            self.target = id(target)

    layer = Holder(layers.Dense(2))
    layer.number = id(layer.value)
    layer.aimed = Aimed(layer.value)
    twin = regraft.clone(layer)
    assert twin.number == twin.aimed.target == id(twin.value)


@pytest.mark.wiring
def test_other_large_numbers_stay_what_they_are():
    numbers = [1 << 33, (1 << 62, 7), {"seed": 2**63 + 1}]
    layer = Holder(numbers)
    twin = regraft.clone(layer)
    assert twin.value == numbers
    twin.value[0] += 1
    (found,) = regraft.diff(layer, twin)
    assert (found.left, found.right) == (1 << 33, (1 << 33) + 1)


class ByIds(optimizers.SGD):
    """Knows which variables learn faster."""

    def build(self, variables):
        super().build(variables)
        self.faster = [id(v) for v in variables[-2:]]

    def update_step(self, gradient, variable, learning_rate):
        rate = learning_rate * (10.0 if id(variable) in self.faster else 1.0)
        super().update_step(gradient, variable, rate)


def test_an_optimizer_that_knows_variables_by_id():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(2)])
    model.compile(ByIds(0.01), "mse")
    x, y = np.ones((4, 3), "float32"), np.zeros((4, 2), "float32")
    model.train_on_batch(x, y)
    twin = regraft.clone(model)
    for one in (model, twin):
        one.train_on_batch(x, y)
    assert regraft.verify(model, twin).same

"""Layers that leave sums over rows behind, which replicas on torch would average."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft

from .models import TABLE, VALUES, compiled
from .test_training import FLOAT32

if keras.backend.backend() != "torch":
    pytest.skip("the torch engine", allow_module_level=True)


class Adding(layers.Layer):
    """Adds a loss, by a function over all that it is given."""

    def __init__(self, over, **kwargs):
        super().__init__(**kwargs)
        self.over = over

    def call(self, x):
        self.add_loss(self.over(x**2))
        return x


class Keeping(layers.Layer):
    """Adds up what it has seen."""

    def __init__(self, aggregation, **kwargs):
        super().__init__(**kwargs)
        self.seen = self.add_weight(
            shape=(),
            initializer="zeros",
            trainable=False,
            aggregation=aggregation,
            name="seen",
        )

    def call(self, x):
        self.seen.assign_add(ops.sum(x))
        return x


def replicas_of(layer):
    model = keras.Sequential([keras.Input((5,)), layer, layers.Dense(2)], name="net")
    compiled(model)
    return regraft.clone(model), regraft.replicate(model, ["cpu:0"] * 2)


@pytest.mark.parametrize(
    ("layer", "where"),
    [
        (lambda: Adding(ops.sum), "net: the losses that layers add"),
        (lambda: Keeping("mean"), "net: keeping.*/seen"),
    ],
)
def test_a_sum_is_refused_before_it_is_averaged(layer, where):
    _, many = replicas_of(layer())
    with pytest.raises(regraft.UsageError) as error:
        many.train_on_batch(TABLE[:4], VALUES[:4])
    text = str(error.value)
    assert "leaves something behind that is no mean over rows" in text
    assert "expected: the same number from replicas as from the whole batch" in text
    assert '`aggregation="sum"`' in text
    assert re.search(f"where: {where}", text)


@pytest.mark.parametrize("layer", [lambda: Adding(ops.mean), lambda: Keeping("sum")])
def test_a_mean_and_a_sum_that_says_so_are_right(layer):
    one, many = replicas_of(layer())
    mine, other = (m.train_on_batch(TABLE[:7], VALUES[:7]) for m in (one, many))
    np.testing.assert_allclose(mine, other, **FLOAT32)
    for left, right in zip(one.variables, many.variables, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), **FLOAT32)

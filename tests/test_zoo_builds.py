"""The corpus is sound: each case builds, runs and trains on this backend."""

import keras
import numpy as np
import pytest
from zoo import cases, compile_quickly

CASES = dict(cases())


def computed(outputs):
    """Whether `outputs` are values, not symbols."""
    leaves = keras.tree.flatten(outputs)
    return leaves and not any(isinstance(x, keras.KerasTensor) for x in leaves)


@pytest.mark.parametrize("name", CASES)
def test_builds_runs_and_trains(name):
    case = CASES[name]()
    model = case.model
    assert case.name == name
    if case.inputs is not None:
        assert computed(model(case.inputs))
        if case.training_calls_ok:
            assert computed(model(case.inputs, training=True))
    if case.train:
        if not model.compiled:
            compile_quickly(model)
        loss = model.train_on_batch(case.inputs, case.targets)
        assert np.all(np.isfinite(loss))


def test_builders_start_from_the_same_seed():
    first, second = (CASES["basics/mlp"]().model for _ in range(2))
    for left, right in zip(first.weights, second.weights, strict=True):
        assert left is not right
        assert np.array_equal(left, right)

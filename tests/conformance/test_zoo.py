"""Every model of the corpus clones exactly: structure, state, behaviour."""

import keras
import numpy as np
import pytest
from zoo import cases, compile_quickly

import regraft

CASES = dict(cases())

# They hold what nobody can copy: a lock, a generator, a view on foreign memory.
REFUSED = {
    "attributes/uncopyable",
    "attributes/bytes",
    "attributes/lock",
    "attributes/thread_local",
    "attributes/generator",
}


def run(model, inputs, **kwargs):
    """Calls a model, with the random numbers that belong to nobody fixed."""
    keras.utils.set_random_seed(7)
    leaves = keras.tree.flatten(model(inputs, **kwargs))
    return [np.asarray(keras.ops.convert_to_numpy(leaf)) for leaf in leaves]


def same(left, right):
    return len(left) == len(right) and all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and (np.array_equal(a, b) if a.dtype == object else a.tobytes() == b.tobytes())
        for a, b in zip(left, right, strict=True)
    )


def state(model):
    variables = list(model.variables)
    if getattr(model, "optimizer", None) is not None:
        variables += model.optimizer.variables
    return [np.asarray(keras.ops.convert_to_numpy(v.value)) for v in variables]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_clone_is_exact(name):
    case = CASES[name]()
    model = case.model
    if name in REFUSED:
        with pytest.raises(regraft.CopyError, match="cannot be copied"):
            regraft.clone(model)
        return
    twin = regraft.clone(model)
    assert list(regraft.diff(model, twin, inputs=False)) == []
    if case.inputs is not None:
        assert same(run(model, case.inputs), run(twin, case.inputs))
        if case.training_calls_ok:
            outputs = [run(m, case.inputs, training=True) for m in (model, twin)]
            assert same(*outputs)
    # On JAX every step is compiled, twice; the compiled cases are enough of that.
    if case.train and (model.compiled or keras.backend.backend() != "jax"):
        for fork in (model, twin):
            if not fork.compiled:
                compile_quickly(fork)
            keras.utils.set_random_seed(7)
            fork.train_on_batch(case.inputs, case.targets)
        assert same(state(model), state(twin))


def test_builders_start_from_the_same_seed():
    first, second = (CASES["basics/mlp"]().model for _ in range(2))
    for left, right in zip(first.weights, second.weights, strict=True):
        assert left is not right
        assert np.array_equal(left, right)

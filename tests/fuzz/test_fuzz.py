"""What must hold for the copies of any model; models are drawn at random.

`REGRAFT_FUZZ_EXAMPLES` is the number of examples in total.
"""

import dataclasses
import os

import keras
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regraft as rg

from .build import build, compile_model, data, policy, symbols, train
from .graphs import rarely, specs

EXAMPLES = int(os.environ.get("REGRAFT_FUZZ_EXAMPLES", 100))

pytestmark = pytest.mark.filterwarnings("ignore")


def fuzz(share, **strategies):
    """Runs a test on its share, in percent, of all examples."""
    return lambda test: settings(
        max_examples=max(1, EXAMPLES * share // 100),
        # Always the same examples in `make test`, others each time in `make fuzz`.
        derandomize="REGRAFT_FUZZ_EXAMPLES" not in os.environ,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )(given(**strategies)(test))


def bits(tensor):
    """Shape, type and every bit of a tensor."""
    array = keras.ops.convert_to_numpy(tensor)
    return array.shape, str(array.dtype), array.tobytes()


def answers(model, inputs, training=False):
    """The outputs of a model, with the same random numbers every time."""
    keras.utils.set_random_seed(4)
    return [bits(y) for y in keras.tree.flatten(model(inputs, training=training))]


def state(model):
    """Every variable of a model and its optimizer."""
    variables = list(model.variables)
    if getattr(model, "optimizer", None) is not None:
        variables += model.optimizer.variables
    return [(v.path, v.trainable, bits(v)) for v in variables]


def composes(spec):
    """Whether Keras can put the model into another: not if an input is an output."""
    return min(spec.graph.outputs()) >= len(spec.graph.inputs)


def outcome(function, *args):
    """What a function returns; or what it raises, which is an answer, too."""
    try:
        return [bits(x) for x in keras.tree.flatten(function(*args))]
    except Exception as error:
        return type(error)


@fuzz(25, spec=specs(), thoroughly=rarely(3))
def test_a_clone_is_exact(spec, thoroughly):
    model, inputs = build(spec), data(spec)
    before = state(model)
    twin = rg.clone(model)
    assert type(twin) is type(model)
    assert state(model) == before
    assert state(twin) == before
    if thoroughly:
        rg.verify(model, twin, inputs).raise_if_different()
        assert state(model) == before
        assert state(twin) == before
    for training in (False, True):
        assert answers(twin, inputs, training) == answers(model, inputs, training)
    assert state(twin) == state(model)


@fuzz(25, spec=specs())
def test_a_clone_trains_alike_and_alone(spec):
    model = build(spec)
    if not model.compiled:
        compile_model(model, spec)
    twin = rg.clone(model)
    before = state(model)
    first = outcome(train, twin, spec)
    assert state(model) == before
    after = state(twin)
    assert outcome(train, model, spec) == first
    assert state(twin) == after
    assert state(model) == after
    again = rg.clone(twin)
    assert outcome(train, again, spec) == outcome(train, model, spec)
    assert state(again) == state(model)


@fuzz(15, spec=specs().filter(lambda spec: spec.serialisable()))
def test_a_saved_clone_loads(spec, tmp_path_factory):
    model, inputs = build(spec), data(spec)
    twin = rg.clone(model)
    folder = tmp_path_factory.mktemp("saved")
    loaded = []
    for name, each in (("model", model), ("twin", twin)):
        path = folder / f"{name}.keras"
        each.save(path)
        with policy(spec.policy):  # A functional model does not save its own.
            loaded.append(keras.saving.load_model(path))
        path.unlink()
    first, second = loaded
    # Only the weights: Keras does not save the state of random streams, and a
    # layer that makes layers when it is loaded gives them the next free names.
    assert [bits(v) for v in second.weights] == [bits(v) for v in first.weights]
    assert answers(second, inputs) == answers(first, inputs)
    if not spec.lora:  # A file has the sum of kernel and LoRA, which rounds anew.
        assert answers(second, inputs) == answers(model, inputs)


@fuzz(15, spec=specs(), seed=st.integers(0, 2**31))
def test_fresh_weights_are_drawn_as_the_first_ones_were(spec, seed):
    start = [bits(v) for v in build(dataclasses.replace(spec, trained=False)).weights]
    model, inputs = build(spec), data(spec)
    before = state(model)
    first, second = (rg.clone(model, weights="fresh", seed=seed) for _ in range(2))
    assert state(model) == before
    assert state(first) == state(second)
    assert [v.path for v in first.variables] == [v.path for v in model.variables]
    for variable, value in zip(first.weights, start, strict=True):
        # Zeros and ones are the same again, and only they are.
        random = len(set(keras.ops.convert_to_numpy(variable).flatten())) > 1
        assert (bits(variable) != value) == random, variable.path
    assert answers(first, inputs, True) == answers(second, inputs, True)
    assert state(model) == before


@fuzz(10, spec=specs())
def test_shared_weights_are_the_same_variables(spec):
    model, inputs = build(spec), data(spec)
    if not model.compiled:
        compile_model(model, spec)
    optimizer = [bits(v) for v in model.optimizer.variables]
    twin = rg.clone(model, weights="share")
    assert all(v is w for v, w in zip(model.weights, twin.weights, strict=True))
    assert answers(twin, inputs) == answers(model, inputs)
    outcome(train, twin, spec)
    assert answers(twin, inputs) == answers(model, inputs)
    assert [bits(v) for v in model.optimizer.variables] == optimizer


@fuzz(10, spec=specs().filter(composes))
def test_a_prefixed_clone_composes_with_the_original(spec):
    model, inputs = build(spec), data(spec)
    before = state(model)
    twin = rg.clone(model, prefix="twin_")
    assert state(model) == before
    assert not {v.path for v in model.weights} & {v.path for v in twin.weights}
    ends = symbols(spec.graph, spec.named_inputs)
    with policy(spec.policy):
        both = keras.Model(ends, [model(ends), twin(ends)])
    together = answers(both, inputs)
    middle = len(together) // 2
    assert together[:middle] == together[middle:] == answers(model, inputs)

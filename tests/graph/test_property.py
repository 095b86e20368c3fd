"""What must hold for any sequence of edits; models and edits are drawn at random."""

import dataclasses
import os
import warnings

import keras
from fuzz.build import build, data, policy
from fuzz.graphs import specs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regraft as rg

from .checks import answers, bits
from .edits import EDITS, ROUNDS

EXAMPLES = int(os.environ.get("REGRAFT_FUZZ_EXAMPLES", 50))

with_graph = specs().filter(lambda spec: spec.form != "wrapped")


def fuzz(**strategies):
    """Runs a test on half of the examples: always the same in `make test`."""
    return lambda test: settings(
        max_examples=max(1, EXAMPLES // 2),
        derandomize="REGRAFT_FUZZ_EXAMPLES" not in os.environ,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )(given(**strategies)(test))


def some(names, most):
    """A few edits: each a name and a number that says where."""
    return st.lists(
        st.tuples(st.sampled_from(sorted(names)), st.integers(0, 50)),
        min_size=1,
        max_size=most,
    )


def state(model):
    """Every variable of a model and its optimizer."""
    variables = list(model.variables)
    if getattr(model, "optimizer", None) is not None:
        variables += model.optimizer.variables
    return [(v.path, v.trainable, bits(v)) for v in variables]


@fuzz(spec=with_graph, edits=some(EDITS, 4))
def test_any_edits_give_a_model_that_works(spec, edits, tmp_path_factory):
    model, inputs = build(spec), data(spec)
    before = state(model)
    graph = rg.graph(model)
    with warnings.catch_warnings(record=True) as caught, policy(spec.policy):
        warnings.simplefilter("always")
        for name, number in edits:
            try:
                graph = EDITS[name](graph, number)
            except rg.UsageError:
                continue  # Not every edit fits everywhere: it is refused at once.
        assert graph.lint() == []
        new, again = (graph.build(mismatch="fit") for _ in range(2))
    assert [bits(v) for v in again.weights] == [bits(v) for v in new.weights]
    assert rg.graph(new).lint() == []
    assert state(model) == before
    assert not {id(v) for v in new.variables} & {id(v) for v in model.variables}
    found = answers(new, inputs)
    is_told = any(w.category is rg.EditNotSavedWarning for w in caught)
    if not spec.serialisable() or is_told or spec.lora:
        return
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    new.save(path)
    with policy(spec.policy):
        assert answers(keras.saving.load_model(path), inputs) == found
    path.unlink()


@fuzz(spec=with_graph, edits=some(ROUNDS, 2))
def test_edits_that_undo_each_other_leave_nothing(spec, edits):
    # On torch, layers that learn low-rank changes are not all that models track.
    model = build(dataclasses.replace(spec, lora=False))
    graph = rg.graph(model)
    with warnings.catch_warnings(), policy(spec.policy):
        warnings.simplefilter("ignore")
        for name, number in edits:
            graph = ROUNDS[name](graph, number)
        new = graph.build()
    if type(new) is not type(model):
        return  # Its constructor could not make it again: a plain model now.
    rg.verify(model, new, False).raise_if_different()
    assert answers(new, data(spec)) == answers(model, data(spec))

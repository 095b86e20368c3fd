"""Each mistake that real cloners made is reported; a right copy is not."""

import keras
import pytest
from conformance.checks import assert_copy
from conformance.mutants import MUTANTS, Replay

import regraft
from regraft._diff import Comparison
from regraft._probe import draw_inputs

NAMES = sorted(MUTANTS)
MODELS = sorted({m.build for m in MUTANTS.values()}, key=lambda build: build.__name__)
MASKED = ("two_masks", "mask_from_a_layer", "mask_out_of_a_nested_model")


def skip_if_impossible(build):
    if build.__name__ == "sparse" and keras.backend.backend() == "torch":
        pytest.skip("Keras has no sparse inputs on torch")


def test_every_lesson_has_its_mutants():
    assert {m.lesson for m in MUTANTS.values()} == set(range(1, 9))


@pytest.mark.parametrize("name", NAMES)
def test_mutant_is_killed(name):
    mutant = MUTANTS[name]
    skip_if_impossible(mutant.build)
    model = mutant.build()
    proof = regraft.verify(model, mutant.clone(model))
    assert not proof.same
    found = [f"{d.path}: {d.why}" for d in proof.differences]
    for path in mutant.paths:
        assert any(path in line for line in found), (path, found)


@pytest.mark.parametrize("name", NAMES)
def test_mutant_fails_the_checks_of_the_cases(name):
    """The cases of this folder are checked without `verify`, and as well."""
    mutant = MUTANTS[name]
    skip_if_impossible(mutant.build)
    model = mutant.build()
    inputs = draw_inputs(model)
    assert_copy(model, regraft.clone(model), inputs)
    with pytest.raises((AssertionError, ValueError)):
        assert_copy(model, mutant.clone(model), inputs)


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_right_copy_lives(build):
    skip_if_impossible(build)
    model = build()
    proof = regraft.verify(model, regraft.clone(model))
    assert proof.same, str(proof)
    assert proof.variables == len(model.variables)


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_right_replay_lives(build):
    """What makes a mutant differ is its mistake, not that it was replayed."""
    skip_if_impossible(build)
    model = build()
    differences = regraft.verify(model, Replay()(model)).differences
    if build.__name__ in MASKED:  # Masks are computed again, under other names.
        differences = [d for d in differences if "(inputs" in d.path]
    assert not differences, [str(d) for d in differences]


@pytest.mark.parametrize("name", NAMES)
def test_mutant_leaves_the_original_alone(name):
    """Otherwise two models could be equal because both are broken."""
    mutant = MUTANTS[name]
    skip_if_impossible(mutant.build)
    model = mutant.build()
    before = regraft.clone(model)
    mutant.clone(model)
    assert not [str(d) for d in Comparison(model, before).run()]

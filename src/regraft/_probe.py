"""Compares what two models do: outputs, masks, losses, gradients, a step.

The models are never run themselves. Copies of both are, so that neither their
random streams, nor their metrics, nor anything that a custom layer counts is
moved by being compared.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np

from . import _backends, _keras
from ._clone import clone_onto
from ._diff import Comparison
from ._errors import RegraftError, UsageError, UsageTypeError, explain
from ._values import Difference, compare_arrays, named_values, same_atom, to_numpy
from ._walk import Walk

_BATCH, _LENGTH = 2, 6

# How often a model is asked again that may not answer twice in the same way.
_TIMES = 3

Answer = dict[str, Any]
_UNCOPIED = "cannot be copied to be run"


def behaviour(
    left: Any, right: Any, inputs: Any, notes: list[str], *, are_alike: bool
) -> Iterator[Difference]:
    """Yields differences in what two models compute.

    Args:
        left: The first model.
        right: The second model.
        inputs: What to call them on; drawn from their input specs if None. If
            False, they are not called.
        notes: Gets a line if the models were not called, or not with success.
        are_alike: Whether no other difference was found. Then a model is asked again
            before it is said to do something else: it may do so each time.
    """
    if inputs is False:
        notes.append("not called, as they were told")
        return
    is_given = inputs is not None
    if not is_given:
        with _keras.quiet_globals():
            inputs = draw_inputs(left)
    _check_concrete(inputs)
    if inputs is None:
        notes.append("not called, as they say nothing of their inputs")
        return
    if not is_given and not getattr(left, "built", True):
        notes.append("not called, as they are not built")
        return
    name = getattr(left, "name", type(left).__name__)
    for training in (False, True):
        mode = "training" if training else "inference"
        where = f"{name}(inputs, {mode})"
        ask = partial(_call, inputs=inputs, training=training)
        mine, other = ask(left), ask(right)
        if is_given:
            _check_called(mine, other, name)
        elif "raises" in mine and not notes:
            notes.append(f"called on drawn inputs, which raises {mine['raises']}")
        if are_alike:
            mine, other = _steady(mine, other, partial(ask, left), where, notes)
        yield from _compare_answers(mine, other, where)
    if getattr(left, "compiled", False) and getattr(right, "compiled", False):
        # The step applies the gradients, so that they need no look of their own.
        question, where = _step, f"{name}.<after one training step>"
    elif isinstance(left, _keras.Layer):
        question, where = _gradients, f"{name}.<gradients>"
    else:
        return
    ask = partial(_attempt, question, inputs=inputs)
    mine, other = ask(left), ask(right)
    if are_alike:
        mine, other = _steady(mine, other, partial(ask, left), where, notes)
    yield from _compare_answers(mine, other, where)


def _steady(
    mine: Answer,
    other: Answer,
    again: Callable[[], Answer],
    where: str,
    notes: list[str],
) -> tuple[Answer, Answer]:
    """Leaves out what a model answers in another way each time that it is asked.

    Some draw numbers that nobody can fix, or read memory that nobody has written.

    Args:
        mine: What the first model answers.
        other: What the second one answers. If that is the same, nobody is asked again.
        again: Asks the first model once more.
        where: What was asked of them.
        notes: Gets a line if anything is left out.
    """
    moving: set[str] = set()
    if any(_compare_answers(mine, other, where)):
        for _ in range(_TIMES):
            moving |= _differing(mine, again())
    if not moving:
        return mine, other
    what = ", ".join(sorted(moving)[:3]) + (", ..." if len(moving) > 3 else "")
    notes.append(f"{where} is another one each time, and was not compared: {what}")
    left, right = (
        {key: value for key, value in answer.items() if key not in moving}
        for answer in (mine, other)
    )
    return left, right


def _differing(one: Answer, other: Answer) -> set[str]:
    if list(one) != list(other):
        return {*one, *other}
    pairs = {key: ({key: one[key]}, {key: other[key]}) for key in one}
    return {key for key, pair in pairs.items() if any(_compare_answers(*pair, ""))}


def _check_called(mine: Answer, other: Answer, name: str) -> None:
    if "raises" in mine and "raises" in other:
        raise UsageError(
            explain(
                "Neither model can be called on these inputs.",
                where="argument `inputs`",
                expected=f"inputs that {name!r} takes",
                received=f"inputs on which its call raises {mine['raises']}",
                fix="pass other inputs, None to have them drawn, or False to "
                "compare the models without calling them",
            )
        )
    if _UNCOPIED in mine and _UNCOPIED in other:
        raise UsageError(
            explain(
                "The models are called on copies, and neither can be copied.",
                where=name,
                expected="models that `clone` takes",
                received=f"models of which it says {mine[_UNCOPIED]}",
                fix="pass `inputs=False` to compare the models without calling them",
            )
        )


def _check_concrete(inputs: Any) -> None:
    for leaf in keras.tree.flatten(inputs):
        if isinstance(leaf, _keras.KerasTensor):
            raise UsageTypeError(
                explain(
                    "Models are compared on values.",
                    where="argument `inputs`",
                    expected="arrays or tensors that hold numbers",
                    received=f"{leaf!r}, which is symbolic",
                    fix="pass an array of the same shape, or None to have one drawn",
                )
            )


def draw_inputs(model: Any, seed: int = 0, rows: int = _BATCH) -> Any:
    """Draws inputs that fit a model's specs, or None where it states none."""
    specs = _keras.input_specs(model)
    if specs is None:
        return None
    generator = np.random.default_rng(seed)
    return keras.tree.map_structure(lambda spec: _draw(spec, generator, rows), specs)


def _draw(spec: Any, generator: Any, rows: int) -> Any:
    shape = [n if n is not None else _LENGTH for n in spec.shape]
    if shape and spec.shape[0] is None:
        shape[0] = rows
    dtype = keras.backend.standardize_dtype(spec.dtype)
    if dtype == "string":
        return np.full(shape, "a b", dtype=object)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return generator.integers(0, 2, shape).astype(dtype)
    return generator.normal(size=shape).astype(np.dtype(dtype))


def _attempt(question: Callable[[Any, Any], Answer], model: Any, inputs: Any) -> Answer:
    """Asks a copy of the model, with nobody's random numbers fixed."""
    try:
        probe = clone_onto(model)
    except RegraftError as error:
        return {_UNCOPIED: type(error).__name__}
    inputs = _copied(inputs)
    with _keras.fixed_globals(), _backends.active().fixed_global_rng():
        try:
            return question(probe, inputs)
        except Exception as error:  # Whatever a model raises is an answer, too.
            return {"raises": type(error).__name__}


def _copied(inputs: Any) -> Any:
    """Copies inputs, which a model may write to."""
    try:
        return Walk(inputs, keep=_is_constant).run()
    except RegraftError as error:
        raise UsageError(
            explain(
                "The models are called on copies of the inputs, which cannot be made.",
                where="argument `inputs`",
                expected="arrays or tensors, in lists, tuples or dicts",
                received=f"{inputs!r} (of type {type(inputs).__name__})",
                fix="pass the numbers themselves, or None to have some drawn",
            )
        ) from error


def _is_constant(obj: Any) -> bool:
    """Tells whether an object is a tensor that cannot be changed."""
    backend = _backends.active()
    is_changed = backend.is_mutable() and backend.buffers(obj)
    return keras.ops.is_tensor(obj) and not is_changed


def _call(model: Any, inputs: Any, training: bool) -> Answer:
    def ask(probe: Any, inputs: Any) -> Answer:
        kwargs = {"training": training} if _keras.takes_training(probe) else {}
        outputs = probe(inputs, **kwargs)
        answer: Answer = {}
        for i, output in enumerate(keras.tree.flatten(outputs)):
            is_symbolic = isinstance(output, _keras.KerasTensor)
            answer[f"output {i}"] = repr(output) if is_symbolic else output
            mask = _keras.mask_of(output)
            answer[f"mask {i}"] = mask
        if isinstance(probe, _keras.Layer):
            for i, loss in enumerate(probe.losses):
                answer[f"loss {i}"] = loss
            for variable in probe.non_trainable_variables:
                answer.update(named_values(variable, f"state {variable.path}"))
        return answer

    return _attempt(ask, model, inputs)


def _gradients(probe: Any, inputs: Any) -> Answer:
    gradients = _backends.active().gradients(probe, inputs)
    paths = [variable.path for variable in probe.trainable_variables]
    return {
        f"{i} {p}": g for i, (p, g) in enumerate(zip(paths, gradients, strict=True))
    }


def _step(probe: Any, inputs: Any) -> Answer:
    """Trains on one batch, with targets that suit the loss, if any do."""
    outputs = keras.tree.map_structure(to_numpy, probe(inputs))
    answer: Answer = {}
    generator = np.random.default_rng(1)

    def likely(output: Any) -> Any:
        return generator.random(output.shape).astype(output.dtype)

    def classes(output: Any) -> Any:
        return generator.integers(0, output.shape[-1], output.shape[:-1])

    for targets in (likely, classes):
        trial = clone_onto(probe)
        try:
            wanted = keras.tree.map_structure(targets, outputs)
            logs = trial.train_on_batch(inputs, wanted, return_dict=True)
        except Exception as error:  # The loss wants other targets.
            answer["raises"] = type(error).__name__
            continue
        answer = {f"log {name}": np.asarray(value) for name, value in logs.items()}
        for variable in [*trial.variables, *_slots(trial)]:
            answer.update(named_values(variable, f"{len(answer)} {variable.path}"))
        break
    return answer


def _slots(model: Any) -> list[Any]:
    return list(model.optimizer.variables) if model.optimizer is not None else []


def _compare_answers(left: Answer, right: Answer, path: str) -> Iterator[Difference]:
    if list(left) != list(right):
        yield Difference(path, list(left), list(right), "what it returns")
        return
    for key in left:
        mine, other, where = left[key], right[key], f"{path}.{key}"
        if isinstance(mine, str) or mine is None or other is None:
            if mine is not other and not same_atom(mine, other):
                yield Difference(where, mine, other, "value")
        elif hasattr(type(mine), "__array__") or isinstance(mine, numbers.Number):
            yield from compare_arrays(mine, other, where)
        else:  # Whatever else a call returns.
            for found in Comparison(mine, other).run():
                yield Difference(where, found.left, found.right, found.why)


def check_comparable(a: Any, b: Any) -> None:
    """Refuses what is no model, layer or Function."""
    for argument, model in (("a", a), ("b", b)):
        if not isinstance(model, _keras.Layer | _keras.Function):
            raise UsageTypeError(
                explain(
                    "Only models, layers and Functions can be compared.",
                    where=f"argument `{argument}`",
                    expected="a `keras.Model`, `keras.Layer` or `keras.Function`",
                    received=f"{model!r} (of type {type(model).__name__})",
                    fix="pass the model itself",
                )
            )

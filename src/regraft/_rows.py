"""Whether the rows of a batch are still apart when a graph has other input shapes.

Each call of a graph is checked by itself, with an open batch size. Some faults do not
show there: what folds an axis into the batch (`reshape(x, (-1, 4))`) and what unfolds
it with a number (`reshape(x, (-1, 8, 4))`) both follow, and together they make two rows
of one. So a graph in which that may happen is run as a whole, on a batch of known size.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import keras

from . import _keras
from ._errors import ShapeError, explain
from ._shape_checks import Shape, first_line, folds_rows

# Batch sizes that are no likely products of others.
_PRIMES = (31, 37, 41, 43, 47)
# Some of which an open size can be, in any model that was ever called.
_SIZES = (2, 16, 64)


@dataclass(frozen=True)
class Rows:
    """What was made of a batch.

    Attributes:
        given: The symbolic tensors, in any structure, with open sizes.
        count: How many rows they were given.
        made: The shapes that came out.
    """

    given: Any
    count: int
    made: list[Shape | None]

    def expected(self, now: Any) -> int | None:
        """Returns how many rows there are in tensors that stand for those before.

        None if the batch was not open, so that nobody can tell what the rows are.
        """
        pairs = zip(_keras.tensors_in(self.given), _keras.tensors_in(now), strict=False)
        for old, new in pairs:
            if old.shape[:1] == (None,):
                return self.count if new.shape[:1] == (None,) else new.shape[0]
        return None

    def mixed(self, now: Any, made: list[Shape | None]) -> int | None:
        """Returns how many rows come out now where they were kept apart before."""
        wanted = self.expected(now)
        for old, new in zip(self.made, made, strict=False):
            if old and new and old[0] == self.count and new[0] != wanted is not None:
                return new[0]
        return None


def run_before(
    trace: Callable[[Any], list[Shape | None]], given: Any, now: Any
) -> Rows | None:
    """Runs something on a batch; returns None if that cannot be done.

    Args:
        trace: Is given symbolic tensors of known sizes, and returns what comes out.
        given: Those that it was made for.
        now: Those that it is to be given.
    """
    tensors = [*_keras.tensors_in(given), *_keras.tensors_in(now)]
    taken = {size for x in tensors for size in x.shape}
    count = next((n for n in _PRIMES if n not in taken), _PRIMES[-1])
    for size in _SIZES:
        with suppress(Exception):  # Whatever a layer raises that cannot be traced.
            return Rows(given, count, trace(with_rows(given, count, size)))
        if not any(None in x.shape[1:] for x in _keras.tensors_in(given)):
            break
    return None


def with_rows(given: Any, count: int, size: int = 1) -> Any:
    """Returns symbolic tensors with a batch size, where it was open.

    Args:
        given: The tensors, in any structure.
        count: The batch size.
        size: What other open sizes are to be.
    """

    def known(x: Any) -> Any:
        if not isinstance(x, _keras.KerasTensor) or None not in x.shape:
            return x
        shape = [size if n is None else n for n in x.shape]
        shape[0] = count if x.shape[0] is None else shape[0]
        return _keras.KerasTensor(shape, dtype=x.dtype, name="rows")

    return keras.tree.map_structure(known, given)


def rows_before(model: Any, given: Any, now: Any) -> Rows | None:
    """Runs a model on a batch as it was, if it may mix rows.

    Args:
        model: A model with a graph, of which nothing but the inputs has changed.
        given: Its inputs, as they were.
        now: Its inputs, as they are to be.
    """
    if not _may_mix_rows(model):
        return None
    return run_before(lambda inputs: _trace(model, inputs), given, now)


def check_rows(model: Any, before: Rows | None) -> None:
    """Raises an error if a model mixes rows that it kept apart.

    Args:
        model: The model, on its new inputs.
        before: What `rows_before` returned.
    """
    if before is None:
        return
    inputs = _keras.inner_graph(model).input
    if any(None in x.shape[1:] for x in _keras.tensors_in(inputs)):
        return
    try:
        made = _trace(model, with_rows(inputs, before.count))
    except Exception as error:  # Whatever a layer raises.
        raise _refusal(model, f"{type(error).__name__}: {first_line(error)}") from error
    rows = before.mixed(inputs, made)
    if rows is not None:
        raise _refusal(model, f"{rows} rows of {before.expected(inputs)}")


def _trace(model: Any, inputs: Any) -> list[Shape | None]:
    """Returns the shapes of those outputs that have an open batch."""
    shapes = _keras.trace_call(model, (inputs,), {})
    said = [x.shape[:1] for x in _keras.inner_graph(model).outputs]
    pairs = zip(shapes, said, strict=True)
    return [shape if first == (None,) else None for shape, first in pairs]


def _may_mix_rows(model: Any) -> bool:
    """Tells whether there is code in a model that may fold an axis into the batch."""
    for layer in _keras.all_layers(model):
        graph = _keras.inner_graph(layer)
        if graph is None and not _keras.is_keras_code(layer):
            return True
        for node in _keras.own_nodes(graph) if graph is not None else ():
            if _keras.is_reshape(node.operation) and not node.is_input:
                (given, *_), (made, *_) = node.input_tensors, node.outputs
                if folds_rows(given.shape, made.shape):
                    return True
    return False


def _refusal(model: Any, received: str) -> ShapeError:
    return ShapeError(
        explain(
            "The model cannot follow the new input shape: called on a batch, it fails "
            "or mixes its rows.",
            where=model.name,
            expected="as many rows as it is given, as before",
            received=received,
            fix="look for a size that is written as a number in a reshape or a layer's "
            "code, and take it from `ops.shape(x)`, or choose another shape",
        )
    )

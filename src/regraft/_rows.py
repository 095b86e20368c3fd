"""Whether the rows of a batch are still apart when a graph has other input shapes.

Each call of a graph is checked by itself, with an open batch size. Some faults do not
show there: what folds an axis into the batch (`reshape(x, (-1, 4))`) and what unfolds
it with a number (`reshape(x, (-1, 8, 4))`) both follow, and together they make two rows
of one. So a graph in which that may happen is run as a whole, on a batch of known size.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import keras

from . import _keras
from ._errors import ShapeError, explain
from ._shape_checks import first_line, folds_rows

# A batch size that is no likely product of others.
ROWS = 7
# Some of which an open size can be, in any model that was ever called.
_SIZES = (1, 2, 16, 64)

Rows = list[int | None]


def traced_before(call: Any, struct: Any) -> Any:
    """Returns the shapes that come out of a call; None if that cannot be told.

    Args:
        call: Is given the arguments, with known sizes.
        struct: Symbolic tensors in any structure.
    """
    has_open_sizes = any(None in x.shape[1:] for x in _keras.tensors_in(struct))
    for size in _SIZES if has_open_sizes else _SIZES[:1]:
        with suppress(Exception):  # Whatever a layer raises that cannot be traced.
            return call(with_rows(struct, size))
    return None


def with_rows(struct: Any, size: int = 1) -> Any:
    """Returns symbolic tensors with a batch size, where it was open.

    Args:
        struct: The tensors, in any structure.
        size: What other open sizes are to be.
    """

    def known(x: Any) -> Any:
        if not isinstance(x, _keras.KerasTensor) or None not in x.shape:
            return x
        shape = [size if n is None else n for n in x.shape]
        shape[0] = ROWS if x.shape[0] is None else shape[0]
        return _keras.KerasTensor(shape, dtype=x.dtype, name="rows")

    return keras.tree.map_structure(known, struct)


def rows_in(struct: Any) -> int | None:
    """Returns the batch size of symbolic tensors."""
    shapes = [x.shape for x in _keras.tensors_in(struct)]
    return shapes[0][0] if shapes and shapes[0] else None


def rows_before(model: Any, old: Callable[[Any], Any]) -> Rows | None:
    """Returns how many rows a model makes of a batch, if it may mix them.

    Args:
        model: A model with a graph, of which only the inputs have changed.
        old: Returns the shape and dtype that an input had.
    """
    graph = _keras.inner_graph(model)
    if graph is None or not any(old(x)[0] != x.shape for x in graph.inputs):
        return None
    if not _may_mix_rows(model):
        return None
    inputs = keras.tree.map_structure(lambda x: _keras.detached(x, old(x)), graph.input)
    rows: Rows | None = traced_before(lambda given: _rows_of(model, given), inputs)
    return rows


def check_rows(model: Any, before: Rows | None) -> None:
    """Raises an error if a model mixes rows that it kept apart.

    Args:
        model: The model, on its new inputs.
        before: What `rows_before` returned.
    """
    inputs = _keras.inner_graph(model).input if before is not None else []
    if before is None or any(None in x.shape[1:] for x in _keras.tensors_in(inputs)):
        return
    given = with_rows(inputs)
    try:
        now = _rows_of(model, given)
    except Exception as error:  # Whatever a layer raises.
        raise _refusal(model, f"{type(error).__name__}: {first_line(error)}") from error
    for old, new in zip(before, now, strict=True):
        if old == ROWS and new != rows_in(given):
            raise _refusal(model, f"{new} rows of {rows_in(given)}")


def _rows_of(model: Any, inputs: Any) -> Rows:
    shapes = _keras.trace_call(model, (inputs,), {})
    return [shape[0] if shape else None for shape in shapes]


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

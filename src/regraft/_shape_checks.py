"""What must hold when a call is made on tensors of other shapes than before.

Most of what cannot follow another shape raises by itself. Some of it does not: a
reshape lets the batch swallow the change, a slice that took all takes a part. Such
calls compute something, but not what the model was made for.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import keras

from . import _keras
from ._errors import ShapeError, explain

Shape = tuple[int | None, ...]
Arguments = tuple[Any, dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """A call of a graph, as it was made and as it is made now.

    Attributes:
        operation: The layer or operation that is called.
        where: Its path.
        before: What it was called with, as symbolic tensors of no graph.
        now: What it is called with.
        sources: The tensors of the graph that it is called with.
    """

    operation: Any
    where: str
    before: Arguments
    now: Arguments
    sources: list[Any]

    @property
    def is_reshaped(self) -> bool:
        """Whether it is called with other shapes than before."""
        return self.shapes(self.before) != self.shapes(self.now)

    @property
    def takes_arrays(self) -> bool:
        """Whether there are arrays among what it is called with."""
        found = [x for x in _keras.leaves(self.now) if hasattr(x, "shape")]
        return len(found) > len(_keras.tensors_in(self.now))

    def shapes(self, arguments: Arguments) -> list[Shape]:
        """Returns the shapes of the tensors in arguments."""
        return [x.shape for x in _keras.tensors_in(arguments)]

    def dtypes(self, arguments: Arguments) -> str:
        """Returns the dtypes of the tensors in arguments, in words."""
        return ", ".join(x.dtype for x in _keras.tensors_in(arguments))


def check(call: Call, before: list[Shape], now: list[Shape]) -> None:
    """Raises an error if a call that was made on other shapes means something else.

    Args:
        call: The call.
        before: The shapes of its outputs.
        now: The shapes of its outputs now.
    """
    if len(before) != len(now):
        raise refusal(
            call,
            f"it returns {len(now)} tensors, where it returned {len(before)}",
            "leave the size of the axis as it is by which the outputs are counted",
        )
    empty = [shape for shape in now if any(n is not None and n < 1 for n in shape)]
    if empty:
        raise refusal(call, f"nothing is left of an axis: {empty[0]}")
    old, new = call.shapes(call.before), call.shapes(call.now)
    if _keras.is_reshape(call.operation):
        _check_reshape(call, old[0], before[0], new[0], now[0])
    if _keras.is_elementwise(call.operation):
        _check_broadcast(call, before[0], now[0])
    for axis, end in _keras.fixed_ends(call.operation, *call.before):
        if axis < min(len(old[0]), len(new[0])):
            size, now_size = old[0][axis], new[0][axis]
            if size is not None and size > 1 and end == size != now_size:
                raise refusal(
                    call,
                    f"it takes {end} of {_size(now_size)} along axis {axis}: its end "
                    "is written as a number, which was the end of the axis",
                    "write the slice without an end (`x[:, 1:]`), or with a negative",
                )


def _check_reshape(
    call: Call, old: Shape, made: Shape, new: Shape, makes: Shape
) -> None:
    """Compares group by group: what was reshaped into what must be so again."""
    groups = _groups(old, made) if len(old) == len(new) else None
    for taken, given in groups or ():
        size, becomes = _product(new[taken]), _product(makes[given])
        if size != becomes:
            received = (
                f"{_axes(new[taken])} would become {_axes(makes[given])}, and another "
                "axis, which has nothing to do with it, would make up for it"
            )
            if size is None or becomes is None:
                received = f"{_axes(new[taken])} cannot be reshaped to {makes[given]}"
            raise refusal(call, received, outputs=(made, makes))


def folds_rows(given: Shape, made: Shape) -> bool:
    """Tells whether a reshape may make other rows of a batch."""
    return None in given and _groups(given, made) is None


def _groups(old: Shape, new: Shape) -> list[tuple[slice, slice]] | None:
    """Pairs the axes of a tensor with those that a reshape made of them.

    Returns:
        Groups of neighbouring axes with the same number of elements, as small as
        they can be; or None if there are none.
    """
    groups = []
    i = j = 0
    while i < len(old) and j < len(new):
        start, first = i, j
        i, j = i + 1, j + 1
        while (mine := _measure(old[start:i])) != (other := _measure(new[first:j])):
            if mine < other and i < len(old):
                i += 1
            elif other < mine and j < len(new):
                j += 1
            else:
                return None
        groups.append((slice(start, i), slice(first, j)))
    rest = (*old[i:], *new[j:])
    return groups if all(n == 1 for n in rest) else None


def _measure(shape: Shape) -> tuple[int, int]:
    """Returns how many sizes are open, and the product of the others."""
    return shape.count(None), math.prod(n for n in shape if n is not None)


def _product(shape: Shape) -> int | None:
    return None if None in shape else math.prod(n for n in shape if n is not None)


def _check_broadcast(call: Call, made: Shape, makes: Shape) -> None:
    """Refuses that a tensor is repeated along an axis where it was not before."""
    old, new = _sizes(call.before, made), _sizes(call.now, makes)
    if old is None or new is None or len(made) != len(makes):
        return
    for axis, (before, now) in enumerate(zip(old, new, strict=True)):
        # What was repeated before may be so again.
        mine = [size for was, size in zip(before, now, strict=True) if was != 1]
        is_same = len({*before} - {1}) == 1
        if is_same and 1 in mine and len(set(mine)) > 1:
            sizes = " and ".join(map(_size, mine))
            raise refusal(
                call,
                f"sizes {sizes} along axis {axis}, where they were the same; one "
                "tensor would be repeated",
            )


def _sizes(arguments: Arguments, made: Shape) -> list[tuple[int | None, ...]] | None:
    """Returns the sizes of all tensors and arrays along each axis of the output.

    None if the output has other sizes: then it is not made element by element.
    """
    shapes = [tuple(x.shape) for x in _keras.leaves(arguments) if hasattr(x, "shape")]
    if any(len(shape) > len(made) for shape in shapes):
        return None
    aligned = [(1,) * (len(made) - len(shape)) + shape for shape in shapes]
    axes = list(zip(*aligned, strict=True))
    for sizes, size in zip(axes, made, strict=True):
        if size is not None and not {*sizes} <= {1, None, size}:
            return None
    return axes


def _size(size: int | None) -> str:
    return "an open number" if size is None else str(size)


def _axes(shape: Shape) -> str:
    return f"the axes {shape}" if len(shape) > 1 else f"the axis {shape}"


def cannot_follow(call: Call, error: Exception) -> ShapeError:
    """Makes the error for a call that raised one."""
    return refusal(call, f"{type(error).__name__}: {first_line(error)}")


def refusal(
    call: Call,
    received: str,
    fix: str | None = None,
    *,
    outputs: tuple[Shape, Shape] | None = None,
    needed: str = "",
) -> ShapeError:
    """Makes the error that says what cannot follow, with both shapes.

    Args:
        call: The call that cannot be made.
        received: What is wrong with it.
        fix: What to do, if it is not what is always to be done.
        outputs: The shapes of the output, before and now.
        needed: What else the layer needs.
    """
    operation = call.operation
    before, now = _shown(call.shapes(call.before)), _shown(call.shapes(call.now))
    if outputs is not None:
        before, now = f"{before} -> {outputs[0]}", f"{now} -> {outputs[1]}"
    weights = getattr(operation, "weights", ())
    if weights and not needed:
        shown = [f"{v.path} {tuple(v.shape)}" for v in weights[:3]]
        more = ", ..." if len(weights) > 3 else ""
        needed = f", for which its weights were made: {', '.join(shown)}{more}"
    return ShapeError(
        explain(
            "A layer cannot follow the new input shape."
            if isinstance(operation, _keras.Layer)
            else "An operation cannot follow the new input shape.",
            where=f"{call.where} ({type(operation).__name__}){_origin(call)}",
            expected=f"input shape {before}{needed}",
            received=f"input shape {now}: {received}",
            fix=fix or _fix(operation, bool(weights)),
        )
    )


def _shown(shapes: list[Shape]) -> str:
    return ", ".join(map(str, shapes))


def _origin(call: Call) -> str:
    """Names the layer that flattened what a layer with weights cannot take."""
    for tensor in call.sources:
        node = _keras.producer(tensor)
        kinds = keras.layers.Flatten | keras.layers.Reshape
        if node is not None and isinstance(node.operation, kinds):
            kind = type(node.operation).__name__
            return f", behind {node.operation.name} ({kind})"
    return ""


def _fix(operation: Any, has_weights: bool) -> str:
    if _keras.is_reshape(operation):
        return (
            "make the model with -1 for the axis that is to follow, or pool or resize "
            "to the old shape before it"
        )
    if has_weights:
        return (
            "pool or resize to the old shape before this layer, take a model without "
            "it (`include_top=False`), or draw new weights for the new shape with "
            "`clone_model(model, input_tensors=...)`"
        )
    return "choose another shape, or make the model without the fixed one"


def first_line(error: Exception) -> str:
    """Returns the first line that says something in an error's message."""
    plain = re.sub("\x1b\\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):
        lines = lines[1:]
    return lines[0][:300] if lines else "no message"


def move_shapes(struct: Any, shapes: dict[Shape, Shape]) -> Any:
    """Puts new shapes in the place of old ones in a structure of shapes."""
    if isinstance(struct, dict):
        return {key: move_shapes(value, shapes) for key, value in struct.items()}
    if isinstance(struct, list | tuple):
        if tuple(struct) in shapes:
            return type(struct)(shapes[tuple(struct)])
        if not all(isinstance(n, int | None) for n in struct):
            return type(struct)([move_shapes(value, shapes) for value in struct])
    return struct

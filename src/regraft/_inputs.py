"""What `input_tensors=` may be, and what a new graph starts from in its place."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import keras
import numpy as np

from . import _keras
from ._errors import UsageError, UsageTypeError, explain


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The inputs of a new graph.

    Attributes:
        struct: What the new model is made from: symbolic tensors, in the
            structure of the old model's inputs, without those that are fixed.
        tensors: For each input of the old model what takes its place.
    """

    struct: Any
    tensors: list[Any]


@keras.saving.register_keras_serializable(package="regraft")
class FixedInput(keras.layers.Layer):
    """Returns the same array whatever it is called with.

    A graph can compute only what comes from an input. This is how an array
    that was given for an input becomes a part of the graph.

    Args:
        value: The array.
        value_dtype: The dtype in which it is returned.
        repeat: Whether it is one row, to be repeated for each row of the batch.
        **kwargs: Arguments of every layer.
    """

    def __init__(
        self, value: Any, value_dtype: str, repeat: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.value = np.asarray(value)
        self.value_dtype = value_dtype
        self.repeat = repeat

    def build(self, input_shape: Any) -> None:
        """Marks the layer as built: it has no weights."""
        self.built = True

    def call(self, inputs: Any = None) -> Any:
        """Returns the array."""
        value = keras.ops.convert_to_tensor(self.value, dtype=self.value_dtype)
        if not self.repeat:
            return value
        rows = keras.ops.shape(inputs)[0]
        return keras.ops.broadcast_to(value, (rows, *self.value.shape[1:]))

    def compute_output_spec(self, inputs: Any = None) -> Any:
        """Returns the shape and dtype of the array."""
        shape = self.value.shape
        if self.repeat:
            shape = (inputs.shape[0], *shape[1:])
        return keras.KerasTensor(shape, dtype=self.value_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        """An array has no mask, whatever carries it."""

    def get_config(self) -> dict[str, Any]:
        """Returns the array, as nested lists, with the layer's configuration."""
        own = {"value": self.value.tolist(), "value_dtype": self.value_dtype}
        if self.repeat:
            own["repeat"] = True
        return {**super().get_config(), **own}


def of_sequence(given: Any, old: Any, *, where: str) -> Inputs:
    """Reads `input_tensors` for a Sequential model, which takes one tensor.

    Args:
        given: What the caller passed.
        old: The model's `InputLayer`, or None if it is not built.
        where: The model, for messages.
    """
    expected = keras.KerasTensor(()) if old is None else old.output
    if isinstance(given, list | tuple):
        if len(given) != 1:
            raise UsageError(
                explain(
                    "Argument `input_tensors` must contain a single tensor.",
                    where=where,
                    expected="one tensor: a Sequential model has one input",
                    received=f"{len(given)} of them",
                    fix="pass one tensor",
                )
            )
        given = given[0]
    if isinstance(given, dict):
        raise _other_structure(expected, given, where)
    return make([expected], [given], expected, where)


def of_graph(given: Any, expected: Any, *, where: str) -> Inputs:
    """Reads `input_tensors` for a Functional model.

    Args:
        given: What the caller passed.
        expected: The model's inputs, in their structure.
        where: The model, for messages.
    """
    if isinstance(expected, list | tuple) and len(expected) == 1:
        is_leaf = not isinstance(given, list | tuple | dict)
        given = [given] if is_leaf else given
    elif isinstance(expected, _keras.KerasTensor) and isinstance(given, list | tuple):
        given = given[0] if len(given) == 1 else given
    given = _in_order_of(expected, given)
    as_tuples = keras.tree.lists_to_tuples
    try:
        keras.tree.assert_same_structure(as_tuples(given), as_tuples(expected))
    except (ValueError, TypeError) as error:
        raise _other_structure(expected, given, where) from error
    return make(
        keras.tree.flatten(expected), keras.tree.flatten(given), expected, where
    )


def _in_order_of(expected: Any, given: Any) -> Any:
    """Returns a structure whose dicts are of the kinds that another structure has.

    A dict is flattened by its sorted keys, an `OrderedDict` as it stands.
    """
    if isinstance(expected, dict) and isinstance(given, dict):
        if expected.keys() != given.keys():
            return given
        ordered = copy.copy(expected)
        for key in expected:
            ordered[key] = _in_order_of(expected[key], given[key])
        return ordered
    if isinstance(expected, list | tuple) and isinstance(given, list | tuple):
        if len(expected) != len(given):
            return given
        items = map(_in_order_of, expected, given)
        if hasattr(given, "_fields"):  # A named tuple.
            return type(given)(*items)
        return list(items) if isinstance(given, list) else tuple(items)
    return given


def make(
    expected: list[Any],
    given: list[Any],
    struct: Any,
    where: str,
    *,
    repeat: bool = False,
) -> Inputs:
    """Makes the inputs of a new graph.

    Args:
        expected: The inputs of the old one.
        given: For each of them a symbolic tensor, or an array that fixes it.
        struct: The structure of the inputs.
        where: The model, for messages.
        repeat: Whether an array of one row stands for every row of a batch, where
            there is another input that tells how many there are.
    """
    found = [_leaf(old, new, where) for old, new in zip(expected, given, strict=True)]
    fixed = [not isinstance(new, _keras.KerasTensor) for new in found]
    if not any(fixed):
        packed = keras.tree.pack_sequence_as(struct, found)
        return Inputs(_in_order_of(struct, packed), found)  # torch sorts dicts.
    names = [f"input_wrapper_for_{_name(old)}" for old in expected]
    if all(fixed):
        carriers = [
            keras.Input(
                batch_shape=new.shape, dtype=old.dtype, name=name, optional=True
            )
            for old, new, name in zip(expected, found, names, strict=True)
        ]
        kept = _in_order_of(struct, keras.tree.pack_sequence_as(struct, carriers))
        names = [f"{name}_value" for name in names]
    else:
        first = next(new for new in found if isinstance(new, _keras.KerasTensor))
        carriers = [first] * len(found)
        pairs = zip(found, fixed, strict=True)
        leaves = [_DROPPED if is_fixed else tensor for tensor, is_fixed in pairs]
        kept = _without_dropped(keras.tree.pack_sequence_as(struct, leaves))
    tensors = []
    for i, (old, new) in enumerate(zip(expected, found, strict=True)):
        if fixed[i]:
            one = repeat and not all(fixed) and new.shape[:1] == (1,)
            new = FixedInput(new, old.dtype, one, name=names[i])(carriers[i])
        tensors.append(new)
    return Inputs(kept, tensors)


_DROPPED = object()


def _without_dropped(struct: Any) -> Any:
    if isinstance(struct, dict):
        kept = {key: _without_dropped(value) for key, value in struct.items()}
        return {key: value for key, value in kept.items() if value is not _DROPPED}
    if isinstance(struct, list | tuple):
        items = [_without_dropped(value) for value in struct]
        left = [item for item in items if item is not _DROPPED]
        return left if isinstance(struct, list) else tuple(left)
    return struct


def _name(tensor: Any) -> str:
    layer = _keras.input_layer_of(tensor)
    return "input" if layer is None else layer.name


def _leaf(old: Any, new: Any, where: str) -> Any:
    """Returns the symbolic tensor, or the array, that was given for an input."""
    if isinstance(new, _keras.InputLayer):
        return new.output
    if isinstance(new, _keras.KerasTensor):
        return new if _keras.input_layer_of(new) is not None else like(new)
    is_array = isinstance(new, np.ndarray | np.generic | _keras.Variable)
    if is_array or keras.ops.is_tensor(new):
        return _keras.to_numpy(new)
    raise UsageTypeError(
        explain(
            "All entries in `input_tensors` must be KerasTensors, InputLayers or "
            "arrays.",
            where=f"{where}, input {_name(old)!r}",
            expected="what `keras.Input(...)` returns, another symbolic tensor, an "
            "`InputLayer`, or an array or tensor whose value is then fixed",
            received=f"{new!r} (of type {type(new).__name__})",
            fix="pass for example `keras.Input(shape)`",
        )
    )


def like(tensor: Any) -> Any:
    """Returns a new input with the shape, dtype and kind of a symbolic tensor.

    A tensor in the middle of a graph, or of none, cannot be an input itself.
    The name is the one that `keras.Model` gives to an input of this kind.
    """
    return keras.Input(
        batch_shape=tensor.shape,
        dtype=tensor.dtype,
        sparse=tensor.sparse,
        ragged=getattr(tensor, "ragged", None),
        name=f"{tensor.name}CLONE",
    )


def _other_structure(expected: Any, given: Any, where: str) -> UsageError:
    wanted, got = len(keras.tree.flatten(expected)), len(keras.tree.flatten(given))
    counted = f"{wanted} expected, {got} received; " if wanted != got else ""
    return UsageError(
        explain(
            "`input_tensors` must have the same structure as model.input.",
            where=where,
            expected=_outline(expected),
            received=_outline(given),
            fix=f"{counted}pass one tensor for each input, in the same structure",
        )
    )


def _outline(struct: Any) -> str:
    def leaf(x: Any) -> str:
        return getattr(x, "name", None) or type(x).__name__

    return str(keras.tree.map_structure(leaf, struct))

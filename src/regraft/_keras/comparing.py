"""What says nothing about a model and is left out of a comparison."""

from __future__ import annotations

from typing import Any

from keras.src.ops.operation import Operation
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.utils.python_utils import is_default

from .classes import Initializer, Layer, Tracker, Trainer
from .graph import NODE_LISTS, is_graph
from .layers import LOSS_LISTS
from .optimizers import variable_key
from .training import RUNTIME_STATE
from .wrappers import CHECKPOINT_PARTS, plain_container


def is_automatic_tensor_name(name: str) -> bool:
    """Tells whether a counter gave a symbolic tensor its name."""
    return name.startswith("keras_tensor")


# By which TensorFlow's checkpoints find the parts of an object.
_CHECKPOINT_REFERENCES = frozenset(
    {
        *CHECKPOINT_PARTS,
        "_self_setattr_tracking",
        "_self_unconditional_deferred_dependencies",
        "_self_update_uid",
        "_self_name_based_restores",
        "_self_saveable_object_factories",
    }
)


def forget_bookkeeping(obj: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Removes attributes that say nothing about what a model is or does.

    Returns:
        The same dict.
    """
    if isinstance(obj, Operation):
        for name in (*NODE_LISTS, *LOSS_LISTS, "_loss_ids", *RUNTIME_STATE):
            state.pop(name, None)
        if is_graph(obj):
            state.pop("_nodes", None)
        for name in ("_call_signature", "_tracker", "_called"):
            state.pop(name, None)
        if not is_default(getattr(obj, "get_config", None)):
            # How it was made, which is not what it is: a class that has a
            # configuration of its own can be made in several ways.
            state.pop("_auto_config", None)
    if isinstance(obj, Trainer) and state.get("_jit_compile", False) is None:
        state["_jit_compile"] = obj.jit_compile  # It decides when it is first asked,
        vars(obj)["_jit_compile"] = None  # and has not been asked by anybody else.
    if "_parameters" in state and _is_told_its_mode(obj):
        state.pop("training", None)
    if isinstance(obj, Tracker):
        state.pop("stored_ids", None)  # Also of what is gone, whose id others may have.
    if isinstance(obj, BaseOptimizer):
        _key_by_position(obj, state)
    if isinstance(obj, Initializer) and state.get("_init_seed", 0) is None:
        state.pop("seed", None)  # Drawn when the initializer was made.
    for name in _CHECKPOINT_REFERENCES & state.keys():
        del state[name]
    return state


def _is_told_its_mode(module: Any) -> bool:
    """Tells whether what torch notes of a module's mode says nothing about it.

    Keras's loops note it on each module that they run. A layer is told by an argument
    of its call, and what holds parameters and is never called need not know.
    """
    if isinstance(module, Layer):
        return True
    call = getattr(type(module), "forward", None)
    return getattr(call, "__name__", None) == "_forward_unimplemented"


def _key_by_position(optimizer: Any, state: dict[str, Any]) -> None:
    """Writes numbers of variables for their identities, which no copy can keep."""
    keys = [variable_key(optimizer, v) for v in optimizer._trainable_variables]
    names = {key: f"variable {i}" for i, key in enumerate(keys) if key is not None}
    excluded = state.get("_exclude_from_weight_decay")
    for key in excluded or ():  # Maybe of variables that it was not yet built for.
        if isinstance(key, str):  # TensorFlow: a name and a number that nobody shares.
            names.setdefault(key, key.rpartition("_")[0])
    for name, value in state.items():
        found = _renamed(value, names)
        if isinstance(found, dict):  # Slots of a kind, each by variable.
            inside = {k: _renamed(v, names) for k, v in found.items()}
            if any(inside[k] is not v for k, v in found.items()):
                found = inside
        state[name] = found


def _renamed(value: Any, names: dict[Any, str]) -> Any:
    """Returns a dict or a set with other keys, or the value if it has none of these."""
    plain = plain_container(value)
    is_keyed = isinstance(plain, dict | set | frozenset)
    if not is_keyed or names.keys().isdisjoint(plain):
        return value
    if isinstance(plain, dict):
        return {names.get(k, k): v for k, v in plain.items()}
    return {names.get(k, k) for k in plain}


def settings(operation: Any) -> dict[str, Any]:
    """Returns what an operation was made with, apart from its name and precision."""
    if isinstance(operation, Layer):
        found = dict(operation.get_config())
        for name in ("name", "trainable", "dtype"):
            found.pop(name, None)
        return found
    state = forget_bookkeeping(operation, dict(vars(operation)))
    for name in ("name", "_remat_mode", "_auto_config"):
        state.pop(name, None)
    return state


_COMMUTATIVE = frozenset(
    {
        "Add",
        "Average",
        "BitwiseAnd",
        "BitwiseOr",
        "BitwiseXor",
        "Equal",
        "LogicalAnd",
        "LogicalOr",
        "LogicalXor",
        "Maximum",
        "Minimum",
        "Multiply",
        "NotEqual",
    }
)


def is_commutative(operation: Any) -> bool:
    """Tells whether the order of what an operation is given makes no difference."""
    kind = type(operation)
    return kind.__name__ in _COMMUTATIVE and kind.__module__.startswith("keras.src.")

"""Names of layers, variables, slots and outputs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.utils.naming import to_snake_case

from .classes import InputLayer
from .policies import DTypePolicyMap


def snake_case(name: str) -> str:
    """Returns the name that Keras makes of a class's name for its instances."""
    return str(to_snake_case(name))


def set_name(operation: Any, name: str) -> None:
    """Renames an operation and, for an input, the symbolic tensor it stands for."""
    if isinstance(operation, InputLayer):
        for node in operation._inbound_nodes:
            for tensor in node.outputs:
                if tensor.name == operation.name:
                    tensor.name = name
    vars(operation)["name"] = name


def path_of_layer(operation: Any) -> str:
    """Returns the path under which a layer was built, or nothing."""
    return vars(operation).get("_path") or ""


@contextlib.contextmanager
def scope_around(operation: Any) -> Iterator[None]:
    """Lets what is built inside have paths like those of a layer."""
    with contextlib.ExitStack() as scopes:
        for name in path_of_layer(operation).split("/")[:-1]:
            scopes.enter_context(keras.name_scope(name))
        yield


def move_paths(operation: Any, moved: Any) -> None:
    """Rewrites the paths that a layer remembers, and is known by to its policies."""
    state = vars(operation)
    policies, path = state.get("_dtype_policy"), state.get("_path")
    if path and isinstance(policies, DTypePolicyMap) and moved(path) != path:
        _move_policy(policies, path, moved(path))
    for attribute in ("_path", "_parent_path"):
        if state.get(attribute):
            state[attribute] = moved(state[attribute])


def _move_policy(policies: Any, old: str, new: str) -> None:
    """Lets a layer find in a map of policies what it found under its old path."""
    found = policies[old]
    if old in policies:
        entries = policies._policy_map.items()
        policies._policy_map = {new if k == old else k: v for k, v in entries}
    elif _policies_at(policies, old) != _policies_at(policies, new):
        policies[new] = found  # A pattern is of one path and not of the other.


def _policies_at(policies: Any, path: str) -> list[Any]:
    return [policies._policy_map[k] for k in policies if re.fullmatch(k, path)]


def rename_slots(optimizer: Any, names: dict[str, str]) -> None:
    """Follows renamed variables in the names of an optimizer's slots."""
    for slot in optimizer._variables:
        owners = [old for old in names if slot.name.startswith(f"{old}_")]
        if owners:
            old = max(owners, key=len)
            name = names[old] + slot.name[len(old) :]
            state = vars(slot)
            state["_path"] = state["_path"].removesuffix(slot.name) + name
            state["_name"] = name


def set_output_names(model: Any, names: list[str]) -> None:
    """Says what the outputs of a model are called."""
    if "output_names" in vars(model):
        model.output_names = list(names)


def rename_outputs(trainer: Any, names: dict[str, str]) -> None:
    """Follows renamed outputs in all that `compile()` keyed by output names.

    A model that returns a dict has its losses by the keys of that dict, which stay as
    they are, also where a layer has the same name.
    """
    state = vars(trainer)
    output_names = state.get("output_names")
    if not output_names:
        return
    changed = {old: names[old] for old in output_names if old in names}
    if not changed:
        return
    keyed = _KEYED_BY_OUTPUT
    if isinstance(state.get("_outputs_struct"), dict):
        keyed = frozenset({"output_names"})
        metrics = state.get("_compile_metrics")
        resolved = getattr(metrics, "_resolved_output_names", None)
        if resolved:  # Perhaps the very list that is about to change.
            vars(metrics)["_resolved_output_names"] = [*resolved]
    output_names[:] = [changed.get(old, old) for old in output_names]
    holders = [trainer, state.get("_compile_loss"), state.get("_compile_metrics")]
    config = state.get("_compile_config")
    holders.append(getattr(config, "config", None))
    for holder in holders:
        if holder is None:
            continue
        own = holder if isinstance(holder, dict) else vars(holder)
        for attribute in keyed & own.keys():
            own[attribute] = _rename_keys(own[attribute], changed)


_KEYED_BY_OUTPUT = frozenset(
    {
        "loss",
        "loss_weights",
        "metrics",
        "weighted_metrics",
        "output_names",
        "_user_loss",
        "_user_loss_weights",
        "_user_metrics",
        "_user_weighted_metrics",
    }
)


def _rename_keys(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        items = [(names.get(k, k), v) for k, v in value.items()]
        value.clear()
        for key, item in items:
            value[key] = item
        return value
    if isinstance(value, list) and all(isinstance(x, str) for x in value):
        return [names.get(x, x) for x in value]
    return value

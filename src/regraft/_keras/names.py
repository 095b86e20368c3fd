"""Names of layers, variables, slots and outputs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

import keras
from keras.src.utils.naming import to_snake_case

from .._identity import address
from .classes import InputLayer
from .policies import DTypePolicyMap
from .wrappers import plain_container, refill

# Older versions of Keras have none.
OptimizerMap: Any = getattr(keras.optimizers, "OptimizerMap", ())


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
    """Lets a layer find in a map of policies what it found under its old path.

    A class that makes the layer when it is loaded looks there still.
    """
    found = policies[old]
    if old in policies or _policies_at(policies, old) != _policies_at(policies, new):
        policies._policy_map[new] = found


def _policies_at(policies: Any, path: str) -> list[Any]:
    return [policies._policy_map[k] for k in policies if re.fullmatch(k, path)]


def move_optimizer_paths(optimizers: Iterable[Any], moved: dict[str, str]) -> None:
    """Lets variables find the optimizers that they found under their old paths.

    Args:
        optimizers: Optimizers; some may choose others by the paths of variables.
        moved: The new path of each variable whose path changed, by the old one.
    """
    optimizers = list(optimizers)
    for optimizer in optimizers:
        _move_patterns(vars(optimizer).get("exclude_layers"), moved)
    found = [vars(optimizer).get("_optimizer_map") for optimizer in optimizers]
    maps = {address(x): x for x in found if isinstance(x, OptimizerMap)}
    for choice in maps.values():
        wanted = {new: _chosen(choice, old) for old, new in moved.items()}
        table = choice._optimizer_map
        entries = {moved.get(key, key): value for key, value in table.items()}
        table.clear()
        table.update(entries)
        for path, optimizer in wanted.items():
            # A pattern is of one path and not of the other.
            if optimizer is not None and _chosen(choice, path) is not optimizer:
                table[path] = optimizer


def _move_patterns(patterns: Any, moved: dict[str, str]) -> None:
    """Lets patterns, of which some are found in old paths, be found in the new ones."""
    if not isinstance(patterns, list):
        return

    def are_found(path: str) -> bool:
        return any(re.search(pattern, path) for pattern in patterns)

    lost = [new for old, new in moved.items() if are_found(old) and not are_found(new)]
    patterns += map(re.escape, lost)


def _chosen(choice: Any, path: str) -> Any:
    """Returns the optimizer for a path; None if several patterns are of that path."""
    try:
        return choice[path]
    except ValueError:
        return None


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
    output_names = state.get("output_names") or ()
    changed = {old: names[old] for old in output_names if old in names}
    if not changed:
        return
    loss, metrics = state.get("_compile_loss"), state.get("_compile_metrics")
    outputs, keyed = state.get("_outputs_struct"), _KEYED_BY_OUTPUT
    if isinstance(outputs, dict):
        keyed = frozenset({"output_names"})
        resolved = getattr(metrics, "_resolved_output_names", None)
        if resolved:  # Perhaps the very list that is about to change.
            vars(metrics)["_resolved_output_names"] = [*resolved]
    config = getattr(state.get("_compile_config"), "config", None)
    made = [vars(x) for x in (loss, metrics) if x is not None]
    _rename_in([state, *made, config or {}], keyed, changed)
    _rename_losses(loss, changed)
    if not _is_flat_dict(outputs):
        _rename_metrics(metrics, changed)


def _rename_in(
    holders: list[dict[str, Any]], attributes: frozenset[str], names: dict[str, str]
) -> None:
    """Renames keys of dicts and items of lists of names, each container once."""
    done: set[int] = set()
    for holder in holders:
        for attribute in attributes & holder.keys():
            value = holder[attribute]
            key = address(plain_container(value))
            if key in done:
                continue
            done.add(key)
            if isinstance(value, dict):
                refill(value, {names.get(k, k): v for k, v in value.items()})
            elif value and attribute in _NAMES:
                value[:] = [names.get(x, x) for x in value]


def _is_flat_dict(outputs: Any) -> bool:
    """Tells whether metrics are named after keys of a dict of outputs."""
    return isinstance(outputs, dict) and not any(
        map(keras.tree.is_nested, outputs.values())
    )


def _rename_losses(loss: Any, names: dict[str, str]) -> None:
    """Follows renamed outputs in the losses that were made in the first step."""
    found = getattr(loss, "_flat_losses", None)
    if not found:
        return
    trackers = [*loss.metrics, *[None] * len(found)]
    for i, (one, tracker) in enumerate(zip(found, trackers, strict=False)):
        if one.path and not isinstance(one.path[-1], int):
            continue  # It has the name of a key.
        start = "/".join(map(str, one.path[:-1]))
        start = f"{start}/" if start else ""
        own = one.name.removeprefix(start)
        name = start + names.get(own, own)
        found[i] = one._replace(name=name)
        if tracker is not None and tracker.name == f"{one.name}_loss":
            vars(tracker)["name"] = f"{name}_loss"


def _rename_metrics(metrics: Any, names: dict[str, str]) -> None:
    """Follows renamed outputs in the metrics that were made in the first step."""
    for kind in ("_flat_metrics", "_flat_weighted_metrics"):
        for one in getattr(metrics, kind, ()):
            state = {} if one is None else vars(one)
            if state.get("output_name") in names:
                state["output_name"] = names[state["output_name"]]


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
        "_resolved_output_names",
    }
)
# Strings in the other lists are names of losses and metrics.
_NAMES = ("output_names", "_resolved_output_names")

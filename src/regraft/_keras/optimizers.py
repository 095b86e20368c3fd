"""Optimizers: what they keep for which variable."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import keras

from .. import _backends
from .._errors import CopyError, explain
from .._identity import address, replace_values
from .classes import Variable
from .globals import quiet_globals
from .variables import raw_value, set_number, set_path, to_numpy
from .wrappers import containers, plain_container, refill


def rebuild_optimizer(optimizers: Iterable[Any]) -> None:
    """Gives each optimizer the state it had when it was first built."""
    was_built = []
    for opt in optimizers:
        if opt.built:
            variables = list(opt._trainable_variables)
            was_built.append((opt, variables, state_by_attribute(opt)))
        elif isinstance(vars(opt).get("_iterations"), Variable):
            opt._iterations.assign(0)  # One that others work for may count as well.
    for opt, _, _ in was_built:
        unbuild_optimizer(opt)
    with quiet_globals():
        for opt, variables, _ in was_built:
            if not opt.built:  # A wrapped optimizer is built by the one around it.
                build_optimizer(opt, variables)
    for opt, _, before in was_built:
        tracked = {address(v) for v in opt.variables}
        for name, variable in before.items():
            new = vars(opt).get(name)
            if new is variable and address(variable) not in tracked:
                raise _cannot_start_anew(opt, name)
            if isinstance(new, Variable):
                set_number(new, variable)
                set_path(new, variable.path)  # TensorFlow builds it in a scope.


def build_optimizer(optimizer: Any, variables: list[Any]) -> None:
    """Builds an optimizer under the strategy under which it was made, or under none."""
    with optimizer_scope(optimizer):
        optimizer.build(variables)


def optimizer_scope(optimizer: Any) -> AbstractContextManager[None]:
    """Enters the strategy under which an optimizer was made, or leaves any."""
    strategy = vars(optimizer).get("_distribution_strategy")
    return _backends.active().scope_of(strategy)


def _cannot_start_anew(optimizer: Any, name: str) -> CopyError:
    kind = type(optimizer).__name__
    return CopyError(
        explain(
            "An optimizer cannot start anew: nobody knows how one of its variables "
            "starts.",
            where=f"{optimizer.name}.{name}",
            expected="a variable made in `build()`, or an optimizer that can be made "
            "again with `from_config(get_config())`",
            received=f"{kind}, which made it in `__init__`",
            fix=f"make the variable in `build()`, give {kind} a `get_config()` that "
            "its constructor takes, or pass `compiled='copy'` or `compiled='drop'`",
        )
    )


def _constructor_variables(optimizer: Any) -> list[tuple[Any, Any]]:
    """Returns variables that an optimizer had before `build()`, as they were then.

    Only another one, made from the configuration, can tell which these are.
    """
    held = state_by_attribute(optimizer)
    if not held:
        return []
    try:
        with quiet_globals(), optimizer_scope(optimizer):
            other = type(optimizer).from_config(optimizer.get_config())
    except Exception:  # Whatever a user's constructor raises: it cannot be asked.
        return []
    found = state_by_attribute(other)
    return [(variable, found[n]) for n, variable in held.items() if n in found]


def reindex_optimizer(new: Any, variables: Iterable[tuple[Any, Any]]) -> None:
    """Rewrites the dicts by which an optimizer finds what belongs to a variable.

    Their keys are identities: on TensorFlow, names of the variables' resources,
    which are known only when these have been made.

    Args:
        new: The copy of an optimizer.
        variables: All variables of the model, each with its copy.
    """
    pairs = (
        (variable_key(new, old), variable_key(new, twin)) for old, twin in variables
    )
    rekey(new, pairs)


def variable_keys(optimizer: Any, variables: Iterable[Any]) -> list[Any]:
    """Returns what an optimizer knows variables by, at the moment."""
    return [variable_key(optimizer, variable) for variable in variables]


def rekey(holder: Any, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Writes other keys into the dicts and sets by which an object finds things.

    Args:
        holder: An optimizer or a layer.
        pairs: Old keys, each with the new one; None for what has no key.
    """
    keys = {old: twin for old, twin in pairs if old is not None and twin is not None}
    state = vars(holder)
    for name, value in state.items():
        if type(value) is frozenset and not keys.keys().isdisjoint(value):
            state[name] = frozenset(keys.get(key, key) for key in value)
    for held in containers(state.values()):
        plain = plain_container(held)
        if isinstance(plain, dict | set) and not keys.keys().isdisjoint(plain):
            _rekey(plain, keys)
            if plain is not held:
                held._update_snapshot()


def _rekey(plain: Any, keys: dict[Any, Any]) -> None:
    """Writes other keys into a dict or a set, past the tracking of one Keras wraps."""
    if isinstance(plain, set):
        items = [keys.get(item, item) for item in plain]
        set.clear(plain)
        set.update(plain, items)
        return
    base: Any = OrderedDict if isinstance(plain, OrderedDict) else dict
    pairs = [(keys.get(key, key), value) for key, value in base.items(plain)]
    base.clear(plain)
    for key, value in pairs:
        base.__setitem__(plain, key, value)


def retell(holder: Any, moved: dict[str, str]) -> None:
    """Writes the new paths of variables where an object keeps the old ones.

    Args:
        holder: An optimizer or a layer.
        moved: New paths, by the old ones.
    """
    rekey(holder, moved.items())
    state = vars(holder)
    replace_values(state, lambda value: _retold(value, moved))
    for held in containers(state.values()):
        plain = plain_container(held)
        if isinstance(plain, list | dict):
            changed = replace_values(plain, lambda value: _retold(value, moved))
            if changed and plain is not held:
                held._update_snapshot()


def _retold(value: Any, moved: dict[str, str]) -> Any:
    """Returns the new path for an old one, also in a tuple."""
    if type(value) is str:
        return moved.get(value, value)
    if type(value) is tuple and any(type(x) is str and x in moved for x in value):
        return tuple(_retold(part, moved) for part in value)
    return value


def inner_optimizers(optimizer: Any) -> list[Any]:
    """Returns the optimizers that an optimizer works with."""
    found = keras.tree.flatten([x for x in vars(optimizer).values() if _is_plain(x)])
    return [x for x in found if isinstance(x, keras.optimizers.Optimizer)]


def _is_plain(x: Any) -> bool:
    return isinstance(x, keras.optimizers.Optimizer | list | tuple)


def set_strategy(optimizer: Any, strategy: Any) -> None:
    """Says under which `tf.distribute` strategy an optimizer makes its variables."""
    vars(optimizer)["_distribution_strategy"] = strategy


def slots_with_variables(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """Yields what an optimizer keeps for a variable, with the variable.

    The name of a slot begins with the path of its variable.
    """
    starts = {v.path.replace("/", "_"): v for v in optimizer._trainable_variables}
    for slot in slots(optimizer):
        owners = [
            start
            for start, variable in starts.items()
            if slot.name.startswith(start) and slot.shape == variable.shape
        ]
        if owners:
            yield slot, starts[max(owners, key=len)]


def variable_key(optimizer: Any, variable: Any) -> Any:
    """Returns what an optimizer knows a variable by; None if it has no value yet."""
    if raw_value(variable) is None:
        return None
    try:
        return optimizer._var_key(variable)
    except AttributeError:  # TensorFlow: a plain tensor was put in a variable's place.
        return None


def variables_by_slot(optimizer: Any) -> Iterator[tuple[Any, Any]]:
    """Yields what an optimizer made in the likeness of a variable, with the variable.

    Such a slot has the path of the variable in its name, and whatever its shape is,
    the variable's dtype.
    """
    starts = {v.path.replace("/", "_"): v for v in optimizer._trainable_variables}
    for slot in slots(optimizer):
        owners = [start for start in starts if slot.name.startswith(f"{start}_")]
        if owners:
            yield slot, starts[max(owners, key=len)]


def has_left_variables(optimizer: Any, new: Any) -> bool:
    """Tells whether a copied optimizer works on none of the original's variables."""
    old = {address(variable) for variable in optimizer._trainable_variables}
    return not any(address(variable) in old for variable in new._trainable_variables)


def unbuild_optimizer(optimizer: Any) -> None:
    """Brings an optimizer back to where it knows no variables."""
    kept = [optimizer._iterations]
    if isinstance(optimizer._learning_rate, Variable):
        kept.append(optimizer._learning_rate)
    for variable, start in _constructor_variables(optimizer):
        kept.append(variable)
        variable.assign(start.value)
    tracker = optimizer._tracker
    tracker.unlock()
    past = {address(v) for v in optimizer._variables} - {address(v) for v in kept}
    for name, (_, store) in tracker.config.items():
        refill(store, kept)
        tracker.stored_ids[name] = {id(v) for v in kept}
    _forget_slots(optimizer, past)
    refill(optimizer._trainable_variables_indices, {})
    optimizer._trainable_variables = []
    optimizer._iterations.assign(0)
    optimizer.built = False


def _forget_slots(optimizer: Any, past: set[int]) -> None:
    """Takes slots out of the lists and dicts to which `build()` may add others."""

    def is_past(x: Any) -> bool:
        parts = x if isinstance(x, tuple) else (x,)
        return any(address(part) in past for part in parts)

    for held in containers(vars(optimizer).values()):
        plain = plain_container(held)
        if isinstance(plain, dict):
            left = {k: v for k, v in plain.items() if not is_past(v)}
            if len(left) < len(plain):
                refill(held, left)
        elif isinstance(plain, list) and any(map(is_past, plain)):
            rest = [x for x in plain if not is_past(x)]
            # None stands for a variable that needs no slot.
            refill(held, [] if all(x is None for x in rest) else rest)


def slots(optimizer: Any) -> list[Any]:
    """Returns the variables that an optimizer made for those it works on."""
    kept = {address(optimizer._iterations), address(optimizer._learning_rate)}
    return [v for v in optimizer._variables if address(v) not in kept]


def trained_variables(optimizer: Any) -> list[Any]:
    """Returns the variables that an optimizer works on."""
    return list(optimizer._trainable_variables)


def slots_by_attribute(optimizer: Any) -> dict[str, list[Any]]:
    """Returns the lists in which an optimizer keeps one slot for each variable."""
    count = len(optimizer._trainable_variables)
    found = {}
    for name, value in vars(optimizer).items():
        plain = getattr(value, "__wrapped__", value)
        if name == "_trainable_variables" or not isinstance(plain, list):
            continue
        is_slot = [x is None or isinstance(x, Variable) for x in plain]
        if len(plain) == count and all(is_slot) and name not in _NO_SLOTS:
            found[name] = list(plain)
    return found


def state_by_attribute(optimizer: Any) -> dict[str, Any]:
    """Returns the variables that an optimizer keeps for itself, by attribute."""
    others = [optimizer._iterations, optimizer._learning_rate]
    known = set(map(address, [*others, *optimizer._trainable_variables]))
    found = vars(optimizer).items()
    return {
        n: v for n, v in found if isinstance(v, Variable) and address(v) not in known
    }


# All variables of an optimizer, whatever they are for.
_NO_SLOTS = ("_variables",)


def iterations(optimizer: Any) -> Any:
    """Returns how many steps an optimizer has made."""
    return to_numpy(optimizer._iterations)


def set_iterations(optimizer: Any, count: Any) -> None:
    """Says how many steps an optimizer has made."""
    optimizer._iterations.assign(count)

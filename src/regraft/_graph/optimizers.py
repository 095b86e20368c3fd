"""Lets a copied optimizer follow variables that came, went or changed their shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _keras
from .._identity import address


def follow(
    pairs: Sequence[tuple[Any, Any]],
    model: Any,
    counterparts: dict[int, Any],
    compiled: str,
) -> None:
    """Gives optimizers the variables of a new model, and the slots that still fit.

    Args:
        pairs: Each optimizer of the old model, with its copy.
        model: The new model.
        counterparts: For the id of each old variable the new one.
        compiled: `"copy"` keeps what slots hold, `"fresh"` starts anew.
    """
    built = [(old, new) for old, new in pairs if old.built]
    if not built:
        return
    wanted = model.trainable_variables
    if compiled == "fresh":
        for _, new in built:
            _keras.unbuild_optimizer(new)
        _build([new for _, new in built], wanted)
        return
    moved = []
    around = _around([new for _, new in built])
    stay = {address(new) for old, new in built if _are_its_own(old, new, wanted)}
    for old, new in built:
        before = [counterparts.get(address(v)) for v in _keras.trained_variables(old)]
        # One inside another has what that gives it, maybe not all.
        if address(around.get(address(new), new)) not in stay:
            state = _keras.slots_by_attribute(new)
            held = _keras.state_by_attribute(new).items()
            own = {name: _keras.to_numpy(v).copy() for name, v in held}
            moved.append((new, before, state, own, _keras.iterations(new)))
        else:
            _rename(old, new, counterparts)
    for new, *_ in moved:
        _keras.unbuild_optimizer(new)
    _build([new for new, *_ in moved], wanted)
    for new, before, state, own, iterations in moved:
        _keras.set_iterations(new, iterations)
        for name, variable in _keras.state_by_attribute(new).items():
            if name in own:
                variable.assign(own[name])
        fresh = _keras.slots_by_attribute(new)
        position = {address(v): i for i, v in enumerate(before) if v is not None}
        own_variables = _keras.trained_variables(new)
        for name, slots in fresh.items():
            for variable, slot in zip(own_variables, slots, strict=True):
                i = position.get(address(variable))
                kept = state[name][i] if i is not None and name in state else None
                if slot is not None and kept is not None and kept.shape == slot.shape:
                    slot.assign(kept.value)


def _are_its_own(old: Any, new: Any, wanted: list[Any]) -> bool:
    """Tells whether a copied optimizer works on these variables, as they were."""
    before, after = _keras.trained_variables(old), _keras.trained_variables(new)
    return [address(v) for v in after] == [address(v) for v in wanted] and all(
        tuple(a.shape) == tuple(b.shape) for a, b in zip(before, after, strict=True)
    )


def keep(
    pairs: Sequence[tuple[Any, Any]], counterparts: dict[int, Any], compiled: str
) -> None:
    """Lets optimizers of models whose variables are all there start anew, or not.

    Args:
        pairs: Each optimizer of an old model, with its copy.
        counterparts: For the id of each old variable the new one.
        compiled: `"copy"` keeps what slots hold, `"fresh"` starts anew.
    """
    for old, new in pairs:
        _rename(old, new, counterparts)
    if compiled == "fresh":
        _keras.rebuild_optimizer(new for _, new in pairs)


def _rename(old: Any, new: Any, counterparts: dict[int, Any]) -> None:
    """Follows new variables and their paths in what an optimizer knows them by."""
    names, pairs = {}, []
    for variable in _keras.trained_variables(old):
        twin = counterparts.get(address(variable))
        if twin is not None:
            pairs.append((variable, twin))
            if twin.path != variable.path:
                names[variable.path.replace("/", "_")] = twin.path.replace("/", "_")
    _keras.rename_slots(new, names)
    _keras.reindex_optimizer(new, pairs)


def _build(optimizers: list[Any], variables: list[Any]) -> None:
    """Builds optimizers; those inside others are built by these, for what they get."""
    around = _around(optimizers)
    for optimizer in optimizers:
        if address(optimizer) not in around:
            _keras.build_optimizer(optimizer, variables)


def _around(optimizers: list[Any]) -> dict[int, Any]:
    """Returns, for the ids of optimizers inside others, the outermost of these."""
    found: dict[int, Any] = {}
    for optimizer in optimizers:
        for inner in _keras.inner_optimizers(optimizer):
            found[address(inner)] = optimizer
    for key in found:
        while address(found[key]) in found:
            found[key] = found[address(found[key])]
    return found

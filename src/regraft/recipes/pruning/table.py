"""The table of rules: what deleting channels means for a class of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _keras
from .cut import Cut, Step

# What a rule returns: what is deleted of the output, and a function that makes the
# layer that takes the place of the old one, if it cannot stay.
Found = tuple[Cut | None, Callable[[], Any] | None]
Rule = Callable[[Step], Found]

_rules: dict[Any, Rule] = {}
_makers: set[Any] = set()
_passers: set[Any] = set()


def pruning_rule(
    *kinds: Any, makes: bool = False, passes: bool = False
) -> Callable[[Rule], Rule]:
    """Registers what deleting channels means for layers of a class.

    The rule is given a `Step` and returns two things: the `Cut` that its output has
    (or None), and a function without arguments that makes the layer anew, for example
    by `step.remade(...)` (or None if the layer can stay as it is).

    Args:
        *kinds: Classes of layers, or the names of functions of `keras.ops`. A class
            that inherits counts as the same if it has the same `call`, and the same
            of all that this uses.
        makes: Whether the layer makes channels, which may be deleted by `step.chosen`.
        passes: Whether channel i of its output is made of channels i of what it is
            given, and of nothing else.

    Returns:
        A decorator.

    Example:
    >>> import keras, regraft
    >>> class Twice(keras.layers.Layer):
    ...     def call(self, x):
    ...         return 2 * x
    >>> @regraft.recipes.pruning_rule(Twice, passes=True)
    ... def twice(step):
    ...     return step.cut, None
    """

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            key = kind.replace("_", "") if isinstance(kind, str) else kind
            _rules[key] = rule
            (_makers.add if makes else _makers.discard)(key)
            (_passers.add if passes else _passers.discard)(key)
        return rule

    return register


def _key(layer: Any) -> Any:
    if not isinstance(layer, _keras.Layer):
        return _keras.operation_name(layer)
    kind: Any
    for kind in type(layer).__mro__:
        if kind in _rules:
            # A class that calls something else is another layer, whatever its name.
            return kind if _keras.computes_like(layer, kind) else None
    return None


def rule_of(layer: Any) -> Rule | None:
    """Returns the rule for a layer or operation, if there is one."""
    return _rules.get(_key(layer))


def makes_channels(layer: Any) -> bool:
    """Tells whether a layer's own channels can be deleted."""
    return _key(layer) in _makers


def passes_channels(layer: Any) -> bool:
    """Tells whether channels go through a layer without being mixed."""
    return _key(layer) in _passers

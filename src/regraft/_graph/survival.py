"""Whether a file can tell what a layer has become.

Keras saves a layer as its configuration and its variables. A layer whose insides were
edited may make other insides from its configuration: the file would be wrong.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from .. import _keras
from .._errors import EditNotSavedWarning, explain
from .._identity import address
from .._seeds import undisturbed


def survives_files(layer: Any) -> bool:
    """Tells whether a layer made from its configuration is like the layer."""
    with undisturbed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            again = _loaded(layer)
            return again is not None and _outline(layer) == _outline(again)
        except Exception:  # Whatever a user's layer raises: it cannot be made again.
            return False


def _loaded(layer: Any) -> Any:
    """Makes a layer as a file would; None if its configuration is for none."""
    config = _keras.plain_config(layer)
    return None if config is None else _keras.made_from(layer, config)


def _outline(layer: Any) -> list[tuple[Any, ...]]:
    """Returns what is inside a layer, without names: those may be counted anew."""
    return [
        (
            type(x),
            {name: value for name, value in x.get_config().items() if name != "name"},
            [tuple(v.shape) for v in _keras.own_variables(x)],
        )
        for x in _keras.all_layers(layer)[1:]
        if _keras.inner_graph(x) is None
    ]


def warn_of_policies(model: Any, changed: set[int]) -> None:
    """Warns of layers that make those inside them in another precision when loaded.

    Args:
        model: A model.
        changed: The ids of layers that were given another policy.
    """
    told: set[int] = set()
    for layer in _keras.all_layers(model) if changed else ():
        inside = _keras.all_layers(layer)[1:]
        if address(layer) in told or not any(address(x) in changed for x in inside):
            continue
        is_graph = _keras.inner_graph(layer) is not None
        if _keras.is_keras_code(layer) or (
            is_graph and not _keras.has_own_constructor(layer)
        ):
            continue  # Its configuration has those of the layers inside.
        is_kept = _loads_with_policies(layer)
        if is_kept is not None:
            told |= {address(x) for x in inside}
        if is_kept is False:
            warnings.warn(
                explain(
                    "A layer has another precision inside, and files will not tell.",
                    where=layer.path,
                    expected="a class that gives its dtype to the layers it makes",
                    received=f"{type(layer).__name__}, which makes them in another "
                    "when it is loaded",
                    fix="clone again after loading, or let its constructor pass "
                    "`dtype=self.dtype_policy` to the layers that it makes",
                ),
                EditNotSavedWarning,
                stacklevel=4,
            )


def _loads_with_policies(layer: Any) -> bool | None:
    """Tells whether the layers inside a layer are loaded as they are, if it can be."""
    again = None
    with undisturbed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(Exception), _keras.no_memory():
            again = _loaded(layer)
        if again is None:  # It may make variables of values, which need memory.
            with suppress(Exception):
                again = _loaded(layer)
    if again is None:
        return None
    mine, other = _keras.all_layers(layer), _keras.all_layers(again)
    if [type(x) for x in mine] != [type(x) for x in other]:
        return None
    return list(map(_keras.precision_of, mine)) == list(map(_keras.precision_of, other))

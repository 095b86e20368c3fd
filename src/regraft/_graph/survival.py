"""Whether a file can tell what a layer has become.

Keras saves a layer as its configuration and its variables. A layer whose insides were
edited may make other insides from its configuration: the file would be wrong.
"""

from __future__ import annotations

import warnings
from typing import Any

from .. import _keras


def survives_files(layer: Any) -> bool:
    """Tells whether a layer made from its configuration is like the layer."""
    with _keras.quiet_globals(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            again = type(layer).from_config(layer.get_config())
            shapes = layer.get_build_config()
            if layer.built and shapes is not None and not again.built:
                again.build_from_config(shapes)
            return _outline(layer) == _outline(again)
        except Exception:  # Whatever a user's layer raises: it cannot be made again.
            return False


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

"""Common edits, written with the public verbs: read them to write your own."""

from __future__ import annotations

from typing import Any

from ._graph import graph


def swap_head(model: Any, layer: Any) -> Any:
    """Puts another layer in the place of the last one.

    Args:
        model: A model with one output.
        layer: The new head, a layer or a model.

    Returns:
        A new model, with the weights of all other layers.
    """
    read = graph(model)
    return read.replace(read[read.outputs[0]], layer).build()

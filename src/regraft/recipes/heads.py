"""Recipes for the ends of a model: another head, or none."""

from __future__ import annotations

from typing import Any

from .._errors import UsageError, explain
from .._graph import Ref
from ._common import as_graph, no_match


def swap_head(model: Any, layer: Any, *, output: int | None = None) -> Any:
    """Puts another layer in the place of the last one.

    Args:
        model: A model or its graph.
        layer: The new head: a layer, a model, or a function that is given the old
            head and returns one.
        output: Which output's head, if the model has several.

    Returns:
        A new model, with the weights of all other layers.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9)])
    >>> regraft.recipes.swap_head(model, keras.layers.Dense(2)).output_shape
    (None, 2)
    """
    found = as_graph(model)
    ends = found.outputs
    is_known = output is not None and -len(ends) <= output < len(ends)
    if not is_known and (output is not None or len(ends) > 1):
        names = ", ".join(f"{i}: {ref}" for i, ref in enumerate(ends))
        raise UsageError(
            explain(
                "`swap_head` must be told which head.",
                where=found.name,
                expected=f"`output=` with the number of one of {names}",
                received=f"output={output!r}",
                fix="pass for example `output=0`",
            )
        )
    return found.replace(found[ends[output or 0]], layer).build()


def features(model: Any, where: Any) -> Any:
    """Makes tensors inside a model its outputs.

    Args:
        model: A model or its graph.
        where: The layers whose outputs are wanted, also in models inside the model:
            anything that `Graph.find` takes.

    Returns:
        A new model that returns one tensor if there is one, else a list of them in
        the order in which they are computed. Layers behind the last one are gone.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential(
    ...     [keras.Input((4,)), keras.layers.Dense(3, name="h"), keras.layers.Dense(2)]
    ... )
    >>> regraft.recipes.features(model, "h").output_shape
    (None, 3)
    """
    found = as_graph(model)
    ends: list[Ref] = []
    for node in found.find(where):
        if not node.is_input:
            ends += [Ref(node.path, node.call, i) for i in range(len(node.outputs))]
    if not ends:
        raise no_match(
            "features",
            found.name,
            "a selector of layers that a model calls",
            f"{where!r}",
        )
    return found.outputs(*dict.fromkeys(ends)).build()

"""Low-rank adaptation of chosen layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import UsageError, UsageTypeError, explain
from ._common import as_graph, freeze_but, no_match, whole_number


def add_lora(model: Any, where: Any, rank: int, *, alpha: float | None = None) -> Any:
    """Adds low-rank weights to layers, and freezes all other weights.

    The low-rank weights start at zero: the new model computes exactly what the old
    one did. Layers inside others, such as those of a `MultiHeadAttention`, count.
    When a model is saved, weights inside such layers are written merged.

    Args:
        model: A model or its graph.
        where: The layers: those among them that have `enable_lora` get it.
        rank: The rank of the new weights. Layers that have such weights keep them,
            if they are of this rank.
        alpha: The factor of the low-rank weights, times the rank; by default `rank`.

    Returns:
        A new model of which only the low-rank weights are trained, also where the old
        one was frozen. If it was compiled, its optimizer starts anew.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9)])
    >>> new = regraft.recipes.add_lora(model, keras.layers.Dense, 2)
    >>> [tuple(w.shape) for w in new.trainable_weights]
    [(4, 2), (2, 9)]
    """
    whole_number("rank", rank)
    if alpha is not None and not _is_number(alpha):
        raise UsageTypeError(
            explain(
                "`alpha` must be a number.",
                where="argument `alpha`",
                expected="a float, or None",
                received=f"{alpha!r} (of type {type(alpha).__name__})",
                fix="pass for example `alpha=16.0`",
            )
        )
    found = as_graph(model)
    nodes = [n for n in found.find(where) if hasattr(n.layer, "enable_lora")]
    chosen = {(node.path, node.call) for node in nodes}
    if not chosen:
        raise no_match(
            "add_lora",
            found.name,
            "layers with `enable_lora`: Dense, EinsumDense, Embedding, Conv",
            f"{where!r}",
        )
    new = found.build(compiled="fresh")
    adapted: dict[int, Any] = {}
    for node in as_graph(new).walk():
        if (node.path, node.call) in chosen and id(node.layer) not in adapted:
            adapted[id(node.layer)] = node.layer
            _enable(node.layer, rank, alpha, node.path)
    learned = [v for layer in adapted.values() for v in layer.variables]
    freeze_but(new, adapted, [v for v in learned if "lora" in v.name])
    return new


def _is_number(value: Any) -> bool:
    kinds = (int, float, np.integer, np.floating)
    return isinstance(value, kinds) and not isinstance(value, bool)


def _enable(layer: Any, rank: int, alpha: float | None, where: str) -> None:
    if not layer.lora_enabled:
        try:
            layer.enable_lora(rank, lora_alpha=alpha)
        except ValueError as error:
            raise UsageError(
                explain(
                    f"This {type(layer).__name__} takes no low-rank weights.",
                    where=where,
                    expected="a layer for which `enable_lora` works",
                    received=str(error).strip().splitlines()[0][:200],
                    fix="choose other layers with `where`",
                )
            ) from error
    elif layer.lora_rank != rank or alpha not in (None, layer.lora_alpha):
        raise UsageError(
            explain(
                f"This {type(layer).__name__} already has low-rank weights of another "
                "kind.",
                where=where,
                expected=f"rank={rank}, alpha={rank if alpha is None else alpha}",
                received=f"rank={layer.lora_rank}, alpha={layer.lora_alpha}",
                fix="choose other layers with `where`, or pass these numbers",
            )
        )

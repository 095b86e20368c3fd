"""Low-rank adaptation of chosen layers."""

from __future__ import annotations

from typing import Any

from ._common import as_graph, freeze_but, no_match


def add_lora(model: Any, where: Any, rank: int, *, alpha: float | None = None) -> Any:
    """Adds low-rank weights to layers, and freezes all other weights.

    The low-rank weights start at zero: the new model computes exactly what the old
    one did. Layers inside others, such as those of a `MultiHeadAttention`, count.
    When a model is saved, weights inside such layers are written merged.

    Args:
        model: A model or its graph.
        where: The layers: those among them that have `enable_lora` get it.
        rank: The rank of the new weights.
        alpha: The factor of the low-rank weights, times the rank; by default `rank`.

    Returns:
        A new model of which only the low-rank weights are trained. If it was
        compiled, its optimizer starts anew.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(9)])
    >>> new = regraft.recipes.add_lora(model, keras.layers.Dense, 2)
    >>> [tuple(w.shape) for w in new.trainable_weights]
    [(4, 2), (2, 9)]
    """
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
        if (node.path, node.call) in chosen:
            adapted[id(node.layer)] = node.layer
    for layer in adapted.values():
        if not layer.lora_enabled:
            layer.enable_lora(rank, lora_alpha=alpha)
    learned = [v for layer in adapted.values() for v in layer.variables]
    freeze_but(new, adapted, [v for v in learned if "lora" in v.name])
    return new

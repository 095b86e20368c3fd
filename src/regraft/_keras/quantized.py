"""Layers that hold their weights as whole numbers, with scales."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.quantizers import quantization_config

from .layers import build_shapes, forget_variables

# Their layers build a kernel of zeros, for `quantize()` or a file to fill.
_EMPTY_WHEN_BUILT = ("int8", "int4", "gptq", "awq")


def is_quantized(layer: Any) -> bool:
    """Tells whether `build()` does not say how the weights of a layer start."""
    made_for = getattr(layer, "_is_quantized", False)
    return bool(made_for) and layer.quantization_mode in _EMPTY_WHEN_BUILT


def quantizes_alone(layer: Any) -> bool:
    """Tells whether a quantized layer was made so without data to calibrate it."""
    return layer.quantization_mode in ("int8", "int4")


def quantization_of(layer: Any) -> Any:
    """Returns the configuration by which a layer was quantized, or would have been."""
    config = vars(layer).get("quantization_config")
    # Older versions of Keras know no blocks.
    block_size = getattr(quantization_config, "get_block_size_for_layer", None)
    if config is None and layer.quantization_mode == "int4" and block_size is not None:
        # It was built so by its policy, whose blocks are not the usual ones.
        size = block_size(layer, None)
        return keras.quantizers.Int4QuantizationConfig(block_size=size)
    return config


def forget_quantization(layer: Any) -> None:
    """Brings a layer without variables back to where it builds a kernel of floats."""
    compute, variables = layer.compute_dtype, layer.variable_dtype
    name = compute if compute == variables else f"mixed_{compute}"
    state = vars(layer)
    state["_dtype_policy"] = keras.dtype_policies.DTypePolicy(name)
    state["quantization_config"] = None
    state["_is_quantized"] = False


def quantize_like(layer: Any, other: Any) -> None:
    """Builds a layer once more, in the form that another one is quantized to."""
    shapes = build_shapes(layer) or {}
    forget_variables(layer)
    state = vars(layer)
    state["_dtype_policy"] = other.dtype_policy
    state["quantization_config"] = vars(other).get("quantization_config")
    layer.build(**shapes)


def quantize(layer: Any, mode: str, config: Any) -> None:
    """Quantizes a layer, also one of a class that Keras does not know."""
    layer.quantize(mode, config=config, type_check=False)

"""Dtype policies: in which precision layers compute and keep their variables."""

from __future__ import annotations

from typing import Any

import keras
import ml_dtypes
import numpy as np
from keras.src.backend.common.dtypes import FLOAT_TYPES
from keras.src.utils.torch_utils import TorchModuleWrapper

from .layers import own_variables
from .variables import standard_dtype

DTypePolicy = keras.dtype_policies.DTypePolicy
DTypePolicyMap = keras.dtype_policies.DTypePolicyMap

POLICY_NAMES = (*FLOAT_TYPES, "mixed_bfloat16", "mixed_float16")


def find_policy(name: str) -> Any:
    """Returns the policy of a name; a `ValueError` if there is none."""
    return keras.dtype_policies.get(name)


def is_float(dtype: str) -> bool:
    """Tells whether a dtype is one of floating point numbers that layers compute in."""
    return dtype in FLOAT_TYPES


def precision_of(layer: Any) -> tuple[Any, ...]:
    """Returns what a layer's policy, or the map in which it finds one, means to it."""
    return layer.compute_dtype, layer.variable_dtype, layer.quantization_mode


def set_policy(layer: Any, policy: Any) -> None:
    """Gives a layer another policy; what it has built stays as it is."""
    vars(layer)["_dtype_policy"] = policy


def autocast_variables(layer: Any) -> list[Any]:
    """Returns the variables of a layer that are cast in each of its calls.

    A layer that says it does not cast does it by itself, as an `Embedding`.
    """
    own = own_variables(layer)
    return [v for v in own if v._autocast and is_float(standard_dtype(v))]


def is_foreign(layer: Any) -> bool:
    """Tells whether a layer's weights belong to a module of another framework."""
    return isinstance(layer, TorchModuleWrapper | keras.layers.TFSMLayer)


def held_states(layer: Any) -> list[Any]:
    """Returns variables that a layer holds without tracking them: states of RNNs."""
    states = getattr(layer, "states", None) if _is_rnn(layer) else None
    flat = keras.tree.flatten(states) if states else []
    return [x for x in flat if isinstance(x, keras.Variable)]


def _is_rnn(layer: Any) -> bool:
    return isinstance(layer, keras.layers.RNN)


def derived_tensors(layer: Any) -> dict[str, Any]:
    """Returns tensors that a layer keeps in its compute dtype, by attribute."""
    if not isinstance(layer, keras.layers.Normalization):
        return {}
    found = {name: getattr(layer, name, None) for name in ("mean", "variance")}
    return {name: value for name, value in found.items() if value is not None}


def standardize(dtype: Any) -> str:
    """Returns the name of a dtype, the same on every backend."""
    return str(keras.backend.standardize_dtype(dtype))


def numpy_dtype(dtype: str) -> Any:
    """Returns the dtype that numpy has for a name, `bfloat16` included."""
    return np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else dtype


def limits(dtype: str) -> Any:
    """Returns what a float dtype can hold: its `max`, its `eps`."""
    info: Any = ml_dtypes.finfo
    return info(numpy_dtype(dtype))


def cast(value: Any, dtype: str) -> Any:
    """Returns a tensor in another dtype."""
    return keras.ops.cast(value, dtype)

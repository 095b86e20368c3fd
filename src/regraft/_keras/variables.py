"""Variables, seed generators and initializers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask
from keras.src.random.seed_generator import make_default_seed
from keras.src.utils.dtype_utils import dtype_size

# The attribute in which a variable holds its value.
VALUE = "_value"


def raw_value(variable: Any) -> Any:
    """Returns what a variable holds, without scopes and casts."""
    return vars(variable).get(VALUE)


def has_value(variable: Any) -> bool:
    """Tells whether a variable holds a value or the means to make one."""
    state = vars(variable)
    return state.get(VALUE) is not None or state.get("_initializer") is not None


def set_raw_value(variable: Any, value: Any) -> None:
    """Puts a value into a variable, past scopes and casts."""
    vars(variable)[VALUE] = value


def shape_of(variable: Any) -> tuple[int, ...]:
    """Returns a variable's shape, of which TensorFlow would make another object."""
    return tuple(vars(variable)["_shape"])


def own_name(variable: Any) -> str:
    """Returns the name that a variable was given, without a number.

    Keras numbers variables without a name over all models, `variable_7`, and some code
    does so with its own. A layer that is built again has others then.
    """
    return re.sub(r"_\d+$", "", variable.name)


def kind_of(variable: Any) -> tuple[Any, ...]:
    """Returns what the value of a variable is like."""
    return tuple(variable.shape), variable.dtype


def set_dtype(variable: Any, dtype: str) -> None:
    """Says of which dtype the value of a variable is."""
    vars(variable)["_dtype"] = dtype


def set_layout(variable: Any, layout: Any) -> None:
    """Says how a variable is to be laid out over a mesh; None for not at all."""
    # Variables of older versions know no layout unless they have one.
    if layout is not None or "_layout" in vars(variable):
        vars(variable)["_layout"] = layout


def layout_of(distribution: Any, variable: Any) -> Any:
    """Returns the layout that a distribution has for a variable, by its path."""
    set_layout(variable, None)  # Otherwise it answers with the one it has.
    return distribution.get_variable_layout(variable)


def variable_state(variable: Any) -> dict[str, Any]:
    """Returns a variable's attributes without its value."""
    state = vars(variable).copy()
    state[VALUE] = None
    return state


def set_path(variable: Any, path: str) -> None:
    """Gives a variable another path."""
    vars(variable)["_path"] = path


def set_number(variable: Any, other: Any) -> None:
    """Gives a variable the number in the name of another one of its name."""
    if variable.name != other.name and own_name(variable) == own_name(other):
        place, slash, _ = variable.path.rpartition("/")
        vars(variable)["_name"] = other.name
        set_path(variable, f"{place}{slash}{other.name}")


def reseed_initializer(
    initializer: Any, next_seed: Callable[[], int], *, also_fixed: bool
) -> None:
    """Makes an initializer draw other numbers than it drew before.

    Keras gives an initializer without a seed one of its own when it is made,
    so calling it twice draws the same numbers. One that was given a fixed seed
    draws the same numbers on purpose, unless the caller asks otherwise.
    """
    state = vars(initializer)
    if type(state.get("seed")) is not int:
        return
    was_fixed = state.get("_init_seed", state["seed"]) is not None
    if was_fixed and not also_fixed:
        return
    state["seed"] = next_seed()
    if was_fixed and "_init_seed" in state:
        state["_init_seed"] = state["seed"]


def reseed_generator(generator: Any, seed: int | None) -> None:
    """Starts a random stream anew; without a seed, as its constructor would."""
    if seed is None:
        seed = generator._initial_seed
        if seed is None:
            seed = make_default_seed()
    elif generator._initial_seed is not None:
        generator._initial_seed = seed
    generator.state.assign(
        keras.ops.convert_to_tensor([seed, 0], generator.state.dtype)
    )


def seed_of(generator: Any) -> int | None:
    """Returns the seed that a random stream was made with, if it was given one."""
    seed: int | None = generator._initial_seed
    return seed


def say_seed(layer: Any, old: int, new: int | None) -> None:
    """Writes another seed where a layer says what its random stream was made with."""
    noted = vars(layer).get("_auto_config")
    for state in (vars(layer), {} if noted is None else noted.config):
        if type(state.get("seed")) is int and state["seed"] == old:
            state["seed"] = new


def start_like(generator: Any, other: Any) -> None:
    """Lets a random stream start where another one does."""
    generator._initial_seed = other._initial_seed
    generator.state.assign(np.array(to_numpy(other.state)))


def to_numpy(value: Any) -> Any:
    """Returns a tensor or array as a numpy array, bit for bit."""
    return np.asarray(keras.ops.convert_to_numpy(value))


def mask_of(tensor: Any) -> Any:
    """Returns the mask that travels with a tensor, or None."""
    return get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Any) -> None:
    """Lets a mask travel with a tensor."""
    set_keras_mask(tensor, mask)


def standard_dtype(variable: Any) -> str:
    """Returns the name of a variable's type, the same on every backend."""
    return str(keras.backend.standardize_dtype(variable.dtype))


def size_in_bytes(variable: Any) -> int:
    """Returns the number of bytes that a variable's value takes."""
    bits = dtype_size(standard_dtype(variable))
    return -(-math.prod(variable.shape) * bits // 8)

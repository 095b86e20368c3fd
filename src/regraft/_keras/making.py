"""How a layer is made, what is on it then, and how it can be made once more."""

from __future__ import annotations

import dis
import inspect
import sys
import types
from contextlib import suppress
from typing import Any

import keras
from keras import ops
from keras.src.layers.layer import Layer
from keras.src.utils.python_utils import is_default

from .. import _backends
from .classes import Model, Variable, is_of_keras
from .layers import own_variables
from .trees import leaves


def has_trusted_config(layer: Any) -> bool:
    """Tells whether `get_config()` describes what the constructor was given.

    A subclassed model without a `get_config` of its own reports the defaults of
    its constructor's arguments, whatever it was really given. One that is inherited
    says nothing of the arguments of a constructor that is not.
    """
    if isinstance(layer, Model) and is_default(layer.get_config):
        return not _takes_options(layer)
    if _definer(layer, "__init__") >= _definer(layer, "get_config"):
        return True
    noted = _noted_arguments(layer)
    parameters = inspect.signature(type(layer).__init__).parameters
    if noted is not None:
        names = [n for n in noted if not _is_default_of(parameters.get(n), noted[n])]
    elif _reads_options(layer):
        return False
    else:
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = list(parameters.values())[1:]
        names = [p.name for p in named if p.kind not in variadic]
    try:
        return not set(names) - {"name"} - layer.get_config().keys()
    except Exception:  # Whatever a class raises that does not say what it is.
        return False


def _noted_arguments(layer: Any) -> dict[str, Any] | None:
    """Returns what a constructor was called with, if Keras has noted that.

    Of models it notes that they were given nothing.
    """
    if isinstance(layer, Model) and _takes_options(layer):
        return None
    noted = vars(layer).get("_auto_config")
    return None if noted is None else dict(noted.config)


def _is_default_of(parameter: inspect.Parameter | None, value: Any) -> bool:
    return parameter is not None and repr(parameter.default) == repr(value)


def _definer(layer: Any, method: str) -> int:
    """Returns the place of the class that defines a method, the nearest first."""
    kinds = type(layer).__mro__
    return next(i for i, kind in enumerate(kinds) if method in vars(kind))


def _takes_options(layer: Any) -> bool:
    """Tells whether a constructor takes arguments that it does not just hand on."""
    code = inspect.unwrap(type(layer).__init__).__code__
    return code.co_argcount + code.co_kwonlyargcount > 1 or _reads_options(layer)


def _reads_options(layer: Any) -> bool:
    """Tells whether a constructor reads what it is given as `*args` or `**kwargs`."""
    if is_of_keras(type(layer).__mro__[_definer(layer, "__init__")]):
        return False  # That of `Model` asks whether it is given a graph.
    code = inspect.unwrap(type(layer).__init__).__code__
    flags = inspect.CO_VARARGS, inspect.CO_VARKEYWORDS
    named = code.co_argcount + code.co_kwonlyargcount
    count = named + sum(bool(code.co_flags & flag) for flag in flags)
    steps = list(dis.get_instructions(code))
    return any(
        _is_load(step, name) and not _is_handed_on(steps, i)
        for name in code.co_varnames[named:count]
        for i, step in enumerate(steps)
    )


def _is_load(step: dis.Instruction, name: str) -> bool:
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    kinds = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")
    return step.opname.startswith(kinds) and name in names


def _is_handed_on(steps: list[dis.Instruction], index: int) -> bool:
    """Tells whether a step loads what goes to another constructor, or gets a default.

    `super().__init__(**kwargs)`, or `kwargs.setdefault("name", "net")` before it.
    """
    after = steps[index + 1]
    if after.argval == "setdefault":
        return True
    kinds = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
    called = [x.argval for x in steps[:index] if x.opname.startswith(kinds)][-1:]
    spreads = ("DICT_MERGE", "LIST_EXTEND", "BUILD_MAP", "CALL_FUNCTION_EX")
    return called == ["__init__"] and after.opname in spreads


def writes_when_made(layer: Any) -> bool:
    """Tells whether a constructor of the user's seems to copy, or write to, weights.

    What is asked is the code of the constructor, and of the methods and functions of
    its module that it names.
    """
    kinds = [kind for kind in type(layer).__mro__[:-1] if not is_of_keras(kind)]
    names, seen = {"__init__"}, set[str]()
    while names - seen:
        name = (names - seen).pop()
        seen.add(name)
        for kind in kinds:
            names |= _names_in(vars(kind).get(name))
            found = getattr(sys.modules.get(kind.__module__), name, None)
            if getattr(found, "__module__", None) == kind.__module__:
                names |= _names_in(found)
    return not names.isdisjoint(_COPIES)


_COPIES = {"assign", "set_weights", "get_weights", "value", "clone", "deepcopy"}


def _names_in(function: Any) -> set[str]:
    """Returns the names that the code of a function uses, in what is inside it, too."""
    function = getattr(function, "__func__", function)  # Of a static or class method.
    if not isinstance(function, types.FunctionType):
        return set()
    found, stack = set[str](), [inspect.unwrap(function).__code__]
    while stack:
        code = stack.pop()
        found.update(code.co_names)
        stack += [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return found


def plain_config(layer: Any) -> dict[str, Any] | None:
    """Returns a layer's configuration, if it is one that a file can hold.

    None if there are layers or variables in it. A constructor would be given them
    themselves, and may change them.
    """
    config: dict[str, Any] = layer.get_config()
    is_plain = not any(isinstance(x, Layer | Variable) for x in leaves(config))
    return config if is_plain else None


def describes_weights(layer: Any) -> bool:
    """Tells whether a layer's configuration becomes another one with other weights.

    Args:
        layer: The layer, whose weights are others afterwards.
    """
    backend = _backends.active()
    try:
        before = repr(layer.get_config())
        for variable in own_variables(layer):
            variable.assign(_other_numbers(variable))
        for value in backend.other_weights(layer).values():
            backend.write(value, _other_numbers(value))
        return before != repr(layer.get_config())
    except Exception:  # Whatever a class raises that does not say what it is.
        return False


def _other_numbers(value: Any) -> Any:
    return ops.cast(
        ops.logical_not(value), keras.backend.standardize_dtype(value.dtype)
    )


def made_from(layer: Any, config: dict[str, Any], *, is_built: bool = True) -> Any:
    """Makes a layer from a configuration, built for what another one is built for.

    Args:
        layer: The other one, which the configuration describes, or did.
        config: The configuration.
        is_built: Whether it is to be built, if the other one is.
    """
    made = type(layer).from_config(config)
    if is_built and isinstance(layer, Layer) and layer.built and not made.built:
        shapes = layer.get_build_config()
        if shapes is not None:
            made.build_from_config(shapes)
    return made


def made_again(layer: Any) -> Any:
    """Makes a layer as its configuration says, or as its constructor was called.

    Returns:
        The layer, or None if neither is known or works.
    """
    if has_trusted_config(layer):
        with suppress(Exception):  # Whatever a user's constructor raises.
            config = plain_config(layer)
            if config is not None:
                return made_from(layer, config, is_built=False)
    # A configuration has more than some constructors take: `trainable`, `dtype`.
    noted = _noted_arguments(layer)
    if noted is not None:
        with suppress(Exception):
            return type(layer)(**noted)
    return None


def made_somehow(layer: Any) -> Any:
    """Makes a layer of the class, perhaps with other arguments; None if that fails."""
    noted = vars(layer).get("_auto_config")
    with suppress(Exception):  # Whatever a user's constructor raises.
        return type(layer)(**({} if noted is None else noted.config))
    return None


# What Keras, torch and TensorFlow keep on every layer for themselves.
_BOOKKEEPING = frozenset(
    {
        "name",
        "_path",
        "_parent_path",
        "_inbound_nodes",
        "_outbound_nodes",
        "_tracker",
        "_lock",
        "_layers",
        "_metrics",
        "_seed_generators",
        "_trainable_variables",
        "_non_trainable_variables",
        "_call_signature",
        "_build_shapes_dict",
        "_modules",
        "_parameters",
        "_buffers",
        "_torch_params",
        "_obj_reference_counts_dict",
        "_unconditional_checkpoint_dependencies",
        "_unconditional_dependency_names",
        "build",
        "quantize",
    }
)


def own_state(layer: Any) -> dict[str, Any]:
    """Returns what is on a layer that no framework keeps there for itself."""
    return {name: x for name, x in vars(layer).items() if name not in _BOOKKEEPING}


def own_attributes(layer: Any) -> dict[str, Any]:
    """Returns what a layer's class and its user put on it, by name."""
    state = vars(layer)
    names = [*state, *(state.get("_modules") or ()), *(state.get("_parameters") or ())]
    kept = [n for n in dict.fromkeys(names) if n not in _BOOKKEEPING]
    return {
        n: state[n] if n in state else getattr(layer, n)
        for n in kept
        if not n.startswith("_self_")
    }


# What a class may have of its own, and compute the same.
_HOW_IT_IS_MADE = frozenset(
    {
        *("build", "get_config", "from_config", "get_build_config"),
        *("build_from_config", "compute_output_shape", "compute_output_spec"),
        *("save_own_variables", "load_own_variables"),
    }
)


def computes_like(layer: Any, *kinds: Any) -> bool:
    """Tells whether a layer does what layers of one of these classes do, and no more.

    A class that inherits may do something else by its `call`, or by what that uses: a
    method, or a property in the place of a weight.
    """
    return any(_computes_like(layer, kind) for kind in kinds)


def _computes_like(layer: Any, kind: Any) -> bool:
    if not isinstance(layer, kind) or "call" in vars(layer):
        return False
    own = type(layer).__mro__[: type(layer).__mro__.index(kind)]
    names = {name for each in own for name in vars(each) if hasattr(kind, name)}
    names = {n for n in names if n == "__call__" or not n.startswith("__")}
    return not names - _HOW_IT_IS_MADE - {"_api_export_path", "_api_export_symbol_id"}

"""`clone(dtype=...)`: a copy that computes, or keeps its weights, in another dtype.

Policies are exchanged, and variables that have the dtype which their layer's policy
says are cast. Everything else keeps its dtype: integers, random state, metrics, and
what a layer keeps in a dtype of its own. Optimizers keep their slots in the dtype of
the variable that a slot belongs to, as Keras makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import _backends, _keras
from ._cast_checks import check_cast, check_range
from ._errors import PrecisionError, UsageError, UsageTypeError, did_you_mean, explain
from ._follow import Follow
from ._graph import Node, graph
from ._identity import address
from ._select import select
from ._walk import Walk

# Policies by id of the original layer. None as a key is for all other layers.
Policies = dict[int | None, Any]


def read(model: Any, given: Any) -> Policies:
    """Reads `dtype=`: which layers get which policy.

    Args:
        model: The original.
        given: What the caller passed.
    """
    if not isinstance(model, _keras.Layer):
        raise UsageError(
            explain(
                "Only models and layers have a precision.",
                where="argument `dtype`",
                expected="a `keras.Model` or `keras.Layer`",
                received=f"{type(model).__name__} {model.name!r}",
                fix="clone the model of which this is a part",
            )
        )
    if not isinstance(given, dict):
        return {None: _policy(given, "argument `dtype`")}
    nodes = list(_nodes(model))
    found: Policies = {}
    for where, name in given.items():
        place = f"argument `dtype`, {where!r}"
        policy = None if name is None else _policy(name, place)
        chosen = select(where, nodes)
        layers = [x for node in chosen for x in _inside(node.layer)]
        if not any(_can_follow(layer) for layer in layers):
            raise UsageError(
                explain(
                    "This selects no layer that has a float dtype.",
                    where=f"{place}, in {model.name}",
                    expected="a selector that means a layer which computes in floats",
                    received=", ".join(node.path for node in chosen[:5]) or "nothing",
                    fix="look at `print(regraft.graph(model))` for the paths."
                    f"{did_you_mean(where, [node.path for node in nodes])}",
                )
            )
        found.update({address(layer): policy for layer in layers})
    return found


def _nodes(model: Any) -> Iterator[Node]:
    """Yields the nodes of a model's graph, and those of layers outside of it."""
    seen: set[int] = set()
    if _keras.inner_graph(model) is not None:
        for node in graph(model).walk():
            seen.add(address(node.layer))
            yield node
    stack = [(part.name, part) for part in reversed(_keras.sublayers(model))]
    while stack:
        path, layer = stack.pop()
        if address(layer) in seen:
            continue
        seen.add(address(layer))
        yield Node(path, layer)
        parts = reversed(_keras.sublayers(layer))
        stack += [(f"{path}/{part.name}", part) for part in parts]


def _inside(layer: Any) -> list[Any]:
    return _keras.all_layers(layer) if isinstance(layer, _keras.Layer) else []


def _can_follow(layer: Any) -> bool:
    """Tells whether a layer has a float dtype: some count, or look words up."""
    if isinstance(layer, _keras.InputLayer):
        return _keras.is_float(layer.dtype)
    return _keras.is_float(layer.compute_dtype)


def _policy(given: Any, where: str) -> Any:
    if not isinstance(given, str | _keras.DTypePolicy):
        raise UsageTypeError(
            explain(
                "This is no dtype policy.",
                where=where,
                expected="the name of a policy, a `keras.DTypePolicy`, or a dict of "
                "these by place",
                received=f"{given!r} (of type {type(given).__name__})",
                fix="pass for example `dtype='bfloat16'`",
            )
        )
    try:
        policy = _keras.find_policy(given) if isinstance(given, str) else given
        is_float = all(map(_keras.is_float, (policy.compute_dtype, given_to(policy))))
    except ValueError:
        policy, is_float = None, False
    if policy is None or not is_float or policy.quantization_mode is not None:
        kind = "quantized" if getattr(policy, "quantization_mode", None) else "unknown"
        raise UsageError(
            explain(
                "Weights can only be cast to another float dtype.",
                where=where,
                expected=f"one of {', '.join(_keras.POLICY_NAMES)}",
                received=f"{given!r}, which is {'an integer' if policy else kind}"
                if kind == "unknown"
                else f"{given!r}, a quantized policy",
                fix="call `model.quantize(...)` on a clone, to quantize it."
                f"{did_you_mean(given, _keras.POLICY_NAMES)}",
            )
        )
    return policy


def given_to(policy: Any) -> str:
    """Returns the dtype in which a policy has variables made."""
    return str(policy.variable_dtype)


def apply(walk: Walk, model: Any, policies: Policies, *, shares: bool) -> set[int]:
    """Exchanges the policies of a copy and casts its variables.

    Args:
        walk: The walk that made the copy.
        model: The copy.
        policies: What `read` returned.
        shares: Whether the copy shares its weights with the original.

    Returns:
        The ids of layers that compute in another precision now.
    """
    layers = [pair for pair in walk.operations if isinstance(pair[1], _keras.Layer)]
    root = layers[0][1].variable_dtype if layers else "float32"
    exchanged: dict[int, tuple[str, str]] = {}
    for old, layer in layers:
        policy = policies.get(address(old), policies.get(None))
        if policy is None or isinstance(layer, _keras.InputLayer):
            continue
        _refuse_special(walk, old, policy)
        if _can_follow(layer) and layer.dtype_policy != policy:
            exchanged[address(layer)] = (layer.variable_dtype, given_to(policy))
            _keras.set_policy(layer, policy)
    wanted = _wanted(walk, layers, exchanged)
    if None in policies:
        new = given_to(policies[None])
        wanted.update({address(v): new for v in _unowned(walk, layers, root)})
    casts = [
        (old, new, wanted[address(new)])
        for old, new in walk.variables
        if wanted.get(address(new), _dtype(new)) != _dtype(new)
    ]
    if shares:
        _refuse_shared(layers, exchanged)
    _cast(walk, casts)
    for _, layer in layers:
        if address(layer) in exchanged:
            _check_autocast(layer)
            _cast_derived(layer)
    policy = policies.get(None)
    is_compiled = isinstance(model, _keras.Trainer) and model.compiled
    if is_compiled and policy is not None and policy.name == "mixed_float16":
        _keras.scale_loss(model)
    return set(exchanged)


def set_inputs(walk: Walk, policies: Policies, follow: Follow) -> None:
    """Gives inputs of a copy the dtype that they are to take.

    An input that is named takes what its policy computes in. All others take what
    they took, unless that is narrower: data in float64 must not be rounded on its
    way into a model in float64.
    """
    for old, layer in walk.operations:
        if not isinstance(layer, _keras.InputLayer) or not _can_follow(layer):
            continue
        policy = policies.get(address(old), policies.get(None))
        if policy is None:
            continue
        is_wider = policy.compute_dtype == "float64"
        if address(old) in policies or is_wider:
            tensor = layer.output
            follow.set_input(tensor, tensor.shape, policy.compute_dtype)


def _dtype(variable: Any) -> str:
    return _keras.standard_dtype(variable)


def _wanted(
    walk: Walk, layers: list[tuple[Any, Any]], exchanged: dict[int, tuple[str, str]]
) -> dict[int, str]:
    """Decides on the dtype of each variable that a layer owns."""
    found: dict[int, tuple[str, Any]] = {}
    for old, layer in layers:
        for variable in [*_keras.own_variables(layer), *_keras.held_states(layer)]:
            dtype = _dtype(variable)
            if address(layer) in exchanged and dtype == exchanged[address(layer)][0]:
                dtype = exchanged[address(layer)][1]
            other, first = found.setdefault(address(variable), (dtype, old))
            if other != dtype:
                raise PrecisionError(
                    explain(
                        "Layers that share a variable would have it in two dtypes.",
                        where=f"{walk.path_of(old)}: {variable.path}",
                        expected=f"{other}, as {walk.path_of(first)} has it",
                        received=dtype,
                        fix="give both layers the same policy",
                    )
                )
    return {key: dtype for key, (dtype, _) in found.items()}


def _unowned(walk: Walk, layers: list[tuple[Any, Any]], dtype: str) -> list[Any]:
    """Returns float variables that no layer tracks and no training or chance owns."""
    owned = _keras.held_by_layers(layer for _, layer in layers)
    owned |= {address(v) for _, layer in layers for v in _keras.held_states(layer)}
    owned |= {address(generator.state) for _, generator in walk.seed_generators}
    for owners in (walk.metrics, walk.optimizers):
        owned |= {address(v) for _, owner in owners for v in owner.variables}
    variables = [new for _, new in walk.variables if address(new) not in owned]
    return [v for v in variables if _dtype(v) == dtype]


def _refuse_special(walk: Walk, layer: Any, policy: Any) -> None:
    """Refuses what has a precision of its own kind."""
    if getattr(layer, "quantization_mode", None) is not None:
        raise PrecisionError(
            explain(
                "A quantized layer cannot get another precision.",
                where=f"{walk.path_of(layer)} ({type(layer).__name__})",
                expected="a layer whose weights are floats",
                received=f"one that is quantized to {layer.quantization_mode}",
                fix="cast the model before it is quantized, or leave this layer as it "
                "is with `{'*': policy, 'path/of/this/layer': None}`",
            )
        )
    dtypes = [(x.variable_dtype, x.compute_dtype) for x in (layer, policy)]
    if _keras.is_foreign(layer) and dtypes[0] != dtypes[1]:
        raise PrecisionError(
            explain(
                "The weights of this layer belong to another framework's module.",
                where=f"{walk.path_of(layer)} ({type(layer).__name__})",
                expected="a layer whose weights are Keras variables",
                received=f"a {type(layer).__name__}",
                fix="cast the module itself and wrap it again, or leave this layer as "
                "it is with `{'*': policy, 'path/of/this/layer': None}`",
            )
        )


def _refuse_shared(
    layers: list[tuple[Any, Any]], exchanged: dict[int, tuple[str, str]]
) -> None:
    for old, layer in layers:
        before, now = exchanged.get(address(layer), ("", ""))
        if before != now and _keras.own_variables(layer):
            raise UsageError(
                explain(
                    "Shared weights cannot have two dtypes.",
                    where=f"{old.name}: {_keras.own_variables(layer)[0].path}",
                    expected=f"a policy whose variables are {before}",
                    received=f"one whose variables are {now}",
                    fix=f"copy the weights, or choose a policy with variables of "
                    f"{before}, such as 'mixed_bfloat16' for float32",
                )
            )


# --- casting -------------------------------------------------------------------


def _cast(walk: Walk, casts: list[tuple[Any, Any, str]]) -> None:
    """Casts variables, and what optimizers keep for them."""
    wanted = {address(new): dtype for _, new, dtype in casts}
    before = {address(new): _dtype(new) for _, new, _ in casts}
    plan = [(new, dtype) for _, new, dtype in casts]
    # All of them: a model may hold several, and one may work with others.
    optimizers = [new for _, new in walk.optimizers]
    for optimizer in optimizers:
        for slot, variable in _keras.variables_by_slot(optimizer):
            if (
                address(variable) in wanted
                and _dtype(slot) == before[address(variable)]
            ):
                plan.append((slot, wanted[address(variable)]))
    keys = []
    for optimizer in optimizers:
        mine = [new for new, _ in plan]
        keys.append((optimizer, mine, _keras.variable_keys(optimizer, mine)))
    done: set[int] = set()
    for variable, dtype in plan:
        if address(variable) not in done:
            done.add(address(variable))
            _cast_variable(variable, dtype)
    for optimizer, mine, old in keys:
        new = _keras.variable_keys(optimizer, mine)
        _keras.rekey(optimizer, zip(old, new, strict=True))


def _cast_variable(variable: Any, dtype: str) -> None:
    value = _keras.raw_value(variable)
    if value is None:  # It will be made in the dtype that it says.
        _keras.set_dtype(variable, dtype)
        return
    for part in _backends.active().replicas(value):
        check_cast(_keras.to_numpy(part), dtype, variable.path)
    new = _backends.active().cast_value(value, dtype)
    received = str(_keras.standardize(new.dtype))
    if received != dtype:
        raise PrecisionError(
            explain(
                f"The backend keeps no values in {dtype}.",
                where=variable.path,
                expected=dtype,
                received=received,
                fix="on JAX, call `jax.config.update('jax_enable_x64', True)` when the "
                "program starts",
            )
        )
    _keras.set_dtype(variable, dtype)
    _keras.set_raw_value(variable, new)


def _check_autocast(layer: Any) -> None:
    """Looks at weights that are cast whenever the layer is called."""
    for variable in _keras.autocast_variables(layer):
        value = _keras.raw_value(variable)
        for part in () if value is None else _backends.active().replicas(value):
            check_range(_keras.to_numpy(part), layer.compute_dtype, variable.path)


def _cast_derived(layer: Any) -> None:
    for name, value in _keras.derived_tensors(layer).items():
        dtype = layer.compute_dtype
        if _keras.standardize(value.dtype) != dtype:
            check_cast(_keras.to_numpy(value), dtype, f"{layer.path}.{name}")
            setattr(layer, name, _keras.cast(value, dtype))

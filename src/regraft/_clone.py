"""`clone`: an exact and independent copy, or one with other weights or names."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Literal, TypeVar

from . import _backends, _fresh, _keras, _precision, _reshape, _seeds, _shared_code
from ._arguments import check, check_place
from ._collector import without_collector
from ._errors import CopyError, explain
from ._follow import Follow
from ._graph.survival import warn_of_policies
from ._identity import address
from ._keeping import keeper, named, share_parts_of_kept, stand_for_themselves
from ._placement import Layouts
from ._rename import rename
from ._rules import Rules
from ._states import reset_compile_metrics
from ._walk import Walk

M = TypeVar("M")
Weights = Literal["copy", "share", "fresh"]
Compiled = Literal["copy", "fresh", "drop"]


def clone(
    model: M,
    *,
    weights: Weights = "copy",
    seed: int | None = None,
    compiled: Compiled | None = None,
    name: str | None = None,
    prefix: str | None = None,
    keep: Iterable[Any] = (),
    inputs: Any = None,
    dtype: Any = None,
    device: Any = None,
    distribution: Any = None,
) -> M:
    """Returns another model like `model` that shares nothing mutable with it.

    The copy has the same class, graph, names, weights, state and training
    state. Nothing is serialised: custom layers, lambdas, ties and attributes
    need no `get_config()` and no registration. The original is not touched.

    Args:
        model: A Functional, Sequential or subclassed `Model`, a
            `keras.Function`, or a single `Layer`; built or not.
        weights: `"copy"` gives the copy the same values in memory of its own;
            `"share"` puts new layers on the same variables (a tie that survives
            the training of either); `"fresh"` draws new values with the layers'
            own initializers. What `adapt()` learned is data and always stays.
        seed: With `"fresh"`, makes the draw reproducible and re-seeds every
            initializer and random stream, also those with a fixed seed. With
            `"copy"` and `"share"`, re-seeds the random streams only. Generators of
            Python, NumPy or a framework that the model holds are streams, too; one
            that a function makes for itself, with a seed of its own, is not reached.
        compiled: What becomes of the state of `compile()`: `"copy"` takes
            optimizer, losses and metrics along with their state; `"fresh"`
            keeps the configuration and resets the state; `"drop"` returns an
            uncompiled model. By default `"fresh"` for fresh weights, else
            `"copy"`.
        name: A new name for the model.
        prefix: Put before the names of the model and its layers, so that model
            and copy can be parts of one model.
        keep: Objects, classes or predicates; what they name is shared between
            both models instead of copied, a layer with all that is inside it. The
            model itself is always copied. A function that the model holds is an
            object; any other is a predicate, asked of each object.
        inputs: What the copy takes, on the same weights: a shape without the batch
            axis; a `keras.Input`, which becomes an input of the copy; a symbolic
            tensor of another graph, onto which the copy can then be put, as its
            input takes that shape and dtype; or an array, which fixes an input for
            good. For several inputs a list, None leaving one as it is, or a dict by
            name. Models inside follow. What cannot follow, a fixed `Reshape` or a
            `Dense` behind a `Flatten`, is refused with both shapes.
        dtype: The precision of the copy: the name of a policy (`"bfloat16"`,
            `"mixed_float16"`), a `keras.DTypePolicy`, or a dict `{where: policy}`
            by place, as `Graph.find` takes it. A place stands for all inside it,
            later ones win, None leaves a place as it is. Weights are cast; a cast
            that overflows, or changes whole numbers, is refused. Inputs keep
            their dtype unless they are named, or narrower than float64. See
            `compare` for how far the outputs are from the original's.
        device: Where the copy is to lie (`"gpu:1"`, `"cpu"`, a device of the
            backend); by default each value lies where the original's lies.
        distribution: A `keras.distribution.DataParallel` or `ModelParallel` by
            which the copy, its optimizer included, is laid out over a mesh (JAX).

    Returns:
        The new model, of the same class as `model`.

    Raises:
        CopyError: Something in the model cannot be copied faithfully.
        PrecisionError: A value does not fit the dtype.
        ShapeError: A layer cannot follow the inputs.
        UsageError: An argument is wrong.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> twin = regraft.clone(model)
    >>> regraft.verify(model, twin).same
    True
    >>> other = regraft.clone(model, weights="fresh", seed=7)
    >>> regraft.verify(model, other).same
    False
    >>> regraft.clone(model, inputs=(7, 4)).output_shape
    (None, 7, 2)
    >>> regraft.clone(model, dtype="bfloat16").outputs[0].dtype
    'bfloat16'
    """
    check(model, weights, seed, compiled, name, prefix)
    kept = named(model, keep)
    if compiled is None:
        compiled = "fresh" if weights == "fresh" else "copy"
    rules = _CloneRules(compiled, *check_place(weights, device, distribution))
    leaves = None if inputs is None else _reshape.read(model, inputs)
    policies = None if dtype is None else _precision.read(model, dtype)
    if weights == "fresh" and (device is not None or distribution is not None):
        # Layers draw their weights where Keras puts them, so that comes first.
        drawn = clone(
            model,
            weights="fresh",
            seed=seed,
            compiled=compiled,
            name=name,
            prefix=prefix,
            keep=kept,
            inputs=inputs,
            dtype=dtype,
        )
        return clone(drawn, keep=kept, device=device, distribution=distribution)
    walk = Walk(model, rules=rules, keep=keeper(model, kept))
    if weights == "share":
        _share_weights(walk)
    if walk.keep is not None:
        share_parts_of_kept(walk, walk.keep)
    # What layers do that draw weights, or are called, may leave garbage behind.
    is_tidy = weights != "fresh" and leaves is None and policies is None
    with without_collector() if is_tidy else nullcontext():
        new = walk.run()
        try:
            # Every part has a strategy of its own, or none, whatever scope this is.
            with (
                _backends.active().scope_of(None),
                _backends.active().lasting(),
                _keras.outside_name_scopes(),
            ):
                if weights == "fresh":
                    _fresh.redraw(walk, seed)
                elif seed is not None:
                    _seeds.reseed_streams(walk, _seeds.Seeds(seed))
                # After the weights: some slots start as their copies. A `compile()` of
                # the model's own may have left optimizers elsewhere.
                if compiled == "fresh" or (compiled == "drop" and weights == "fresh"):
                    _reset_training(walk)
                if name is not None or prefix:
                    _rename(walk, new, name, prefix)
                if leaves is not None or policies is not None:
                    # What is tried may draw, though no new weights are asked for.
                    draws = weights == "fresh" and seed is None
                    with nullcontext() if draws else _seeds.undisturbed(seed):
                        _change(walk, new, leaves, policies, shares=weights == "share")
        except BaseException:
            walk.release()
            raise
        _shared_code.warn_of_parts(walk)
        _shared_code.warn_of_registries(walk)
        walk.forget()  # The collector, which looks at all of it, has less to see.
    return new


def _rename(walk: Walk, new: Any, name: str | None, prefix: str | None) -> None:
    """Gives a copy other names, by which a class may not find policies when loaded."""
    rename(walk, new, name=name, prefix=prefix)
    layers = [new for _, new in walk.operations if isinstance(new, _keras.Layer)]
    warn_of_policies(new, {address(x) for x in layers if _keras.is_quantized(x)})


def _change(
    walk: Walk,
    new: Any,
    leaves: list[_reshape.Leaf] | None,
    policies: _precision.Policies | None,
    *,
    shares: bool,
) -> None:
    """Gives a copy other inputs and another precision."""
    touched: set[int] = set()
    if policies is not None:
        touched = _precision.apply(walk, new, policies, shares=shares)
    mine = {address(layer) for _, layer in walk.operations}
    kept = {address(x) for x in _keras.all_layers(new) if address(x) not in mine}
    follow = Follow(new, touched=touched, kept=kept)
    if policies is not None:
        _precision.set_inputs(walk, policies, follow)
    if leaves is not None:
        _reshape.apply(new, leaves, follow)
    follow.run()
    warn_of_policies(new, touched)


def clone_onto(model: M, *, device: Any = None, layouts: Layouts | None = None) -> M:
    """Returns an exact copy that lies elsewhere, for other verbs to build on.

    Args:
        model: The model.
        device: Where all values go: what the backend's `copy_values` takes.
        layouts: How variables are laid out over a mesh.
    """
    return Walk(model, rules=_CloneRules("copy", device, layouts)).run()


class _CloneRules(Rules):
    """Refuses variables without a value; forgets what `compile()` did."""

    def __init__(self, compiled: str, device: Any, spread: Layouts | None) -> None:
        self.compiled = compiled
        self.device = device
        self.spread = spread

    def layouts(self, walk: Walk) -> dict[int, Any] | None:
        if self.spread is None:
            return None
        return self.spread.assign(walk.variables, (old for old, _ in walk.optimizers))

    def attributes(self, obj: Any, state: dict[str, Any]) -> None:
        if self.compiled == "drop":
            _keras.drop_compile_state(state)

    def value(self, variable: Any) -> Any:
        if not _keras.has_value(variable):
            raise CopyError(
                explain(
                    "A variable has no value at the moment.",
                    where=variable.path,
                    expected="a variable that holds its value",
                    received="an empty variable: a training loop on JAX holds the "
                    "values of its model until it is asked for them",
                    fix="clone the model that is being trained, or call its "
                    "`jax_state_sync()` first",
                )
            )
        return _keras.raw_value(variable)


def _share_weights(walk: Walk) -> None:
    """Lets every weight stand for itself; states of all kinds are copied."""
    seen = Walk(walk.root, keep=walk.keep).survey()
    private = {address(generator.state) for generator, _ in seen.seed_generators}
    owners = [old for old, _ in (*seen.metrics, *seen.optimizers)]
    layers = [old for old, _ in seen.operations]
    private |= _keras.held_beside_layers(owners, layers)
    private |= {address(v) for layer in layers for v in _keras.held_states(layer)}
    weights = [v for v, _ in seen.variables if address(v) not in private]
    stand_for_themselves(walk, weights)
    values = {address(_keras.raw_value(v)) for v, _ in seen.variables}
    for operation, _ in seen.operations:
        for value in _backends.active().other_weights(operation).values():
            if address(value) not in values:
                walk.remember(value, value)


def _reset_training(walk: Walk) -> None:
    optimizers = [new for _, new in walk.optimizers]
    layers = [new for _, new in walk.operations]
    before = _keras.held_beside_layers(optimizers, layers)
    _keras.rebuild_optimizer(optimizers)
    gone = before - _keras.held_beside_layers(optimizers, layers)
    walk.variables = [pair for pair in walk.variables if address(pair[1]) not in gone]
    reset_compile_metrics(walk)

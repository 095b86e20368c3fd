"""`clone_model`: what `keras.models.clone_model` does, for every model."""

from __future__ import annotations

from typing import Any

from . import _inputs, _keras
from ._clone import clone
from ._errors import UsageError, UsageTypeError, explain
from ._replay import CallFunction, CloneFunction, Replay


def clone_model(
    model: Any,
    input_tensors: Any = None,
    clone_function: CloneFunction | None = None,
    call_function: CallFunction | None = None,
    recursive: bool = False,
) -> Any:
    """Returns a model like `model` with newly drawn weights.

    Takes the place of `keras.models.clone_model`. Without further arguments it
    is `clone(model, weights="fresh")`: model and layers keep their classes,
    whatever they are and without `get_config()`; shared layers and variables
    stay shared; names, `trainable`, optional and sparse inputs, layers attached
    outside the graph and the configuration of `compile()` are kept.

    With further arguments the graph is made anew by calling its layers again.

    Args:
        model: A Functional, Sequential or subclassed `Model`. The other
            arguments need a Functional or Sequential one.
        input_tensors: What the new model is built on, in the structure of
            `model.input`: symbolic tensors, `InputLayer`s or arrays. The result
            of `keras.Input()` becomes an input of the new model. For a tensor
            in the middle of a graph, an input of its shape and dtype is made,
            as `keras.Model` does; neither the tensor nor its graph is touched.
            An array fixes an input: the model always computes with that value,
            which becomes a layer `input_wrapper_for_<input name>`, and has the
            other inputs only. If no other inputs are left, the model keeps
            optional ones of these names and ignores what they are given.
            Layers that meet another shape than before are built for it, and
            stay tied to what holds them.
        clone_function: Called as `clone_function(layer)` once for each distinct
            layer, returns the layer that takes its place: a new one, or the
            layer itself. By default a copy with new weights. It is not asked
            about inputs and plain operations (`x + y`), which are copied.
        call_function: Called as `call_function(operation, *args, **kwargs)` for
            each call in the graph, plain operations included, returns the
            outputs; by default `operation(*args, **kwargs)`. A Sequential to
            which it adds layers stays a Sequential as long as it is a sequence
            of layers; else the result is a Functional model.
        recursive: Whether to do the same inside of models in the model and,
            with a `clone_function`, inside of layers in layers
            (`TimeDistributed`, `Bidirectional`, custom ones). Models inside are
            then not passed to `clone_function`. A layer that holds others is
            passed to it first; if the result is of the same class, the layers
            it holds are exchanged for those that `clone_function` returns for
            the original's.

    Returns:
        The new model, of the same class as `model`. A compiled model gives a
        compiled one with fresh optimizer state.

    Raises:
        UsageError: An argument is wrong, or a call returned another number of
            outputs than in `model`. It is a `ValueError`, as in Keras.
        CopyError: Something in the model cannot be copied faithfully.
        ShapeError: A layer meets another shape than before, and what it shares
            with other layers cannot follow.

    Example:
    >>> import keras, regraft
    >>> x = keras.Input((4,))
    >>> model = keras.Model(x, keras.layers.Lambda(lambda t: 2 * t)(x))
    >>> regraft.clone_model(model, input_tensors=keras.Input((8,))).output_shape
    (None, 8)
    """
    _check(model, clone_function, call_function)
    if input_tensors is None and clone_function is None and call_function is None:
        return clone(model, weights="fresh")
    if not isinstance(model, _keras.Functional | _keras.Sequential):
        raise UsageError(
            explain(
                "Arguments `input_tensors`, `clone_function` and `call_function` are "
                "only supported for Functional and Sequential models.",
                where=model.name,
                expected="a model whose layers and calls are known",
                received=f"{type(model).__name__}, whose calls are Python code",
                fix="leave these arguments out, or make the model with the "
                "functional API",
            )
        )
    replay = Replay(
        model,
        clone_function=clone_function,
        call_function=call_function,
        recursive=recursive,
    )
    return replay.run(_read_inputs(model, input_tensors))


def _read_inputs(model: Any, given: Any) -> _inputs.Inputs | None:
    if given is None:
        return None
    if isinstance(model, _keras.Functional):
        return _inputs.of_graph(given, model.input, where=model.name)
    first = next(iter(_keras.sequence_of(model)), None)
    old = first if isinstance(first, _keras.InputLayer) else None
    return _inputs.of_sequence(given, old, where=model.name)


def _check(model: Any, clone_function: Any, call_function: Any) -> None:
    if not isinstance(model, _keras.Model):
        raise UsageTypeError(
            explain(
                "`clone_model` clones models.",
                where="argument `model`",
                expected="a `keras.Model`",
                received=f"{model!r} (of type {type(model).__name__})",
                fix="pass the model itself; `regraft.clone` also takes single layers",
            )
        )
    functions = {"clone_function": clone_function, "call_function": call_function}
    for argument, function in functions.items():
        if function is not None and not callable(function):
            raise UsageTypeError(
                explain(
                    f"Expected `{argument}` argument to be a callable.",
                    where=f"argument `{argument}`",
                    expected="a function, or None",
                    received=f"{function!r} (of type {type(function).__name__})",
                    fix=f"pass for example `{argument}=lambda layer: layer`"
                    if argument == "clone_function"
                    else "pass a function that takes a layer and its arguments",
                )
            )

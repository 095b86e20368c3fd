"""Copies of what `tf.saved_model.load` returns."""

from __future__ import annotations

import abc
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import (
    ConcreteFunction,
)
from tensorflow.python.saved_model import load

from .._errors import CopyError, explain


class Loaded(abc.ABC):  # noqa: B024
    """Any object that `tf.saved_model.load` returned: it makes classes as it goes."""

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        return kind.__module__ == load.__name__


def copy_loaded(obj: Any, walk: Any) -> Any:
    """Saves and loads again: only so do functions come with variables of their own.

    The functions in a SavedModel are graphs, bound for good to the variables they
    were loaded with. The files that they came from may be gone by now, and have
    old values at any rate.
    """
    if isinstance(obj, ConcreteFunction):
        refuse_function(obj, walk)
    with TemporaryDirectory() as folder:
        signatures = dict(getattr(obj, "signatures", {}))
        try:
            tf.saved_model.save(obj, folder, signatures=signatures)
        except Exception as error:  # TensorFlow has many reasons not to save something.
            raise _refusal(
                "A part of a SavedModel cannot be saved again, so it cannot be copied.",
                obj,
                walk,
                received=f"{type(error).__name__}: {str(error).strip()[:200]}",
            ) from error
        new = tf.saved_model.load(folder)
    pending = [(obj, new)]
    while pending:
        old, twin = pending.pop()
        known = walk.known(old)
        if known is twin:
            continue
        if known is not None:
            raise _refusal(
                "A part of a SavedModel was met before the SavedModel itself.",
                obj,
                walk,
                received=f"a {type(old).__name__} that is also held elsewhere",
            )
        walk.remember(old, twin)
        children = twin._trackable_children()
        for name, child in old._trackable_children().items():
            pending.append((child, children[name]))
    for name, function in signatures.items():
        walk.remember(function, new.signatures[name])
    return new


def refuse_function(function: Any, walk: Any) -> NoReturn:
    """Refuses a function of which nobody knows the SavedModel: it is saved by that."""
    raise _refusal(
        "A function of a SavedModel was met before the SavedModel itself.",
        function,
        walk,
        received=f"a {type(function).__name__} whose SavedModel is not known",
    )


def _refusal(what: str, obj: Any, walk: Any, *, received: str) -> CopyError:
    return CopyError(
        explain(
            what,
            where=walk.path_of(obj),
            expected="a SavedModel whose parts are reached through it",
            received=received,
            fix="keep the SavedModel itself on the layer and take its parts from it, "
            "or pass `keep=` to share it between both models",
        )
    )

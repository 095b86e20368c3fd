"""Copies of what TensorFlow holds behind a handle: tables, datasets and their like."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import ops
from tensorflow.python.trackable.base import Trackable
from tensorflow.python.trackable.resource import CapturableResource, RestoredResource

from .._errors import CopyError, explain
from .._identity import address
from .._makers.base import refuse
from .._parts import is_model_state, parts

MutableHashTable = tf.lookup.experimental.MutableHashTable

_HANDLE = "_resource_handle_value"
# By which a session finds a resource again, so that a copy needs another one.
_SHARED_NAME = "_shared_name"


class StatelessResource(abc.ABC):  # noqa: B024
    """Any resource that a file knows by its attributes alone.

    A class says what a checkpoint holds of it. One that says nothing is made anew from
    its attributes when TensorFlow loads a SavedModel, and so is its copy here.
    """

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        saves = ("_serialize_to_tensors", "_gather_saveables_for_checkpoint")
        return (
            issubclass(kind, CapturableResource)
            and not issubclass(kind, RestoredResource)
            and all(getattr(kind, name) is getattr(Trackable, name) for name in saves)
        )


def copy_stateless(resource: Any, walk: Any) -> Any:
    """Makes a resource of the same class from copies of the attributes."""

    def make(new: Any) -> None:
        if vars(resource)[_HANDLE] is not None:
            _create(resource, new, walk, may_be_same=not _destroys(type(resource)))
            new._initialize()

    return _copy_resource(resource, walk, make)


def copy_table(table: Any, walk: Any) -> Any:
    """Makes a table of the same class, with the same entries."""

    def make(new: Any) -> None:
        _create(table, new, walk, may_be_same=False)
        new.insert(*table.export())

    return _copy_resource(table, walk, make)


def _copy_resource(resource: Any, walk: Any, make: Callable[[Any], None]) -> Any:
    """Makes a shell, of which `make` makes a resource once its attributes are there.

    Whoever deletes a resource that has attributes destroys what is behind its handle.
    A shell gets them at the last moment, and loses them if there is an error: what its
    handle would name may still be the original's.
    """
    state = resource_state(resource)
    new = walk.remember(resource, object.__new__(type(resource)))
    for part in state.values():
        walk.copy_of(part)

    def complete() -> None:
        walk.copy_items(state, vars(new))
        vars(new)[_HANDLE] = None
        if vars(resource).get(_SHARED_NAME) is not None:
            vars(new)[_SHARED_NAME] = f"resource_{ops.uid()}"
        try:
            with tf.init_scope(), tf.device(resource._resource_device):
                make(new)
        except CopyError:
            vars(new).clear()
            raise
        except Exception as error:  # Whatever a class raises.
            vars(new).clear()
            reason = f"making it again failed ({error!r})"
            raise refuse(walk, resource, reason) from error

    walk.hash_later(resource, complete, state.values())
    return new


def _create(resource: Any, new: Any, walk: Any, *, may_be_same: bool) -> None:
    handle = new._create_resource()
    is_same = _name(handle) == _name(vars(resource)[_HANDLE])
    if is_same and not may_be_same and context.anonymous_name() not in _name(handle):
        raise refuse(walk, resource, "making it again gave the very same resource")
    new._resource_handle = handle


def _destroys(kind: Any) -> bool:
    return kind._destroy_resource is not CapturableResource._destroy_resource


def _name(handle: Any) -> str:
    """Returns what TensorFlow writes of a handle: the name and place of a resource."""
    return repr(handle)


def resource_state(resource: Any) -> dict[str, Any]:
    """Returns the attributes of a resource, apart from what only one can have."""
    own = (_HANDLE, _SHARED_NAME)
    return {name: x for name, x in vars(resource).items() if name not in own}


def table_contents(table: Any) -> list[Any]:
    """Returns the entries of a table in an order, and what else is on it."""
    keys, entries = (side.numpy().tolist() for side in table.export())
    found = sorted(map(str, zip(keys, entries, strict=True)))
    state = resource_state(table)
    added = {name: x for name, x in state.items() if name not in _plain_table()}
    return [type(table), table._default_value.numpy(), found, added]


@lru_cache
def _plain_table() -> frozenset[str]:
    """Returns the names of what TensorFlow writes on a new table."""
    return frozenset(vars(MutableHashTable(tf.int64, tf.int64, 0)))


# --- datasets -------------------------------------------------------------------


def share_dataset(dataset: Any, walk: Any) -> Any:
    """Shares a dataset, unless its functions compute with what was copied.

    They were traced once and for all. What they use is known to be copied when the
    values of variables have been.
    """
    walk.allocate(partial(_check_dataset, walk), dataset, dataset)
    return dataset


def _check_dataset(walk: Any, dataset: Any, _: Any) -> None:
    for part in _used_by(dataset):
        twin = walk.known(part)
        if twin is None or twin is part:
            continue
        name = getattr(part, "path", None) or getattr(part, "name", None)
        raise CopyError(
            explain(
                "A dataset computes with a part of this model: the copy's would go on "
                "computing with the original's.",
                where=walk.path_of(dataset),
                expected="a dataset whose functions use nothing of the model",
                received=f"one that uses a {type(part).__name__} {name or ''}".strip(),
                fix="keep the dataset outside of the model, or map the model over it "
                "where it is read; to share it as it is, pass "
                "`keep=(tf.data.Dataset,)`",
            )
        )


def _used_by(dataset: Any) -> Iterator[Any]:
    """Yields the variables, tables and layers that the functions of a dataset use."""
    pending, seen = [dataset], set[int]()
    while pending:
        current = pending.pop()
        if address(current) in seen:
            continue
        seen.add(address(current))
        pending += current._inputs()
        for wrapper in current._functions():
            captured = wrapper.function.captured_inputs
            owners = (getattr(handle, "_parent_trackable", None) for handle in captured)
            yield from (owner() for owner in owners if owner is not None)
            held = list(_held_by(wrapper._func))
            pending += [part for part in held if isinstance(part, tf.data.Dataset)]
            if _runs_python(wrapper.function):
                yield from held


def _runs_python(function: Any) -> bool:
    """Tells whether a graph calls a Python function each time it runs."""
    graph = function.graph.as_graph_def()
    bodies = [graph.node, *(inner.node_def for inner in graph.library.function)]
    return any("PyFunc" in node.op for nodes in bodies for node in nodes)


def _held_by(function: Any) -> Iterator[Any]:
    """Yields parts of models, variables, tables and datasets that a function holds."""
    kinds = (tf.Variable, CapturableResource, tf.data.Dataset)
    pending, seen = [function], {address(function)}
    while pending:
        for _, part in parts(pending.pop()):
            if address(part) in seen:
                continue
            seen.add(address(part))
            if is_model_state(part) or isinstance(part, kinds):
                yield part
            else:
                pending.append(part)

"""`join`: one model of several."""

from __future__ import annotations

from typing import Any, Literal

import keras

from .. import _keras
from .._arguments import check_name
from .._errors import UsageError, UsageTypeError, explain
from .._identity import address
from . import trials
from .calls import Scope, next_number
from .reading import Graph, graph, of_table
from .slots import Slot, slots_in
from .splice import add_call, add_call_of, add_input, as_new, counted, names_in
from .table import Part, Table

How = Literal["chain", "parallel"]


def join(
    *models: Any,
    how: How | None = None,
    merge: Any = None,
    share_inputs: bool | None = None,
    name: str = "joined",
) -> Graph:
    """Connects models to one.

    The models become parts of a new one, called as layers; those whose names clash
    are numbered. Nothing is built, and no model is touched, until `build`.

    A model gets tensors in their order, or by name where it, or what it is given, has
    a dict of them: then the names must be the same.

    Args:
        *models: Models, or graphs of models.
        how: `"chain"`: each gets what the one before returns. `"parallel"`: all get
            inputs, and the outputs of all are returned, or merged. By default a
            chain, unless there is something to merge.
        merge: A layer such as `keras.layers.Average()`, called with the list of the
            models' outputs.
        share_inputs: For `"parallel"`: whether all models get the same inputs, which
            is the default, or each its own.
        name: The name of the new model.

    Returns:
        The graph of the new model.

    Example:
    >>> import keras, regraft
    >>> def net(name):
    ...     x = keras.Input((4,))
    ...     return keras.Model(x, keras.layers.Dense(2)(x), name=name)
    >>> both = regraft.join(net("a"), net("b"), merge=keras.layers.Average()).build()
    >>> both.output_shape
    (None, 2)
    """
    if how is None:
        how = "chain" if merge is None else "parallel"
    if how not in ("chain", "parallel") or (how == "chain" and merge is not None):
        raise UsageError(
            explain(
                "`join` does not know how to connect the models.",
                where="arguments `how` and `merge`",
                expected="how='chain', or how='parallel' with or without `merge=`",
                received=f"how={how!r}, merge={merge!r}",
                fix="leave out `how=`, or `merge=`",
            )
        )
    check_name("name", name)
    graphs = [_as_graph(model) for model in models]
    if len(graphs) < 2:
        raise UsageError(
            explain(
                "`join` connects several models.",
                where="argument `models`",
                expected="two or more",
                received=f"{len(graphs)}",
                fix="pass another model",
            )
        )
    table, keys = _side_by_side(graphs, name)
    if how == "chain":
        table = _chain(table, keys)
    else:
        shares = True if share_inputs is None else share_inputs
        table = _parallel(table, keys, merge, shares)
    return of_table(table)


def _as_graph(model: Any) -> Graph:
    if isinstance(model, Graph):
        return model
    if not isinstance(model, _keras.Layer):
        raise UsageTypeError(
            explain(
                "`join` takes models.",
                where="argument `models`",
                expected="Functional or Sequential models, or graphs of them",
                received=f"{model!r} (of type {type(model).__name__})",
                fix="make a model of it first",
            )
        )
    return graph(model)


def _side_by_side(graphs: list[Graph], name: str) -> tuple[Table, list[int]]:
    """Puts the parts of all models into one table, under a model that is empty.

    A model that is given twice is one part, called twice. A layer of an edited model
    that another has as well gets variables of its own: it may be edited in one only.
    """
    parts: dict[int, Part] = {}
    read: dict[int, Part] = {}
    keys: list[int] = []
    known: dict[int, int] = {}
    used: dict[int, bool] = {}  # For the ids of operations, whether in an edited model.
    notes: list[str] = []
    for each in graphs:
        table = each._table
        is_edited = bool(table.changed)
        if not is_edited and address(each.model) in known:
            keys.append(known[address(each.model)])
            continue
        key = table.root
        own = [address(table[k].operation) for k in table.reached]
        if any(x in used and (is_edited or used[x]) for x in own):
            table, key = table.doubling(key)
            notes.append(f"{each.name} shares no layers with other models any more.")
        used.update({x: is_edited or used.get(x, False) for x in own})
        parts.update(table.parts)
        read.update(table.read)
        if not is_edited:
            known[address(each.model)] = key
        keys.append(key)
    taken: set[str] = set()
    for key in dict.fromkeys(keys):
        new = counted(parts[key].name, taken)
        taken.add(new)
        parts = dict(Table(parts, key).having(key, name=new).parts)
    root = next_number()
    parts[root] = Part(None, name, scope=Scope((), (), ()), is_new=True)
    return Table(parts, root, notes=tuple(notes), read=read), keys


def _chain(table: Table, keys: list[int]) -> Table:
    table, given = _inputs_of(table, keys[0])
    ends = _Ends(table, keys[0], table.scope_of(keys[0]).inputs)
    for key in keys:
        table, given = _call(table, key, given, ends)
        ends = _Ends(table, key, table.scope_of(key).outputs)
    return _ending(table, given[0] if len(given) == 1 else given)


def _parallel(table: Table, keys: list[int], merge: Any, shares: bool) -> Table:
    table, given = _inputs_of(table, keys[0])
    ends = _Ends(table, keys[0], table.scope_of(keys[0]).inputs)
    results: list[Any] = []
    for i, key in enumerate(keys):
        if i and not shares:
            table, given = _inputs_of(table, key)
            ends = _Ends(table, key, table.scope_of(key).inputs)
        table, made = _call(table, key, given, ends)
        results.append(made[0] if len(made) == 1 else made)
    if merge is None:
        return _ending(table, results)
    new = as_new(merge, None, verb="join", where=table[table.root].name)
    table, made = add_call(table, table.root, new, results, verb="join")
    return _ending(table, made[0] if len(made) == 1 else made)


def _inputs_of(table: Table, key: int) -> tuple[Table, list[Slot]]:
    """Gives the new model inputs like those of one of its parts."""
    made = []
    inner = table.scope_of(key)
    for slot in slots_in(inner.inputs):
        old = inner.tensor(slot)
        taken = {*names_in(table, table.root)}
        taken |= {part.name for part in table.parts.values() if part.scope is not None}
        name = counted(trials.input_name(old), taken)
        tensor = trials.like_input(inner, slot, old, name=name)
        table, new = add_input(table, table.root, tensor, last=True)
        inputs = [*slots_in(table.scope.inputs), new]
        scope = table.scope.having(inputs=inputs[0] if len(inputs) == 1 else inputs)
        table = table.having(table.root, scope=scope)
        made.append(new)
    return table, made


class _Ends:
    """The inputs or outputs of a model, and what they are called.

    Attributes:
        struct: The structure of slots.
        names: The keys of a dict, or the names of layers; None in deeper structures.
        has_keys: Whether there are dicts.
    """

    def __init__(self, table: Table, key: int, struct: Any) -> None:
        self.struct = struct
        self.has_keys = _has_dict(struct)
        slots, scope = slots_in(struct), table.scope_of(key)
        parts = [scope.by_number[slot.call].part for slot in slots]
        self.names: list[str] | None = [table[part].name for part in parts]
        if self.has_keys:
            is_flat = isinstance(struct, dict) and len(struct) == len(slots)
            self.names = sorted(struct) if is_flat else None


def _has_dict(struct: Any) -> bool:
    if isinstance(struct, list | tuple):
        return any(map(_has_dict, struct))
    return isinstance(struct, dict)


def _call(
    table: Table, key: int, given: list[Slot], ends: _Ends
) -> tuple[Table, list[Slot]]:
    """Calls a model with tensors that are called as the ends of another one."""
    wanted = _Ends(table, key, table.scope_of(key).inputs)
    if len(slots_in(wanted.struct)) != len(given):
        raise UsageError(
            explain(
                "`join`: a model is given another number of tensors than it takes.",
                where=table[key].name,
                expected=f"{len(slots_in(wanted.struct))} tensor(s)",
                received=f"{len(given)}",
                fix="choose the outputs of the model before it with `outputs(...)`",
            )
        )
    flat = _in_order(table[key].name, given, ends, wanted)
    struct = keras.tree.pack_sequence_as(wanted.struct, flat)
    return add_call_of(table, table.root, key, ((struct,), {}), verb="join")


def _in_order(where: str, given: list[Slot], ends: _Ends, wanted: _Ends) -> list[Slot]:
    """Returns tensors in the order in which a model takes them."""
    if len(given) == 1 or not (ends.has_keys or wanted.has_keys):
        return given
    if ends.names is not None and wanted.names is not None:
        by_name = dict(zip(ends.names, given, strict=True))
        if len(by_name) == len(given) and by_name.keys() == {*wanted.names}:
            return [by_name[name] for name in wanted.names]
    elif _keras.same_structure(ends.struct, wanted.struct):
        return given
    raise UsageError(
        explain(
            "`join`: a model is given tensors by other names than it takes.",
            where=where,
            expected=_said(wanted),
            received=_said(ends),
            fix="name the outputs of the model before it with `outputs(name=...)`, or "
            "pass `share_inputs=False` for models side by side",
        )
    )


def _said(ends: _Ends) -> str:
    if ends.names is None:
        return str(keras.tree.map_structure(lambda _: "a tensor", ends.struct))
    return ", ".join(ends.names)


def _ending(table: Table, outputs: Any) -> Table:
    scope = table.scope.having(outputs=outputs)
    return table.having(table.root, scope=scope)

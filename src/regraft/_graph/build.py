"""Builds the model that an edited graph describes.

What was not changed is copied, calls included, by one walk. From the first changed
call on, the copies are called again on symbolic tensors. Then the model's shell, with
all that is no part of the graph, is copied around the new graph.
"""

from __future__ import annotations

import warnings
from typing import Any

from .. import _keras, _transplant
from .._collector import without_collector
from .._errors import ClassChangedWarning, EditNotSavedWarning, explain
from .._identity import address
from .._rename import rename_layer
from . import fitting, meaning, optimizers
from .assemble import Assembly, sets_variables_alone
from .fates import note
from .playback import Playback
from .slots import Slot, put, slots_in
from .survival import survives_files
from .table import Part, Table
from .tracing import trace


class Build:
    """Makes a model of a table.

    Args:
        table: The parts and calls.
        mismatch: What becomes of variables whose shape must change.
        compiled: What becomes of the state of `compile()`.
    """

    def __init__(
        self, table: Table, *, mismatch: fitting.Mismatch, compiled: str
    ) -> None:
        self._table = table
        self._compiled = compiled
        self._fitting = fitting.Fitting(mismatch)
        self._assembly = Assembly(
            table, make_model=self._model, rules=_transplant.rules_of(compiled)
        )
        self._playback = Playback(table, self._assembly, self._fitting)
        self._notes: list[str] = []
        # Models that were made, each with optimizers of the old and of the new.
        self._trained: list[tuple[Any, list[tuple[Any, Any]]]] = []

    def run(self) -> Any:
        """Makes the model and returns it, once."""
        try:
            return self._run()
        finally:  # Each knows the other: only the garbage collector would free them.
            del self._assembly, self._playback

    def _run(self) -> Any:
        table = self._table
        meaning.check_calls(table)
        rows = meaning.rows_of(table)
        self._copy()
        try:
            new = self._assembly.operation(table.root)
            self._fitting.raise_if_refused(table[table.root].name)
            meaning.check_rows_of(new, rows)
            self._rename_outputs()
            self._let_optimizers_follow()
            self._say_what_files_lose()
        except BaseException:
            for walk in self._assembly.walks:
                walk.release()
            raise
        found = trace(
            table,
            self._assembly,
            self._fitting,
            self._playback.replaced,
            new,
            (*table.notes, *self._notes),
        )
        note(new, found)
        return new

    # --- what is copied -----------------------------------------------------------

    def _copy(self) -> None:
        """Copies all operations, and the tensors of calls that stay as they are."""
        table = self._table
        others: dict[int, list[Any]] = {}
        for key in table.reached:
            if table[key].scope is None or key not in table.changed:
                continue
            clean = table.clean_calls(key)
            needed = others[key] = []
            for call in table.scope_of(key).calls:
                if call.number in clean:
                    needed += call.node.outputs
                else:  # What a call is given besides tensors is copied, too.
                    flat = _keras.leaves(call.arguments)
                    needed += [x for x in flat if not isinstance(x, Slot)]
        self._assembly.copy(table.reached, others)

    # --- models -------------------------------------------------------------------

    def _model(self, key: int) -> Any:
        part = self._table[key]
        tensors = self._playback.tensors(key)
        scope = self._table.scope_of(key)
        inputs, outputs = put(scope.inputs, tensors), put(scope.outputs, tensors)
        self._playback.name_apart(key, _keras.leaves(outputs))
        is_sequence = isinstance(part.operation, _keras.Sequential)
        if part.operation is None or is_sequence or not _keras.has_plain_inputs(inputs):
            graph = _keras.functional(inputs, outputs, part.name)
        else:  # The model's shell needs nothing but the map.
            graph = _keras.MappedGraph(inputs, outputs)
        if part.operation is None:
            return graph
        if is_sequence:
            new = self._sequence(part, key, graph)
        else:
            new = self._functional(part, key, graph)
        if new.name != part.name:
            rename_layer(new, part.name)
        return new

    def _functional(self, part: Part, key: int, graph: Any) -> Any:
        model = part.operation
        memo = self._memo(key, model, graph)
        memo.update({address(a): b for a, b in _keras.graph_fields(model, graph)})
        for operation in model.operations:  # Others are no part of it any more.
            memo.setdefault(address(operation), None)
        new, walk = self._shell(model, memo, key)
        replaced = {address(memo[address(x)]) for x in model.operations}
        _keras.track_graph_layers(new, replaced)
        self._finish(model, new, graph, walk)
        if _keras.functional_like_constructor(type(model)):
            return new
        if sets_variables_alone(self._table, key):
            return new  # A file has, or loses, what it has and loses of the old model.
        if _keras.runs_its_graph(model):
            self._say_class(new, part, type(model).__name__)
            _keras.set_class(new, _keras.Functional)
        else:  # As a Functional model it would return something else.
            self._assembly.edited.add(key)
        return new

    def _sequence(self, part: Part, key: int, graph: Any) -> Any:
        model = part.operation
        old = _keras.inner_graph(model)
        memo = self._memo(key, old, graph)
        memo[address(old)] = graph
        for operation in old.operations:
            memo.setdefault(address(operation), None)
        new, walk = self._shell(model, memo, key)
        layers = _keras.call_chain(graph)
        if layers is not None:
            _keras.resemble(graph, old)
            _keras.set_sequence(new, layers, graph)
            self._finish(model, new, graph, walk)
            return new
        self._say_class(new, part, type(model).__name__)
        _keras.move_compile_state(new, graph)
        if not model.trainable:
            graph.trainable = False
        self._finish(model, graph, graph, walk)
        return graph

    def _shell(self, model: Any, memo: dict[int, Any], key: int) -> tuple[Any, Any]:
        """Copies what a model is besides its graph.

        Losses and metrics belong to outputs, by name or by position: with more or fewer
        of them, or in another order, `compile()` must be called again.
        """
        compiled = self._compiled
        if self._has_other_outputs(key):
            if compiled != "drop" and getattr(model, "compiled", False):
                self._notes.append(
                    f"{model.name} is not compiled any more: it has other outputs."
                )
            compiled = "drop"
        return _transplant.shell(model, memo, compiled=compiled)

    def _has_other_outputs(self, key: int) -> bool:
        """Tells whether not each output has the place that it had, or a new one."""
        part, read = self._table[key], self._table.read.get(key)
        after = slots_in(self._table.scope_of(key).outputs)
        if read is None or read.scope is None or read.operation is not part.operation:
            return len(after) != len(_keras.inner_graph(part.operation).outputs)
        before = slots_in(read.scope.outputs)
        return len(before) != len(after) or any(
            now != was and now in before for was, now in zip(before, after, strict=True)
        )

    def _finish(self, model: Any, new: Any, graph: Any, walk: Any) -> None:
        before = getattr(_keras.inner_graph(model), "output_names", [])
        names = zip(before, graph.output_names, strict=False)
        if len(before) == len(graph.output_names):
            _keras.rename_outputs(new, {a: b for a, b in names if a != b})
        else:
            _keras.set_output_names(new, graph.output_names)
        _keras.derive_state(new)
        self._trained.append((new, walk.optimizers))

    def _rename_outputs(self) -> None:
        """Follows new names in models that were copied as they are."""
        for key in self._table.reached:
            scope, before = self._table[key].scope, self._table.read.get(key)
            if scope is None or before is None or key in self._table.changed:
                continue
            names = {}
            for slot in slots_in(scope.outputs):
                inside = scope.by_number[slot.call].part
                old, name = self._table.read[inside].name, self._table[inside].name
                names.update({old: name} if old != name else {})
            new = self._assembly.operation(key)
            for model in {
                address(m): m for m in (_keras.inner_graph(new), new)
            }.values():
                _keras.rename_outputs(model, names)

    def _let_optimizers_follow(self) -> None:
        """Does so at the end, when all variables have their names."""
        walks = self._assembly.walks
        if not any(pairs for _, pairs in self._trained) and not any(
            walk.optimizers for walk in walks
        ):
            return
        counterparts = {
            **self._assembly.memo,
            **self._playback.replaced,
            **self._successors(),
        }
        for model, pairs in self._trained:
            optimizers.follow(pairs, model, counterparts, self._compiled)
        for walk in self._assembly.walks:
            optimizers.keep(walk.optimizers, counterparts, self._compiled)

    def _successors(self) -> dict[int, Any]:
        """Returns the new variables that go on with what old ones had learned.

        Those are variables of layers that took the places of others, and hold the
        same numbers.
        """
        found: dict[int, Any] = {}
        made = self._assembly.made()
        for key in made:
            part, before = self._table[key], self._table.read.get(key)
            if before is None or not part.is_new or before.operation is None:
                continue
            if isinstance(before.operation, _keras.Layer):
                pairs = fitting.equal_pairs(before.operation, made[key])
                found.update({address(old): new for old, new in pairs})
        return found

    def _memo(self, key: int, graph: Any, new: Any) -> dict[int, Any]:
        """Returns what each part of an old graph became."""
        memo = {
            **self._assembly.memo_of(key),
            **self._playback.replaced,
            **self._successors(),
        }
        group = self._table[key].group
        for inside, made in self._assembly.made().items():
            before = self._table.read.get(inside)
            if before is not None and before.group == group:
                memo[address(before.operation)] = made
        in_use = {address(node) for node in _keras.own_nodes(new)}
        for node in _keras.own_nodes(graph):
            copied = memo.get(address(node))
            if copied is not None and address(copied) not in in_use:
                del memo[address(node)]
        return memo

    def _say_class(self, new: Any, part: Part, kind: str) -> None:
        text = (
            f"{part.name} is a Functional model now: its class {kind} would not make "
            "the edited network again when it is loaded from a file."
        )
        self._notes.append(text)
        warnings.warn(
            explain(
                f"The edited model cannot be a {kind} any more.",
                where=part.name,
                expected=f"the network that {kind} makes from its configuration",
                received="an edited one, which becomes a Functional model",
                fix="nothing, if you only use it; methods of the old class are gone",
            ),
            ClassChangedWarning,
            stacklevel=6,
        )

    def _say_what_files_lose(self) -> None:
        """Warns of layers whose edited insides a saved file would not have."""
        for key, made in self._assembly.made().items():
            if key not in self._assembly.edited or survives_files(made):
                continue
            name = self._table[key].name
            self._notes.append(f"{name} was edited inside; files do not tell.")
            warnings.warn(
                explain(
                    "A layer was edited inside, and files will not tell.",
                    where=name,
                    expected="a class whose configuration describes what it holds",
                    received=f"{type(made).__name__}, which makes its own layers anew "
                    "when it is loaded",
                    fix="keep the model in memory, make copies with `regraft.clone`, "
                    "or save its weights and edit again after loading",
                ),
                EditNotSavedWarning,
                stacklevel=5,
            )


def build(
    table: Table,
    *,
    name: str | None,
    mismatch: fitting.Mismatch,
    compiled: str,
) -> Any:
    """Builds the model that a table describes.

    Args:
        table: The table.
        name: The model's name, if it is to have another one.
        mismatch: What becomes of variables whose shape must change.
        compiled: `"copy"`, `"fresh"` or `"drop"`.
    """
    if name is not None:
        table = table.having(table.root, name=name)
    for key in table.reached:
        part = table[key]
        if part.scope is not None:
            scope = part.scope.used
            table = table if scope is part.scope else table.having(key, scope=scope)
    with without_collector(), _keras.quiet_globals():
        return Build(table, mismatch=mismatch, compiled=compiled).run()

"""The verbs of a graph: each returns a new graph, and touches nothing.

They name places by selectors (see `Graph.find`), turn them into places of the table
behind the graph, and leave the work to the modules that know one kind of edit each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from .. import _keras
from .._arguments import check_name
from .._errors import UsageError, UsageTypeError, did_you_mean, explain
from .._select import Where
from . import between, build, cut, edit, fates, fitting, rewriting
from .attributes import set_attributes
from .inlining import map_ends
from .places import by_part
from .splice import Place
from .table import Table


class Verbs(ABC):
    """What can be done with a graph."""

    _table: Table
    name: str

    # --- layers -------------------------------------------------------------------

    def replace(
        self, where: Where, new: Any, *, call: int | None = None, transfer: bool = False
    ) -> Any:
        """Puts something else in the place of layers.

        Args:
            where: The layers. If they are several and `new` is one layer or model,
                it takes the place of all: they must be connected.
            new: A layer, a model, one of `keras.ops`, or a function that is given
                each old layer and returns one of these; for the layer of an input,
                what `keras.Input` returns. All are exchanged before any is tried.
            call: Only at this call of a shared layer, counted from 0.
            transfer: Whether the new layer gets the weights of the old one, where
                they have the same names.

        Returns:
            The new graph.
        """
        table, places = self._places(where, "replace", call)
        return self._with(edit.replace(table, places, new, transfer=transfer))

    def insert(
        self,
        new: Any,
        *,
        after: Where = None,
        before: Where = None,
        port: int | None = None,
        call: int | None = None,
    ) -> Any:
        """Puts a layer between others.

        Args:
            new: A layer, a model, one of `keras.ops`, or a function that is given
                the layer next to it. In several places each gets a copy.
            after: Behind these layers: all that used their output uses its.
            before: In front of these layers, which are given its output.
            port: Which output (`after`) or input (`before`), if there are several.
            call: Only at this call of a shared layer, counted from 0. The layer
                stays shared.

        Returns:
            The new graph.
        """
        if (after is None) == (before is None):
            raise UsageError(
                explain(
                    "`insert` wants one place.",
                    where=self.name,
                    expected="`after=` or `before=`",
                    received="both" if after is not None else "none of them",
                    fix="pass for example `after='pool'`",
                )
            )
        where = before if after is None else after
        table, places = self._places(where, "insert", call, stays_shared=True)
        is_before = after is None
        return self._with(between.insert(table, places, new, port, is_before=is_before))

    def remove(self, where: Where, *, keep: Any = None, call: int | None = None) -> Any:
        """Takes layers out: what used them uses what they were given.

        Args:
            where: The layers.
            keep: The input that takes the place of a layer with several: its number
                or its path.
            call: Only at this call of a shared layer, counted from 0. Its other
                calls stay.

        Returns:
            The new graph.
        """
        table, places = self._places(where, "remove", call, stays_shared=True)
        return self._with(between.remove(table, places, keep))

    def wrap(
        self, where: Where, wrapper: Callable[[Any], Any], *, call: int | None = None
    ) -> Any:
        """Puts a wrapper around layers, which keep their weights.

        Args:
            where: The layers.
            wrapper: A class such as `keras.layers.TimeDistributed`, or a function
                that is given a layer and returns the wrapped one.
            call: Only at this call of a shared layer, counted from 0.

        Returns:
            The new graph.
        """
        table, places = self._places(where, "wrap", call)
        return self._with(edit.wrap(table, places, wrapper))

    def set(self, where: Where, *, call: int | None = None, **attributes: Any) -> Any:
        """Sets attributes of layers, as if they had been made with them.

        What the constructor, or `build()`, derives from an argument follows: the
        layers inside a `MultiHeadAttention` when its `dropout` is set, the
        regularizer of a variable when that of its layer is.

        Args:
            where: The layers.
            call: Only at this call of a shared layer, counted from 0.
            **attributes: Their new values; of a variable, an array.

        Returns:
            The new graph.
        """
        table, places = self._places(where, "set", call)
        return self._with(set_attributes(table, places, attributes))

    def rename(self, where: Where, name: str | Callable[[str], str]) -> Any:
        """Gives layers other names.

        Args:
            where: The layers.
            name: The name of the one layer, or a function from old names to new.

        Returns:
            The new graph.
        """
        table, places = self._places(where, "rename", None)
        places = by_part(places)
        if isinstance(name, str) and len(places) > 1:
            raise UsageError(
                explain(
                    "`rename`: one name for several layers.",
                    where=", ".join(place.path for place in places[:5]),
                    expected="one layer, or a function that makes new names of old",
                    received=f"{name!r} for {len(places)} layers",
                    fix=f"pass `lambda old: {name!r} + old`",
                )
            )
        names = {}
        for place in places:
            old = table[place.part].name
            new = name(old) if callable(name) else name
            if not isinstance(new, str) or not new or "/" in new:
                raise UsageTypeError(
                    explain(
                        "A name must be a string without slashes.",
                        where=place.path,
                        expected="a str without '/', which separates parts of a path",
                        received=f"{new!r} (of type {type(new).__name__})",
                        fix="return for example `old + '_1'`",
                    )
                )
            names[place.part] = new
        return self._with(edit.rename(table, names))

    def prefix(self, text: str) -> Any:
        """Puts a text before the names of the model and all its layers.

        Args:
            text: The text.

        Returns:
            The new graph.
        """
        check_name("prefix", text)
        table = self._table
        names = {table.root: f"{text}{self.name}"}
        for key in table.reached:
            scope = table[key].scope
            for inner in scope.calls if scope is not None else ():
                names[inner.part] = f"{text}{table[inner.part].name}"
        return self._with(edit.rename(table, names))

    def rewrite(
        self, pattern: Any, replacement: Any, *, count: int | None = None
    ) -> Any:
        """Finds what a function does, and does it as another function does.

        Both are functions of tensors and layers. In the pattern, a parameter that is
        annotated with a class of layers (or a union or tuple of classes), or has one
        as its default, is a layer that is found; all others are tensors. What is
        found is called in the same way with the same arguments, needed by nothing
        outside of the pattern, and at any depth of nested models. Matches do not
        overlap: the first one counts. Sums and products are found in any order.

        Args:
            pattern: What to look for.
            replacement: What to put there. Its parameters have the names of those of
                the pattern, of which it may leave out some. It may read the weights of
                the layers, and call them: they stay what they are. It returns as
                many tensors as the pattern, or `NotImplemented` to leave a place as
                it is.
            count: How often the pattern is to be found, if that is known.

        Returns:
            The new graph; its `notes` say how often the pattern was found.

        Raises:
            UsageError: The pattern is not found, or not as often as `count` says.
        """
        return self._with(
            rewriting.rewrite(self._table, pattern, replacement, count=count)
        )

    # --- ends ---------------------------------------------------------------------

    def append(self, *layers: Any, output: int | None = None) -> Any:
        """Puts layers behind an output of the model, one after the other.

        Args:
            *layers: Layers, models, or functions of `keras.ops`.
            output: Which output, if there are several.

        Returns:
            The new graph.
        """
        return self._with(edit.append(self._table, layers, output))

    def extract(self, *, inputs: Any = None, outputs: Any = None) -> Any:
        """Cuts out what lies between tensors, at any depth.

        Args:
            inputs: The paths (or `Ref`s, or nodes) of layers whose outputs become
                the inputs, one or a structure of them; by default those of the
                model that are needed.
            outputs: The same for the outputs; by default the model's.

        Returns:
            The graph of a new Functional model, which is not compiled.
        """
        return self._with(
            cut.extract(self._table, self._ends(inputs), self._ends(outputs))
        )

    def _outputs(self, *chosen: Any, **named: Any) -> Any:
        """Chooses the outputs: paths, `Ref`s or nodes, or a structure of them."""
        struct = cut.structure(chosen, named, "outputs", self.name)
        return self._with(cut.choose_outputs(self._table, self._ends(struct)))

    def _inputs(self, *chosen: Any, **named: Any) -> Any:
        """Chooses or changes the inputs.

        A path, a `Ref` or a node makes a tensor inside the model an input. A shape,
        what `keras.Input` returns or an array takes the place of an input: by
        position, or by name.
        """
        return self._with(
            cut.change_inputs(self._table, [self._end(x) for x in chosen], named)
        )

    # --- the result ---------------------------------------------------------------

    def build(
        self,
        *,
        name: str | None = None,
        mismatch: fitting.Mismatch = "error",
        compiled: str | None = None,
    ) -> Any:
        """Builds the model, with the weights that the old one had.

        What was not edited is copied exactly, its state included. What comes after
        the first edit is called again.

        Args:
            name: Another name for the model.
            mismatch: What becomes of variables whose shapes must change: `"error"`
                lists them; `"fresh"` draws them anew; `"fit"` keeps the slice that
                the shapes have in common; a function is given the path, the old
                value and a newly drawn one, and returns the value.
            compiled: What becomes of the state of `compile()`: `"copy"`, by default,
                `"fresh"` or `"drop"`, as in `clone`. Optimizer slots stay with
                their variables.

        Returns:
            The model; `regraft.lineage` tells what its variables came from.

        Raises:
            MismatchError: Variables do not fit any more.
        """
        self._check_build(name, mismatch, compiled)
        return build.build(
            self._table, name=name, mismatch=mismatch, compiled=compiled or "copy"
        )

    def plan(self, *, mismatch: fitting.Mismatch = "fit") -> fates.Lineage:
        """Tells what `build` would do to each variable.

        Args:
            mismatch: As in `build`.
        """
        return fates.lineage(self.build(mismatch=mismatch, compiled="drop"))

    def say(self, note: str) -> Any:
        """Adds a note, which the lineage of the model will tell.

        Args:
            note: A sentence about what was edited.

        Returns:
            The new graph.
        """
        return self._with(self._table.saying(note))

    @property
    def notes(self) -> tuple[str, ...]:
        """What edits have to say, such as how often a pattern was found."""
        return self._table.notes

    # --- places -------------------------------------------------------------------

    @abstractmethod
    def _with(self, table: Table) -> Any:
        """Returns the graph that a table describes."""

    @abstractmethod
    def find(self, where: Where) -> Any:
        """Returns the nodes that a selector means."""

    def _places(
        self, where: Where, verb: str, call: int | None, *, stays_shared: bool = False
    ) -> tuple[Table, Sequence[Place]]:
        found = [node.place for node in self.find(where)]
        if not found:
            raise self._no_match(where, verb)
        if call is None:
            return self._table, found
        if len(by_part(found)) > 1:
            raise UsageError(
                explain(
                    f"`{verb}`: `call=` is for one layer.",
                    where=", ".join(place.path for place in found[:5]),
                    expected="a selector that means one layer",
                    received=f"{len(by_part(found))} layers",
                    fix="name one layer by its path",
                )
            )
        choose = edit.at_call if stays_shared else edit.unshare
        table, place = choose(self._table, found[0], call)
        return table, [place]

    def _no_match(self, where: Where, verb: str) -> UsageError:
        paths = list(dict.fromkeys(node.path for node in self.find("*")))
        near = did_you_mean(where, paths) if isinstance(where, str) else ""
        kinds = sorted({type(node.layer).__name__ for node in self.find("*")})
        shown = ", ".join(paths[:8]) + (", ..." if len(paths) > 8 else "")
        return UsageError(
            explain(
                f"`{verb}`: nothing matches {where!r}.",
                where=self.name,
                expected=f"one of {shown}; classes: {', '.join(kinds)}",
                received=repr(where),
                fix=f"look at `print(graph)`.{near}",
            )
        )

    def _ends(self, struct: Any) -> Any:
        if struct is None:
            return None
        return map_ends(self._end, struct)

    @abstractmethod
    def _end(self, end: Any) -> Any:
        """Turns a path, a `Ref` or a node into a place; leaves the rest alone."""

    def _check_build(self, name: Any, mismatch: Any, compiled: Any) -> None:
        fitting.check(mismatch)
        if name is not None:
            check_name("name", name)
        if compiled not in (None, "copy", "fresh", "drop"):
            raise UsageError(
                explain(
                    "Unknown value for `compiled`.",
                    where="argument `compiled`",
                    expected="None, 'copy', 'fresh' or 'drop'",
                    received=repr(compiled),
                    fix="choose one of these",
                )
            )
        if _keras.in_stateless_scope():
            raise UsageError(
                explain(
                    "A model cannot be built while another is being traced.",
                    where=self.name,
                    expected="a call outside of jitted functions and stateless scopes",
                    received="a call inside a stateless scope",
                    fix="build the model before the traced function runs",
                )
            )

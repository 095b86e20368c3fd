"""Makes the operations that the parts of a table describe.

One walk copies all that the parts are copies of, so that whatever they share stays
shared. What holds a part that was exchanged is then put around the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .. import _keras, _transplant
from .._errors import UsageError, explain
from .._ghosts import SameVariables, spare_values
from .._identity import address
from .._rename import rename_layer
from .._rules import Rules
from .._walk import Walk
from .table import Part, Table, held_by


class Assembly:
    """The operations of a new model, made when they are asked for.

    Args:
        table: The parts.
        make_model: Makes a model whose calls were changed, given its key.
        rules: What is to be different in copies.
        is_trial: Whether operations are made only to see what they return. They
            work on the original's variables, which are not touched.
    """

    def __init__(
        self,
        table: Table,
        *,
        make_model: Callable[[int], Any] | None = None,
        rules: Rules | None = None,
        is_trial: bool = False,
    ) -> None:
        self.table = table
        self._is_trial = is_trial
        # For each group, and the id of each thing that was copied, its copy.
        self.memos: dict[int, dict[int, Any]] = {0: {}}
        self.walks: list[Walk] = []
        self._make_model = make_model
        self._rules = rules
        self._made: dict[int, Any] = {}
        # The keys of parts that hold layers which were edited.
        self.edited: set[int] = set()
        # The ids of variables that were given values.
        self.given: set[int] = set()

    @property
    def memo(self) -> dict[int, Any]:
        """What became of all that is not in a group of its own."""
        return self.memos[0]

    def memo_of(self, key: int) -> dict[int, Any]:
        """Returns what became of things in the group of a part."""
        return self.memos[self.table[key].group]

    def copy(self, keys: Iterable[int], others: Mapping[int, list[Any]]) -> None:
        """Copies what the parts are copies of, and other things with them.

        Args:
            keys: The parts.
            others: Tensors and arguments that models need, by the models' keys; they
                may lead to the same things.
        """
        keys = list(keys)
        groups: dict[int, tuple[list[Part], list[Any]]] = {0: ([], [])}
        for key in keys:
            part = self.table[key]
            parts, along = groups.setdefault(part.group, ([], []))
            along += others.get(key, ())
            if part.operation is not None and not self._is_remade(key):
                parts.append(part)
        held = {inside for key in keys for inside in self.table[key].held}
        remade = [self.table[k] for k in keys if k in held and self._is_remade(k)]
        for group, (parts, along) in groups.items():
            models = [x.operation for x in remade if x.group == group]
            root = [*(part.operation for part in parts), *along]
            walk = self._walk(root, [x for x in models if x is not None])
            self.memos[group] = walk.memo
            for part in parts:
                self._name(walk.memo[address(part.operation)], part)

    def _walk(self, root: list[Any], remade: list[Any]) -> Walk:
        """Copies things; a layer that holds a model to be remade gets a stand-in."""
        name_giver = self.table[self.table.root].operation or next(iter(root), None)
        rules = SameVariables() if self._is_trial else self._rules
        walk = _transplant.PartsWalk(root, name_giver, rules=rules)
        for model in remade:
            walk.remember(model, _keras.identity(name=model.name))
        if self._is_trial:
            spare_values(walk, (x for x in root if isinstance(x, _keras.Layer)))
        walk.run()
        self.walks.append(walk)
        return walk

    def _is_remade(self, key: int) -> bool:
        return self.table[key].scope is not None and key in self.table.changed

    def operation(self, key: int) -> Any:
        """Returns the operation of a part."""
        if key not in self._made:
            part = self.table[key]
            if self._is_remade(key):
                assert self._make_model is not None
                made = self._make_model(key)
            else:
                made = self._changed(self.memo_of(key)[address(part.operation)], key)
            self._made[key] = made
        return self._made[key]

    def replaces(self, key: int, made: Any) -> None:
        """Notes that another operation is used for a part."""
        self._made[key] = made

    def made(self) -> dict[int, Any]:
        """Returns the operations that were made so far, by key."""
        return dict(self._made)

    def variables(self) -> Iterator[tuple[Any, Any]]:
        """Yields all variables that were copied, with their copies."""
        return (pair for walk in self.walks for pair in walk.variables)

    def _changed(self, made: Any, key: int) -> Any:
        """Exchanges the layers inside a copy, and sets its attributes."""
        part, memo, pairs = self.table[key], self.memo_of(key), []
        for old, inside in zip(held_by(part.operation), part.held, strict=True):
            # What is in another group was not copied along with this.
            is_beside = self.table[inside].group == part.group
            if inside in self.table.changed or not is_beside:
                copied, new = memo.get(address(old), old), self._ready(inside, old)
                if new is not copied:
                    pairs.append((copied, new))
                elif inside in self.edited or self.table[inside].changes:
                    self.edited.add(key)
        if pairs:
            self.edited.add(key)
            made = _transplant.exchange(made, pairs, part.operation, made.path)
        # Each model gets values of its own, which may be objects with a state.
        values = Walk(list(part.changes.values())).run()
        for name, value in zip(part.changes, values, strict=True):
            if self._is_trial and touches_variables(made, name):
                continue
            self.given |= set_attribute(made, name, value)
        is_touched = part.changes or key in self.edited
        if is_touched and isinstance(made, _keras.Layer):
            for layer in _keras.all_layers(made):
                _keras.retrack(layer)
        return made

    def _ready(self, key: int, old: Any) -> Any:
        """Returns the layer that takes another's place inside a layer, built."""
        new = self.operation(key)
        if isinstance(new, _keras.Layer) and old.built and not new.built:
            _build_like(new, old)
        return new

    def _name(self, made: Any, part: Part) -> None:
        if made.name != part.name and not self._is_trial:
            rename_layer(made, part.name)


def _build_like(new: Any, old: Any) -> None:
    shapes = old.get_build_config()
    if shapes is None:
        raise UsageError(
            explain(
                "It is not known for what shapes a layer inside another one is to be "
                "built.",
                where=f"{new.name}, in place of {old.name}",
                expected="a layer that is built, or one in the place of a layer that "
                "knows the shapes it was built for",
                received=f"{new!r}, which is not built",
                fix="call `build(shape)` on the new layer first",
            )
        )
    with _keras.scope_around(old):
        new.build_from_config(shapes)


def owner_of(layer: Any, name: str) -> tuple[Any, str]:
    """Returns who has an attribute that is named by a way of several steps."""
    *way, last = name.split(".")
    for step in way:
        layer = layer[int(step)] if step.isdigit() else getattr(layer, step)
    return layer, last


def touches_variables(layer: Any, name: str) -> bool:
    """Tells whether setting an attribute changes the layer's variables."""
    owner, last = owner_of(layer, name)
    concerned = owner, getattr(owner, last, None)
    return last == "trainable" or any(
        isinstance(each, _keras.Variable | _keras.SeedGenerator) for each in concerned
    )


def sets_variables_alone(table: Table, key: int) -> bool:
    """Tells whether edits of a model left its network alone.

    They may have set values of variables, and whether these are trained.
    """
    for inside in table.below(key):
        if table.is_as_read(inside):
            continue
        part, read = table[inside], table.read.get(inside)
        if read is None or not all(
            _is_about_variables(part.operation, name) for name in part.changes
        ):
            return False
        if not table.having(inside, changes=read.changes).is_as_read(inside):
            return False
    return True


def _is_about_variables(layer: Any, name: str) -> bool:
    owner, last = owner_of(layer, name)
    is_value = isinstance(getattr(owner, last, None), _keras.Variable)
    return is_value or last == "trainable"


def set_attribute(layer: Any, name: str, value: Any) -> set[int]:
    """Sets an attribute of a layer; of a variable, the value, and returns its id.

    A random stream stays the same object and starts anew: others may use it, too.
    """
    owner, last = owner_of(layer, name)
    found = getattr(owner, last, None)
    if isinstance(found, _keras.Variable) and value is not None:
        found.assign(value)
        return {address(found)}
    if all(isinstance(x, _keras.SeedGenerator) for x in (found, value)):
        _keras.start_like(found, value)
    elif isinstance(owner, _keras.Layer):
        _keras.set_on_built(owner, last, value)
    else:
        setattr(owner, last, value)
    return set()

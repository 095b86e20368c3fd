"""Calls the operations of an edited model again, from the first changed call on."""

from __future__ import annotations

from typing import Any

import keras

from .. import _keras, _naming
from .._identity import address
from .assemble import Assembly
from .calls import Call
from .fitting import Fitting
from .slots import Slot, slots_in
from .table import Part, Table, scopes
from .trials import cannot_call, two_shapes


class Playback:
    """Returns the tensors of models whose calls were changed.

    Args:
        table: The parts and calls.
        assembly: Has copied what stays, and makes what is called.
        fitting: Fits layers to other shapes.

    Attributes:
        replaced: For the id of each variable of the old model that another one took the
            place of, that one.
    """

    def __init__(self, table: Table, assembly: Assembly, fitting: Fitting) -> None:
        self._table = table
        self._assembly = assembly
        self._fitting = fitting
        self._called: set[int] = set()
        self.replaced: dict[int, Any] = {}

    def tensors(self, key: int) -> dict[Slot, Any]:
        """Returns the tensors of a model, copied or made by calling again."""
        scope, clean = self._table.scope_of(key), self._table.clean_calls(key)
        again = [call for call in scope.calls if call.number not in clean]
        tensors = self._copied(key, again)
        masks: list[tuple[Any, Any]] = []
        for call in again:
            outputs = self._again(key, call, tensors)
            if call.node is not None:
                pairs = zip(call.node.outputs, outputs, strict=False)
                masks += [(_keras.mask_of(a), _keras.mask_of(b)) for a, b in pairs]
            tensors.update(zip(call.results, outputs, strict=False))
        _naming.follow_masks(masks, {}, {})
        return tensors

    def _copied(self, key: int, again: list[Call]) -> dict[Slot, Any]:
        """Returns the copied tensors that calls need, or the model's ends."""
        scope, clean = self._table.scope_of(key), self._table.clean_calls(key)
        memo = self._assembly.memo_of(key)
        needed = {*slots_in((scope.inputs, scope.outputs))}
        needed.update(slot for call in again for slot in call.slots)
        nodes = {n: scope.by_number[n].node for n in {x.call for x in needed} & clean}
        return {
            slot: memo[address(nodes[slot.call].outputs[slot.output])]
            for slot in needed
            if slot.call in nodes
        }

    def _again(self, key: int, call: Call, tensors: dict[Slot, Any]) -> list[Any]:
        part, memo = self._table[call.part], self._assembly.memo_of(key)

        def new_argument(x: Any) -> Any:
            return tensors[x] if isinstance(x, Slot) else memo.get(address(x), x)

        args, kwargs = _keras.map_leaves(new_argument, call.arguments)
        operation = self._assembly.operation(call.part)
        if call.part not in self._called and not part.is_new:
            operation = self._refit(part, call, operation, args, kwargs)
        try:
            outputs = keras.tree.flatten(operation(*args, **kwargs))
        except Exception as error:
            given = _keras.tensors_in((args, kwargs))
            raise cannot_call(self._table, key, call, given, error, "build") from error
        if call.part not in self._called and part.takes_over is not None:
            self._fitting.take_over(part.takes_over, operation, self._assembly.memo)
        self._called.add(call.part)
        return outputs

    def _refit(
        self, part: Part, call: Call, operation: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Fits a layer that was built for other shapes to those it is given now."""
        if not isinstance(operation, _keras.Layer) or part.scope is not None:
            return operation
        shapes = [x.shape for x in _keras.tensors_in((args, kwargs))]
        before = [] if call.node is None else _keras.argument_tensors(call.node)
        is_same_inside = not any(key in self._table.changed for key in part.held)
        is_same_outside = [x.shape for x in before] == shapes and not part.changes
        if is_same_outside and is_same_inside:
            return operation
        fitted = self._fitting.fit(
            operation, args, kwargs, keep_inside=not is_same_inside
        )
        if fitted is not operation:
            self._refuse_copied(call, shapes)
            pairs = zip(operation.variables, fitted.variables, strict=False)
            moved = {address(old): new for old, new in pairs}
            for old, new in self._assembly.variables():
                if address(new) in moved:
                    self.replaced[address(old)] = moved[address(new)]
            self._assembly.replaces(call.part, fitted)
        return fitted

    def _refuse_copied(self, call: Call, shapes: list[Any]) -> None:
        """Refuses other weights for a layer of which calls stay as they were."""
        for key in scopes(self._table):
            is_whole = key not in self._table.changed
            for other in self._table.scope_of(key).calls:
                is_copied = is_whole or other.number in self._table.clean_calls(key)
                if other.part == call.part and is_copied:
                    raise two_shapes(self._table, key, other, shapes)

    def name_apart(self, key: int, outputs: list[Any]) -> None:
        """Leaves alone what was made on purpose, whose names are final."""
        memo, clean = self._assembly.memo_of(key), self._table.clean_calls(key)
        copied, made = [], {}
        for call in self._table.scope_of(key).calls:
            if call.number in clean:
                # An input may say by now that another layer made it.
                outputs_of = (memo[address(x)] for x in call.node.outputs)
                copied += [_keras.producer(x) for x in outputs_of]
            else:
                made[call.part] = self._assembly.operation(call.part)
        _naming.name_apart(outputs, made, copied)

"""One call of a model on TensorFlow, shared out among replicas by rows.

Every replica runs the whole step, and the step sees the whole batch; only the call
of the model is shared out. Each replica calls the model on its own rows, and the
outputs of all are put together again. So whatever a step computes from outputs,
be it of Keras or of the user, is what it computes on one device. Gradients of the
variables are summed on their way back, so they are those of the whole batch, too,
before an optimizer, a clipping or anybody else sees them.
"""

from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .... import _keras

_THREAD = threading.local()  # Every replica runs in a thread of its own.


class SplitCall:
    """Shares a call of a model out among the replicas of the current step.

    Args:
        model: The model.
        call: What calls it on given inputs: the `__call__` of its own class.
        args: The arguments of the call, the inputs first.
        kwargs: The keyword arguments of the call.
    """

    def __init__(self, model: Any, call: Any, args: Any, kwargs: Any) -> None:
        context = tf.distribute.get_replica_context()
        self._strategy = context.strategy
        self._model, self._call = model, call
        self._inputs, self._args = _as_tensors(args[0]), args[1:]
        self._kwargs = kwargs
        self._replica = int(tf.get_static_value(context.replica_id_in_sync_group))
        self._count = self._strategy.extended._num_replicas_in_sync
        self._seeds = {id(v): v for v in _keras.seed_states(model)}

    def obstacle(self) -> str | None:
        """Says why the call cannot be shared out without changing its result.

        The call is traced once, in a graph that never runs, on inputs with any
        number of rows.
        """
        rest = (self._args, self._kwargs)
        if any(tf.is_tensor(leaf) for leaf in keras.tree.flatten(rest)):
            return "it is called with tensors besides its inputs"
        leaves = [x for x in keras.tree.flatten(self._inputs) if x is not None]
        if not leaves or not all(_has_rows(leaf) for leaf in leaves):
            return "an input is not a dense tensor with rows"
        if len({leaf.shape[0] for leaf in leaves} - {None}) > 1:
            return "inputs have different numbers of rows"
        scope = keras.StatelessScope(collect_losses=True)
        graph = tf.__internal__.FuncGraph("rows")
        _THREAD.traced_only = True
        try:
            with graph.as_default(), scope, tf.GradientTape() as tape:
                inputs = _map_tensors(_any_rows, self._inputs)
                outputs = self._call(inputs, *self._args, **self._kwargs)
        finally:
            _THREAD.traced_only = False
        if scope.losses:
            return "layers add losses while they are called"
        results = keras.tree.flatten(outputs)
        if not all(_has_rows(x) and x.shape[0] is None for x in results):
            return "an output does not have the rows of the inputs"
        known = all(None not in leaf.shape[1:] for leaf in leaves)
        if known and any(None in x.shape[1:] for x in results):
            return "the size of an output depends on the number of rows"
        if any(x.dtype == tf.string for x in results):
            return "an output has strings, which replicas cannot exchange"
        layers = _keras.synchronized_layers(self._model)
        alike = {id(v) for layer in layers for v in layer.variables}
        updated = set(scope.state_mapping) - set(self._seeds) - alike
        if updated:
            names = [v.path for v in self._model.variables if id(v) in updated]
            return f"the call changes variables: {', '.join(names) or 'of others'}"
        own = {id(_keras.raw_value(v)) for v in self._model.trainable_variables}
        if any(id(value) not in own for value in tape.watched_variables()):
            return "the call reads variables that are not of the model"
        return None

    def run(self) -> Any:
        """Calls the model on this replica's rows; returns the outputs of all rows."""
        first = next(x for x in keras.tree.flatten(self._inputs) if x is not None)
        self._rows = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
        self._check_rows()
        inputs = _map_tensors(self._own_rows, self._inputs)
        weights = self._model.trainable_variables
        values = [(v, _summed_gradient(_tensor(v))) for v in weights]
        before = {key: self.own_seed(_tensor(v)) for key, v in self._seeds.items()}
        values += [(v, before[key]) for key, v in self._seeds.items()]
        given = {id(v): value for v, value in values}
        for layer in _keras.synchronized_layers(self._model):
            self._strategy.in_this_step(layer, _call_of_whole_batches(layer))
        _THREAD.split = self
        try:
            with keras.StatelessScope(values) as scope:
                outputs = self._call(inputs, *self._args, **self._kwargs)
        finally:
            _THREAD.split = None
        for variable in self._model.variables:
            value = scope.get_current_value(variable)
            if value is None or value is given.get(id(variable)):
                continue
            if id(variable) in self._seeds:
                # As far as it went on, but from where all replicas were.
                value = _tensor(variable) + (value - before[id(variable)])
            variable.assign(value)
        return _map_tensors(self._rows_of_all, outputs)

    def own_part(self, whole: Any) -> Any:
        """Returns this replica's rows of tensors that have those of all."""
        return _map_tensors(self._slice, whole)

    def whole_arguments(self, arguments: Any) -> Any:
        """Returns the rows of all replicas, of arguments in the midst of a call."""

        def whole(part: Any) -> Any:
            # Each replica goes on with rows of its own: gradients are of these.
            return _summed_gradient(self._rows_of_all(part))

        return keras.tree.map_structure(
            lambda leaf: _map_tensors(whole, leaf) if _has_rows(leaf) else leaf,
            arguments,
        )

    def _check_rows(self) -> None:
        """Lets a step fail whose inputs turn out to have different rows."""
        with tf.device("CPU:0"):
            for leaf in keras.tree.flatten(self._inputs):
                if leaf is not None and leaf.shape[0] is None:
                    tf.debugging.assert_equal(
                        tf.shape(leaf)[0],
                        self._rows,
                        "The inputs of a replicated model have different numbers of "
                        "rows, so they cannot be split over devices.",
                    )

    def _bounds(self) -> tuple[Any, Any]:
        start = self._rows * self._replica // self._count
        return start, self._rows * (self._replica + 1) // self._count

    def _slice(self, tensor: Any) -> Any:
        start, stop = self._bounds()
        return tensor[start:stop]

    def _own_rows(self, tensor: Any) -> Any:
        # Sliced where the batch is: on the host, of which a part goes to the device.
        with tf.device("CPU:0"):
            return self._slice(_summed_gradient(tensor))

    def own_seed(self, seed: Any) -> Any:
        """Returns a seed of its own for each replica; the first keeps it as it is."""
        if self._replica == 0:
            return seed
        folded = tf.random.experimental.stateless_fold_in(
            tf.cast(seed, tf.int64), self._replica
        )
        return tf.cast(folded, seed.dtype)

    def _rows_of_all(self, tensor: Any) -> Any:
        context = tf.distribute.get_replica_context()
        if tensor.dtype.is_integer or tensor.dtype.is_bool:
            # Communication does not know all of these types.
            wide = tf.int64 if tensor.dtype.size > 4 else tf.int32
            return tf.cast(context.all_gather(tf.cast(tensor, wide), 0), tensor.dtype)
        start, stop = self._bounds()

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def gather(part: Any) -> Any:
            # The gradient of all rows is the same on every replica.
            return context.all_gather(part, 0), lambda whole: whole[start:stop]

        return gather(tensor)


def _call_of_whole_batches(layer: Any) -> Any:
    """Returns a `call` for a layer whose statistics are to be those of all rows.

    It leaves the layer as it is: what says that replicas are to be synchronized is
    set on a view of it.
    """
    original = layer.call
    view = object.__new__(type(layer))
    object.__setattr__(view, "__dict__", {**vars(layer), "synchronized": True})

    def call(*args: Any, **kwargs: Any) -> Any:
        split = getattr(_THREAD, "split", None)
        if split is None:
            return original(*args, **kwargs)
        if kwargs.get("mask") is None:
            return view.call(*args, **kwargs)
        # Keras knows no synchronized statistics of masked inputs.
        args, kwargs = split.whole_arguments((args, kwargs))
        return split.own_part(original(*args, **kwargs))

    return call


def seed_for_these_rows(seed: Any) -> Any:
    """Returns a seed as it is, or one for a replica that calls its share."""
    split = getattr(_THREAD, "split", None)
    return seed if split is None else split.own_seed(seed)


def is_traced_only() -> bool:
    """Tells whether what is called now is never going to run."""
    return getattr(_THREAD, "traced_only", False)


def _tensor(variable: Any) -> Any:
    """Returns the value that a variable has on this replica."""
    return tf.convert_to_tensor(_keras.raw_value(variable))


def _as_tensors(tree: Any) -> Any:
    return keras.tree.map_structure(
        lambda x: tf.convert_to_tensor(x) if isinstance(x, np.ndarray) else x, tree
    )


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, tf.Tensor) and leaf.shape.rank not in (None, 0)


def _map_tensors(change: Any, tree: Any) -> Any:
    """Changes tensors, and the masks that travel with them."""

    def one(tensor: Any) -> Any:
        if tensor is None:
            return None
        mask = _keras.mask_of(tensor)
        new = change(tensor)
        if mask is not None:
            _keras.set_mask(new, change(mask))
        return new

    return keras.tree.map_structure(one, tree)


def _any_rows(tensor: Any) -> Any:
    return tf.raw_ops.Placeholder(dtype=tensor.dtype, shape=[None, *tensor.shape[1:]])


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _summed_gradient(tensor: Any) -> Any:
    """Returns the tensor; its gradient is the sum of those of all replicas."""

    def gradient(part: Any) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, part)

    return tf.identity(tensor), gradient

"""torch: replicas on several devices of one process.

What happens to a batch: its rows are cut into shares, one for each replica (7 rows
over 3 replicas are 2, 2 and 3; a batch smaller than that goes to fewer). Every replica
runs the model's `call` on its share and on its device; weights are copied there, and
gradients come back, as autograd does with any copy. The outputs are joined on the
`merge` device, so that losses, metrics and a `train_step` see the whole batch.

- Batch normalization, and whatever asks `keras.ops.moments` for statistics over the
  rows, gets those of the whole batch. A layer that computes such statistics by itself
  sees the rows of its replica.
- Random streams draw other numbers on every replica, reproducibly; replica 0 draws
  those that one device draws.
- State that layers assign, and losses that they add, are united: see `share`.
  A loss is taken for a mean over rows, as Keras's activity regularizers are.

One replica alone is the plain model. Replicas take turns (see `turns`): several
accelerators compute at once, while replicas on one device gain no time.

What moves tensors and gradients between devices is torch's autograd (`Tensor.to`,
`torch.cat`). The helpers of `torch.nn.parallel` were tried in its place, on torch 2.13
and, on a GPU, 2.11:

- `DataParallel` and `replicate` give a replica parameters of its own, but a layer of
  Keras reads `variable.value`, which is the original's: every replica computes on the
  first device's weights.
- `Broadcast`, `Scatter` and `Gather` know accelerators only. They refuse replicas on
  the CPU, a CPU among GPUs, and weights that are kept on the CPU (`relocate="cpu"`);
  `scatter` makes 3, 3 and 1 of 7 rows. They would be a second way, for some devices, of
  what two lines do on all.
- `parallel_apply` needs an accelerator. Its threads know nothing of inference mode, of
  the type of `autocast` and of the scopes of Keras; and it waits for all threads before
  it tells of one that failed, while the others wait for that one at their meeting.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from functools import partial
from typing import Any

import keras
import torch
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.backend.torch.core import get_device

from ...._errors import UsageError, explain
from ...torch import devices as known_devices
from .._one_process import OneProcess
from . import cutting, random_numbers, statistics
from .share import Finished, Share, Total
from .turns import take_turns
from .watch import AttributeWatch


class LocalReplicas(OneProcess):
    """Replicas that one process runs."""

    splits_every_call = True

    def __init__(
        self, names: list[str], devices: list[Any], merge: Any, home: Any
    ) -> None:
        super().__init__(names)
        self.splits_calls = len(devices) > 1
        self.place = devices[0] if home is None else home
        self.home = name_of(self.place)
        self.steps = SplitSteps
        self._devices = devices
        self._merge = merge
        self._calls = 0
        # Of models that were called before, in training or not: whether their layers
        # have constants.
        self._known: weakref.WeakKeyDictionary[Any, dict[bool, bool]] = (
            weakref.WeakKeyDictionary()
        )
        statistics.install()
        random_numbers.install()

    def adopt(self, model: Any) -> None:
        """Refuses layers that one process cannot run as several replicas."""
        refuse_layers(model)
        refuse_modules(model, {*self._devices, self.place})

    def homes(self, variable: Any) -> list[str]:
        """Returns the device between steps."""
        return [name_of(variable.value.device)]

    def describe(self) -> str:
        """Says how many replicas there are."""
        return f"torch in one process, {len(self.devices)} replica(s)"

    def call(self, model: Any, plain: Any, args: Any, kwargs: Any) -> Any:
        """Calls a model on a batch, by all replicas.

        Args:
            model: The model.
            plain: Its own `call`.
            args: What `call` is given.
            kwargs: What else it is given.
        """
        batch = cutting.batch_size((args, kwargs))
        if batch == 0 or (batch == 1 and self._devices[0] == self.place):
            return plain(*args, **kwargs)
        cuts = cutting.shares(batch, len(self._devices))
        known = self._known.setdefault(model, {})
        is_training = bool(kwargs.get("training"))  # Layers may do other things.
        watch = None if is_training in known else AttributeWatch(model)
        has_constants = known[is_training] if watch is None else watch.has_constants()
        indices = range(len(cuts))
        names = [f"Replica {i} of {model.name} ({self.devices[i]})" for i in indices]
        with random_numbers.global_stream() as streams, ExitStack() as stack:

            def run(index: int, total: Total) -> Finished:
                device = self._devices[index]
                share = Share(
                    index,
                    cuts[index],
                    batch,
                    device,
                    total,
                    streams,
                    has_constants=has_constants and device != self.place,
                    watch=None if watch is None else watch.check,
                )
                return share.run(plain, args, kwargs)

            for index, device in enumerate(dict.fromkeys(self._devices)):
                if index and device.type != "cpu":  # Seeded like the first.
                    numbers = random_numbers.own_numbers(device, index, self._calls)
                    stack.enter_context(numbers)
            self._calls += 1
            finished = take_turns([partial(run, i) for i in indices], names)
        known[is_training] = has_constants
        leave_behind(model, finished[0])
        sizes = [rows.stop - rows.start for rows in cuts]
        return cutting.join([f.outputs for f in finished], sizes, self._merge)


class SplitSteps:
    """Runs the `call` of a model by replicas, wherever it has concrete inputs.

    All else of a step happens where the weights are kept.
    """

    replicas: Any

    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Compiles; what that makes lies where the weights are kept."""
        with keras.device(self.replicas.home):
            return super().compile(*args, **kwargs)  # type: ignore[misc]

    def _symbolic_build(self: Any, *args: Any, **kwargs: Any) -> Any:
        with keras.device(self.replicas.home):
            return super()._symbolic_build(*args, **kwargs)  # type: ignore[misc]

    def train_step(self: Any, data: Any) -> Any:
        """Trains on a batch, where the weights are kept."""
        with keras.device(self.replicas.home):
            return super().train_step(data)  # type: ignore[misc]

    def test_step(self: Any, data: Any) -> Any:
        """Evaluates a batch, where the weights are kept."""
        with keras.device(self.replicas.home):
            return super().test_step(data)  # type: ignore[misc]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls the model on every replica."""
        plain = super().call  # type: ignore[misc]
        if in_stateless_scope() or str(get_device()) == "meta":
            return plain(*args, **kwargs)
        self.check_rows()
        return self.replicas.call(self, plain, args, kwargs)


def name_of(device: Any) -> str:
    """Returns the name of a device, as `replicate` takes it."""
    return next(
        name
        for name, known in known_devices().items()
        if known.type == device.type and (known.index or 0) == (device.index or 0)
    )


def leave_behind(model: Any, finished: Finished) -> None:
    """Gives a model the state and losses of a call that replicas made."""
    with torch.no_grad():
        for variable, value in finished.state:
            variable.assign(value)
    for layer in model._flatten_layers() if finished.losses else ():
        for own, united in finished.losses:
            if id(own) in layer._loss_ids:
                layer._loss_ids.discard(id(own))
                layer._losses.append(united)


def refuse_layers(model: Any) -> None:
    """Refuses layers that a replica cannot run on some rows as on all of them."""
    for layer in model._flatten_layers():
        received = None
        if layer._remat_mode is not None:  # It would run again out of its replica.
            received = "one that is computed anew for gradients (`keras.RematScope`)"
        elif getattr(layer, "stateful", False):
            received = "one that keeps a state for each row (`stateful=True`)"
        if received is not None:
            raise UsageError(
                explain(
                    "A layer cannot be run by several replicas.",
                    where=f"{layer.name} ({type(layer).__name__})",
                    expected="a layer that gives the same for some rows as for all",
                    received=received,
                    fix="make the layer without it, or replicate the model on JAX",
                )
            )


def refuse_modules(model: Any, places: set[Any]) -> None:
    """Refuses modules of torch whose tensors Keras does not hand out."""
    for layer in model._flatten_layers():
        for module in _foreign_modules(layer):
            has_state = any(True for _ in module.buffers())
            has_weights = any(True for _ in module.parameters())
            if has_state or (has_weights and len(places) > 1):
                raise UsageError(
                    explain(
                        "A module of torch has tensors of its own.",
                        where=f"{layer.name} ({type(module).__name__})",
                        expected="layers of Keras, or modules without buffers on one "
                        "device",
                        received="buffers" if has_state else "weights on one device",
                        fix="write the module as a layer of Keras, or run one process "
                        "for each device with `torchrun`",
                    )
                )


def _foreign_modules(layer: Any) -> list[Any]:
    """Returns modules in a layer that are not Keras's."""
    kinds = (keras.layers.Layer, torch.nn.ParameterDict)
    return [m for m in layer._modules.values() if not isinstance(m, kinds)]

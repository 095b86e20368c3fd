"""torch: one replica in each of several processes, started by `torchrun`.

What happens to a batch: every process is given the same batches and takes its own rows
of each (7 rows over 3 processes are 2, 2 and 3). It runs the model on them through
`torch.nn.parallel.DistributedDataParallel`, and the outputs are gathered, so that every
process computes the losses and metrics of the whole batch. DDP averages gradients;
those that enter a process's own rows are multiplied by the number of processes before,
so that the average is the gradient of the whole batch. A process for which there is no
row runs one that counts nothing.

Statistics of the batch, random numbers, state and losses of layers are those of the
whole batch, as in one process (see `share`). All processes end with the same
weights, and only rank 0 writes files.

The processes are joined with nccl on GPUs and gloo on CPUs, unless the program has
joined them already. One that does not answer for `REGRAFT_TIMEOUT` seconds (300) ends
the others with an error.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from .... import _keras
from ...._errors import ReplicaError, UsageError
from .._agreement import check_models, different_batches, digest_of_model
from . import cutting, random_numbers, statistics
from .collectives import Meeting, is_loss, lost
from .local import (
    SplitSteps,
    leave_behind,
    name_of,
    refuse_layers,
    refuse_modules,
)
from .share import Finished, Share
from .watch import AttributeWatch


class ProcessReplicas:
    """The replica of this process, among those of others."""

    distribution = None
    splits_calls = True
    splits_every_call = True

    def __init__(self, device: Any) -> None:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        self.meeting = Meeting(device)
        self.devices = tuple(self.meeting.gather(name_of(device)))
        self.place = device
        self.near = self.home = name_of(device)
        self.steps = ProcessSteps
        self._calls = 0
        # Models that were called before: in training, or not.
        self._known: dict[bool, weakref.WeakSet[Any]] = {
            True: weakref.WeakSet(),
            False: weakref.WeakSet(),
        }
        self._wrapped: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        statistics.install()
        random_numbers.install()

    def agree(self, model: Any) -> None:
        """Compares the digests of all processes."""
        digests = self.meeting.gather(digest_of_model(model))
        check_models(model, digests, self.meeting.rank)

    def adopt(self, model: Any) -> None:
        """Refuses layers that cannot be run on a part of the rows."""
        refuse_layers(model)
        refuse_modules(model, {self.place})

    def homes(self, variable: Any) -> list[str]:
        """Every process has the variable on its device."""
        return list(dict.fromkeys(self.devices))

    def describe(self) -> str:
        """Says how many processes there are."""
        return f"torch.distributed, {self.meeting.size} processes"

    def write(self, write: Callable[[], Any]) -> Any:
        """Lets rank 0 write, while the others wait."""
        try:
            return write() if self.meeting.rank == 0 else None
        finally:
            self.meeting.wait()

    def call(self, model: Any, plain: Any, args: Any, kwargs: Any) -> Any:
        """Calls a model on this process's rows of a batch.

        Args:
            model: The model.
            plain: Its own `call`.
            args: What `call` is given: the whole batch.
            kwargs: What else it is given.
        """
        batch = cutting.batch_size((args, kwargs))
        if batch == 0:
            return plain(*args, **kwargs)
        known = self._known[bool(kwargs.get("training"))]
        check = self.begin_to_compare(model, (args, kwargs))
        cuts = cutting.shares(batch, self.meeting.size)
        is_idle = self.meeting.rank >= len(cuts)
        rows = slice(0, 1) if is_idle else cuts[self.meeting.rank]
        sizes = [cut.stop - cut.start for cut in cuts]
        sizes += [0] * (self.meeting.size - len(cuts))
        rank, self._calls = self.meeting.rank, self._calls + 1
        numbers = random_numbers.own_numbers(self.place, rank, self._calls)
        with random_numbers.global_stream() as streams, numbers:
            share = Share(
                rank,
                rows,
                batch,
                self.place,
                self.meeting.total,
                streams,
                is_idle=is_idle,
                watch=None if model in known else AttributeWatch(model).check,
            )

            def run_share() -> Finished:
                finished = share.run(plain, args, kwargs)
                check()  # By now the others have answered.
                return finished

            run = _Run(share, sizes, self.meeting, run_share)
            weights = [v._value for v in model.trainable_variables]
            if weights and torch.is_grad_enabled():
                tensors = self._parallel(model, weights)(run)
            else:
                tensors = run(())
            known.add(model)
            return run.finish(model, list(tensors))

    def _parallel(self, model: Any, weights: list[Any]) -> Any:
        """Returns what averages the gradients of a model, made when weights change."""
        known, wrapped = self._wrapped.get(model, ((), None))
        if [id(weight) for weight in weights] != [id(weight) for weight in known]:
            self.agree(model)
            wrapped = DistributedDataParallel(
                _Trained(weights),
                # Outputs that no loss needs leave weights without gradients.
                find_unused_parameters=True,
                init_sync=False,  # They are the same, as was just seen.
            )
            self._wrapped[model] = (weights, wrapped)
        return wrapped

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def begin_to_compare(self, model: Any, data: Any) -> Callable[[], None]:
        """Asks the other processes for their batch; returns what waits and refuses."""
        marks = [_mark(leaf) for leaf in keras.tree.flatten(data)]
        finish = self.meeting.begin_to_gather([n for mark in marks for n in mark])
        return torch.compiler.disable(lambda: self._compare(model, finish()))

    def _compare(self, model: Any, found: Any) -> None:
        sums, sizes = found[:, ::2], found[:, 1::2]
        # Machines may round a sum differently, so it need not be the same to a bit.
        if (np.abs(sums - sums[0]) > 1e-9 * np.maximum(sizes, sizes[0])).any():
            where = f"{model.name}, rank {self.meeting.rank} of {self.meeting.size}"
            raise UsageError(different_batches(where, "rows that differ by rank"))


class ProcessSteps(SplitSteps):
    """Runs the `call` of a model on this process's rows."""

    def train_step(self: Any, data: Any) -> Any:
        """Trains on a batch, and says so if another process is missing."""
        check = self._begin_to_compare_targets(data)
        try:
            result = super().train_step(data)
        except ReplicaError:
            raise
        except RuntimeError as error:
            if not is_loss(error):
                raise
            raise lost("averaging gradients", error) from error
        check()
        return result

    def test_step(self: Any, data: Any) -> Any:
        """Evaluates a batch."""
        check = self._begin_to_compare_targets(data)
        result = super().test_step(data)
        check()
        return result

    def _begin_to_compare_targets(self: Any, data: Any) -> Any:
        """Compares what `call` does not see: targets and weights of rows."""
        targets = data[1:] if isinstance(data, tuple) else data
        return self.replicas.begin_to_compare(self, targets)


class _Trained(torch.nn.Module):
    """What DDP wraps: weights, and whatever is run with them."""

    def __init__(self, weights: list[Any]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, run: _Run) -> tuple[Any, ...]:
        return run(self.weights)


class _Run:
    """One call, taken apart into tensors for DDP and put together again."""

    def __init__(
        self,
        share: Share,
        sizes: list[int],
        meeting: Meeting,
        run: Callable[[], Finished],
    ) -> None:
        self._rows = share.rows.stop - share.rows.start
        self._sizes = sizes
        self._meeting = meeting
        self._run = run

    def __call__(self, weights: Any) -> tuple[Any, ...]:
        """Runs the share; returns joined outputs, and losses."""
        self._finished = finished = self._run()
        leaves = keras.tree.flatten(finished.outputs)
        self._split = [cutting.has_rows(leaf, self._rows) for leaf in leaves]
        self._check_others(leaves)
        pairs = zip(leaves, self._split, strict=True)
        outputs = [leaf for leaf, is_split in pairs if is_split]
        losses = [united for _, united in finished.losses]
        # Weights whose regularizer alone has a gradient are used nevertheless.
        result: tuple[Any, ...] = _Join.apply(
            self._meeting,
            self._sizes,
            (len(outputs), len(losses)),
            *outputs,
            *losses,
            *weights,
        )
        return result

    def finish(self, model: Any, tensors: list[Any]) -> Any:
        """Gives a model what the call left behind, and returns the outputs."""
        finished = self._finished
        count = sum(self._split)
        pairs = zip(finished.losses, tensors[count:], strict=True)
        losses = [(own, united) for (own, _), united in pairs]
        leave_behind(model, Finished(None, finished.state, losses))
        joined = iter(tensors[:count])
        leaves = keras.tree.flatten(finished.outputs)
        outputs = [
            self._with_mask(next(joined), leaf) if is_split else leaf
            for leaf, is_split in zip(leaves, self._split, strict=True)
        ]
        return keras.tree.pack_sequence_as(finished.outputs, outputs)

    def _with_mask(self, whole: Any, leaf: Any) -> Any:
        mask = _keras.mask_of(leaf)
        if mask is not None:
            _keras.set_mask(whole, self._meeting.gather_rows(mask, self._sizes))
        return whole

    def _check_others(self, leaves: list[Any]) -> None:
        """Makes sure that outputs without rows are the same everywhere."""
        pairs = zip(leaves, self._split, strict=True)
        others = [_contents(leaf) for leaf, is_split in pairs if not is_split]
        if others:
            found = self._meeting.gather(others)
            if any(x != found[0] for x in found):
                raise cutting.differing("values that differ by process")


class _Join(torch.autograd.Function):
    """Joins the rows of all processes; each goes on to the same loss.

    Undefined gradients stay undefined, so that a weight that no loss needs has none,
    as on one device.
    """

    @staticmethod
    def forward(
        ctx: Any,
        meeting: Meeting,
        sizes: list[int],
        counts: tuple[int, int],
        *tensors: Any,
    ) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        split, end = counts[0], sum(counts)
        ctx.meeting, ctx.sizes, ctx.weights = meeting, sizes, len(tensors) - end
        ctx.shapes = [tensor.shape for tensor in tensors[:split]]
        losses = [tensor.clone() for tensor in tensors[split:end]]
        joined = [meeting.gather_rows(tensor, sizes) for tensor in tensors[:split]]
        fixed = [x for x in joined if not (x.is_floating_point() or x.is_complex())]
        ctx.mark_non_differentiable(*fixed)
        return (*joined, *losses)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        rank, sizes = ctx.meeting.rank, ctx.sizes
        start, own = sum(sizes[:rank]), sizes[rank]
        found: list[Any] = []
        for gradient, shape in zip(gradients, ctx.shapes, strict=False):
            if gradient is not None:
                rows = gradient[start : start + own] * ctx.meeting.size
                gradient = rows if own else gradient.new_zeros(shape)
            found.append(gradient)
        losses = gradients[len(ctx.shapes) :]
        return (None, None, None, *found, *losses, *[None] * ctx.weights)


def _mark(leaf: Any) -> tuple[float, ...]:
    """Returns a sum that tells batches and orders of rows apart, and its scale."""
    if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf":
        leaf = torch.from_numpy(leaf.astype("float64"))
    if not isinstance(leaf, torch.Tensor) or leaf.ndim == 0 or leaf.is_complex():
        return ()
    rows = torch.nan_to_num(leaf.detach().reshape(len(leaf), -1))
    weights = torch.arange(1, len(leaf) + 1, dtype=torch.float64, device=leaf.device)
    sums = rows.sum(1, dtype=torch.float64)
    sizes = rows.abs().sum(1, dtype=torch.float64)
    return float(sums @ weights), float(sizes @ weights)


def _contents(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().cpu().numpy().tolist()
    return repr(leaf)

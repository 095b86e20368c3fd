"""What processes tell each other: sums, rows, and that they are still there."""

from __future__ import annotations

import atexit
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from ...._errors import ReplicaError, UsageError, explain

_SIGNS = ("gloo", "nccl", "connection closed", "connection reset", "timed out")


def are_several() -> bool:
    """Tells whether this process is one of several that train together."""
    if not distributed.is_available():
        return False
    if distributed.is_initialized():
        return bool(distributed.get_world_size() > 1)
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def local_rank() -> int:
    """Returns the number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def _leave() -> None:
    """Ends what this module has started, unless somebody else did."""
    if distributed.is_initialized():
        with suppress(Exception):  # The others may have ended before.
            distributed.destroy_process_group()


def seconds_to_wait() -> float:
    """Returns how long a process waits for the others (`REGRAFT_TIMEOUT`)."""
    given = os.environ.get("REGRAFT_TIMEOUT", "300")
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(
            explain(
                "The time to wait for other processes must be a number of seconds.",
                where="environment variable REGRAFT_TIMEOUT",
                expected="a number above 0",
                received=repr(given),
                fix="set it to, say, 300, or leave it out",
            )
        )
    return seconds


class Meeting:
    """All processes, as this one sees them.

    Args:
        device: The device that this process computes on.
    """

    def __init__(self, device: Any) -> None:
        wait = timedelta(seconds=seconds_to_wait())
        if not distributed.is_initialized():
            backend = "nccl" if device.type == "cuda" else "gloo"
            with _noticing_loss("starting"):
                distributed.init_process_group(backend, timeout=wait)
            # Otherwise its threads, at work when Python ends, may abort the process.
            atexit.register(_leave)
        self.device = device
        self.rank: int = distributed.get_rank()
        self.size: int = distributed.get_world_size()
        # Of their own: DDP sends gradients while sums of statistics are under way.
        with _noticing_loss("starting"):
            self._group = distributed.new_group(timeout=wait)

    def total(self, what: str, tensors: list[Any]) -> list[Any]:
        """Sums tensors over processes. Gradients are those of the sum of all losses."""
        if not torch.is_grad_enabled():  # Statistics meet too often for it.
            self.agree(what)
        sums: list[Any] = [None] * len(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[i].reshape(-1) for i in places])
            parts = _Sum.apply(flat, self, what).split(
                [tensors[i].numel() for i in places]
            )
            for i, part in zip(places, parts, strict=True):
                sums[i] = part.reshape(tensors[i].shape)
        return sums

    def sum_in_place(self, tensor: Any, what: str) -> Any:
        """Sums a tensor over processes, without gradients."""
        with _noticing_loss(what):
            distributed.all_reduce(tensor, group=self._group)
        return tensor

    def agree(self, what: str) -> None:
        """Checks that all processes are at the same point."""
        mine = zlib.crc32(what.encode())
        both = torch.tensor([mine, mine * mine % 2**31], device=self.device)
        sums = self.sum_in_place(both.clone(), what)
        if not torch.equal(sums, both * self.size):
            raise ReplicaError(
                explain(
                    "The processes do not compute the same things.",
                    where=f"rank {self.rank}",
                    expected="the same way through the model in every process",
                    received=f"{what}, and something else in another process",
                    fix="let the way through `call` not depend on the data",
                )
            )

    def gather(self, value: Any) -> list[Any]:
        """Returns a small object of every process, by rank."""
        found: list[Any] = [None] * self.size
        with _noticing_loss("comparing"):
            distributed.all_gather_object(found, value, group=self._group)
        return found

    def begin_to_gather(self, numbers: list[float]) -> Callable[[], Any]:
        """Sends numbers to every process, without waiting for theirs.

        Returns:
            What waits, and returns an array with a row for every process.
        """
        own = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        with _noticing_loss("comparing"):
            work = distributed.all_gather(rows, own, group=self._group, async_op=True)

        def finish() -> Any:
            with _noticing_loss("comparing"):
                work.wait()
            return torch.stack(rows).cpu().numpy()

        return finish

    def gather_rows(self, tensor: Any, sizes: list[int]) -> Any:
        """Returns the rows of all processes, in the order of ranks."""
        plain = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor
        padded = plain.new_zeros((max(sizes), *plain.shape[1:]))
        own = sizes[self.rank]
        padded[:own] = plain[:own]
        parts = [torch.empty_like(padded) for _ in sizes]
        with _noticing_loss("joining outputs"):
            distributed.all_gather(parts, padded, group=self._group)
        whole = torch.cat([p[:size] for p, size in zip(parts, sizes, strict=True)])
        return whole.to(tensor.dtype)

    def wait(self) -> None:
        """Waits for all processes."""
        with _noticing_loss("waiting"):
            distributed.barrier(group=self._group)


class _Sum(torch.autograd.Function):
    """A sum over processes, each of which goes on to the same loss."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, meeting: Meeting, what: str) -> Any:
        ctx.meeting, ctx.what = meeting, what
        return meeting.sum_in_place(tensor.clone(), what)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        total = ctx.meeting.sum_in_place(gradient.contiguous().clone(), ctx.what)
        return total, None, None


@contextmanager
def _noticing_loss(what: str) -> Iterator[None]:
    try:
        yield
    except ReplicaError:
        raise
    except RuntimeError as error:
        if not is_loss(error):
            raise
        raise lost(what, error) from error


def is_loss(error: BaseException) -> bool:
    """Tells whether an error comes from a process that is missing."""
    text = str(error).lower()
    return isinstance(error, distributed.DistError) or any(s in text for s in _SIGNS)


def lost(what: str, error: BaseException) -> ReplicaError:
    """Returns the error for a process that does not answer."""
    rank = int(os.environ.get("RANK", "0"))
    size = int(os.environ.get("WORLD_SIZE", "0"))
    if distributed.is_initialized():
        rank, size = distributed.get_rank(), distributed.get_world_size()
    others = [str(other) for other in range(size) if other != rank]
    kind = "rank" if len(others) == 1 else "one of ranks"
    return ReplicaError(
        explain(
            f"Rank {rank} lost contact with {kind} {', '.join(others)}.",
            where=f"rank {rank}, {what}",
            expected=f"{size} processes that answer within {seconds_to_wait():g} s",
            received=f"{type(error).__name__}: {str(error).splitlines()[0]}",
            fix="look at the messages of the process that is missing; a longer wait "
            "is set by the environment variable REGRAFT_TIMEOUT",
        )
    )

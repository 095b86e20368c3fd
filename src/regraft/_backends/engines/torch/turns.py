"""Replicas in one process take turns, and meet.

Each runs in a thread of its own, but only one at a time: from its start, or from a
meeting, to the next meeting or its end. Kernels on several accelerators overlap
nevertheless, because Python only enqueues them. So the order of everything is fixed,
layers never run in two threads at once, and a replica that fails ends the others.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

import torch
from keras.src.backend.common import global_state

from ...._errors import RegraftError, ReplicaError, explain
from .share import Total

Job = Callable[[Total], Any]


def take_turns(jobs: list[Job], names: list[str]) -> list[Any]:
    """Runs jobs that meet, and returns their results.

    Args:
        jobs: Each is given the function by which it meets the others.
        names: What the jobs are called in messages.
    """
    around = _Surroundings()
    runners = [_Runner(job, around) for job in jobs]
    answers: list[Any] = [None] * len(jobs)
    try:
        while True:
            reports = []
            for runner, answer, name in zip(runners, answers, names, strict=True):
                reports.append(runner.turn(answer))
                if isinstance(runner.error, RegraftError):
                    raise runner.error  # It says what to do.
                if runner.error is not None:
                    raise _failure(name, runner.error) from runner.error
            if all(runner.has_ended for runner in runners):
                return reports
            answers = _meet(reports, runners, names)
    finally:
        for runner in runners:
            runner.stop()


class _Stop(BaseException):
    """Raised in a replica whose work is not wanted any more."""


class _Runner:
    """A job in a thread that runs only while `turn` waits for it."""

    def __init__(self, job: Job, around: _Surroundings) -> None:
        self.error: BaseException | None = None
        self.has_ended = False
        self._job = job
        self._around = around
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._reports: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def turn(self, answer: Any) -> Any:
        """Lets the job run on, and returns what it meets the others with, or gives."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._answers.put(answer)
        return self._reports.get()

    def stop(self) -> None:
        """Ends the job if it has not ended."""
        if self._thread.ident is not None and not self.has_ended:
            self._answers.put(_Stop)
            self._thread.join()

    def _run(self) -> None:
        result = None
        try:
            with self._around.entered():
                result = self._job(self._total)
        except BaseException as error:
            self.error = error
        self.has_ended = True
        self._reports.put(result)

    def _total(self, what: str, tensors: list[Any]) -> list[Any]:
        self._reports.put((what, tensors))
        answer = self._answers.get()
        if answer is _Stop:
            raise _Stop
        sums: list[Any] = answer
        return [a.to(b.device) for a, b in zip(sums, tensors, strict=True)]


def _meet(reports: list[Any], runners: list[_Runner], names: list[str]) -> list[Any]:
    """Sums what replicas brought, on the device of the first, and answers each."""
    points = [
        "its end" if runner.has_ended else _describe(*report)
        for runner, report in zip(runners, reports, strict=True)
    ]
    for name, point in zip(names, points, strict=True):
        if point != points[0]:
            raise ReplicaError(
                explain(
                    "The replicas do not compute the same things.",
                    where=name,
                    expected=f"{points[0]}, as on {names[0]}",
                    received=point,
                    fix="let the way through `call` not depend on the data, or call "
                    "the `template`, which runs on one device",
                )
            )
    columns = zip(*(tensors for _, tensors in reports), strict=True)
    sums = [sum(x.to(column[0].device) for x in column) for column in columns]
    return [sums] * len(reports)


def _describe(what: str, tensors: list[Any]) -> str:
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
    return f"{what} of shapes {shapes}"


def _failure(name: str, error: BaseException) -> ReplicaError:
    return ReplicaError(
        explain(
            f"{name} failed, and the others were stopped.",
            where=name,
            received=f"{type(error).__name__}: {error}",
            fix="call the `template` on the same batch: if it fails too, the model or "
            "the data is at fault, not the replicas",
        )
    )


class _Surroundings:
    """What a thread knows of itself alone: scopes of Keras, modes of torch."""

    _KINDS = ("cpu", "cuda")

    def __init__(self) -> None:
        self._keras = [vars(tracker).copy() for tracker in self._trackers()]
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind))
            for kind in self._KINDS
            if torch.is_autocast_enabled(kind)
        ]
        self._streams = (
            [torch.cuda.current_stream(i) for i in range(torch.cuda.device_count())]
            if torch.cuda.is_initialized()
            else []
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Makes them those of this thread, too."""
        for tracker, state in zip(self._trackers(), self._keras, strict=True):
            vars(tracker).update({name: _own(value) for name, value in state.items()})
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for kind, dtype in self._autocast:
                stack.enter_context(torch.autocast(kind, dtype))
            for stream in self._streams:
                torch.cuda.set_stream(stream)
            yield

    @staticmethod
    def _trackers() -> tuple[Any, Any]:
        return global_state.GLOBAL_STATE_TRACKER, global_state.GLOBAL_SETTINGS_TRACKER


def _own(value: Any) -> Any:
    """Copies what layers write to while they are called: stacks, call contexts."""
    is_written = isinstance(value, list) or hasattr(value, "entry_layer")
    return copy.copy(value) if is_written else value

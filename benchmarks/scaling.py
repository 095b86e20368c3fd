"""How the cost of a clone grows with the model: time a layer, and memory.

    KERAS_BACKEND=torch python benchmarks/scaling.py

Time: chains of 100, 1,000 and 10,000 tiny layers, each in a process of its own; were
the clone anything but linear in the number of layers, the microseconds a layer would
grow. Memory: the
peak that one clone of a BERT-base adds to a fresh process, against the model's
own bytes; one copy needs 1.0. `results/scaling-<backend>.json` keeps the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import keras
import numpy as np
from keras import layers
from rich.console import Console
from rich.table import Table

SIZES = (100, 1_000, 10_000)
WAYS = {
    "regraft.clone": common.with_regraft,
    "clone_model + set_weights": common.with_clone_model,
}
SECONDS_PER_SIZE = 12.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--time-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory-of", choices=list(WAYS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.time_of:
        copy_when_told(arguments.time_of)
        return
    if arguments.memory_of:
        print(json.dumps(memory_here(WAYS[arguments.memory_of])))
        return

    console = Console()
    with console.status("Chains of layers") as status:
        time_figures = measure_time(arguments.sizes, arguments.repeats, status.update)
    console.print(time_table(time_figures))
    with console.status("Peak memory"):
        memory_figures = {way: memory_in_a_process(way) for way in WAYS}
    console.print(memory_table(memory_figures))
    path = common.RESULTS / f"scaling-{common.BACKEND}.json"
    common.write_json(
        path,
        {
            "backend": common.BACKEND,
            "versions": common.versions(),
            "time": time_figures,
            "memory": memory_figures,
        },
    )
    console.print(f"Written: benchmarks/results/{path.name}")


# --- time ------------------------------------------------------------------------


def chain(length: int) -> keras.Model:
    """A chain of `length` layers, Dense and Activation in turn."""
    inputs = keras.Input((4,))
    x = inputs
    for i in range(length):
        layer = layers.Activation("relu") if i % 2 else layers.Dense(4)
        x = layer(x)
    return keras.Model(inputs, x)


def with_a_deep_stack(make: Callable[[], Any]) -> Any:
    """Keras recurses when it builds a graph: gives it the room to do so.

    Only building happens here; a clone has to do with the usual stack.
    """
    results: list[Any] = []
    limit, stack = sys.getrecursionlimit(), threading.stack_size(512 * 2**20)
    try:
        sys.setrecursionlimit(1_000_000)
        thread = threading.Thread(target=lambda: results.append(make()))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(stack)
    if not results:
        raise RuntimeError("The model could not be built; see the error above.")
    return results[0]


class Chain:
    """A process that has a chain of layers, and copies it when it is told to.

    In one process a small model would be copied into what a large one has left of the
    memory of Python, here and there a little, and with nothing of it in the caches.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--time-of", str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.layers = self._answer()["layers"]

    def copy(self, way: str) -> dict[str, Any]:
        """Returns how long it took, or how it failed."""
        self._ask(way)
        return self._answer()

    def end(self) -> None:
        self._process.communicate()

    def _ask(self, way: str) -> None:
        assert self._process.stdin is not None
        print(way, file=self._process.stdin, flush=True)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process of {self.size:,} layers ended; see above.")
        return json.loads(line)


def copy_when_told(size: int) -> None:
    """Copies a chain in the way that each line of the input says."""
    model = with_a_deep_stack(partial(chain, size))
    elsewhere = np.ones(32 * 2**20)  # 256 MB, more than any cache.

    def cool_down() -> None:
        """Leaves nothing of a model in the caches, as there is of no large one."""
        gc.collect()
        elsewhere.sum()

    print(json.dumps({"layers": len(model.layers)}), flush=True)
    for line in sys.stdin:
        answer: dict[str, Any]
        try:
            make = partial(WAYS[line.strip()], model)
            took, result = common.timed(make, prepare=cool_down)
            answer = {"took": took}
            del result
        except Exception as error:
            answer = {"fails": common.first_line(error)}
        print(json.dumps(answer), flush=True)


def measure_time(
    sizes: list[int], repeats: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """All sizes in turns."""
    chains = []
    try:
        for size in sizes:
            say(f"{size:,} layers: building")
            chains.append(Chain(size))
        return measure_chains(chains, repeats, say)
    finally:
        for each in chains:
            each.end()


def measure_chains(
    chains: list[Chain], repeats: int, say: Callable[[str], None]
) -> dict[str, Any]:
    rows = [(each, way) for each in chains for way in WAYS]
    samples: dict[tuple[Chain, str], list[float]] = {row: [] for row in rows}
    errors: dict[tuple[Chain, str], str] = {}
    for turn in range(repeats + 1):
        for each, way in rows:
            row = each, way
            if row in errors or had_its_time(samples[row]):
                continue
            say(f"{each.size:,} layers: round {turn} of {repeats}, {way}")
            answer = each.copy(way)
            if "fails" in answer:
                errors[row] = answer["fails"]
            elif turn:
                samples[row].append(answer["took"])
    figures: dict[str, Any] = {way: {} for way in WAYS}
    for each, way in rows:
        if (each, way) in errors:
            figures[way][str(each.size)] = {"fails": errors[each, way]}
            continue
        median = common.median(samples[each, way])
        figures[way][str(each.size)] = {
            "median": median,
            "microseconds_per_layer": median / each.layers * 1e6,
            "repeats": len(samples[each, way]),
        }
    for way in WAYS:
        costs = [f.get("microseconds_per_layer") for f in figures[way].values()]
        known = [cost for cost in costs if cost is not None]
        figures[way]["largest_to_smallest"] = (
            max(known) / min(known) if len(known) > 1 else None
        )
    return figures


def had_its_time(samples: list[float]) -> bool:
    return bool(samples) and sum(samples) + samples[-1] > SECONDS_PER_SIZE


def time_table(figures: dict[str, Any]) -> Table:
    sizes = [key for key in next(iter(figures.values())) if key.isdigit()]
    table = Table(title=f"Microseconds a layer, {common.BACKEND}")
    table.add_column("layers")
    for size in sizes:
        table.add_column(f"{int(size):,}", justify="right")
    table.add_column("largest / smallest", justify="right", style="bold")
    for way, found in figures.items():
        cells = [
            f"{found[s]['microseconds_per_layer']:.0f}"
            if "median" in found[s]
            else found[s]["fails"]
            for s in sizes
        ]
        ratio = found["largest_to_smallest"]
        table.add_row(way, *cells, f"{ratio:.2f}" if ratio else "-")
    return table


# --- memory ----------------------------------------------------------------------


def memory_in_a_process(way: str) -> dict[str, Any]:
    """Measures in a process that has done nothing else yet."""
    command = [sys.executable, __file__, "--memory-of", way]
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    if run.returncode:
        lines = run.stderr.strip().splitlines()
        return {"fails": lines[-1] if lines else f"exit status {run.returncode}"}
    return json.loads(run.stdout.strip().splitlines()[-1])


def memory_here(copy: Callable[[keras.Model], Any]) -> dict[str, Any]:
    """The peak that one copy adds to this process, against the model's bytes."""
    common.finish(copy(chain(4)))  # what the first copy of a process sets up once
    model = common.finish(common.bert_base())
    size = common.size_in_bytes(model)
    gc.collect()
    forget_peak()
    before = resident()
    twin = common.finish(copy(model))
    after, kept = peak(), resident()
    del twin
    gc.collect()
    tracemalloc.start()
    twin = common.finish(copy(model))
    _, python = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del twin
    return {
        "model_bytes": size,
        "peak_extra_bytes": after - before,
        "peak_extra_to_model": (after - before) / size,
        "kept_to_model": (kept - before) / size,
        "python_peak_bytes": python,
    }


def forget_peak() -> None:
    """Lets the system's record of the peak start at what is used now.

    Where this is not possible, the peak may be that of building the model.
    """
    with contextlib.suppress(OSError, AttributeError):
        # What was freed goes back, so that the copy cannot hide in it.
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def resident() -> int:
    return status("VmRSS") or usage()


def peak() -> int:
    return status("VmHWM") or usage()


def status(field: str) -> int | None:
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def usage() -> int:
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def memory_table(figures: dict[str, Any]) -> Table:
    table = Table(title=f"Memory for a copy of BERT-base, {common.BACKEND}")
    table.add_column("")
    table.add_column("peak / model", justify="right", style="bold")
    table.add_column("kept / model", justify="right")
    table.add_column("Python's part of the peak", justify="right")
    for way, found in figures.items():
        if "fails" in found:
            table.add_row(way, found["fails"])
            continue
        table.add_row(
            way,
            f"{found['peak_extra_to_model']:.2f}",
            f"{found['kept_to_model']:.2f}",
            f"{found['python_peak_bytes'] / 1e6:.1f} MB",
        )
    return table


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()

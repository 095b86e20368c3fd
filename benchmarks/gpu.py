"""Copying a model that lies on a GPU: how long, how much memory, by which way.

    PYTHONPATH=.gpu:src python3 benchmarks/gpu.py

Each backend (torch, jax) has a process of its own. For a BERT-base and for a
transformer of 24 layers of width 2048 it measures

- the time of `clone_model`, `clone_model` + `set_weights`, `regraft.clone` and a
  bare copy of the tensors, to the moment the device has finished;
- whether each copied variable is equal to the last bit, lies where the original
  lies, and has memory of its own;
- what goes through the host: PyTorch's profiler counts the bytes of each
  transfer, JAX's transfer guards forbid transfers; a control shows that each
  would notice one;
- the peak of device memory that the copy adds, against the model's bytes;
- the way to the CPU and back (`clone(device=)`): every variable, bit by bit, and
  where it lies;
- two steps of training after `replicate` on the one GPU, with the weights kept there
  or on the CPU, against the plain model;
- what a GPU without room says.

The figures go to `$OUT/gpu.json`, or to `results/gpu.json`. A measurement that
fails is reported as such and the others go on. `--small` tries everything on
tiny models, also without a GPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

BACKENDS = ("torch", "jax")
SECONDS_PER_BACKEND = 220
SECONDS_PER_WAY = 10.0
REPEATS = 7

MODELS = {
    "BERT-base": {"depth": 12, "width": 768, "heads": 12},
    "24 x 2048": {"depth": 24, "width": 2048, "heads": 16},
}
SMALL = {
    "small": {"depth": 2, "width": 64, "heads": 2, "vocabulary": 1000, "length": 16}
}


# --- the parent ----------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--small", action="store_true", help="tiny models, any device")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child = Child(arguments.child)
        if child.device.kind != "gpu" and not arguments.small:
            sys.exit(f"No GPU: the device is a {child.device.kind}.")
        child.run(SMALL if arguments.small else MODELS)
        return
    compile_core()
    results = {b: run_backend(b, arguments.small) for b in arguments.backends}
    print(table(results))
    if arguments.small:
        return  # a trial, not a result
    folder = Path(os.environ.get("OUT") or Path(__file__).parent / "results")
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f".{os.getpid()}-gpu.json"
    beside.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    os.replace(beside, folder / "gpu.json")


def compile_core() -> None:
    """Does for a checkout what an installation does: regraft is not installed here."""
    script = Path(__file__).parents[1] / "hatch_build.py"
    subprocess.run([sys.executable, str(script)], check=True)


def run_backend(backend: str, small: bool) -> dict[str, Any]:
    """Starts a process for a backend and returns what it found, however far it got."""
    print(f"==> {backend}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, __file__, "--child", str(path)]
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            # Memory is taken when needed, so that its peak means something.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        ended = "completely"
        try:
            run = subprocess.run(
                command + ["--small"] * small,
                env=environment,
                timeout=SECONDS_PER_BACKEND,
            )
            if run.returncode:
                ended = f"with exit status {run.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"after {SECONDS_PER_BACKEND} s, unfinished"
        found = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {**found, "ended": ended}


def table(results: dict[str, Any]) -> str:
    header = ["model", "backend", "clone_model", "+ set_weights", "regraft", "bare"]
    header += ["equal", "in place", "own memory", "host bytes", "peak/model"]
    rows = [header]
    for backend, found in results.items():
        for name, figures in found.get("models", {}).items():
            times = figures.get("time", {})
            rows.append(
                [
                    f"{name}, {figures.get('bytes', 0) / 1e9:.2f} GB",
                    f"{backend} ({found.get('device', '?')})",
                    *[cell(times.get(way)) for way in Child.WAYS],
                    *[cell(figures.get(what)) for what in ("equal", "in_place")],
                    cell(figures.get("own_memory")),
                    cell(figures.get("host")),
                    cell(figures.get("memory")),
                ]
            )
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True))
        for row in rows
    ]
    for backend, found in results.items():
        lines.append(f"{backend}: ended {found['ended']}")
        lines += [
            f"{backend}, {name}, {what}: {error}"
            for name, figures in found.get("models", {}).items()
            for what, error in errors_in(figures)
        ]
    return "\n".join(lines)


def cell(figure: Any) -> str:
    if not isinstance(figure, dict):
        return "-"
    if "fails" in figure:
        return "fails"
    if "median" in figure:
        return f"{figure['median'] * 1e3:.2f} ms"
    if "host_bytes" in figure:
        return f"{figure['host_bytes']:,}"
    if "forbidden" in figure:
        return "forbidden" if figure["forbidden"] else "needed"
    if "peak_extra_to_model" in figure:
        return f"{figure['peak_extra_to_model']:.3f}"
    return f"{figure['yes']}/{figure['of']}"


def errors_in(figures: Any, path: str = "") -> list[tuple[str, str]]:
    if not isinstance(figures, dict):
        return []
    found = [(path, figures["fails"])] if "fails" in figures else []
    for key, value in figures.items():
        found += errors_in(value, f"{path}/{key}" if path else key)
    return found


# --- a child: one backend ------------------------------------------------------


class Child:
    """Measures on one backend and writes down each figure as soon as it is known."""

    WAYS = (
        "clone_model",
        "clone_model + set_weights",
        "regraft.clone",
        "bare copy",
    )

    def __init__(self, path: Path) -> None:
        import common
        import gpu_devices
        import keras

        self.common = common
        self.path = path
        self.deadline = time.monotonic() + SECONDS_PER_BACKEND - 10
        kinds = {"torch": gpu_devices.Torch, "jax": gpu_devices.Jax}
        self.device: Any = kinds[common.BACKEND]()
        self.found: dict[str, Any] = {
            "versions": common.versions(),
            "device": self.device.kind,
            "models": {},
        }
        self.ways: dict[str, Callable[[Any], Any]] = dict(
            zip(
                self.WAYS,
                (
                    keras.models.clone_model,
                    common.with_clone_model,
                    common.with_regraft,
                    common.bare_copy,
                ),
                strict=True,
            )
        )

    def run(self, models: dict[str, dict[str, int]]) -> None:
        for name, shape in models.items():
            print(f"{name}: building", flush=True)
            figures = self.found["models"][name] = {}
            try:
                model = self.common.finish(self.common.transformer(**shape))
            except Exception as error:
                figures["fails"] = self.common.first_line(error)
                self.write()
                continue
            figures["bytes"] = self.common.size_in_bytes(model)
            figures["variables"] = len(model.variables)
            if self.device.kind == "gpu":
                # First: a peak of memory is only seen above all earlier ones.
                self.note(figures, "memory", partial(self.memory, model))
                host = partial(self.device.host, self.common, model)
                self.note(figures, "host", host)
                del host
            self.note(figures, "faithful", partial(self.faithful, model))
            faithful = figures.pop("faithful")
            figures.update(faithful if "fails" not in faithful else {"equal": faithful})
            self.note(figures, "relocation", partial(self.relocation, model))
            self.note(figures, "time", partial(self.time, model))
            del model
            gc.collect()
        self.note(self.found, "replicas", self.replicas)
        if self.device.kind == "gpu":
            self.note(self.found, "no_room", self.no_room)
        self.write()

    def note(self, figures: dict[str, Any], what: str, measure: Any) -> None:
        print(f"  {what}", flush=True)
        try:
            figures[what] = measure()
        except Exception as error:
            figures[what] = {"fails": self.common.first_line(error)}
        self.write()

    def write(self) -> None:
        self.common.write_json(self.path, self.found)

    def memory(self, model: Any) -> dict[str, Any]:
        """The peak that a copy adds to what is allocated on the device."""
        size = self.common.size_in_bytes(model)
        before, earlier_peak = self.device.allocated(), self.device.start_peak()
        twin = self.common.finish(self.common.with_regraft(model))
        peak, after = self.device.peak(), self.device.allocated()
        del twin
        if peak <= earlier_peak:
            raise RuntimeError("The copy stayed below an earlier peak of memory.")
        return {
            "peak_extra_bytes": peak - before,
            "peak_extra_to_model": (peak - before) / size,
            "kept_to_model": (after - before) / size,
        }

    def faithful(self, model: Any) -> dict[str, Any]:
        """Compares each pair of variables, without leaving the device."""
        twin = self.common.finish(self.common.with_regraft(model))
        values = self.common.values_of
        pairs = list(zip(values(model), values(twin), strict=True))
        device = self.device

        def count(ask: Callable[[Any, Any], bool]) -> dict[str, int]:
            return {"yes": sum(ask(a, b) for a, b in pairs), "of": len(pairs)}

        return {
            "equal": count(device.equal),
            "in_place": count(lambda a, b: device.place(a) == device.place(b)),
            "on_gpu": count(lambda a, b: device.on_gpu(b)),
            "own_memory": count(lambda a, b: device.address(a) != device.address(b)),
        }

    def relocation(self, model: Any) -> dict[str, Any]:
        """From the device to the CPU and back, and where each value lies."""
        import regraft

        values, device = self.common.values_of, self.device
        start = time.perf_counter()
        there = self.common.finish(regraft.clone(model, device="cpu"))
        middle = time.perf_counter()
        back = self.common.finish(regraft.clone(there, device=f"{device.kind}:0"))
        end = time.perf_counter()
        triples = list(zip(values(model), values(there), values(back), strict=True))
        return {
            "to_cpu_seconds": middle - start,
            "back_seconds": end - middle,
            "of": len(triples),
            "on_cpu": sum(not device.on_gpu(b) for _, b, _ in triples),
            "back_in_place": sum(
                device.place(a) == device.place(c) for a, _, c in triples
            ),
            "equal": sum(device.equal(a, c) for a, _, c in triples),
        }

    def replicas(self) -> dict[str, Any]:
        """Two steps on one replica, against those of the plain model."""
        import warnings

        import keras
        import numpy as np

        import regraft

        warnings.simplefilter("ignore", regraft.SingleDeviceWarning)
        keras.utils.set_random_seed(0)
        shapes = ((32, 32, 3), 3)
        x = np.random.default_rng(0).normal(size=(16, *shapes[0])).astype("float32")
        y = np.arange(16) % shapes[1]
        layers = keras.layers
        model = keras.Sequential(
            [
                keras.Input(shapes[0]),
                layers.Conv2D(16, 3, activation="relu"),
                layers.BatchNormalization(),
                layers.GlobalAveragePooling2D(),
                layers.Dense(shapes[1], activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        found: dict[str, Any] = {}
        ways = {"on_gpu": {}, "kept_on_cpu": {"relocate": "cpu"}}
        for name, options in ways.items():
            one, many = regraft.clone(model), regraft.replicate(model, 1, **options)
            losses = [
                [float(m.train_on_batch(x, y)) for _ in range(2)] for m in (one, many)
            ]
            pairs = zip(one.weights, regraft.gather(many).weights, strict=True)
            found[name] = {
                "losses": losses,
                "devices": list(many.devices),
                "weights_lie_on": many.placement().variables[0].devices[0],
                # A CPU rounds the optimizer's steps in its own way.
                "largest_difference": max(
                    float(np.abs(self.common.array(a) - self.common.array(b)).max())
                    for a, b in pairs
                ),
            }
        return found

    def no_room(self) -> dict[str, Any]:
        """Fills the GPU and asks for a copy: what is said, and is memory free again?"""
        import keras

        import regraft

        model = keras.Sequential([keras.Input((8192,)), keras.layers.Dense(65536)])
        before = self.device.allocated()
        copies = []
        try:
            while len(copies) < 200:  # 2.1 GB each
                copies.append(self.common.finish(regraft.clone(model)))
        except regraft.OutOfMemoryError as error:
            message = str(error)
        else:
            message = "never"
        made = len(copies)
        del copies
        gc.collect()
        return {
            "copies": made,
            "message": message,
            "left_behind_bytes": self.device.allocated() - before,
        }

    def time(self, model: Any) -> dict[str, Any]:
        """All ways in turns, after a first round that does not count."""
        samples: dict[str, list[float]] = {way: [] for way in self.ways}
        errors: dict[str, str] = {}
        for turn in range(REPEATS + 1):
            for way, copy in self.ways.items():
                spent = samples[way]
                over = bool(spent) and sum(spent) + spent[-1] > SECONDS_PER_WAY
                if way in errors or over or time.monotonic() > self.deadline:
                    continue
                try:
                    took, result = self.common.timed(partial(copy, model))
                    del result
                except Exception as error:
                    errors[way] = self.common.first_line(error)
                    continue
                if turn:
                    spent.append(took)
        return {
            way: {"fails": errors.get(way, "no time was left")}
            if not samples[way]
            else {
                "median": self.common.median(samples[way]),
                "fastest": min(samples[way]),
                "repeats": len(samples[way]),
            }
            for way in self.ways
        }


if __name__ == "__main__":
    main()

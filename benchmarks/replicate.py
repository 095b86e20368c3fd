"""What `replicate` costs: to make, and in each step of `fit`.

    KERAS_BACKEND=jax python benchmarks/replicate.py

Three questions, each asked in turns with its peer, as ratios of medians:

- making the replicas, against copying the bytes of the variables onto each device;
- a step of `fit` on two devices, against the same step written by hand on the same
  engine: a jitted step on sharded arrays (JAX), a model that was built inside a
  `MirroredStrategy` (TensorFlow), a module wrapped by DDP in two processes (torch);
- a step of `fit` on one device, against the plain model.

The devices are virtual CPUs. `results/replicate-<backend>.json` keeps the figures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import common
import keras
import numpy as np
from keras import layers
from rich.console import Console
from rich.table import Table

import regraft

TWO = "a step on two devices"
WIDTH, DEPTH, BATCH, STEPS = 1024, 4, 256, 12
NAMES = ["cpu:0", "cpu:0"] if common.BACKEND == "torch" else ["cpu:0", "cpu:1"]

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(BATCH * STEPS, WIDTH)).astype("float32")
Y = _RNG.normal(size=(BATCH * STEPS, 16)).astype("float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="rounds that count")
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore", regraft.SingleDeviceWarning)
    start_devices()
    model = build()
    console = Console()
    found: dict[str, Any] = {"backend": common.BACKEND, "versions": common.versions()}
    if "RANK" in os.environ:  # Started by `on_two_processes`.
        found = in_turns(fitting(regraft.replicate(model)), by_hand(), repeats)
        common.write_json(Path(os.environ["FIGURES"]) / os.environ["RANK"], found)
        return
    large = build_large()
    questions = {
        "making two replicas": (
            partial(regraft.replicate, large, NAMES),
            partial(copy_to_each, large),
        ),
        "a step on one device": (
            fitting(regraft.replicate(model, NAMES[:1])),
            fitting(regraft.clone(model)),
        ),
    }
    for question, (ours, peer) in questions.items():
        with console.status(question):
            found[question] = in_turns(ours, peer, repeats)
    with console.status(TWO):
        if common.BACKEND == "torch":
            found[TWO] = on_two_processes(repeats)
        else:
            many = regraft.replicate(model, NAMES)
            found[TWO] = in_turns(fitting(many), by_hand(), repeats)
    placed = regraft.replicate(large, NAMES).placement().variables
    total = sum(variable.bytes * len(variable.devices) for variable in placed)
    found["bytes placed / bytes of two copies"] = total / (
        2 * common.size_in_bytes(large)
    )
    common.write_json(common.RESULTS / f"replicate-{common.BACKEND}.json", found)
    console.print(table(found))


def on_two_processes(repeats: int) -> dict[str, float]:
    """Asks the question in two processes at once; the slower one answers."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", __file__]
        subprocess.run(
            [sys.executable, *command, "--repeats", str(repeats)],
            env={**os.environ, "FIGURES": folder, "OMP_NUM_THREADS": "1"},
            check=True,
        )
        both = [common.read_json(Path(folder) / rank) for rank in "01"]
    return max(both, key=lambda figures: figures["ratio"])


def start_devices() -> None:
    if common.BACKEND == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    if common.BACKEND == "torch":
        import torch

        torch.set_num_threads(1)


def build() -> keras.Model:
    keras.utils.set_random_seed(0)
    stack = [layers.Dense(WIDTH, activation="relu") for _ in range(DEPTH)]
    model = keras.Sequential([keras.Input((WIDTH,)), *stack, layers.Dense(16)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")
    model.train_on_batch(X[:BATCH], Y[:BATCH])
    return model


def build_large() -> keras.Model:
    """Half a gigabyte: what is fixed about a copy does not count."""
    stack = [layers.Dense(4096, use_bias=False) for _ in range(8)]
    return keras.Sequential([keras.Input((4096,)), *stack])


def fitting(model: Any) -> Callable[[], None]:
    return lambda: model.fit(X, Y, batch_size=BATCH, shuffle=False, verbose=0) and None


# --- the peers -------------------------------------------------------------------


def copy_to_each(model: keras.Model) -> list[Any]:
    """The bytes of all variables, onto both devices."""
    values = common.values_of(model)
    if common.BACKEND == "jax":
        import jax

        devices = jax.devices("cpu")[:2]
        return [jax.device_put(v, d, may_alias=False) for d in devices for v in values]
    if common.BACKEND == "torch":
        return [v.detach().clone() for _ in NAMES for v in values]
    import tensorflow as tf

    copies = []
    for name in NAMES:
        with tf.device(name):
            # A mere read is copied when somebody writes, which nobody does.
            copies += [tf.raw_ops.DeepCopy(x=v.read_value()) for v in values]
    return copies


def by_hand() -> Callable[[], None]:
    return {"jax": jax_by_hand, "torch": torch_by_hand, "tensorflow": tf_by_hand}[
        common.BACKEND
    ]()


def jax_by_hand() -> Callable[[], None]:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    model = build()
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("batch",))
    rows = NamedSharding(mesh, PartitionSpec("batch"))
    whole = NamedSharding(mesh, PartitionSpec())
    weights = [v.value for v in model.trainable_variables]
    slots = [v.value for v in model.optimizer.variables]
    state = jax.device_put(([w + 0 for w in weights], [s + 0 for s in slots]), whole)

    def step(state: Any, x: Any, y: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            predicted, _ = model.stateless_call(weights, [], x, training=True)
            return keras.ops.mean((predicted - y) ** 2)

        weights, slots = state
        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return model.optimizer.stateless_apply(slots, gradients, weights), loss

    jitted = jax.jit(step, donate_argnums=0, out_shardings=(whole, None))

    def run() -> None:
        nonlocal state
        for i in range(0, len(X), BATCH):
            x, y = jax.device_put((X[i : i + BATCH], Y[i : i + BATCH]), rows)
            state, loss = jitted(state, x, y)
            float(loss)  # What a progress bar reads.

    return run


def tf_by_hand() -> Callable[[], None]:
    import tensorflow as tf

    reduce = tf.distribute.ReductionToOneDevice("cpu:0")
    strategy = tf.distribute.MirroredStrategy(NAMES, cross_device_ops=reduce)
    with strategy.scope():
        model = build()
    return fitting(model)


def torch_by_hand() -> Callable[[], None]:
    """One of two processes, with a module that DDP wraps."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = build()
    wrapped = DistributedDataParallel(model)
    weights = model.trainable_variables
    half = BATCH // 2
    start = half * torch.distributed.get_rank()

    def run() -> None:
        for i in range(start, len(X), BATCH):
            x, y = (torch.from_numpy(data[i : i + half]) for data in (X, Y))
            model.zero_grad()
            loss = ((wrapped(x) - y) ** 2).mean()
            loss.backward()
            with torch.no_grad():
                model.optimizer.apply([v.value.grad for v in weights], weights)
            float(loss)

    return run


# --- the clock -------------------------------------------------------------------


def in_turns(
    ours: Callable[[], Any], peer: Callable[[], Any], repeats: int
) -> dict[str, float]:
    samples: dict[str, list[float]] = {"regraft": [], "peer": []}
    for turn in range(repeats + 1):
        pair = [("regraft", ours), ("peer", peer)]
        for name, run in pair if turn % 2 else pair[::-1]:
            took, result = timed(run)
            del result
            if turn:  # The first round compiles.
                samples[name].append(took)
    medians = {name: common.median(times) for name, times in samples.items()}
    return {**medians, "ratio": medians["regraft"] / medians["peer"]}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = run()
    if result is not None:
        common.finish(result)
    return time.perf_counter() - start, result


def table(found: dict[str, Any]) -> Table:
    shown = Table("question", "regraft", "peer", "ratio", title=found["backend"])
    for question, figures in found.items():
        if isinstance(figures, dict) and "ratio" in figures:
            times = [common.seconds(figures[k]) for k in ("regraft", "peer")]
            shown.add_row(question, *times, f"{figures['ratio']:.2f}")
    return shown


if __name__ == "__main__":
    main()

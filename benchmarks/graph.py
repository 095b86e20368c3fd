"""What an edit costs: `regraft.graph`, one verb, `build`, beside Keras's own way.

    KERAS_BACKEND=torch python benchmarks/graph.py --only ResNet50 --repeats 5

One layer is put in front of the last one of a model, and one of the first is
replaced by a new one of the same kind. Reading the graph, the verb and building are
timed each by itself, in turns with `regraft.clone` of the model, and with what Keras
offers for the second edit: `clone_model` with a `clone_function` that makes each
layer anew, which leaves all weights behind. The figures are medians, after a round
that does not count. Chains of 1,000 to 10,000 layers show how the cost grows.
`results/graph-<backend>.json` keeps the figures.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import common
import keras
import scaling
from keras import layers
from rich.console import Console
from rich.table import Table

import regraft

MODELS: dict[str, tuple[Callable[[], keras.Model], type]] = {
    # For each the class of a layer near its input that is replaced.
    "MobileNetV3Small": (
        partial(keras.applications.MobileNetV3Small, weights=None),
        layers.Conv2D,
    ),
    "ResNet50": (partial(keras.applications.ResNet50, weights=None), layers.Conv2D),
    "EfficientNetV2B0": (
        partial(keras.applications.EfficientNetV2B0, weights=None),
        layers.Conv2D,
    ),
    "BERT-base": (common.bert_base, layers.LayerNormalization),
}
SIZES = (1_000, 2_000, 10_000)

# What is demanded: of building after an edit near the output, against a clone; near
# the input, against Keras; and of printing 1,000 nodes, in seconds.
MOST_OF_CLONE, MOST_OF_KERAS, MOST_SECONDS = 1.3, 1.0, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=list(MODELS), metavar="MODEL", help="these alone"
    )
    parser.add_argument("--repeats", type=int, default=15, help="rounds that count")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150)
    rows: dict[str, Any] = {}
    for name in arguments.only or MODELS:
        with console.status(name):
            rows[name] = measure(*MODELS[name], arguments.repeats)
        gc.collect()
    console.print(table(rows))
    chains: dict[str, Any] = {}
    for size in arguments.sizes:
        with console.status(f"{size:,} layers"):
            chains[str(size)] = chain(size)
    console.print(chain_table(chains))
    path = common.RESULTS / f"graph-{common.BACKEND}.json"
    known = common.read_json(path) if arguments.only else {}
    common.write_json(
        path,
        {
            "backend": common.BACKEND,
            "versions": common.versions(),
            "models": {**known.get("models", {}), **rows},
            "chains": chains or known.get("chains", {}),
        },
    )
    console.print(f"Written: benchmarks/results/{path.name}")


def again(layer: Any) -> Any:
    return type(layer).from_config(layer.get_config())


def measure(
    make: Callable[[], keras.Model], kind: type, repeats: int
) -> dict[str, Any]:
    """Lets all steps of both edits, a clone and Keras take turns on one model."""
    keras.backend.clear_session()
    model = make()
    common.wait_for(common.values_of(model))
    first = next(x for x in model.layers if isinstance(x, kind))
    last, new = model.layers[-1].name, again(first)
    dropout = layers.Dropout(0.5, name="inserted")
    graph = regraft.graph(model)
    late = graph.insert(dropout, before=last)
    early = graph.replace(first.name, new)
    steps: dict[str, Callable[[], Any]] = {
        "clone": partial(regraft.clone, model),
        "graph": partial(regraft.graph, model),
        "print": partial(str, graph),
        "edit near the output": partial(graph.insert, dropout, before=last),
        "build near the output": late.build,
        "edit near the input": partial(graph.replace, first.name, new),
        "build near the input": early.build,
        "clone_model": partial(keras.models.clone_model, model, clone_function=again),
    }
    samples = in_turns(steps, repeats)
    medians = {name: common.median(found) for name, found in samples.items()}
    whole = {
        end: sum(medians[x] for x in ("graph", f"edit near {end}", f"build near {end}"))
        for end in ("the output", "the input")
    }
    return {
        "layers": len(model.layers),
        "bytes": common.size_in_bytes(model),
        "medians": medians,
        "output_against_clone": ratio(samples, "build near the output", "clone"),
        "input_against_keras": ratio(samples, "build near the input", "clone_model"),
        "all_near_output_against_clone": whole["the output"] / medians["clone"],
        "all_near_input_against_keras": whole["the input"] / medians["clone_model"],
    }


def in_turns(
    steps: dict[str, Callable[[], Any]], repeats: int
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    draw = random.Random(0)
    for turn in range(repeats + 1):
        draw.shuffle(names)  # Who comes next must not depend on who came before.
        for name in names:
            is_model = name.startswith(("clone", "build"))
            took, result = (common.timed if is_model else bare)(steps[name])
            if turn:
                samples[name].append(took)
            del result
    return samples


def ratio(samples: dict[str, list[float]], one: str, other: str) -> float:
    """How much longer a step takes than another one of the same turn, mostly.

    A machine that others use as well is faster in one minute than in the next, but
    hardly within a turn.
    """
    pairs = zip(samples[one], samples[other], strict=True)
    return common.median([mine / theirs for mine, theirs in pairs])


def bare(make: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a step takes whose result holds no new values."""
    results: list[Any] = []
    took, _ = common.timed(lambda: results.append(make()) or [])
    return took, results[0]


def chain(size: int) -> dict[str, float]:
    """Seconds of each step on a chain of layers."""
    model = scaling.with_a_deep_stack(partial(scaling.chain, size))
    found: dict[str, float] = {}
    found["clone"], _ = common.timed(partial(regraft.clone, model))
    found["graph"], graph = bare(partial(regraft.graph, model))
    found["print"], _ = bare(partial(str, graph))
    for end, layer in (("output", model.layers[-2]), ("input", model.layers[2])):
        found[f"insert near the {end}"], edited = bare(
            partial(graph.insert, layers.Dropout(0.5), before=layer.name)
        )
        found[f"build near the {end}"], _ = common.timed(edited.build)
    return found


def table(rows: dict[str, Any]) -> Table:
    table = Table(title=f"Editing a model, {common.BACKEND}")
    table.add_column("model", no_wrap=True)
    for name in next(iter(rows.values()))["medians"]:
        table.add_column(name, justify="right")
    table.add_column(f"output / clone (<= {MOST_OF_CLONE})", justify="right")
    table.add_column(f"input / Keras (< {MOST_OF_KERAS:g})", justify="right")
    for name, row in rows.items():
        table.add_row(
            name,
            *map(common.seconds, row["medians"].values()),
            f"{row['output_against_clone']:.2f}",
            f"{row['input_against_keras']:.2f}",
        )
    return table


def chain_table(chains: dict[str, Any]) -> Table:
    table = Table(title=f"Chains; printing 1,000 nodes: under {MOST_SECONDS:g} s")
    table.add_column("layers", justify="right")
    for name in next(iter(chains.values()), {}):
        table.add_column(name, justify="right")
    for size, row in chains.items():
        table.add_row(f"{int(size):,}", *map(common.seconds, row.values()))
    return table


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()

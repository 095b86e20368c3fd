"""How long the first copy of a program takes, when nothing is warm yet.

    KERAS_BACKEND=torch python benchmarks/first.py --repeats 3

Most programs copy a model once. `clone.py` measures what the second and all later
copies take; here each copy is the first thing that a process of its own does after
it has made the model, so that whatever is imported, compiled or worked out for it
counts. The ways take turns; the figures are medians. `results/first-<backend>.json`
keeps them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import common
import keras
from rich.console import Console
from rich.progress import track
from rich.table import Table

MODELS = {
    "MobileNetV3Small": lambda: keras.applications.MobileNetV3Small(weights=None),
    "BERT-base": common.bert_base,
}
WAYS = {
    "regraft.clone": common.with_regraft,
    "clone_model + set_weights": common.with_clone_model,
    "copy.deepcopy": common.with_deepcopy,
    "save + load": common.with_a_file,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="processes a figure")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(seconds(*arguments.child))
        return
    turns = [(m, w) for _ in range(arguments.repeats) for m in MODELS for w in WAYS]
    taken: dict[str, dict[str, list[float]]] = {
        m: {w: [] for w in WAYS} for m in MODELS
    }
    console = Console(width=None if sys.stdout.isatty() else 120)
    for model, way in track(turns, "first copies", console=console):
        taken[model][way].append(in_a_new_process(model, way))
    medians = {
        model: {way: common.median(times) for way, times in ways.items()}
        for model, ways in taken.items()
    }
    found = {"backend": common.BACKEND, "versions": common.versions()}
    path = common.RESULTS / f"first-{common.BACKEND}.json"
    common.write_json(path, {**found, "models": medians})
    console.print(table(medians))
    console.print(f"Written: {path.relative_to(path.parents[2])}")


def in_a_new_process(model: str, way: str) -> float:
    """Returns how many seconds the first copy of a new process takes."""
    command = [sys.executable, __file__, "--child", model, way]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def seconds(model: str, way: str) -> float:
    """Makes a model and returns how long its first copy takes."""
    original = MODELS[model]()
    taken, _ = common.timed(lambda: WAYS[way](original))
    return taken


def table(medians: dict[str, dict[str, float]]) -> Table:
    """Returns the figures as a table."""
    found = Table(title=f"The first copy, {common.BACKEND}")
    for head in ("model", *WAYS, "the fastest other / regraft"):
        found.add_column(head, justify="left" if head == "model" else "right")
    for model, ways in medians.items():
        ours, *others = ways.values()
        shown = [common.seconds(t) for t in ways.values()]
        found.add_row(model, *shown, f"{min(others) / ours:.1f}x")
    return found


if __name__ == "__main__":
    main()

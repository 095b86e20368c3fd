"""How long a copy takes: `regraft.clone` beside what Keras and Python offer.

    KERAS_BACKEND=torch python benchmarks/clone.py --only ResNet50 --repeats 5

All contenders copy the same models in one process. They take turns, starting
with another one each round, after a first round that does not count; the
figures are medians. The bare copy, which copies the tensors and makes no model,
is the floor that no clone can beat. `results/clone-<backend>.json` keeps the
figures.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import common
import keras
from rich.console import Console
from rich.table import Table

MODELS: dict[str, Callable[[], keras.Model]] = {
    "MobileNetV3Small": partial(keras.applications.MobileNetV3Small, weights=None),
    "ResNet50": partial(keras.applications.ResNet50, weights=None),
    "EfficientNetV2B0": partial(keras.applications.EfficientNetV2B0, weights=None),
    "NASNetMobile": partial(keras.applications.NASNetMobile, weights=None),
    "BERT-base": common.bert_base,
    "MLP, 200 layers": common.deep_mlp,
}

OURS = "regraft.clone"
FLOOR = "bare copy"
CONTENDERS: dict[str, Callable[[keras.Model], Any]] = {
    OURS: common.with_regraft,
    "clone_model + set_weights": common.with_clone_model,
    "copy.deepcopy": common.with_deepcopy,
    "save + load": common.with_a_file,
    FLOOR: common.bare_copy,
}
PEERS = [name for name in CONTENDERS if name not in (OURS, FLOOR)]

# No contender starts a turn on a model, but the first, that ends later than this.
SECONDS_PER_CONTENDER = 4.0


def main() -> None:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 150)
    path = common.RESULTS / f"clone-{common.BACKEND}.json"
    found = {"backend": common.BACKEND, "versions": common.versions()}
    known = common.read_json(path)
    keep = arguments.only and known.get("versions") == found["versions"]
    rows: dict[str, Any] = known["models"] if keep else {}
    order: list[str] = []
    for name in arguments.only or MODELS:
        with console.status(f"{name}: building") as status:
            rows[name] = row_of(name, arguments.repeats, status.update)
        console.print(one_line(name, rows[name]), highlight=False)
        order = [name for name in MODELS if name in rows]
        common.write_json(path, {**found, "models": {n: rows[n] for n in order}})
        gc.collect()
    console.print(table(rows, order))
    for name in order:
        for contender, figure in rows[name].get("contenders", {}).items():
            if "fails" in figure:
                console.print(f"{name}, {contender}: fails: {figure['fails']}")
    console.print(f"Written: benchmarks/results/{path.name}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="+", choices=list(MODELS), metavar="MODEL", help="these alone"
    )
    parser.add_argument("--repeats", type=int, default=9, help="rounds that count")
    return parser.parse_args()


def row_of(name: str, repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    keras.backend.clear_session()
    try:
        model = MODELS[name]()
    except Exception as error:  # not every model exists on every backend
        return {"fails": common.first_line(error)}
    common.wait_for(common.values_of(model))
    return measure(model, repeats, say)


def measure(
    model: keras.Model, repeats: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Lets all contenders copy one model, in turns."""
    samples: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    errors: dict[str, str] = {}
    exact: dict[str, bool] = {}
    names = list(CONTENDERS)
    for turn in range(repeats + 1):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if name in errors or has_had_its_time(samples[name]):
                continue
            say(f"{model.name}: round {turn} of {repeats}, {name}")
            try:
                took, result = common.timed(partial(CONTENDERS[name], model))
            except Exception as error:
                errors[name] = common.first_line(error)
                continue
            if turn:
                samples[name].append(took)
            else:
                exact[name] = has_weights_of(model, result)
            del result
    contenders: dict[str, Any] = {}
    for name in CONTENDERS:
        if name in errors:
            contenders[name] = {"fails": errors[name]}
        else:
            contenders[name] = {
                "median": common.median(samples[name]),
                "fastest": min(samples[name]),
                "slowest": max(samples[name]),
                "repeats": len(samples[name]),
                "weights_equal": exact[name],
            }
    row = {
        "layers": len(model.layers),
        "variables": len(model.variables),
        "bytes": common.size_in_bytes(model),
        "contenders": contenders,
    }
    return {**row, **ratios(contenders)}


def has_had_its_time(samples: list[float]) -> bool:
    return bool(samples) and sum(samples) + samples[-1] > SECONDS_PER_CONTENDER


def has_weights_of(model: keras.Model, result: Any) -> bool:
    """Compares every variable to the last bit, seed generators' included."""
    copies = result if isinstance(result, list) else common.values_of(result)
    originals = common.values_of(model)
    if len(originals) != len(copies):
        return False
    return all(
        common.array(old).tobytes() == common.array(new).tobytes()
        for old, new in zip(originals, copies, strict=True)
    )


def ratios(contenders: dict[str, Any]) -> dict[str, Any]:
    """How regraft stands between its fastest peer and the floor."""
    medians = {n: c["median"] for n, c in contenders.items() if "median" in c}
    peers = [name for name in PEERS if name in medians]
    fastest = min(peers, key=lambda name: medians[name], default=None)
    ours = medians.get(OURS)
    floor = medians.get(FLOOR)
    return {
        "fastest_peer": fastest,
        "faster_than_fastest_peer": ours and fastest and medians[fastest] / ours,
        "slower_than_bare_copy": ours and floor and ours / floor,
    }


def one_line(name: str, row: dict[str, Any]) -> str:
    if "fails" in row:
        return f"{name}: {row['fails']}"
    parts = [f"{n} {cell(figure)}" for n, figure in row["contenders"].items()]
    return f"{name}: {', '.join(parts)}"


def table(rows: dict[str, Any], order: list[str]) -> Table:
    table = Table(title=f"Copying a model, {common.BACKEND} {versions()}")
    table.add_column("model", no_wrap=True)
    table.add_column("MB", justify="right")
    for contender in CONTENDERS:
        table.add_column(contender, justify="right")
    table.add_column("fastest peer takes", justify="right", style="bold")
    table.add_column("against bare copy", justify="right")
    for name in order:
        row = rows[name]
        if "fails" in row:
            table.add_row(name, "-", "cannot be built")
            continue
        table.add_row(
            name,
            f"{row['bytes'] / 1e6:.0f}",
            *[cell(figure) for figure in row["contenders"].values()],
            times(row["faster_than_fastest_peer"]),
            times(row["slower_than_bare_copy"]),
        )
    table.caption = "* some variable of the copy differs from the original's"
    return table


def cell(figure: dict[str, Any]) -> str:
    if "fails" in figure:
        return "fails"
    star = "" if figure["weights_equal"] else " *"
    return f"{common.seconds(figure['median'])}{star}"


def times(value: float | None) -> str:
    return f"{value:.3g}x" if value else "-"


def versions() -> str:
    found = common.versions()
    return f"{found[common.BACKEND]}, Keras {found['keras']}"


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()

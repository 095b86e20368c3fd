"""Clones every model of the zoo with regraft and with Keras, and compares.

Run it once for each backend, then merge the results into one table:

    KERAS_BACKEND=jax python benchmarks/zoo.py
    KERAS_BACKEND=torch python benchmarks/zoo.py --only 'Gemma*'
    python benchmarks/zoo.py --markdown

A copy passes if making it raised nothing, if it has the class of the original,
as many weights, the same bits in each variable and in the outputs of an eager
call, and if overwriting it leaves the original alone. Before it is copied, a
model gets noise on all its weights, so that a variable left at its initial
value is seen.

Results are saved after each model. Ctrl-C stops; what was measured stays.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

Array = NDArray[Any]
Results = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
METHODS = ("regraft", "keras")
GROUPS = ("application", "backbone")
LEGEND = {
    "class": "the copy is of another class",
    "count": "it has more or fewer weights",
    "weights": "a weight has another value",
    "state": "the weights agree, another variable (a random stream) does not",
    "outputs": "an eager call answers with other bits",
    "shared": "overwriting the copy changes the original",
    "raises": "making the copy raises an error",
}
MARKS = (
    "✓: the copy is the same in all. ~: weights and outputs are the same, what the "
    "last column names is lost. ✗: it is no copy. -: the model is not built there."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """What became of one attempt to copy one model.

    `None` stands for what could not be told: an error came first, or the
    original itself does not answer twice alike.
    """

    seconds: float
    error: str | None = None
    class_kept: bool | None = None
    count_equal: bool | None = None
    weights_equal: bool | None = None
    variables_equal: bool | None = None
    outputs_equal: bool | None = None
    independent: bool | None = None


def problems(attempt: Results) -> list[str]:
    """Names what is wrong with a copy, in the words of `LEGEND`."""
    found = []
    if attempt["class_kept"] is False:
        found.append("class")
    if attempt["count_equal"] is False:
        found.append("count")
    elif attempt["weights_equal"] is False:
        found.append("weights")
    elif attempt["variables_equal"] is False:
        found.append("state")
    if attempt["outputs_equal"] is False:
        found.append("outputs")
    if attempt["independent"] is False:
        found.append("shared")
    if attempt["error"]:
        found.append("raises")
    return found


# Measuring


def measure(model: Any, inputs: Any) -> Results:
    """Copies `model` both ways and compares each copy with it."""
    import keras

    import regraft

    def with_keras(original: Any) -> Any:
        copy = keras.models.clone_model(original)
        copy.set_weights(original.get_weights())
        return copy

    stir(model)
    outputs = call(model, inputs)
    row: Results = {
        "class": type(model).__name__,
        "weights": len(model.weights),
        "variables": len(model.variables),
        "parameters": model.count_params(),
        "finite": all(np.isfinite(a).all() for a in outputs if a.dtype.kind == "f"),
        "repeatable": same(outputs, call(model, inputs)),
    }
    ways: tuple[Callable[[Any], Any], ...] = (regraft.clone, with_keras)
    for method, copy in zip(METHODS, ways, strict=True):
        expected = outputs if row["repeatable"] else None
        row[method] = dataclasses.asdict(attempt(copy, model, inputs, expected))
    return row


def attempt(
    copy: Callable[[Any], Any], model: Any, inputs: Any, outputs: list[Array] | None
) -> Attempt:
    weights, variables = contents(model)
    seen: dict[str, Any] = {}
    started = time.perf_counter()
    try:
        twin = copy(model)
        seen["seconds"] = round(time.perf_counter() - started, 4)
        seen["class_kept"] = type(twin) is type(model)
        seen["count_equal"] = len(twin.weights) == len(weights)
        own_weights, own_variables = contents(twin)
        seen["weights_equal"] = same(weights, own_weights)
        seen["variables_equal"] = same(variables, own_variables)
        if outputs is not None:
            seen["outputs_equal"] = same(outputs, call(twin, inputs))
        for weight in twin.weights:
            weight.assign(np.zeros(weight.shape, weight.dtype))
        seen["independent"] = same(variables, values(model.variables))
    except Exception as error:
        seen.setdefault("seconds", round(time.perf_counter() - started, 4))
        seen["error"] = brief(error)
    if not seen.get("independent", True):
        for variable, value in zip(model.variables, variables, strict=True):
            variable.assign(value)
    return Attempt(**seen)


def stir(model: Any) -> None:
    """Adds noise to all weights, also to those that start as zeros or ones."""
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if weight.dtype == "float32":
            noise = rng.standard_normal(weight.shape, np.float32)
            weight.assign(values([weight])[0] + np.float32(0.01) * noise)


def call(model: Any, inputs: Any) -> list[Array]:
    import keras

    return values(keras.tree.flatten(model(inputs, training=False)))


def contents(model: Any) -> tuple[list[Array], list[Array]]:
    """The values of a model's weights, and those of all its variables."""
    variables = values(model.variables)
    place = {id(variable): i for i, variable in enumerate(model.variables)}
    return [variables[place[id(weight)]] for weight in model.weights], variables


def values(tensors: Iterable[Any]) -> list[Array]:
    import keras

    return [np.array(keras.ops.convert_to_numpy(tensor)) for tensor in tensors]


def same(left: list[Array], right: list[Array]) -> bool:
    """Whether two lists of arrays are the same bit for bit, NaNs included."""
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )


def brief(error: Exception) -> str:
    """What an error says in one line, without folders and addresses."""
    text = re.sub(r"\x1b\[\d*m", "", str(error)).strip()
    parts = [" ".join(part.split()) for part in text.split("\n\n")]
    # Keras names the layer first, or the whole configuration, and then the cause.
    if parts[0].startswith("Exception encountered when calling"):
        said = " ".join(parts[:2])
    elif cause := re.search(r"^Exception encountered: (.+)", text, re.MULTILINE):
        said = f"{re.sub(r' using config=.*', '', parts[0])}: {cause[1]}"
    else:
        said = parts[0]
    said = re.sub(r"(?:/[\w.+-]+)+/", "", re.sub(r" at 0x[0-9a-f]+", "", said))
    return f"{type(error).__name__}: {said[:240]}"


# Running


def run(only: str | None, console: Console) -> int:
    backend = os.environ.get("KERAS_BACKEND")
    if backend == "jax":
        # An eager call compiles each operation for each shape, once. Fast code
        # does not pay for its compilation here; both copies run the same code.
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

    import hub
    import keras

    zoo = dict.fromkeys(hub.APPLICATIONS, "application")
    zoo |= dict.fromkeys(hub.BACKBONES, "backbone")
    builders = hub.APPLICATIONS | hub.BACKBONES
    chosen = [name for name in zoo if only is None or fnmatch.fnmatch(name, only)]
    if not chosen:
        console.print(f"No model is called {only!r}. Those there are: {', '.join(zoo)}")
        return 2

    backend = keras.backend.backend()
    path = RESULTS / f"zoo-{backend}.json"
    results: Results = {"rows": {}, **(load(path) if path.exists() else {})}
    results |= {
        "backend": backend,
        "versions": {name: version(name) for name in ("keras", "keras-hub")},
        "uncovered": hub.uncovered(),
    }
    rows: Results = {k: v for k, v in results["rows"].items() if k in zoo}
    results["rows"] = rows

    measured: list[str] = []
    interrupted = False
    started = time.perf_counter()
    try:
        with console.status("") as status:
            for name in chosen:
                status.update(f"{len(measured) + 1}/{len(chosen)} {name}")
                why = hub.SKIP.get(name, {}).get(backend)
                rows[name] = {"group": zoo[name], **one(builders[name], why)}
                measured.append(name)
                save(path, results)
                if backend == "jax" and len(measured) % 16 == 0:
                    import jax

                    jax.clear_caches()  # its programs fill gigabytes otherwise
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - started
    if measured == list(zoo):
        results["seconds"] = round(seconds, 1)
        save(path, results)
    shown = {name: rows[name] for name in measured}
    console.print(table(backend, shown, seconds))
    for reason in reasons(shown):
        console.print(reason, markup=False, highlight=False)
    for name in results["uncovered"]:
        console.print(f"{name} has no builder in hub.py.")
    return 130 if interrupted else 0


def one(builder: Callable[[], tuple[Any, Any]], skip: str | None) -> Results:
    """Builds and measures one model, and leaves nothing of it in memory."""
    import keras

    if skip is not None:
        return {"skipped": skip}
    started = time.perf_counter()
    try:
        keras.utils.set_random_seed(0)
        row = measure(*builder())
    except Exception as error:
        row = {"failed": brief(error)}
    keras.utils.clear_session()
    gc.collect()
    return row | {"seconds": round(time.perf_counter() - started, 2)}


def load(path: Path) -> Results:
    results: Results = json.loads(path.read_text(encoding="utf-8"))
    return results


def save(path: Path, results: Results) -> None:
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


# Reporting


def table(backend: str, rows: Results, seconds: float) -> Table:
    made = Table(title=f"Copies on {backend}", caption=f"{seconds:.0f} s")
    made.add_column("model", no_wrap=True)
    made.add_column("weights", justify="right")
    for method in METHODS:
        made.add_column(method)
    made.add_column("s", justify="right", no_wrap=True)
    for name, row in rows.items():
        if "weights" not in row:
            made.add_row(name, "", *["[yellow]not built[/]"] * 2, "")
            continue
        cells = []
        for method in METHODS:
            wrong = ", ".join(problems(row[method]))
            cells.append(f"[red]{wrong}[/]" if wrong else "[green]same[/]")
        made.add_row(name, str(row["weights"]), *cells, f"{row['seconds']:.1f}")
    built = [row for row in rows.values() if "weights" in row]
    sums = [f"{passed(built, method)} of {len(built)}" for method in METHODS]
    made.add_section()
    made.add_row("the same in all", "", *sums, "")
    return made


def reasons(rows: Results) -> list[str]:
    """One line for each thing that kept a model from being built or copied."""
    found = []
    for name, row in rows.items():
        if why := row.get("skipped") or row.get("failed"):
            found.append(f"{name} is not built. {why}")
        for method in METHODS:
            if error := row.get(method, {}).get("error"):
                found.append(f"{name}, {method}. {error}")
    return found


def passed(rows: Iterable[Results], method: str) -> int:
    return sum(method in row and not problems(row[method]) for row in rows)


def markdown(paths: list[Path]) -> str:
    """Merges the results of all backends into one table."""
    by_backend = {(r := load(path))["backend"]: r["rows"] for path in paths}
    names: dict[str, str] = {}
    for rows in by_backend.values():
        names |= {name: row["group"] for name, row in rows.items()}
    columns = [(b, m) for b in by_backend for m in METHODS]
    titles = {"regraft": "regraft", "keras": "clone_model"}
    lines = [
        f"| | {' | '.join(f'{b}: {titles[m]}' for b, m in columns)} | lost |",
        f"| --- | {' | '.join(':-:' for _ in columns)} | --- |",
    ]
    for group in GROUPS:
        chosen = sorted(name for name in names if names[name] == group)
        sums = []
        for backend, method in columns:
            rows = by_backend[backend]
            tried = [rows[n] for n in chosen if method in rows.get(n, {})]
            near = sum(mark(row[method]) == "~" for row in tried)
            some = f" + {near} ~" if near else ""
            sums.append(f"**{passed(tried, method)}/{len(tried)}**{some}")
        lines.append(f"| **{len(chosen)} {group}s** | {' | '.join(sums)} | |")
        lines += [line(name, columns, by_backend) for name in chosen]
    used = [word for word in LEGEND if any(word in line for line in lines[2:])]
    notes = "; ".join(f"*{word}*: {LEGEND[word]}" for word in used)
    return "\n".join([*lines, "", f"{MARKS} {notes}".strip()])


def mark(attempt: Results) -> str:
    wrong = set(problems(attempt))
    if not wrong:
        return "✓"
    return "~" if wrong <= {"class", "state"} else "✗"


def line(name: str, columns: list[tuple[str, str]], by_backend: Results) -> str:
    """One row of the table: a mark for each column, and what was lost."""
    cells = []
    lost: dict[str, dict[str, None]] = {method: {} for method in METHODS}
    for backend, method in columns:
        row = by_backend[backend].get(name, {})
        if method not in row:
            cells.append("-")
            continue
        lost[method] |= dict.fromkeys(problems(row[method]))
        cells.append(mark(row[method]))
    words = [
        ", ".join(sorted(found, key=list(LEGEND).index))
        + (" (by regraft)" if method == "regraft" else "")
        for method, found in lost.items()
        if found
    ]
    return f"| {name} | {' | '.join(cells)} | {'; '.join(words)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="PATTERN", help="a glob, as in 'Gemma*'")
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="measure nothing; print the results of all backends as one table",
    )
    arguments = parser.parse_args()
    if not arguments.markdown:
        return run(arguments.only, Console())
    paths = sorted(RESULTS.glob("zoo-*.json"))
    if not paths:
        print("There are no results yet; run without --markdown.", file=sys.stderr)
        return 2
    print(markdown(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())

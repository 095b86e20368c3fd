"""Merges the figures in `results/` into a table and a chart.

    python benchmarks/plot.py

Reads `clone-<backend>.json`, and `scaling-<backend>.json`,
`replicate-<backend>.json` and `gpu.json` where they exist; writes `clone.md`,
`clone.svg` and `clone.png`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}

# Middle tones: they can be read on white and on black.
COLORS = {"jax": "#3b82f6", "torch": "#f97316", "tensorflow": "#10a37f"}
INK = "#808893"


def main() -> None:
    clones = read("clone")
    if not clones:
        sys.exit("No results: run `python benchmarks/clone.py` first.")
    sections = [clone_section(clones)]
    scaling = read("scaling")
    if scaling:
        sections.append(scaling_section(scaling))
    replicas = read("replicate")
    if replicas:
        sections.append(replicate_section(replicas))
    if (RESULTS / "gpu.json").exists():
        found = json.loads((RESULTS / "gpu.json").read_text("utf-8"))
        gpu = {b: figures for b, figures in found.items() if is_on_gpu(figures)}
        sections += [gpu_section(gpu)] if gpu else []
    replace("clone.md", "\n".join(sections).encode())
    draw(clones)
    print("Written: clone.md, clone.svg and clone.png in benchmarks/results")


def read(kind: str) -> dict[str, Any]:
    """The results of each backend, in a fixed order."""
    found = {}
    for backend in NAMES:
        path = RESULTS / f"{kind}-{backend}.json"
        if path.exists():
            found[backend] = json.loads(path.read_text("utf-8"))
    return found


def replace(name: str, content: bytes) -> None:
    beside = RESULTS / f".{name}"
    beside.write_bytes(content)
    beside.replace(RESULTS / name)


# --- the table -------------------------------------------------------------------


def clone_section(clones: dict[str, Any]) -> str:
    header = ["model", "MB", "backend", "`regraft.clone`", "`clone_model` + weights"]
    header += ["`deepcopy`", "save + load", "bare copy", "faster than the next"]
    rows = []
    for model in models_of(clones):
        for backend, found in clones.items():
            row = found["models"].get(model)
            if row is None:
                continue
            if "fails" in row:
                rows.append([model, "", NAMES[backend], "cannot be built", *[""] * 5])
                continue
            times = [time_of(figure) for figure in row["contenders"].values()]
            speedup = row["faster_than_fastest_peer"]
            rows.append(
                [
                    model,
                    f"{row['bytes'] / 1e6:.0f}",
                    NAMES[backend],
                    *times,
                    f"**{speedup:.1f}x**" if speedup else "-",
                ]
            )
    note = (
        "Medians, in one process, in turns. The bare copy copies the tensors alone: "
        "no copy of a model can be faster.\n\n"
        + "".join(f"- {NAMES[b]}: {versions(found)}\n" for b, found in clones.items())
    )
    return "\n".join(["## Copying a model", "", markdown(header, rows), "", note])


def scaling_section(scaling: dict[str, Any]) -> str:
    sizes: list[str] = []
    rows, memory = [], []
    for backend, found in scaling.items():
        for way, figures in found["time"].items():
            sizes = [key for key in figures if key.isdigit()]
            cells = [
                f"{figures[s]['microseconds_per_layer']:.0f} µs"
                if "median" in figures[s]
                else figures[s]["fails"].split(":")[0]
                for s in sizes
            ]
            rows.append([NAMES[backend], f"`{way}`", *cells])
        for way, figures in found["memory"].items():
            peak = figures.get("peak_extra_to_model")
            memory.append(
                [NAMES[backend], f"`{way}`", f"{peak:.2f}" if peak else "fails"]
            )
    header = ["backend", "", *[f"{int(size):,} layers" for size in sizes]]
    lines = ["## Time a layer", "", markdown(header, rows), "", "## Peak memory", ""]
    lines += ["What a copy of BERT-base adds, in sizes of the model.", ""]
    return "\n".join([*lines, markdown(["backend", "", "peak / model"], memory), ""])


def replicate_section(found: dict[str, Any]) -> str:
    questions: list[str] = []
    for figures in found.values():
        questions = [key for key, value in figures.items() if "ratio" in str(value)]
    rows = [
        [question, *[f"{figures[question]['ratio']:.2f}" for figures in found.values()]]
        for question in questions
    ]
    header = ["regraft / written by hand", *[NAMES[backend] for backend in found]]
    text = "What `replicate` costs, on two virtual CPUs (`benchmarks/replicate.py`)."
    return "\n".join(["## Many devices", "", text, "", markdown(header, rows), ""])


def gpu_section(gpu: dict[str, Any]) -> str:
    ways: list[str] = []
    rows = []
    for backend, found in gpu.items():
        for model, figures in found.get("models", {}).items():
            times = figures.get("time", {})
            ways = ways or list(times)
            peak = figures.get("memory", {}).get("peak_extra_to_model")
            rows.append(
                [
                    f"{model}, {figures.get('bytes', 0) / 1e9:.2f} GB",
                    NAMES[backend],
                    *[time_of(times.get(way, {})) for way in ways],
                    f"{peak:.2f}" if peak else "-",
                    through_host(figures.get("host", {})),
                ]
            )
    header = ["model", "backend", *[f"`{way}`" for way in ways]]
    header += ["peak / model", "through the host"]
    return "\n".join(["## On one GPU", "", markdown(header, rows), ""])


def is_on_gpu(figures: dict[str, Any]) -> bool:
    return figures.get("device") == "gpu"


def through_host(host: dict[str, Any]) -> str:
    if host.get("forbidden"):
        return "nothing"
    if "host_bytes" in host:
        return f"{host['host_bytes']:,} bytes"
    return "-"


def models_of(clones: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(m for found in clones.values() for m in found["models"]))


def versions(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {v}" for name, v in found["versions"].items())


def time_of(figure: dict[str, Any]) -> str:
    if "median" not in figure:
        return "fails" if "fails" in figure else "-"
    value = figure["median"]
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- the chart -------------------------------------------------------------------


def draw(clones: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "regraft"  # the same file every time
    from matplotlib import pyplot as plt

    models = models_of(clones)
    thickness = 0.8 / len(clones)
    figure, axes = plt.subplots(figsize=(8, 0.5 + 0.75 * len(models)))
    speedups = []
    for i, (backend, found) in enumerate(clones.items()):
        for place, model in enumerate(models):
            speedup = found["models"].get(model, {}).get("faster_than_fastest_peer")
            if not speedup:
                continue
            speedups.append(speedup)
            y = place + (i - (len(clones) - 1) / 2) * thickness
            axes.barh(y, speedup - 1, thickness * 0.86, 1, color=COLORS[backend])
            axes.annotate(
                f"{speedup:.1f}x" if speedup < 10 else f"{speedup:.0f}x",
                (max(speedup, 1), y),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=INK,
            )
    axes.set_xscale("log")
    low, high = min([1.0, *speedups]), max([2.0, *speedups])
    axes.set_xlim(low, high * 1.35)
    ticks = [t for t in (0.5, 1, 2, 3, 5, 10, 20, 30, 50, 100, 200) if low <= t <= high]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(models)), models)
    axes.invert_yaxis()
    axes.set_title(
        "How much faster regraft.clone is than the fastest other way",
        loc="left",
        color=INK,
        fontsize=11,
        fontweight="bold",
        pad=26,
    )
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[b]) for b in clones]
    axes.legend(
        handles,
        [NAMES[b] for b in clones],
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=len(clones),
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        handlelength=1,
        borderaxespad=0.2,
    )
    axes.tick_params(colors=INK, length=0, labelsize=10)
    axes.grid(axis="x", color=INK, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(INK)
    for kind in ("svg", "png"):
        beside = RESULTS / f".clone.{kind}"
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(
            beside,
            format=kind,
            dpi=200,
            transparent=True,
            bbox_inches="tight",
            metadata=metadata,
        )
        beside.replace(RESULTS / f"clone.{kind}")


if __name__ == "__main__":
    main()

"""The demo: three models, copied by Keras and by regraft, and what is left."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import _backends
from ._clone import clone
from ._demo_models import CHECKS, SUBJECTS, Check, Subject
from ._verify import Proof, verify

_TIMES = 3


def _with_keras(model: Any) -> Any:
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


WAYS: dict[str, Callable[[Any], Any]] = {
    "clone_model + set_weights": _with_keras,
    "regraft.clone": clone,
}
KERAS, REGRAFT = WAYS


@dataclass(frozen=True)
class Outcome:
    """What became of one model, copied in one way.

    Attributes:
        seconds: How long a copy took, or None if none was made.
        refusal: Why none was made.
        kept: For each check whether the copy passed; None if it does not apply.
    """

    seconds: float | None
    refusal: str | None
    kept: dict[str, bool | None]

    @property
    def complete(self) -> bool:
        """Whether a copy was made and nothing was lost."""
        return self.refusal is None and False not in self.kept.values()


@dataclass(frozen=True)
class Chapter:
    """One model of the demo: its copies, and the proof for regraft's."""

    title: str
    outcomes: dict[str, Outcome]
    proof: Proof | str


def run(*, report: Path | None = None, console: Console | None = None) -> bool:
    """Runs the demo and prints it.

    Args:
        report: Where to write the result as Markdown, replacing what is there.
        console: Where to print; the terminal by default.

    Returns:
        Whether regraft kept everything.
    """
    console = console or Console()
    console.print(_headline(), highlight=False)
    chapters: list[Chapter] = []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=None)

        def say(text: str) -> None:
            progress.update(task, description=text)

        for name, build in SUBJECTS.items():
            say(f"{name}: building")
            chapters.append(_chapter(build(), name, say))
            console.print()
            console.print(_table(chapters[-1]))
            for line in _notes(chapters[-1]):
                console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(_summary(chapters), highlight=False, markup=False, soft_wrap=True)
    if report is not None:
        _write(report, _markdown(chapters))
        console.print(f"Report: {report}", highlight=False, soft_wrap=True)
    return all(_is_kept(chapter) for chapter in chapters)


def _chapter(subject: Subject, name: str, say: Callable[[str], None]) -> Chapter:
    outcomes = {}
    for way, make in WAYS.items():
        say(f"{name}: copying with {way}")
        outcomes[way] = _outcome(subject, make)
    say(f"{name}: proving")
    return Chapter(subject.title, outcomes, _prove(subject))


def _outcome(subject: Subject, make: Callable[[Any], Any]) -> Outcome:
    seconds = []
    copy = None
    try:
        for _ in range(_TIMES):
            start = time.perf_counter()
            copy = make(subject.model)
            _backends.active().finish([v.value for v in copy.variables])
            seconds.append(time.perf_counter() - start)
    except Exception as error:
        return Outcome(None, _first_line(error), {})
    kept = {label: _passes(check, subject, copy) for label, check in CHECKS.items()}
    return Outcome(statistics.median(seconds), None, kept)


def _passes(check: Check, subject: Subject, copy: Any) -> bool | None:
    try:
        return check(subject, copy)
    except Exception:  # a copy that cannot even be asked has not kept it
        return False


def _prove(subject: Subject) -> Proof | str:
    """Compares the model with a copy that no check has touched."""
    try:
        return verify(subject.model, clone(subject.model), subject.inputs)
    except Exception as error:
        return f"no proof: {_first_line(error)}"


def _is_kept(chapter: Chapter) -> bool:
    proof = chapter.proof
    return (
        chapter.outcomes[REGRAFT].complete and isinstance(proof, Proof) and proof.same
    )


# --- what it looks like ----------------------------------------------------------


def _rows(chapter: Chapter) -> list[list[str]]:
    """The lines of a chapter's table: a label and a word for each way."""
    outcomes = list(chapter.outcomes.values())
    made = ["refused" if each.refusal else "made" for each in outcomes]
    rows = [["a copy", *made]]
    for label in CHECKS:
        found = [each.kept.get(label) for each in outcomes]
        if any(kept is not None for kept in found):
            rows.append([label, *map(_word, found)])
    return [*rows, ["time", *[_duration(each.seconds) for each in outcomes]]]


def _word(kept: bool | None) -> str:
    return {True: "kept", False: "lost", None: "-"}[kept]


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _table(chapter: Chapter) -> Table:
    styles = {
        "kept": "green",
        "made": "green",
        "lost": "bold red",
        "refused": "bold red",
    }
    table = Table(title=escape(chapter.title), title_justify="left", title_style="bold")
    table.add_column("", no_wrap=True)
    for way in chapter.outcomes:
        table.add_column(way, no_wrap=True)
    for label, *words in _rows(chapter):
        table.add_row(label, *[f"[{styles.get(w, 'none')}]{w}" for w in words])
    return table


def _notes(chapter: Chapter) -> list[str]:
    """What does not fit into the table: refusals and the proof."""
    lines = [
        f"{way} refused: {each.refusal}"
        for way, each in chapter.outcomes.items()
        if each.refusal
    ]
    return [*lines, f"Proof: {chapter.proof}"]


def _summary(chapters: list[Chapter]) -> str:
    sentences = []
    for way in WAYS:
        outcomes = [chapter.outcomes[way] for chapter in chapters]
        found = [kept for each in outcomes for kept in each.kept.values()]
        refused = sum(each.refusal is not None for each in outcomes)
        sentences.append(
            f"{way}: kept {found.count(True)}, lost {found.count(False)}, "
            f"refused {refused} of {len(chapters)} models."
        )
    return "\n".join(sentences)


def _headline() -> str:
    backend = keras.backend.backend()
    return f"Three models, copied twice. Keras {keras.__version__} on {backend}."


def _markdown(chapters: list[Chapter]) -> str:
    lines = ["# What a copy of a Keras model keeps", "", _headline()]
    for chapter in chapters:
        lines += ["", f"## {chapter.title}", ""]
        header = ["", *[f"`{way}`" for way in chapter.outcomes]]
        lines += [_line(header), _line(["---"] * len(header))]
        lines += [_line(row) for row in _rows(chapter)]
        lines += [""] + [f"- {note}" for note in _notes(chapter)]
    return "\n".join([*lines, "", _summary(chapters).replace("\n", "\n\n"), ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _write(path: Path, text: str) -> None:
    """Writes a file beside `path` and lets it take its place when complete."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"

"""The command line: `python -m regraft demo` and `python -m regraft version`."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

main = typer.Typer(
    name="regraft",
    help="Exact, independent copies of Keras 3 models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_INTERRUPTED = 128 + 2  # what a shell reports for a program stopped by Ctrl-C


@main.command()
def demo(
    report: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Also write the result as Markdown."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Let --report replace a file.")
    ] = False,
) -> None:
    """Copies three models with Keras and with regraft and compares the copies.

    The exit status is 0 only if regraft kept everything.
    """
    if report is not None:
        _check_report(report, force)
    # A new model is a new function to TensorFlow, which warns of tracing many.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        from . import _demo

        kept = _demo.run(report=report)
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    raise typer.Exit(0 if kept else 1)


@main.command()
def version() -> None:
    """Prints the versions of regraft and Keras, and the backend."""
    import keras

    from . import __version__

    backend = keras.backend.backend()
    typer.echo(f"regraft {__version__}, keras {keras.__version__}, backend {backend}")


def _check_report(report: Path, force: bool) -> None:
    """Refuses before any work is done, rather than after."""
    hint = "--report"
    if report.is_dir() or not report.parent.is_dir():
        raise typer.BadParameter(
            f"{report} is not a file in a folder that exists.", param_hint=hint
        )
    if report.exists() and not force:
        raise typer.BadParameter(
            f"{report} exists; add --force to replace it.", param_hint=hint
        )

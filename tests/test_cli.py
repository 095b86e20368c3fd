import os
import subprocess
import sys

import keras
import pytest
from typer.testing import CliRunner

import regraft
from regraft import _demo, _demo_models
from regraft._cli import main


@pytest.fixture
def run():
    """Runs a command line and returns its result."""
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def quick(monkeypatch):
    """Leaves the demo with its smallest model."""
    monkeypatch.setattr(_demo, "SUBJECTS", {"Lambda model": _demo_models.lambda_model})


def test_version_names_everything_that_matters(run, backend):
    result = run("version")
    assert result.exit_code == 0
    assert result.stdout == (
        f"regraft {regraft.__version__}, keras {keras.__version__}, backend {backend}\n"
    )


def test_runs_as_a_module():
    command = [sys.executable, "-m", "regraft", "version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"regraft {regraft.__version__}, keras ")


def test_without_a_command_it_explains_itself(run):
    result = run()
    assert "demo" in result.output
    assert "version" in result.output


@pytest.mark.slow
def test_demo_keeps_everything_and_says_what_keras_lost(run, tmp_path, backend):
    report = tmp_path / "report.md"
    result = run("demo", "--report", report)
    assert result.exit_code == 0, result.output
    assert f"on {backend}" in result.output
    text = report.read_text(encoding="utf-8")
    # Keras first, regraft second.
    assert "| a copy | refused | made |" in text
    assert "Python lambda" in text
    assert "| random streams | lost | kept |" in text
    assert "| optimizer state | lost | kept |" in text
    assert "| masks | kept | kept |" in text
    assert "regraft.clone: kept 23, lost 0, refused 0 of 3 models." in text
    assert text.count("are the same") == 3
    assert os.listdir(tmp_path) == ["report.md"]


@pytest.mark.usefixtures("quick")
def test_report_is_not_replaced_unasked(run, tmp_path, monkeypatch):
    report = tmp_path / "report.md"
    report.write_text("mine", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(_demo, "run", lambda **_: pytest.fail("the demo was run"))
        result = run("demo", "--report", report)
    assert result.exit_code == 2
    assert "--force" in result.output
    assert report.read_text(encoding="utf-8") == "mine"

    assert run("demo", "--report", report, "--force").exit_code == 0
    assert report.read_text(encoding="utf-8").startswith("# What a copy")


def test_report_needs_a_folder(run, tmp_path):
    for path in (tmp_path, tmp_path / "missing" / "report.md"):
        result = run("demo", "--report", path)
        assert result.exit_code == 2
        # The box around the message breaks lines where the path is long.
        assert "not a file" in " ".join(result.output.replace("│", " ").split())


@pytest.mark.usefixtures("quick")
def test_a_report_that_cannot_be_completed_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(_demo.os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        _demo.run(report=tmp_path / "report.md")
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("quick")
def test_no_report_unless_asked(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("demo").exit_code == 0
    assert os.listdir(tmp_path) == []


def test_ctrl_c_ends_with_130_and_no_traceback(run, monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_demo, "run", interrupt)
    result = run("demo")
    assert result.exit_code == 130
    assert "Interrupted." in result.output
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("loses", "says"),
    [
        (lambda model: keras.Sequential([keras.Input((4,))]), "lost"),
        (lambda model: model.no_such_attribute, "refused: AttributeError"),
    ],
    ids=["loses", "refuses"],
)
def test_fails_if_the_copy_is_not_complete(run, monkeypatch, loses, says):
    monkeypatch.setitem(_demo.WAYS, _demo.REGRAFT, loses)
    result = run("demo")
    assert result.exit_code == 1
    assert says in result.output


@pytest.mark.usefixtures("quick")
def test_fails_without_a_proof(run, monkeypatch):
    def fail(*_):
        raise ValueError("cannot compare")

    monkeypatch.setattr(_demo, "verify", fail)
    result = run("demo")
    assert result.exit_code == 1
    assert "no proof: ValueError: cannot compare" in result.output

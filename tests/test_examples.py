import importlib
from pathlib import Path

import pytest
from test_readme import python_lines

FOLDER = Path(__file__).parent.parent / "examples"
# Those with a script of their own are run by a test of their own.
EXAMPLES = [
    path
    for path in sorted(FOLDER.glob("*/README.md"))
    if not (path.parent / "train.py").exists()
]


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


def case(path):
    """Whole networks take a minute on some backends: they run on one."""
    is_large = "keras.applications" in path.read_text(encoding="utf-8")
    marks = [pytest.mark.wiring] if is_large else []
    return pytest.param(path, id=path.parent.name, marks=marks)


@pytest.mark.parametrize("example", map(case, EXAMPLES))
def test_snippets_run_from_top_to_bottom(example, monkeypatch, tmp_path):
    source = "\n".join(python_lines(example.read_text(encoding="utf-8")))
    assert source.strip()
    # A real module, so that what a snippet defines has a source and a home.
    name = f"example_{example.parent.name}"
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    importlib.import_module(name)

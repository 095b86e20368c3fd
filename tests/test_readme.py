import importlib
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def python_lines(text):
    """Blanks all but the Python blocks, so that line numbers stay the README's."""
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            yield ""
        else:
            yield line if inside else ""


def test_snippets_run_from_top_to_bottom(backend, monkeypatch, tmp_path):
    source = "\n".join(python_lines(README.read_text(encoding="utf-8")))
    assert source.strip()
    # A real module, so that what a snippet defines has a source and a home.
    (tmp_path / "readme.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", backend)  # restored if a snippet sets it
    importlib.import_module("readme")

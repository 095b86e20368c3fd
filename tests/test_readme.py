import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_lines(text):
    """Blanks all but the Python blocks, so that line numbers stay the README's."""
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            yield ""
        else:
            yield line if inside else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore::regraft.SingleDeviceWarning")
def test_snippets_run_from_top_to_bottom(page, backend, monkeypatch, tmp_path):
    source = "\n".join(python_lines(page.read_text(encoding="utf-8")))
    assert source.strip()
    # A real module, so that what a snippet defines has a source and a home.
    name = f"page_{page.stem}"
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", backend)  # restored if a snippet sets it
    importlib.import_module(name)

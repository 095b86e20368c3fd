"""Files that are whole or not there: written beside, then renamed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp


@contextmanager
def written_beside(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a path to write to, which becomes `target` if all goes well.

    A reader, or a process that is killed, finds the old file or the new one and
    never half of it.
    """
    target = Path(os.path.realpath(target))  # A link stays one.
    folder = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    draft = folder / target.name
    try:
        yield draft
        os.replace(draft, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""The C in this folder, known by its text. It is also run when regraft is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent


def digest() -> str:
    """Returns what the C here is known by: what was compiled from other C is older."""
    files = sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")])
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()

"""The heart of a walk: what is asked for every object of a model.

It is written twice, in Python and in C, with which a clone of a small model takes half
the time. What is in C is used if there was a compiler when regraft was installed;
`REGRAFT_PURE=1` in the environment asks for Python.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._source import digest
from .core import Fill as Fill
from .core import Keep as Keep
from .core import Maker as Maker
from .layers import LayerParts as LayerParts
from .simple import are_atoms as are_atoms
from .simple import are_names as are_names
from .simple import needs_hash as needs_hash


def _in_c() -> Any:
    """Returns the module in C, or None where it was not compiled from this source."""
    if os.environ.get("REGRAFT_PURE"):
        return None
    try:
        native = import_module(f"{__name__}.native")
    except ImportError:
        return None
    return native if digest() == native.SOURCE else None


if TYPE_CHECKING or (_native := _in_c()) is None:
    from .calls import fill_owned as fill_owned
    from .core import Core as Core
    from .layers import copy_stores as copy_stores
    from .layers import empty_like as empty_like
    from .layers import fill_layer as fill_layer
    from .makers import container_maker as container_maker
    from .makers import instance_maker as instance_maker
else:
    Core = _native.Core
    container_maker = _native.container_maker
    instance_maker = _native.instance_maker
    copy_stores = _native.copy_stores
    empty_like = _native.empty_like
    fill_layer = _native.fill_layer
    fill_owned = _native.fill_owned

"""What a verb says about the objects that the walk meets."""

from __future__ import annotations

from typing import Any

from . import _keras
from ._core import Maker


class Rules:
    """What is to be different in a copy.

    Without a rule the walk makes an exact copy; a verb overrides what it wants
    to be different.
    """

    def maker(self, obj: Any) -> Maker | None:
        """Returns who makes copies of objects of this class; None for the usual."""
        return None

    def value(self, variable: Any) -> Any:
        """Returns the value whose copy the new variable gets."""
        return _keras.raw_value(variable)

    def attributes(self, obj: Any, state: dict[str, Any]) -> None:
        """Edits the attributes that a trainer hands to its copy."""

    # The device to which all values go; None leaves each where it is.
    device: Any = None

    def layouts(self, walk: Any) -> dict[int, Any] | None:
        """Returns how variables are laid out over a mesh, by id of the original."""
        return None

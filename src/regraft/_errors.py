"""Every error and warning that regraft raises.

```
RegraftError
├── UsageError (ValueError)          an argument is wrong
│   ├── UsageTypeError (TypeError)   an argument has the wrong type
│   └── MismatchError                an edit changes the shapes of variables
├── CopyError (TypeError)            an object cannot be copied faithfully
├── OutOfMemoryError (MemoryError)   a device has no room for a copy
├── PrecisionError (ValueError)      a value does not fit another dtype
├── ReplicaError (RuntimeError)      a step on many devices cannot be finished
├── ShapeError (ValueError)          a layer cannot follow another input shape
└── DifferenceError (AssertionError) two models that should be equal are not
GlobalReferenceWarning (UserWarning) shared code reads a part of the model
ClassChangedWarning (UserWarning)    an edited model is no longer of its class
EditNotSavedWarning (UserWarning)    a file would not have what was edited
SingleDeviceWarning (UserWarning)    a model was replicated onto one device
UnsplitBatchWarning (UserWarning)    every device computes whole batches
```
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RegraftError(Exception):
    """Base class of all errors raised by regraft."""


class UsageError(RegraftError, ValueError):
    """An argument has a value that regraft cannot work with."""


class UsageTypeError(UsageError, TypeError):
    """An argument has a type that regraft cannot work with."""


class MismatchError(UsageError):
    """Variables of an edited model would have to change their shapes."""


class CopyError(RegraftError, TypeError):
    """An object inside the model cannot be copied faithfully."""


class OutOfMemoryError(RegraftError, MemoryError):
    """A device has no memory left for a copy."""


class PrecisionError(RegraftError, ValueError):
    """A value, or a layer, cannot be brought to another dtype faithfully."""


class ShapeError(RegraftError, ValueError):
    """A layer cannot follow another input shape."""


class ReplicaError(RegraftError, RuntimeError):
    """A step of a replicated model failed on a device, or in a process."""


class DifferenceError(RegraftError, AssertionError):
    """Two models that were expected to be equal differ."""


class GlobalReferenceWarning(UserWarning):
    """A function reads a part of the model from a global, or around its class."""


class ClassChangedWarning(UserWarning):
    """An edited model is a plain Functional model, no longer of its old class."""


class EditNotSavedWarning(UserWarning):
    """A layer was edited inside, and files that Keras writes do not tell."""


class SingleDeviceWarning(UserWarning):
    """A model was replicated onto one device, where it runs as before."""


class UnsplitBatchWarning(UserWarning):
    """The batches of a replicated model cannot be split faithfully."""


def explain(
    what: str,
    *,
    where: str | None = None,
    expected: str | None = None,
    received: str | None = None,
    fix: str | None = None,
) -> str:
    """Formats a message: what failed, where, expected and received, what to do."""
    lines = [what]
    lines += [f"  where: {where}"] if where else []
    lines += [f"  expected: {expected}"] if expected else []
    lines += [f"  received: {received}"] if received else []
    lines += [f"  what to do: {fix}"] if fix else []
    return "\n".join(lines)


def shortened(text: str, length: int = 80) -> str:
    """Returns a text, or its beginning if it is too long for a line."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Returns `" Did you mean 'x'?"` for the nearest choice, or nothing."""
    near = get_close_matches(str(word), list(choices), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""

"""regraft makes another model out of a Keras 3 model, and proves it is the same."""

from ._clone import clone as clone
from ._copiers import register_copier as register_copier
from ._errors import CopyError as CopyError

__version__ = "0.1.0"

"""regraft makes another model out of a Keras 3 model, and proves it is the same."""

from . import recipes as recipes
from ._clone import clone as clone
from ._clone_model import clone_model as clone_model
from ._compare import OutputReport as OutputReport
from ._compare import compare as compare
from ._copiers import register_copier as register_copier
from ._errors import ClassChangedWarning as ClassChangedWarning
from ._errors import CopyError as CopyError
from ._errors import DifferenceError as DifferenceError
from ._errors import EditNotSavedWarning as EditNotSavedWarning
from ._errors import GlobalReferenceWarning as GlobalReferenceWarning
from ._errors import MismatchError as MismatchError
from ._errors import OutOfMemoryError as OutOfMemoryError
from ._errors import PrecisionError as PrecisionError
from ._errors import RegraftError as RegraftError
from ._errors import ReplicaError as ReplicaError
from ._errors import ShapeError as ShapeError
from ._errors import SingleDeviceWarning as SingleDeviceWarning
from ._errors import UnsplitBatchWarning as UnsplitBatchWarning
from ._errors import UsageError as UsageError
from ._graph import Fate as Fate
from ._graph import Graph as Graph
from ._graph import Lineage as Lineage
from ._graph import Node as Node
from ._graph import Ref as Ref
from ._graph import Selection as Selection
from ._graph import graph as graph
from ._graph import join as join
from ._graph import lineage as lineage
from ._multi_gpu import multi_gpu_model as multi_gpu_model
from ._replicate import Replicated as Replicated
from ._replicate import gather as gather
from ._replicate import replicate as replicate
from ._values import Difference as Difference
from ._verify import Proof as Proof
from ._verify import diff as diff
from ._verify import verify as verify

__all__ = [
    "ClassChangedWarning",
    "CopyError",
    "Difference",
    "DifferenceError",
    "EditNotSavedWarning",
    "Fate",
    "GlobalReferenceWarning",
    "Graph",
    "Lineage",
    "MismatchError",
    "Node",
    "OutOfMemoryError",
    "OutputReport",
    "PrecisionError",
    "Proof",
    "Ref",
    "RegraftError",
    "ReplicaError",
    "Replicated",
    "Selection",
    "ShapeError",
    "SingleDeviceWarning",
    "UnsplitBatchWarning",
    "UsageError",
    "clone",
    "clone_model",
    "compare",
    "diff",
    "gather",
    "graph",
    "join",
    "lineage",
    "multi_gpu_model",
    "recipes",
    "register_copier",
    "replicate",
    "verify",
]

__version__ = "0.1.0"

"""A corpus of small, real Keras models, by name.

for name, build in cases():
    case = build()
    case.model(case.inputs)
"""

from . import (  # noqa: F401
    architectures,
    attention,
    bare,
    basics,
    compiled,
    custom_attributes,
    custom_layers,
    custom_python,
    graph_ops,
    images,
    lambdas,
    masks,
    native,
    nesting,
    optimizers,
    precision,
    preprocessing,
    randomness,
    recurrent,
    sharing,
    structures,
    subclassed,
    trainable,
    training_loops,
)
from .registry import BACKENDS, Case, cases, compile_quickly

__all__ = ["BACKENDS", "Case", "cases", "compile_quickly"]

"""The classes by which the walk recognises the parts of a model."""

from __future__ import annotations

import keras
from keras.src.backend.common.stateless_scope import in_stateless_scope
from keras.src.distribution.distribution_lib import Distribution
from keras.src.layers.layer import Layer
from keras.src.metrics.metric import Metric
from keras.src.models.functional import Functional, functional_like_constructor
from keras.src.ops.function import Function
from keras.src.ops.node import KerasHistory, Node
from keras.src.ops.operation import Operation
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import make_default_seed
from keras.src.saving.keras_saveable import KerasSaveable
from keras.src.trainers.trainer import Trainer
from keras.src.utils.tracking import TrackedDict, TrackedList, TrackedSet, Tracker

KerasTensor = keras.KerasTensor
Model = keras.Model
Sequential = keras.Sequential
Variable = keras.Variable
SeedGenerator = keras.random.SeedGenerator
InputLayer = keras.layers.InputLayer
Initializer = keras.initializers.Initializer

__all__ = [
    "BaseOptimizer",
    "Distribution",
    "Function",
    "Functional",
    "Initializer",
    "InputLayer",
    "KerasHistory",
    "KerasSaveable",
    "KerasTensor",
    "Layer",
    "Metric",
    "Model",
    "Node",
    "Operation",
    "SeedGenerator",
    "Sequential",
    "TrackedDict",
    "TrackedList",
    "TrackedSet",
    "Tracker",
    "Trainer",
    "Variable",
    "functional_like_constructor",
    "in_stateless_scope",
    "is_of_keras",
    "is_surroundings",
    "make_default_seed",
]


# Objects that describe the surroundings of a model (meshes, layouts,
# strategies) rather than the model: shared, never copied.
SURROUNDINGS: tuple[type, ...] = (
    keras.distribution.DeviceMesh,
    keras.distribution.TensorLayout,
    keras.distribution.LayoutMap,
    keras.distribution.DataParallel,
    keras.distribution.ModelParallel,
)


def is_surroundings(kind: type) -> bool:
    """Tells whether instances of a class are shared because they are not the model.

    A dtype policy cannot change; a map of policies by layer can.
    """
    if issubclass(kind, keras.dtype_policies.DTypePolicy):
        return not issubclass(kind, keras.dtype_policies.DTypePolicyMap)
    return issubclass(kind, SURROUNDINGS)


def is_of_keras(kind: type) -> bool:
    """Tells whether a class is Keras's own."""
    return kind.__module__.startswith("keras.src.")

"""What `compile` and `fit` leave on a model."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import keras
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from .._identity import address
from .optimizers import build_optimizer, optimizer_scope
from .wrappers import CHECKPOINT_PARTS

# What a model made for itself while it ran: compiled functions, iterators, the
# live state of a JAX loop. They belong to the original alone; a copy starts
# with the value given here (absent attributes stay absent).
RUNTIME_STATE: dict[str, Any] = {
    "train_function": None,
    "test_function": None,
    "predict_function": None,
    "_jax_state": None,
    "_jax_state_synced": True,
    "_eval_epoch_iterator": None,
    "_distributed_dataset": None,
    # Each loop takes them back before it looks.
    "stop_evaluating": False,
    "stop_predicting": False,
}


# What `compile()` set, and what `Trainer.__init__` had put there before.
# `None` as a default means "absent before `compile()`".
_ABSENT = object()


COMPILE_STATE: dict[str, Any] = {
    "optimizer": _ABSENT,
    "loss": None,
    "compiled": False,
    "_compile_loss": None,
    "_compile_metrics": None,
    "_loss_tracker": None,
    "_compile_config": _ABSENT,
    "_compiled_trainable_state": _ABSENT,
    "_jit_compile": None,
    "_run_eagerly": False,
    "steps_per_execution": 1,
    "stop_training": _ABSENT,
    "history": _ABSENT,
}


def drop_runtime_state(attributes: dict[str, Any]) -> None:
    """Takes what a trainer made for itself while it ran out of its attribute dict."""
    for name, start in RUNTIME_STATE.items():
        if name in attributes:
            attributes[name] = start
    _forget_parts(attributes, RUNTIME_STATE)


def drop_compile_state(attributes: dict[str, Any]) -> None:
    """Turns a trainer's attribute dict back to what it was before `compile()`."""
    for name, before in COMPILE_STATE.items():
        if name not in attributes:
            continue
        if before is _ABSENT:
            del attributes[name]
        else:
            attributes[name] = before
    _forget_parts(attributes, COMPILE_STATE)


def _forget_parts(attributes: dict[str, Any], names: Container[str]) -> None:
    """Leaves parts out of what TensorFlow saves of an object."""
    references, by_name = (attributes.get(name) for name in CHECKPOINT_PARTS)
    if not references or by_name is None:
        return
    kept = [part for part in references if part.name not in names]
    left = {name: part for name, part in by_name.items() if name not in names}
    attributes.update(zip(CHECKPOINT_PARTS, (kept, left), strict=True))


def compile_metrics(trainer: Any) -> list[Any]:
    """Returns the metrics and loss trackers that `compile()` made."""
    state = vars(trainer)
    found = [state.get("_loss_tracker"), state.get("_compile_metrics")]
    if state.get("_compile_loss") is not None:
        found += state["_compile_loss"].metrics
    return [metric for metric in found if metric is not None]


def cleared_gradients(model: Any) -> set[int]:
    """Returns the ids of parameters whose gradients a step of torch begins by clearing.

    Keras begins its own so, for the parameters that the module knows: one for each path
    of a variable. A step of the model's own may gather gradients, and so may whoever
    trains it by hand.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        return set()
    if getattr(model.train_step, "__func__", None) is not keras.Model.train_step:
        return set()
    if "_torch_params" not in vars(model).get("_modules", ()):
        return set()
    return set(map(address, model.parameters()))


def jax_sync(trainer: Any) -> None:
    """Makes a JAX trainer in the middle of `fit` put its state on the variables."""
    sync = getattr(trainer, "jax_state_sync", None)
    if sync is not None and not vars(trainer).get("_jax_state_synced", True):
        sync()


def optimizers_of(trainer: Any) -> Iterator[Any]:
    """Yields the optimizer that a model was compiled with, and those inside it."""
    optimizer = getattr(trainer, "optimizer", None)
    while optimizer is not None:
        yield optimizer
        optimizer = getattr(optimizer, "inner_optimizer", None)


def variables_in_training(model: Any) -> list[Any]:
    """Returns the variables of a model and of the optimizer it was compiled with."""
    optimizer = getattr(model, "optimizer", None)
    return [*model.variables, *(optimizer.variables if optimizer else ())]


def scale_loss(trainer: Any) -> None:
    """Wraps the optimizer of a model as `compile()` does for float16.

    Gradients would vanish otherwise. The optimizer keeps its state.
    """
    config = getattr(vars(trainer).get("_compile_config"), "config", None) or {}
    inner = trainer.optimizer
    wants = config.get("auto_scale_loss", True) and inner is not None
    if not wants or isinstance(inner, LossScaleOptimizer):
        return
    with optimizer_scope(inner):
        trainer.optimizer = LossScaleOptimizer(inner, name="loss_scale_optimizer")
    if inner.built:
        build_optimizer(trainer.optimizer, list(inner._trainable_variables))


def move_compile_state(model: Any, other: Any) -> None:
    """Gives another model what `compile()` set on a model."""
    state = vars(model)
    if not state.get("compiled"):
        return
    for name in COMPILE_STATE:
        if name in state:
            setattr(other, name, state[name])

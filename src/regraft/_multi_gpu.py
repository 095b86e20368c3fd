"""`multi_gpu_model`: the old call, on today's engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from . import _backends
from ._errors import UsageError, explain
from ._placement import find_device
from ._replicate import replicate

M = TypeVar("M")


def multi_gpu_model(
    model: M,
    gpus: int | Sequence[int | str] | None = None,
    cpu_merge: bool = True,
    cpu_relocation: bool = False,
) -> M:
    """Returns a copy of a model that splits each batch over several GPUs.

    The signature is that of Keras 2; `replicate` is the same with fewer rules. The
    weights are kept in every case, the template of the result is live, and the
    model itself is left as it was.

    Args:
        model: A built model.
        gpus: How many GPUs, or their numbers in order; all by default. Names of
            devices (`"gpu:1"`, `"cpu:0"`) are taken as well.
        cpu_merge: Whether results are put together on the CPU, or else on the first
            of the devices.
        cpu_relocation: Whether the weights are kept on the CPU between steps.

    Returns:
        A model of the same class, see `replicate`.

    Raises:
        UsageError: There are fewer than two devices, or one that is not there.
    """
    names = _names(gpus)
    if len(names) < 2:
        raise UsageError(
            explain(
                "`multi_gpu_model` needs two devices or more.",
                where="argument `gpus`",
                expected=f"two or more of {_present()}",
                received=repr(gpus),
                fix="use the model itself on one device, or `regraft.replicate`, "
                "which takes one as well",
            )
        )
    return replicate(
        model,
        names,
        merge="cpu" if cpu_merge else names[0],
        relocate="cpu" if cpu_relocation else None,
    )


def _names(gpus: Any) -> list[str]:
    """Returns the names of devices that are there, in the order asked for."""
    every = [name for name in _backends.active().devices() if name.startswith("gpu")]
    if gpus is None or (_is_number(gpus) and gpus == 0):
        return every
    if _is_number(gpus):
        gpus = range(gpus)
    if isinstance(gpus, str):
        gpus = [gpus]
    names = [f"gpu:{gpu}" if _is_number(gpu) else str(gpu) for gpu in gpus]
    if len(names) > 1:
        for name in names:
            find_device(name, "gpus")
    return names


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _present() -> str:
    return ", ".join(_backends.active().devices())

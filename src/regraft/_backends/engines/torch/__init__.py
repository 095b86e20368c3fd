"""torch: several devices of one process, or one device in each of several processes.

`local` and `processes` say what happens to a batch. Which of them runs a
model is decided by how the program was started: under `torchrun`, or with
`torch.distributed` initialised for more than one process, it is the latter.
"""

from __future__ import annotations

from typing import Any

from ...._errors import UsageError, explain
from ...torch import devices as known_devices
from .._one_process import OneDevice
from . import collectives, local, processes


def default_devices() -> list[str]:
    """Returns all accelerators, or the CPU if there is none.

    Of several processes, each has the accelerator of its number on the machine.
    """
    names = list(known_devices())
    accelerators = names[1:]
    if collectives.are_several() and accelerators:
        return [accelerators[collectives.local_rank() % len(accelerators)]]
    return accelerators or names


def repeats() -> bool:
    """Several replicas may share a device: the numbers are the same."""
    return True


def replicas(
    names: list[str], devices: list[Any], merge: Any, home: Any
) -> OneDevice | local.LocalReplicas | processes.ProcessReplicas:
    """Plans for replicas in this process, or for one among several processes."""
    if not collectives.are_several():
        if len(devices) == 1 and home in (None, devices[0]):
            return OneDevice(names[0], devices[0], "torch")
        return local.LocalReplicas(names, devices, merge, home)
    if len(devices) != 1 or home not in (None, devices[0]):
        raise UsageError(
            explain(
                "Of several processes, each runs one replica on one device.",
                where="arguments `devices` and `relocate`",
                expected="one device, which also keeps the weights",
                received=f"devices {', '.join(names)}, relocate {home}",
                fix="name one device or none, and start as many processes as there "
                "are devices: `torchrun --nproc-per-node`",
            )
        )
    return processes.ProcessReplicas(devices[0])

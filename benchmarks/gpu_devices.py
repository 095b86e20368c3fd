"""What `gpu.py` asks of a device, once for PyTorch and once for JAX."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Torch:
    """What is asked of PyTorch."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.cuda = torch.cuda.is_available()
        self.kind = "gpu" if self.cuda else "cpu"

    def allocated(self) -> int:
        return self.torch.cuda.memory_allocated()

    def start_peak(self) -> int:
        self.torch.cuda.reset_peak_memory_stats()
        return self.allocated()

    def peak(self) -> int:
        return self.torch.cuda.max_memory_allocated()

    def equal(self, left: Any, right: Any) -> bool:
        integer = {
            1: self.torch.uint8,
            2: self.torch.int16,
            4: self.torch.int32,
            8: self.torch.int64,
        }[left.element_size()]
        bits = [x.detach().contiguous().view(integer) for x in (left, right)]
        return left.dtype == right.dtype and self.torch.equal(*bits)

    def place(self, value: Any) -> str:
        return str(value.device)

    def on_gpu(self, value: Any) -> bool:
        return value.device.type == "cuda"

    def address(self, value: Any) -> int:
        return value.data_ptr()

    def host(self, common: Any, model: Any) -> dict[str, Any]:
        """Counts the bytes that cross between host and device."""
        largest = max(common.values_of(model), key=lambda value: value.nbytes)
        control = self.transfers(lambda: largest.detach().cpu())
        if self.cuda and control["host_bytes"] < largest.nbytes:
            raise RuntimeError("The profiler did not notice a transfer to the host.")
        ours = self.transfers(lambda: common.with_regraft(model))
        keras = self.transfers(lambda: common.with_clone_model(model))
        return {**ours, "control": control, "clone_model + set_weights": keras}

    def transfers(self, action: Callable[[], Any]) -> dict[str, Any]:
        profiler = self.torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        if self.cuda:
            activities = [profiler.ProfilerActivity.CUDA]
            self.torch.cuda.synchronize()
        with profiler.profile(activities=activities) as profile:
            result = action()
            if self.cuda:
                self.torch.cuda.synchronize()
        del result
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.export_chrome_trace(path)
            trace = json.loads(Path(path).read_text("utf-8", "replace"))
        copies = [
            (event["name"], int(event.get("args", {}).get("bytes", 0)))
            for event in trace["traceEvents"]
            if str(event.get("name", "")).startswith("Memcpy")
            and event.get("cat") == "gpu_memcpy"
        ]
        across = [size for name, size in copies if "DtoH" in name or "HtoD" in name]
        return {
            "host_bytes": sum(across),
            "host_transfers": len(across),
            "largest_host_transfer": max(across, default=0),
            "device_bytes": sum(size for name, size in copies if "DtoD" in name),
        }


class Jax:
    """What is asked of JAX."""

    def __init__(self) -> None:
        import jax

        self.jax = jax
        self.kind = jax.default_backend()

    def stats(self) -> dict[str, int]:
        return self.jax.devices()[0].memory_stats() or {}

    def allocated(self) -> int:
        return self.stats()["bytes_in_use"]

    def start_peak(self) -> int:
        """JAX's peak cannot be reset: this is the highest so far."""
        return self.peak()

    def peak(self) -> int:
        return self.stats()["peak_bytes_in_use"]

    def equal(self, left: Any, right: Any) -> bool:
        size = left.dtype.itemsize
        numpy = self.jax.numpy
        integer = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32}.get(size)
        if left.dtype != right.dtype:
            return False
        if integer is not None and numpy.issubdtype(left.dtype, numpy.floating):
            convert = self.jax.lax.bitcast_convert_type
            left, right = convert(left, integer), convert(right, integer)
        return bool(numpy.array_equal(left, right))

    def place(self, value: Any) -> str:
        return f"{value.sharding} {sorted(map(str, value.devices()))}"

    def on_gpu(self, value: Any) -> bool:
        return all(device.platform in ("gpu", "cuda") for device in value.devices())

    def address(self, value: Any) -> int:
        return value.unsafe_buffer_pointer()

    def host(self, common: Any, model: Any) -> dict[str, Any]:
        """Clones while JAX forbids transfers, explicit ones too if possible."""
        import numpy as np

        largest = max(common.values_of(model), key=lambda value: value.nbytes)
        fresh = common.finish([largest + 0])[0]  # nothing of it is cached
        try:
            with self.jax.transfer_guard_device_to_host("disallow_explicit"):
                np.asarray(fresh)
            noticed = False
        except Exception:
            noticed = True
        if not noticed and self.kind == "gpu":
            raise RuntimeError("The guard did not notice a transfer to the host.")
        found: dict[str, Any] = {"control_noticed": noticed}
        for level in ("disallow_explicit", "disallow"):
            try:
                with (
                    self.jax.transfer_guard_device_to_host(level),
                    self.jax.transfer_guard_host_to_device(level),
                ):
                    common.finish(common.with_regraft(model))
                return {**found, "forbidden": True, "level": level}
            except Exception as error:
                found[f"under {level}"] = common.first_line(error)
        return {**found, "forbidden": False}

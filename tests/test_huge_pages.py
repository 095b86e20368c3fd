"""Large copies on the CPU, for which Linux is asked for large pages."""

import mmap
import re

import keras
import numpy as np
import pytest
from keras import layers

import regraft

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="torch's memory"),
    pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="not Linux"),
]


def flags_at(address):
    """Returns what the system notes of the memory at an address."""
    inside = False
    with open("/proc/self/smaps", encoding="ascii") as file:
        for line in file:
            span = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if span:
                inside = int(span[1], 16) <= address < int(span[2], 16)
            elif inside and line.startswith("VmFlags:"):
                return line.split()[1:]
    raise AssertionError("no memory of this process is there")


def test_a_large_weight_is_copied_into_large_pages():
    layer = layers.Dense(2048, use_bias=False)
    layer.build((None, 1024))  # 8 MB
    model = keras.Sequential([keras.Input((1024,)), layer])
    twin = regraft.clone(model)
    kernel = twin.layers[0].kernel.value
    middle = kernel.data_ptr() + kernel.nbytes // 2
    assert "hg" in flags_at(middle)
    assert np.array_equal(layer.kernel.numpy(), twin.layers[0].kernel.numpy())


def test_a_copy_has_the_order_of_axes_in_memory_that_the_original_has():
    import torch

    layer = layers.Conv2D(512, 3, use_bias=False)
    layer.build((None, 8, 8, 512))  # 9 MB
    turned = layer.kernel.value.detach().contiguous(memory_format=torch.channels_last)
    layer.kernel.value.data = turned
    twin = regraft.clone(layer)
    assert twin.kernel.value.stride() == turned.stride()
    assert torch.equal(twin.kernel.value, turned)

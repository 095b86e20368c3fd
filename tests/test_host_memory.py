"""Large tensors of torch on the host, which are copied piece by piece."""

import mmap
import os
import sys

import keras
import numpy as np
import pytest
from holding import copied
from keras import layers

import regraft
from regraft._backends import _host_memory
from regraft._backends._host_memory import copy_blocks

if keras.backend.backend() != "torch":
    pytest.skip("how torch's memory is copied", allow_module_level=True)

import torch


@pytest.mark.parametrize("threads", [1, 3])
def test_every_byte_is_copied(threads):
    draw = np.random.default_rng(0)
    sizes = [0, 1, (1 << 22) - 1, 1 << 22, 3 * (1 << 22) + 5, 40_000_000]
    sources = [draw.integers(0, 256, size, dtype=np.uint8) for size in sizes]
    targets = [np.zeros(size + 2, np.uint8) for size in sizes]
    for target in targets:
        target[0] = target[-1] = 7
    pairs = list(zip(targets, sources, strict=True))
    blocks = [(t.ctypes.data + 1, s.ctypes.data, s.nbytes) for t, s in pairs]
    copy_blocks(blocks, threads, pairs)
    for target, source in pairs:
        np.testing.assert_array_equal(target[1:-1], source)
        assert target[0] == target[-1] == 7


@pytest.mark.skipif(sys.platform != "linux", reason="how Linux hands out memory")
def test_new_memory_gets_its_pages_and_keeps_what_it_holds():
    size = 64 * mmap.PAGESIZE
    with mmap.mmap(-1, size) as memory:
        memory[5:9] = b"here"
        whole = np.frombuffer(memory, np.uint8)
        start, middle = whole.ctypes.data, whole.ctypes.data + size // 2
        assert not _host_memory._has_page(middle)
        _host_memory._ask_for_pages(start + 1, size - 1)
        version = tuple(map(int, os.uname().release.split(".")[:2]))
        assert _host_memory._has_page(middle) == (version >= (5, 14))
        assert memory[:16] == bytes(5) + b"here" + bytes(7)
        _host_memory._ask_for_pages(start + 1, 8)  # Less than a page.
        del whole


def test_a_network_with_large_weights():
    model = keras.Sequential([layers.Dense(3000), layers.Dense(2500)])
    model.build((None, 1500))
    copy = regraft.clone(model)
    for old, new in zip(model.variables, copy.variables, strict=True):
        assert torch.equal(old.value, new.value)
        assert old.value.data_ptr() != new.value.data_ptr()
        assert new.value.requires_grad == old.value.requires_grad
        assert new.value.is_leaf


def tensors():
    numbers = torch.randn(200, 300)
    return {
        "plain": numbers,
        "transposed": numbers.T,
        "every other": torch.randn(400, 300)[::2],
        "expanded": torch.randn(300).expand(200, 300),
        "conjugated": torch.randn(200, 300, dtype=torch.complex64).conj(),
        "negative": torch.randn(200, 300, dtype=torch.complex64).conj().imag,
        "half": numbers.bfloat16(),
    }


@pytest.mark.parametrize("kind", tensors())
def test_large_parameters_of_any_kind(kind):
    value = torch.nn.Parameter(tensors()[kind])
    assert value.numel() >= 1 << 15
    layer = layers.Layer()
    vars(layer)["weight"] = keras.Variable(np.zeros(value.shape, "float32"))
    layer.weight._value = value
    new = regraft.clone(layer).weight._value
    assert torch.equal(new, value)
    assert new.stride() == value.stride() or not value.is_contiguous()
    assert new.dtype == value.dtype
    with torch.no_grad():
        new.add_(1)
    assert not torch.equal(new, value)


def test_large_gradients_come_along():
    value = torch.nn.Parameter(torch.randn(200, 300))
    value.grad = torch.randn(200, 300)
    new = copied(value)
    assert torch.equal(new, value)
    assert torch.equal(new.grad, value.grad)
    assert new.grad is not value.grad

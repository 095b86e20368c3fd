"""What the benchmarks share: models, ways to copy one, clocks and files.

Import this before Keras: it quietens the backends. Nothing here needs more
than Keras, NumPy and one backend.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers

import regraft

RESULTS = Path(__file__).parent / "results"
BACKEND = keras.backend.backend()


# --- models ------------------------------------------------------------------


def transformer(
    *, depth: int, width: int, heads: int, vocabulary: int = 30522, length: int = 512
) -> keras.Model:
    """A BERT-like encoder, made of Keras's own layers alone."""
    inputs = [
        keras.Input((length,), dtype="int32", name=name)
        for name in ("tokens", "positions", "segments")
    ]
    sizes = (vocabulary, length, 2)
    x = layers.Add()(
        [layers.Embedding(n, width)(i) for n, i in zip(sizes, inputs, strict=True)]
    )
    x = layers.Dropout(0.1)(layers.LayerNormalization(epsilon=1e-12)(x))
    for _ in range(depth):
        attention = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)
        x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, attention(x, x)]))
        y = layers.Dense(4 * width, activation="gelu")(x)
        y = layers.Dropout(0.1)(layers.Dense(width)(y))
        x = layers.LayerNormalization(epsilon=1e-12)(layers.Add()([x, y]))
    pooled = layers.Dense(width, activation="tanh")(x[:, 0])
    return keras.Model(inputs, [x, pooled])


def bert_base() -> keras.Model:
    return transformer(depth=12, width=768, heads=12)


def deep_mlp() -> keras.Model:
    inputs = keras.Input((64,))
    x = inputs
    for _ in range(200):
        x = layers.Dense(64, activation="relu")(x)
    return keras.Model(inputs, x)


def size_in_bytes(model: keras.Model) -> int:
    return sum(
        math.prod(v.shape) * np.dtype(keras.backend.standardize_dtype(v.dtype)).itemsize
        for v in model.variables
    )


# --- the backend's own operations ----------------------------------------------


def array(value: Any) -> np.ndarray:
    """The value as NumPy sees it, without a copy where the backend allows it."""
    return np.asarray(keras.ops.convert_to_numpy(value))


def copy_tensor(value: Any) -> Any:
    """One tensor in a new buffer, with the backend's own operation."""
    if BACKEND == "jax":
        import jax.numpy as jnp

        return jnp.array(value, copy=True)
    if BACKEND == "torch":
        return value.detach().clone()
    import tensorflow as tf

    return tf.raw_ops.DeepCopy(x=value.read_value())


def wait_for(values: Iterable[Any]) -> None:
    """Returns when the values have really been computed."""
    if BACKEND == "jax":
        import jax

        jax.block_until_ready(list(values))
    elif BACKEND == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.synchronize()


def values_of(model: Any) -> list[Any]:
    return [variable.value for variable in model.variables]


# --- ways to copy a model --------------------------------------------------------


def with_regraft(model: keras.Model) -> keras.Model:
    return regraft.clone(model)


def with_clone_model(model: keras.Model) -> keras.Model:
    """What Keras itself offers: a new model, then the weights by way of NumPy."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def with_deepcopy(model: keras.Model) -> keras.Model:
    import copy

    return copy.deepcopy(model)


def with_a_file(model: keras.Model) -> keras.Model:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        return keras.models.load_model(path)


def bare_copy(model: keras.Model) -> list[Any]:
    """The floor: the bytes alone, with no model around them."""
    return [copy_tensor(value) for value in values_of(model)]


def finish(result: Any) -> Any:
    wait_for(result if isinstance(result, list) else values_of(result))
    return result


# --- clocks ----------------------------------------------------------------------


def timed(
    make: Callable[[], Any], *, prepare: Callable[[], object] = gc.collect
) -> tuple[float, Any]:
    """Seconds that `make` takes until its result is complete, and the result."""
    prepare()
    wait_for([])
    start = time.perf_counter()
    result = finish(make())
    return time.perf_counter() - start, result


def median(samples: list[float]) -> float:
    return statistics.median(samples)


def first_line(error: BaseException) -> str:
    """The first line that an error says, without the folder it happened in."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0].replace(tempfile.gettempdir(), "") if lines else ""
    text = text if len(text) <= 160 else text[:157] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def seconds(value: float | None) -> str:
    """A duration for people: three digits and a unit."""
    if value is None:
        return "-"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


# --- files -----------------------------------------------------------------------


def versions() -> dict[str, str]:
    """The versions of everything that a figure depends on."""
    module = __import__(BACKEND)
    return {
        "python": platform.python_version(),
        "keras": keras.__version__,
        BACKEND: module.__version__,
        "regraft": regraft.__version__,
    }


def read_json(path: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        return json.loads(path.read_text(encoding="utf-8"))
    return {}


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)

"""Small inputs, the same on every run."""

import numpy as np

BATCH = 3


def floats(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """A batch of normally distributed numbers; `shape` leaves the batch out."""
    rng = np.random.default_rng([seed, *shape])
    return rng.normal(size=(BATCH, *shape)).astype(dtype)


def ints(
    high: int, *shape: int, seed: int = 0, low: int = 0, dtype: str = "int32"
) -> np.ndarray:
    """A batch of integers from `low` up to, and without, `high`."""
    rng = np.random.default_rng([seed, high, *shape])
    return rng.integers(low, high, size=(BATCH, *shape)).astype(dtype)


def tokens(length: int = 5, vocabulary: int = 7) -> np.ndarray:
    """A batch of token ids, each row padded at its end with zeros."""
    ids = ints(vocabulary, length, low=1)
    for row in range(BATCH):
        ids[row, length - row :] = 0
    return ids


def padded(length: int = 5, features: int = 4) -> np.ndarray:
    """A batch of sequences, each padded at its end with zero vectors."""
    steps = floats(length, features)
    for row in range(BATCH):
        steps[row, length - row :] = 0.0
    return steps

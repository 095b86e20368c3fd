"""The devices that tests may use; a machine without GPUs has several CPUs."""

import keras

from regraft import _backends

BACKEND = keras.backend.backend()

HAS_GPU = "gpu:0" in _backends.active().devices()

# On JAX a step is one program for the whole batch: dropout draws for all of it.
HAS_GLOBAL_RNG = BACKEND == "jax"


def some_devices(count):
    """Returns what `replicate` takes for `count` replicas."""
    return ["cpu:0"] * count if BACKEND == "torch" else count

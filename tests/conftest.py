import os

# Read when Keras, JAX and TensorFlow are first imported, so set before that.
BACKEND = os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# Four virtual CPU devices, for the tests of distribution.
DEVICES = "--xla_force_host_platform_device_count"
XLA_FLAGS = os.environ.get("XLA_FLAGS", "")
if BACKEND == "jax" and DEVICES not in XLA_FLAGS:
    os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {DEVICES}=4".strip()

import hypothesis
import keras
import pytest

if BACKEND == "torch":
    import torch

    torch.set_num_threads(1)

# Few and fixed examples by default; `make fuzz` asks for many and random ones.
FUZZ_EXAMPLES = os.environ.get("REGRAFT_FUZZ_EXAMPLES")
hypothesis.settings.register_profile(
    "regraft",
    max_examples=int(FUZZ_EXAMPLES or 25),
    derandomize=FUZZ_EXAMPLES is None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("regraft")


def pytest_report_header():
    return f"keras {keras.__version__}, backend {keras.backend.backend()}"


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(0)


@pytest.fixture
def backend():
    """The active backend: "jax", "torch" or "tensorflow"."""
    return keras.backend.backend()

import os

# Read when Keras, JAX and TensorFlow are first imported, so set before that.
BACKEND = os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
# Some CPUs lack an instruction that oneDNN's bfloat16 gradients use.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# Four virtual CPU devices, for the tests of distribution. The rest shortens
# compilation, on which tests of tiny models spend their time.
XLA_FLAGS = (
    "--xla_force_host_platform_device_count=4",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)
if BACKEND == "jax":
    given = os.environ.get("XLA_FLAGS", "")
    missing = [flag for flag in XLA_FLAGS if flag.split("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *missing]).strip()

import hypothesis
import keras
import older_keras
import pytest

if BACKEND == "torch":
    import torch

    torch.set_num_threads(1)
if BACKEND == "tensorflow":
    import tensorflow as tf

    four = [tf.config.LogicalDeviceConfiguration()] * 4
    for cpu in tf.config.list_physical_devices("CPU"):
        tf.config.set_logical_device_configuration(cpu, four)

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


def pytest_collection_modifyitems(items):
    """What is said of edits, and what is called when, is the same on all backends."""
    for item in items if older_keras.IS_OLDER else ():
        why = older_keras.why_otherwise(item.name)
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"an older Keras: {why}"))
    if BACKEND == "torch":
        return
    elsewhere = pytest.mark.skip(reason="runs on torch")
    for item in items:
        is_wiring = item.get_closest_marker("wiring") is not None
        if is_wiring and item.get_closest_marker("every_backend") is None:
            item.add_marker(elsewhere)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skips tests of what an older version of Keras does not have."""
    try:
        return (yield)
    except Exception as error:
        if older_keras.IS_OLDER and older_keras.LACKS.search(str(error)):
            pytest.skip(f"an older Keras: {error}")
        raise


def pytest_report_header():
    return f"keras {keras.__version__}, backend {keras.backend.backend()}"


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(0)


@pytest.fixture
def backend():
    """The active backend: "jax", "torch" or "tensorflow"."""
    return keras.backend.backend()

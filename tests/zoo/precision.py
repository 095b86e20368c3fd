"""Dtype policies, rematerialisation, quantization and LoRA."""

import os

import keras
from keras import layers

from .data import floats, tokens
from .registry import BACKENDS, Case, case, compile_quickly, learns

# The bfloat16 kernels of oneDNN kill the process on some processors.
ONEDNN_IS_OFF = os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0"
BFLOAT16 = BACKENDS if ONEDNN_IS_OFF else ("jax", "torch")


def _stack(**kwargs):
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(4, activation="relu", **kwargs),
            layers.BatchNormalization(**kwargs),
            layers.Dense(2, **kwargs),
        ]
    )


def _policy_case(**kwargs):
    return learns(_stack(**kwargs), floats(4), floats(2))


def _one(layer, inputs, *shape, dtype="float32"):
    """A Functional model of one layer, built and ready to be changed."""
    x = keras.Input(shape, dtype=dtype)
    return keras.Model(x, layer(x)), inputs


def _dense():
    return _one(layers.Dense(6), floats(8), 8)


def _einsum():
    layer = layers.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d")
    return _one(layer, floats(3, 8), 3, 8)


def _embedding():
    return _one(layers.Embedding(7, 8), tokens(), 5, dtype="int32")


def _reversible_embedding():
    embedding = layers.ReversibleEmbedding(7, 8)
    ids = keras.Input((5,), dtype="int32")
    model = keras.Model(ids, embedding(embedding(ids), reverse=True))
    return model, tokens()


def _attention():
    layer = layers.MultiHeadAttention(2, 4)
    x = keras.Input((5, 8))
    return keras.Model(x, layer(x, x)), floats(5, 8)


@case("policies/mixed_float16")
def _():
    return _policy_case(dtype="mixed_float16")


@case("policies/mixed_bfloat16", BFLOAT16)
def _():
    return _policy_case(dtype="mixed_bfloat16")


@case("policies/bfloat16", BFLOAT16)
def _():
    return _policy_case(dtype="bfloat16")


@case("policies/float16")
def _():
    return _policy_case(dtype="float16")


@case("policies/float64")
def _():
    return _policy_case(dtype="float64")


@case("policies/instance", BFLOAT16)
def _():
    return _policy_case(dtype=keras.DTypePolicy("mixed_bfloat16"))


@case("policies/own_class", BFLOAT16)
def _():
    class Half(keras.DTypePolicy):
        """Computes in bfloat16 whatever it is named."""

        def __init__(self):
            super().__init__("float32")
            self._compute_dtype = "bfloat16"

    return _policy_case(dtype=Half())


@case("policies/one_layer_of_another_policy", BFLOAT16)
def _():
    x = keras.Input((4,))
    y = layers.Dense(4, dtype="mixed_bfloat16")(x)
    y = layers.Dense(2, dtype="float32")(y)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("policies/global", BFLOAT16)
def _():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        return learns(_stack(), floats(4), floats(2))
    finally:
        keras.config.set_dtype_policy(before)


@case("policies/map", BFLOAT16)
def _():
    policies = keras.dtype_policies.DTypePolicyMap()
    policies["attention/query"] = keras.DTypePolicy("bfloat16")
    layer = layers.MultiHeadAttention(2, 4, dtype=policies, name="attention")
    x = keras.Input((5, 8))
    return learns(keras.Model(x, layer(x, x)), floats(5, 8), floats(5, 8))


@case("policies/autocast_off")
def _():
    class Exact(layers.Layer):
        def __init__(self):
            super().__init__(autocast=False, dtype="mixed_float16")

        def build(self, shape):
            self.gate = self.add_weight(shape=shape[-1:], autocast=False)

        def call(self, x):
            return x * self.gate

    x = keras.Input((4,))
    return learns(keras.Model(x, Exact()(x)), floats(4), floats(4))


@case("policies/inside_a_composite", BFLOAT16)
def _():
    x = keras.Input((5, 4))
    y = layers.Bidirectional(layers.GRU(3, dtype="mixed_bfloat16"))(x)
    return learns(keras.Model(x, y), floats(5, 4), floats(6))


@case("policies/changed_after_build", BFLOAT16)
def _():
    model = _stack()
    model.layers[-1].dtype_policy = "mixed_bfloat16"
    return learns(model, floats(4), floats(2))


@case("policies/mixed_float16_compiled")
def _():
    model = _stack(dtype="mixed_float16")
    compile_quickly(model, "adam")
    model.train_on_batch(floats(4), floats(2))
    return learns(model, floats(4), floats(2))


@case("remat/full")
def _():
    # Not around a BatchNormalization: JAX would trace its `training`.
    with keras.RematScope(mode="full"):
        x = keras.Input((4,))
        y = layers.Dense(8, activation="relu")(x)
        model = keras.Model(x, layers.Dense(2)(y))
    return learns(model, floats(4), floats(2))


@case("remat/by_name")
def _():
    with keras.RematScope(mode="list_of_layers", layer_names=["wide"]):
        x = keras.Input((4,))
        y = layers.Dense(8, name="wide")(x)
        model = keras.Model(x, layers.Dense(2)(y))
    return learns(model, floats(4), floats(2))


QUANTIZED = {
    "dense": (_dense, ("int8", "int4", "float8")),
    "einsum_dense": (_einsum, ("int8", "int4", "float8")),
    "embedding": (_embedding, ("int8", "int4")),
    "reversible_embedding": (_reversible_embedding, ("int8", "int4")),
    "attention": (_attention, ("int8", "float8")),
}


def _quantized(make, mode):
    model, inputs = make()
    model.quantize(mode)
    return Case(model, inputs)


for _name, (_make, _modes) in QUANTIZED.items():
    for _mode in _modes:
        case(f"quantized/{_mode}_{_name}")(
            lambda make=_make, mode=_mode: _quantized(make, mode)
        )


@case("quantized/int4_in_blocks")
def _():
    model, inputs = _dense()
    model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=4))
    return Case(model, inputs)


@case("quantized/int8_weights_only")
def _():
    model, inputs = _dense()
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=config)
    return Case(model, inputs)


@case("quantized/by_policy")
def _():
    x = keras.Input((8,))
    model = keras.Model(x, layers.Dense(4, dtype="int8_from_float32")(x))
    return Case(model, floats(8))


@case("quantized/one_layer_of_two")
def _():
    x = keras.Input((8,))
    model = keras.Model(x, layers.Dense(2)(layers.Dense(8)(x)))
    model.layers[1].quantize("int8")
    return Case(model, floats(8))


@case("quantized/int8_nested")
def _():
    inner, inputs = _dense()
    x = keras.Input((8,))
    model = keras.Model(x, layers.Dense(2)(inner(x)))
    model.quantize("int8")
    return Case(model, inputs)


@case("quantized/float8_trained")
def _():
    model, inputs = _dense()
    model.quantize("float8")
    # TensorFlow cannot take this gradient eagerly.
    model.compile("adam", "mse")
    model.train_on_batch(inputs, floats(6))
    return learns(model, inputs, floats(6))


@case("lora/dense")
def _():
    model, inputs = _dense()
    model.layers[-1].enable_lora(2)
    return learns(model, inputs, floats(6))


@case("lora/dense_alpha")
def _():
    model, inputs = _dense()
    model.layers[-1].enable_lora(2, lora_alpha=8, b_initializer="he_uniform")
    return learns(model, inputs, floats(6))


@case("lora/trained")
def _():
    model, inputs = _dense()
    model.layers[-1].enable_lora(2)
    compile_quickly(model, "adam")
    model.train_on_batch(inputs, floats(6))
    return learns(model, inputs, floats(6))


@case("lora/at_construction")
def _():
    model, inputs = _one(layers.Dense(6, lora_rank=2), floats(8), 8)
    return learns(model, inputs, floats(6))


@case("lora/embedding")
def _():
    model, inputs = _embedding()
    model.layers[-1].enable_lora(2)
    return learns(model, inputs, floats(5, 8))


@case("lora/einsum_dense")
def _():
    model, inputs = _einsum()
    model.layers[-1].enable_lora(2)
    return learns(model, inputs, floats(3, 6))


@case("lora/conv")
def _():
    model, inputs = _one(layers.Conv2D(3, 3), floats(5, 5, 2), 5, 5, 2)
    model.layers[-1].enable_lora(2)
    return learns(model, inputs, floats(3, 3, 3))


@case("lora/inside_attention")
def _():
    model, inputs = _attention()
    attention = model.layers[-1]
    attention.query_dense.enable_lora(2)
    attention.value_dense.enable_lora(2, lora_alpha=4)
    return learns(model, inputs, floats(5, 8))


@case("lora/then_int8")
def _():
    model, inputs = _dense()
    model.layers[-1].enable_lora(2)
    model.quantize("int8")
    return Case(model, inputs)


@case("lora/after_int8")
def _():
    model, inputs = _dense()
    model.quantize("int8")
    model.layers[-1].enable_lora(2)
    return Case(model, inputs)


@case("lora/after_int4")
def _():
    model, inputs = _dense()
    model.quantize("int4")
    model.layers[-1].enable_lora(2)
    return Case(model, inputs)

"""Pieces of the backend itself inside a Keras model."""

import functools
import pathlib
import tempfile

import keras
import numpy as np
from keras import layers

from .data import floats
from .registry import Case, case, learns

JAX, TORCH, TENSORFLOW = (("jax",), ("torch",), ("tensorflow",))


class Calls(layers.Layer):
    """Holds a native function, module or array, and calls it."""

    def __init__(self, native, use=lambda native, x: native(x)):
        super().__init__()
        self.native = native
        self.use = use

    def call(self, x):
        return self.use(self.native, x)

    def compute_output_shape(self, shape):
        return shape


def _around(layer):
    x = keras.Input((4,))
    y = layer(layers.Dense(4)(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


def _wrapped(module):
    return layers.TorchModuleWrapper(module, output_shape=(None, 4))


@case("native/jax_layer", JAX)
def _():
    import jax

    def init(rng, inputs):
        kernel = jax.random.normal(rng, (inputs.shape[-1], 4))
        return {"w": kernel, "b": jax.numpy.zeros(4)}

    def apply(params, inputs):
        return inputs @ params["w"] + params["b"]

    return _around(layers.JaxLayer(call_fn=apply, init_fn=init, seed=3))


@case("native/jax_layer_given_parameters", JAX)
def _():
    import jax.numpy as jnp

    params = {"inner": [jnp.ones((4, 4)), (jnp.zeros(4),)]}

    def apply(params, inputs):
        return inputs @ params["inner"][0] + params["inner"][1][0]

    return _around(layers.JaxLayer(call_fn=apply, params=params))


@case("native/jax_layer_with_state", JAX)
def _():
    import jax.numpy as jnp

    def apply(params, state, rng, inputs, training):
        return inputs * params, {"calls": state["calls"] + 1.0}

    layer = layers.JaxLayer(
        call_fn=apply, params=jnp.ones(4), state={"calls": jnp.zeros(())}
    )
    return _around(layer)


@case("native/flax_layer", JAX)
def _():
    import flax.linen as nn

    class Block(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            return nn.Dense(self.width)(nn.relu(nn.Dense(5)(x)))

    return _around(layers.FlaxLayer(Block(4)))


@case("native/flax_layer_with_state", JAX)
def _():
    import flax.linen as nn

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, training):
            x = nn.BatchNorm(use_running_average=not training)(x)
            return nn.Dropout(0.3, deterministic=not training)(x)

    def apply(module, x, training):
        return module(x, training)

    return _around(layers.FlaxLayer(Block(), method=apply))


@case("native/jax_jit_attribute", JAX)
def _():
    import jax
    import jax.numpy as jnp

    return _around(Calls(jax.jit(lambda x: jnp.tanh(x) * 2.0)))


@case("native/jax_jit_of_a_closure_over_the_layer", JAX)
def _():
    import jax

    class Jitted(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(shape=(shape[-1], 2), name="kernel")

            def product(x, kernel, times):
                return (x @ kernel) * times * self.scale

            self.scale = 3.0
            self.product = jax.jit(product, static_argnums=2)

        def call(self, x):
            return self.product(x, self.kernel.value, 2)

    return _around(Jitted())


@case("native/jax_transforms", JAX)
def _():
    import jax

    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, g: (2.0 * g,))
    return _around(Calls(jax.vmap(identity)))


@case("native/jax_key_and_array", JAX)
def _():
    import jax
    import jax.numpy as jnp

    kept = {"key": jax.random.key(3), "shift": jnp.arange(4.0)}

    def use(kept, x):
        return x + kept["shift"] + jax.random.normal(kept["key"], (4,))

    return _around(Calls(kept, use))


@case("native/torch_module_wrapper", TORCH)
def _():
    import torch

    return _around(_wrapped(torch.nn.Linear(4, 4)))


@case("native/torch_module_attribute", TORCH)
def _():
    import torch

    return _around(Calls(torch.nn.Linear(4, 4)))


@case("native/torch_sequential_with_buffers", TORCH)
def _():
    import torch

    block = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3)
    )
    return _around(_wrapped(block))


@case("native/torch_tied_modules", TORCH)
def _():
    import torch

    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    second.weight = first.weight
    return _around(_wrapped(torch.nn.Sequential(first, second)))


@case("native/torch_hooks", TORCH)
def _():
    import torch

    module = torch.nn.Linear(4, 4)
    module.register_forward_hook(lambda module, args, out: out * 2.0)
    return _around(_wrapped(module))


@case("native/torch_normalised_weights", TORCH)
def _():
    import torch

    # These keep hooks, which are wrapped, and a weight that was computed.
    first = torch.nn.utils.weight_norm(torch.nn.Linear(4, 4))
    second = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4))
    return _around(_wrapped(torch.nn.Sequential(first, second)))


@case("native/torch_parameter_and_buffer", TORCH)
def _():
    import torch

    class Raw(layers.Layer):
        def __init__(self):
            super().__init__()
            self.gate = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("shift", torch.arange(4.0))

        def call(self, x):
            return x * self.gate + self.shift

    return _around(Raw())


@case("native/torch_subclassed_model", TORCH)
def _():
    import torch

    class Mixed(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 3)
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(torch.relu(self.inner(x)))

    model = Mixed()
    model(floats(4))
    return learns(model, floats(4), floats(2))


@case("native/torch_keras_inside_a_module", TORCH)
def _():
    import torch

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(4)
            self.dense.build((None, 4))

        def forward(self, x):
            return self.dense(x)

    return _around(_wrapped(Module()))


@case("native/torch_generator_attribute", TORCH)
def _():
    import torch

    generator = torch.Generator().manual_seed(3)
    return _around(Calls(generator, lambda g, x: x + torch.randn(4, generator=g)))


@case("native/torch_sparse_matrix", TORCH)
def _():
    import torch

    adjacency = torch.eye(4).roll(1, 0).to_sparse()
    return _around(Calls(adjacency, lambda a, x: torch.sparse.mm(a, x.T).T))


@case("native/torch_named_result", TORCH)
def _():
    import torch

    top = torch.topk(torch.arange(5.0), 4)
    return _around(Calls(top, lambda top, x: x * top.values))


@case("native/torch_script_module", TORCH)
def _():
    import torch

    module = torch.jit.script(torch.nn.Linear(4, 4))
    return _around(Calls(module, lambda module, x: module(x)))


@case("native/torch_graph_module", TORCH)
def _():
    import torch

    module = torch.fx.symbolic_trace(torch.nn.Linear(4, 4))
    return _around(Calls(module, lambda module, x: module(x)))


@case("native/torch_function_attribute", TORCH)
def _():
    import torch

    return _around(Calls(functools.partial(torch.nn.functional.elu, alpha=0.5)))


@case("native/tf_function_attribute", TENSORFLOW)
def _():
    import tensorflow as tf

    return _around(Calls(tf.function(lambda x: tf.tanh(x) * 2.0)))


@case("native/tf_function_already_traced", TENSORFLOW)
def _():
    import tensorflow as tf

    function = tf.function(lambda x: tf.tanh(x) * 2.0)
    function(tf.ones((3, 4)))
    return _around(Calls(function))


@case("native/tf_call_is_a_function", TENSORFLOW)
def _():
    import tensorflow as tf

    class Traced(layers.Layer):
        def build(self, shape):
            self.gate = self.add_weight(shape=shape[-1:], initializer="ones")

        @tf.function
        def call(self, x):
            return x * self.gate

    return _around(Traced())


@case("native/tf_variable_attribute", TENSORFLOW)
def _():
    import tensorflow as tf

    gate = tf.Variable(tf.ones(4), name="gate")
    return _around(Calls(gate, lambda gate, x: x * gate))


@case("native/tf_module_attribute", TENSORFLOW)
def _():
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.gate = tf.Variable(tf.ones(4))

        def __call__(self, x):
            return x * self.gate

    return _around(Calls(Module()))


@case("native/tf_lookup_table", TENSORFLOW)
def _():
    import tensorflow as tf

    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([1, 2], [10.0, 20.0]), -1.0
    )
    x = keras.Input((4,), dtype="int32")
    layer = Calls(table, lambda table, x: table.lookup(x))
    layer.dtype_policy = "int32"
    model = keras.Model(x, layer(x))
    return Case(model, np.array([[1, 2, 3, 1]], "int32"))


@case("native/tf_generator_attribute", TENSORFLOW)
def _():
    import tensorflow as tf

    generator = tf.random.Generator.from_seed(3)
    return _around(Calls(generator, lambda g, x: x + g.normal((4,))))


@case("native/tf_saved_model_layer", TENSORFLOW)
def _():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "saved")
        inner.export(path, verbose=False)
        layer = layers.TFSMLayer(path, call_endpoint="serve")
    model = keras.Sequential([keras.Input((4,)), layer])
    return Case(model, floats(4), training_calls_ok=False)

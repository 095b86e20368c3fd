"""Lambda layers, by what their function is and what it holds on to."""

import functools

import keras
import numpy as np
from keras import layers, ops

from .data import floats
from .registry import Case, case, learns

SCALE = 3.0
TABLE = {"shift": [1.0, 2.0]}


def _scaled(x):
    return SCALE * x + TABLE["shift"][1]


def _power(x, exponent):
    return x**exponent


class _Shift:
    """A callable object."""

    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return ops.add(x, self.by)

    def method(self, x):
        return x - self.by

    @staticmethod
    def static(x):
        return x * 0.5

    @classmethod
    def of_class(cls, x):
        return x * len(cls.__name__)


def _model(function, **kwargs):
    x = keras.Input((4,))
    y = layers.Lambda(function, **kwargs)(layers.Dense(4)(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("lambdas/python_lambda")
def _():
    return _model(lambda x: x * 2.0 + 1.0)


@case("lambdas/module_function")
def _():
    return _model(_scaled)


@case("lambdas/module_global")
def _():
    return _model(lambda x: x * SCALE)


@case("lambdas/local_def")
def _():
    def halve(x):
        """Has a docstring."""
        return x / 2.0

    return _model(halve)


@case("lambdas/closure_over_a_number")
def _():
    factor = 0.25
    return _model(lambda x: x * factor)


@case("lambdas/closure_over_a_list")
def _():
    factors = [1.0, 2.0, 3.0, 4.0]
    return _model(lambda x: x * ops.convert_to_tensor(factors, x.dtype))


@case("lambdas/closure_over_a_dict")
def _():
    options = {"axis": -1, "nested": {"keepdims": True}}
    return _model(lambda x: x - ops.mean(x, options["axis"], **options["nested"]))


@case("lambdas/closure_over_an_array")
def _():
    shift = np.arange(4, dtype="float32")
    return _model(lambda x: ops.add(x, shift))


@case("lambdas/closure_over_a_variable")
def _():
    gate = keras.Variable(0.5 * np.ones(4, "float32"), name="gate")
    return _model(lambda x: x * gate)


@case("lambdas/closure_over_a_layer")
def _():
    dense = layers.Dense(4, name="captured")
    dense.build((None, 4))
    return _model(lambda x: dense(x))


@case("lambdas/closure_over_a_layer_of_the_model")
def _():
    x = keras.Input((4,))
    dense = layers.Dense(4)
    y = layers.Lambda(lambda t: dense(t) + ops.sum(dense.kernel))(dense(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("lambdas/closure_over_a_list_of_layers")
def _():
    stack = [layers.Dense(4) for _ in range(2)]
    for layer in stack:
        layer.build((None, 4))

    def run(x):
        for layer in stack:
            x = layer(x)
        return x

    return _model(run)


@case("lambdas/closure_over_a_model")
def _():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    return _model(lambda x: x + inner(x))


@case("lambdas/closure_over_a_closure")
def _():
    gate = keras.Variable(np.full(4, 2.0, "float32"))

    def inner(x):
        return x * gate

    def outer(x):
        return inner(x) + 1.0

    return _model(lambda x: outer(x))


@case("lambdas/recursive_closure")
def _():
    def twice(x, depth=3):
        return x if depth == 0 else twice(x * 1.5, depth - 1)

    return _model(lambda x: twice(x))


@case("lambdas/mutually_recursive")
def _():
    def even(x, n):
        return x if n == 0 else odd(x + 1.0, n - 1)

    def odd(x, n):
        return even(x * 2.0, n - 1)

    return _model(lambda x: even(x, 4))


@case("lambdas/two_closures_share_a_cell")
def _():
    gate = keras.Variable(np.full(4, 0.1, "float32"))
    x = keras.Input((4,))
    y = layers.Lambda(lambda t: t * gate)(x)
    y = layers.Lambda(lambda t: t + gate)(y)
    return Case(keras.Model(x, y), floats(4))


@case("lambdas/closure_from_a_loop")
def _():
    x = y = keras.Input((4,))
    for factor in (2.0, 3.0):
        y = layers.Lambda(lambda t, factor=factor: t * factor)(y)
    return Case(keras.Model(x, y), floats(4))


@case("lambdas/default_holds_a_layer")
def _():
    dense = layers.Dense(4)
    dense.build((None, 4))
    return _model(lambda x, layer=dense: layer(x))


@case("lambdas/keyword_default_holds_a_variable")
def _():
    gate = keras.Variable(np.full(4, 0.3, "float32"))

    def gated(x, *, by=gate):
        return x * by

    return _model(gated)


@case("lambdas/function_attribute")
def _():
    def scaled(x):
        return x * scaled.factor

    scaled.factor = 0.7
    return _model(scaled)


@case("lambdas/partial")
def _():
    return _model(functools.partial(_power, exponent=2))


@case("lambdas/partial_of_an_op")
def _():
    return _model(functools.partial(ops.clip, x_min=-0.5, x_max=0.5))


@case("lambdas/arguments")
def _():
    return _model(_power, arguments={"exponent": 2})


@case("lambdas/arguments_hold_a_variable")
def _():
    gate = keras.Variable(np.full(4, 1.5, "float32"))
    return _model(lambda x, by: x * by, arguments={"by": gate})


@case("lambdas/bound_method")
def _():
    return _model(_Shift(0.5).method)


@case("lambdas/method_of_a_layer")
def _():
    class Scale(layers.Layer):
        def build(self, shape):
            self.gate = self.add_weight(shape=shape[-1:], initializer="ones")

        def call(self, x):
            return x * self.gate

        def inverse(self, x):
            return x / (1.0 + self.gate)

    scale = Scale()
    x = keras.Input((4,))
    y = layers.Lambda(scale.inverse)(scale(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("lambdas/static_and_class_methods")
def _():
    x = keras.Input((4,))
    y = layers.Lambda(_Shift.static)(x)
    y = layers.Lambda(_Shift.of_class)(y)
    return Case(keras.Model(x, y), floats(4))


@case("lambdas/callable_object")
def _():
    return _model(_Shift(np.arange(4, dtype="float32")))


@case("lambdas/builtin_op")
def _():
    return _model(ops.tanh)


@case("lambdas/named_like_a_builtin")
def _():
    def relu(x):
        return ops.maximum(x, -1.0)

    return _model(relu, name="relu")


@case("lambdas/wrapped_by_a_decorator")
def _():
    def noting(function):
        calls = []

        @functools.wraps(function)
        def inner(x):
            calls.append(1)
            return function(x)

        return inner

    return _model(noting(_scaled))


@case("lambdas/reads_training")
def _():
    return _model(lambda x, training=False: x * 2.0 if training else x)


@case("lambdas/given_output_shape")
def _():
    x = keras.Input((4,))
    tile = layers.Lambda(lambda t: ops.tile(t, (1, 2)), output_shape=(8,))
    return learns(keras.Model(x, tile(layers.Dense(4)(x))), floats(4), floats(8))


@case("lambdas/output_shape_function")
def _():
    x = keras.Input((4,))
    tile = layers.Lambda(
        lambda t: ops.tile(t, (1, 2)), output_shape=lambda s: (s[0], 2 * s[1])
    )
    return Case(keras.Model(x, tile(x)), floats(4))


@case("lambdas/several_outputs")
def _():
    x = keras.Input((4,))
    low, high = layers.Lambda(lambda t: ops.split(t, 2, axis=-1))(x)
    y = layers.Concatenate()([layers.Dense(2)(high), low])
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("lambdas/dict_output")
def _():
    x = keras.Input((4,))
    parts = layers.Lambda(lambda t: {"sign": ops.sign(t), "size": ops.abs(t)})(x)
    y = layers.Multiply()([parts["size"], parts["sign"]])
    return Case(keras.Model(x, y), floats(4))


@case("lambdas/several_inputs")
def _():
    a, b = keras.Input((4,)), keras.Input((4,))
    y = layers.Lambda(lambda pair: pair[0] * pair[1])([a, b])
    return Case(keras.Model([a, b], y), [floats(4), floats(4, seed=1)])


@case("lambdas/the_same_lambda_twice")
def _():
    square = layers.Lambda(lambda t: t * t)
    x = keras.Input((4,))
    return Case(keras.Model(x, square(square(x) + 1.0)), floats(4))


@case("lambdas/draws_random_numbers")
def _():
    seed = keras.random.SeedGenerator(11)
    return _model(lambda x: x + keras.random.normal((4,), seed=seed))

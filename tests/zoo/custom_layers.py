"""Layers of one's own: where their state is made and how they are called."""

import keras
import numpy as np
from keras import layers, ops

from .data import floats
from .registry import Case, case, learns


def around(layer, width=4):
    """A model of one layer, and of what it needs to learn."""
    x = keras.Input((4,))
    y = layer(layers.Dense(4)(x))
    return learns(keras.Model(x, y), floats(4), floats(width))


class Scale(layers.Layer):
    """A weight that is made in `build`, and no `get_config`."""

    def __init__(self, start):
        super().__init__()
        self.start = start

    def build(self, shape):
        self.gate = self.add_weight(
            shape=shape[-1:],
            initializer=keras.initializers.Constant(self.start),
            name="gate",
        )

    def call(self, x):
        return x * self.gate


@case("custom/weight_in_build")
def _():
    return around(Scale(0.5))


@case("custom/weight_in_init")
def _():
    class Early(layers.Layer):
        def __init__(self, width):
            super().__init__()
            self.gate = self.add_weight(shape=(width,), initializer="ones")

        def call(self, x):
            return x * self.gate

    return around(Early(4))


@case("custom/variable_as_attribute")
def _():
    class Owns(layers.Layer):
        def __init__(self):
            super().__init__()
            self.gate = keras.Variable(np.ones(4, "float32"), name="gate")
            self.count = keras.Variable(0, dtype="int32", trainable=False)

        def call(self, x):
            return x * self.gate

    return around(Owns())


@case("custom/weights_in_containers")
def _():
    class Many(layers.Layer):
        def build(self, shape):
            self.all = [self.add_weight(shape=(4,)) for _ in range(2)]
            self.named = {"a": self.add_weight(shape=(4,)), "b": [1.0, None]}

        def call(self, x):
            return x * self.all[0] + self.all[1] * self.named["a"]

    return around(Many())


@case("custom/state_that_counts")
def _():
    class Counter(layers.Layer):
        def build(self, shape):
            self.calls = self.add_weight(
                shape=(), initializer="zeros", trainable=False, name="calls"
            )

        def call(self, x, training=False):
            if training:
                self.calls.assign(self.calls + 1.0)
            return x + self.calls

    return around(Counter())


@case("custom/running_mean")
def _():
    class Running(layers.Layer):
        def build(self, shape):
            self.mean = self.add_weight(
                shape=shape[-1:], initializer="zeros", trainable=False
            )

        def call(self, x, training=False):
            if training:
                batch = ops.mean(x, axis=0)
                self.mean.assign(0.9 * self.mean + 0.1 * batch)
            return x - self.mean

    case = around(Running())
    case.model(floats(4), training=True)
    return case


@case("custom/seed_generator")
def _():
    class Noisy(layers.Layer):
        def __init__(self, seed):
            super().__init__()
            self.seed = keras.random.SeedGenerator(seed)

        def call(self, x, training=False):
            if not training:
                return x
            return x + keras.random.normal(ops.shape(x), seed=self.seed)

    return around(Noisy(3))


@case("custom/seed_generators_in_a_list")
def _():
    class Noisy(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seeds = [keras.random.SeedGenerator(n) for n in (1, 2)]

        def call(self, x):
            for seed in self.seeds:
                x = x + keras.random.uniform(ops.shape(x), seed=seed)
            return x

    return around(Noisy())


@case("custom/layers_in_nested_lists")
def _():
    class Grid(layers.Layer):
        def __init__(self):
            super().__init__()
            self.rows = [[layers.Dense(4) for _ in range(2)] for _ in range(2)]

        def build(self, shape):
            for row in self.rows:
                for layer in row:
                    layer.build(shape)

        def call(self, x):
            return sum(row[1](row[0](x)) for row in self.rows)

    return around(Grid())


@case("custom/add_loss")
def _():
    class Penalised(layers.Layer):
        def call(self, x):
            self.add_loss(0.1 * ops.mean(ops.square(x)))
            return x

    return around(Penalised())


@case("custom/metric_inside")
def _():
    class Watched(layers.Layer):
        def __init__(self):
            super().__init__()
            self.size = keras.metrics.Mean(name="size")

        def call(self, x):
            self.size.update_state(ops.mean(ops.abs(x)))
            return x

    case = around(Watched())
    case.model(floats(4))
    return case


@case("custom/activity_regularizer")
def _():
    x = keras.Input((4,))
    y = layers.Dense(4, activity_regularizer=keras.regularizers.L2(0.1))(x)
    y = layers.ActivityRegularization(l1=0.01)(y)
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("custom/keyword_argument_in_the_graph")
def _():
    class Power(layers.Layer):
        def call(self, x, exponent=1, options=None):
            return x**exponent + (options or {}).get("shift", 0.0)

    x = keras.Input((4,))
    power = Power()
    y = power(power(x, exponent=2), options={"shift": 1.5})
    return Case(keras.Model(x, y), floats(4))


@case("custom/several_tensor_arguments")
def _():
    class Gate(layers.Layer):
        def build(self, x_shape, gate_shape, shift_shape=None):
            self.bias = self.add_weight(shape=x_shape[-1:])

        def call(self, x, gate, shift=None):
            y = x * ops.sigmoid(gate) + self.bias
            return y if shift is None else y + shift

    x = keras.Input((4,))
    gate, shift = layers.Dense(4)(x), layers.Dense(4)(x)
    y = Gate()(Gate()(x, gate, shift=shift), gate=shift)
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("custom/nested_tensor_arguments")
def _():
    class Mix(layers.Layer):
        def call(self, tree, others=()):
            total = tree["a"] + tree["rest"][0] * tree["rest"][1]
            return total + sum(others)

    x = keras.Input((4,))
    a, b = layers.Dense(4)(x), layers.Dense(4)(x)
    y = Mix()({"a": a, "rest": (b, x)}, others=[a, x])
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("custom/training_literal")
def _():
    x = keras.Input((4,))
    y = layers.Dropout(0.5, seed=1)(x, training=True)
    y = layers.BatchNormalization()(y, training=False)
    return learns(keras.Model(x, layers.Dense(2)(y)), floats(4), floats(2))


@case("custom/context_argument")
def _():
    class Mode(layers.Layer):
        def call(self, x, *, training=None, mask=None, factor: float = 2.0):
            return x * factor if training else x

    return around(Mode())

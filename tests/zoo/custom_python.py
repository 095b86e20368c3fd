"""Layers of one's own that use what Python allows."""

import keras
from keras import layers, ops

from .custom_layers import Scale, around
from .data import floats
from .registry import Case, case, learns


@case("custom/attribute_added_later")
def _():
    layer = Scale(2.0)
    case = around(layer)
    layer.note = {"added": ["after", 1]}
    layer.describe = lambda: layer.name
    return case


@case("custom/call_replaced_on_the_instance")
def _():
    dense = layers.Dense(4)
    original = dense.call
    dense.call = lambda inputs, training=None: original(inputs) + 1.0
    return around(dense)


@case("custom/method_replaced_on_the_instance")
def _():
    layer = Scale(0.5)
    layer.build = lambda shape: Scale.build(layer, shape)
    return around(layer)


@case("custom/super_kept_for_later")
def _():
    class Remembers(Scale):
        def __init__(self, factor):
            super().__init__(factor)
            self.base = super()

        def call(self, x):
            return self.base.call(x) + 1.0

    return around(Remembers(0.5))


@case("custom/layers_outside_the_graph")
def _():
    case = around(Scale(0.5))
    extra = layers.Dense(3)
    extra.build((None, 4))
    case.model.extra = extra
    case.model.heads = {"a": [layers.Dense(2, name="unbuilt")]}
    return case


@case("custom/variable_outside_the_graph")
def _():
    case = around(Scale(0.5))
    case.model.temperature = keras.Variable(2.0, name="temperature")
    return case


@case("custom/properties")
def _():
    class WithProperty(layers.Layer):
        def __init__(self):
            super().__init__()
            self._factor = 2.0

        @property
        def factor(self):
            return self._factor

        @factor.setter
        def factor(self, value):
            self._factor = float(value)

        def call(self, x):
            return x * self.factor

    layer = WithProperty()
    layer.factor = 3
    return around(layer)


@case("custom/slots")
def _():
    class Slotted(layers.Layer):
        __slots__ = ("factor",)

        def __init__(self):
            super().__init__()
            object.__setattr__(self, "factor", 2.5)

        def call(self, x):
            return x * self.factor

    return around(Slotted())


@case("custom/overridden_setattr")
def _():
    class Logs(layers.Layer):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name.startswith("tag_"):
                super().__setattr__("last_tag", name)

        def call(self, x):
            return x

    layer = Logs()
    layer.tag_one = 1
    return around(layer)


@case("custom/overridden_getattr")
def _():
    class Delegates(layers.Layer):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            if name.startswith("inner_"):
                return getattr(self.inner, name.removeprefix("inner_"))
            return super().__getattr__(name)

        def call(self, x):
            return self.inner(x) * self.inner_units

    inner = layers.Dense(4)
    inner.build((None, 4))
    return around(Delegates(inner))


@case("custom/wrapper")
def _():
    class Residual(layers.Wrapper):
        def call(self, x):
            return x + self.layer(x)

        def compute_output_shape(self, shape):
            return shape

    return around(Residual(layers.Dense(4)))


@case("custom/takes_a_layer_and_a_function")
def _():
    class Applies(layers.Layer):
        def __init__(self, layer, function):
            super().__init__()
            self.layer, self.function = layer, function

        def build(self, shape):
            self.layer.build(shape)

        def call(self, x):
            return self.function(self.layer(x))

    return around(Applies(layers.Dense(4), ops.tanh))


@case("custom/compute_output_spec")
def _():
    class Declared(layers.Layer):
        def call(self, x):
            return {"wide": ops.concatenate([x, x], axis=-1)}

        def compute_output_spec(self, x):
            wide = (*x.shape[:-1], 2 * x.shape[-1])
            return {"wide": keras.KerasTensor(wide, x.dtype)}

    x = keras.Input((4,))
    return Case(keras.Model(x, Declared()(x)["wide"]), floats(4))


@case("custom/operation")
def _():
    class Halve(keras.Operation):
        def __init__(self, by=2.0):
            super().__init__(name="halve")
            self.by = by

        def call(self, x):
            return x / self.by

        def compute_output_spec(self, x):
            return keras.KerasTensor(x.shape, x.dtype)

    x = keras.Input((4,))
    y = layers.Dense(2)(Halve()(x))
    return learns(keras.Model(x, y), floats(4), floats(2))

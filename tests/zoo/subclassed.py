"""Models that are classes: constructors, containers and training loops."""

import collections

import keras
from keras import layers, ops

from .data import floats
from .registry import Case, case, learns


class Width(keras.Model):
    """No `get_config`, and a default that is not what it is given."""

    def __init__(self, width=3):
        super().__init__()
        self.dense = layers.Dense(width)

    def call(self, x):
        return self.dense(x)


class KeywordOnly(keras.Model):
    def __init__(self, *, width, activation="relu"):
        super().__init__(name="keyword_only")
        self.dense = layers.Dense(width, activation=activation)

    def call(self, x):
        return self.dense(x)


class PositionalOnly(keras.Model):
    def __init__(self, width, scale=1.0, /):
        super().__init__()
        self.dense = layers.Dense(width)
        self.scale = scale

    def call(self, x):
        return self.scale * self.dense(x)


class Variadic(keras.Model):
    def __init__(self, *widths, **options):
        super().__init__()
        self.stack = [layers.Dense(width, **options) for width in widths]

    def call(self, x):
        for layer in self.stack:
            x = layer(x)
        return x


class ForgetsItsArguments(keras.Model):
    """Keeps nothing of what it was given, not even under another name."""

    def __init__(self, function, shape):
        super().__init__()
        self.dense = layers.Dense(function(*shape))

    def call(self, x):
        return self.dense(x)


class WithConfig(keras.Model):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.dense = layers.Dense(width)

    def call(self, x):
        return self.dense(x)

    def get_config(self):
        return {**super().get_config(), "width": self.width}


class WithBuild(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.width = width

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.width))
        self.dense = layers.Dense(self.width)
        self.dense.build((*shape[:-1], self.width))
        self.built = True

    def call(self, x):
        return self.dense(ops.matmul(x, self.kernel))


class Containers(keras.Model):
    """Layers in each kind of container that is tracked, and some that nest."""

    def __init__(self):
        super().__init__()
        self.in_list = [layers.Dense(4)]
        self.in_dict = {"one": layers.Dense(4), 2: layers.Dense(4)}
        self.in_tuple = (layers.Dense(4), layers.ReLU())
        self.in_set = {layers.Dense(4)}
        self.nested = [{"pair": (layers.Dense(4), [layers.Dense(4)])}]
        self.ordered = collections.OrderedDict(b=layers.Dense(4), a=None)
        self.mixed = ["label", 3, layers.Dense(4), None]

    def call(self, x):
        pair, (last,) = self.nested[0]["pair"]
        for layer in (
            *self.in_list,
            *self.in_dict.values(),
            *self.in_tuple,
            *self.in_set,
            pair,
            last,
            self.ordered["b"],
            self.mixed[2],
        ):
            x = layer(x)
        return x


class HoldsAFunctional(keras.Model):
    def __init__(self):
        super().__init__()
        x = keras.Input((4,))
        self.trunk = keras.Model(x, layers.Dense(4, activation="relu")(x))
        self.head = keras.Sequential([keras.Input((4,)), layers.Dense(2)])

    def call(self, x):
        return self.head(self.trunk(x))


class Inner(keras.Model):
    def __init__(self, owner=None):
        super().__init__()
        self.dense = layers.Dense(4)
        self.width = 4

    def call(self, x, training=False):
        return self.dense(x) if training else -self.dense(x)


class Outer(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = Inner(), Inner()
        self.again = self.first

    def call(self, x, training=False):
        x = self.first(x, training=training)
        return self.again(self.second(x), training=training)


class ManyArguments(keras.Model):
    """A call with a nest, with options and with a mask."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, inputs, scale=2.0, training=None, mask=None):
        left, right = inputs["pair"]
        return {"y": self.dense(left + right) * scale, "left": left}


class Base(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.dense = layers.Dense(width)


class Mixin:
    factor = 2.0

    def scaled(self, x):
        return self.factor * x


class Derived(Mixin, Base):
    factor = 3.0

    def __init__(self):
        super().__init__(4)
        self.head = layers.Dense(2)

    def call(self, x):
        return self.head(self.scaled(self.dense(x)))


def _called(model, width):
    model(floats(4))
    return learns(model, floats(4), floats(width))


@case("subclassed/default_argument_changed")
def _():
    return _called(Width(4), 4)


@case("subclassed/keyword_only")
def _():
    return _called(KeywordOnly(width=2, activation="tanh"), 2)


@case("subclassed/positional_only")
def _():
    return _called(PositionalOnly(2, 0.5), 2)


@case("subclassed/variadic")
def _():
    return _called(Variadic(5, 3, use_bias=False), 3)


@case("subclassed/forgets_its_arguments")
def _():
    return _called(ForgetsItsArguments(lambda a, b: a + b, (1, 2)), 3)


@case("subclassed/with_config")
def _():
    return _called(WithConfig(2, name="configured"), 2)


@case("subclassed/with_build")
def _():
    model = WithBuild(3)
    model.build((None, 4))
    return learns(model, floats(4), floats(3))


@case("subclassed/containers")
def _():
    return _called(Containers(), 4)


@case("subclassed/holds_a_functional")
def _():
    return _called(HoldsAFunctional(), 2)


@case("subclassed/models_in_models")
def _():
    return _called(Outer(), 4)


@case("subclassed/inheritance")
def _():
    return _called(Derived(), 2)


@case("subclassed/many_arguments")
def _():
    model = ManyArguments()
    inputs = {"pair": [floats(4), floats(4, seed=1)]}
    model(inputs)
    return Case(model, inputs)


@case("subclassed/unbuilt")
def _():
    return Case(Width(4), floats(4))


@case("subclassed/unbuilt_with_build")
def _():
    return Case(WithBuild(4), floats(4))


@case("subclassed/partly_built")
def _():
    class Lazy(keras.Model):
        def __init__(self):
            super().__init__()
            self.used, self.unused = layers.Dense(2), layers.Dense(9)

        def call(self, x):
            return self.used(x)

    return _called(Lazy(), 2)


@case("subclassed/in_a_functional")
def _():
    x = keras.Input((4,))
    y = Inner()(layers.Dense(4)(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("subclassed/in_a_sequential")
def _():
    model = keras.Sequential([keras.Input((4,)), Inner(), layers.Dense(2)])
    return learns(model, floats(4), floats(2))


@case("subclassed/called_on_an_input")
def _():
    model = Width(2)
    model(keras.Input((4,)))
    return learns(model, floats(4), floats(2))


@case("subclassed/a_list_that_grows")
def _():
    model = Variadic(4, 4)
    model.stack.append(layers.Dense(2))
    return _called(model, 2)


@case("subclassed/points_at_its_parent")
def _():
    class Child(layers.Layer):
        def __init__(self, parent):
            super().__init__()
            self.parents = [lambda: parent]

        def call(self, x):
            return x * self.parents[0]().factor

    class Parent(keras.Model):
        def __init__(self):
            super().__init__()
            self.factor = 2.0
            self.dense = layers.Dense(4)
            self.child = Child(self)

        def call(self, x):
            return self.child(self.dense(x))

    return _called(Parent(), 4)


@case("subclassed/class_from_a_function")
def _():
    def make(width):
        class Local(keras.Model):
            def __init__(self):
                super().__init__()
                self.dense = layers.Dense(width)

            def call(self, x):
                return self.dense(x) * width

        return Local

    return _called(make(3)(), 3)


@case("subclassed/several_outputs")
def _():
    class Heads(keras.Model):
        def __init__(self):
            super().__init__()
            self.heads = {"a": layers.Dense(2), "b": layers.Dense(3)}

        def call(self, x):
            return {name: head(x) for name, head in self.heads.items()}

    model = Heads()
    model(floats(4))
    return learns(model, floats(4), {"a": floats(2), "b": floats(3)})

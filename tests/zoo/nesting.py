"""Models inside models, and every way to make a Sequential."""

import keras
from keras import layers

from .data import floats
from .registry import Case, case, learns


class Doubled(keras.Sequential):
    """A subclass of Sequential with a call of its own."""

    def call(self, x, training=None, mask=None):
        return 2.0 * super().call(x, training=training, mask=mask)


class Tower(keras.Sequential):
    """A subclass of Sequential with a constructor of its own."""

    def __init__(self, width, depth=1):
        super().__init__([layers.Dense(width) for _ in range(depth)])
        self.width = width


def _functional(width=4, name=None):
    x = keras.Input((4,))
    y = layers.Dense(width, activation="tanh")(x)
    return keras.Model(x, y, name=name)


def _sequential(width=4, *rest):
    return keras.Sequential([keras.Input((4,)), layers.Dense(width), *rest])


def _around(inner, width=4):
    x = keras.Input((4,))
    return learns(keras.Model(x, inner(x)), floats(4), floats(width))


@case("nesting/functional_in_functional")
def _():
    return _around(_functional())


@case("nesting/sequential_in_functional")
def _():
    return _around(_sequential(3), 3)


@case("nesting/functional_in_sequential")
def _():
    return learns(_sequential(4, _functional(2)), floats(4), floats(2))


@case("nesting/sequential_in_sequential")
def _():
    return learns(_sequential(4, _sequential(2)), floats(4), floats(2))


@case("nesting/unbuilt_sequential_in_functional")
def _():
    return _around(keras.Sequential([layers.Dense(3), layers.ReLU()]), 3)


@case("nesting/four_deep")
def _():
    model = _functional()
    for depth in range(4):
        x = keras.Input((4,))
        y = layers.Add()([layers.Dense(4)(x), model(x)])
        model = keras.Model(x, y, name=f"level_{depth}")
    return learns(model, floats(4), floats(4))


@case("nesting/same_model_twice")
def _():
    inner = _functional()
    x = keras.Input((4,))
    return learns(keras.Model(x, inner(inner(x))), floats(4), floats(4))


@case("nesting/same_model_on_two_inputs")
def _():
    inner = _functional()
    a, b = keras.Input((4,)), keras.Input((4,))
    model = keras.Model([a, b], layers.Add()([inner(a), inner(b)]))
    return learns(model, [floats(4), floats(4, seed=1)], floats(4))


@case("nesting/several_inputs_and_outputs")
def _():
    a, b = keras.Input((4,)), keras.Input((4,))
    inner = keras.Model([a, b], [layers.Dense(2)(a), layers.Add()([a, b])])
    x = keras.Input((4,))
    first, second = inner([x, layers.Dense(4)(x)])
    model = keras.Model(x, [second, first])
    return learns(model, floats(4), [floats(4), floats(2)])


@case("nesting/dict_model_in_functional")
def _():
    x = {"a": keras.Input((4,), name="a"), "b": keras.Input((4,), name="b")}
    inner = keras.Model(x, {"sum": layers.Add()([x["a"], x["b"]])})
    y = keras.Input((4,))
    outer = inner({"a": y, "b": layers.Dense(4)(y)})
    return learns(keras.Model(y, outer["sum"]), floats(4), floats(4))


@case("nesting/called_outside_as_well")
def _():
    inner = _functional()
    inner(keras.Input((4,)))
    case = _around(inner)
    inner(keras.Input((4,)))
    return case


@case("nesting/outer_reads_an_inner_tensor")
def _():
    base = _functional()
    y = layers.Dense(2)(base.output)
    return learns(keras.Model(base.input, y), floats(4), floats(2))


@case("nesting/layers_of_another_model_reused")
def _():
    base = _sequential(4, layers.ReLU(), layers.Dense(4))
    x = y = keras.Input((4,))
    for layer in base.layers[::-1]:
        y = layer(y)
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("nesting/inner_with_training_true")
def _():
    inner = _sequential(4, layers.Dropout(0.5, seed=1))
    x = keras.Input((4,))
    return learns(keras.Model(x, inner(x, training=True)), floats(4), floats(4))


@case("nesting/inner_with_training_false")
def _():
    inner = _sequential(4, layers.BatchNormalization())
    x = keras.Input((4,))
    return learns(keras.Model(x, inner(x, training=False)), floats(4), floats(4))


@case("nesting/same_names_at_two_levels")
def _():
    x = keras.Input((4,), name="x")
    inner = keras.Model(x, layers.Dense(4, name="dense")(x), name="same")
    x = keras.Input((4,), name="x")
    y = layers.Dense(4, name="dense")(inner(x))
    return learns(keras.Model(x, y, name="same"), floats(4), floats(4))


@case("nesting/shared_inner_in_two_branches")
def _():
    inner = _functional()
    left = keras.Sequential([keras.Input((4,)), inner, layers.Dense(2)])
    right = keras.Sequential([keras.Input((4,)), inner])
    x = keras.Input((4,))
    model = keras.Model(x, [left(x), right(x)])
    return learns(model, floats(4), [floats(2), floats(4)])


@case("sequential/built")
def _():
    return learns(_sequential(5, layers.Dense(2)), floats(4), floats(2))


@case("sequential/named_layers")
def _():
    model = keras.Sequential(name="pipeline")
    model.add(keras.Input((4,), name="entry", dtype="float32"))
    model.add(layers.Dense(3, name="first"))
    model.add(layers.Dense(2, name="second"))
    return learns(model, floats(4), floats(2))


@case("sequential/with_an_input_layer")
def _():
    entry = layers.InputLayer(shape=(4,), batch_size=3, name="entry")
    return learns(keras.Sequential([entry, layers.Dense(2)]), floats(4), floats(2))


@case("sequential/unbuilt")
def _():
    return Case(keras.Sequential([layers.Dense(3), layers.Dense(2)]), floats(4))


@case("sequential/empty")
def _():
    return Case(keras.Sequential())


@case("sequential/only_an_input")
def _():
    return Case(keras.Sequential([keras.Input((4,))]))


@case("sequential/built_by_a_call")
def _():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    model(floats(4))
    return learns(model, floats(4), floats(2))


@case("sequential/built_by_build")
def _():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    model.build((None, 4))
    return learns(model, floats(4), floats(2))


@case("sequential/popped")
def _():
    model = _sequential(3, layers.Dense(2))
    model.pop()
    return learns(model, floats(4), floats(3))


@case("sequential/popped_and_extended")
def _():
    model = _sequential(3, layers.Dense(2))
    model.pop()
    model.add(layers.Dense(5))
    return learns(model, floats(4), floats(5))


@case("sequential/extended_after_a_call")
def _():
    model = _sequential(3)
    model(floats(4))
    model.add(layers.Dense(2))
    return learns(model, floats(4), floats(2))


@case("sequential/cannot_be_symbolic")
def _():
    class PerRow(layers.Layer):
        """Its output shape depends on values, so no graph can be drawn."""

        def call(self, x):
            if isinstance(x, keras.KerasTensor):
                raise NotImplementedError
            return x[:1]

    return Case(keras.Sequential([layers.Dense(2), PerRow()]), floats(4))


@case("sequential/subclass_with_a_call")
def _():
    model = Doubled([keras.Input((4,)), layers.Dense(2)])
    return learns(model, floats(4), floats(2))


@case("sequential/subclass_with_a_constructor")
def _():
    model = Tower(3, depth=2)
    model.build((None, 4))
    return learns(model, floats(4), floats(3))


@case("sequential/subclass_nested")
def _():
    return _around(Tower(2), 2)


@case("sequential/with_extra_attributes")
def _():
    model = _sequential(3)
    model.labels = ["a", "b", "c"]
    model.extra = layers.Dense(2)
    model.extra.build((None, 3))
    return learns(model, floats(4), floats(3))


@case("sequential/as_a_feature_extractor")
def _():
    base = _sequential(3, layers.ReLU(), layers.Dense(2))
    model = keras.Model(base.inputs[0], [layer.output for layer in base.layers])
    return Case(model, floats(4))

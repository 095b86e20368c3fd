"""What goes in and what comes out: nests, dtypes, sparse, ragged, optional."""

import collections

import keras
import numpy as np
from keras import layers, ops

from .data import BATCH, floats, ints
from .registry import Case, case, learns

Pair = collections.namedtuple("Pair", ["left", "right"])


class OptionalAdd(layers.Layer):
    """Adds what it is given, if anything."""

    def call(self, x, extra=None):
        return x if extra is None else x + extra

    def compute_output_shape(self, x_shape, extra_shape=None):
        return x_shape


@case("structures/two_inputs")
def _():
    a, b = keras.Input((4,)), keras.Input((3,))
    y = layers.Dense(2)(layers.Concatenate()([a, b]))
    return learns(keras.Model([a, b], y), [floats(4), floats(3)], floats(2))


@case("structures/two_outputs")
def _():
    x = keras.Input((4,))
    heads = [layers.Dense(2)(x), layers.Dense(3)(x)]
    return learns(keras.Model(x, heads), floats(4), [floats(2), floats(3)])


@case("structures/list_of_one")
def _():
    x = keras.Input((4,))
    return learns(keras.Model([x], [layers.Dense(2)(x)]), [floats(4)], [floats(2)])


@case("structures/two_inputs_two_outputs")
def _():
    a, b = keras.Input((4,)), keras.Input((4,))
    hidden = layers.Dense(4)(layers.Add()([a, b]))
    model = keras.Model([a, b], [layers.Dense(2)(hidden), hidden])
    return learns(model, [floats(4), floats(4, seed=1)], [floats(2), floats(4)])


@case("structures/tuple_in_tuple_out")
def _():
    a, b = keras.Input((4,)), keras.Input((3,))
    model = keras.Model((a, b), (layers.Dense(2)(a), layers.Dense(2)(b)))
    return Case(model, (floats(4), floats(3)))


@case("structures/dict_in")
def _():
    x = {
        "left": keras.Input((4,), name="left"),
        "right": keras.Input((3,), name="right"),
    }
    y = layers.Dense(2)(layers.Concatenate()([x["left"], x["right"]]))
    return learns(keras.Model(x, y), {"left": floats(4), "right": floats(3)}, floats(2))


@case("structures/dict_in_named_otherwise")
def _():
    x = {
        "left": keras.Input((4,), name="first"),
        "right": keras.Input((3,), name="second"),
    }
    y = layers.Dense(2)(layers.Concatenate()([x["left"], x["right"]]))
    return Case(keras.Model(x, y), {"left": floats(4), "right": floats(3)})


@case("structures/dict_out")
def _():
    x = keras.Input((4,))
    heads = {"z": layers.Dense(2)(x), "a": layers.Dense(3)(x)}
    return learns(keras.Model(x, heads), floats(4), {"z": floats(2), "a": floats(3)})


@case("structures/dict_in_dict_out")
def _():
    x = {"b": keras.Input((4,), name="b"), "a": keras.Input((4,), name="a")}
    shared = layers.Dense(2)
    model = keras.Model(x, {"sum": shared(x["a"]), "raw": shared(x["b"])})
    return learns(
        model,
        {"b": floats(4), "a": floats(4, seed=1)},
        {"sum": floats(2), "raw": floats(2, seed=1)},
    )


@case("structures/ordered_dict")
def _():
    x = collections.OrderedDict(
        second=keras.Input((4,), name="second"),
        first=keras.Input((3,), name="first"),
    )
    y = collections.OrderedDict(
        late=layers.Dense(2)(x["second"]), early=layers.Dense(2)(x["first"])
    )
    inputs = collections.OrderedDict(second=floats(4), first=floats(3))
    return Case(keras.Model(x, y), inputs)


@case("structures/namedtuple")
def _():
    x = Pair(keras.Input((4,)), keras.Input((3,)))
    model = keras.Model(x, Pair(layers.Dense(2)(x.right), layers.ReLU()(x.left)))
    return Case(model, Pair(floats(4), floats(3)))


@case("structures/nested")
def _():
    x = {
        "pair": [keras.Input((4,)), keras.Input((3,))],
        "deep": {"only": (keras.Input((2,)),)},
    }
    joined = layers.Concatenate()([*x["pair"], *x["deep"]["only"]])
    y = {"deep": [layers.Dense(2)(joined), (layers.Dense(1)(joined),)]}
    inputs = {
        "pair": [floats(4), floats(3)],
        "deep": {"only": (floats(2),)},
    }
    return Case(keras.Model(x, y), inputs)


@case("structures/unused_input")
def _():
    a, b = keras.Input((4,)), keras.Input((3,))
    model = keras.Model([a, b], layers.Dense(2)(a))
    return learns(model, [floats(4), floats(3)], floats(2))


@case("structures/layer_takes_a_dict")
def _():
    class Merge(layers.Layer):
        def call(self, named):
            return {"sum": named["a"] + named["b"], "a": named["a"]}

    a, b = keras.Input((4,)), keras.Input((4,))
    merged = Merge()({"a": a, "b": b})
    model = keras.Model([a, b], layers.Add()([merged["sum"], merged["a"]]))
    return Case(model, [floats(4), floats(4, seed=1)])


@case("structures/optional_input_given")
def _():
    x, extra = keras.Input((4,)), keras.Input((4,), optional=True)
    y = layers.Dense(2)(OptionalAdd()(x, extra))
    return learns(keras.Model([x, extra], y), [floats(4), floats(4)], floats(2))


@case("structures/optional_input_missing")
def _():
    x, extra = keras.Input((4,)), keras.Input((4,), optional=True)
    y = layers.Dense(2)(OptionalAdd()(x, extra))
    return Case(keras.Model([x, extra], y), [floats(4), None])


@case("structures/optional_input_missing_by_name")
def _():
    x = {
        "x": keras.Input((4,), name="x"),
        "extra": keras.Input((4,), name="extra", optional=True),
    }
    y = layers.Dense(2)(OptionalAdd()(x["x"], extra=x["extra"]))
    return Case(keras.Model(x, y), {"x": floats(4), "extra": None})


@case("structures/sparse_input_jax", backends=("jax",))
def _():
    from jax.experimental import sparse

    x = keras.Input((4,), sparse=True)
    model = keras.Model(x, layers.Dense(2)(x))
    return Case(model, sparse.BCOO.fromdense(np.eye(BATCH, 4, dtype="float32")))


@case("structures/sparse_input_tensorflow", backends=("tensorflow",))
def _():
    import tensorflow as tf

    x = keras.Input((4,), sparse=True)
    model = keras.Model(x, layers.Dense(2)(x))
    dense = tf.eye(BATCH, 4)
    return learns(model, tf.sparse.from_dense(dense), floats(2))


@case("structures/ragged_input", backends=("tensorflow",))
def _():
    import tensorflow as tf

    x = keras.Input((None, 4), ragged=True)
    dense = layers.Lambda(lambda rows: rows.to_tensor(), output_shape=(None, 4))
    model = keras.Model(x, layers.Dense(2)(dense(x)))
    rows = tf.RaggedTensor.from_row_lengths(tf.ones((6, 4)), [1, 3, 2])
    return Case(model, rows)


@case("structures/fixed_batch_size")
def _():
    x = keras.Input(batch_shape=(BATCH, 4))
    model = keras.Model(x, layers.Dense(2)(x))
    return learns(model, floats(4), floats(2))


@case("structures/unknown_sizes")
def _():
    x = keras.Input((None, None, 2))
    y = layers.Conv2D(3, 3, padding="same")(x)
    return learns(keras.Model(x, y), floats(5, 4, 2), floats(5, 4, 3))


@case("structures/unknown_batch_known_later")
def _():
    x = keras.Input((4,), batch_size=None)
    return Case(keras.Model(x, layers.Dense(2)(x)), floats(4)[:1])


@case("structures/scalar_output")
def _():
    x = keras.Input((4,))
    return Case(keras.Model(x, ops.mean(layers.Dense(2)(x))), floats(4))


@case("structures/int_input")
def _():
    x = keras.Input((4,), dtype="int32")
    y = layers.Dense(2)(ops.one_hot(x, 5))
    return learns(keras.Model(x, y), ints(5, 4), floats(4, 2))


@case("structures/uint8_image")
def _():
    x = keras.Input((5, 5, 1), dtype="uint8")
    y = layers.Flatten()(layers.Rescaling(1 / 255)(x))
    model = keras.Model(x, layers.Dense(2)(y))
    return learns(model, ints(256, 5, 5, 1, dtype="uint8"), floats(2))


@case("structures/bool_input")
def _():
    x, keep = keras.Input((4,)), keras.Input((4,), dtype="bool")
    y = layers.Dense(2)(ops.where(keep, x, 0.0))
    return learns(keras.Model([x, keep], y), [floats(4), floats(4) > 0], floats(2))


@case("structures/float16_input")
def _():
    x = keras.Input((4,), dtype="float16")
    y = layers.Dense(2, dtype="float16")(x)
    return Case(keras.Model(x, y), floats(4, dtype="float16"))


@case("structures/float64_input")
def _():
    x = keras.Input((4,), dtype="float64")
    return Case(keras.Model(x, layers.Dense(2)(x)), floats(4))


@case("structures/string_input", backends=("tensorflow",))
def _():
    import tensorflow as tf

    x = keras.Input((), dtype="string")
    size = layers.Lambda(tf.strings.length, output_shape=(), dtype="int32")
    words = np.array(["one", "three", ""])
    return Case(keras.Model(x, size(x)), tf.constant(words))


@case("structures/input_from_a_tensor")
def _():
    like = keras.KerasTensor((None, 4), dtype="float32", name="given")
    x = keras.Input(tensor=like)
    return Case(keras.Model(x, layers.Dense(2)(x)), floats(4))


@case("structures/input_layer_by_hand")
def _():
    entry = layers.InputLayer(shape=(4,), name="entry")
    model = keras.Model(entry.output, layers.Dense(2)(entry.output))
    return learns(model, floats(4), floats(2))

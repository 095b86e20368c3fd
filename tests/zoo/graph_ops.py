"""Operations called on symbolic tensors, without a layer around them."""

import keras
import numpy as np
from keras import layers, ops

from .data import floats, ints
from .registry import Case, case, learns


def _model(function, *shape):
    shape = shape or (4,)
    x = keras.Input(shape)
    return Case(keras.Model(x, function(x)), floats(*shape))


@case("ops/arithmetic")
def _():
    return _model(lambda x: (x + 1.0) * 2.0 - x / 3.0 + x**2 - (x % 2.0))


@case("ops/reverse_operators")
def _():
    return _model(lambda x: (1.0 - x) + 2.0 / (x * x + 1.0) + 2.0 ** (0.1 * x))


@case("ops/unary_operators")
def _():
    return _model(lambda x: -x + abs(x))


@case("ops/matmul_operator")
def _():
    return _model(lambda x: x @ np.ones((4, 2), "float32"))


@case("ops/comparisons")
def _():
    return _model(lambda x: [x > 0.0, x <= 0.5, ops.equal(x, x), ~(x > 0.0)])


@case("ops/slicing")
def _():
    return _model(lambda x: x[:, 1:5:2, ..., None], 6, 2)


@case("ops/negative_and_integer_indices")
def _():
    return _model(lambda x: x[:, -1] + x[:, 0, :] * x[:, -3:-2, 0], 6, 2)


@case("ops/index_by_a_tensor")
def _():
    x, index = keras.Input((6, 2)), keras.Input((1, 1), dtype="int32")
    y = ops.take_along_axis(x, index, axis=1)
    return Case(keras.Model([x, index], y), [floats(6, 2), ints(6, 1, 1)])


@case("ops/einsum")
def _():
    a, b = keras.Input((3, 4)), keras.Input((4, 2))
    y = ops.einsum("bij,bjk->bik", a, b)
    return Case(keras.Model([a, b], y), [floats(3, 4), floats(4, 2)])


@case("ops/split")
def _():
    return _model(lambda x: ops.split(x, 2, axis=-1))


@case("ops/split_and_join_in_another_order")
def _():
    return _model(
        lambda x: ops.concatenate(ops.split(x, [1, 3], axis=-1)[::-1], axis=-1)
    )


@case("ops/unstack_and_stack")
def _():
    return _model(lambda x: ops.stack(ops.unstack(x, axis=1)[::-1], axis=1))


@case("ops/tuple_keywords")
def _():
    return _model(
        lambda x: ops.transpose(ops.expand_dims(x, (1, 2)), axes=(0, 3, 1, 2))
    )


@case("ops/nested_keywords")
def _():
    return _model(
        lambda x: ops.pad(
            x, pad_width=((0, 0), (1, 2)), mode="constant", constant_values=7.0
        )
    )


@case("ops/reductions")
def _():
    return _model(
        lambda x: [
            ops.mean(x, axis=(1, 2)),
            ops.max(x, axis=1, keepdims=True),
            ops.logsumexp(x, axis=-1),
            ops.argmax(x, axis=-1),
        ],
        3,
        2,
    )


@case("ops/several_results")
def _():
    return _model(lambda x: ops.top_k(x, 2))


@case("ops/moments")
def _():
    def standardise(x):
        mean, variance = ops.moments(x, axes=[1], keepdims=True)
        return (x - mean) / ops.sqrt(variance + 1e-3)

    return _model(standardise)


@case("ops/static_shape")
def _():
    return _model(lambda x: ops.reshape(x, (-1, x.shape[1] // 2, 2)))


@case("ops/shape")
def _():
    return _model(lambda x: ops.reshape(x, (-1, ops.shape(x)[1] * 2)), 4, 2)


@case("ops/where")
def _():
    return _model(lambda x: ops.where(x > 0, x, ops.zeros_like(x) - 1.0))


@case("ops/cast")
def _():
    return _model(lambda x: ops.cast(ops.cast(x, "int32"), "float32"))


@case("ops/constant_array")
def _():
    shift = np.arange(4, dtype="float32")
    return _model(lambda x: x * shift + shift)


@case("ops/constant_tensor")
def _():
    shift = ops.convert_to_tensor(np.arange(4, dtype="float32"))
    return _model(lambda x: ops.multiply(x, shift))


@case("ops/one_constant_used_twice")
def _():
    table = np.eye(4, dtype="float32")
    return _model(lambda x: ops.matmul(ops.add(x, table[0]), table) @ table)


@case("ops/concatenation_of_constants")
def _():
    row = np.ones((3, 2), "float32")
    return _model(lambda x: ops.concatenate([row, x, row], axis=-1))


@case("ops/captured_variable")
def _():
    gate = keras.Variable(np.full(4, 0.5, "float32"), name="gate")
    x = keras.Input((4,))
    y = layers.Dense(2)(ops.multiply(x, gate))
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("ops/captured_weight_of_a_layer")
def _():
    x = keras.Input((4,))
    encoder = layers.Dense(3)
    code = encoder(x)
    y = ops.matmul(code, ops.transpose(encoder.kernel))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("ops/cond")
def _():
    # A branch that closes over a symbolic tensor would return it as it is.
    gate = keras.Variable(np.full(4, 0.5, "float32"))
    return _model(
        lambda x: x + ops.cond(ops.sum(x) > 0, lambda: gate + 1.0, lambda: -gate)
    )


@case("ops/while_loop")
def _():
    def grow(x):
        return ops.while_loop(
            lambda i, _: i < 3,
            lambda i, state: (i + 1, state * 1.5),
            (np.int32(0), x),
        )[1]

    x = keras.Input((4,))
    y = layers.Lambda(grow)(x)
    return Case(keras.Model(x, y), floats(4))


@case("ops/symbolic_while_loop")
def _():
    return _model(
        lambda x: ops.while_loop(
            lambda state: ops.sum(ops.abs(state)) < 50.0,
            lambda state: (state * 2.0,),
            (x,),
            maximum_iterations=4,
        )
    )


@case("ops/fori_loop")
def _():
    return _model(lambda x: ops.fori_loop(0, 3, lambda i, s: s + 1.0, x))


@case("ops/scan")
def _():
    return _model(
        lambda x: ops.scan(
            lambda carry, step: (carry + step, carry * step),
            init=ops.sum(x, axis=0),
            xs=x,
        ),
        2,
    )


@case("ops/map")
def _():
    return _model(lambda x: ops.map(lambda row: row * row, x))


@case("ops/vectorized_map")
def _():
    return _model(lambda x: ops.vectorized_map(lambda row: row * 2.0, x))


@case("ops/stop_gradient")
def _():
    x = keras.Input((4,))
    y = layers.Dense(4)(x)
    y = layers.Dense(2)(ops.stop_gradient(y) + 0.1 * y)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("ops/nn")
def _():
    def head(x):
        y = ops.nn.gelu(ops.relu(x), approximate=False)
        return ops.softmax(ops.nn.log_softmax(y), axis=-1)

    return _model(head)


@case("ops/conv")
def _():
    kernel = np.ones((2, 3, 4), "float32")
    return _model(lambda x: ops.conv(x, kernel, 1, "same"), 5, 3)


@case("ops/image_resize")
def _():
    return _model(
        lambda x: ops.image.resize(x, (3, 5), interpolation="nearest"), 4, 4, 2
    )


@case("ops/linalg")
def _():
    return _model(lambda x: ops.det(x) + ops.norm(x, axis=(1, 2)), 3, 3)


@case("ops/rearrange")
def _():
    # Keras multiplies an unknown batch size: it must be given.
    x = keras.Input(batch_shape=(3, 4, 2))
    y = ops.rearrange(x, "b (h w) c -> b c h w", h=2)
    return Case(keras.Model(x, y), floats(4, 2))


@case("ops/gradients_through_a_mixture")
def _():
    x = keras.Input((4,))
    a, b = layers.Dense(4)(x), layers.Dense(4)(x)
    gate = ops.sigmoid(a)
    y = ops.mean(gate * b + (1.0 - gate) * x, axis=-1, keepdims=True)
    return learns(keras.Model(x, y), floats(4), floats(1))


@case("ops/the_same_tensor_in_both_places")
def _():
    return _model(lambda x: ops.add(x, x) * ops.maximum(x, x))


@case("ops/operation_instance_called_twice")
def _():
    softmax = keras.layers.Softmax()
    relu = keras.layers.ReLU()
    return _model(lambda x: softmax(relu(x)) + relu(softmax(x)))

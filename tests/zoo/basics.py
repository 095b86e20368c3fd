"""Functional models of one input: chains, branches, merges and reshapes."""

import keras
from keras import layers

from .data import floats
from .registry import Case, case, learns


def _double(x):
    return 2.0 * x


@case("basics/dense")
def _():
    x = keras.Input((4,))
    return learns(keras.Model(x, layers.Dense(2)(x)), floats(4), floats(2))


@case("basics/mlp")
def _():
    x = keras.Input((4,))
    y = layers.Dense(5, activation="relu")(x)
    y = layers.Dense(2, activation="tanh")(y)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/named")
def _():
    x = keras.Input((4,), name="pixels")
    y = layers.Dense(3, name="encoder_first")(x)
    y = layers.Dense(2, name="logits")(y)
    return learns(keras.Model(x, y, name="classifier"), floats(4), floats(2))


@case("basics/name_scope")
def _():
    x = keras.Input((4,))
    with keras.name_scope("tower"):
        y = layers.Dense(2)(x)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/identity")
def _():
    x = keras.Input((4,))
    return Case(keras.Model(x, x), floats(4))


@case("basics/input_among_outputs")
def _():
    x = keras.Input((4,))
    return Case(keras.Model(x, [x, layers.Dense(2)(x)]), floats(4))


@case("basics/same_output_twice")
def _():
    x = keras.Input((4,))
    y = layers.Dense(2)(x)
    return Case(keras.Model(x, [y, y]), floats(4))


@case("basics/skip_connection")
def _():
    x = keras.Input((4,))
    y = layers.Dense(4, activation="relu")(x)
    y = layers.Add()([x, y])
    return learns(keras.Model(x, layers.Dense(2)(y)), floats(4), floats(2))


@case("basics/every_merge")
def _():
    x = keras.Input((4,))
    a, b = layers.Dense(3)(x), layers.Dense(3)(x)
    kinds = (
        layers.Add(),
        layers.Subtract(),
        layers.Multiply(),
        layers.Average(),
        layers.Maximum(),
        layers.Minimum(),
        layers.Dot(axes=1, normalize=True),
    )
    y = layers.Concatenate()([merge([a, b]) for merge in kinds])
    return learns(keras.Model(x, y), floats(4), floats(19))


@case("basics/every_reshape")
def _():
    x = keras.Input((6, 4))
    y = layers.ZeroPadding1D(1)(x)
    y = layers.Cropping1D((0, 2))(y)
    y = layers.UpSampling1D(2)(y)
    y = layers.Permute((2, 1))(y)
    y = layers.Reshape((2, -1))(y)
    y = layers.Flatten()(y)
    y = layers.RepeatVector(2)(y)
    return Case(keras.Model(x, y), floats(6, 4))


@case("basics/every_image_reshape")
def _():
    x = keras.Input((6, 6, 2))
    y = layers.ZeroPadding2D(((1, 2), (0, 1)))(x)
    y = layers.Cropping2D(1)(y)
    y = layers.UpSampling2D(2, interpolation="bilinear")(y)
    y = layers.Resizing(4, 4)(y)
    y = layers.Rescaling(0.5, offset=1.0)(y)
    y = layers.CenterCrop(3, 3)(y)
    return Case(keras.Model(x, y), floats(6, 6, 2))


@case("basics/every_activation_layer")
def _():
    x = keras.Input((4,))
    y = layers.Dense(4)(x)
    for activation in (
        layers.ReLU(max_value=3.0, negative_slope=0.1),
        layers.LeakyReLU(0.2),
        layers.PReLU(alpha_initializer=keras.initializers.Constant(0.3)),
        layers.ELU(0.7),
        layers.Activation("swish"),
        layers.Activation(keras.activations.log_sigmoid),
        layers.Softmax(axis=-1),
    ):
        y = activation(y)
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("basics/activation_function")
def _():
    x = keras.Input((4,))
    return learns(
        keras.Model(x, layers.Dense(2, activation=_double)(x)),
        floats(4),
        floats(2),
    )


@case("basics/activation_lambda")
def _():
    x = keras.Input((4,))
    y = layers.Dense(2, activation=lambda t: t * t + 1.0)(x)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/activation_is_a_layer")
def _():
    x = keras.Input((4,))
    y = layers.Dense(2, activation=layers.LeakyReLU(0.3))(x)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/activation_is_a_layer_with_weights")
def _():
    x = keras.Input((4,))
    y = layers.Dense(2, activation=layers.PReLU("ones"))(x)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/initializer_instances")
def _():
    x = keras.Input((4,))
    y = layers.Dense(
        4,
        kernel_initializer=keras.initializers.Orthogonal(seed=3),
        bias_initializer=keras.initializers.RandomUniform(seed=4),
    )(x)
    y = layers.Dense(
        2, kernel_initializer=lambda shape, dtype: keras.ops.ones(shape, dtype)
    )(y)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/shared_initializer_seed")
def _():
    seed = keras.random.SeedGenerator(5)
    x = keras.Input((4,))
    y = layers.Dense(4, kernel_initializer=keras.initializers.HeNormal(seed=seed))(x)
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("basics/no_bias")
def _():
    x = keras.Input((4,))
    y = layers.Dense(2, use_bias=False)(x)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/from_an_intermediate_tensor")
def _():
    x = keras.Input((4,))
    hidden = layers.Dense(5)(x)
    y = layers.Dense(2)(hidden)
    return learns(keras.Model(hidden, y), floats(5), floats(2))


@case("basics/feature_extractor")
def _():
    x = keras.Input((4,))
    hidden = layers.Dense(5, activation="relu")(x)
    full = keras.Model(x, layers.Dense(2)(hidden))
    return learns(keras.Model(full.input, full.layers[1].output), floats(4), floats(5))


@case("basics/nodes_outside_the_model")
def _():
    x, other = keras.Input((4,)), keras.Input((4,))
    dense = layers.Dense(2)
    dense(other)
    y = dense(x)
    dense(other)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/unused_branch")
def _():
    x = keras.Input((4,))
    hidden = layers.Dense(4)(x)
    layers.Dense(9)(hidden)
    y = layers.Dense(2)(hidden)
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("basics/two_models_over_the_same_layers")
def _():
    x = keras.Input((4,))
    hidden = layers.Dense(5)(x)
    first = keras.Model(x, layers.Dense(2)(hidden))
    second = keras.Model(x, [hidden, first.output])
    return Case(second, floats(4))


@case("basics/chain_of_60")
def _():
    x = y = keras.Input((4,))
    for _ in range(60):
        y = layers.Dense(4, activation="tanh")(y)
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("basics/residual_chain_of_20")
def _():
    x = y = keras.Input((4,))
    for _ in range(20):
        y = layers.Add()([y, layers.Dense(4, activation="tanh")(y)])
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("basics/densely_connected")
def _():
    x = keras.Input((4,))
    seen = [x]
    for _ in range(5):
        joined = layers.Concatenate()(seen) if len(seen) > 1 else x
        seen.append(layers.Dense(2, activation="relu")(joined))
    return learns(keras.Model(x, seen[-1]), floats(4), floats(2))


@case("basics/rebuilt_by_clone_model")
def _():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(layers.Dense(3)(x)))
    return learns(keras.models.clone_model(model), floats(4), floats(2))


@case("basics/restored_from_config")
def _():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.Dense(2)(layers.Dense(3)(x)))
    return learns(keras.Model.from_config(model.get_config()), floats(4), floats(2))

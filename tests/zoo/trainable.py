"""What is frozen, what is penalised and what is constrained."""

import keras
from keras import constraints, layers, ops, regularizers

from .data import floats, tokens
from .registry import case, compile_quickly, learns


class SumsTo(constraints.Constraint):
    """A constraint of one's own."""

    def __init__(self, total):
        self.total = total

    def __call__(self, w):
        return w * (self.total / (ops.sum(ops.abs(w)) + 1e-3))


class Cubed(regularizers.Regularizer):
    """A regularizer of one's own."""

    def __init__(self, strength):
        self.strength = strength

    def __call__(self, w):
        return self.strength * ops.sum(ops.abs(w) ** 3)


def _penalty(w):
    return 0.1 * ops.sum(ops.abs(w))


def _stack(**second):
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(4, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(2, name="second", **second),
        ]
    )


def _case(model):
    return learns(model, floats(4), floats(2))


def _step(model):
    compile_quickly(model)
    model.train_on_batch(floats(4), floats(2))
    return model


@case("trainable/layer_frozen")
def _():
    model = _stack()
    model.get_layer("first").trainable = False
    return _case(model)


@case("trainable/frozen_at_construction")
def _():
    return _case(_stack(trainable=False))


@case("trainable/frozen_then_thawed")
def _():
    model = _stack()
    model.trainable = False
    model.get_layer("second").trainable = True
    return _case(model)


@case("trainable/batch_norm_frozen")
def _():
    model = _stack()
    model.get_layer("norm").trainable = False
    return _case(model)


@case("trainable/model_frozen_but_one_layer")
def _():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(layers.Dense(4)(x)))
    model.trainable = False
    model.layers[-1].trainable = True
    return _case(model)


@case("trainable/functional_flag_only")
def _():
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(x), trainable=False)
    for layer in model.layers:
        layer.trainable = True
    model.layers[-1].bias.trainable = False
    inner = keras.Input((4,))
    return _case(keras.Model(inner, layers.Dense(2)(model(inner))))


@case("trainable/nested_model_frozen")
def _():
    inner = _stack()
    inner.trainable = False
    x = keras.Input((4,))
    return _case(keras.Model(x, layers.Dense(2)(inner(x))))


@case("trainable/variable_frozen")
def _():
    model = _stack()
    model.get_layer("second").kernel.trainable = False
    return _case(model)


@case("trainable/frozen_before_compile")
def _():
    model = _stack()
    model.get_layer("first").trainable = False
    return _case(_step(model))


@case("trainable/frozen_after_compile")
def _():
    model = _step(_stack())
    model.get_layer("first").trainable = False
    compile_quickly(model, "adam")
    model.train_on_batch(floats(4), floats(2))
    return _case(model)


@case("trainable/weight_made_untrainable")
def _():
    class Half(layers.Layer):
        def build(self, shape):
            self.free = self.add_weight(shape=shape[-1:])
            self.fixed = self.add_weight(shape=shape[-1:], trainable=False)

        def call(self, x):
            return x * self.free + self.fixed

    x = keras.Input((4,))
    return _case(keras.Model(x, layers.Dense(2)(Half()(x))))


@case("regularizers/built_in")
def _():
    return _case(
        _stack(
            kernel_regularizer=regularizers.L1L2(0.01, 0.02),
            bias_regularizer="l2",
            activity_regularizer=regularizers.L1(0.1),
        )
    )


@case("regularizers/orthogonal")
def _():
    return _case(_stack(kernel_regularizer=regularizers.OrthogonalRegularizer(0.1)))


@case("regularizers/own_class")
def _():
    return _case(_stack(kernel_regularizer=Cubed(0.1)))


@case("regularizers/function")
def _():
    return _case(_stack(kernel_regularizer=_penalty))


@case("regularizers/lambda")
def _():
    return _case(_stack(kernel_regularizer=lambda w: 0.1 * ops.sum(w * w)))


@case("regularizers/lambda_over_another_weight")
def _():
    model = _stack()
    first = model.get_layer("first")
    model.get_layer("second").kernel.regularizer = lambda w: ops.sum(
        ops.square(ops.mean(w) - ops.mean(first.kernel))
    )
    return _case(model)


@case("regularizers/set_after_build")
def _():
    model = _stack()
    for weight in model.trainable_weights:
        weight.regularizer = regularizers.L2(0.05)
    return _case(model)


@case("regularizers/one_instance_in_two_layers")
def _():
    shared = regularizers.L2(0.1)
    x = keras.Input((4,))
    y = layers.Dense(4, kernel_regularizer=shared)(x)
    y = layers.Dense(2, kernel_regularizer=shared)(y)
    return _case(keras.Model(x, y))


@case("constraints/built_in")
def _():
    return _case(
        _stack(
            kernel_constraint=constraints.MaxNorm(1.0, axis=0),
            bias_constraint="non_neg",
        )
    )


@case("constraints/own_class")
def _():
    return _case(_stack(kernel_constraint=SumsTo(2.0)))


@case("constraints/lambda")
def _():
    return _case(_stack(kernel_constraint=lambda w: ops.clip(w, -0.3, 0.3)))


@case("constraints/set_after_build")
def _():
    model = _stack()
    model.get_layer("second").kernel.constraint = constraints.UnitNorm()
    return _case(_step(model))


@case("constraints/embedding_and_conv")
def _():
    ids = keras.Input((5,), dtype="int32")
    y = layers.Embedding(
        7,
        4,
        embeddings_constraint=constraints.MinMaxNorm(0.1, 0.5),
        embeddings_regularizer=regularizers.L2(0.1),
    )(ids)
    y = layers.Conv1D(3, 2, kernel_constraint="max_norm")(y)
    return learns(keras.Model(ids, y), tokens(), floats(4, 3))

"""One small edit to a copy, and `diff` names the place; without it, nothing."""

import functools

import keras
import numpy as np
import pytest
from editing import Edits, assert_found, flip_a_bit, put
from keras import layers

import regraft

edits = Edits()


# --- a compiled model ---------------------------------------------------------


@functools.cache
def mlp():
    x = keras.Input((4,), name="x")
    h = layers.Dense(
        3,
        "relu",
        kernel_regularizer=keras.regularizers.L2(0.5),
        bias_constraint=keras.constraints.MaxNorm(2.0),
        name="first",
    )(x)
    h = layers.BatchNormalization(name="norm")(h)
    h = layers.Dropout(0.5, seed=1, name="drop")(h)
    model = keras.Model(x, layers.Dense(2, name="second")(h), name="mlp")
    sgd = keras.optimizers.SGD(0.25, momentum=0.5)
    metrics = [keras.metrics.MeanAbsoluteError(name="mae")]
    model.compile(sgd, "mse", loss_weights=0.5, metrics=metrics, jit_compile=False)
    model.train_on_batch(np.ones((2, 4)), np.ones((2, 2)))
    return model


@edits(mlp, "mlp/first/kernel")
def bit_of_a_weight(model, _):
    flip_a_bit(model.get_layer("first").kernel)


@edits(mlp, "mlp/norm/moving_variance")
def bit_of_a_statistic(model, _):
    flip_a_bit(model.get_layer("norm").moving_variance)


@edits(mlp, "mlp/norm/moving_mean")
def not_a_number(model, _):
    model.get_layer("norm").moving_mean.assign(np.full(3, np.nan))


@edits(mlp, "mlp/norm.momentum")
def momentum_of_statistics(model, _):
    model.get_layer("norm").momentum = 0.9


@edits(mlp, "mlp/first._trainable")
def trainable_of_a_layer(model, _):
    model.get_layer("first").trainable = False


@edits(mlp, "mlp._trainable")
def trainable_of_the_model(model, _):
    model._trainable = False


@edits(mlp, "mlp/first/kernel._trainable")
def trainable_of_a_variable(model, _):
    model.get_layer("first").kernel.trainable = False


@edits(mlp, "mlp/drop.rate")
def rate(model, _):
    model.get_layer("drop").rate = 0.25


@edits(mlp, "mlp/first.activation")
def activation(model, _):
    model.get_layer("first").activation = keras.activations.gelu


@edits(mlp, "mlp/second.activation")
def activation_argument(model, _):
    leaky = functools.partial(keras.activations.relu, negative_slope=0.1)
    model.get_layer("second").activation = leaky


@edits(mlp, "mlp/second.name")
def name_of_a_layer(model, _):
    model.get_layer("second").name = "third"


@edits(mlp, "mlp.name")
def name_of_the_model(model, _):
    model.name = "other"


@edits(mlp, "mlp/first/kernel._name")
def name_of_a_variable(model, _):
    model.get_layer("first").kernel._name = "matrix"


@edits(mlp, "mlp/first.kernel_initializer")
def initializer(model, _):
    model.get_layer("first").kernel_initializer = keras.initializers.Zeros()


@edits(mlp, "mlp/first.kernel_regularizer.l2")
def regularizer_of_a_layer(model, _):
    # The variable holds the same object, so this path is the first to it.
    model.get_layer("first").kernel_regularizer = keras.regularizers.L2(0.25)


@edits(mlp, "mlp/second/kernel._regularizer")
def regularizer_of_a_variable(model, _):
    model.get_layer("second").kernel.regularizer = keras.regularizers.L1(0.1)


@edits(mlp, "mlp/first/bias._constraint.max_value")
def constraint_of_a_variable(model, _):
    model.get_layer("first").bias.constraint = keras.constraints.MaxNorm(3.0)


@edits(mlp, "mlp/drop.seed_generator.state")
def state_of_a_random_stream(model, _):
    model.get_layer("drop").seed_generator.next()


@edits(mlp, "mlp/drop.seed_generator._initial_seed")
def seed_of_a_random_stream(model, _):
    model.get_layer("drop").seed_generator._initial_seed = 2


@edits(mlp, "mlp._compile_metrics")
def state_of_a_metric(model, _):
    model.metrics[1].update_state(np.ones((1, 2)), np.zeros((1, 2)))


@edits(mlp, "mlp._loss_tracker")
def state_of_the_loss(model, _):
    model.metrics[0].reset_state()


@edits(mlp, "mlp.optimizer")
def learning_rate(model, _):
    model.optimizer.learning_rate = 0.125


@edits(mlp, "mlp.optimizer.momentum")
def optimizer_argument(model, _):
    model.optimizer.momentum = 0.75


@edits(mlp, "mlp.optimizer._iterations")
def iterations(model, _):
    model.optimizer.iterations.assign(7)


@edits(mlp, "mlp.optimizer")
def slot_of_the_optimizer(model, _):
    flip_a_bit(model.optimizer.momentums[0])


@edits(mlp, "mlp.optimizer.clipnorm")
def clipping(model, _):
    model.optimizer.clipnorm = 1.0


@edits(mlp, "mlp.loss")
def loss(model, _):
    model.loss = "mae"


@edits(mlp, "mlp._compile_loss._user_loss")
def loss_that_is_used(model, _):
    model._compile_loss._user_loss = "mae"


@edits(mlp, "mlp._compile_loss._user_loss_weights")
def loss_weight(model, _):
    model._compile_loss._user_loss_weights = 0.75


@edits(mlp, "mlp._jit_compile")
def jit_compile(model, _):
    model._jit_compile = True


@edits(mlp, "mlp._run_eagerly")
def run_eagerly(model, _):
    model.run_eagerly = True


@edits(mlp, "mlp.steps_per_execution")
def steps_per_execution(model, _):
    model.steps_per_execution = 2


@edits(mlp, "mlp.compiled")
def not_compiled(model, _):
    model.compiled = False


@edits(mlp, "mlp/first._dtype_policy")
def dtype_policy(model, _):
    policy = keras.DTypePolicy("mixed_bfloat16")
    model.get_layer("first")._dtype_policy = policy


@edits(mlp, "mlp/first/kernel")
def dtype_of_a_variable(model, _):
    kernel = model.get_layer("first").kernel
    kernel._value = keras.ops.cast(kernel._value, "float16")


@edits(mlp, "mlp/first/kernel._autocast")
def autocast_of_a_variable(model, _):
    model.get_layer("first").kernel._autocast = False


@edits(mlp, "mlp/first.autocast")
def autocast(model, _):
    model.get_layer("first").autocast = False


@edits(mlp, "mlp/first._supports_masking")
def supports_masking(model, _):
    model.get_layer("first").supports_masking = False


@edits(mlp, "mlp/first._input_spec.axes")
def input_spec(model, _):
    model.get_layer("first").input_spec.axes[-1] = 5


@edits(mlp, "mlp/drop.built")
def built(model, _):
    model.get_layer("drop").built = False


@edits(mlp, "mlp/drop")
def class_of_a_layer(model, _):
    class Other(layers.Dropout):
        pass

    model.get_layer("drop").__class__ = Other


@edits(mlp, "mlp: number of layers")
def layer_added_outside_of_the_graph(model, _):
    model.extra = layers.Dense(1, name="extra")


# --- what two models may not share --------------------------------------------


@edits(mlp, "mlp/first/kernel")
def shared_buffer(model, original):
    first, theirs = (m.get_layer("first") for m in (model, original))
    first.kernel._value = theirs.kernel._value


@edits(mlp, "mlp/first/kernel")
def shared_variable(model, original):
    kernel = original.get_layer("first").kernel
    first = model.get_layer("first")
    put(first, _kernel=kernel, _trainable_variables=[kernel, first.bias])


@edits(mlp, "mlp/drop.seed_generator")
def shared_random_stream(model, original):
    generator = original.get_layer("drop").seed_generator
    put(model.get_layer("drop"), seed_generator=generator)


@edits(mlp, "mlp.optimizer")
def shared_optimizer(model, original):
    put(model, optimizer=original.optimizer)


@edits(mlp, "mlp/first.kernel_regularizer")
def shared_regularizer(model, original):
    regularizer = original.get_layer("first").kernel_regularizer
    model.get_layer("first").kernel_regularizer = regularizer


# --- the tests ----------------------------------------------------------------


@pytest.mark.parametrize(("build", "change", "where"), edits)
def test_edit_is_found(build, change, where):
    assert_found(build, change, where)


def test_copy_has_no_differences():
    model = mlp()
    assert [str(d) for d in regraft.diff(model, regraft.clone(model))] == []


def test_model_built_twice_has_no_differences():
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    one = mlp.__wrapped__()
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    two = mlp.__wrapped__()
    assert [str(d) for d in regraft.diff(one, two)] == []

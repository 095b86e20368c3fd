"""What only the TensorFlow engine has to mind, to give the numbers of one device."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft

from .models import IMAGES, TABLE, TOKENS, VALUES, compiled, floats
from .test_training import assert_close, assert_equal, numbers, train

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the engine of TensorFlow"
)
SEQUENCES = floats(7, 2)
NOTES = keras.Variable(0.0, name="notes", trainable=False)


def masked_normalization():
    x = keras.Input((7,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True)(x)
    h = layers.BatchNormalization(momentum=0.5)(h)
    return compiled(keras.Model(x, layers.Dense(2)(layers.LSTM(3)(h))))


def masked_outputs():
    """Keras divides the loss by the number of steps that are not masked."""
    x = keras.Input((7,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True)(x)
    return compiled(keras.Model(x, layers.LSTM(2, return_sequences=True)(h)))


def far_from_zero():
    x = keras.Input((5,))
    h = layers.Rescaling(1.0, offset=100.0)(x)
    return compiled(keras.Model(x, layers.Dense(2)(layers.BatchNormalization()(h))))


def renormalized():
    x = keras.Input((8, 8, 3))
    h = layers.BatchNormalization(renorm=True, momentum=0.5)(x)
    return compiled(keras.Model(x, layers.Dense(2)(layers.Flatten()(h))))


def with_optimizer(optimizer, **kwargs):
    def build():
        x = keras.Input((5,))
        h = layers.Dense(4, activation="tanh", kernel_regularizer="l2", **kwargs)(x)
        model = keras.Model(x, layers.Dense(2, dtype="float32")(h))
        model.compile(
            optimizer(), "mse", metrics=[keras.metrics.RootMeanSquaredError()]
        )
        return model

    return build


class Clipping(keras.Model):
    """Looks at gradients itself, and draws noise without a seed of its own."""

    def train_step(self, data):
        import tensorflow as tf

        x, y = data[:2]
        x = x + keras.random.normal(ops.shape(x), stddev=0.01)
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(self(x, training=True) - y))
        weights = self.trainable_weights
        gradients, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 0.1)
        for gradient, weight in zip(gradients, weights, strict=True):
            weight.assign_sub(0.1 * gradient)
        return {"loss": loss, "norm": norm}


def own_update():
    x = keras.Input((5,))
    model = Clipping(x, layers.Dense(2)(layers.Dense(4, activation="tanh")(x)))
    model.compile("sgd", "mse")
    return model


class Twice(keras.Model):
    """Calls a model that it holds, not itself."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner = inner

    def call(self, x, training=False):
        return self.inner(x, training=training)

    def train_step(self, data):
        import tensorflow as tf

        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self.inner(x, training=True))
        gradients = tape.gradient(loss, self.inner.trainable_weights)
        self.optimizer.apply(gradients, self.inner.trainable_weights)
        return {"loss": loss}


def model_in_a_step():
    inner = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(4),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )
    model = Twice(inner)
    model(TABLE)
    return compiled(model, metrics=())


EXACT = {
    "masked_normalization": (masked_normalization, TOKENS, VALUES),
    "masked_outputs": (masked_outputs, TOKENS, SEQUENCES),
    "far_from_zero": (far_from_zero, TABLE, VALUES),
    "renormalized": (renormalized, IMAGES, VALUES),
    "clipnorm": (
        with_optimizer(lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.01)),
        TABLE,
        VALUES,
    ),
    "accumulation": (
        with_optimizer(
            lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        ),
        TABLE,
        VALUES,
    ),
    "averages": (
        with_optimizer(lambda: keras.optimizers.AdamW(0.01, use_ema=True)),
        TABLE,
        VALUES,
    ),
    "scaled_loss": (
        with_optimizer(
            lambda: keras.optimizers.LossScaleOptimizer(
                keras.optimizers.SGD(0.1), initial_scale=8.0, dynamic_growth_steps=3
            )
        ),
        TABLE,
        VALUES,
    ),
    "own_update": (own_update, TABLE, VALUES),
    "model_in_a_step": (model_in_a_step, TABLE, VALUES),
}


@pytest.mark.parametrize("name", EXACT)
def test_three_devices_give_the_numbers_of_one(name):
    build, x, y = EXACT[name]
    model = build()
    one, many = regraft.clone(model), regraft.replicate(model, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.UnsplitBatchWarning)
        histories = []
        for each in (one, many):
            keras.utils.set_random_seed(1)
            # 30 rows: 8, 8, 8 and 6, of which three devices divide the last only.
            histories.append(
                each.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
            )
    assert_close(*histories)
    assert_close(numbers(one), numbers(regraft.gather(many)))


@pytest.mark.parametrize("how", ["eagerly", "several_steps", "generator", "validated"])
def test_every_way_to_run_steps(how):
    x, y = TABLE, VALUES
    model = with_optimizer(lambda: keras.optimizers.Adam(0.01))()
    settings = {
        "eagerly": {"run_eagerly": True},
        "several_steps": {"steps_per_execution": 2},
    }.get(how, {})
    model.compile("adam", "mse", metrics=["mae"], **settings)

    def fit(each):
        data = {"x": x, "y": y, "batch_size": 8}
        if how == "generator":
            data = {"x": ((x[i : i + 8], y[i : i + 8]) for i in range(0, 30, 8))}
        if how == "validated":
            data["validation_data"] = (x[:7], y[:7])
        history = each.fit(**data, shuffle=False, verbose=0).history
        return {**history, "predicted": each.predict(x, batch_size=8, verbose=0)}

    one, many = regraft.clone(model), regraft.replicate(model, 3)
    assert_close(fit(one), fit(many))
    assert_close(numbers(one), numbers(regraft.gather(many)))


def test_metrics_hold_what_they_hold_on_one_device():
    model = with_optimizer(lambda: keras.optimizers.SGD(0.1))()
    model.compile("sgd", "mse", metrics=[keras.metrics.MeanSquaredError()])
    one, many = regraft.clone(model), regraft.replicate(model, 4)
    for each in (one, many):
        train(each, TABLE, VALUES)
    pairs = zip(one.metrics_variables, many.metrics_variables, strict=True)
    for mine, other in pairs:
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-4)
    assert many.metrics_variables[-1].numpy() == 30


def test_random_streams_go_on_as_on_one_device():
    x = keras.Input((5,))
    model = compiled(keras.Model(x, layers.Dense(2)(layers.Dropout(0.5, seed=3)(x))))
    one, many = regraft.clone(model), regraft.replicate(model, 2)
    for each in (one, many):
        each.fit(TABLE, VALUES, batch_size=10, verbose=0)
    states = [
        {v.path: v.numpy() for v in each.non_trainable_variables if "seed" in v.path}
        for each in (one, regraft.gather(many))
    ]
    assert_equal(*states)
    assert next(iter(states[0].values())).tolist() == [3, 3]


class Noisy(layers.Layer):
    """Draws from the stream of the program, not one of its own."""

    def call(self, x):
        return x + keras.random.normal(ops.shape(x))


def test_the_global_stream_is_drawn_from_once_for_all_replicas():
    from keras.src.random.seed_generator import global_seed_generator

    x = keras.Input((5,))
    model = keras.Model(x, Noisy()(x))
    # A step that has been traced stays with the stream that it was traced with.
    many, again = (regraft.replicate(model, 2) for _ in range(2))
    states, runs = [], []
    for each in (regraft.clone(model), many, again):
        keras.utils.set_random_seed(4)
        runs.append(each.predict(np.zeros((2, 5), "float32"), verbose=0))
        states.append({"state": global_seed_generator().state.numpy()})
    assert_equal(*states[:2])
    np.testing.assert_array_equal(runs[1], runs[2])
    first, second = runs[1]
    assert (first != second).all()


def test_a_batch_of_arrays_is_split_in_eager_steps():
    model = with_optimizer(lambda: keras.optimizers.SGD(0.1))()
    model.compile("sgd", "mse", run_eagerly=True)
    one, many = regraft.clone(model), regraft.replicate(model, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.UnsplitBatchWarning)
        mine, other = (m.train_on_batch(TABLE[:5], VALUES[:5]) for m in (one, many))
    np.testing.assert_allclose(mine, other, rtol=1e-5)
    assert_close(numbers(one), numbers(regraft.gather(many)))


def test_layers_are_left_as_they_were(tmp_path):
    model = masked_normalization()
    many = regraft.replicate(model, 2)
    train(many, TOKENS, VALUES)
    (norm,) = [x for x in many.layers if hasattr(x, "synchronized")]
    assert norm.synchronized is False
    assert "call" not in vars(norm)
    assert many.template.distribute_strategy.num_replicas_in_sync == 1
    back = regraft.gather(many)
    assert type(back.optimizer._distribution_strategy).__name__.startswith("_Default")
    many.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.get_layer(norm.name).synchronized is False


def test_optimizers_and_metrics_that_come_with_compile_are_mirrored():
    model = with_optimizer(lambda: keras.optimizers.SGD(0.1))()
    one, many = regraft.clone(model), regraft.replicate(model, 2)
    for each in (one, many):
        each.compile(
            keras.optimizers.Adam(0.01),
            "mse",
            metrics=[keras.metrics.MeanAbsoluteError()],
        )
    assert_close(train(one, TABLE, VALUES), train(many, TABLE, VALUES))
    assert many.optimizer.iterations.numpy() == 6
    back = regraft.gather(many)
    assert back.metrics_variables[-1].numpy() == one.metrics_variables[-1].numpy()
    mine, other = ([*m.weights, *m.optimizer.variables] for m in (one, back))
    for left, right in zip(mine, other, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), rtol=2e-4, atol=2e-5)


def test_a_step_that_changes_a_variable_of_others_is_refused():
    class Noting(keras.Model):
        def train_step(self, data):
            NOTES.assign_add(1.0)
            return super().train_step(data)

    x = keras.Input((5,))
    many = regraft.replicate(compiled(Noting(x, layers.Dense(2)(x))), 2)
    with pytest.raises(regraft.UsageError) as error:
        many.fit(TABLE, VALUES, verbose=0)
    assert "A step changes a variable that does not lie on the replicas." in str(
        error.value
    )
    assert "where: notes" in str(error.value)


def test_a_dataset_that_is_distributed_already_is_refused():
    import tensorflow as tf

    many = regraft.replicate(masked_normalization(), 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = tf.data.Dataset.from_tensor_slices((TOKENS, VALUES)).batch(10)
    spread = strategy.experimental_distribute_dataset(dataset)
    with pytest.raises(TypeError, match="A batch is split over the replicas already"):
        many.fit(spread, verbose=0)

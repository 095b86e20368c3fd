"""Compiled and trained models, by their losses, metrics and flags."""

import keras
import numpy as np
from keras import layers, losses, metrics, ops

from .data import BATCH, floats, ints
from .registry import BACKENDS, case, learns


def _model(activation=None):
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(3, activation=activation)(x))


def _two_heads():
    x = keras.Input((4,))
    heads = {
        "a": layers.Dense(3, name="a")(x),
        "b": layers.Dense(2, name="b")(x),
    }
    return keras.Model(x, heads)


def _trained(model, targets, **options):
    model.compile("sgd", **options)
    model.train_on_batch(floats(4), targets)
    return learns(model, floats(4), targets)


def _one_hot():
    return np.eye(3, dtype="float32")[ints(3)]


def _heads(**options):
    return _trained(_two_heads(), {"a": floats(3), "b": floats(2)}, **options)


class Weighted(losses.Loss):
    """A loss of one's own."""

    def __init__(self, weight):
        super().__init__(name="weighted", reduction="sum")
        self.weight = weight

    def call(self, y_true, y_pred):
        return self.weight * ops.mean(ops.abs(y_true - y_pred), axis=-1)


class Largest(metrics.Metric):
    """A metric of one's own."""

    def __init__(self, name="largest", **kwargs):
        super().__init__(name=name, **kwargs)
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(ops.maximum(self.value, ops.max(y_pred)))

    def result(self):
        return ops.convert_to_tensor(self.value)


def _bias(y_true, y_pred):
    # torch: `train_on_batch` hands over NumPy targets.
    return ops.mean(ops.subtract(y_pred, y_true), axis=-1)


LOSSES = {
    "name": lambda: "mse",
    "instance": lambda: losses.Huber(0.5),
    "function": lambda: losses.log_cosh,
    "own_class": lambda: Weighted(2.0),
    "own_function": lambda: lambda y, p: ops.mean(ops.square(y - p), axis=-1),
    "summed": lambda: losses.MeanAbsoluteError(reduction="sum"),
    "cosine": lambda: losses.CosineSimilarity(axis=-1),
}

for _name, _make in LOSSES.items():
    case(f"losses/{_name}")(
        lambda make=_make: _trained(_model(), floats(3), loss=make())
    )


@case("losses/categorical")
def _():
    loss = losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    return _trained(_model(), _one_hot(), loss=loss)


@case("losses/sparse_categorical")
def _():
    loss = losses.SparseCategoricalCrossentropy(ignore_class=2)
    return _trained(_model("softmax"), ints(3), loss=loss)


@case("losses/binary_focal")
def _():
    loss = losses.BinaryFocalCrossentropy(gamma=1.0)
    return _trained(_model("sigmoid"), _one_hot(), loss=loss)


@case("losses/closure_over_a_variable")
def _():
    scale = keras.Variable(2.0, trainable=False)
    return _trained(
        _model(), floats(3), loss=lambda y, p: scale * ops.mean(ops.abs(y - p))
    )


@case("losses/closure_over_a_layer")
def _():
    model = _model()
    dense = model.layers[-1]

    def loss(y, p):
        return ops.mean(ops.square(y - p)) + ops.sum(ops.square(dense.bias))

    return _trained(model, floats(3), loss=loss)


@case("losses/reads_another_model")
def _():
    critic = keras.Sequential([keras.Input((3,)), layers.Dense(1)])

    def loss(y, p):
        return ops.mean(ops.square(critic(y) - critic(p)), axis=-1)

    return _trained(_model(), floats(3), loss=loss)


@case("losses/dict")
def _():
    return _heads(loss={"a": "mse", "b": losses.MeanAbsoluteError()})


@case("losses/dict_weighted")
def _():
    return _heads(loss={"a": "mse", "b": "mae"}, loss_weights={"a": 0.5, "b": 2.0})


@case("losses/list")
def _():
    x = keras.Input((4,))
    model = keras.Model(x, [layers.Dense(3)(x), layers.Dense(2)(x)])
    targets = [floats(3), floats(2)]
    return _trained(model, targets, loss=["mse", None], loss_weights=[1.0, 0.0])


@case("losses/only_from_layers")
def _():
    class Penalised(layers.Layer):
        def call(self, x):
            self.add_loss(ops.mean(ops.square(x)))
            return x

    x = keras.Input((4,))
    model = keras.Model(x, Penalised()(layers.Dense(3)(x)))
    return _trained(model, floats(3), loss=None)


METRICS = {
    "names": lambda: ["mae", "mse"],
    "instances": lambda: [metrics.RootMeanSquaredError(), metrics.R2Score()],
    "function": lambda: [_bias],
    "lambda": lambda: [lambda y, p: ops.max(ops.subtract(y, p))],
    "own_class": lambda: [Largest()],
    "mean_of_a_function": lambda: [metrics.MeanMetricWrapper(_bias, name="bias")],
    "correlation": lambda: [metrics.PearsonCorrelation(axis=-1)],
    "cosine": lambda: [metrics.CosineSimilarity(axis=-1)],
}

for _name, _make in METRICS.items():
    case(f"metrics/{_name}")(
        lambda make=_make: _trained(_model(), floats(3), loss="mse", metrics=make())
    )


@case("metrics/classification")
def _():
    kept = [
        "accuracy",
        metrics.AUC(num_thresholds=5),
        metrics.Precision(),
        metrics.Recall(class_id=1),
        metrics.F1Score(average="macro"),
        metrics.TopKCategoricalAccuracy(2),
        metrics.OneHotMeanIoU(3),
    ]
    return _trained(
        _model("softmax"),
        _one_hot(),
        loss="categorical_crossentropy",
        metrics=kept,
    )


@case("metrics/sparse_accuracy")
def _():
    return _trained(
        _model("softmax"),
        ints(3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )


@case("metrics/dict")
def _():
    return _heads(loss="mse", metrics={"a": ["mae"], "b": [metrics.MeanSquaredError()]})


@case("metrics/one_instance_in_two_places")
def _():
    shared = metrics.MeanAbsoluteError(name="shared")
    return _heads(loss="mse", metrics={"a": [shared], "b": [shared]})


@case("metrics/weighted")
def _():
    model = _model()
    model.compile("sgd", "mse", metrics=["mse"], weighted_metrics=["mae"])
    weights = np.arange(BATCH, dtype="float32")
    model.train_on_batch(floats(4), floats(3), sample_weight=weights)
    return learns(model, floats(4), floats(3))


@case("metrics/class_weights_were_used")
def _():
    model = _model("softmax")
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(floats(4), ints(3), class_weight={0: 1.0, 1: 2.0, 2: 3.0}, verbose=0)
    return learns(model, floats(4), ints(3))


# torch: `jit_compile` asks for a compiler that need not be there, and several
# steps at once are refused.
NOT_TORCH = ("jax", "tensorflow")

FLAGS = {
    "eager": (BACKENDS, {"run_eagerly": True}),
    "jit": (NOT_TORCH, {"jit_compile": True}),
    "no_jit": (BACKENDS, {"jit_compile": False}),
    "steps_per_execution": (NOT_TORCH, {"steps_per_execution": 2}),
    "no_auto_scale": (BACKENDS, {"auto_scale_loss": False}),
}

for _name, (_backends, _flags) in FLAGS.items():
    case(f"compiled/{_name}", _backends)(
        lambda flags=_flags: _trained(_model(), floats(3), loss="mse", **flags)
    )


@case("compiled/used_in_every_way")
def _():
    model = _model()
    model.compile("adam", "mse", metrics=["mae"])
    x, y = floats(4), floats(3)
    model.fit(x, y, epochs=2, verbose=0, validation_data=(x, y))
    model.evaluate(x, y, verbose=0)
    model.predict(x, verbose=0)
    model.test_on_batch(x, y)
    model.predict_on_batch(x)
    return learns(model, x, y)


@case("compiled/fit_with_callbacks")
def _():
    model = _model()
    model.compile("adam", "mse")
    callbacks = [
        keras.callbacks.EarlyStopping("loss", restore_best_weights=True),
        keras.callbacks.ReduceLROnPlateau("loss"),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None),
    ]
    model.fit(floats(4), floats(3), callbacks=callbacks, verbose=0)
    return learns(model, floats(4), floats(3))


@case("compiled/stopped")
def _():
    model = _model()
    model.compile("adam", "mse")
    model.train_on_batch(floats(4), floats(3))
    model.stop_training = True
    return learns(model, floats(4), floats(3))


@case("compiled/twice")
def _():
    model = _model()
    _trained(model, floats(3), loss="mse")
    return _trained(model, floats(3), loss="mae", metrics=["mse"])


@case("compiled/predicted_only")
def _():
    model = _model()
    model.predict(floats(4), verbose=0)
    return learns(model, floats(4), floats(3))


@case("compiled/nested_models_compiled_too")
def _():
    inner = _model()
    _trained(inner, floats(3), loss="mse")
    x = keras.Input((4,))
    model = keras.Model(x, inner(x))
    return _trained(model, floats(3), loss="mae")

"""Compiled and trained models, by their optimizer."""

import keras
from keras import layers, optimizers
from keras.optimizers import schedules

from .data import floats
from .registry import case, learns


def _model():
    x = keras.Input((4,))
    y = layers.Dense(4, activation="relu", name="hidden")(x)
    return keras.Model(x, layers.Dense(2, name="logits")(y))


def trained(model, optimizer, steps=2, **compile_options):
    """Compiles `model` and trains it for a few steps."""
    model.compile(optimizer, "mse", **compile_options)
    for seed in range(steps):
        model.train_on_batch(floats(4, seed=seed), floats(2, seed=seed))
    return learns(model, floats(4), floats(2))


OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1),
    "sgd_momentum": lambda: optimizers.SGD(0.1, momentum=0.9),
    "sgd_nesterov": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.01),
    "adam_amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.1),
    "adamax": lambda: optimizers.Adamax(0.01),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adadelta": lambda: optimizers.Adadelta(1.0),
    "adafactor": lambda: optimizers.Adafactor(0.01),
    "ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "lamb": lambda: optimizers.Lamb(0.01),
    "lion": lambda: optimizers.Lion(0.01),
    "muon": lambda: optimizers.Muon(0.01, exclude_layers=["logits"]),
    "nadam": lambda: optimizers.Nadam(0.01),
    "rmsprop": lambda: optimizers.RMSprop(0.01, centered=True, momentum=0.5),
    "schedule_free_adamw": lambda: optimizers.ScheduleFreeAdamW(0.01),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(
        optimizers.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=1
    ),
    "loss_scale_factor": lambda: optimizers.SGD(0.1, loss_scale_factor=4.0),
    "clipnorm": lambda: optimizers.Adam(0.01, clipnorm=0.1),
    "clipvalue": lambda: optimizers.SGD(0.1, clipvalue=0.05),
    "global_clipnorm": lambda: optimizers.SGD(0.1, global_clipnorm=0.1),
    "weight_decay": lambda: optimizers.SGD(0.1, weight_decay=0.01),
    "ema": lambda: optimizers.Adam(0.01, use_ema=True, ema_momentum=0.5),
    "ema_overwrite": lambda: optimizers.SGD(
        0.1, use_ema=True, ema_overwrite_frequency=3
    ),
    "accumulation": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=3),
    "named": lambda: optimizers.Adam(0.01, name="mine"),
}

SCHEDULES = {
    "constant": lambda: 0.01,
    "exponential": lambda: schedules.ExponentialDecay(0.1, 2, 0.5),
    "cosine": lambda: schedules.CosineDecay(0.1, 10, warmup_steps=2),
    "cosine_restarts": lambda: schedules.CosineDecayRestarts(0.1, 3),
    "piecewise": lambda: schedules.PiecewiseConstantDecay([1, 2], [0.3, 0.2, 0.1]),
    "polynomial": lambda: schedules.PolynomialDecay(0.1, 10, power=2.0),
    "inverse_time": lambda: schedules.InverseTimeDecay(0.1, 2, 0.5),
}

for _name, _make in OPTIMIZERS.items():
    case(f"optimizers/{_name}")(lambda make=_make: trained(_model(), make()))

for _name, _make in SCHEDULES.items():
    case(f"schedules/{_name}")(
        lambda make=_make: trained(_model(), optimizers.SGD(make()))
    )


@case("schedules/own_class")
def _():
    class Halving(schedules.LearningRateSchedule):
        def __init__(self, start):
            self.start = start

        def __call__(self, step):
            return self.start * 0.5 ** keras.ops.cast(step, "float32")

        def get_config(self):
            return {"start": self.start}

    return trained(_model(), optimizers.Adam(Halving(0.1)))


@case("schedules/callable")
def _():
    rate = {"now": 0.05}
    return trained(_model(), optimizers.SGD(lambda: rate["now"]))


@case("schedules/assigned")
def _():
    case = trained(_model(), optimizers.Adam(0.01))
    case.model.optimizer.learning_rate = 0.002
    return case


@case("optimizers/by_name")
def _():
    return trained(_model(), "rmsprop")


@case("optimizers/not_yet_trained")
def _():
    return trained(_model(), "adam", steps=0)


@case("optimizers/built_by_hand")
def _():
    case = trained(_model(), "adam", steps=0)
    case.model.optimizer.build(case.model.trainable_variables)
    return case


@case("optimizers/several")
def _():
    choice = optimizers.OptimizerMap(optimizers.SGD(0.1))
    choice["hidden/.*"] = optimizers.Adam(0.01)
    return trained(_model(), optimizers.MultiOptimizer(choice))


@case("optimizers/own_class")
def _():
    class Signed(optimizers.Optimizer):
        """Steps by the sign of a running sum of the gradients."""

        def build(self, variables):
            super().build(variables)
            self.sums = [self.add_variable_from_reference(v, "sum") for v in variables]

        def update_step(self, gradient, variable, learning_rate):
            total = self.sums[self._get_variable_index(variable)]
            self.assign_add(total, gradient)
            step = keras.ops.sign(total) * learning_rate
            self.assign_sub(variable, keras.ops.cast(step, variable.dtype))

    return trained(_model(), Signed(learning_rate=0.01))


@case("optimizers/exclude_from_weight_decay")
def _():
    model = _model()
    optimizer = optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return trained(model, optimizer)


@case("optimizers/overwrite_with_gradient")
def _():
    model = _model()
    model.get_layer("hidden").kernel.overwrite_with_gradient = True
    return trained(model, optimizers.SGD(0.1))


@case("optimizers/on_a_sequential")
def _():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    return trained(model, optimizers.Adam(0.01))


@case("optimizers/on_a_subclass")
def _():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    return trained(Net(), optimizers.Nadam(0.01))


@case("optimizers/on_shared_layers")
def _():
    dense = layers.Dense(4)
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(dense(dense(x))))
    return trained(model, optimizers.Adam(0.01))

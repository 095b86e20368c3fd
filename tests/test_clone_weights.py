"""`clone(weights=..., seed=..., compiled=...)`: fresh, shared and re-seeded."""

import threading

import keras
import numpy as np
import pytest
from keras import layers, ops
from small import all_equal, batch, small_model, trained_model, values

import regraft


def test_fresh_weights_are_reproducible_and_differ_by_seed():
    model = trained_model()
    one, same, two = (
        regraft.clone(model, weights="fresh", seed=seed) for seed in (1, 1, 2)
    )
    assert all_equal(values(one), values(same))
    kernels = [m.layers[0].kernel.numpy() for m in (model, one, two)]
    assert not np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[1], kernels[2])
    assert not one.layers[1].moving_mean.numpy().any()  # Batch statistics start anew.
    assert int(one.optimizer.iterations) == 0
    one.train_on_batch(*batch())


def test_fresh_without_a_seed_draws_new_values_each_time():
    model = small_model()
    one, two = (regraft.clone(model, weights="fresh") for _ in range(2))
    kernels = [m.layers[0].kernel.numpy() for m in (model, one, two)]
    assert not np.array_equal(kernels[0], kernels[1])
    assert not np.array_equal(kernels[1], kernels[2])
    bound = np.sqrt(6 / (4 + 3))  # Glorot uniform, as the layer's initializer says.
    assert np.abs(kernels[1]).max() <= bound


def test_a_fixed_initializer_seed_is_kept_unless_a_seed_is_given():
    initializer = keras.initializers.RandomNormal(seed=11)
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, kernel_initializer=initializer)]
    )
    first = model.layers[0].kernel.numpy().copy()
    model.layers[0].kernel.assign(first * 2)
    again = regraft.clone(model, weights="fresh").layers[0].kernel.numpy()
    np.testing.assert_array_equal(first, again)
    other = regraft.clone(model, weights="fresh", seed=5).layers[0].kernel.numpy()
    assert not np.array_equal(first, other)


def test_fresh_keeps_what_adapt_learned():
    model = keras.Sequential(
        [keras.Input((2,)), layers.Normalization(), layers.Dense(2)]
    )
    model.layers[0].adapt(np.array([[1.0, 2.0], [3.0, 4.0]]))
    copy = regraft.clone(model, weights="fresh", seed=1)
    assert all_equal(values(model.layers[0]), values(copy.layers[0]))
    assert not np.array_equal(
        model.layers[1].kernel.numpy(), copy.layers[1].kernel.numpy()
    )


class Scaled(layers.Layer):
    """Makes its variable in the constructor, where no `build()` can repeat it."""

    def __init__(self, start=2.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.start = start

    def call(self, x):
        return x * self.scale


class Opaque(layers.Layer):
    def __init__(self, source, **kwargs):
        super().__init__(**kwargs)
        self.weight = keras.Variable(source.start, name="weight")

    def call(self, x):
        return x * self.weight


def test_fresh_reaches_variables_made_in_the_constructor_or_refuses():
    model = keras.Sequential([keras.Input((2,)), Scaled()])
    model.layers[0].scale.assign(7.0)
    assert regraft.clone(model, weights="fresh").layers[0].scale.numpy() == 1.0
    model = keras.Sequential([keras.Input((2,)), Opaque(Scaled(), name="opaque")])
    with pytest.raises(regraft.CopyError, match="cannot be drawn anew") as error:
        regraft.clone(model, weights="fresh")
    assert "opaque" in str(error.value)
    assert "what to do" in str(error.value)


@pytest.mark.parametrize("weights", ["fresh", "share"])
def test_what_keep_names_is_kept_whatever_becomes_of_the_weights(weights):
    class Guarded(layers.Dense):
        def __init__(self, units):
            super().__init__(units)
            self.lock = threading.Lock()

    model = keras.Sequential([keras.Input((4,)), Guarded(2)])
    lock = model.layers[0].lock
    copy = regraft.clone(model, weights=weights, keep=(lock,))
    assert copy.layers[0] is not model.layers[0]
    assert copy.layers[0].lock is lock
    is_shared = copy.layers[0].kernel is model.layers[0].kernel
    assert is_shared == (weights == "share")


def test_slots_that_start_as_the_weights_start_as_the_fresh_ones():
    # It keeps a second set of weights, which begins as a copy of the first.
    def compiled(model):
        optimizer = keras.optimizers.ScheduleFreeAdamW(0.01)
        model.compile(optimizer, "mse", run_eagerly=True)
        return model

    model = compiled(small_model())
    model.train_on_batch(*batch())
    fresh = regraft.clone(model, weights="fresh", seed=3)
    other = compiled(
        regraft.clone(model, weights="fresh", seed=3, compiled="drop"),
    )
    for fork in (fresh, other):
        fork.train_on_batch(*batch())
    left, right = (values(fork, fork.optimizer) for fork in (fresh, other))
    assert all_equal(left, right)


class Counting(keras.optimizers.SGD):
    """Makes a variable in the constructor and one in `build()`."""

    def __init__(self, learning_rate=0.01, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.updates = keras.Variable(1.0, trainable=False, name="updates")

    def build(self, variables):
        super().build(variables)
        self.total = self.add_variable((), name="total")

    def update_step(self, gradient, variable, learning_rate):
        self.assign_add(self.updates, 1.0)
        self.assign_add(self.total, 1.0)
        super().update_step(gradient * self.updates, variable, learning_rate)


class Unrepeatable(Counting):
    def __init__(self, source):
        super().__init__(float(source.learning_rate))


def trained_with(optimizer):
    model = small_model()
    model.compile(optimizer, "mse", run_eagerly=True)
    model.train_on_batch(*batch())
    return model


def test_an_optimizer_that_starts_anew_keeps_what_its_constructor_made():
    model = trained_with(Counting())
    copy = regraft.clone(model, compiled="fresh")
    names = [v.name for v in model.optimizer.variables]
    assert [v.name for v in copy.optimizer.variables] == names
    assert float(copy.optimizer.updates) == 1.0
    assert float(copy.optimizer.total) == 0.0
    copy.train_on_batch(*batch())
    assert float(copy.optimizer.updates) == float(model.optimizer.updates) == 7.0


def test_an_optimizer_that_cannot_start_anew_is_refused():
    model = trained_with(Unrepeatable(keras.optimizers.SGD()))
    with pytest.raises(regraft.CopyError, match="cannot start anew") as error:
        regraft.clone(model, compiled="fresh")
    assert ".updates" in str(error.value)
    assert "what to do" in str(error.value)
    assert float(regraft.clone(model).optimizer.updates) == 7.0


class Deviation(keras.metrics.Metric):
    """Keeps its sums in another metric."""

    def __init__(self):
        super().__init__(name="deviation")
        self.mean = keras.metrics.Mean()

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.mean.update_state(y_true - y_pred)

    def result(self):
        return self.mean.result()


def test_metrics_of_compile_start_anew_with_the_optimizer_alone():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae", Deviation()])
    model.seen = keras.metrics.Mean(name="seen")
    x = np.ones((4, 3), "float32")
    model.fit(x, x[:, :1] + 7, verbose=0)
    model.seen.update_state([1.0, 3.0])  # `fit` begins by forgetting.
    expected = model.get_metrics_result()
    assert all(float(value) for value in expected.values())

    def counted(**options):
        found = regraft.clone(model, **options).get_metrics_result()
        assert found.keys() == expected.keys()
        return {name for name in found if float(found[name]) == float(expected[name])}

    every = set(expected)
    assert counted() == every
    assert counted(weights="fresh") == set()
    assert counted(weights="fresh", compiled="copy") == every - {"seen"}
    assert counted(compiled="fresh") == {"seen"}


class HasTwoOptimizers(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)

    def compile(self, own, **options):
        super().compile(**options)
        self.own = own

    def call(self, x):
        return self.dense(x)


@pytest.mark.parametrize("compiled", [None, "drop"])
def test_optimizers_of_fresh_weights_know_nothing_of_the_old_ones(compiled):
    model = HasTwoOptimizers()
    model.compile(keras.optimizers.Adam(), loss="mse")
    model(np.ones((2, 3), "float32"))
    model.own.build(model.trainable_variables)
    model.own.apply([keras.ops.ones(v.shape) for v in model.trainable_variables])
    new = regraft.clone(model, weights="fresh", compiled=compiled)
    momentum = [keras.ops.convert_to_numpy(v) for v in new.own.variables[2:]]
    assert int(new.own.iterations) == 0
    assert not any(values.any() for values in momentum)
    kept = regraft.clone(model, weights="fresh", compiled="copy")
    assert int(kept.own.iterations) == 1


def test_share_puts_new_layers_on_the_same_variables():
    model = trained_model()
    tied = regraft.clone(model, weights="share")
    assert tied is not model
    assert tied.layers[0] is not model.layers[0]
    assert all(a is b for a, b in zip(model.weights, tied.weights, strict=True))
    for trainer in (tied, model):
        trainer.train_on_batch(*batch(3))
        x = batch()[0]
        np.testing.assert_array_equal(
            *(keras.ops.convert_to_numpy(m(x)) for m in (model, tied))
        )
    assert tied.optimizer.variables[0] is not model.optimizer.variables[0]


def test_seed_with_copied_weights_moves_the_random_streams_only():
    model = small_model()
    x = batch()[0]
    one, same, two = (regraft.clone(model, seed=seed) for seed in (1, 1, 2))
    assert all_equal(
        [w.numpy() for w in model.weights], [w.numpy() for w in one.weights]
    )
    outputs = [
        keras.ops.convert_to_numpy(m(x, training=True)) for m in (one, same, two)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


class DrawsInBuild(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 3), initializer="glorot_uniform")

    def call(self, x):
        return keras.ops.matmul(x, self.w)


@pytest.mark.parametrize(
    "make", [regraft.clone_model, lambda m: regraft.clone(m, weights="fresh")]
)
def test_fresh_weights_are_other_weights_each_time(make):
    model = keras.Sequential([keras.Input((4,)), DrawsInBuild()])
    one, two = (keras.ops.convert_to_numpy(make(model).weights[0]) for _ in "ab")
    assert not np.array_equal(one, two)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="modules of torch")
def test_shared_weights_include_the_statistics_of_modules():
    import torch

    norm = layers.TorchModuleWrapper(torch.nn.BatchNorm1d(4), output_shape=(None, 4))
    model = keras.Sequential([keras.Input((4,)), norm, layers.Dense(2)])
    model.compile("sgd", "mse")
    twin = regraft.clone(model, weights="share")
    x = np.random.default_rng(0).random((8, 4), "float32")
    twin.train_on_batch(x, np.ones((8, 2)))
    outputs = [one(x, training=False) for one in (model, twin)]
    assert torch.equal(*outputs)
    assert twin.layers[0].module is not norm.module


class Decaying(keras.optimizers.SGD):
    """Keeps some of the weights it trains, which Keras lists among its variables."""

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.decayed = [v for v in variables if v.name == "kernel"]
            self.first = variables[0]


class Size(keras.metrics.Metric):
    """Keeps a weight of a layer."""

    def __init__(self, layer):
        super().__init__()
        self.measured = layer.kernel

    def update_state(self, *args, **kwargs):
        pass

    def result(self):
        return ops.sum(ops.square(self.measured))

    def reset_state(self):
        pass


def test_weights_that_an_optimizer_or_a_metric_holds_are_weights():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="d")], name="s")
    model.compile(Decaying(0.1, momentum=0.9), "mse", metrics=[Size(model.layers[0])])
    model.optimizer.build(model.trainable_variables)
    model.metrics  # noqa: B018 - Keras makes them when it is asked.
    tied = regraft.clone(model, weights="share")
    assert all(a is b for a, b in zip(model.weights, tied.weights, strict=True))
    for how in ({}, {"compiled": "fresh"}, {"weights": "fresh"}):
        new = regraft.clone(model, prefix="b_", **how)
        assert [v.path for v in new.weights] == ["b_s/b_d/kernel", "b_s/b_d/bias"]
        slots = [v.name for v in new.optimizer.variables if "momentum" in v.name]
        assert slots == ["b_s_b_d_kernel_momentum", "b_s_b_d_bias_momentum"]
        assert new.optimizer.decayed[0] is new.layers[0].kernel
        assert new.optimizer.first is new.layers[0].kernel


class WritesToAnother(layers.Layer):
    """Doubles, when it is built, the weights of a layer that it was given."""

    def __init__(self, base):
        super().__init__()
        self.base = base

    def build(self, shape):
        self.w = self.add_weight(shape=(3,), name="w")
        self.base.kernel.assign(self.base.kernel * 2)

    def call(self, x):
        return self.base(x) * self.w


def test_a_kept_layer_is_not_written_to_while_others_are_drawn():
    base = layers.Dense(3)
    base.build((None, 3))
    model = keras.Sequential([keras.Input((3,)), WritesToAnother(base)])
    before = np.array(keras.ops.convert_to_numpy(base.kernel))
    new = regraft.clone(model, weights="fresh", keep=base)
    assert new.layers[0].base is base
    np.testing.assert_array_equal(base.kernel, before)
    base.kernel.assign(before + 1)
    np.testing.assert_array_equal(base.kernel, before + 1)


def test_shared_weights_have_states_of_their_own():
    inputs = keras.Input(batch_shape=(1, 2, 3))
    model = keras.Model(inputs, layers.LSTM(2, stateful=True)(inputs))
    x = np.ones((1, 2, 3), "float32")
    tied = regraft.clone(model, weights="share")
    expected = keras.ops.convert_to_numpy(tied(x))
    tied.layers[1].reset_state()
    model(x)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(tied(x)), expected)
    assert tied.weights[0] is model.weights[0]


class Delegates(keras.optimizers.SGD):
    """Lets another one work, and counts; TensorFlow does not build it then."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def apply(self, grads, trainable_variables=None):
        self.inner.apply(grads, trainable_variables)
        self.iterations.assign_add(1)


def test_an_optimizer_that_was_never_built_counts_anew():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile(Delegates(keras.optimizers.Adam()), "mse")
    model.optimizer.iterations.assign(3)
    assert int(regraft.clone(model).optimizer.iterations) == 3
    assert int(regraft.clone(model, compiled="fresh").optimizer.iterations) == 0
    model.compile(keras.optimizers.Adam(gradient_accumulation_steps=2), "mse")
    assert int(regraft.clone(model, compiled="fresh").optimizer.iterations) == 0


def test_patterns_of_an_optimizer_follow_a_prefix():
    x = np.random.default_rng(0).random((8, 4), "float32")

    def build():
        keras.utils.set_random_seed(0)
        inner = [
            keras.Input((4,)),
            layers.Dense(6, name="a"),
            layers.Dense(4, name="b"),
        ]
        model = keras.Sequential([keras.Sequential(inner, name="inner")])
        muon = keras.optimizers.Muon(0.1, exclude_layers=["inner/b"], weight_decay=0.5)
        model.compile(muon, "mse")
        return model

    model, twin = build(), regraft.clone(build(), prefix="other_")
    for each in (model, twin):
        each.fit(x, x, batch_size=4, shuffle=False, verbose=0)
    assert all_equal(model.get_weights(), twin.get_weights())

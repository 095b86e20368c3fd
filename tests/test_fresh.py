"""Fresh weights, of layers that are not like most."""

import functools
import random
import threading

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

X = np.random.default_rng(0).random((2, 4), "float32")


def values(model):
    return [np.array(w) for w in model.get_weights()]


def assert_drawn(model, new):
    """The kernels are new, the biases as they begin."""
    for old, fresh in zip(values(model), values(new), strict=True):
        assert old.shape == fresh.shape
        assert old.ndim == 1 or not np.array_equal(old, fresh)
        assert old.ndim == 2 or not fresh.any()


class Transposed(layers.Layer):
    """Reads, when it is built, the weights of another layer."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def build(self, shape):
        size = self.dense.kernel.shape[0]
        self.bias = self.add_weight(shape=(size,), initializer="zeros", name="bias")

    def call(self, x):
        return ops.matmul(x, ops.transpose(self.dense.kernel)) + self.bias


def autoencoder():
    x, dense = keras.Input((4,)), layers.Dense(3)
    return keras.Model(x, Transposed(dense)(dense(x)))


class Early(layers.Layer):
    """Makes a weight in a constructor that takes nothing else."""

    def __init__(self, units):
        super().__init__()
        self.kernel = self.add_weight(shape=(4, units), name="kernel")

    def call(self, x):
        return ops.matmul(x, self.kernel)


class EarlyModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.kernel = self.add_weight(shape=(4, 2), name="kernel")

    def call(self, x):
        return ops.matmul(x, self.kernel)


class Inner(Early):
    """Cannot be made again, as nobody knows what it was given."""

    def __init__(self, units, tool):
        super().__init__(units)
        self.tool = tool


class Outer(keras.Model):
    """Knows how to make it."""

    def __init__(self, units=2, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = Inner(units, len)
        self.head = layers.Dense(1)

    def call(self, x):
        return self.head(self.inner(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def called(layer):
    layer(X)
    return layer


BUILDS = {
    "reads another layer": autoencoder,
    "made in the constructor": lambda: called(Early(3)),
    "model": lambda: called(EarlyModel()),
    "known to the layer around it": lambda: called(Outer(3)),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=list(BUILDS))
def test_layers_that_are_not_built_like_most(build):
    model = build()
    assert_drawn(model, rg.clone(model, weights="fresh"))
    one, same, other = (rg.clone(model, weights="fresh", seed=s) for s in (1, 1, 2))
    assert all(map(np.array_equal, values(one), values(same)))
    assert not all(map(np.array_equal, values(one), values(other)))
    if isinstance(model, keras.Model):
        assert_drawn(model, rg.clone_model(model))


def test_threads_draw_what_they_would_draw_alone():
    def draw(shape, dtype=None):
        return ops.convert_to_tensor(np.random.normal(size=shape).astype("float32"))

    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, kernel_initializer=draw)]
    )
    alone = values(rg.clone(model, weights="fresh", seed=2))[0]
    state, found = random.getstate(), []

    def work():
        for _ in range(5):
            found.append(values(rg.clone(model, weights="fresh", seed=2))[0])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [np.array_equal(alone, kernel) for kernel in found] == [True] * 15
    assert random.getstate() == state


def test_a_fresh_optimizer_has_the_numbers_of_the_old_one():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("nadam", "mse")  # One of its variables has no name.
    model.train_on_batch(X, X[:, :2])
    new = rg.clone(model, compiled="fresh")
    paths = [[v.path for v in m.optimizer.variables] for m in (model, new)]
    assert paths[0] == paths[1]


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="functions of JAX")
def test_parameters_that_a_function_of_jax_draws():
    import jax
    import jax.numpy as jnp

    def draw(rng, inputs):
        kernel = jax.random.normal(rng, (inputs.shape[-1], 3))
        return {"kernel": kernel, "bias": jnp.zeros(3)}

    def call(params, inputs):
        return inputs @ params["kernel"] + params["bias"]

    x = keras.Input((4,))
    model = keras.Model(x, layers.JaxLayer(call, draw)(x))
    assert_drawn(model, rg.clone(model, weights="fresh"))
    params = {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)}
    model = keras.Model(x, layers.JaxLayer(call, params=params)(x))
    with pytest.raises(rg.CopyError, match="cannot be drawn anew"):
        rg.clone(model, weights="fresh")


class Holder(layers.Layer):
    """Is made with the very layer that it holds."""

    def __init__(self, part, **kwargs):
        super().__init__(**kwargs)
        self.part = part

    def call(self, x):
        return self.part(x)

    def get_config(self):
        return {**super().get_config(), "part": self.part}


def test_old_weights_are_not_taken_for_new_ones():
    x = keras.Input((4,))
    model = keras.Model(x, Holder(Inner(3, len))(x))
    with pytest.raises(rg.CopyError, match="cannot be drawn anew"):
        rg.clone(model, weights="fresh")


def test_states_of_several_cells():
    cells = [layers.LSTMCell(3), layers.LSTMCell(3)]
    rnn = layers.RNN(cells, stateful=True)
    model = keras.Sequential([keras.Input(batch_shape=(2, 3, 4)), rnn])
    model(np.ones((2, 3, 4), "float32"))
    for new in (rg.clone(model, weights="fresh"), rg.clone_model(model)):
        for state in keras.tree.flatten(new.layers[0].states):
            assert not ops.convert_to_numpy(state).any()


class Weighted(layers.Layer):
    """Knows its layers as keys, and has a variable in a list."""

    def __init__(self):
        super().__init__()
        self.parts = [layers.Dense(2), layers.Dense(2)]
        self.gains = {self.parts[0]: 1.0, self.parts[1]: 2.0}
        self.seen = [self.add_weight(shape=(2,), initializer="zeros", name="seen")]

    def call(self, x):
        return sum(part(x) * gain for part, gain in self.gains.items()) + self.seen[0]


def test_keys_without_an_order():
    model = keras.Sequential([keras.Input((4,)), Weighted()])
    new = rg.clone(model, weights="fresh", seed=1)
    assert_drawn(model.layers[0].parts[0], new.layers[0].parts[0])
    assert list(new.layers[0].gains) == list(new.layers[0].parts)


class Session(layers.Layer):
    """Resets what it has for a batch, whose size it must be told."""

    stateful = True

    def build(self, shape):
        self.total = self.add_weight(
            shape=(4,), initializer="zeros", trainable=False, name="total"
        )

    def call(self, x):
        return x + self.total

    def reset_state(self, batch_size):
        self.total.assign(np.full((4,), batch_size))


def test_a_state_whose_reset_wants_to_know_more_starts_as_a_weight():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, Session()(inputs))
    model.layers[1].total.assign(np.ones(4))
    assert not rg.clone(model, weights="fresh").layers[1].total.numpy().any()


class Gated(layers.Layer):
    """Writes, when it is built, to the weights of layers inside."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.online, self.target = layers.Dense(3), layers.Dense(3)

    def build(self, shape):
        self.gate = layers.Dense(3, name="gate")  # Another one each time.
        for layer in (self.gate, self.online, self.target):
            layer.build(shape)
        self.gate.bias.assign([1.0, 2.0, 3.0])
        self.target.set_weights(self.online.get_weights())

    def call(self, x):
        return self.gate(x) * self.online(x) + self.target(x)


class Around(keras.Model):
    """Has the last word on it."""

    def __init__(self):
        super().__init__()
        self.parts = {"first": Gated(), "second": Gated()}

    def build(self, shape):
        for part in self.parts.values():
            part.build(shape)
        self.parts["second"].gate.bias.assign([4.0, 5.0, 6.0])

    def call(self, x):
        return self.parts["first"](x) + self.parts["second"](x)


def test_weights_that_a_layer_gives_to_those_inside():
    model = Around()
    model(X)
    model.set_weights([w + 1 for w in values(model)])
    for new in (rg.clone(model, weights="fresh", seed=3), rg.clone_model(model)):
        for name, bias in (("first", [1, 2, 3]), ("second", [4, 5, 6])):
            part, old = new.parts[name], model.parts[name]
            assert np.array_equal(part.gate.bias, bias)
            assert not np.array_equal(part.gate.kernel, old.gate.kernel)
            assert not np.array_equal(part.online.kernel, old.online.kernel)
            assert np.array_equal(part.online.kernel, part.target.kernel)
            assert part.online.kernel is not part.target.kernel


class Scaled(layers.Layer):
    """Keeps a weight by the name of what it starts as."""

    def __init__(self, scale=0.5):
        super().__init__()
        self.scale = scale

    def build(self, shape):
        start = keras.initializers.Constant(self.scale)
        self.scale = self.add_weight(shape=(), initializer=start, name="scale")

    def call(self, x):
        return self.scale * x


def test_a_weight_by_the_name_of_what_it_starts_as():
    layer = called(Scaled())
    layer.scale.assign(7.0)
    assert float(rg.clone(layer, weights="fresh").scale) == 0.5
    assert float(layer.scale) == 7.0


class Twins(keras.Model):
    """Builds two layers that are alike, and many that it adds to a list."""

    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(4), layers.Dense(4)
        self.more = []

    def build(self, shape):
        self.first.build(shape)
        self.second.build(shape)
        for i in range(3):
            layer = layers.Dense(4)
            layer.build(shape)
            layer.bias.assign(np.full(4, i + 1.0))
            self.more.append(layer)
        self.built = True

    def call(self, x):
        for layer in (self.first, self.second, *self.more):
            x = layer(x)
        return x


def test_layers_that_are_alike_are_drawn_apart():
    model = Twins()
    model.build((None, 4))
    model.compile("sgd", "mse")  # Keras lists the layers by themselves then.
    new = rg.clone(model, weights="fresh")
    kernels = [np.array(w) for w in new.get_weights() if w.ndim == 2]
    assert len({kernel.tobytes() for kernel in kernels}) == 5
    assert [float(layer.bias[0]) for layer in new.more] == [1, 2, 3]


class Mirror(layers.Layer):
    """Starts as another layer, which somebody else builds."""

    def __init__(self, other):
        super().__init__()
        self.other = other

    def build(self, shape):
        self.kernel = self.add_weight(shape=(4, 4), initializer="zeros", name="kernel")
        self.kernel.assign(ops.transpose(self.other.kernel))

    def call(self, x):
        return ops.matmul(x, self.kernel)


def test_a_layer_that_starts_as_another_one():
    x, dense = keras.Input((4,)), layers.Dense(4)
    model = keras.Model(x, Mirror(dense)(dense(x)))
    dense.kernel.assign(np.full((4, 4), 77.0))
    new = rg.clone(model, weights="fresh")
    dense, mirror = new.layers[1:]
    assert 77.0 not in np.array(dense.kernel)
    assert np.array_equal(np.array(mirror.kernel), np.array(dense.kernel).T)


class Unnamed(layers.Layer):
    """Makes weights alike, without names, in both places."""

    def __init__(self):
        super().__init__()
        self.shift = self.add_weight(shape=(4,), initializer="zeros")

    def build(self, shape):
        self.scale = self.add_weight(shape=(4,), initializer="ones")

    def call(self, x):
        return x * self.scale + self.shift


def test_weights_are_known_by_their_places():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, Unnamed()(inputs))
    model.set_weights([w + 5 for w in values(model)])
    layer = rg.clone(model, weights="fresh").layers[1]
    np.testing.assert_array_equal(layer.shift, np.zeros(4))
    np.testing.assert_array_equal(layer.scale, np.ones(4))


class Gained(layers.Dense):
    """Says nothing of `gain` in its configuration, which it inherits."""

    def __init__(self, units, gain=1.0, **kwargs):
        super().__init__(units, **kwargs)
        start = keras.initializers.Constant(gain)
        self.gain = self.add_weight(shape=(units,), initializer=start, name="gain")

    def call(self, x):
        return super().call(x) * self.gain


def test_arguments_that_an_inherited_configuration_leaves_out():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, Gained(2, gain=5.0)(inputs))
    new = rg.clone(model, weights="fresh")
    np.testing.assert_array_equal(new.layers[1].gain, [5.0, 5.0])
    given = Gained(2, gain=5.0, kernel_initializer=keras.initializers.Zeros())
    with pytest.raises(rg.CopyError, match="nobody knows how it starts"):
        rg.clone(keras.Model(inputs, given(inputs)), weights="fresh")


def wrapped(constructor):
    @functools.wraps(constructor)
    def construct(self, **kwargs):
        constructor(self, **kwargs)

    return construct


class TakesOptions(keras.Model):
    def __init__(self, **options):
        start = keras.initializers.Constant(options.pop("start", 1.0))
        super().__init__(**options)
        self.own = self.add_weight(shape=(4,), initializer=start, name="own")

    def call(self, x):
        return x + self.own


class StoresOptions(keras.Model):
    def __init__(self, **options):
        super().__init__()
        self.options = options
        start = keras.initializers.Constant(self.options.get("start", 1.0))
        self.own = self.add_weight(shape=(4,), initializer=start, name="own")

    def call(self, x):
        return x + self.own


class Graph(keras.Model):
    """A graph with a constructor, of which its configuration says nothing."""

    def __init__(self, **options):
        start = keras.initializers.Constant(options.pop("start", 1.0))
        inputs = keras.Input((4,))
        super().__init__(inputs, layers.Dense(2)(inputs), **options)
        self.own = self.add_weight(shape=(4,), initializer=start, name="own")


class TakesAnArgument(TakesOptions):
    @wrapped
    def __init__(self, start=1.0):
        super().__init__(start=start)


class TakesNone(keras.Model):
    def __init__(self, **kwargs):
        kwargs.setdefault("name", "none")
        super().__init__(**kwargs)
        self.own = self.add_weight(shape=(4,), initializer="ones", name="own")

    def call(self, x):
        return x + self.own


class HasNoConstructor(keras.Model):
    """Makes a weight when it is first asked for."""

    @property
    def own(self):
        if not hasattr(self, "kept"):
            self.kept = self.add_weight(shape=(4,), initializer="ones", name="own")
        return self.kept

    def build(self, shape):
        self.own  # noqa: B018

    def call(self, x):
        return x + self.own


def test_a_model_without_a_constructor_of_its_own():
    model = HasNoConstructor()
    model(X)
    model.own.assign([5.0] * 4)
    np.testing.assert_array_equal(rg.clone(model, weights="fresh").own, np.ones(4))


def test_models_whose_arguments_nobody_knows():
    for kind in (TakesOptions, StoresOptions, TakesAnArgument, Graph):
        model = kind(start=5.0)
        model(X)
        with pytest.raises(rg.CopyError, match="nobody knows how it starts"):
            rg.clone(model, weights="fresh")
    model = TakesNone()
    model(X)
    model.own.assign([5.0] * 4)
    np.testing.assert_array_equal(rg.clone(model, weights="fresh").own, np.ones(4))


class Learner(layers.Layer):
    """Trains its weights by a method that others have for data."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 3), name="w")
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        return ops.matmul(x, self.w)

    def adapt(self, x):
        self.w.assign_sub(ops.ones(self.w.shape))
        self.seen.assign_add(len(x))


def test_weights_that_a_method_called_adapt_trains():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, Learner()(inputs))
    model.layers[1].adapt(X)
    one, two = (rg.clone(model, weights="fresh", seed=s).layers[1] for s in (1, 2))
    assert not np.array_equal(one.w, model.layers[1].w)
    assert not np.array_equal(one.w, two.w)
    assert float(one.seen) == 2
    model.layers[1].trainable = False
    frozen = rg.clone(model, weights="fresh").layers[1]
    np.testing.assert_array_equal(frozen.w, model.layers[1].w)


class Reservoir(layers.Layer):
    """Works out in its `build()` what belongs to the weights that it draws."""

    def build(self, shape):
        self.w = self.add_weight(shape=(4, 4), initializer="random_normal", name="w")
        start = np.array(ops.convert_to_numpy(self.w))
        self.start, self.size = start, float(np.abs(start).max())
        self.limits = {"largest": [start.max()], "where": int(start.argmax())}
        self.rate = 0.5

    def call(self, x):
        return ops.matmul(x, self.w / self.size)


class HoldsReservoirs(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = [Reservoir(), Reservoir()]

    def build(self, shape):
        for layer in self.inner:
            layer.build(shape)
            layer.built = True
        self.first = np.array(ops.convert_to_numpy(self.inner[0].w))

    def call(self, x):
        return self.inner[1](self.inner[0](x))


def test_what_a_layer_worked_out_from_its_weights_belongs_to_the_new_ones():
    model = HoldsReservoirs()
    model(X)
    for layer in model.inner:
        layer.rate = 0.1  # Follows from no draw.
    for new in (rg.clone(model, weights="fresh", seed=1), rg.clone_model(model)):
        for layer, old in zip(new.inner, model.inner, strict=True):
            weights = ops.convert_to_numpy(layer.w)
            np.testing.assert_array_equal(layer.start, weights)
            assert not np.array_equal(layer.start, old.start)
            assert layer.size == float(np.abs(weights).max())
            assert layer.limits["largest"] == [weights.max()]
            assert layer.limits["where"] == int(weights.argmax())
            assert layer.rate == 0.1
        np.testing.assert_array_equal(new.first, ops.convert_to_numpy(new.inner[0].w))


class Doubles(layers.Layer):
    """Writes to a layer inside beside what it draws and works out."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(4, kernel_initializer="ones")
        self.inner.build((None, 4))

    def build(self, shape):
        self.w = self.add_weight(shape=(4,), initializer="random_normal", name="w")
        self.start = np.array(ops.convert_to_numpy(self.w))
        self.inner.kernel.assign(self.inner.kernel * 2)

    def call(self, x):
        return self.inner(x) * self.w


def test_a_build_is_tried_again_without_writing():
    layer = Doubles()
    layer(X)
    new = rg.clone(layer, weights="fresh")
    np.testing.assert_array_equal(new.inner.kernel, np.full((4, 4), 2))
    np.testing.assert_array_equal(new.start, ops.convert_to_numpy(new.w))


def test_what_a_kept_layer_has_worked_out_stays():
    inner = Reservoir()

    class Outer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner, self.dense = inner, layers.Dense(4)

        def build(self, shape):
            for layer in (self.inner, self.dense):
                if not layer.built:
                    layer.build(shape)

        def call(self, x):
            return self.dense(self.inner(x))

    encoder = keras.Sequential([keras.Input((4,)), inner])
    model = keras.Sequential([encoder, Outer()])
    model(X)
    before = inner.size, inner.start.copy(), np.array(ops.convert_to_numpy(inner.w))
    new = rg.clone(model, weights="fresh", keep=encoder)
    assert new.layers[0] is encoder
    assert inner.size == before[0]
    np.testing.assert_array_equal(inner.start, before[1])
    np.testing.assert_array_equal(inner.w, before[2])


class Exchanges(layers.Layer):
    def build(self, shape):
        self.now = self.add_weight(shape=(4,), initializer="ones", name="now")
        self.then = self.add_weight(shape=(4,), initializer="zeros", name="then")

    def call(self, x):
        return x * self.now + self.then


def test_weights_whose_places_were_exchanged():
    layer = Exchanges()
    layer(X)
    layer.now, layer.then = layer.then, layer.now
    new = rg.clone(layer, weights="fresh")
    np.testing.assert_array_equal(new.then, np.ones(4))
    np.testing.assert_array_equal(new.now, np.zeros(4))


class Late(keras.Model):
    """Makes its weight where there is none, and keeps dicts of all kinds."""

    def __init__(self, width):
        super().__init__()
        self.inner = layers.Dense(width)
        self.scale = None
        self.names = {1: "a", "b": "c"}
        self.rates = [{self.inner: 0.1, layers.Dense(2): 0.2}]

    def build(self, shape):
        if self.scale is None:
            self.scale = self.add_weight(shape=(4,), initializer="uniform", name="s")

    def call(self, x):
        return self.inner(x) * self.scale


@pytest.mark.parametrize("is_compiled", [False, True])
def test_dicts_whose_keys_have_no_order(is_compiled):
    model = Late(4)
    model(X)
    if is_compiled:  # On TensorFlow that leaves a dict by layers.
        model.compile("sgd", "mse")
        model.train_on_batch(X, X)
    new = rg.clone(model, weights="fresh", seed=1)
    assert not np.array_equal(np.array(new.scale), np.array(model.scale))
    assert list(new.names) == [1, "b"]
    assert next(iter(new.rates[0])) is new.inner


class WithTarget(keras.Model):
    """A network whose target starts as it does."""

    def __init__(self):
        super().__init__()
        self.online = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
        self.target = keras.models.clone_model(self.online)
        self.start_alike()

    def start_alike(self):
        self.target.set_weights(self.online.get_weights())

    def call(self, x):
        return self.online(x) - self.target(x)


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_constructor_that_lets_layers_start_alike(is_inside):
    model = WithTarget()
    model(X)
    model.online.layers[0].kernel.assign(np.ones((4, 4)))
    if is_inside:
        x = keras.Input((4,))
        model = keras.Model(x, model(x))
    one, same, other = (rg.clone(model, weights="fresh", seed=s) for s in (1, 1, 2))
    assert not ops.convert_to_numpy(one(X)).any()
    assert all(map(np.array_equal, values(one), values(same)))
    assert not np.array_equal(values(one)[0], values(other)[0])
    assert_drawn(model, one)


def test_an_initializer_that_was_changed_afterwards():
    model = WithTarget()
    model(X)
    model.online.layers[0].kernel_initializer = keras.initializers.Constant(7.0)
    new = rg.clone(model, weights="fresh")
    for part in (new.online, new.target):
        np.testing.assert_array_equal(part.layers[0].kernel, np.full((4, 4), 7.0))


TRAINED = np.arange(16.0, dtype="float32").reshape(4, 4)


class Pretrained(layers.Layer):
    """Starts with trained weights, as if from a file."""

    table = np.arange(3.0)

    def __init__(self, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.first = scale, self.table[0]
        self.inner = layers.Dense(4, use_bias=False)
        self.inner.build((None, 4))
        self.inner.set_weights([TRAINED])

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        return {**super().get_config(), "scale": self.scale}


def test_trained_weights_that_a_constructor_reads_are_not_fresh():
    layer = Pretrained(2.0)
    layer(X)
    (kernel,) = values(rg.clone(keras.Sequential([layer]), weights="fresh"))
    assert np.abs(kernel).max() < 1.0


class Chosen(layers.Layer):
    """Keeps what it works out from its weights: few values, the same by chance."""

    def build(self, shape):
        self.w = self.add_weight(shape=(4,), initializer="uniform", name="w")
        self.best = int(np.argmax(np.array(self.w)))
        self.above = np.array(self.w) > 0
        self.options = (7, True)

    def call(self, x):
        return x * self.w + x[:, self.best : self.best + 1]


def test_what_is_worked_out_may_be_the_same_by_chance():
    model = keras.Sequential([keras.Input((4,)), Chosen()])
    model.layers[0].options = (8, False)
    for seed in range(12):
        new = rg.clone(model, weights="fresh", seed=seed).layers[0]
        assert new.best == int(np.argmax(np.array(new.w)))
        np.testing.assert_array_equal(new.above, np.array(new.w) > 0)
        assert new.options == (8, False)


class Features(layers.Layer):
    """Draws what no variable holds."""

    def build(self, shape):
        self.features = np.random.normal(size=(shape[-1], 2)).astype("float32")
        self.size = 2

    def call(self, x):
        return ops.matmul(x, self.features)


def test_arrays_that_are_drawn_instead_of_weights():
    model = keras.Sequential([keras.Input((4,)), Features()])
    model.layers[0].size = 3
    before = model.layers[0].features.copy()
    one, same, other = (
        rg.clone(model, weights="fresh", seed=s).layers[0] for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.features, same.features)
    assert not np.array_equal(one.features, other.features)
    assert not np.array_equal(one.features, before)
    assert one.size == 3
    np.testing.assert_array_equal(model.layers[0].features, before)

"""`clone`: what stays the same, what becomes independent, what is refused."""

import functools
import random
import threading
import warnings
import weakref

import keras
import numpy as np
import pytest
from keras import layers

import regraft

BACKEND = keras.backend.backend()


def small_model(**kwargs):
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(3, activation="relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5, seed=1, name="drop"),
            layers.Dense(2, name="head"),
        ],
        **kwargs,
    )


def batch(seed=0):
    generator = np.random.default_rng(seed)
    return generator.random((8, 4), "float32"), generator.random((8, 2), "float32")


def trained_model(**kwargs):
    model = small_model()
    model.compile(
        keras.optimizers.Adam(0.01), "mse", metrics=["mae"], run_eagerly=True, **kwargs
    )
    model.train_on_batch(*batch())
    return model


def values(*holders):
    return [v.numpy().copy() for holder in holders for v in holder.variables]


def all_equal(left, right):
    return len(left) == len(right) and all(
        a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True)
    )


class Holder(layers.Layer):
    """A layer that holds on to anything."""

    def __init__(self, value=None, **kwargs):
        super().__init__(**kwargs)
        self.value = value

    def call(self, x):
        return x


# --- training state ----------------------------------------------------------


def test_fork_trains_alike_step_by_step():
    model = trained_model()
    fork = regraft.clone(model)
    for step in range(3):
        logs = [m.train_on_batch(*batch(step)) for m in (model, fork)]
        assert logs[0] == logs[1]
        assert all_equal(
            values(model, model.optimizer, *model.metrics),
            values(fork, fork.optimizer, *fork.metrics),
        )


def test_compiled_fresh_keeps_the_configuration_and_resets_the_state():
    model = trained_model(steps_per_execution=1)
    copy = regraft.clone(model, compiled="fresh")
    assert all_equal(values(model), values(copy))
    assert type(copy.optimizer) is type(model.optimizer)
    assert float(copy.optimizer.learning_rate) == pytest.approx(0.01)
    assert int(copy.optimizer.iterations) == 0
    slots = copy.optimizer.variables[2:]
    assert slots
    assert all(not slot.numpy().any() for slot in slots)
    assert all(not v.numpy().any() for m in copy.metrics for v in m.variables)
    assert copy.run_eagerly
    copy.train_on_batch(*batch())


def test_compiled_drop_returns_an_uncompiled_model():
    copy = regraft.clone(trained_model(), compiled="drop")
    assert not copy.compiled
    assert vars(copy).keys() >= vars(small_model()).keys()
    assert not hasattr(copy, "optimizer")
    assert copy.loss is None
    copy.compile("sgd", "mse", run_eagerly=True)
    copy.train_on_batch(*batch())


# --- independence ------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda m: m.train_on_batch(*batch(5)), id="train"),
        pytest.param(lambda m: setattr(m, "trainable", False), id="freeze"),
        pytest.param(lambda m: setattr(m.layers[0], "units", 9), id="edit"),
        pytest.param(lambda m: setattr(m.layers[0], "name", "other"), id="rename"),
        pytest.param(lambda m: m.layers[0].quantize("int8"), id="quantize"),
        pytest.param(lambda m: m.layers[0].enable_lora(2), id="lora"),
        pytest.param(lambda m: m.pop(), id="pop"),
        pytest.param(
            lambda m: m.optimizer.learning_rate.assign(0.5), id="learning rate"
        ),
    ],
)
@pytest.mark.parametrize("which", ["original", "copy"])
def test_changing_one_never_shows_in_the_other(change, which):
    model = trained_model()
    copy, witness = regraft.clone(model), regraft.clone(model)
    changed, other = (model, copy) if which == "original" else (copy, model)
    change(changed)
    assert list(regraft.diff(witness, other)) == []


def test_adapting_the_copy_leaves_the_original():
    model = keras.Sequential([keras.Input((2,)), layers.Normalization(name="n")])
    model.layers[0].adapt(np.array([[1.0, 2.0], [3.0, 4.0]]))
    copy = regraft.clone(model)
    x = np.ones((1, 2), "float32")
    before = model(x)
    copy.layers[0].adapt(np.array([[10.0, 20.0], [30.0, 44.0]]))
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (before, model(x))))


def test_a_graph_survives_in_fit_and_predict_of_both():
    # On JAX both donate their buffers: sharing one would destroy the other.
    model = small_model()
    model.compile("sgd", "mse")
    copy = regraft.clone(model)
    x, y = batch()
    model.fit(x, y, shuffle=False, verbose=0)
    copy.fit(x, y, shuffle=False, verbose=0)
    np.testing.assert_array_equal(
        model.predict(x, verbose=0), copy.predict(x, verbose=0)
    )


# --- the original ------------------------------------------------------------


def test_the_original_is_not_touched():
    keras.utils.set_random_seed(3)
    model = trained_model()
    inner = model.layers[0]
    other = keras.Model(model.inputs, layers.Dense(1)(inner.output))
    nodes = len(inner._inbound_nodes), len(inner._outbound_nodes)
    before = values(model, model.optimizer, other)
    next_name, state = layers.Dense(1).name, random.getstate()
    twin = regraft.clone(model)
    regraft.clone(model, weights="fresh", seed=1)
    regraft.verify(model, twin)
    assert (len(inner._inbound_nodes), len(inner._outbound_nodes)) == nodes
    assert all_equal(before, values(model, model.optimizer, other))
    assert random.getstate() == state
    number = int(next_name.rpartition("_")[2] or 0)
    assert layers.Dense(1).name == f"dense_{number + 1}"
    # The node of the other model is not copied along.
    assert len(twin.layers[0]._outbound_nodes) < nodes[1]


def test_clone_of_a_clone_and_of_a_part():
    model = trained_model()
    again = regraft.clone(regraft.clone(model))
    regraft.verify(model, again).raise_if_different()
    layer = regraft.clone(model.layers[0])
    assert layer.kernel is not model.layers[0].kernel
    assert all_equal(values(layer), values(model.layers[0]))
    with pytest.raises(AttributeError):
        _ = layer.output


# --- functions ---------------------------------------------------------------

GLOBAL_LAYER = layers.Dense(4, name="global_layer")
GLOBAL_LAYER.build((None, 4))


def test_functions_over_parts_of_the_model_are_rebuilt_over_the_copies():
    dense = layers.Dense(4, name="tied")
    dense.build((None, 4))

    def closure(x):
        return x + dense(x)

    def default(x, layer=dense):
        return layer(x)

    def apply(layer, x):
        return layer(x)

    model = keras.Sequential([keras.Input((4,)), dense])
    model.functions = [closure, default, functools.partial(apply, dense), dense.call]
    copy = regraft.clone(model)
    copy.layers[0].kernel.assign(keras.ops.zeros((4, 4)))
    copy.layers[0].bias.assign(keras.ops.ones((4,)))
    x = keras.ops.ones((1, 4))
    answers = [keras.ops.convert_to_numpy(f(x)) for f in copy.functions]
    np.testing.assert_array_equal(answers[0], np.full((1, 4), 2.0))
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, np.ones((1, 4)))


@functools.lru_cache(maxsize=2)
def cached_by_a_module(x):
    return x


def test_functions_with_a_cache_are_rebuilt_over_the_copies():
    dense = layers.Dense(3)
    dense.build((None, 2))
    layer = Holder({"dense": dense, "module": cached_by_a_module})
    size = functools.lru_cache(maxsize=4, typed=True)(lambda n: n * dense.units)
    size.notes = ["kept"]
    layer.size = size
    layer.count = functools.cache(dense.count_params)
    layer.static = staticmethod(lambda: dense)
    assert layer.size(2) == 6
    copy = regraft.clone(layer)
    assert list(regraft.diff(layer, copy)) == []
    new = copy.value["dense"]
    new.units = 5
    assert copy.size(2) == 10
    assert layer.size(2) == 6
    assert copy.size.cache_parameters() == {"maxsize": 4, "typed": True}
    assert copy.size.notes == ["kept"]
    assert copy.size.notes is not size.notes
    assert copy.count.__wrapped__.__self__ is new
    assert copy.static.__func__() is new
    assert copy.value["module"] is cached_by_a_module
    copy = regraft.clone(layer)
    copy.size = functools.lru_cache(maxsize=5)(copy.size.__wrapped__)
    whys = {d.path.rpartition(".")[2] for d in regraft.diff(layer, copy)}
    assert "cache_parameters()['maxsize']" in whys


@pytest.mark.skipif(BACKEND == "torch", reason="torch compiles no functions here")
def test_a_compiled_partial_over_a_layer_is_rebuilt_over_the_copy():
    def scaled(layer, x, scale=2.0):
        return layer(x) * scale

    layer = Holder(layers.Dense(2, use_bias=False))
    layer.value.build((None, 4))
    partial = functools.partial(scaled, layer.value)
    if BACKEND == "jax":
        import jax

        layer.function = jax.jit(partial, static_argnames=("scale",))
    else:
        import tensorflow as tf

        layer.function = tf.function(partial)
    copy = regraft.clone(layer)
    x = np.ones((1, 4), "float32")
    outputs = [np.asarray(f(x, scale=3.0)) for f in (layer.function, copy.function)]
    np.testing.assert_array_equal(*outputs)
    copy.value.kernel.assign(np.zeros((4, 2)))
    assert not np.asarray(copy.function(x)).any()
    assert list(regraft.diff(layer, regraft.clone(layer))) == []


@pytest.mark.skipif(BACKEND != "jax", reason="flax is JAX's")
def test_a_frozen_dict_keeps_its_items():
    from flax.core import freeze

    layer = Holder(freeze({"a": {"b": np.ones(2)}, "c": [1]}))
    copy = regraft.clone(layer)
    assert list(copy.value) == ["a", "c"]
    assert copy.value["a"]["b"] is not layer.value["a"]["b"]
    assert list(regraft.diff(layer, copy)) == []


def test_a_function_without_state_keeps_its_identity():
    def double(x):
        return x * 2

    model = keras.Sequential([keras.Input((4,)), layers.Dense(4, activation=double)])
    copy = regraft.clone(model)
    assert copy.layers[0].activation is double


def test_state_behind_nonlocal_is_copied():
    def counter():
        count = 0

        def increase(x):
            nonlocal count
            count += 1
            return count

        return increase

    layer = Holder(counter())
    layer.value(None)
    copy = regraft.clone(layer)
    assert (copy.value(None), copy.value(None)) == (2, 3)
    assert layer.value(None) == 2


def test_state_on_a_function_is_copied():
    def counted(function):
        @functools.wraps(function)
        def wrapper(x):
            wrapper.calls += 1
            return function(x)

        wrapper.calls = 0
        return wrapper

    layer = Holder(counted(lambda x: x))
    copy = regraft.clone(layer)
    copy.value(1)
    assert (layer.value.calls, copy.value.calls) == (0, 1)
    assert list(regraft.diff(layer, copy))


def test_reading_the_model_from_a_global_warns_with_path_and_name():
    inputs = keras.Input((4,))
    outputs = layers.Lambda(lambda x: x + GLOBAL_LAYER.bias, name="uses_global")(
        GLOBAL_LAYER(inputs)
    )
    model = keras.Model(inputs, outputs, name="globals")
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(model)
    text = str(caught[0].message)
    assert "`GLOBAL_LAYER`" in text
    assert "globals/uses_global.function" in text


def closing_over(part, default=None):
    """Returns a model whose class, not an object of it, knows a part of it."""

    def adding(function):
        return lambda self, x: function(self, x) + part[0](x)

    class Closing(keras.Model):
        def __init__(self):
            super().__init__(name="closing")
            self.parts = list(part)

        @property
        def first(self):
            return part[0]

        @adding
        def decorated(self, x, other=default):
            return x

        def call(self, x):
            return self.parts[0](x)

    model = Closing()
    model(keras.ops.ones((1, 4)))
    return model


def test_a_class_that_closes_over_the_model_warns_with_path_and_name():
    model = closing_over([layers.Dense(4, name="inside")])
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(model)
    texts = [str(warning.message) for warning in caught]
    for name in ("first", "adding.<locals>.<lambda>"):
        (text,) = [text for text in texts if f"{name}` reads `part`" in text]
        assert "(Dense 'closing/inside') from the function around its class" in text
        assert "where: closing\n" in text
        assert "what to do: make it an attribute of a layer" in text


def test_a_class_whose_default_is_a_layer_warns():
    model = closing_over([layers.Dense(4)], default=layers.Dense(2, name="default"))
    with pytest.warns(regraft.GlobalReferenceWarning, match="from a default"):
        regraft.clone(model)


def test_a_class_that_holds_a_layer_warns():
    class Holding(layers.Layer):
        inner = layers.Dense(4, name="inner")

    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(Holding(name="holding"))
    text = str(caught[0].message)
    assert "Holding` reads `inner` (Dense 'inner') from its body" in text
    assert "where: holding\n" in text


class PerObject:
    """A descriptor that keeps a value for each object, as books have it."""

    def __init__(self):
        self.values = weakref.WeakKeyDictionary()

    def __get__(self, obj, kind=None):
        return self if obj is None else self.values.get(obj, 0.0)

    def __set__(self, obj, value):
        self.values[obj] = value


@pytest.mark.parametrize("where", ["descriptor", "objects", "ids"])
def test_what_a_class_keeps_for_each_object_warns(where):
    class Kept(layers.Layer):
        descriptor = PerObject()

    Kept.objects, Kept.ids = weakref.WeakSet(), {}
    layer = Kept(name="kept")
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.clone(layer)
    if where == "descriptor":
        layer.descriptor = 3.0
    elif where == "objects":
        Kept.objects.add(layer)
    else:
        Kept.ids[id(layer)] = 1
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(layer)
    (text,) = [str(warning.message) for warning in caught]
    assert f"Kept` keeps something for an object of this model in `{where}`" in text
    assert "where: kept\n" in text
    assert "what to do: keep it on the object" in text


def test_a_class_that_closes_over_what_is_kept_does_not_warn():
    inside = layers.Dense(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.clone(closing_over([inside]), keep=[inside])


def test_verifying_does_not_repeat_the_warning():
    model = closing_over([layers.Dense(4)])
    with pytest.warns(regraft.GlobalReferenceWarning):
        twin = regraft.clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.verify(model, twin, keras.ops.ones((1, 4)))


def test_a_loss_that_closes_over_a_layer_warns():
    features = layers.Dense(2, name="features")

    class Perceptual(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return keras.ops.mean((features(y_true) - features(y_pred)) ** 2)

    model = small_model()
    model.compile(loss=Perceptual())
    with pytest.warns(regraft.GlobalReferenceWarning, match="reads `features`"):
        regraft.clone(model)


def test_a_method_of_the_class_stays_a_method_of_the_class():
    log = []

    class Noting(layers.Layer):
        def __init__(self):
            super().__init__()
            self.callback, self.counter = self.note, self.count

        def note(self, x):
            log.append(x)

        @classmethod
        def count(cls):
            return len(log)

        def build(self, shape):
            log.append(shape)

    layer = Noting()
    copy = regraft.clone(layer)
    assert copy.callback.__func__ is Noting.note
    assert copy.callback.__self__ is copy
    copy.callback(1)
    assert layer.counter() == copy.counter() == 1
    assert regraft.verify(layer, copy).same


# --- fresh, share, seed ------------------------------------------------------


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


# --- names -------------------------------------------------------------------


def test_prefix_renames_consistently_and_composes(tmp_path):
    model = keras.Model(
        inputs := keras.Input((4,), name="data"),
        layers.Dense(2, name="out")(layers.Dense(3, name="hidden")(inputs)),
        name="net",
    )
    model.compile("adam", {"out": "mse"}, run_eagerly=True)
    copy = regraft.clone(model, prefix="b_")
    assert [layer.name for layer in copy.layers] == ["b_data", "b_hidden", "b_out"]
    assert copy.name == "b_net"
    assert copy.weights[0].path == "b_hidden/kernel"
    assert copy.inputs[0].name == "b_data"
    copy.train_on_batch(*batch())
    x = keras.Input((4,))
    both = keras.Model(x, layers.Average()([model(x), copy(x)]))
    both.compile("sgd", "mse", run_eagerly=True)
    both.train_on_batch(*batch())
    both.save(tmp_path / "both.keras")
    loaded = keras.models.load_model(tmp_path / "both.keras")
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(m(batch()[0])) for m in (both, loaded))
    )
    copy.save(tmp_path / "copy.keras")
    keras.models.load_model(tmp_path / "copy.keras").train_on_batch(*batch())


def test_prefix_leaves_the_keys_of_a_dict_of_outputs_alone(tmp_path):
    x = keras.Input((4,))
    outputs = {name: layers.Dense(2, name=name)(x) for name in ("p", "q")}
    model = keras.Model(x, outputs)
    losses, metrics = {"p": "mse", "q": "mae"}, {"p": ["mae"]}
    model.compile("adam", losses, metrics=metrics, run_eagerly=True)
    inputs, target = batch()
    targets = {"p": target, "q": target}
    model.train_on_batch(inputs, targets)
    renamed = regraft.clone(model, prefix="b_")
    renamed.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    forks = model, renamed, loaded
    for fork in forks:
        fork.train_on_batch(inputs, targets)
    assert loaded.output_names == ["b_p", "b_q"]
    weights = [[w.numpy() for w in fork.weights] for fork in forks]
    assert all_equal(weights[0], weights[1])
    assert all_equal(weights[0], weights[2])


def test_name_renames_the_model_alone():
    copy = regraft.clone(small_model(name="first"), name="second")
    assert copy.name == "second"
    assert copy.layers[0].name == "hidden"


def test_a_name_clash_from_prefix_is_refused():
    shared = layers.Dense(4, name="b_dense")
    model = keras.Sequential([keras.Input((4,)), shared, layers.Dense(4, name="dense")])
    with pytest.raises(regraft.UsageError, match="the same name") as error:
        regraft.clone(model, prefix="b_", keep=(shared,))
    assert "b_dense" in str(error.value)
    assert [layer.name for layer in model.layers] == ["b_dense", "dense"]


# --- while others are at work ------------------------------------------------


def test_inside_fit_a_clone_has_the_current_weights_and_disturbs_nothing():
    class Snapshots(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.pairs = []

        def on_train_batch_end(self, batch, logs=None):
            self.take()

        def on_epoch_end(self, epoch, logs=None):
            self.take()

        def take(self):
            copy = regraft.clone(self.model)
            self.pairs.append((copy, values(self.model, self.model.optimizer)))

    x, y = batch()
    model = small_model()
    model.compile("adam", "mse")
    twin = regraft.clone(model)
    snapshots = Snapshots()
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    twin.fit(
        x, y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[snapshots]
    )
    assert len(snapshots.pairs) == 6
    for copy, current in snapshots.pairs:
        assert all_equal(values(copy, copy.optimizer), current)
    assert all_equal(values(model, model.optimizer), values(twin, twin.optimizer))
    snapshots.pairs[0][0].fit(x, y, verbose=0)


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX takes values off variables")
def test_a_variable_without_a_value_says_where_the_value_is():
    model = small_model()
    model.layers[0].kernel._value = None  # As between two steps of `fit`.
    with pytest.raises(regraft.CopyError, match="no value at the moment") as error:
        regraft.clone(model)
    assert "hidden/kernel" in str(error.value)
    assert "jax_state_sync" in str(error.value)


def test_several_threads_may_clone_at_once():
    model = trained_model()
    copies = [None] * 8

    def work(i):
        copies[i] = regraft.clone(model, prefix=f"t{i}_")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(copies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, copy in enumerate(copies):
        assert copy.layers[0].name == f"t{i}_hidden"
        assert all_equal(values(copy, copy.optimizer), values(model, model.optimizer))


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

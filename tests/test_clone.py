"""`clone`: what stays the same, what becomes independent, what is refused."""

import random
import threading
import warnings

import keras
import numpy as np
import pytest
from keras import layers
from small import all_equal, batch, small_model, trained_model, values

import regraft

BACKEND = keras.backend.backend()


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


class Noisy(keras.Layer):
    """Draws when it is made, and when it is built, from what all programs draw from."""

    def __init__(self, **options):
        super().__init__(**options)
        self.phase = np.random.rand()
        self.inner = layers.Dense(3)

    def build(self, shape):
        self.noise = np.random.rand(3)
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "bfloat16"},
        {"inputs": (5, 3)},
        {"seed": 3},
        {"weights": "fresh", "seed": 3, "dtype": "bfloat16", "prefix": "new_"},
        {"weights": "fresh", "seed": 3, "inputs": (5, 3)},
    ],
)
def test_what_other_programs_draw_stays_the_same(options):
    model = keras.Sequential([keras.Input((3,)), Noisy(), layers.Dense(2)])
    keras.utils.set_random_seed(5)
    drawn = random.random(), np.random.rand(), float(keras.random.uniform(()))
    keras.utils.set_random_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", regraft.EditNotSavedWarning)
        regraft.clone(model, **options)
    again = random.random(), np.random.rand(), float(keras.random.uniform(()))
    assert again == drawn


@pytest.mark.parametrize("options", [{"compiled": "fresh"}, {"weights": "fresh"}])
def test_the_name_scope_around_it_is_no_matter(options):
    model = trained_model()
    wanted = regraft.clone(model, **options)
    with keras.name_scope("outer"):
        twin = regraft.clone(model, **options)
        assert keras.Variable(1.0, name="mine").path == "outer/mine"
    for kind in (lambda m: m, lambda m: m.optimizer):
        paths = [[v.path for v in kind(m).variables] for m in (wanted, twin)]
        assert paths[0] == paths[1]


def test_clone_of_a_clone_and_of_a_part():
    model = trained_model()
    again = regraft.clone(regraft.clone(model))
    regraft.verify(model, again).raise_if_different()
    layer = regraft.clone(model.layers[0])
    assert layer.kernel is not model.layers[0].kernel
    assert all_equal(values(layer), values(model.layers[0]))
    with pytest.raises(AttributeError):
        _ = layer.output


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


def test_a_layer_that_has_the_name_of_its_model_keeps_its_path():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(3, name="net")(inputs), name="net")
    new = regraft.clone(model, name="other")
    assert new.name == "other"
    assert new.layers[1].path == "net"
    assert [v.path for v in new.variables] == ["net/kernel", "net/bias"]


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

"""build, plan and lineage: weights, classes, optimizers, what is called again."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers

import regraft as rg

from . import models
from .checks import answers, assert_alone, assert_good, assert_kept, bits, values


def slots(model, *, but=()):
    """What an optimizer keeps for variables, by name, but for some variables."""
    return {
        v.name: bits(v)
        for v in model.optimizer.variables
        if not v.name.startswith(tuple(but))
    }


# --- mismatches -----------------------------------------------------------------------


def wider(model):
    graph = rg.graph(model).remove("add", keep="relu")
    return graph.replace("b", layers.Dense(7, name="b"))


def test_every_variable_that_does_not_fit_is_listed():
    model = models.branched()
    graph = rg.graph(model).remove("add", keep="relu").set("a", units=9)
    with pytest.raises(rg.MismatchError) as error:
        graph.build()
    text = str(error.value)
    assert "where: net" in text
    for line in (
        "a/kernel (8, 6) -> (8, 9)",
        "a/bias (6,) -> (9,)",
        "bn/gamma (6,) -> (9,)",
        "bn/moving_mean (6,) -> (9,)",
        "b/kernel (6, 6) -> (9, 6)",
    ):
        assert line in text
    assert 'mismatch="fit"' in text


def test_fresh_fit_and_a_function():
    model = models.branched()
    graph, old = wider(model), bits(model.get_layer("head").kernel)
    made = assert_good(graph, model, mismatch="fresh")
    [fate] = [f for f in rg.lineage(made) if f.path == "head/kernel"]
    assert (fate.what, fate.old_shape, fate.new_shape) == ("fresh", (6, 3), (7, 3))
    made = assert_good(graph, model, mismatch="fit")
    kernel = keras.ops.convert_to_numpy(made.get_layer("head").kernel)
    assert bits(kernel[:6]) == old
    asked = []

    def ones(path, before, drawn):
        asked.append((path, before.shape, drawn.shape))
        return np.ones_like(drawn)

    made = graph.build(mismatch=ones)
    assert asked == [("head/kernel", (6, 3), (7, 3))]
    kernel = keras.ops.convert_to_numpy(made.get_layer("head").kernel)
    assert (kernel == 1).all()
    assert rg.lineage(made).of("fitted")[0].path == "head/kernel"


def test_a_plan_tells_beforehand():
    model = models.branched()
    graph = wider(model)
    plan = graph.plan()
    made = graph.build(mismatch="fit")
    assert plan == rg.lineage(made)
    assert str(plan).splitlines()[0] == "7 copied, 2 fresh, 1 fitted, 2 dropped"
    assert "fitted   head/kernel (7, 3), was (6, 3)" in str(plan)
    assert len(plan) == len(list(plan)) == 12
    assert plan[0].what == "copied"
    assert [f.path for f in plan.of("dropped")] == ["b/kernel", "b/bias"]


# --- what is called again -------------------------------------------------------------


class Counted(layers.Layer):
    """Counts how often it is called."""

    count = 0

    def __call__(self, x):
        Counted.count += 1
        return super().__call__(x)

    def call(self, x):
        return x + 1.0


def test_only_what_comes_after_a_change_is_called_again():
    x = keras.Input((4,), name="x")
    h = x
    for i in range(8):
        h = Counted(name=f"c{i}")(h)
    model = keras.Model(x, h)
    graph = rg.graph(model).insert(layers.ReLU(name="new"), after="c5")
    Counted.count = 0
    graph.build()
    assert Counted.count == 2
    Counted.count = 0
    rg.graph(model).build()
    rg.graph(model).rename("c1", "one").build()
    assert Counted.count == 0


# --- classes --------------------------------------------------------------------------


class Kept(keras.Model):
    """Has a constructor like that of a functional model."""

    def double(self, x):
        return 2 * self(x)


class Lost(keras.Model):
    """Makes its own graph: a file of an edited one could not be loaded."""

    def __init__(self, units=3):
        x = keras.Input((4,), name="x")
        head = layers.Dense(units, name="head")
        super().__init__(x, head(layers.Dense(4, name="a")(x)), name="lost")
        self.head = head


def test_a_class_is_kept_where_files_can_tell():
    x = keras.Input((4,), name="x")
    model = Kept(x, layers.Dense(4, name="a")(x), name="kept")
    made = assert_good(rg.graph(model).append(layers.ReLU(name="r")), model)
    assert type(made) is Kept
    assert made.double(models.numbers(model)).shape == (2, 4)
    lost = Lost()
    with pytest.warns(rg.ClassChangedWarning, match="cannot be a Lost any more"):
        made = rg.graph(lost).append(layers.ReLU(name="r")).build()
    assert type(made).__name__ == "Functional"
    assert made.head is made.get_layer("head")
    assert type(rg.graph(lost).build()) is Lost


def test_a_class_is_kept_by_edits_of_variables_alone():
    lost = Lost()
    graph = rg.graph(lost)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen = graph.set("a", trainable=False).build()
        given = graph.set("head", kernel=np.ones((4, 3))).build()
    assert type(frozen) is type(given) is Lost
    assert not frozen.get_layer("a").trainable
    assert (keras.ops.convert_to_numpy(given.head.kernel) == 1).all()
    with pytest.warns(rg.ClassChangedWarning):
        made = graph.set("a", trainable=False).set("a", activation="relu").build()
    assert type(made).__name__ == "Functional"


class Doubled(keras.Model):
    """Returns more than its graph says, and makes its graph itself."""

    def __init__(self):
        x = keras.Input((4,), name="x")
        super().__init__(x, layers.Dense(4, name="a")(x), name="doubled")

    def call(self, inputs, training=None, mask=None):
        return 2 * super().call(inputs, training=training, mask=mask)


def test_a_class_that_returns_more_than_its_graph_is_kept():
    model = Doubled()
    with pytest.warns(rg.EditNotSavedWarning, match="where: doubled"):
        made = rg.graph(model).insert(layers.Identity(name="i"), after="a").build()
    x = models.numbers(model)
    assert answers(made, x) == answers(model, x)


def test_attributes_follow_layers():
    with pytest.warns(rg.ClassChangedWarning):
        made = rg.graph(Lost()).replace("head", layers.Dense(3, name="new")).build()
    assert made.head is made.get_layer("new")
    with pytest.warns(rg.ClassChangedWarning):
        made = rg.graph(Lost()).remove("head").build()
    assert made.head is None


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow's own checkpoints"
)
def test_checkpoints_find_what_is_in_an_edited_model(tmp_path):
    import tensorflow as tf

    def edited(model):
        graph = rg.graph(model).replace("relu", keras.ops.abs)
        return graph.insert(layers.Dense(6, name="new"), after="bn").build()

    def write(model):
        path = tf.train.Checkpoint(model=model).write(str(tmp_path / model.name))
        return path, [name for name, _ in tf.train.list_variables(path)]

    model = models.branched()
    made = edited(model)
    path, names = write(made)
    _, expected = write(keras.Model(made.inputs, made.outputs, name="by_keras"))
    assert names == expected
    other = edited(rg.clone(model, weights="fresh", seed=1))
    assert values(other) != values(made)
    tf.train.Checkpoint(model=other).read(path).assert_consumed()
    assert values(other) == values(made)


# --- compile --------------------------------------------------------------------------


def several():
    """One optimizer for some variables, and one for the others."""
    choice = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1, momentum=0.9))
    choice["[ab]/.*"] = keras.optimizers.Adam(0.01)
    return keras.optimizers.MultiOptimizer(choice)


def test_optimizers_inside_another_keep_to_their_variables():
    model = models.trained(models.branched(), several())
    made = rg.graph(model).insert(layers.Identity(name="i"), after="x").build()
    assert slots(made) == slots(model)
    made = rg.graph(model).append(layers.Dense(2, name="n")).build()
    new = sorted(slots(made).keys() - slots(model).keys())
    assert new == ["n_bias_momentum", "n_kernel_momentum"]


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        "adafactor",
        lambda: keras.optimizers.SGD(0.1, momentum=0.9),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()),
        lambda: keras.optimizers.Adam(use_ema=True),
        lambda: several(),
    ],
)
def test_slots_stay_with_their_variables(optimizer):
    made_by = optimizer() if callable(optimizer) else optimizer
    model = models.trained(models.branched(), made_by)
    graph = rg.graph(model).remove("bn").insert(layers.Dense(6, name="n"), after="a")
    made = assert_good(graph, model)
    before, after = slots(model), slots(made)
    # What has no slot has a placeholder, which has no name of its own.
    gone = ("bn_", "beta", "gamma", "bias")
    kept = {p: v for p, v in before.items() if not p.startswith(gone)}
    assert kept.items() <= after.items()
    models.step(made)
    assert_alone(made, model)


def test_a_layer_in_front_of_others_moves_no_slots():
    model = models.trained(models.branched())
    graph = rg.graph(model).insert(layers.Dense(8, name="n"), before="a")
    made = assert_good(graph, model)
    assert slots(model).items() <= slots(made).items()
    assert int(made.optimizer.iterations) == 1


@pytest.mark.wiring
def test_a_new_layer_has_no_slots_of_an_old_one():
    model = models.branched()
    model.compile(keras.optimizers.Adam(0.0), "mse")  # The zeros of biases stay.
    models.step(model)
    made = rg.graph(model).replace("a", layers.Dense(6, "relu", name="new")).build()
    new = [v for v in made.optimizer.variables if "new_" in v.path]
    assert len(new) == 4
    assert not any(np.any(v.numpy()) for v in new)
    left = slots(model, but=("a",))
    assert left.items() <= slots(made).items()


def test_slots_of_fitted_variables_start_anew():
    model = models.trained(models.branched())
    made = wider(model).build(mismatch="fit")
    but = ("b_", "head_kernel")
    assert slots(model, but=but).items() <= slots(made).items()
    shapes = {v.name: tuple(v.shape) for v in made.optimizer.variables}
    assert shapes["head_kernel_momentum"] == (7, 3)
    models.step(made)


@pytest.mark.parametrize("edited", [False, True])
def test_compiled(edited):
    model = models.trained(models.branched(), metrics=["mae"])
    graph = rg.graph(model)
    if edited:
        graph = graph.append(layers.ReLU(name="r"))
    assert not graph.build(compiled="drop").compiled
    fresh = graph.build(compiled="fresh")
    assert fresh.compiled
    assert int(fresh.optimizer.iterations) == 0
    fresh_slots = {v.path for v in fresh.optimizer.variables}
    assert fresh_slots == {v.path for v in model.optimizer.variables}
    assert all(
        not keras.ops.convert_to_numpy(v).any()
        for v in fresh.optimizer.variables
        if "momentum" in v.path or "velocity" in v.path
    )
    copied = graph.build()
    assert int(copied.optimizer.iterations) == 1
    assert len(models.step(copied)) == 2


def test_training_goes_on_as_if_nothing_had_happened():
    model = models.trained(models.branched())
    made = rg.graph(model).insert(layers.Identity(name="same"), after="b").build()
    assert models.step(made) == models.step(model)
    assert values(made) == values(model)
    assert slots(made) == slots(model)


# --- what else there is ---------------------------------------------------------------


def test_two_builds_are_independent():
    model = models.trained(models.branched())
    graph = rg.graph(model).append(layers.Dense(2, name="n"))
    one, other = graph.build(), graph.build()
    assert_alone(one, other, model)
    before = values(other)
    models.step(one)
    assert values(other) == before


class Tied(layers.Layer):
    """Multiplies with the kernel of another layer."""

    def __init__(self, kernel, **kwargs):
        super().__init__(**kwargs)
        self.kernel = kernel

    def call(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(self.kernel))


def test_ties_and_frozen_layers():
    x = keras.Input((4,), name="x")
    first = layers.Dense(4, name="first")
    h = layers.Dense(4, name="frozen", trainable=False)(first(x))
    model = keras.Model(x, Tied(first.kernel, name="tied")(h))
    graph = rg.graph(model).insert(layers.ReLU(name="r"), before="tied")
    made = assert_good(graph, model)
    assert made.get_layer("tied").kernel is made.get_layer("first").kernel
    assert not made.get_layer("frozen").trainable
    assert len(made.trainable_variables) == len(model.trainable_variables)


def test_state_of_all_kinds(tmp_path):
    norm = layers.Normalization(name="norm")
    norm.adapt(np.random.default_rng(0).normal(3, 2, (9, 4)).astype("float32"))
    x = keras.Input((3, 4), batch_size=2, name="x")
    h = layers.LSTM(3, stateful=True, name="lstm")(norm(x))
    h = layers.Dense(3, name="lora")(layers.Dropout(0.5, seed=1, name="drop")(h))
    model = keras.Model(x, h, name="states")
    model.get_layer("lora").enable_lora(2)
    model(models.numbers(model))
    model(models.numbers(model), training=True)
    graph = rg.graph(model).insert(layers.Identity(name="i"), before="lstm")
    made = graph.insert(layers.Identity(name="j"), before="lora").build()
    assert values(made) == values(model)
    states = [bits(v) for v in made.get_layer("lstm").states]
    assert states == [bits(v) for v in model.get_layer("lstm").states]
    x = models.numbers(model)
    assert answers(made, x) == answers(model, x)


@pytest.mark.parametrize("where", ["lstm", "lstm/lstm_cell", "bare"])
def test_states_stay_where_a_copy_takes_a_place(where):
    x = keras.Input((3, 4), batch_size=2, name="x")
    h = layers.LSTM(3, stateful=True, return_sequences=True, name="lstm")(x)
    h = layers.Bidirectional(layers.GRU(2, stateful=True), name="bare")(h)
    model = keras.Model(x, h, name="states")
    x = models.numbers(model)
    answers(model, x)
    twin = rg.clone(model)
    made = rg.graph(model).replace(where, rg.clone).build()
    expected = answers(twin, x)
    assert answers(made, x) == expected
    assert answers(model, x) == expected


def test_mixed_precision_and_optional_inputs():
    x = keras.Input((4,), name="x")
    maybe = keras.Input((4,), optional=True, name="maybe")

    class Plus(layers.Layer):
        def call(self, x, other=None):
            return x if other is None else x + other

    h = Plus(name="plus")(layers.Dense(4, dtype="mixed_bfloat16", name="d")(x), maybe)
    model = keras.Model([x, maybe], h, name="optional")
    made = rg.graph(model).insert(layers.ReLU(name="r"), after="d").build()
    assert made.get_layer("d").dtype_policy.name == "mixed_bfloat16"
    assert_kept(model, made)
    assert answers(made, [np.ones((2, 4), "float32"), None])


def test_nothing_is_known_of_other_models():
    with pytest.raises(rg.UsageError, match="Nothing is known of where this model"):
        rg.lineage(models.branched())


def test_a_model_with_more_outputs_must_be_compiled_again():
    model = models.branched()
    model.compile("adam", "mse")
    made = rg.graph(model).outputs("relu", "head").build()
    assert not made.compiled
    assert made.output_names == ["relu", "head"]
    assert "net is not compiled any more: it has other outputs." in str(
        rg.lineage(made)
    )
    assert rg.graph(model).outputs("relu").build().compiled

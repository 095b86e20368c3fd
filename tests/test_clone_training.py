"""`clone`: optimizers, losses and metrics of copies that start anew or are renamed."""

import collections
import gc
import warnings

import keras
import numpy as np
import pytest
from keras import layers, optimizers

import regraft

BACKEND = keras.backend.backend()
only_tensorflow = pytest.mark.skipif(
    BACKEND != "tensorflow", reason="about TensorFlow's checkpoints"
)

X = np.random.default_rng(0).random((6, 4), "float32")
Y = np.random.default_rng(1).random((6, 2), "float32")


def compiled(optimizer, **options):
    x = keras.Input((4,))
    y = layers.Dense(3, activation="tanh", name="hidden")(x)
    model = keras.Model(x, layers.Dense(2, name="head")(y))
    model.compile(optimizer, "mse", **options)
    return model


def values(holder):
    return [keras.ops.convert_to_numpy(v).copy() for v in holder.variables]


def assert_same(left, right):
    np.testing.assert_equal(values(left), values(right))


def assert_train_alike(left, right, steps=2):
    for _ in range(steps):
        left.train_on_batch(X, Y)
        right.train_on_batch(X, Y)
    assert_same(left, right)


# --- what an optimizer knows variables by ------------------------------------


@pytest.mark.parametrize("steps", [0, 1])
def test_variables_excluded_from_weight_decay_stay_excluded(steps):
    model = compiled(optimizers.AdamW(0.01, weight_decay=20.0))
    model.optimizer.exclude_from_weight_decay(var_list=[model.weights[0]])
    for _ in range(steps):
        model.train_on_batch(X, Y)
    twin = regraft.clone(model)
    assert_train_alike(model, twin)


class Keyed(optimizers.Optimizer):
    """Keeps its slots in containers inside containers, by key."""

    def build(self, variables):
        super().build(variables)
        keys = [self._var_key(v) for v in variables]
        slots = [self.add_variable_from_reference(v, "m") for v in variables]
        made = collections.OrderedDict(zip(keys, slots, strict=True))
        self.nested = {"m": ({"all": [made]},)}
        self.ordered = collections.OrderedDict((key, 0.5) for key in keys)
        self.slow = frozenset(keys[:1])
        self.skipped = [{keys[1]}]

    def update_step(self, gradient, variable, learning_rate):
        key = self._var_key(variable)
        slot = self.nested["m"][0]["all"][0][key]
        self.assign_add(slot, gradient * self.ordered[key])
        if key not in self.skipped[0]:
            rate = learning_rate * (0.1 if key in self.slow else 1.0)
            self.assign_sub(variable, rate * slot)


def test_keys_inside_containers_follow():
    model = compiled(Keyed(0.1))
    model.train_on_batch(X, Y)
    twin = regraft.clone(model)
    assert list(twin.optimizer.ordered) != list(model.optimizer.ordered)
    assert_train_alike(model, twin)
    again = regraft.clone(twin)
    assert_train_alike(again, twin)


# --- optimizers that start anew ----------------------------------------------


class Appending(optimizers.Optimizer):
    """Adds its slots to containers that it made in `__init__`."""

    def __init__(self, learning_rate=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.sums, self.pairs, self.by_name = [], [], {"all": {}}

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        for i, variable in enumerate(variables):
            new = [self.add_variable_from_reference(variable, n) for n in "abcd"]
            self.sums.append(new[0] if i else None)
            self.pairs.append((new[1], new[2]))
            self.by_name["all"].setdefault(variable.path, new[3])
        self.paths = [v.path for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        i = self._get_variable_index(variable)
        found = [*self.pairs[i], self.by_name["all"][self.paths[i]], self.sums[i]]
        for slot in found:
            if slot is not None:
                self.assign_add(slot, gradient)
                self.assign_sub(variable, learning_rate * slot)


@pytest.mark.parametrize("options", [{"compiled": "fresh"}, {"weights": "fresh"}])
def test_slots_that_build_appends_start_anew(options):
    model = compiled(Appending())
    model.train_on_batch(X, Y)
    before = values(model.optimizer)
    copy = regraft.clone(model, **options)
    optimizer = copy.optimizer
    assert [len(optimizer.sums), len(optimizer.pairs)] == [4, 4]
    assert len(optimizer.variables) == len(model.optimizer.variables)
    slots = [x for x in values(optimizer) if x.shape]
    assert not any(slot.any() for slot in slots)
    new = compiled(Appending())
    new.set_weights(copy.get_weights())
    assert_train_alike(copy, new)
    np.testing.assert_equal(values(model.optimizer), before)


@only_tensorflow
@pytest.mark.parametrize("make", [lambda: optimizers.Adam(0.1), Appending])
@pytest.mark.parametrize("options", [{}, {"prefix": "p_"}])
def test_a_copy_that_starts_anew_can_be_exported_and_restored(make, options, tmp_path):
    import tensorflow as tf

    model = compiled(make())
    model.train_on_batch(X, Y)
    copy = regraft.clone(model, compiled="fresh", **options)
    copy.train_on_batch(X, Y)
    copy.export(str(tmp_path / "exported"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(loaded.serve(X), copy(X), rtol=1e-6)
    path = tf.train.Checkpoint(model=copy).save(str(tmp_path / "checkpoint"))
    before = values(copy), values(copy.optimizer)
    copy.train_on_batch(X, Y)
    tf.train.Checkpoint(model=copy).restore(path).assert_existing_objects_matched()
    np.testing.assert_equal((values(copy), values(copy.optimizer)), before)


# --- dropped compile state ---------------------------------------------------


class Counted(optimizers.SGD):
    """Told apart from other optimizers by its class."""


def living():
    gc.collect()
    return sum(type(x) is Counted for x in gc.get_objects())


def test_dropped_optimizers_are_not_copied():
    before = living()
    model = compiled(Counted(0.1, momentum=0.9))
    model.train_on_batch(X, Y)
    copy = regraft.clone(model, compiled="drop")
    assert living() - before == 1
    assert not copy.compiled
    copy.compile(optimizers.SGD(0.1), "mse")
    copy.train_on_batch(X, Y)
    model.train_on_batch(X, Y)


@only_tensorflow
def test_checkpoints_know_nothing_of_a_dropped_optimizer(tmp_path):
    import tensorflow as tf

    model = compiled("adam")
    model.train_on_batch(X, Y)

    def saved(root, name):
        path = tf.train.Checkpoint(model=root).save(str(tmp_path / name))
        return {entry for entry, _ in tf.train.list_variables(path)}

    copy = regraft.clone(model, compiled="drop")
    assert not any("optimizer" in entry for entry in saved(copy, "copy"))
    assert any("optimizer" in entry for entry in saved(model, "model"))
    copy.compile("adam", "mse")
    copy.train_on_batch(X, Y)
    assert saved(copy, "again") == saved(model, "model")


# --- renamed copies of trained models ----------------------------------------


def branched(outputs="list", **options):
    x = keras.Input((4,))
    a, b = layers.Dense(2, name="a")(x), layers.Dense(2, name="b")(x)
    model = keras.Model(x, {"a": a, "b": b} if outputs == "dict" else [a, b])
    options = options or {
        "loss": {"a": "mse", "b": "mae"},
        "loss_weights": {"a": 1.0, "b": 0.5},
        "metrics": {"a": ["mae"], "b": ["mse"]},
        "weighted_metrics": {"b": ["mae"]},
    }
    model.compile("sgd", **options)
    return model


def logs(model, targets):
    return model.train_on_batch(X, targets, return_dict=True)


def test_renamed_outputs_take_targets_by_their_new_names():
    model = branched()
    early = regraft.clone(model, prefix="p_")
    new = {"p_a": Y, "p_b": 2 * Y}
    logs(early, new)
    logs(model, {"a": Y, "b": 2 * Y})
    late = regraft.clone(model, prefix="p_")
    found = logs(late, new)
    assert found == logs(early, new)
    assert {"p_a_loss", "p_b_loss", "p_a_mae", "p_b_mse", "p_b_mae"} < found.keys()
    assert "a_loss" in logs(model, {"a": Y, "b": 2 * Y})
    assert logs(late, [Y, 2 * Y]).keys() == found.keys()


def test_keys_of_a_dict_of_outputs_stay():
    model = branched("dict")
    targets = {"a": Y, "b": 2 * Y}
    logs(model, targets)
    copy = regraft.clone(model, prefix="p_")
    assert logs(copy, targets) == logs(model, targets)
    assert copy.output_names == ["p_a", "p_b"]


def test_outputs_in_lists_of_a_dict_are_renamed_in_logs():
    def make():
        x = keras.Input((4,))
        ends = [layers.Dense(2, name=n)(x) for n in "ab"]
        model = keras.Model(x, {"ends": ends})
        model.compile("sgd", {"ends": ["mse", "mae"]})
        return model

    model, targets = make(), {"ends": [Y, Y]}
    early = regraft.clone(model, prefix="p_")
    logs(early, targets)
    logs(model, targets)
    late = regraft.clone(model, prefix="p_")
    found = logs(late, targets)
    assert found == logs(early, targets)
    assert any("p_a" in name for name in found)


def test_losses_and_metrics_named_like_outputs_stay():
    x = keras.Input((4,))
    model = keras.Model(x, [layers.Dense(2, name=n)(x) for n in ("mse", "mae")])
    model.compile("sgd", ["mse", "mae"], metrics=["mae", "mse"])
    copy = regraft.clone(model, prefix="p_")
    found = copy.train_on_batch(X, [Y, Y], return_dict=True)
    assert {"p_mse_loss", "p_mse_mae", "p_mae_mse"} < found.keys()


def test_names_that_follow_each_other_are_changed_once():
    x = keras.Input((4,))
    model = keras.Model(x, [layers.Dense(2, name=n)(x) for n in ("a", "p_a")])
    model.compile("sgd", {"a": "mse", "p_a": "mae"})
    logs(model, {"a": Y, "p_a": Y})
    copy = regraft.clone(model, prefix="p_")
    assert copy.output_names == ["p_a", "p_p_a"]
    found, expected = logs(copy, {"p_a": Y, "p_p_a": Y}), logs(model, [Y, Y])
    assert found["p_a_loss"] == expected["a_loss"]
    assert found["p_p_a_loss"] == expected["p_a_loss"]


@only_tensorflow
def test_a_renamed_copy_can_be_exported(tmp_path):
    model = branched()
    logs(model, {"a": Y, "b": Y})
    regraft.clone(model, prefix="p_").export(str(tmp_path / "exported"), verbose=False)


@pytest.mark.parametrize(
    "patterns",
    [
        ["head/.*"],
        ["head/kernel", "head/bias"],
        ["h.*/kernel"],
        ["p_.*"],
        ["p_hidden/.*"],
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
def test_renamed_variables_keep_their_optimizers(patterns, steps):
    choice = optimizers.OptimizerMap(optimizers.SGD(0.01))
    fast = optimizers.SGD(1.0, momentum=0.9)
    for pattern in patterns:
        choice[pattern] = fast
    model = compiled(optimizers.MultiOptimizer(choice))
    for _ in range(steps):
        model.train_on_batch(X, Y)
    copy = regraft.clone(model, prefix="p_")
    again = regraft.clone(copy, prefix="q_", compiled="fresh")
    assert list(choice) == patterns
    assert_train_alike(model, copy)
    if not steps:
        again.train_on_batch(X, Y)
        again.train_on_batch(X, Y)
        assert_same(model, again)


# --- fresh weights of quantized models ---------------------------------------


def one_layer(layer, *shape, dtype="float32"):
    x = keras.Input(shape, dtype=dtype)
    return keras.Model(x, layer(x))


QUANTIZED = {
    "dense": lambda: one_layer(layers.Dense(3, bias_initializer="normal"), 4),
    "einsum_dense": lambda: one_layer(
        layers.EinsumDense("abc,cd->abd", (None, 6), bias_axes="d"), 5, 4
    ),
    "embedding": lambda: one_layer(layers.Embedding(7, 4), 5, dtype="int32"),
    "reversible_embedding": lambda: one_layer(
        layers.ReversibleEmbedding(7, 4, tie_weights=False), 5, dtype="int32"
    ),
    "nested": lambda: one_layer(one_layer(layers.Dense(3), 4), 4),
    "bfloat16": lambda: one_layer(layers.Dense(3, dtype="mixed_bfloat16"), 4),
}


def quantize(model, mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Inputs cannot be quantized.
        model.quantize(mode)
    return model


# Keras quantizes with the same code on every backend: elsewhere one model will do.
EACH_QUANTIZED = [
    pytest.param(name, marks=() if name == "nested" else pytest.mark.wiring)
    for name in QUANTIZED
]


def example(model):
    shape = (2, *model.inputs[0].shape[1:])
    if model.inputs[0].dtype == "int32":
        return np.arange(np.prod(shape)).reshape(shape).astype("int32") % 7
    return np.random.default_rng(0).random(shape, "float32")


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("name", EACH_QUANTIZED)
def test_fresh_weights_of_a_quantized_model_are_drawn(name, mode):
    model = quantize(QUANTIZED[name](), mode)
    before = values(model)
    one, same, other = (
        regraft.clone(model, weights="fresh", seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_equal(values(model), before)
    assert_same(one, same)
    x = example(model)
    outputs = [np.asarray(z.predict(x, verbose=0), "float32") for z in (model, one)]
    assert outputs[1].std() > 0.2 * outputs[0].std() > 0
    for variable, mine, theirs in zip(
        one.variables, values(one), values(other), strict=True
    ):
        if variable.name in ("kernel", "embeddings", "reverse_embeddings"):
            assert mine.any()
            assert (mine != theirs).any()


@pytest.mark.parametrize("mode", ["int8", "int4"])
@pytest.mark.parametrize("name", EACH_QUANTIZED)
def test_fresh_weights_are_those_of_a_model_quantized_afterwards(name, mode):
    model = QUANTIZED[name]()
    drawn = regraft.clone(model, weights="fresh", seed=3)
    for each in (model, drawn):
        quantize(each, mode)
    found = regraft.clone(model, weights="fresh", seed=3)
    assert_same(found, drawn)
    x = example(model)
    outputs = [each.predict(x, verbose=0) for each in (found, drawn)]
    np.testing.assert_array_equal(*outputs)


def test_fresh_weights_of_layers_quantized_by_their_policy():
    for policy in ("int8_from_float32", "int4/2_from_float32", "int4/-1_from_float32"):
        model = one_layer(layers.Dense(3, dtype=policy), 4)
        assert not model.predict(X, verbose=0).any()
        fresh = regraft.clone(model, weights="fresh", seed=1)
        assert fresh.predict(X, verbose=0).any()


def test_fresh_weights_of_quantized_layers_with_lora():
    model = quantize(QUANTIZED["dense"](), "int8")
    model.layers[-1].enable_lora(2)
    fresh = regraft.clone(model, weights="fresh", seed=1)
    fresh.compile("sgd", "mse")
    target = np.ones((6, 3), "float32")
    losses = [fresh.train_on_batch(X, target) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert fresh.layers[-1].lora_kernel_a.shape == (4, 2)


class BuiltOnce(layers.Dense):
    """A layer that cannot be built a second time."""

    was_built = False

    def build(self, input_shape):
        if self.was_built:
            raise RuntimeError
        super().build(input_shape)
        self.was_built = True


def calibrated():
    layer = layers.Dense(4)
    model = one_layer(layer, 4)
    config = keras.quantizers.GPTQConfig(dataset=None, tokenizer=None, group_size=-1)
    layer.quantize("gptq", config=config)
    return model


def built_once():
    layer = BuiltOnce(4)
    model = one_layer(layer, 4)
    layer.quantize("int8", type_check=False)
    return model


@pytest.mark.parametrize(
    ("make", "received"),
    [
        (calibrated, "Dense, quantized to gptq"),
        (built_once, "BuiltOnce, quantized to int8"),
    ],
)
def test_quantized_layers_that_cannot_be_drawn_are_refused(make, received):
    model = make()
    with pytest.raises(regraft.CopyError, match="A quantized variable cannot") as e:
        regraft.clone(model, weights="fresh", seed=1)
    text = str(e.value)
    assert model.layers[-1].name in text
    assert received in text
    assert "expected: a layer that can be built with floats" in text
    assert "clone with fresh weights first, then quantize the copy" in text
    assert regraft.verify(model, regraft.clone(model)).same


# --- functions that a model made while it ran ------------------------------------


@pytest.mark.parametrize("jit_compile", [True, False])
def test_a_model_that_has_predicted_can_be_copied(jit_compile):
    model = compiled("sgd", jit_compile=jit_compile and BACKEND != "torch")
    model.predict(X, verbose=0)
    model.evaluate(X, Y, verbose=0)
    for options in ({}, {"weights": "fresh"}, {"compiled": "drop"}):
        twin = regraft.clone(model, **options)
        assert twin.predict_function is None
    twin = regraft.clone(model)
    assert np.array_equal(twin.predict(X, verbose=0), model.predict(X, verbose=0))


class KeyedTwice(optimizers.Optimizer):
    """Keeps slots of several kinds, each kind by key."""

    def build(self, variables):
        super().build(variables)
        self.seen = set(map(self._var_key, variables))
        slots = {}
        for variable in variables:
            slot = self.add_variable_from_reference(variable, "m")
            slots[self._var_key(variable)] = slot
        self.kinds = {"m": slots}

    def update_step(self, gradient, variable, learning_rate):
        slot = self.kinds["m"][self._var_key(variable)]
        self.assign_add(slot, gradient)
        self.assign_sub(variable, learning_rate * slot)


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("kind", [optimizers.AdamW, KeyedTwice])
def test_copies_of_optimizers_with_keys_are_the_same(kind, steps):
    model = compiled(kind(0.01))
    model.optimizer.exclude_from_weight_decay(var_list=[model.weights[0]])
    for _ in range(steps):
        model.train_on_batch(X, Y)
    assert regraft.verify(model, regraft.clone(model)).same


def draws_from_the_backend(shape, dtype=None):
    """An initializer that draws from the stream that all share, not from Keras's."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.random.normal(shape)
    if BACKEND == "torch":
        import torch

        return torch.randn(*shape)
    return keras.random.normal(shape)


def draw():
    return keras.ops.convert_to_numpy(draws_from_the_backend((4,)))


def test_a_seed_is_for_what_the_backend_draws_as_well():
    dense = layers.Dense(3, kernel_initializer=draws_from_the_backend)
    model = keras.Sequential([keras.Input((4,)), dense])
    keras.utils.set_random_seed(11)
    expected = [draw(), draw()]
    keras.utils.set_random_seed(11)
    found = [draw()]
    drawn = [
        regraft.clone(model, weights="fresh", seed=seed).get_weights()[0]
        for seed in (3, 3, 4)
    ]
    found.append(draw())
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    np.testing.assert_array_equal(found, expected)


class Accumulating(keras.Model):
    """Applies the gradients of every third step, and clears them then."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(2)
        self.steps = 0

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        self.compute_loss(y=y, y_pred=self(x, training=True)).backward()
        self.steps += 1
        if self.steps % 3 == 0:
            weights = self.trainable_variables
            self.optimizer.apply([w.value.grad for w in weights], weights)
            self.zero_grad()
        return {}


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="gradients of tensors")
def test_gradients_that_wait_for_their_step_come_along():
    model = Accumulating()
    model.compile("sgd", "mse")
    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    for _ in range(5):
        model.train_on_batch(x, y)
    twin = regraft.clone(model)
    assert regraft.verify(model, twin).same
    for one in (model, twin):
        one.train_on_batch(x, y)
    assert regraft.verify(model, twin).same
    model.train_on_batch(x, y)
    twin.train_on_batch(2 * x, y)
    found = [d.path for d in regraft.diff(model, twin, inputs=False)]
    assert any("kernel.grad" in path for path in found)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="gradients of tensors")
def test_gradients_that_the_next_step_clears_are_left_behind():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model.compile("sgd", "mse")
    model.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))
    assert model.weights[0].value.grad is not None
    twin = regraft.clone(model)
    assert twin.weights[0].value.grad is None
    assert regraft.verify(model, twin).same


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="gradients of tensors")
def test_gradients_that_the_next_step_does_not_reach_come_along():
    def encoder():
        x = keras.Input((3,))
        return keras.Model(x, layers.Dense(2, name="same")(x))

    x = keras.Input((3,))
    model = keras.Model(x, [encoder()(x), encoder()(x)])
    assert len({v.path for v in model.weights}) == 2  # Of four: the module knows these.
    model.compile(keras.optimizers.SGD(0.1), ["mse", "mse"])
    data = np.ones((4, 3)), [np.ones((4, 2))] * 2
    model.train_on_batch(*data)
    twin = regraft.clone(model)
    for _ in range(2):
        assert regraft.verify(model, twin).same
        for one in (model, twin):
            one.train_on_batch(*data)
    first = twin.trainable_variables[0].value
    first.grad = first.grad + 1
    assert "same/kernel.grad" in str(next(regraft.diff(model, twin, inputs=False)))


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="gradients of tensors")
def test_gradients_of_who_trains_by_hand_come_along():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    model(np.ones((4, 3), "float32")).sum().backward()
    twin = regraft.clone(model)
    kernels = [one.weights[0].value for one in (model, twin)]
    assert (kernels[0].grad == kernels[1].grad).all()
    assert kernels[0].grad is not kernels[1].grad
    kernels[1].grad += 1
    assert not regraft.verify(model, twin).same


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="a mode of torch")
@pytest.mark.parametrize("how", [{}, {"weights": "fresh"}, {"inputs": (5, 3)}])
def test_a_copy_made_in_inference_mode_can_be_trained(how):
    import torch

    model = keras.Sequential([keras.Input((3,)), layers.Dense(2), layers.Dropout(0.5)])
    model.compile("adam", "mse")
    model.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))
    with torch.inference_mode():
        twin = regraft.clone(model, **how)
    before = keras.ops.convert_to_numpy(twin.weights[0])
    axes = (4, 5) if "inputs" in how else (4,)
    twin.train_on_batch(np.ones((*axes, 3)), np.ones((*axes, 2)))
    assert (keras.ops.convert_to_numpy(twin.weights[0]) != before).any()


class ByPath(optimizers.SGD):
    """Knows by their paths which variables learn faster."""

    def build(self, variables):
        super().build(variables)
        self.faster = {v.path: 10.0 for v in variables[-2:]}
        self.paths = [v.path for v in variables]
        self.first = variables[0].path

    def update_step(self, gradient, variable, learning_rate):
        rate = learning_rate * self.faster.get(variable.path, 1.0)
        super().update_step(gradient, variable, rate)


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow",
    reason="it is handed variables of another kind",
)
def test_what_an_optimizer_knows_by_path_follows_other_names():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.Dense(2)])
    model.compile(ByPath(0.01), "mse")
    x, y = np.ones((4, 3), "float32"), np.zeros((4, 2), "float32")
    model.train_on_batch(x, y)
    twin = regraft.clone(model, prefix="b_")
    paths = [v.path for v in twin.trainable_variables]
    assert list(twin.optimizer.faster) == paths[-2:]
    assert twin.optimizer.paths == paths
    assert twin.optimizer.first == paths[0]
    for one in (model, twin):
        one.train_on_batch(x, y)
    for mine, other in zip(model.weights, twin.weights, strict=True):
        same = keras.ops.convert_to_numpy(mine) == keras.ops.convert_to_numpy(other)
        assert same.all()

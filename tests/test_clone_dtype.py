"""`clone(dtype=...)`: another precision, and what it costs."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers, ops, optimizers

import regraft as rg

BACKEND = keras.backend.backend()
X = np.random.default_rng(0).random((2, 4), "float32")
# JAX compiles every operation that is called.
IS_SLOW = BACKEND == "jax"
NARROW = ["bfloat16", "mixed_float16"]
if not IS_SLOW:
    NARROW += ["float16", "mixed_bfloat16"]


def numbers(x):
    return [ops.convert_to_numpy(t) for t in keras.tree.flatten(x)]


def dtypes(things):
    return {keras.backend.standardize_dtype(x.dtype) for x in things}


def mlp(name="net"):
    x = keras.Input((4,), name="x")
    y = layers.Dense(8, activation="relu", name="hidden")(x)
    y = layers.BatchNormalization(name="norm")(y)
    y = layers.Dropout(0.5, seed=1, name="drop")(y)
    y = layers.Dense(2, name="head")(y) * 2.0
    return keras.Model(x, layers.Softmax(name="odds")(y), name=name)


def assert_consistent(new, x):
    outputs = keras.tree.flatten(new(x))
    assert [x.dtype for x in new.outputs] == [
        keras.backend.standardize_dtype(x.dtype) for x in outputs
    ]


def variable_of(policy):
    return "float32" if policy.startswith("mixed") else policy


@pytest.mark.parametrize("policy", NARROW)
def test_a_policy_is_for_all_layers(policy, tmp_path):
    model = mlp()
    before = rg.clone(model)
    new = rg.clone(model, dtype=policy)
    compute = policy.removeprefix("mixed_")
    assert {layer.dtype_policy.name for layer in new.layers[1:]} == {policy}
    assert dtypes(new.weights) == {variable_of(policy)}
    seeds = [m.get_layer("drop").seed_generator.state for m in (model, new)]
    assert seeds[0].dtype == seeds[1].dtype
    assert (new.input.dtype, new.output.dtype) == ("float32", compute)
    assert [v.path for v in new.variables] == [v.path for v in model.variables]
    for mine, other in zip(model.weights, new.weights, strict=True):
        rounded = ops.convert_to_numpy(ops.cast(mine.value, variable_of(policy)))
        assert rounded.tobytes() == ops.convert_to_numpy(other).tobytes()
    report = rg.compare(model, new, X)
    assert 0 < report.max_abs < 0.01
    assert (report["odds"].left, report["odds"].right) == ("float32", compute)
    rg.verify(model, before, inputs=False).raise_if_different()
    new.save(str(tmp_path / "new.keras"))
    loaded = keras.saving.load_model(str(tmp_path / "new.keras"))
    assert loaded.output.dtype == compute
    for mine, other in zip(new.get_weights(), loaded.get_weights(), strict=True):
        assert mine.tobytes() == other.tobytes()
    if not IS_SLOW:
        assert rg.compare(new, loaded, X).max_abs == 0


def test_a_policy_object_is_a_policy():
    new = rg.clone(mlp(), dtype=keras.DTypePolicy("mixed_bfloat16"))
    assert new.get_layer("head").compute_dtype == "bfloat16"


def test_what_is_cast_is_what_keras_would_make():
    keras.config.set_dtype_policy("bfloat16")
    try:
        wanted = mlp()
    finally:
        keras.config.set_dtype_policy("float32")
    new = rg.clone(mlp(), dtype="bfloat16")
    for mine, other in zip(wanted.weights, new.weights, strict=True):
        assert (mine.path, mine.dtype) == (other.path, other.dtype)
    assert [x.output.dtype for x in wanted.layers] == [
        x.output.dtype for x in new.layers
    ]


def test_there_and_back_loses_nothing_of_a_mixed_policy():
    model = mlp()
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    mixed = rg.clone(model, dtype="mixed_bfloat16")
    back = rg.clone(mixed, dtype="float32")
    rg.verify(model, back, inputs=False).raise_if_different()


def test_places_are_named():
    model = mlp()
    new = rg.clone(model, dtype={layers.Dense: "bfloat16", "head": "float32"})
    assert new.get_layer("hidden").kernel.dtype == "bfloat16"
    assert new.get_layer("head").kernel.dtype == "float32"
    assert new.get_layer("norm").gamma.dtype == "float32"
    assert new.get_layer("hidden").output.dtype == "bfloat16"
    assert new.get_layer("norm").output.dtype == "float32"
    assert_consistent(new, X)
    new = rg.clone(model, dtype={"*": "bfloat16", ("odds", "x"): None})
    assert new.get_layer("odds").dtype_policy.name == "float32"
    assert new.output.dtype == "float32"
    new = rg.clone(model, dtype={"x": "float16", lambda n: n.name == "norm": "float16"})
    assert new.input.dtype == "float16"
    assert new.get_layer("norm").moving_mean.dtype == "float16"
    assert new.get_layer("hidden").output.dtype == "float32"


def test_a_place_stands_for_all_inside_it():
    x = keras.Input((3, 4), name="x")
    y = layers.MultiHeadAttention(2, 2, name="heads")(x, x)
    y = layers.TimeDistributed(mlp("inner"), name="each")(y)
    y = layers.Bidirectional(layers.LSTM(2, name="lstm"), name="both")(y)
    model = keras.Model(x, layers.Dense(1, name="head")(y), name="net")
    new = rg.clone(model, dtype={"heads": "bfloat16", "each": "bfloat16"})
    assert dtypes(new.get_layer("heads").weights) == {"bfloat16"}
    inner = new.get_layer("each").layer
    assert dtypes(inner.weights) == {"bfloat16"}
    assert inner.get_layer("odds").output.dtype == "bfloat16"
    assert dtypes(new.get_layer("both").weights) == {"float32"}
    one = rg.clone(model, dtype={"heads/value": "bfloat16"})
    sizes = [v.dtype for v in one.get_layer("heads").weights]
    assert sizes.count("bfloat16") == 2
    whole = rg.clone(model, dtype="bfloat16")
    assert dtypes(whole.weights) == {"bfloat16"}
    assert whole.get_layer("each").layer.output.dtype == "bfloat16"
    if not IS_SLOW:
        assert_consistent(whole, np.ones((1, 3, 4), "float32"))


def test_a_model_without_a_graph_is_cast():
    class Own(keras.Model):
        def __init__(self):
            super().__init__(name="own")
            self.inner = mlp("inner")
            self.parts = [layers.Dense(3, name="last")]

        def call(self, x):
            return self.parts[0](self.inner(x))

    model = Own()
    model(X)
    new = rg.clone(model, dtype="bfloat16")
    assert dtypes(new.weights) == {"bfloat16"}
    assert new.inner.output.dtype == "bfloat16"
    assert rg.compare(model, new, X).max_rel < 0.05
    new = rg.clone(model, dtype={"inner/head": "bfloat16", "last": "mixed_bfloat16"})
    assert new.inner.get_layer("head").kernel.dtype == "bfloat16"
    assert new.parts[0].compute_dtype == "bfloat16"
    assert dtypes([new.parts[0].kernel, new.inner.get_layer("norm").gamma]) == {
        "float32"
    }
    single = layers.Dense(2)
    single.build((None, 4))
    assert rg.clone(single, dtype="bfloat16").kernel.dtype == "bfloat16"


@pytest.mark.skipif(BACKEND == "jax", reason="JAX has no float64 unless it is told to")
def test_a_wider_copy_takes_wider_data():
    model = mlp()
    new = rg.clone(model, dtype="float64")
    assert dtypes([*new.weights, new.input, new.output]) == {"float64"}
    x = np.random.default_rng(0).random((2, 4))
    assert ops.convert_to_numpy(new(x)).dtype == "float64"
    assert 0 < rg.compare(model, new, x).max_abs < 1e-6
    back = rg.clone(new, dtype="float32")
    rg.verify(model.get_layer("head"), back.get_layer("head")).raise_if_different()


@pytest.mark.skipif(BACKEND != "jax", reason="the others have float64")
def test_a_dtype_that_the_backend_lacks_is_refused():
    with pytest.raises(rg.PrecisionError, match="keeps no values in float64") as error:
        rg.clone(mlp(), dtype="float64")
    assert "jax_enable_x64" in str(error.value)


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_float16"])
def test_a_trained_model_trains_on(policy):
    model = mlp()
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, np.ones((2, 2)), verbose=0)
    new = rg.clone(model, dtype=policy)
    inner = getattr(new.optimizer, "inner_optimizer", new.optimizer)
    assert (inner is not new.optimizer) == (policy == "mixed_float16")
    assert int(inner.iterations.numpy()) == 1
    slots = {v.dtype for v in inner.variables if v.path.endswith(("momentum", "city"))}
    assert slots == {variable_of(policy)}
    assert dtypes(v for m in new.metrics for v in m.variables) == {"float32"}
    before = new.get_weights()
    new.fit(X, np.ones((2, 2)), verbose=0)
    assert int(inner.iterations.numpy()) == 2
    pairs = zip(before, new.get_weights(), strict=True)
    assert any(not np.array_equal(a, b) for a, b in pairs)
    assert int(model.optimizer.iterations.numpy()) == 1


def test_integers_random_state_and_words_stay():
    class Count(layers.Layer):
        def build(self, shape):
            kwargs = {"shape": (), "initializer": "zeros", "trainable": False}
            self.seen = self.add_weight(dtype="int32", name="seen", **kwargs)
            self.own = self.add_weight(dtype="float16", name="own", **kwargs)

        def call(self, x):
            return x

    x = keras.Input((3,), dtype="int32", name="x")
    y = layers.Embedding(5, 4, mask_zero=True, name="table")(x)
    y = Count(name="count")(y)
    model = keras.Model(x, layers.GlobalAveragePooling1D(name="mean")(y))
    new = rg.clone(model, dtype="bfloat16")
    assert new.get_layer("count").seen.dtype == "int32"
    assert new.get_layer("count").own.dtype == "float16"
    assert new.get_layer("table").embeddings.dtype == "bfloat16"
    assert new.input.dtype == "int32"
    assert_consistent(new, np.array([[1, 2, 0]]))


def test_states_of_recurrent_layers_follow():
    x = keras.Input(batch_shape=(2, 3, 4))
    model = keras.Model(x, layers.GRU(2, stateful=True, name="gru")(x))
    new = rg.clone(model, dtype="bfloat16")
    assert new.get_layer("gru").states[0].dtype == "bfloat16"
    new(np.ones((2, 3, 4), "float32"))


def test_what_was_adapted_follows():
    norm = layers.Normalization(name="norm")
    norm.adapt(np.array([[1.0, 2, 3, 4], [3, 2, 1, 9]], "float32"))
    given = layers.Normalization(mean=3.0, variance=2.0, name="given")
    model = keras.Sequential([keras.Input((4,)), norm, given], name="net")
    new = rg.clone(model, dtype="bfloat16")
    assert dtypes([new.get_layer("given").mean, *new.outputs]) == {"bfloat16"}
    assert_consistent(new, X)
    norm.adapt(np.array([[0.0, 2, 3, 4], [9e3, 2, 1, 9]], "float32"))
    with pytest.raises(rg.PrecisionError, match=r"norm.*variance"):
        rg.clone(model, dtype="mixed_float16")


def test_ties_stay_ties():
    x = keras.Input((4,))
    one, two = layers.Dense(4, name="one"), layers.Dense(4, name="two")
    tied = keras.Model(x, two(one(x)), name="net")
    two._tracker.unlock()
    two.other = one.kernel
    two._tracker.lock()
    with pytest.raises(rg.PrecisionError, match="have it in two dtypes") as error:
        rg.clone(tied, dtype={"one": "bfloat16"})
    assert "one/kernel" in str(error.value)
    new = rg.clone(tied, dtype="bfloat16")
    assert new.get_layer("two").other is new.get_layer("one").kernel
    assert new.get_layer("one").kernel.dtype == "bfloat16"


def test_variables_of_no_layer_follow_a_policy_for_all():
    gain = keras.Variable([2.0, 2, 2, 2], name="gain")
    x = keras.Input((4,))
    model = keras.Model(x, ops.multiply(layers.Dense(4)(x), gain))
    new = rg.clone(model, dtype="bfloat16")
    assert new.output.dtype == "bfloat16"
    assert_consistent(new, X)


def test_other_arguments_work_with_dtype():
    model = mlp()
    new = rg.clone(model, dtype="bfloat16", weights="fresh", seed=1, prefix="b_")
    assert new.get_layer("b_head").kernel.dtype == "bfloat16"
    new = rg.clone(model, dtype="mixed_bfloat16", weights="share")
    assert new.get_layer("head").kernel is model.get_layer("head").kernel
    assert new.output.dtype == "bfloat16"
    assert model.output.dtype == "float32"
    with pytest.raises(rg.UsageError, match="Shared weights cannot have two dtypes"):
        rg.clone(model, dtype="bfloat16", weights="share")
    assert dtypes(model.weights) == {"float32"}
    new = rg.clone(model, dtype="bfloat16", keep=model.get_layer("head"))
    assert new.get_layer("head") is model.get_layer("head")
    assert model.get_layer("head").compute_dtype == "float32"
    new = rg.clone(model, dtype="bfloat16", inputs=(7, 4), device="cpu")
    assert (new.output.shape, new.output.dtype) == ((None, 7, 2), "bfloat16")


def test_a_backbone_is_cast():
    hub = pytest.importorskip("keras_hub")
    model = hub.models.BertBackbone(
        vocabulary_size=20,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=12,
    )
    new = rg.clone(model, dtype="mixed_bfloat16")
    assert type(new) is type(model)
    assert new.output["sequence_output"].dtype == "bfloat16"
    if not IS_SLOW:
        x = {name: np.ones((2, 6), "int32") for name in model.input}
        report = rg.compare(model, new, x)
        assert len(report) == 2
        assert 0 < report.max_rel < 0.1


def test_a_backbone_with_other_names_finds_its_policies_in_a_file(tmp_path):
    hub = pytest.importorskip("keras_hub")
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    policies["layer_norm"] = "mixed_bfloat16"
    size = {"vocabulary_size": 12, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
    size |= {"intermediate_dim": 8, "max_sequence_length": 8}
    model = hub.models.GPT2Backbone(**size, dtype=policies)
    new = rg.clone(model, prefix="b_")
    new.save(tmp_path / "new.keras")
    assert keras.models.load_model(tmp_path / "new.keras").output.dtype == "bfloat16"
    model = hub.models.GPT2Backbone(**size)
    model.quantize("int8", filters="token_embedding")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rg.clone(model)
        rg.clone(model, name="other")
    with pytest.warns(rg.EditNotSavedWarning, match="b_gpt2_backbone"):
        rg.clone(model, prefix="b_")


# --- what is refused -----------------------------------------------------------


def test_a_cast_that_overflows_is_refused():
    model = mlp()
    kernel = model.get_layer("hidden").kernel
    kernel.assign(np.full((4, 8), 70000.5, "float32"))
    with pytest.raises(rg.PrecisionError) as error:
        rg.clone(model, dtype="float16")
    text = str(error.value)
    assert "32 of 32 values are too large for float16." in text
    assert "where: hidden/kernel" in text
    assert "received: 70000.5, in float32" in text
    assert rg.clone(model, dtype={"*": "float16", "hidden": None}).output.dtype
    assert rg.clone(model, dtype="mixed_bfloat16").built
    kernel.assign(np.full((4, 8), np.inf, "float32"))
    assert np.isinf(rg.clone(model, dtype="float16").get_weights()[0]).all()


def test_whole_numbers_that_would_change_are_refused():
    model = mlp()
    bias = model.get_layer("hidden").bias
    bias.assign(ops.arange(8, dtype="float32") * 32 + 33)
    with pytest.raises(rg.PrecisionError) as error:
        rg.clone(model, dtype="bfloat16")
    text = str(error.value)
    assert "The values are whole numbers, which bfloat16 would change." in text
    assert "where: hidden/bias" in text
    assert "received: 257, which would become 256" in text
    assert rg.clone(model, dtype="float16").built


def test_optimizer_state_that_does_not_fit_is_refused():
    model = mlp()
    model.compile(keras.optimizers.SGD(momentum=0.5), "mse")
    model.optimizer.build(model.trainable_variables)
    slot = next(v for v in model.optimizer.variables if "head_kernel" in v.path)
    slot.assign(np.full(slot.shape, 1e6, "float32"))
    with pytest.raises(rg.PrecisionError, match="too large for float16"):
        rg.clone(model, dtype="float16")
    assert rg.clone(model, dtype="float16", compiled="drop").built


def test_quantized_layers_are_refused():
    model = mlp()
    model.quantize("int8")
    with pytest.raises(rg.PrecisionError, match="A quantized layer cannot get") as e:
        rg.clone(model, dtype="bfloat16")
    assert "where: net/hidden (Dense)" in str(e.value).replace(".layers[1]", "/hidden")
    new = rg.clone(model, dtype={"*": "bfloat16", layers.Dense: None})
    assert new.get_layer("norm").gamma.dtype == "bfloat16"
    assert new.get_layer("hidden").quantization_mode == "int8"


@pytest.mark.skipif(BACKEND != "torch", reason="torch modules")
def test_modules_of_another_framework_are_refused():
    import torch

    x = keras.Input((4,))
    wrapped = layers.TorchModuleWrapper(torch.nn.Linear(4, 2), name="linear")
    model = keras.Sequential([x, wrapped], name="net")
    for dtype in ("bfloat16", "mixed_bfloat16"):
        with pytest.raises(rg.PrecisionError, match="another framework's module"):
            rg.clone(model, dtype=dtype)


def test_a_layer_that_cannot_compute_in_a_precision_is_refused():
    class Picky(layers.Layer):
        def call(self, x):
            if x.dtype != ops.convert_to_tensor(1.0).dtype:
                raise TypeError("float32, please")
            return x

        def compute_output_spec(self, x):
            if x.dtype != "float32":
                raise TypeError("float32, please")
            return keras.KerasTensor(x.shape, dtype="float32")

    x = keras.Input((4,))
    picky = Picky(name="picky", autocast=False)
    model = keras.Model(x, picky(layers.Dense(2)(x)), name="net")
    with pytest.raises(rg.PrecisionError) as error:
        rg.clone(model, dtype="bfloat16")
    text = str(error.value)
    assert "where: net/picky (Picky)" in text
    assert "received: inputs of bfloat16: TypeError: float32, please" in text


def test_a_function_has_no_precision():
    x = keras.Input((4,))
    function = keras.Function(x, layers.Dense(2)(x), name="f")
    with pytest.raises(rg.UsageError, match="Only models and layers have a precision"):
        rg.clone(function, dtype="bfloat16")
    with pytest.raises(rg.UsageError, match="This model has no graph"):
        rg.clone(function, inputs=(4,))


@pytest.mark.parametrize(
    ("dtype", "kind", "text"),
    [
        ("bfloat17", ValueError, "Did you mean 'bfloat16'?"),
        ("int32", ValueError, "'int32', which is an integer"),
        ("int8_from_float32", ValueError, "a quantized policy"),
        (16, TypeError, "This is no dtype policy."),
        ({"hed": "bfloat16"}, ValueError, "Did you mean 'head'?"),
        ({"head": "int8"}, ValueError, "can only be cast to another float dtype"),
        ({3: "bfloat16"}, TypeError, "This does not name a place in a graph."),
    ],
)
def test_wrong_dtypes_are_refused(dtype, kind, text):
    with pytest.raises(rg.UsageError) as error:
        rg.clone(mlp(), dtype=dtype)
    assert isinstance(error.value, kind)
    assert text in str(error.value)
    for part in ("  where: ", "  expected: ", "  received: ", "  what to do: "):
        assert part in str(error.value)


# --- the report ----------------------------------------------------------------


def test_a_report_is_a_table_of_outputs():
    x = keras.Input((4,), name="x")
    y = layers.Dense(2, name="y")(x)
    model = keras.Model(x, [y, layers.Dense(2, name="z")(y)], name="net")
    new = rg.clone(model, dtype="bfloat16", name="half")
    report = rg.compare(model, new)
    head, *rows = str(report).splitlines()
    assert head.split()[:3] == ["output", "net", "half"]
    assert [row.split()[:3] for row in rows] == [
        [name, "float32", "bfloat16"] for name in "yz"
    ]
    assert report.max_abs == max(row.max_abs for row in report)
    assert report["z"] == report[1]
    same = rg.compare(model, rg.clone(model))
    assert (same.max_abs, same.max_rel, same.lost) == (0, 0, 0)
    with pytest.raises(rg.UsageError, match="There is no output 'q'"):
        report["q"]


def test_a_report_counts_what_is_lost():
    model = keras.Sequential([keras.Input((4,)), layers.Rescaling(1e5)], name="net")
    new = rg.clone(model, dtype="float16")
    report = rg.compare(model, new, np.ones((1, 4), "float32"))
    assert report.lost == 4


def test_what_cannot_be_compared_is_refused():
    model = mlp()
    with pytest.raises(TypeError, match="Only models, layers and Functions"):
        rg.compare(model, "model")
    with pytest.raises(rg.UsageError, match="have other shapes"):
        rg.compare(model, keras.Sequential([keras.Input((4,)), layers.Dense(3)]))
    with pytest.raises(rg.UsageError, match="does not say what it takes"):
        rg.compare(layers.Dense(2), layers.Dense(2))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="strategies of TensorFlow")
def test_variables_under_a_strategy_stay_under_it():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = mlp()
    new = rg.clone(model, dtype="bfloat16")
    kernel = new.get_layer("head").kernel
    assert kernel.value.distribute_strategy is strategy
    assert kernel.dtype == "bfloat16"


class TwoOptimizers(keras.Model):
    """Trains its parts with optimizers of its own, as a GAN does."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(3), layers.Dense(2)
        self.first, self.rest = optimizers.Adam(), [optimizers.SGD(momentum=0.9)]

    def call(self, inputs):
        return self.head(self.hidden(inputs))


def test_optimizers_that_a_model_holds_follow():
    model = TwoOptimizers()
    model(X)
    parts = [(model.first, model.hidden), (model.rest[0], model.head)]
    for optimizer, layer in parts:
        optimizer.build(layer.trainable_variables)
    new = rg.clone(model, dtype="bfloat16")
    for optimizer, layer in [(new.first, new.hidden), (new.rest[0], new.head)]:
        slots = [v for v in optimizer.variables if v.ndim]
        assert slots
        assert {v.dtype for v in slots} == {"bfloat16"}
        ones = [ops.ones(v.shape, v.dtype) for v in layer.trainable_variables]
        optimizer.apply(ones, layer.trainable_variables)
    assert {v.dtype for v in model.first.variables if v.ndim} == {"float32"}


def test_optimizers_of_an_optimizer_follow():
    by_name = optimizers.OptimizerMap(
        optimizers.Adam(), {".*bias": optimizers.SGD(momentum=0.9)}
    )
    model = mlp()
    model.compile(optimizers.MultiOptimizer(by_name), "mse")
    y = np.ones(model(X).shape, "float32")
    model.train_on_batch(X, y)
    new = rg.clone(model, dtype="bfloat16")
    slots = [v for v in new.optimizer.variables if v.ndim]
    assert slots
    assert {v.dtype for v in slots} == {"bfloat16"}
    new.train_on_batch(X, y)

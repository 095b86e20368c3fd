"""set: attributes, as if the layers had been made with them."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

from . import models
from .checks import answers, assert_good, bits, values

pytestmark = pytest.mark.wiring


def test_what_was_asked_for(tmp_path):
    model = models.trained(models.branched())
    graph = rg.graph(model).set("a", activation="gelu").set("bn", trainable=False)
    assert dict(graph["bn"].changes) == {"trainable": "False"}
    made = assert_good(graph, model, tmp_path)
    assert made.get_layer("a").activation is keras.activations.gelu
    assert model.get_layer("a").activation is keras.activations.relu
    assert not made.get_layer("bn").trainable
    assert values(made) == values(model)
    assert len(made.optimizer.variables) == len(model.optimizer.variables) - 4
    models.step(made)


def test_rates_and_what_follows_from_them():
    model = models.nested()
    graph = rg.graph(model).set("attention", dropout=0.4)
    made = assert_good(graph, model)
    inside = rg.graph(made).find("attention/dropout*").one()
    assert inside.layer.rate == 0.4
    assert values(made) == values(model)


def test_all_that_match(tmp_path):
    model = models.branched()
    made = assert_good(
        rg.graph(model).set(layers.Dense, trainable=False), model, tmp_path
    )
    assert {v.path for v in made.trainable_variables} == {"bn/gamma", "bn/beta"}


def test_regularizers_reach_the_variables(tmp_path):
    model = models.branched()
    graph = rg.graph(model).set("a", kernel_regularizer=keras.regularizers.L2(0.5))
    made = assert_good(graph, model, tmp_path)
    [loss] = made.losses
    kernel = ops.convert_to_numpy(model.get_layer("a").kernel)
    assert abs(float(loss) - 0.5 * (kernel**2).sum()) < 1e-4


@pytest.mark.parametrize(
    "layer",
    [layers.Dense(3), layers.BatchNormalization(), layers.Activation("relu")],
    ids=lambda layer: type(layer).__name__,
)
def test_an_argument_that_the_configuration_does_not_tell(layer):
    x = keras.Input((4,))
    model = keras.Model(x, rg.clone(layer, name="l")(x))
    made = rg.graph(model).set("l", activity_regularizer="l2").build()
    assert isinstance(made.get_layer("l").activity_regularizer, keras.regularizers.L2)
    made(np.ones((2, 4), "float32"))
    [loss] = made.losses
    assert np.isfinite(float(loss))


def test_a_text_of_the_users_own():
    model = models.branched()
    model.get_layer("a").tag = None
    made = rg.graph(model).set("a", tag="l2").build()
    assert made.get_layer("a").tag == "l2"


def test_the_value_of_a_variable():
    model = models.branched()
    made = assert_good(rg.graph(model).set("b", bias=np.arange(6.0)), model)
    assert ops.convert_to_numpy(made.get_layer("b").bias).tolist() == [*range(6)]
    assert [f.path for f in rg.lineage(made).of("given")] == ["b/bias"]


def test_sizes_are_a_matter_of_mismatch():
    model = models.chain()
    graph = rg.graph(model).set("a", units=6)
    assert graph["a"].outputs[0].shape == (None, 6)
    with pytest.raises(rg.MismatchError) as error:
        graph.build()
    for line in ("a/kernel (4, 4) -> (4, 6)", "a/bias (4,) -> (6,)"):
        assert line in str(error.value)
    made = assert_good(graph, model, mismatch="fit")
    assert {f.what for f in rg.lineage(made)} == {"fitted", "copied"}


def test_at_one_call(tmp_path):
    model = models.in_a_row()
    graph = rg.graph(model).set("shared", activation="tanh", call=-1)
    made = assert_good(graph, model, tmp_path)
    assert "call -1 has a layer of its own, shared_1" in graph.notes[0]
    assert bits(made.get_layer("shared_1").kernel) == values(model)["shared/kernel"]
    assert bits(made.get_layer("shared").kernel) == values(model)["shared/kernel"]
    shared, x = model.get_layer("shared"), models.numbers(model)
    np.testing.assert_allclose(
        ops.convert_to_numpy(made(x)),
        ops.convert_to_numpy(ops.tanh(shared(shared(shared(x))))),
        atol=1e-6,
    )


class Bare(layers.Layer):
    """Says nothing of its arguments in a configuration."""

    def __init__(self, units, act, **kwargs):
        super().__init__(**kwargs)
        self.inner = layers.Dense(units, name="inner")
        self.act, self.factor = act, 2.0

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.act(self.inner(x)) * self.factor


def test_layers_without_a_configuration():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, Bare(3, keras.activations.relu, name="bare")(x))
    graph = rg.graph(model).set("bare", factor=3.0, act="tanh")
    made = assert_good(graph, model)
    assert made.get_layer("bare").factor == 3.0
    assert made.get_layer("bare").act is keras.activations.tanh
    with pytest.warns(rg.EditNotSavedWarning, match="files will not tell"):
        made = rg.graph(model).set("bare/inner", activation="relu").build()
    assert made.get_layer("bare").inner.activation is keras.activations.relu
    assert values(made) == values(model)


def test_a_setting_can_be_taken_back():
    model = models.trained(models.branched())
    graph = rg.graph(model).set("a", activation="tanh", trainable=False)
    graph = graph.set("a", activation="relu").set("a", trainable=True)
    made = graph.build()
    rg.verify(model, made, False).raise_if_different()
    inputs = models.numbers(model)
    assert answers(made, inputs) == answers(model, inputs)


def test_settings_add_up():
    model = models.branched()
    graph = rg.graph(model).set("b", activation="tanh").set("b", use_bias=True)
    graph = graph.set("b", bias_regularizer="l2")
    made = assert_good(graph, model)
    assert made.get_layer("b").activation is keras.activations.tanh
    assert made.get_layer("b").bias_regularizer is not None


def seed_states(layer):
    return [bits(v) for v in layer.variables if "seed" in v.name]


def test_a_seed_starts_the_stream_anew():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.Dropout(0.5, seed=1, name="drop")(x))
    model(np.ones((2, 4), "float32"), training=True)
    before = seed_states(model)
    made = assert_good(rg.graph(model).set("drop", seed=3), model)
    wanted = layers.Dropout(0.5, seed=3)
    assert seed_states(made) == seed_states(wanted)
    assert seed_states(model) == before
    assert made.get_layer("drop").seed_generator.get_config()["seed"] == 3
    made = rg.graph(model).set("drop", rate=0.2).build()
    assert seed_states(made) == before


def test_what_a_layer_has_only_with_other_arguments():
    x = keras.Input((5, 4), batch_size=2, name="x")
    attention = layers.MultiHeadAttention(2, 2, name="attention")(x, x)
    model = keras.Model(x, layers.LSTM(3, name="lstm")(attention))
    graph = rg.graph(model).set("attention", dropout=0.5).set("lstm", stateful=True)
    made = graph.build()
    inputs = models.numbers(model)
    first, second = (ops.convert_to_numpy(made(inputs)) for _ in range(2))
    np.testing.assert_allclose(first, ops.convert_to_numpy(model(inputs)), atol=1e-5)
    assert not np.allclose(first, second, atol=1e-5)
    assert len(made.variables) == len(model.variables) + 3
    assert len(seed_states(made)) == len(seed_states(model)) + 1
    rg.verify(made, rg.clone(made)).raise_if_different()


def test_variables_that_are_not_wanted_any_more(tmp_path):
    model = models.trained(models.branched())
    graph = rg.graph(model).set("a", use_bias=False)
    made = assert_good(graph.set("bn", scale=False, center=False), model, tmp_path)
    gone = {"a/bias", "bn/gamma", "bn/beta"}
    assert {f.path for f in rg.lineage(made).of("dropped")} == gone
    left = {path: bits for path, bits in values(model).items() if path not in gone}
    assert values(made) == left
    assert len(made.optimizer.variables) == len(model.optimizer.variables) - 6
    if keras.backend.backend() == "torch":
        assert set(made.torch_params.keys()) == left.keys()
    models.step(made)


def test_variables_are_not_cast():
    graph = rg.graph(models.branched())
    with pytest.raises(rg.UsageError) as error:
        graph.set("a", dtype="bfloat16")
    assert "`set` does not cast variables." in str(error.value)
    assert "where: a" in str(error.value)
    assert "regraft.clone(model, dtype={'a': ...})" in str(error.value)
    made = graph.set("a", dtype="mixed_bfloat16").build()
    assert made.get_layer("a").compute_dtype == "bfloat16"
    assert made.get_layer("a").kernel.dtype == "float32"

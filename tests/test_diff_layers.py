"""One small edit to what special layers and optimizers hold."""

import functools

import keras
import numpy as np
import pytest
from editing import Edits, assert_found, flip_a_bit, put
from keras import layers

import regraft

edits = Edits()
ROWS = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def sequence(*stack):
    return keras.Sequential([keras.Input((3,)), *stack], name="model")


@functools.cache
def with_lora():
    model = sequence(layers.Dense(4, name="dense"))
    model.layers[0].enable_lora(2, lora_alpha=4)
    return model


@edits(with_lora, "model/dense.lora_rank")
def rank_of_lora(model, _):
    model.layers[0].lora_rank = 3


@edits(with_lora, "model/dense.lora_alpha")
def alpha_of_lora(model, _):
    model.layers[0].lora_alpha = 5


@edits(with_lora, "model/dense/lora_kernel_b")
def bit_of_lora(model, _):
    flip_a_bit(model.layers[0].lora_kernel_b)


@edits(with_lora, "model/dense.lora_enabled")
def lora_disabled(model, _):
    model.layers[0].lora_enabled = False


@functools.cache
def quantized():
    model = sequence(layers.Dense(4, name="dense"))
    model.quantize("int8")
    return model


@edits(quantized, "model/dense/kernel_scale")
def scale_of_a_quantized_kernel(model, _):
    flip_a_bit(model.layers[0].kernel_scale)


@edits(quantized, "model/dense/kernel")
def quantized_weight(model, _):
    flip_a_bit(model.layers[0]._kernel)


@edits(quantized, "model/dense._dtype_policy")
def mode_of_quantization(model, _):
    put(model.layers[0], _dtype_policy=keras.DTypePolicy("float32"))


@functools.cache
def normalized():
    model = sequence(layers.Normalization(name="normal"), layers.Dense(2))
    model.layers[0].adapt(ROWS)
    return model


@edits(normalized, "model/normal/mean")
def learned_mean(model, _):
    flip_a_bit(model.layers[0].adapt_mean)


@edits(normalized, "model/normal.variance")
def variance_that_is_used(model, _):
    model.layers[0].variance = model.layers[0].variance * 2


@functools.cache
def integers():
    return sequence(layers.IntegerLookup(vocabulary=[3, 5, 7], name="lookup"))


@edits(integers, "model/lookup")
def vocabulary_of_integers(model, _):
    model.layers[0].set_vocabulary([3, 5, 8])


@edits(integers, "model/lookup.num_oov_indices")
def number_of_unknowns(model, _):
    model.layers[0].num_oov_indices = 2


@functools.cache
def strings():
    return layers.StringLookup(vocabulary=["a", "b"], name="lookup")


@edits(strings, "lookup")
def vocabulary_of_strings(layer, _):
    layer.set_vocabulary(["b", "a"])


@functools.cache
def stateful():
    cell = layers.SimpleRNN(2, stateful=True, unroll=True, name="rnn")
    x = keras.Input(batch_shape=(2, 2, 3), name="x")
    model = keras.Model(x, cell(x), name="model")
    model(np.ones((2, 2, 3)))
    return model


@edits(stateful, "model/rnn")
def state_of_a_recurrent_layer(model, _):
    model.get_layer("rnn").reset_state()


@edits(stateful, "model/rnn/simple_rnn_cell/kernel")
def weight_of_a_recurrent_layer(model, _):
    flip_a_bit(model.get_layer("rnn").cell.kernel)


@edits(stateful, "model/rnn.stateful")
def recurrent_layer_not_stateful(model, _):
    model.get_layer("rnn").stateful = False


class Noise(layers.Layer):
    """Draws from a stream that others may draw from too."""

    def __init__(self, stream, **kwargs):
        super().__init__(**kwargs)
        self.stream = stream

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x), seed=self.stream)


@functools.cache
def one_stream():
    stream = keras.random.SeedGenerator(1)
    return sequence(Noise(stream, name="one"), Noise(stream, name="two"))


@edits(one_stream, "model/two.stream: tie: one object became several")
def random_streams_untied(model, _):
    put(model.layers[1], stream=regraft.clone(model.layers[1]).stream)


@functools.cache
def two_streams():
    streams = [keras.random.SeedGenerator(1) for _ in range(2)]
    return sequence(*[Noise(s, name=f"noise_{i}") for i, s in enumerate(streams)])


@edits(two_streams, "model/noise_1.stream: tie: several objects became one")
def random_streams_tied(model, _):
    put(model.layers[1], stream=model.layers[0].stream)


@functools.cache
def scheduled():
    model = sequence(layers.Dense(2, name="dense"))
    rate = keras.optimizers.schedules.ExponentialDecay(0.5, 10, 0.5)
    adam = keras.optimizers.Adam(rate, use_ema=True, ema_momentum=0.5)
    loss = keras.losses.CategoricalCrossentropy(label_smoothing=0.1)
    accuracy = keras.metrics.BinaryAccuracy(threshold=0.5)
    model.compile(adam, loss, metrics=[accuracy], run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model


@edits(scheduled, "model.optimizer._learning_rate.decay_rate")
def schedule(model, _):
    model.optimizer._learning_rate.decay_rate = 0.25


@edits(scheduled, "model.optimizer.beta_1")
def beta(model, _):
    model.optimizer.beta_1 = 0.5


@edits(scheduled, "model.optimizer._variables[3]")
def first_moment(model, _):
    flip_a_bit(model.optimizer._momentums[0])


@edits(scheduled, "model.optimizer._variables[1]")
def moving_average(model, _):
    flip_a_bit(model.optimizer._model_variables_moving_average[0])


@edits(scheduled, "model.optimizer._trainable_variables")
def optimizer_on_fewer_variables(model, _):
    put(model.optimizer, _trainable_variables=model.optimizer._trainable_variables[:1])


@edits(scheduled, "model.loss")
def argument_of_the_loss(model, _):
    smoother = keras.losses.CategoricalCrossentropy(label_smoothing=0.2)
    model.loss = smoother


@edits(scheduled, "_user_metrics[0]._threshold")
def argument_of_a_metric(model, _):
    model._compile_metrics._user_metrics[0]._threshold = 0.75


@functools.cache
def embedding():
    x = keras.Input((3,), dtype="int32", name="x")
    h = layers.Embedding(4, 2, mask_zero=True, name="embed")(x)
    return keras.Model(x, h, name="model")


@edits(embedding, "model/embed.mask_zero")
def mask_zero(model, _):
    model.get_layer("embed").mask_zero = False


@edits(embedding, "model(inputs, inference).mask 0")
def mask_that_leaves_the_model(model, _):
    put(model.get_layer("embed"), compute_mask=lambda x, mask=None: None)


# --- the tests ----------------------------------------------------------------


@pytest.mark.parametrize(("build", "change", "where"), edits)
def test_edit_is_found(build, change, where):
    assert_found(build, change, where)


BUILDS = {edit.values[0].__wrapped__: edit.values[0] for edit in edits}


@pytest.mark.parametrize("build", BUILDS.values(), ids=lambda f: f.__name__)
def test_copy_has_no_differences(build):
    model = build()
    assert not [str(d) for d in regraft.diff(model, regraft.clone(model))]


def test_losses_that_are_gone_are_no_difference():
    """On JAX a layer remembers the ids of the last step's losses, which are gone."""
    dense = layers.Dense(2, activity_regularizer="l2")
    model = keras.Sequential([keras.Input((3,)), dense])
    model.compile("sgd", "mse")
    new = regraft.clone(model)
    x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
    for one in (model, new):
        one.train_on_batch(x, y)
    assert not list(regraft.diff(model, new))


def test_what_is_said_of_a_function():
    def times(counts):
        return lambda x: x * counts[0]

    layer = layers.Identity()
    layer.function = times([2])
    for name, value in (
        ("__annotations__", {"x": float}),
        ("__qualname__", "another"),
    ):
        new = regraft.clone(layer)
        assert new.function is not layer.function
        assert regraft.verify(layer, new).same
        setattr(new.function, name, value)
        for pair in ((layer, new), (new, layer)):
            assert not regraft.verify(*pair).same


def test_calls_that_one_of_both_lists():
    dense, x = layers.Dense(3), keras.Input((3,))
    model = keras.Model(x, dense(dense(x)))
    new = regraft.clone(model)
    new.layers[1]._inbound_nodes.pop()
    for pair in ((model, new), (new, model)):
        found = [d.path for d in regraft.diff(*pair, inputs=False)]
        assert any(path.endswith("._inbound_nodes") for path in found)

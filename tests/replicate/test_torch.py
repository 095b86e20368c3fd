"""Replicas in one process on torch: what is united, and what is refused."""

import threading

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft

from .models import BUILDERS, IMAGES, KINDS, TABLE, TOKENS, VALUES, compiled
from .test_training import FLOAT32, assert_close, assert_equal, numbers, train

if keras.backend.backend() != "torch":
    pytest.skip("the torch engine", allow_module_level=True)

import torch

from regraft._backends.engines.torch.local import refuse_modules
from regraft._backends.engines.torch.share import Share
from regraft._backends.engines.torch.watch import AttributeWatch


def on(count):
    return ["cpu:0"] * count


def assert_trains_as_one(model, x, y, count=3):
    one, many = regraft.clone(model), regraft.replicate(model, on(count))
    assert_close(train(one, x, y), train(many, x, y))
    assert_close(numbers(one), numbers(regraft.gather(many)))
    return one, many


def small(*inner, loss="mse"):
    return compiled(
        keras.Sequential([keras.Input((5,)), *inner, layers.Dense(2)], name="net"), loss
    )


@pytest.mark.parametrize("rows", [2, 3, 7, 11])
def test_shares_of_different_sizes_count_by_their_rows(rows):
    model = small(
        layers.Dense(4, activity_regularizer="l2"), layers.BatchNormalization()
    )
    one, many = regraft.clone(model), regraft.replicate(model, on(3))
    mine, other = (m.train_on_batch(TABLE[:rows], VALUES[:rows]) for m in (one, many))
    np.testing.assert_allclose(mine, other, **FLOAT32)
    assert_close(numbers(one), numbers(regraft.gather(many)))


def test_rows_are_shared_out_as_documented():
    seen = []

    class Seeing(layers.Layer):
        def call(self, x):
            seen.append(tuple(x.shape))
            return x

    model = small(Seeing())
    many = regraft.replicate(model, on(3))
    many(TABLE)  # The first call also tries whether rows are mixed.
    for rows in (7, 2, 1, 6):
        seen.clear()
        many(TABLE[:rows])
        expected = {7: [2, 2, 3], 2: [1, 1], 1: [1], 6: [2, 2, 2]}[rows]
        assert [shape[0] for shape in seen] == expected


def test_batch_normalization_under_a_mask_sees_the_whole_batch():
    x = keras.Input((7,), dtype="int32")
    h = layers.Embedding(9, 4, mask_zero=True)(x)
    h = layers.BatchNormalization(momentum=0.5)(h)
    y = layers.Dense(2)(layers.LSTM(3)(h))
    assert_trains_as_one(compiled(keras.Model(x, y)), TOKENS, VALUES)


def test_batch_normalization_that_asks_to_be_synchronized_is():
    model = small(layers.BatchNormalization(momentum=0.5))
    asking = regraft.clone(model)
    asking.layers[0].synchronized = True
    many = regraft.replicate(asking, on(2))
    assert_close(train(model, TABLE, VALUES), train(many, TABLE, VALUES))
    assert_close(numbers(model), numbers(many))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float64"])
def test_batch_normalization_in_other_precisions(policy):
    x = keras.Input((8, 8, 3))
    h = layers.Conv2D(4, 3, dtype=policy)(x)
    h = layers.BatchNormalization(
        momentum=0.5, renorm=policy == "float64", dtype=policy
    )(h)
    y = layers.Dense(3, activation="softmax", dtype="float32")(layers.Flatten()(h))
    model = compiled(keras.Model(x, y), "sparse_categorical_crossentropy", ())
    one, many = regraft.clone(model), regraft.replicate(model, on(2))
    mine, other = (train(m, IMAGES, KINDS) for m in (one, many))
    rough = 2e-2 if policy == "mixed_bfloat16" else 1e-4
    np.testing.assert_allclose(mine["loss"], other["loss"], rtol=rough)
    for a, b in zip(one.weights, many.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=rough, atol=rough)


def test_half_precision_statistics():
    class Standard(layers.Layer):
        def call(self, x):
            mean, variance = ops.moments(x, axes=[0], keepdims=True)
            return (x - mean) / ops.sqrt(variance + 0.1)

    x = keras.Input((5,))
    model = keras.Model(x, Standard(dtype="float16")(x))
    many = regraft.replicate(model, on(3))
    got = many(TABLE)
    assert got.dtype == torch.float16
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(TABLE)), ops.convert_to_numpy(got), atol=5e-3
    )


class Adding(layers.Layer):
    """Adds a loss of its own, and the mean of it to a metric."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.mean = keras.metrics.Mean(name="mean")

    def call(self, x):
        self.add_loss(ops.mean(x**2))
        self.mean.update_state(ops.mean(x, axis=-1))
        return x


def test_losses_and_metrics_of_layers():
    model = small(
        layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l2"), Adding()
    )
    one, many = assert_trains_as_one(model, TABLE, VALUES)
    many(TABLE), one(TABLE)
    assert len(one.losses) == len(many.losses) == 3
    for a, b in zip(one.losses, many.losses, strict=True):
        np.testing.assert_allclose(float(a), float(b), rtol=1e-5)
    assert len(many.losses) == 3  # Those of the last call alone.
    mine, other = (float(m.layers[1].mean.result()) for m in (one, many))
    np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_a_weight_that_layers_assign_keeps_its_gradient():
    model = small(layers.SpectralNormalization(layers.Dense(4)))
    assert_trains_as_one(model, TABLE, VALUES)


def test_what_is_changed_afterwards_is_seen_by_every_replica():
    class Scaled(layers.Layer):
        factor = 1.0

        def call(self, x):
            return x * self.factor

    model = small(layers.Dense(4, name="first"), Scaled(name="scaled"))
    one, many = regraft.clone(model), regraft.replicate(model, on(2))
    for net in (one, many):
        net.get_layer("first").trainable = False
        net.get_layer("scaled").factor = 3.0
    before = many.get_layer("first").kernel.numpy()
    assert_close(train(one, TABLE, VALUES), train(many, TABLE, VALUES))
    assert_close(numbers(one), numbers(many))
    assert (many.get_layer("first").kernel.numpy() == before).all()


def test_dropout_in_recurrent_cells_and_without_a_seed():
    x = keras.Input((7,), dtype="int32")
    h = layers.LSTM(3, dropout=0.5, recurrent_dropout=0.5)(layers.Embedding(9, 4)(x))
    h = layers.Lambda(lambda t: keras.random.dropout(t, 0.5))(h)
    model = compiled(keras.Model(x, layers.Dense(2)(h)))
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        many = regraft.replicate(model, on(2))
        train(many, TOKENS, VALUES)
        runs.append(numbers(many))
    assert_equal(*runs)


def test_a_number_drawn_with_a_fixed_seed_is_the_same_on_every_replica():
    x = keras.Input((5,))
    h = layers.Lambda(lambda t: t @ keras.random.normal((5, 3), seed=4))(x)
    model = keras.Model(x, h)
    many = regraft.replicate(model, on(2))
    np.testing.assert_allclose(
        ops.convert_to_numpy(model(TABLE)), ops.convert_to_numpy(many(TABLE)), rtol=1e-5
    )


def test_masks_travel_in_and_out():
    x = keras.Input((7,), dtype="int32")
    model = keras.Model(x, layers.Embedding(9, 4, mask_zero=True)(x))
    many = regraft.replicate(model, on(3))
    mine, other = (m(TOKENS)._keras_mask for m in (model, many))
    assert (mine == other).all()
    inner = keras.Input((7, 4))
    pooled = keras.Model(inner, layers.GlobalAveragePooling1D()(inner))
    again = regraft.replicate(pooled, on(3))
    mine, other = (m(model(TOKENS)) for m in (pooled, again))
    np.testing.assert_allclose(mine.detach(), other.detach(), rtol=1e-5)


def test_a_replicated_model_as_a_part_of_another():
    model = small(layers.BatchNormalization())
    inner, many = regraft.clone(model), regraft.replicate(model, on(2))
    histories = []
    for part in (inner, many):
        x = keras.Input((5,))
        whole = compiled(keras.Model(x, part(x) * 2))
        histories.append(train(whole, TABLE, VALUES))
    assert_close(*histories)
    assert_close(
        {v.path: v.numpy() for v in inner.variables},
        {v.path: v.numpy() for v in many.variables},
    )


def test_relocate_says_where_weights_are_kept():
    many = regraft.replicate(small(), on(2), relocate="cpu", merge="cpu")
    assert many.replicas.place == torch.device("cpu")
    assert many.replicas.describe() == "torch in one process, 2 replica(s)"


@pytest.mark.parametrize("name", BUILDERS)
def test_a_replica_computes_on_its_device_alone(name):
    """A device without values takes part in nothing but what is brought to it."""
    build, x, _ = BUILDERS[name]
    model, meta = build(), torch.device("meta")
    x = keras.tree.map_structure(ops.convert_to_tensor, x)
    share = Share(1, slice(0, 8), 30, meta, lambda what, tensors: tensors, set())
    finished = share.run(model.call, (x,), {"training": True})
    for output in keras.tree.flatten(finished.outputs):
        assert output.device == meta
        assert output.shape[0] == 8


def test_constants_of_layers_are_brought_to_the_device():
    model = small(layers.Normalization(mean=1.0, variance=2.0))
    watch = AttributeWatch(model)
    assert watch.has_constants()
    assert not AttributeWatch(small()).has_constants()
    x, meta = ops.convert_to_tensor(TABLE), torch.device("meta")
    share = Share(
        1, slice(0, 8), 30, meta, lambda what, t: t, set(), has_constants=True
    )
    assert share.run(model.call, (x,), {}).outputs.device == meta


# --- what is refused -------------------------------------------------------------


class Failing(layers.Layer):
    def call(self, x):
        if x.shape[0] == 3:  # The last of 7 rows over 3 replicas.
            raise KeyError("on purpose")
        return x


@pytest.mark.parametrize("norm", [False, True])
def test_a_replica_that_fails_ends_the_others_and_is_named(norm):
    before = threading.active_count()
    inner = [layers.BatchNormalization()] if norm else []
    many = regraft.replicate(small(*inner, Failing()), on(3))
    with pytest.raises(regraft.ReplicaError) as error:
        many(TABLE[:7], training=True)
    assert "Replica 2 of net (cpu:0) failed" in str(error.value)
    assert "on purpose" in str(error.value)
    assert threading.active_count() == before
    many(TABLE[:6], training=True)  # It still works.


def test_replicas_that_part_ways_are_refused():
    class Choosing(layers.Layer):
        def build(self, shape):
            self.norm = layers.BatchNormalization()
            self.norm.build(shape)

        def call(self, x, training=None):
            return self.norm(x, training=training) if x.shape[0] == 2 else x

    many = regraft.replicate(small(Choosing()), on(3))
    before = threading.active_count()
    with pytest.raises(regraft.ReplicaError, match="do not compute the same") as error:
        many(TABLE[:7], training=True)
    assert "expected: moments of shapes" in str(error.value)
    assert "received: its end" in str(error.value)
    assert threading.active_count() == before


def test_inputs_of_different_rows_are_refused():
    a, b = keras.Input((5,)), keras.Input((5,))
    model = keras.Model([a, b], layers.Dense(2)(a))
    many = regraft.replicate(model, on(2))
    with pytest.raises(regraft.RegraftError, match="differ in their rows") as error:
        many([TABLE[:6], TABLE[:4]])
    assert "4 rows" in str(error.value)
    assert many([TABLE[:6], TABLE[:1]]).shape == (6, 2)


def test_an_output_without_rows_must_be_the_same_on_every_replica():
    class Reducing(keras.Model):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def call(self, x):
            return self.function(x)

    def replicated(function):
        model = Reducing(function)
        model(TABLE)
        return regraft.replicate(model, on(2))

    assert replicated(lambda x: (x, ops.ones((3, 2)), None, "a"))(TABLE)[3] == "a"
    for function in (ops.mean, lambda x: (x, x.shape[0])):
        with pytest.raises(regraft.ReplicaError, match="has no rows, and differs"):
            replicated(function)(TABLE[:5])


def test_whole_numbers_that_differ_are_refused():
    class Counting(layers.Layer):
        def __init__(self, aggregation, **kwargs):
            super().__init__(**kwargs)
            self.count = self.add_weight(
                shape=(),
                dtype="int32",
                trainable=False,
                initializer="zeros",
                aggregation=aggregation,
            )

        def call(self, x):
            self.count.assign(self.count + x.shape[0])
            return x

    many = regraft.replicate(small(Counting("none")), on(3))
    with pytest.raises(regraft.ReplicaError, match="disagree about a whole number"):
        many(TABLE[:5])
    many = regraft.replicate(small(Counting("none")), on(2))
    with pytest.raises(regraft.UsageError, match="no mean over rows"):
        many(TABLE[:4])  # The same on both, and yet not the number of all rows.
    for aggregation, expected in (("sum", 5), ("only_first_replica", 2)):
        many = regraft.replicate(small(Counting(aggregation)), on(2))
        many(TABLE[:5])
        assert many.layers[0].count.numpy() == expected


def test_tensors_in_attributes_are_refused():
    class Keeping(layers.Layer):
        kept = None

        def call(self, x):
            self.kept = x
            return x

    model = small(Keeping(name="keeping"))
    model.layers[0].kept = None  # What is left of the graph's making.
    many = regraft.replicate(model, on(2))
    with pytest.raises(regraft.ReplicaError) as error:
        many(TABLE)
    assert "A layer keeps a tensor of its call in an attribute." in str(error.value)
    assert "where: keeping.kept" in str(error.value)


def test_tensors_that_are_kept_in_training_alone_are_refused():
    class Keeping(layers.Layer):
        kept = None

        def call(self, x, training=False):
            if training:
                self.kept = x
            return x

    model = small(Keeping(name="keeping"))
    many = regraft.replicate(model, on(2))
    many.predict(TABLE, verbose=0)
    with pytest.raises(regraft.ReplicaError, match=r"where: keeping\.kept"):
        many(TABLE, training=True)


def test_layers_that_are_built_by_the_call_are_refused():
    class Late(keras.Model):
        def __init__(self):
            super().__init__()
            self.early, self.late = layers.Dense(2), layers.Dense(2)

        def call(self, x, more=False):
            return self.late(x) if more else self.early(x)

    model = Late()
    model(TABLE)
    many = regraft.replicate(model, on(2))
    with pytest.raises(regraft.ReplicaError, match="A variable was made while"):
        many(TABLE, more=True)
    many = regraft.replicate(model, on(2))
    many.template(TABLE, more=True)
    assert many(TABLE, more=True).shape == (30, 2)


def test_layers_that_need_the_whole_batch_are_refused():
    with keras.RematScope(mode="full"):
        again = small(layers.Dense(4, name="again"))
    x = keras.Input(batch_shape=(4, 7, 3))
    state = keras.Model(x, layers.LSTM(2, stateful=True, name="state")(x))
    for model, where, received in (
        (again, "where: ", "computed anew for gradients"),
        (state, "where: state (LSTM)", "keeps a state for each row"),
    ):
        with pytest.raises(regraft.UsageError, match="cannot be run by several") as e:
            regraft.replicate(model, on(2))
        assert where in str(e.value)
        assert received in str(e.value)


def test_modules_of_torch_with_state_are_refused():
    x = keras.Input((5,))
    plain = keras.layers.TorchModuleWrapper(
        torch.nn.Linear(5, 2), output_shape=(None, 2)
    )
    plain = compiled(keras.Model(x, plain(x)))
    assert_trains_as_one(plain, TABLE, VALUES)
    with pytest.raises(regraft.UsageError, match="weights on one device"):
        refuse_modules(plain, {torch.device("cpu"), torch.device("meta")})
    norm = keras.layers.TorchModuleWrapper(
        torch.nn.BatchNorm1d(5), output_shape=(None, 5)
    )
    with pytest.raises(regraft.UsageError, match="has tensors of its own") as error:
        regraft.replicate(keras.Model(x, norm(x)), on(2))
    assert "BatchNorm1d" in str(error.value)
    assert "received: buffers" in str(error.value)

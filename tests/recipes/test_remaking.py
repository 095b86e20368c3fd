"""Layers that get weights of other sizes, and keep all that is their users' own."""

import keras
import numpy as np
import pytest
from keras import layers

import regraft
from recipes.cuts import assert_pruned, sequence
from recipes.nets import data, output, scrambled, untouched
from regraft.recipes import change_channels, fold_batchnorm, prune_channels

pytestmark = pytest.mark.wiring


class Silent(keras.regularizers.Regularizer):
    """It has no `get_config`."""

    def __init__(self):
        self.log = []

    def __call__(self, weight):
        return keras.ops.sum(weight)


class Unknown(keras.constraints.Constraint):
    """Keras cannot find the class of a function's own."""

    def __call__(self, weight):
        return weight


OWN = {
    "regularizer": ("kernel_regularizer", Silent),
    "constraint": ("kernel_constraint", Unknown),
    "function": ("kernel_regularizer", lambda: lambda w: 0.0),
    "bias": ("bias_regularizer", Silent),
    "activity": ("activity_regularizer", Silent),
}


@pytest.mark.parametrize("kind", OWN)
def test_objects_without_a_configuration_stay(kind):
    name, make = OWN[kind]
    own = {name: make()}
    places = {
        "dense": ((3,), layers.Dense(4, name="a", **own), layers.Dense(2, **own)),
        "einsum": (
            (5, 3),
            layers.EinsumDense("abc,cd->abd", (5, 4), bias_axes="d", name="a", **own),
            layers.Dense(2),
        ),
        "conv": (
            (6, 6, 3),
            layers.Conv2D(4, 3, name="a", **own),
            layers.Conv2D(2, 3, **own),
        ),
    }
    for shape, *parts in places.values():
        new = assert_pruned(sequence(shape, *parts), "a", [1], "a").get_layer("a")
        assert type(getattr(new, name)) is type(own[name])
        of_kernel = own.get("kernel_regularizer"), own.get("kernel_constraint")
        assert type(new.kernel.regularizer) is type(of_kernel[0])
        assert type(new.kernel.constraint) is type(of_kernel[1])
    model = sequence((6, 6, 3), layers.Conv2D(4, 3, name="a", **own))
    with untouched(model):
        new = change_channels(model, 1).get_layer("a")
    assert type(getattr(new, name)) is type(own[name])


def test_what_layers_share_they_share_in_the_new_model():
    own = Silent()
    model = sequence(
        (3,),
        layers.Dense(4, name="a", kernel_regularizer=own),
        layers.BatchNormalization(),
        layers.Dense(2, name="b", kernel_regularizer=own),
    )
    new = fold_batchnorm(model)
    found = [new.get_layer(name).kernel_regularizer for name in "ab"]
    assert found[0] is found[1]
    assert found[0] is not own
    assert found[0].log is not own.log


class Conv(layers.Conv2D):
    def __init__(self, width, name):
        super().__init__(width, 3, name=name)


class Norm(layers.BatchNormalization):
    def __init__(self):
        super().__init__(epsilon=0.1)


class Times(layers.TimeDistributed):
    def __init__(self):
        super().__init__(layers.Dense(4, name="inside"), name="a")


@pytest.mark.every_backend
def test_classes_with_a_constructor_of_their_own():
    model = sequence((8, 8, 3), Conv(4, "a"), Norm(), Conv(5, "b"))
    with untouched(model):
        new = fold_batchnorm(model)
    given = data(model)
    np.testing.assert_allclose(output(new, given), output(model, given), atol=1e-5)
    assert [type(layer) for layer in new.layers] == [Conv, Conv]
    new = assert_pruned(model, "a", [1], model.layers[1].name)
    assert new.layers[1].epsilon == 0.1
    assert change_channels(model, 1).input_shape == (None, 8, 8, 1)


@pytest.mark.every_backend
def test_a_wrapper_with_a_constructor_of_its_own():
    model = sequence((5, 3), Times(), layers.Dense(2))
    model.get_layer("a").tag = 7
    new = assert_pruned(model, "a", [1], "a")
    assert type(new.get_layer("a")) is Times
    assert new.get_layer("a").tag == 7
    assert [v.path for v in new.variables] == [v.path for v in model.variables]


class Gained(layers.Dense):
    def __init__(self, units, gain=2.0, **options):
        super().__init__(units, **options)
        self.gain = gain
        self.own = self.units_now

    def units_now(self):
        return self.units


def test_arguments_that_are_not_in_the_configuration_stay():
    model = sequence(
        (3,),
        Gained(4, gain=7.0, name="a"),
        layers.BatchNormalization(),
        layers.Dense(2),
    )
    assert fold_batchnorm(model).get_layer("a").gain == 7.0
    new = prune_channels(model, "a", [0]).get_layer("a")
    assert new.gain == 7.0
    assert new.own() == 3  # Its own method, not that of the old layer.


class NeverBiased(layers.Dense):
    def __init__(self, units, **options):
        super().__init__(units, **{**options, "use_bias": False})


def test_a_constructor_that_does_not_listen():
    layer = NeverBiased(4, name="a")
    model = sequence((3,), layer, layers.BatchNormalization())
    given = data(model)
    new = fold_batchnorm(model)
    np.testing.assert_allclose(output(new, given), output(model, given), atol=1e-5)
    assert new.get_layer("a").use_bias


class Noting(layers.Dense):
    def __init__(self, units, **options):
        super().__init__(units, **options)
        self.built_for = []

    def build(self, shape):
        self.built_for.append(shape)
        super().build(shape)


def test_build_changes_nothing_of_the_old_layer():
    model = sequence((3,), Noting(4, name="a"), layers.Dense(2))
    new = prune_channels(model, "a", [0])
    assert len(new.get_layer("a").built_for) == 2
    assert len(model.get_layer("a").built_for) == 1


@pytest.mark.every_backend
def test_states_of_recurrent_layers_stay():
    x = keras.Input(batch_shape=(2, 5, 4))
    h = layers.Dense(4, name="a")(x)
    lstm = layers.Bidirectional(layers.LSTM(3, stateful=True), name="b")
    model = scrambled(keras.Model(x, lstm(h)))
    model(np.ones((2, 5, 4), "float32"))
    new = prune_channels(model, "a", [0]).get_layer("b")
    for way in ("forward_layer", "backward_layer"):
        old, now = (getattr(layer, way).states for layer in (lstm, new))
        for one, other in zip(old, now, strict=True):
            assert one is not other
            assert np.any(keras.ops.convert_to_numpy(one))
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(other)
            )


@pytest.mark.every_backend
def test_random_streams_go_on_apart():
    model = sequence(
        (5, 4),
        layers.Dense(4, name="a"),
        layers.LSTM(3, dropout=0.5, seed=1, name="b"),
    )
    given = data(model)
    model(given, training=True)
    with untouched(model):
        new = prune_channels(model, "a", [0])
        [old], [now] = (
            [v for v in m.get_layer("b").variables if "seed" in v.path]
            for m in (model, new)
        )
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(old), keras.ops.convert_to_numpy(now)
        )
        new(given, training=True)


class Once(layers.Dense):
    def build(self, shape):
        if hasattr(self, "seen"):
            raise RuntimeError("I was built before")
        self.seen = shape
        super().build(shape)


def test_what_cannot_be_built_again_is_refused():
    model = sequence((3,), Once(4, name="a"), layers.Dense(2))
    with untouched(model), pytest.raises(regraft.UsageError) as error:
        prune_channels(model, "a", [0])
    assert "This Once cannot be built for another size." in str(error.value)
    assert "where: a" in str(error.value)
    assert "received: RuntimeError: I was built before" in str(error.value)


class WithoutBias(layers.Dense):
    def build(self, shape):
        self.use_bias = False
        super().build(shape)


def test_a_weight_that_build_does_not_make_is_missed():
    layer = WithoutBias(4, name="a")
    model = sequence((3,), layer, layers.BatchNormalization())
    with pytest.raises(regraft.UsageError) as error:
        fold_batchnorm(model)
    assert "weights of this layer cannot be changed with its size" in str(error.value)
    assert "where: a: bias" in str(error.value)
    assert "received: no such weight" in str(error.value)

"""Fresh weights: what their owners note of them, and count beside them."""

import copy
import itertools

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

X = np.random.default_rng(0).random((2, 8), "float32")


def network():
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(4, "relu"), layers.Dense(2)]
    )


def are_alike(left, right):
    pairs = zip(left.get_weights(), right.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# --- layers that start alike -----------------------------------------------------


class Agent(keras.Model):
    """A network, and a target that is made of it in one of several ways."""

    def __init__(self, discount=0.9):
        super().__init__()
        self.discount = discount
        self.online = network()
        self.target = self.target_of(self.online)

    def call(self, x):
        return self.online(x) - self.target(x)


class WithWeights(Agent):
    def target_of(self, online):
        target = network()
        target.set_weights(online.get_weights())
        return target


class WithClone(Agent):
    def target_of(self, online):
        return rg.clone(online)


class WithDeepcopy(Agent):
    def target_of(self, online):
        return copy.deepcopy(online)


@pytest.mark.parametrize("kind", [WithWeights, WithClone, WithDeepcopy])
@pytest.mark.parametrize("arguments", [{}, {"discount": 0.5}])
def test_a_target_starts_like_its_network(kind, arguments):
    agent = kind(**arguments)
    agent(X)
    agent.online.layers[0].bias.assign(np.ones(4))
    new = rg.clone(agent, weights="fresh", seed=1)
    assert are_alike(new.online, new.target)
    assert not are_alike(new.online, agent.online)
    assert new.discount == agent.discount
    assert new.online.layers[0].kernel is not new.target.layers[0].kernel


class BuiltLate(WithWeights):
    """A head that has no layers inside, or other ones, until it is called."""

    def __init__(self, attends=None):
        super().__init__()
        inside = [layers.Reshape((1, 2)), layers.Dense(2)]
        self.head = keras.Sequential(inside)
        if attends:
            self.head = layers.MultiHeadAttention(1, 2)
        self.after = layers.Dense(1)

    def call(self, x):
        y = super().call(x)[:, None]
        if isinstance(self.head, layers.MultiHeadAttention):
            return self.after(self.head(y, y))
        return self.after(self.head(y))


@pytest.mark.parametrize("attends", [None, True])
def test_a_target_starts_like_its_network_beside_what_is_built_later(attends):
    agent = BuiltLate(attends)
    agent(X)
    new = rg.clone(agent, weights="fresh", seed=1)
    assert are_alike(new.online, new.target)
    assert not are_alike(new.online, agent.online)
    for weight, old in zip(new.after.weights, agent.after.weights, strict=True):
        assert weight is not old


class Apart(Agent):
    def target_of(self, online):
        return network()


def test_networks_that_do_not_start_alike():
    new = rg.clone(Apart(), weights="fresh", seed=1)
    assert not are_alike(new.online, new.target)


# --- what is noted of weights ------------------------------------------------------


class Averaged(keras.Model):
    """Notes how its weights start: as variables, by path, and in a list."""

    def __init__(self):
        super().__init__()
        self.net = network()
        weights = self.net.weights
        self.average = [keras.Variable(v.value, trainable=False) for v in weights]
        self.shadow = {v.path: np.array(ops.convert_to_numpy(v)) for v in weights}
        self.start = [np.array(w) for w in self.net.get_weights()]
        self.limits = np.array([[0.5, 2.0]])

    def call(self, x):
        return self.net(x)


def test_what_a_constructor_notes_of_weights():
    model = Averaged()
    new = rg.clone(model, weights="fresh", seed=1)
    assert not are_alike(new.net, model.net)
    assert [v.path for v in new.net.weights] == list(new.shadow)
    for i, weight in enumerate(new.net.get_weights()):
        assert np.array_equal(new.average[i], weight)
        assert np.array_equal(list(new.shadow.values())[i], weight)
        assert np.array_equal(new.start[i], weight)
    assert np.array_equal(new.limits, model.limits)
    for i, weight in enumerate(model.net.get_weights()):
        assert np.array_equal(model.start[i], weight)


def test_what_is_noted_in_an_array_that_is_kept():
    model = Averaged()
    before = model.start[0].copy()
    new = rg.clone(model, weights="fresh", seed=1, keep=[model.start[0]])
    assert new.start[0] is model.start[0]
    assert np.array_equal(model.start[0], before)
    assert np.array_equal(new.start[2], new.net.get_weights()[2])


# --- what differs between any two that are made -------------------------------------


class Experts(keras.Model):
    """Knows its layers by their ids."""

    def __init__(self):
        super().__init__()
        self.experts = [layers.Dense(2) for _ in range(3)]
        self.scale = self.add_weight(shape=(), initializer="ones")
        self.places = {id(expert): i for i, expert in enumerate(self.experts)}

    def call(self, x):
        found = [(1 + self.places[id(e)]) * e(x) for e in self.experts]
        return self.scale * sum(found)


def test_ids_of_layers_are_those_of_the_copy():
    model = Experts()
    model(X)
    new = rg.clone(model, weights="fresh", seed=1)
    assert new.places == {id(expert): i for i, expert in enumerate(new.experts)}
    assert new(X).shape == (2, 2)


class Counted(layers.Layer):
    """Is told by a counter whether it turns its inputs round."""

    def __init__(self, numbers, in_build):
        super().__init__()
        self.numbers, self.in_build = numbers, in_build
        if not in_build:
            self.number = next(numbers)

    def get_config(self):
        return {"numbers": self.numbers, "in_build": self.in_build}

    def build(self, shape):
        if self.in_build:
            self.number = next(self.numbers)
        self.scale = self.add_weight(shape=shape[1:], initializer="random_normal")
        self.largest = int(np.argmax(ops.convert_to_numpy(self.scale)))

    def call(self, x):
        return ops.flip(x * self.scale, -1) if self.number % 2 else x * self.scale


class Numbers:
    """All that were ever made, also for copies."""

    def __init__(self):
        self._numbers = itertools.count()

    def __next__(self):
        return next(self._numbers)


@pytest.mark.parametrize("in_build", [True, False])
def test_numbers_from_a_counter_stay_and_those_that_follow_from_weights_do_not(
    in_build,
):
    numbers = Numbers()
    blocks = [Counted(numbers, in_build) for _ in range(3)]
    model = keras.Sequential([keras.Input((8,)), *blocks])
    new = rg.clone(model, weights="fresh", seed=1, keep=[numbers])
    assert [x.number for x in new.layers] == [0, 1, 2]
    for block in new.layers:
        assert block.largest == np.argmax(ops.convert_to_numpy(block.scale))


# --- a `build()` that makes what is not there ---------------------------------------


class Lazy(layers.Layer):
    """Draws, as `JaxLayer` does, unless it was given its weights or its state."""

    def __init__(self, start=None, state=None, **kwargs):
        super().__init__(**kwargs)
        self.start, self.state = start, state
        self.notes = []

    def get_config(self):
        raise NotImplementedError("nobody can say how it was made")

    def build(self, shape):
        if self.start is None and self.state is None:
            self.start = [self.add_weight(shape=shape[1:], initializer="normal")]
            self.state = {}

    def call(self, x):
        return x * self.start[0]


def test_weights_that_are_drawn_unless_there_is_a_state():
    model = keras.Sequential([keras.Input((8,)), Lazy()])
    one, other = (rg.clone(model, weights="fresh", seed=1) for _ in range(2))
    assert are_alike(one, other)
    assert not are_alike(one, model)
    assert one.layers[0].state == {}
    assert one.layers[0].notes == []

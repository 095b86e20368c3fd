"""All verbs reach what is inside: models, wrappers, attention, cells, lists."""

import sys
import weakref

import keras
import pytest
from keras import layers

import regraft as rg

from . import models
from .checks import assert_good, assert_kept, bits, values


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return models.nested()


EDITS = {
    # In nested models, where files tell everything.
    "insert": lambda g: g.insert(layers.Dense(4, name="new"), after="encoder/dense"),
    "insert_before": lambda g: g.insert(
        layers.Dense(4, name="new"), before="encoder/ffn/relu"
    ),
    "insert_behind_input": lambda g: g.insert(
        layers.Dense(4, name="new"), after="encoder/start"
    ),
    "insert_at_port": lambda g: g.insert(
        layers.Dense(4, name="new"), after="pair", port=1
    ),
    "remove": lambda g: g.remove(("encoder/norm", "encoder/ffn/relu")),
    "remove_of_two": lambda g: g.remove("pair/plus", keep="left"),
    "replace": lambda g: g.replace("encoder/ffn", layers.Dense(4, name="new")),
    "replace_block": lambda g: g.replace(
        ("encoder/norm", "encoder/ffn"), layers.Dense(4, name="new")
    ),
    "replace_cell": lambda g: g.replace(
        lambda n: n.name == "gru", layers.LSTMCell(3, name="new")
    ),
    "replace_in_wrapper": lambda g: g.replace("every/each", layers.Dense(4)),
    "insert_in_wrapper": lambda g: g.insert(layers.Dense(4), after="every/each"),
    "set": lambda g: g.set("encoder/ffn/up", activation="tanh"),
    "set_in_wrapper": lambda g: g.set("both_ways/*", dropout=0.5),
    "set_cell": lambda g: g.set(lambda n: n.name == "gru", recurrent_dropout=0.2),
    "call_of_model": lambda g: g.set("encoder", trainable=False, call=1),
}


@pytest.mark.parametrize("name", EDITS)
def test_in_models_and_wrappers(model, name, tmp_path):
    graph = EDITS[name](rg.graph(model))
    made = assert_good(graph, model, tmp_path)
    dropped = {fate.path for fate in rg.lineage(made).of("dropped")}
    # Random streams move on when a cell makes its masks, whether they are used or not.
    kept = {p: v for p, v in values(model).items() if p not in dropped}
    kept = {p: v for p, v in kept.items() if "seed_generator" not in p}
    assert kept.items() <= values(made).items()


HELD = {
    "attention": lambda g: g.wrap("attention/query", layers.SpectralNormalization),
    "attention_set": lambda g: g.set("attention/key", trainable=False),
    "attention_insert": lambda g: g.insert(
        layers.Dropout(0.5, name="new"), after="attention/query"
    ),
    "replace": lambda g: g.replace(
        "stack/item_0", layers.Dense(4, use_bias=False, name="new")
    ),
    "remove": lambda g: g.remove("stack/norm"),
    "insert": lambda g: g.insert(layers.Dense(4, name="new"), before="stack/item_1"),
}


@pytest.mark.parametrize("name", HELD)
def test_in_layers_that_files_make_anew(model, name):
    graph = HELD[name](rg.graph(model))
    with pytest.warns(rg.EditNotSavedWarning, match="files will not tell") as caught:
        made = assert_good(graph, model)
    where = "attention" if name.startswith("attention") else "stack"
    # Two builds, one warning each: what was put inside is not edited itself.
    told = [w for w in caught if w.category is rg.EditNotSavedWarning]
    assert [f"where: {where}" in str(w.message) for w in told] == [True, True]
    assert f"{where} was edited inside" in rg.lineage(made).notes[0]
    but = ["stack/item_0/"] if name == "replace" else ["stack/norm/"]
    assert_kept(model, made, but=but if where == "stack" else [])


def test_an_edit_that_files_can_tell_is_not_warned_of(model, recwarn):
    made = rg.graph(model).replace("attention/query", rg.clone).build()
    made = rg.graph(made).replace("stack", lambda old: models.Stack(name="s")).build()
    assert not [w for w in recwarn if w.category is rg.EditNotSavedWarning]
    assert "s/item_0" in rg.graph(made)


def test_one_call_of_a_nested_model(model, tmp_path):
    graph = rg.graph(model).replace("encoder", rg.clone, call=1)
    graph = graph.set("encoder_1/dense", activation="tanh")
    made = assert_good(graph, model, tmp_path)
    first, second = made.get_layer("encoder"), made.get_layer("encoder_1")
    assert first.get_layer("dense").activation is keras.activations.relu
    assert second.get_layer("dense").activation is keras.activations.tanh
    for one, other in zip(first.variables, second.variables, strict=True):
        assert one is not other
        assert bits(one) == bits(other)
    assert "call 1 has a layer of its own" in graph.notes[0]


def test_a_layer_that_is_called_here_and_held_there(tmp_path):
    x = keras.Input((4,), name="x")
    dense = layers.Dense(4, name="dense")
    model = keras.Model(x, models.Scaled(dense, name="scaled")(dense(x)))
    graph = rg.graph(model).set("dense", activation="tanh")
    made = assert_good(graph, model)
    assert made.get_layer("scaled").layer is made.get_layer("dense")
    graph = rg.graph(model).replace("dense", layers.Dense(4, name="new"))
    made = assert_good(graph, model)
    assert made.get_layer("scaled").layer is made.get_layer("new")


class Auto(layers.Layer):
    """Leaves it to the first call to build its layers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.up, self.down = layers.Dense(7, name="up"), layers.Dense(4, name="down")

    def call(self, x):
        return self.down(self.up(x))


def test_widths_inside_a_layer_follow():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, Auto(name="auto")(x))
    graph = rg.graph(model).replace("auto/up", layers.Dense(5, name="up"))
    with pytest.raises(rg.MismatchError, match=r"down/kernel \(7, 4\) -> \(5, 4\)"):
        graph.build()
    made = assert_good(graph, model, mismatch="fit")
    assert made.get_layer("auto").down.kernel.shape == (5, 4)
    fates = [f.what for f in rg.lineage(made) if f.path == "auto/up/kernel"]
    assert fates == ["fresh", "dropped"]


def test_a_long_chain_does_not_recurse():
    x = keras.Input((2,), name="x")
    h = x
    for i in range(1000):
        h = layers.Activation("linear", name=f"a{i}")(h)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # Keras recurses when it makes a model.
    model = keras.Model(x, h, name="long")
    sys.setrecursionlimit(before)
    graph = rg.graph(model).insert(layers.Dense(2, name="new"), after="a990")
    made = graph.remove("a995").build()
    assert len(made.layers) == 1001
    assert len(rg.graph(model).remove("a3").nodes) == 1000


def test_a_change_inside_a_wrapped_model_is_seen_outside():
    x = keras.Input((4,))
    net = keras.Model(x, layers.Dense(3, name="d")(x), name="net")
    steps = keras.Input((5, 4))
    h = layers.TimeDistributed(net, name="each")(steps)
    model = keras.Model(steps, layers.Dense(2, name="head")(h))
    graph = rg.graph(model).replace("each/net/d", layers.Dense(7, name="wide"))
    assert graph["each"].outputs[0].shape == (None, 5, 7)
    with pytest.raises(rg.MismatchError, match=r"head/kernel \(3, 2\) -> \(7, 2\)"):
        graph.build()
    made = graph.build(mismatch="fit")
    assert made.get_layer("each").layer.output_shape == (None, 7)
    # Nothing of the old layer is left behind in the wrapper.
    assert [v.path for v in made.variables] == [
        "wide/kernel",
        "wide/bias",
        "head/kernel",
        "head/bias",
    ]


@pytest.mark.parametrize("mismatch", ["error", "fit", "fresh"])
def test_an_edit_stays_where_a_layer_would_make_those_inside_anew(model, mismatch):
    def without_bias(old):
        return layers.EinsumDense(old.equation, (None, 2, 2), name="query_new")

    graph = rg.graph(model).replace("attention/query", without_bias)
    with pytest.warns(rg.EditNotSavedWarning):
        made = graph.build(mismatch=mismatch)
    query = made.get_layer("attention")._query_dense
    assert query.name == "query_new"
    assert query.bias is None
    kept = {p: v for p, v in values(model).items() if "query" not in p}
    assert kept.items() <= values(made).items()


class KnowsItsBlock(layers.Layer):
    """A block whose first layer knows it, weakly."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(4, name="dense")
        self.dense.parent = weakref.ref(self)

    def call(self, x):
        return self.dense(x)


def test_a_layer_that_knows_the_one_around_it_knows_the_new_one():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, KnowsItsBlock(name="block")(inputs))
    block = model.get_layer("block")
    new = rg.graph(model).replace("block/dense", rg.clone(block.dense)).build()
    made = new.get_layer("block")
    assert made.dense.parent() is made
    assert block.dense.parent() is block
    rg.verify(model, new, False).raise_if_different()

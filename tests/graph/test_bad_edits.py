"""Bad edits are refused when the verb is called, with the path and what to do."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

from . import models

pytestmark = pytest.mark.wiring


class Own(keras.Model):
    """A functional model that does more than its graph says."""

    def call(self, x):
        return super().call(x) + 1.0


class Ready(layers.Layer):
    """Says that it is built, though nobody told it for what."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, x):
        return x


class Residual(layers.Layer):
    """Says that it returns what it is given, whatever its layers return."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.up = layers.Dense(6, name="up")
        self.down = layers.Dense(4, name="down")

    def call(self, x):
        return x + self.down(self.up(x))

    def compute_output_shape(self, shape):
        return shape


class Holder(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = Ready(name="inner")

    def call(self, x):
        return self.inner(x)


def outer(inner, x=None, **kwargs):
    x = keras.Input((4,), name="x") if x is None else x
    return rg.graph(keras.Model(x, inner(x, **kwargs), name="outer"))


def small(kind=keras.Model):
    x = keras.Input((4,), name="s")
    return kind(x, layers.Dense(4, name="d")(layers.ReLU(name="r")(x)), name="small")


def attention():
    x = keras.Input((5,), dtype="int32", name="x")
    h = layers.Embedding(9, 4, name="embedding")(x)
    h = layers.MultiHeadAttention(2, 2, name="attention")(h, h)
    return rg.graph(keras.Model(x, h, name="outer"))


def tied():
    x = keras.Input((5,), dtype="int32", name="x")
    embedding = layers.ReversibleEmbedding(9, 4, name="embedding")
    h = layers.Dense(4, name="d")(embedding(x))
    return rg.graph(keras.Model(x, embedding(h, reverse=True), name="outer"))


def siamese():
    ends = [keras.Input((4,), name=name) for name in ("l", "r")]
    both = list(map(layers.Dense(4, name="d"), ends))
    return rg.graph(keras.Model(ends, both, name="two"))


def inside():
    inner, x = small(), keras.Input((4,), name="x")
    s = layers.ReLU(name="s")(x)
    outputs = [inner(x), inner.get_layer("d")(s)]
    return rg.graph(keras.Model(x, outputs, name="outer"))


def states():
    x = keras.Input((5, 3), name="x")
    state = layers.GRU(2, name="first")(x)
    h = layers.GRU(2, name="second")(x, initial_state=state)
    h = ops.einsum("ab,bc->ac", h, np.ones((2, 4), "float32"))
    return rg.graph(keras.Model(x, h, name="outer"))


def pair():
    ends = [keras.Input((6,), name=name) for name in ("l", "r")]
    return keras.Model(ends, layers.Add(name="plus")(ends), name="two")


NET, ROW, DEEP, ENDS = "net", "row", "deep", "ends"
CASES = {
    # selectors
    "nothing": (NET, lambda g: g.remove("ad"), "nothing matches 'ad'", "mean 'add'"),
    "no_place": (NET, lambda g: g.find(3), "does not name a place", "int"),
    "expected": (NET, lambda g: g.find("*").one(), "Expected 1 node", "found 7"),
    "call_of_many": (
        NET,
        lambda g: g.set(layers.Dense, call=0, trainable=False),
        "`call=` is for one layer",
        "3 layers",
    ),
    "no_call": (ROW, lambda g: g.set("shared", call=3, trainable=False), "no call 3"),
    "no_call_held": (
        DEEP,
        lambda g: g.set("stack/norm", call=0, trainable=False),
        "no call 0",
        "Python code",
    ),
    "port_is_text": (
        NET,
        lambda g: g.insert(layers.ReLU(), before="add", port="x"),
        "at which input of the layer",
        "port='x'",
    ),
    "no_choice": (
        NET,
        lambda g: g.remove("relu", keep=4),
        "the layer has no such input",
        "keep=4",
    ),
    "prefix": (NET, lambda g: g.prefix("a/"), "must be a string without slashes"),
    "no_prefix": (NET, lambda g: g.prefix(3), "`prefix` must be a string", "int"),
    # replace
    "no_layer": (NET, lambda g: g.replace("b", layers.Dense), "needs a layer", "b"),
    "no_layer_back": (NET, lambda g: g.replace("b", lambda old: 3), "needs a layer"),
    "in_use": (
        NET,
        lambda g: g.replace("b", g["a"].layer),
        "already a part of the model",
        "regraft.clone(layer)",
    ),
    "clash": (
        NET,
        lambda g: g.replace("b", layers.Dense(6, name="a")),
        "two layers of the model the same name",
        "net/a",
    ),
    "arity": (NET, lambda g: g.replace("b", layers.Add(name="n")), "cannot be called"),
    "arity_model": (NET, lambda g: g.replace("b", pair()), "another number of tensors"),
    "one_of_two": (
        NET,
        lambda g: g.replace("add", layers.Dense(6, name="n")),
        "Dense 'n' cannot be called there",
        "net/n",
    ),
    "too_few": (
        "halves",
        lambda g: g.replace("halves", layers.ReLU(name="n")),
        "returns too few tensors",
        "at least 2: output 1 is used by add",
    ),
    "two_blocks": (
        NET,
        lambda g: g.replace(("a", "relu"), layers.Dense(6, name="n")),
        "these are none",
        "layers without a connection",
    ),
    "two_models": (
        DEEP,
        lambda g: g.replace(("encoder/norm", "narrow"), layers.Dense(4, name="n")),
        "these are none",
        "layers of different models",
    ),
    "block_ends": (
        NET,
        lambda g: g.replace(("bn", "b", "relu"), layers.Dense(6, name="n")),
        "another number of tensors than the block",
        "2 tensor(s)",
    ),
    "circle": (
        NET,
        lambda g: g.replace(("bn", "add"), models.Halves(name="n")),
        "would make a circle",
        "net",
    ),
    "function_fails": (
        NET,
        lambda g: g.replace("b", ops.matmul),
        "the function cannot be called there",
        "(None, 6)",
    ),
    "function_returns": (
        NET,
        lambda g: g.insert(ops.shape, after="b"),
        "did not make of the tensors",
    ),
    "held_function": (
        DEEP,
        lambda g: g.replace("stack/norm", ops.tanh),
        "a layer inside another layer cannot become a function",
        "stack/norm",
    ),
    "held_insert": (
        DEEP,
        lambda g: g.insert(ops.tanh, after="stack/norm"),
        "cannot become an operation",
    ),
    "held_unknown": (
        "holder",
        lambda g: g.replace("holder/inner", layers.Dense(4, name="n")),
        "It is not known for what shapes",
        "build(shape)",
    ),
    "held_shape": (
        DEEP,
        lambda g: g.remove("attention/query"),
        "`remove`: the code of 'deep/attention' does not work any more",
        "deep/attention/query",
    ),
    "held_says": (
        DEEP,
        lambda g: g.remove("attention/attention_output"),
        "it returns [(None, 6, 2, 2)], and says that it returns [(None, 6, 4)]",
    ),
    "held_own": (
        "residual",
        lambda g: g.remove("residual/down"),
        "the code of 'outer/residual' does not work",
        "outer/residual/down",
    ),
    "mistaken": (
        "residual",
        lambda g: g.inputs((3,)),
        "the code of 'outer/residual' does not work",
        "an input that its code can use",
    ),
    "mistaken_rank": (
        "attention",
        lambda g: g.remove("embedding"),
        "the code of 'outer/attention' does not work",
    ),
    "mistaken_call": (
        "tied",
        lambda g: g.set("embedding", output_dim=6),
        "`set`: the code of 'outer/embedding' does not work",
    ),
    "mistaken_state": (
        "states",
        lambda g: g.set("first", units=3),
        "the code of 'outer/second' does not work",
    ),
    "mistaken_operation": (
        "states",
        lambda g: g.insert(layers.Dense(3), after="second"),
        "the code of 'outer/einsum' does not work",
    ),
    "shared": (
        ROW,
        lambda g: g.inputs((3,)).build(mismatch="fit"),
        "`build`: Dense 'shared' cannot be called there",
        "row/shared",
        "all its calls share one layer",
    ),
    "shared_copied": (
        "siamese",
        lambda g: g.insert(layers.Dense(5), after="r").build(mismatch="fit"),
        "'d' is shared, and would have to take two shapes",
        "regraft.clone, call=",
    ),
    "shared_inside": (
        "inside",
        lambda g: g.insert(layers.Dense(5), after="s").build(mismatch="fit"),
        "'d' is shared, and would have to take two shapes",
        "small/d",
    ),
    "input": (NET, lambda g: g.replace("x", layers.ReLU()), "this is an input"),
    "wrapper": (
        ENDS,
        lambda g: g.wrap("add*", layers.TimeDistributed),
        "the wrapper does not take this Add",
        "add",
    ),
    # insert and remove
    "one_place": (NET, lambda g: g.insert(layers.ReLU()), "one place", "none of them"),
    "two_places": (
        NET,
        lambda g: g.insert(layers.ReLU(), after="a", before="b"),
        "received: both",
    ),
    "which_port": (
        NET,
        lambda g: g.insert(layers.ReLU(), before="add"),
        "at which input",
        "`port=` from 0 to 1",
    ),
    "no_port": (NET, lambda g: g.insert(layers.ReLU(), after="a", port=1), "port=1"),
    "does_not_fit": (
        NET,
        lambda g: g.insert(layers.Conv2D(2, 2, name="n"), after="b"),
        "Conv2D 'n' cannot be called there",
        "net/n",
    ),
    "does_not_fit_later": (
        NET,
        lambda g: g.insert(layers.Dense(5, name="n"), after="relu"),
        "Add 'add' cannot be called there",
    ),
    "which_input": (
        NET,
        lambda g: g.remove("add"),
        "several inputs, and one must take its place",
        "relu, bn",
    ),
    "no_such_input": (NET, lambda g: g.remove("add", keep="head"), "keep='head'"),
    "only_path": (NET, lambda g: g.remove(("x", "a")), "this is an input", "inputs("),
    # set
    "set_nothing": (NET, lambda g: g.set("a"), "must be told what to set"),
    "set_name": (NET, lambda g: g.set("a", name="z"), "rename('a', 'z')"),
    "set_unknown": (
        NET,
        lambda g: g.set("a", activatoin="relu"),
        "Dense has no attribute 'activatoin'",
        "Did you mean 'activation'?",
    ),
    "set_shape": (
        NET,
        lambda g: g.set("a", bias=np.ones(3)),
        "The array has a wrong shape",
        "a.bias",
    ),
    "set_value": (NET, lambda g: g.set("a", units=-1), "cannot be made with", "units"),
    "set_parts": (
        DEEP,
        lambda g: g.set("stack", count=3),
        "Stack holds other layers with these values",
    ),
    # names
    "two_named": (NET, lambda g: g.rename(("a", "b"), "c"), "one name for several"),
    "slash": (NET, lambda g: g.rename("a", "b/c"), "a string without slashes", "a"),
    "rename_clash": (NET, lambda g: g.rename("a", "b"), "the same name", "net/b"),
    # ends
    "which_output": (ENDS, lambda g: g.append(layers.ReLU()), "behind which output"),
    "no_outputs": (NET, lambda g: g.outputs([]), "A model needs an output"),
    "no_inputs": (NET, lambda g: g.extract(inputs=[]), "A model needs an input"),
    "no_ends": (NET, lambda g: g.outputs(), "by position or by name", "nothing"),
    "both_ends": (NET, lambda g: g.outputs("a", b="b"), "received: both"),
    "no_node": (NET, lambda g: g.outputs("hed"), "no node 'hed'", "mean 'head'"),
    "no_tensor": (NET, lambda g: g.outputs(3), "does not know which tensor"),
    "which_of_two": (
        "halves",
        lambda g: g.outputs("halves"),
        "It must be said which output",
        "regraft.Ref('halves', output=0)",
    ),
    "held_output": (
        DEEP,
        lambda g: g.outputs(rg.Ref("stack/norm")),
        "the tensors inside a layer are not known",
    ),
    "which_call": (
        DEEP,
        lambda g: g.outputs("encoder/dense"),
        "which call of the nested model is meant",
        "2 calls",
    ),
    "cut_off": (
        NET,
        lambda g: g.extract(inputs="relu", outputs="head"),
        "The model cannot be cut there",
        "'x' is needed, and is no input",
    ),
    "in_is_out": (
        NET,
        lambda g: g.extract(inputs="relu", outputs="relu"),
        "is an output and an input",
    ),
    "own_call": (
        "own",
        lambda g: g.outputs("small/r"),
        "cannot be taken apart",
        "a `call()` of its own",
    ),
    "arguments": ("trained", lambda g: g.outputs("small/r"), "arguments {'training'"),
    "other_kinds": ("cast", lambda g: g.outputs("small/r"), "tensors of other kinds"),
    "inputs_count": (
        ENDS,
        lambda g: g.inputs((4,)),
        "one thing for each input",
        "a, b",
    ),
    "inputs_name": (
        ENDS,
        lambda g: g.inputs(c=(4,)),
        "The model has no input 'c'",
    ),
    "inputs_kind": (NET, lambda g: g.inputs(3.5), "cannot take the place of an input"),
    "inputs_array": (
        NET,
        lambda g: g.inputs(np.ones((2, 7))),
        "The array does not fit the input",
        "net/x",
    ),
    # build
    "mismatch": (
        NET,
        lambda g: g.build(mismatch="no"),
        "value for `mismatch`",
        "'fit'",
    ),
    "compiled": (NET, lambda g: g.build(compiled="no"), "value for `compiled`"),
    "name": (NET, lambda g: g.build(name="a/b"), "`name` must be a string"),
    "function": (
        NET,
        lambda g: g.inputs((5,)).build(mismatch=lambda path, old, new: old),
        "returned an array of a wrong shape",
        "a/kernel",
    ),
    # join
    "join_how": (NET, lambda g: rg.join(g, g, how="no"), "how to connect", "'no'"),
    "join_one": (NET, lambda g: rg.join(g), "connects several models"),
    "join_what": (NET, lambda g: rg.join(g, 3), "`join` takes models", "int"),
    "join_count": (
        ENDS,
        lambda g: rg.join(g, small()),
        "another number of tensors than it takes",
        "small",
    ),
}


@pytest.fixture(scope="module")
def graphs():
    x = keras.Input((4,), name="x")
    one, two = models.Halves(name="halves")(x)
    halves = keras.Model(x, layers.Add(name="add")([one, two]))
    cast = keras.Input((4,), dtype="int32", name="x")
    return {
        NET: rg.graph(models.branched()),
        ROW: rg.graph(models.in_a_row()),
        DEEP: rg.graph(models.nested()),
        ENDS: rg.graph(models.two_ends()),
        "halves": rg.graph(halves),
        "holder": outer(Holder(name="holder")),
        "residual": outer(Residual(name="residual")),
        "attention": attention(),
        "tied": tied(),
        "states": states(),
        "siamese": siamese(),
        "inside": inside(),
        "own": outer(small(Own)),
        "trained": outer(small(), training=True),
        "cast": outer(small(), cast),
    }


@pytest.mark.parametrize("name", CASES)
def test_refused_at_once(name, graphs):
    which, edit, *parts = CASES[name]
    with pytest.raises(rg.UsageError) as error:
        edit(graphs[which])
    text = str(error.value)
    for part in parts:
        assert part in text
    for line in ("  where: ", "  expected: ", "  received: ", "  what to do: "):
        assert line in text


def test_layers_inside_one_layer_may_go_together(graphs):
    new = graphs["residual"].remove(("residual/up", "residual/down")).build()
    x = np.ones((1, 4), "float32")
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(new(x)), 2 * x)


def test_code_that_cannot_be_traced_tells_nothing():
    class Untraced(Residual):
        def call(self, x):
            if isinstance(x, keras.KerasTensor) or not keras.ops.all(x > 1):
                raise ValueError("not these numbers")
            return super().call(x)

    graph = outer(Untraced(name="residual")).remove("residual/up")
    x = np.full((1, 4), 2.0, "float32")
    assert graph.build(mismatch="fit")(x).shape == (1, 4)


def test_refused_edits_leave_nothing_behind():
    model = models.branched()
    twin = rg.clone(model)
    for which, edit, *_ in CASES.values():
        if which == NET:
            with pytest.raises(rg.UsageError):
                edit(rg.graph(model))
    rg.verify(twin, model, False).raise_if_different()
    assert [len(x._inbound_nodes) for x in model.layers] == [1] * len(model.layers)


def test_not_while_something_is_traced(graphs):
    with keras.StatelessScope(), pytest.raises(rg.UsageError, match="being traced"):
        graphs[NET].build()

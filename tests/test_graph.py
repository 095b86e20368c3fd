"""A model read as a value."""

import dataclasses
import xml.etree.ElementTree

import keras
import pytest
from keras import layers

import regraft
from regraft import Ref


@pytest.fixture
def nested():
    keras.utils.clear_session()  # Operations are named by counting.
    x = keras.Input((6,), dtype="int32", name="tokens")
    inner_x = keras.Input((6, 4), name="inner_x")
    ffn = keras.Sequential([layers.Dense(4, name="up")], name="ffn")
    encoder = keras.Model(inner_x, ffn(ffn(inner_x)), name="encoder")
    h = layers.Embedding(9, 4, mask_zero=True, name="embedding")(x)
    h = layers.MultiHeadAttention(2, 2, name="attention")(h, value=h)
    h = layers.TimeDistributed(layers.Dense(4, name="each"), name="every")(h)
    first, second = layers.LSTM(3, return_state=True, name="lstm")(encoder(h))[:2]
    return keras.Model(x, {"a": first, "b": second + 1.0}, name="net")


def test_nodes_come_in_an_order_that_works(nested):
    graph = regraft.graph(nested)
    assert [node.path for node in graph] == [
        "tokens",
        "embedding",
        "attention",
        "every",
        "encoder",
        "lstm",
        "add",
    ]
    assert len(graph) == 7
    assert graph.lint() == []
    assert graph.inputs == (Ref("tokens"),)
    assert graph.outputs == (Ref("lstm"), Ref("add"))


def test_sources_consumers_and_arguments(nested):
    graph = regraft.graph(nested)
    attention = graph["attention"]
    assert attention.sources == (Ref("embedding"), Ref("embedding"))
    assert attention.consumers == (Ref("every"),)
    assert attention.arguments == ((Ref("embedding"),), {"value": Ref("embedding")})
    assert graph["add"].sources == (Ref("lstm", output=1),)
    assert graph[Ref("lstm", output=1)] is graph["lstm"]
    assert graph["tokens"].is_input
    assert graph["tokens"].arguments is None


def test_what_is_inside_is_reached_by_its_path(nested):
    graph = regraft.graph(nested)
    assert (
        graph["encoder/ffn/up"].layer is nested.get_layer("encoder").layers[1].layers[0]
    )
    assert graph["attention/query"].layer is nested.get_layer("attention").query_dense
    assert graph["every/each"].layer is nested.get_layer("every").layer
    assert graph["encoder/ffn"].calls == 2
    assert graph[Ref("encoder/ffn", 1)].sources == (Ref("encoder/ffn"),)
    assert "encoder/ffn/up" in graph
    assert "encoder/ffn/down" not in graph


def test_a_graph_is_a_value(nested):
    graph = regraft.graph(nested)
    assert graph == regraft.graph(nested)
    assert hash(graph) == hash(regraft.graph(nested))
    assert graph != regraft.graph(regraft.clone(nested))
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.name = "other"
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph["lstm"].path = "other"


def test_reading_changes_nothing(nested):
    twin = regraft.clone(nested)
    str(regraft.graph(nested))
    regraft.verify(nested, twin).raise_if_different()


def test_one_line_a_node(nested):
    text = str(regraft.graph(nested))
    lines = text.splitlines()
    assert lines[0] == f"net: 7 nodes, {nested.count_params()} parameters"
    assert len(lines) == 1 + len(list(regraft.graph(nested).walk()))
    [embedding] = [line for line in lines if line.startswith("embedding")]
    assert embedding.split() == [
        *("embedding", "Embedding", "(None,", "6,", "4)", "masked", "36", "<-"),
        "tokens",
    ]
    assert any("encoder/ffn (call 2 of 2)" in line for line in lines)
    assert any("lstm[1]" in line for line in lines)
    assert str(regraft.graph(nested)["lstm"]).endswith("<- encoder")


def test_the_picture_is_a_whole_svg(nested):
    graph = regraft.graph(nested)
    root = xml.etree.ElementTree.fromstring(graph._repr_svg_())
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}g")) == len(graph)
    assert len(root.findall(f"{space}path")) == 6


def test_a_sequential_model():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="d")], name="s")
    graph = regraft.graph(model)
    assert [node.name for node in graph][1:] == ["d"]
    assert graph.model is model


class Holder(keras.Model):
    def __init__(self, part):
        super().__init__(name="holder")
        self.part = part

    def call(self, x):
        return self.part(x)


def test_a_functional_model_inside_a_subclassed_one(nested):
    holder = Holder(nested)
    assert regraft.graph(holder, at="net") == regraft.graph(nested)
    assert regraft.graph(holder, at="net/encoder").name == "encoder"
    with pytest.raises(regraft.UsageError) as error:
        regraft.graph(holder)
    assert "This model has no graph" in str(error.value)
    assert "models with a graph: net, net/encoder, net/encoder/ffn" in str(error.value)
    with pytest.raises(regraft.UsageError) as error:
        regraft.graph(holder, at="net/encode")
    assert "There is no model with a graph at 'net/encode'." in str(error.value)
    assert "Did you mean 'net/encoder'?" in str(error.value)


def test_weights_that_are_shared_count_once():
    dense = layers.Dense(4)
    x, inner = keras.Input((4,)), keras.Input((4,))
    model = keras.Model(x, dense(keras.Model(inner, dense(inner))(x)))
    assert "20 parameters" in str(regraft.graph(model))


def test_what_has_no_graph_is_refused():
    with pytest.raises(TypeError, match="Only models have graphs"):
        regraft.graph("model.keras")
    with pytest.raises(regraft.UsageError, match="This model has no graph"):
        regraft.graph(keras.Sequential([layers.Dense(2)]))


def test_a_wrong_path_says_what_may_have_been_meant(nested):
    with pytest.raises(regraft.UsageError) as error:
        regraft.graph(nested)["encoder/fnn"]
    assert "There is no node 'encoder/fnn'." in str(error.value)
    assert "where: net" in str(error.value)
    assert "Did you mean 'encoder/ffn'?" in str(error.value)


def test_lint_finds_what_is_wrong(nested):
    graph = regraft.graph(nested)
    turned = dataclasses.replace(graph, nodes=graph.nodes[::-1])
    assert any("lstm needs encoder" in problem for problem in turned.lint())
    cut = dataclasses.replace(graph, nodes=graph.nodes[:-1])
    assert cut.lint() == ["Output 1 is add, which nothing makes."]
    twice = dataclasses.replace(graph, nodes=(*graph.nodes, graph.nodes[-1]))
    assert twice.lint() == ["add stands for two calls."]

"""One grammar for places in a graph."""

import keras
import pytest
from keras import layers

import regraft


@pytest.fixture
def graph():
    x = keras.Input((4,), name="x")
    h = x
    for i in range(3):
        block = keras.Sequential(
            [layers.Dense(4, name="dense"), layers.BatchNormalization(name=f"bn_{i}")],
            name=f"block_{i}",
        )
        h = block(h)
    shared = layers.Dense(4, name="shared")
    return regraft.graph(keras.Model(x, shared(shared(h)), name="net"))


def paths(selection):
    return [node.path for node in selection]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("block_1", ["block_1"]),
        ("block_1/dense", ["block_1/dense"]),
        ("*/bn_*", ["block_0/bn_0", "block_1/bn_1", "block_2/bn_2"]),
        ("block_[02]", ["block_0", "block_2"]),
        (layers.BatchNormalization, ["block_0/bn_0", "block_1/bn_1", "block_2/bn_2"]),
        (lambda node: node.is_shared, ["shared", "shared"]),
        (("x", keras.Sequential), ["x", "block_0", "block_1", "block_2"]),
        ("nothing", []),
    ],
)
def test_selectors(graph, where, expected):
    assert paths(graph.find(where)) == expected


def test_nodes_and_selections_are_selectors(graph):
    second = graph.find("shared")[1]
    assert graph.find(second).one() is second
    blocks = graph.find("block_*")
    assert graph.find(blocks) == blocks
    assert hash(graph.find(blocks)) == hash(blocks)
    assert graph.find(blocks[:2]) == blocks[:2]


def test_a_selection_is_narrowed_down(graph):
    found = graph.find(layers.Dense).where("block_*").where(lambda n: "1" in n.path)
    assert paths(found) == ["block_1/dense"]
    assert repr(found) == "Selection(['block_1/dense'])"
    assert "Dense" in str(found)


def test_one_and_expect(graph):
    assert graph.find("x").one().is_input
    assert len(graph.find("block_?").expect(3)) == 3
    with pytest.raises(regraft.UsageError) as error:
        graph.find(layers.Dense).one()
    text = str(error.value)
    assert "Expected 1 node(s), found 5." in text
    assert "block_0/dense, block_1/dense" in text
    assert "where: net" in text


def test_what_names_no_place_is_refused(graph):
    with pytest.raises(TypeError, match="does not name a place in a graph"):
        graph.find(3)

"""rename and prefix."""

import keras
import pytest
from keras import layers

import regraft as rg

from . import models
from .checks import answers, assert_good, bits, values

pytestmark = pytest.mark.wiring


def slots(model):
    return {v.path: bits(v) for v in model.optimizer.variables}


def test_paths_and_slots_follow_a_name(tmp_path):
    model = models.trained(models.branched())
    graph = rg.graph(model).rename("b", "second")
    made = assert_good(graph, model, tmp_path)
    assert "second" in graph
    assert "b" not in graph

    def renamed(paths):
        moved = [(p.replace("/b_", "/second_"), v) for p, v in paths.items()]
        return {"second/" + p[2:] if p[:2] == "b/" else p: v for p, v in moved}

    assert values(made) == renamed(values(model))
    assert slots(made) == renamed(slots(model))
    assert rg.lineage(made).of("copied")[6].source == "b/kernel"
    assert models.step(made) == models.step(model)


def test_names_at_any_depth(tmp_path):
    model = models.trained(models.nested(), loss={"first": "mse", "second": "mae"})
    graph = (
        rg.graph(model)
        .rename("encoder/ffn/up", "higher")
        .rename("encoder", "coder")
        .rename("coder/ffn", "feed")
        .rename("stack/item_0", "zero")
        .rename("rnn/*/gru", "cell")
    )
    made = assert_good(graph, model, tmp_path)
    for path in ("coder/feed/higher", "stack/zero"):
        assert path in rg.graph(made)
    # Of a nested model, built by itself, the layers' paths begin with their names.
    assert {v.path for v in made.variables} != {v.path for v in model.variables}
    assert [bits(v) for v in made.variables] == [bits(v) for v in model.variables]
    starts = {v.path.replace("/", "_") for v in made.trainable_variables}
    names = [v.name for v in made.optimizer.variables[2:]]
    assert all(any(name.startswith(start) for start in starts) for name in names)


def test_a_function_of_old_names(tmp_path):
    model = models.branched()
    graph = rg.graph(model).rename(keras.layers.Dense, lambda old: f"dense_{old}")
    made = assert_good(graph, model, tmp_path)
    assert {x.name for x in made.layers} >= {"dense_a", "dense_b", "dense_head"}


def test_names_may_be_exchanged():
    model = models.branched()
    swap = {"a": "b", "b": "a"}
    made = assert_good(rg.graph(model).rename(("a", "b"), swap.get), model)
    assert bits(made.get_layer("b").kernel) == bits(model.get_layer("a").kernel)
    assert values(made)["a/kernel"] == values(model)["b/kernel"]


def test_outputs_and_inputs_follow(tmp_path):
    losses = {"o": "mse", "p": "mae"}
    model = models.trained(models.two_ends(), loss=losses, metrics={"o": ["mae"]})
    graph = rg.graph(model).rename("o", "out").rename("a", "first")
    made = assert_good(graph, model, tmp_path)
    assert models.step(made) == models.step(model)
    x = keras.Input((4,), name="x")
    plain = keras.Model(
        x, [keras.layers.Dense(1, name="u")(x), keras.layers.Dense(1, name="v")(x)]
    )
    models.trained(plain, loss={"u": "mse", "v": "mae"})
    made = assert_good(rg.graph(plain).rename("u", "w"), plain, tmp_path)
    assert made.output_names == ["w", "v"]
    assert models.step(made) == models.step(plain)


def test_prefix(tmp_path):
    model = models.trained(models.branched())
    graph = rg.graph(model).prefix("p_")
    made = assert_good(graph, model, tmp_path)
    assert made.name == "p_net"
    assert all(x.name.startswith("p_") for x in made.layers)
    assert values(made) == {f"p_{path}": v for path, v in values(model).items()}


def test_prefix_of_all_models_inside(tmp_path):
    model = models.nested()
    graph = rg.graph(model).prefix("p_")
    assert_good(graph, model, tmp_path)
    for path in ("p_encoder/p_ffn/p_up", "p_attention/query", "p_stack/item_0"):
        assert path in graph


@pytest.mark.parametrize("make", [models.branched, models.chain])
def test_back_again(make):
    model = models.trained(make())
    graph = rg.graph(model).prefix("p_").rename("*", lambda old: old[2:])
    rg.verify(model, graph.build(name=model.name), False).raise_if_different()
    graph = rg.graph(model).rename("a", "z").rename("z", "a")
    rg.verify(model, graph.build(), False).raise_if_different()


def test_the_name_of_the_model(tmp_path):
    model = models.branched()
    assert rg.graph(model).build(name="other").name == "other"
    edited = rg.graph(model).append(keras.layers.ReLU(name="r"))
    assert edited.build(name="other").name == "other"


@pytest.mark.parametrize("key", ["attention/query", "attention/q.*"])
def test_policies_by_path_follow_a_name(key):
    policies = keras.dtype_policies.DTypePolicyMap()
    policies[key] = keras.DTypePolicy("bfloat16")
    x = keras.Input((5, 8), name="x")
    attention = layers.MultiHeadAttention(2, 4, dtype=policies, name="attention")
    model = keras.Model(x, attention(x, x), name="net")
    for graph in (
        rg.graph(model).rename("attention", "other"),
        rg.graph(model).prefix("p_"),
    ):
        made = assert_good(graph, model)
        x = models.numbers(model)
        assert answers(made, x) == answers(model, x)
        assert made.layers[-1]._query_dense.compute_dtype == "bfloat16"
        assert made.layers[-1]._key_dense.compute_dtype == "float32"
    assert list(policies) == [key]

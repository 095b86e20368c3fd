"""Every verb on networks that people use: what was not edited stays, bit by bit."""

import warnings

import keras
import pytest
from keras import layers
from networks import NETWORKS

import regraft as rg

from .checks import bits, values


def inner_place(graph):
    """A layer in the last third, whose output is like what it is given."""
    nodes = graph.nodes[len(graph.nodes) * 2 // 3 :]
    kinds = layers.Activation, layers.ReLU, layers.LayerNormalization, layers.Dropout
    return next(n for n in nodes if isinstance(n.layer, kinds) and n.calls == 1)


def read(name):
    """A network, its graph, and a place in it."""
    model = NETWORKS[name]()
    graph = rg.graph(model)
    return model, graph, inner_place(graph)


@pytest.mark.parametrize("name", NETWORKS)
def test_untouched_weights_stay(name):
    model, graph, place = read(name)
    before = values(model)
    units = place.outputs[0].shape[-1]
    edited = (
        graph.insert(layers.Dense(units, name="inserted"), after=place.path)
        .insert(layers.Dropout(0.5, seed=1, name="noise"), before=place.path)
        .remove(place.path)
        .set("inserted", activation="tanh")
        .wrap("inserted", lambda old: layers.SpectralNormalization(old, name="normed"))
        .rename("noise", "noisy")
        .append(layers.Identity(name="end"), output=0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = edited.build(name="edited")
    after = {v.path: bits(v) for v in made.variables}
    dropped = {fate.path for fate in rg.lineage(made).of("dropped")}
    assert dropped == {v.path for v in place.layer.variables}
    kept = {path: value for path, value in before.items() if path not in dropped}
    assert kept.items() <= after.items()
    assert values(model) == before
    ends = graph.extract(outputs=graph[place.path].sources[0]).build()
    assert values(ends).items() <= before.items()
    assert graph.prefix("p_").build().weights[0].path.startswith("p_")


@pytest.mark.parametrize("name", NETWORKS)
def test_all_weights_stay(name):
    model, graph, place = read(name)
    before = values(model)
    kind = type(place.layer)

    def pattern(x, layer: kind):
        return layer(x)

    def replacement(x, layer):
        return keras.ops.tanh(layer(x))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for edited in (
            graph.replace(place.path, rg.clone),
            graph.outputs(*graph.outputs, place.path),
            graph.rewrite(pattern, replacement),
        ):
            assert values(edited.build()) == before
        later = graph.inputs(graph[place.path].sources[0], *graph.inputs).build()
        joined = rg.join(graph, rg.clone(model), how="parallel").build()
    assert values(later).items() <= before.items()
    assert sorted(map(bits, joined.variables)) == sorted([*before.values()] * 2)
    assert values(model) == before


@pytest.mark.parametrize("name", ["mobilenet", "transformer"])
def test_there_and_back(name):
    model, graph, place = read(name)
    graph = graph.insert(layers.Identity(name="same"), after=place.path).remove("same")
    graph = graph.replace(place.path, rg.clone).rename(place.path, "other")
    graph = graph.rename("other", place.name)
    rg.verify(model, graph.build(), False).raise_if_different()

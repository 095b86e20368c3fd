"""Every verb on networks that people use: what was not edited stays, bit by bit."""

import warnings

import keras
import pytest
from keras import layers

import regraft as rg

from .checks import bits, values


def images(make, **options):
    return make(
        weights=None, input_shape=(32, 32, 3), classes=5, classifier_activation=None
    )


def transformer():
    """Two encoder blocks over tokens of which some are masked."""
    tokens = keras.Input((8,), dtype="int32", name="tokens")
    h = layers.Embedding(20, 8, mask_zero=True, name="embedding")(tokens)
    for i in range(2):
        a = layers.MultiHeadAttention(2, 4, name=f"attention_{i}")(h, h)
        h = layers.LayerNormalization(name=f"norm_{i}")(layers.Add()([h, a]))
        f = layers.Dense(16, activation="relu", name=f"up_{i}")(h)
        f = layers.Dense(8, name=f"down_{i}")(f)
        h = layers.Add(name=f"sum_{i}")([h, f])
    h = layers.GlobalAveragePooling1D(name="pool")(h)
    return keras.Model(tokens, layers.Dense(5, name="head")(h), name="transformer")


def backbone():
    hub = pytest.importorskip("keras_hub")
    return hub.models.BertBackbone(
        vocabulary_size=30,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=8,
    )


NETWORKS = {
    "resnet": lambda: images(keras.applications.ResNet50),
    "efficientnet": lambda: images(keras.applications.EfficientNetV2B0),
    "mobilenet": lambda: images(keras.applications.MobileNetV3Small),
    "transformer": transformer,
    "backbone": backbone,
}


def inner_place(graph):
    """A layer in the last third, whose output is like what it is given."""
    nodes = graph.nodes[len(graph.nodes) * 2 // 3 :]
    kinds = layers.Activation, layers.ReLU, layers.LayerNormalization, layers.Dropout
    return next(n for n in nodes if isinstance(n.layer, kinds) and n.calls == 1)


@pytest.mark.parametrize("name", NETWORKS)
def test_untouched_weights_stay(name):
    model = NETWORKS[name]()
    before = values(model)
    graph = rg.graph(model)
    place = inner_place(graph)
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


@pytest.mark.parametrize("name", ["mobilenet", "transformer"])
def test_there_and_back(name):
    model = NETWORKS[name]()
    graph = rg.graph(model)
    place = inner_place(graph)
    graph = graph.insert(layers.Identity(name="same"), after=place.path).remove("same")
    graph = graph.replace(place.path, rg.clone).rename(place.path, "other")
    graph = graph.rename("other", place.name)
    rg.verify(model, graph.build(), False).raise_if_different()

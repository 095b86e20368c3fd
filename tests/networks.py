"""Networks that people use, with random weights."""

import keras
import pytest
from keras import layers


def images(make):
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

"""Edits of models whose layers hold whole numbers, with scales."""

import keras
from keras import layers

import regraft as rg


def test_a_quantized_sequential_takes_other_layers():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4, name="d")])
    model.quantize("int8")
    new = rg.graph(model).append(layers.Dense(2, name="e")).build()
    assert [layer.name for layer in new.layers] == ["d", "e"]
    assert new.get_layer("d").quantization_mode == "int8"
    assert new.output_shape == (None, 2)

"""A layer that holds something, to see what becomes of it in a copy."""

import pytest
from keras import layers

import regraft


class Holder(layers.Layer):
    """A layer with one attribute, past Keras's tracking."""

    def __init__(self, value=None, name="holder"):
        super().__init__(name=name)
        object.__setattr__(self, "value", value)

    def call(self, x):
        return x


def copied(value):
    """Returns what stands for a value on the copy of a layer."""
    layer = Holder(value)
    return regraft.clone(layer).value


def refused(value):
    """Returns the text with which a value on a layer is refused."""
    with pytest.raises(regraft.CopyError) as caught:
        copied(value)
    text = str(caught.value)
    assert "holder.value" in text
    assert "register_copier" in text
    return text

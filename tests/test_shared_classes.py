"""Globals and classes, which both models use, and parts of the model in them."""

import warnings
import weakref

import keras
import pytest
from keras import layers
from small import small_model

import regraft

GLOBAL_LAYER = layers.Dense(4, name="global_layer")
GLOBAL_LAYER.build((None, 4))


def test_reading_the_model_from_a_global_warns_with_path_and_name():
    inputs = keras.Input((4,))
    outputs = layers.Lambda(lambda x: x + GLOBAL_LAYER.bias, name="uses_global")(
        GLOBAL_LAYER(inputs)
    )
    model = keras.Model(inputs, outputs, name="globals")
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(model)
    text = str(caught[0].message)
    assert "`GLOBAL_LAYER`" in text
    assert "globals/uses_global.function" in text


def closing_over(part, default=None):
    """Returns a model whose class, not an object of it, knows a part of it."""

    def adding(function):
        return lambda self, x: function(self, x) + part[0](x)

    class Closing(keras.Model):
        def __init__(self):
            super().__init__(name="closing")
            self.parts = list(part)

        @property
        def first(self):
            return part[0]

        @adding
        def decorated(self, x, other=default):
            return x

        def call(self, x):
            return self.parts[0](x)

    model = Closing()
    model(keras.ops.ones((1, 4)))
    return model


def test_a_class_that_closes_over_the_model_warns_with_path_and_name():
    model = closing_over([layers.Dense(4, name="inside")])
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(model)
    texts = [str(warning.message) for warning in caught]
    for name in ("first", "adding.<locals>.<lambda>"):
        (text,) = [text for text in texts if f"{name}` reads `part`" in text]
        assert "(Dense 'closing/inside') from the function around its class" in text
        assert "where: closing\n" in text
        assert "what to do: make it an attribute of a layer" in text


def test_a_class_whose_default_is_a_layer_warns():
    model = closing_over([layers.Dense(4)], default=layers.Dense(2, name="default"))
    with pytest.warns(regraft.GlobalReferenceWarning, match="from a default"):
        regraft.clone(model)


def test_a_class_that_holds_a_layer_warns():
    class Holding(layers.Layer):
        inner = layers.Dense(4, name="inner")

    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(Holding(name="holding"))
    text = str(caught[0].message)
    assert "Holding` reads `inner` (Dense 'inner') from its body" in text
    assert "where: holding\n" in text


class PerObject:
    """A descriptor that keeps a value for each object, as books have it."""

    def __init__(self):
        self.values = weakref.WeakKeyDictionary()

    def __get__(self, obj, kind=None):
        return self if obj is None else self.values.get(obj, 0.0)

    def __set__(self, obj, value):
        self.values[obj] = value


@pytest.mark.parametrize("where", ["descriptor", "objects", "ids"])
def test_what_a_class_keeps_for_each_object_warns(where):
    class Kept(layers.Layer):
        descriptor = PerObject()

    Kept.objects, Kept.ids = weakref.WeakSet(), {}
    layer = Kept(name="kept")
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.clone(layer)
    if where == "descriptor":
        layer.descriptor = 3.0
    elif where == "objects":
        Kept.objects.add(layer)
    else:
        Kept.ids[id(layer)] = 1
    with pytest.warns(regraft.GlobalReferenceWarning) as caught:
        regraft.clone(layer)
    (text,) = [str(warning.message) for warning in caught]
    assert f"Kept` keeps something for an object of this model in `{where}`" in text
    assert "where: kept\n" in text
    assert "what to do: keep it on the object" in text


def test_a_class_that_closes_over_what_is_kept_does_not_warn():
    inside = layers.Dense(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.clone(closing_over([inside]), keep=[inside])


def test_verifying_does_not_repeat_the_warning():
    model = closing_over([layers.Dense(4)])
    with pytest.warns(regraft.GlobalReferenceWarning):
        twin = regraft.clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", regraft.GlobalReferenceWarning)
        regraft.verify(model, twin, keras.ops.ones((1, 4)))


def test_a_loss_that_closes_over_a_layer_warns():
    features = layers.Dense(2, name="features")

    class Perceptual(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return keras.ops.mean((features(y_true) - features(y_pred)) ** 2)

    model = small_model()
    model.compile(loss=Perceptual())
    with pytest.warns(regraft.GlobalReferenceWarning, match="reads `features`"):
        regraft.clone(model)

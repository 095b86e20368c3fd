"""A pytest plugin: Keras's own tests, with regraft's `clone_model` in Keras's place.

Only `cloning_test.py` calls `clone_model`. So that Keras's other tests say
something too, every model that a test has made is cloned when the test is over.
"""

import keras
import pytest
from keras.src.models import cloning
from keras.src.models.functional import Functional
from keras.src.models.model import Model

from regraft import clone_model

calls = []
made = []


def counted(*args, **kwargs):
    calls.append(args)
    return clone_model(*args, **kwargs)


for module in (keras.models, cloning):
    assert module.clone_model.__module__ == cloning.__name__
    module.clone_model = counted

_init = Model.__init__


def remember(self, *args, **kwargs):
    _init(self, *args, **kwargs)
    made.append(self)


Model.__init__ = remember


def is_complete(model):
    """Not one whose constructor was to raise."""
    return not isinstance(model, Functional) or hasattr(model, "output_names")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    made.clear()
    yield
    models, made[:] = [model for model in made if is_complete(model)], []
    for model in models:
        check(model, keras.models.clone_model(model))
        if isinstance(model, Functional | keras.Sequential):
            same = keras.models.clone_model(model, clone_function=lambda layer: layer)
            check(model, same)
            assert all(a is b for a, b in zip(model.weights, same.weights, strict=True))
    made.clear()


def check(model, new):
    assert new is not model
    assert type(new) is type(model)
    assert (new.name, new.built) == (model.name, model.built)
    assert (new.trainable, new.compiled) == (model.trainable, model.compiled)
    ours, theirs = ([(w.name, w.shape) for w in x.weights] for x in (new, model))
    assert ours == theirs
    if isinstance(model, Functional):
        spec = keras.tree.map_structure(
            lambda x: (tuple(x.shape), x.dtype), model.output
        )
        same = keras.tree.map_structure(lambda x: (tuple(x.shape), x.dtype), new.output)
        assert spec == same
        assert new.output_names == model.output_names


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"clone_model was called {len(calls)} times")

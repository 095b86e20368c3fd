"""What must hold for every edit, whatever it does."""

import contextlib
import warnings

import keras
from keras.src.backend.common import global_state

import regraft as rg
from regraft._keras import all_layers

from .models import numbers


def bits(tensor):
    """Shape, type and every bit of a tensor."""
    array = keras.ops.convert_to_numpy(tensor)
    return array.shape, str(array.dtype), array.tobytes()


def values(model):
    """Every variable of a model, by path."""
    return {variable.path: bits(variable) for variable in model.variables}


def calls(model):
    """How often each operation below a model was called."""
    counts = {}
    for layer in all_layers(model):
        operations = getattr(layer, "operations", [])
        for operation in [layer, *operations]:
            counts[id(operation)] = len(operation._inbound_nodes)
    return counts


def _counters():
    found = global_state.get_global_attribute("object_name_uids") or {}
    return {name: count for name, count in found.items() if count}


def _global_seed():
    generator = global_state.get_global_attribute("global_seed_generator")
    return None if generator is None else bits(generator.state)


@contextlib.contextmanager
def untouched(model, *new, counters=True):
    """A context that leaves a model, new layers and Keras's counters alone.

    Args:
        model: The model that is edited.
        *new: Layers that are put into it.
        counters: Whether nothing is named by counting in the context.
    """
    everything = [model, *new]
    backups = [rg.clone(each) for each in everything]
    before = [calls(each) for each in everything]
    built = [[x.built for x in all_layers(each)] for each in everything]
    names, seed = _counters(), _global_seed()
    yield
    if counters:
        assert _counters() == names
        assert _global_seed() == seed
    assert [calls(each) for each in everything] == before
    assert [[x.built for x in all_layers(each)] for each in everything] == built
    for backup, each in zip(backups, everything, strict=True):
        rg.verify(backup, each, False).raise_if_different()


def shared_between(one, other):
    """What is mutable and in both models, as a comparison tells it."""
    found = rg.verify(one, other, False).differences
    return [d for d in found if "shared" in d.why]


def assert_alone(new, *others):
    """A model has no variable and no layer in common with others."""
    mine = {id(v) for v in new.variables} | {id(x) for x in all_layers(new)}
    if getattr(new, "optimizer", None) is not None:
        mine |= {id(v) for v in new.optimizer.variables} | {id(new.optimizer)}
    for other in others:
        theirs = [*other.variables, *all_layers(other)]
        if getattr(other, "optimizer", None) is not None:
            theirs += [*other.optimizer.variables, other.optimizer]
        assert not [x for x in theirs if id(x) in mine]
        assert not shared_between(other, new)


def assert_kept(model, new, *, but=()):
    """All variables of a model are in the new one, bit by bit, but some.

    Args:
        model: The model before.
        new: The model afterwards.
        but: The beginnings of the paths of variables that were edited.
    """
    before, after = values(model), values(new)
    for path, value in before.items():
        if not path.startswith(tuple(but)):
            assert after.get(path) == value, path


def answers(model, inputs):
    """The outputs of a model, with the same random numbers every time."""
    keras.utils.set_random_seed(4)
    return [bits(y) for y in keras.tree.flatten(model(inputs))]


def assert_good(graph, model, folder=None, *new, **build):
    """Builds a graph, checks all that must hold, and returns the model.

    Args:
        graph: The graph.
        model: The model that was edited.
        folder: Where to save the new model, if files can tell what it is.
        *new: Layers that were put into it.
        **build: How it is built.
    """
    assert graph.lint() == []
    with untouched(model, *new):
        made = graph.build(**build)
        again = graph.build(**build)
    assert rg.graph(made).lint() == []
    assert_same_nodes(graph, rg.graph(made))
    assert_alone(made, model, *new)
    rg.verify(made, again, False).raise_if_different()
    inputs = numbers(made)
    found = answers(made, inputs)
    if folder is not None:
        assert answers(reloaded(made, folder), inputs) == found
    return made


def assert_same_nodes(graph, built):
    """A graph promised what was built: paths, shapes, types and masks."""
    found = {(n.path, n.call): n.outputs for n in built.walk()}
    for node in graph.walk():
        assert found[node.path, node.call] == node.outputs or not node.outputs


def reloaded(model, folder):
    """The model, saved and loaded."""
    path = folder / "model.keras"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save(path)
        return keras.saving.load_model(path)

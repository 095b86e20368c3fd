"""Objects whose classes say themselves how they are copied, or fail to."""

import copy
import functools
import threading

import pytest
from holding import Holder, copied, refused
from keras import layers

import regraft

pytestmark = pytest.mark.wiring


# --- the protocol of pickle ----------------------------------------------------


class Bag:
    def __init__(self):
        self.items, self.pairs = [], {}

    def append(self, item):
        self.items.append(item)

    def __setitem__(self, key, value):
        self.pairs[key] = value

    def __reduce__(self):
        return Bag, (), None, iter(self.items), iter(self.pairs.items())


def test_items_that_come_by_an_iterator():
    bag, inner = Bag(), layers.Dense(2)
    bag.append(1)
    bag.append(inner)
    bag["a"] = [2]
    new = copied([inner, bag])
    assert new[1].items == [1, new[0]]
    assert new[1].pairs == {"a": [2]}
    assert new[1].pairs["a"] is not bag.pairs["a"]


def set_doubled(obj, state):
    obj.doubled = 2 * state


class SetByAnother:
    number = 0

    def __reduce__(self):
        return SetByAnother, (), self.number, None, None, set_doubled


def test_a_state_that_another_function_sets():
    value = SetByAnother()
    value.number = 3
    assert copied(value).doubled == 6


class Stubborn:
    def __init__(self, how, error):
        self.how, self.error = how, error

    def fail(self, *args):
        raise getattr(self, "error", RuntimeError)("no")


class NoDeepcopy(Stubborn):
    __deepcopy__ = Stubborn.fail


class NoReduce(Stubborn):
    __reduce__ = Stubborn.fail


class NoState(Stubborn):
    __setstate__ = Stubborn.fail

    def __getstate__(self):
        return {"how": 1}


@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, KeyError])
def test_classes_that_raise_are_refused(error):
    assert "`__deepcopy__` failed" in refused(NoDeepcopy("", error))
    assert "cannot be copied: " in refused(NoReduce("", error))


def test_a_state_that_cannot_be_set_is_refused():
    assert "setting its state failed" in refused(NoState("", RuntimeError))


def test_a_layer_that_is_also_a_list_is_refused():
    class Both(layers.Layer, list):
        __hash__ = object.__hash__

    with pytest.raises(regraft.CopyError, match="is not safe"):
        regraft.clone(Both())


# --- what classes say of themselves ---------------------------------------------------


class MadeByPartial:
    def __init__(self, part):
        self.part = part

    def __reduce__(self):
        return functools.partial(MadeByPartial, self.part), ()


def test_what_the_maker_of_an_object_holds_is_copied():
    layer = Holder(MadeByPartial(None))
    layer.value.part = layer
    twin = regraft.clone(layer)
    assert twin.value.part is twin


class Reduced:
    def __init__(self, answer):
        self.answer = answer

    def __reduce__(self):
        return self.answer


@pytest.mark.parametrize("answer", [5, (len,), (len, None)])
def test_an_answer_that_is_none_is_refused(answer):
    assert "its `__reduce_ex__` returned" in refused(Reduced(answer))


def test_a_name_that_nobody_knows_is_refused():
    assert "no module knows it as 'nowhere'" in refused(Reduced("nowhere"))


class Names:
    here = Reduced("Names.here")


def test_a_name_of_a_global_stands_for_it():
    assert copied(Names.here) is Names.here


class Tokenizer:
    """Keeps in its state what it has learned, and starts with default settings."""

    def __init__(self, lower=True):
        self.lower, self.words = lower, []

    def __getstate__(self):
        return {"words": self.words}

    def __setstate__(self, state):
        self.__init__()
        self.words = state["words"]


def test_settings_that_a_state_leaves_out():
    value = Tokenizer(lower=False)
    value.words.append("a")
    new = copied(value)
    assert (new.lower, new.words) == (False, ["a"])
    assert new.words is not value.words


class ReturnsItself:
    def __init__(self, part):
        self.part = part

    def __deepcopy__(self, memo):
        return self


def test_a_deepcopy_that_keeps_the_layer_is_refused():
    layer = Holder(None)
    object.__setattr__(layer, "value", ReturnsItself(layer))
    with pytest.raises(regraft.CopyError, match="keeps what is to be copied"):
        regraft.clone(layer)
    assert copied(ReturnsItself(3)).part == 3


class CopiesItself:
    def __init__(self, function):
        self.function = function

    def __deepcopy__(self, memo):
        return CopiesItself(copy.deepcopy(self.function, memo))


def test_a_deepcopy_gets_functions_over_the_copies():
    layer = Holder(None)
    object.__setattr__(layer, "value", CopiesItself(lambda: layer))
    twin = regraft.clone(layer)
    assert twin.value.function() is twin


def test_attributes_of_functions_are_copied():
    def scaled(x):
        return x * scaled.factor

    scaled.factor = 2.0

    def set_factor(factor):
        scaled.factor = factor

    new, setter = copied([scaled, set_factor])
    setter(5.0)
    assert (scaled(1.0), new(1.0)) == (2.0, 5.0)


class SaysNothing:
    def __getattribute__(self, name):
        raise RuntimeError("no")


def test_an_object_that_answers_nothing_is_refused():
    layer = Holder(None)
    object.__setattr__(layer, "value", SaysNothing())
    with pytest.raises(regraft.CopyError, match=r"where: holder\.value"):
        regraft.clone(layer)


def test_what_is_nested_too_deep_is_refused():
    value = frozenset({MadeByPartial(1)})
    for _ in range(3000):
        value = frozenset({value})
    with pytest.raises(regraft.CopyError) as caught:
        copied(value)
    assert "nested too deep" in str(caught.value)
    assert "sys.setrecursionlimit" in str(caught.value)


class Endless(dict):
    def __len__(self):
        raise RuntimeError


def test_a_dict_that_does_not_know_its_length():
    assert copied(Endless(a=1))["a"] == 1


class Emptied:
    """Leaves out of pickles what would make them large, and begins without it."""

    def __init__(self, size):
        self.size, self.stored = size, []
        self.lock = threading.Lock()

    def __getstate__(self):
        state = vars(self).copy()
        del state["stored"], state["lock"]
        return state

    def __setstate__(self, state):
        vars(self).update(state)
        self.stored, self.lock = [], threading.Lock()


class Blanked(Emptied):
    def __getstate__(self):
        return {**vars(self), "stored": None, "lock": None}

    def __setstate__(self, state):
        vars(self).update(state)
        self.lock = threading.Lock()


class MadeBySize(Emptied):
    def __reduce__(self):
        return MadeBySize, (self.size,)


@pytest.mark.parametrize("kind", [Emptied, Blanked, MadeBySize])
def test_what_a_class_empties_in_pickles_is_copied(kind):
    inner = layers.Dense(2)
    buffer = kind(3)
    buffer.stored += [1, inner]
    new_inner, new = copied([inner, buffer])
    assert new.stored == [1, new_inner]
    assert new.stored is not buffer.stored
    assert new.lock is not buffer.lock


class Rated:
    """Writes into its pickles what its class has."""

    rate = 0.5

    def __getstate__(self):
        return {**vars(self), "rate": self.rate}


def test_what_a_class_has_is_not_put_on_the_copy(monkeypatch):
    rated = Rated()
    rated.own = [1]
    new = copied(rated)
    assert vars(new) == {"own": [1]}
    monkeypatch.setattr(Rated, "rate", 0.25)
    assert new.rate == 0.25


def raised(error, cause):
    try:
        try:
            raise ZeroDivisionError("first")
        except ZeroDivisionError as first:
            if cause:
                raise error from first
            raise error  # noqa: B904 - This is what the context is of.
    except ValueError as second:
        return second


@pytest.mark.parametrize("cause", [False, True])
def test_an_error_keeps_what_it_was_raised_from(cause):
    error = raised(ValueError("second"), cause)
    holder = Holder(error)
    twin = regraft.clone(holder)
    new = twin.value
    assert new.args == ("second",)
    assert new.__context__.args == ("first",)
    assert new.__context__ is not error.__context__
    assert (new.__cause__ is new.__context__) == cause
    assert new.__suppress_context__ == cause
    assert new.__traceback__ is None
    assert regraft.verify(holder, twin, inputs=False).same
    new.__context__ = None
    assert "value.__context__" in str(next(regraft.diff(holder, twin, inputs=False)))


@pytest.mark.parametrize("changing", [{"a": 1}, {"a": 1}.values(), {1, 2}])
def test_an_iterator_that_would_become_another_is_refused(changing):
    assert "it would become a `list_iterator`" in refused(iter(changing))


def test_an_iterator_over_what_is_copied_goes_on():
    items = [1, [2], 3]
    iterator = iter(items)
    next(iterator)
    new_items, new = copied([items, iterator])
    new_items.append(4)
    assert list(new) == [[2], 3, 4]
    assert next(iterator) is items[1]

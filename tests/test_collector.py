"""The garbage collector, before, during and after a clone."""

import gc
import sys
import weakref

import pytest
from holding import Holder

import regraft

pytestmark = pytest.mark.wiring


@pytest.fixture
def looks():
    """The generations that the collector looks at."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.enable()


def large():
    holder = Holder()
    vars(holder)["value"] = [[[]] for _ in range(120_000)]
    return holder


def test_it_looks_at_what_is_new_a_few_times(looks):
    holder = large()
    gc.collect()
    looks.clear()
    new = regraft.clone(holder)
    assert gc.isenabled()
    assert 2 <= len(looks) <= 9
    assert 2 not in looks  # That would be at all that lives.
    assert new.value == holder.value


def deep():
    """Something huge in many parts, as a model of thousands of layers is."""
    holder = Holder()
    vars(holder)["value"] = [Holder([[[]] for _ in range(64)]) for _ in range(2000)]
    return holder


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="generations mean other things")
def test_most_of_the_huge_is_looked_at_once(looks):
    holder = deep()
    gc.collect()
    looks.clear()
    new = regraft.clone(holder)
    assert 3 <= looks.count(1) <= 10  # At 260,000 objects.
    assert 2 not in looks
    assert len(looks) <= 16
    assert len(new.value) == 2000
    looks.clear()
    regraft.clone(holder)  # Nothing was looked at that is old.
    assert looks.count(1) <= 1


def test_dropped_copies_of_the_huge_are_collected():
    holder = deep()
    gone = []
    gc.collect()
    for _ in range(12):
        clone = regraft.clone(holder)
        vars(clone)["self"] = clone  # Nobody but the collector can free it.
        gone.append(weakref.ref(clone))
        alive = sum(reference() is not None for reference in gone)
        assert alive <= 6


def test_it_never_looks_at_a_small_copy_that_is_being_made(looks):
    holder = Holder([[[]] for _ in range(1000)])
    gc.collect()
    looks.clear()
    regraft.clone(holder)
    assert looks in ([], [0])  # When all is done.


def test_it_looks_at_little_only_if_that_is_not_often(looks):
    holder = Holder([[[]] for _ in range(10_000)])
    gc.collect()
    looks.clear()
    regraft.clone(holder)
    assert 2 <= looks.count(0) <= 4  # While it is made, and when all is done.
    gc.collect()
    looks.clear()
    for _ in range(40):
        regraft.clone(holder)
    assert looks.count(0) <= 60
    assert looks.count(1) <= 5  # It would be three if there were no glances.
    assert looks.count(2) == 0


def test_it_stays_off_if_it_was(looks):
    holder = large()
    gc.disable()
    gc.collect()
    looks.clear()
    regraft.clone(holder)
    assert not gc.isenabled()
    assert looks == []


def test_it_goes_on_after_an_error(looks):
    holder = Holder(i for i in range(3))
    with pytest.raises(regraft.CopyError):
        regraft.clone(holder)
    assert gc.isenabled()

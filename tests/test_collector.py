"""The garbage collector, before, during and after a clone."""

import gc

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
    assert set(looks) == {0}
    assert 2 <= len(looks) <= 9
    assert new.value == holder.value


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

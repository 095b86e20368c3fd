"""Dicts, sets and values whose classes have their own say, compared past it."""

import collections
import datetime
import decimal
import weakref

import numpy as np
import pytest
from holding import Holder

import regraft

pytestmark = pytest.mark.wiring


def differences(left, right):
    return list(regraft.diff(Holder(left, name="net"), Holder(right, name="net")))


class LastUsedLast(collections.OrderedDict):
    def __getitem__(self, key):
        self.move_to_end(key)
        return super().__getitem__(key)


def test_looking_into_a_dict_leaves_it_in_its_order():
    cache = LastUsedLast(a=1, b=2, c=3)
    layer = Holder(cache)
    assert regraft.verify(layer, regraft.clone(layer)).same
    assert list(dict.keys(cache)) == ["a", "b", "c"]


class Hiding(dict):
    def __getitem__(self, key):
        return None

    def items(self):
        return []


class Closed(dict):
    def __getitem__(self, key):
        raise KeyError("closed")


class HidingSet(set):
    def __iter__(self):
        return iter(())


def test_what_a_class_hides_is_compared():
    for kind in (Hiding, Closed):
        assert not differences(kind(a=1), kind(a=1))
        (found,) = differences(kind(a=1), kind(a=2))
        assert found.path == "net.value['a']"
    assert not differences(HidingSet({1}), HidingSet({1}))
    assert differences(HidingSet({1}), HidingSet({2}))


def test_a_long_key_makes_no_long_line():
    (found,) = differences({"k" * 5000: 1}, {"k" * 5000: 2})
    assert len(str(found)) < 200


class Day(datetime.date):
    pass


class Moment(datetime.datetime):
    pass


class Price(decimal.Decimal):
    pass


class BarePrice(decimal.Decimal):
    __slots__ = ()


class BareFloat(float):
    __slots__ = ()


UTC, BERLIN = (datetime.timezone(datetime.timedelta(hours=h)) for h in (0, 1))

VALUES = {
    "a day": (Day(2020, 1, 1), Day(2021, 1, 1)),
    "the same moment elsewhere": (
        Moment(2020, 1, 1, 0, tzinfo=UTC),
        Moment(2020, 1, 1, 1, tzinfo=BERLIN),
    ),
    "a price": (Price("1"), Price("2")),
    "the same price": (Price("1.0"), Price("1.00")),
    "digits": (BarePrice("1.0"), BarePrice("1.00")),
    "signs": (BareFloat(0.0), BareFloat(-0.0)),
    "functions written in C": (np.add, np.multiply),
}


@pytest.mark.parametrize("what", VALUES)
def test_values_of_classes_of_ones_own(what):
    left, right = VALUES[what]
    layer = Holder(left)
    assert regraft.verify(layer, regraft.clone(layer)).same
    (found,) = differences(left, right)
    assert (found.path, found.why) == ("net.value", "value")


def test_a_proxy_of_what_is_gone():
    class Target:
        pass

    target = Target()
    layer = Holder(weakref.proxy(target))
    twin = regraft.clone(layer)
    del target
    assert regraft.verify(layer, twin).same


def test_numbers_that_numpy_has_not():
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        one, other = torch.zeros(3).to(dtype), torch.ones(3).to(dtype)
        assert not differences(one, one.clone())
        (found,) = differences(one, other)
        assert found.path == "net.value['values'][0]"
    (found,) = differences(torch.zeros(3), torch.zeros(3, requires_grad=True))
    assert str(found) == "net.value['requires_grad']: value: False | True"

"""Copies random objects, and prints what each copy is like.

    python tests/support/random_objects.py COUNT

Two programs that copy alike print the same.
"""

import hashlib
import random
import sys
from collections import OrderedDict, defaultdict, deque

import keras
from keras import layers

import regraft
from regraft._identity import may_hold_ids


class Bag(dict):
    """A dict with attributes, and ways of its own."""

    def __setitem__(self, key, value):
        raise AssertionError("a copy is filled past the class")

    def items(self):
        raise AssertionError("a copy is read past the class")


class Row(list):
    """A list with attributes, which says it is empty."""

    def __len__(self):
        return 0

    def __iter__(self):
        return iter(())


class Names(set):
    """A set with attributes."""


class Slotted(list):
    __slots__ = ("mark",)


class Thing:
    """An instance of an ordinary class."""


class Guarded:
    """One that does not let its attributes be set."""

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Corner:
    __slots__ = ("x", "y")


class Number(int):
    """An int that is none of Python's own."""


CLASSES = (list, dict, set, tuple, OrderedDict, deque, Bag, Row, Names, Slotted)
CLASSES += (Thing, Guarded, Corner, defaultdict, frozenset)
PLAIN = (str, bytes, int, float, complex, type(None))


class Maker:
    """Makes objects that hold each other."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.made = []

    def atom(self):
        choices = (None, True, 3, 2.5, "text", b"bytes", 1j, Number(4), 2**70, -(2**40))
        if self.made and self.random.random() < 0.1:
            return id(self.random.choice(self.made))  # It is the copy's in a copy.
        return self.random.choice(choices)

    def value(self, depth):
        drawn = self.random.random()
        if self.made and drawn < 0.25:
            return self.random.choice(self.made)
        return self.atom() if depth == 0 or drawn < 0.5 else self.object(depth - 1)

    def key(self):
        return self.random.choice(("a", "b", 1, (1, "c"), None, 2.5, frozenset({1})))

    def values(self, depth):
        return [self.value(depth) for _ in range(self.random.randrange(4))]

    def no_id(self, value):
        """Returns a value for where ids stay as they are: slots, deques, tuples."""
        is_id = isinstance(value, int) and value > 2**32
        is_id = is_id or (isinstance(value, tuple) and may_hold_ids(value))
        return "no id" if is_id else value

    def object(self, depth):
        kind = self.random.choice(CLASSES)
        if kind is tuple:
            new = tuple(map(self.no_id, self.values(depth)))
            self.made.append(new)
            return new
        if kind is frozenset:
            return frozenset(self.key() for _ in range(2))
        new = kind.__new__(kind)
        if kind is deque:
            new = deque()
        self.made.append(new)
        if isinstance(new, list):
            list.extend(new, self.values(depth))
        elif isinstance(new, deque):
            new.extend(map(self.no_id, self.values(depth)))
        elif isinstance(new, set):
            set.update(new, [self.key() for _ in range(self.random.randrange(3))])
        elif isinstance(new, dict):
            if kind is defaultdict:
                new.default_factory = list
            for value in self.values(depth):
                base = OrderedDict if kind is OrderedDict else dict
                base.__setitem__(new, self.key(), value)
        if kind is Corner:
            new.x = self.no_id(self.value(depth))
        if kind is Slotted:
            new.mark = self.no_id(self.value(depth))
        if hasattr(new, "__dict__"):
            for value in self.values(depth):
                vars(new)[self.random.choice("pqr")] = value
        return new


def parts_of(obj):
    """Returns what an object holds, past what its class says of it."""
    parts = []
    if isinstance(obj, dict):
        parts += [part for item in dict.items(obj) for part in item]
    elif isinstance(obj, set | frozenset):
        parts += sorted(obj, key=repr)
    elif isinstance(obj, list):
        parts += list.__iter__(obj)
    elif isinstance(obj, tuple | deque):
        parts += obj
    for slot in ("x", "mark"):
        if type(obj) in (Corner, Slotted) and hasattr(obj, slot):
            parts.append(getattr(obj, slot))
    for item in sorted(getattr(obj, "__dict__", {}).items()):
        parts += item
    return parts


def described(root):
    """Returns a line for each object that can be reached, in the order of meeting."""
    numbers, found = {id(root): 0}, [root]
    for obj in found:
        for part in parts_of(obj):
            if not isinstance(part, PLAIN) and id(part) not in numbers:
                numbers[id(part)] = len(found)
                found.append(part)

    def told(value):
        if isinstance(value, int) and value in numbers:
            return f"id of {numbers[value]}"
        if not isinstance(value, PLAIN):
            return f"#{numbers[id(value)]}"
        is_id = type(value) is int and 2**40 < value < 2**64
        return "another id" if is_id else f"{type(value).__name__} {value!r}"

    lines = [[type(obj).__name__, *map(told, parts_of(obj))] for obj in found]
    return "\n".join(map(", ".join, lines))


def main(count):
    for seed in range(count):
        holder = layers.Identity()
        maker = Maker(seed)
        # Past Keras, which would wrap it.
        vars(holder)["value"] = [maker.object(4) for _ in range(3)]
        copy = regraft.clone(holder)
        before, after = described(holder.value), described(copy.value)
        assert before == after, f"seed {seed}:\n{before}\n\n{after}"
        digest = hashlib.sha256(after.encode()).hexdigest()[:12]
        print(seed, len(after.splitlines()), digest)


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main(int(sys.argv[1]))

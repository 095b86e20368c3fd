"""Edits to copies of models, which a comparison must find."""

import keras
import numpy as np
import pytest

import regraft


class Edits(list):
    """A list of edits, filled by decorating them.

    An edit is a function that gets a copy and its original, and changes the copy.
    """

    def __call__(self, build, where):
        """Registers the edit below.

        Args:
            build: Makes the original.
            where: What the report of the edit must contain: a path, perhaps with
                the kind of the difference, as in `"model/dense.units: value"`.
        """

        def register(change):
            self.append(pytest.param(build, change, where, id=change.__name__))
            return change

        return register


def assert_found(build, change, where):
    """The edit is reported, and under the right path."""
    model = build()
    edited = regraft.clone(model)
    change(edited, model)
    found = []
    for difference in regraft.diff(model, edited):
        found.append(f"{difference.path}: {difference.why}")
        if where in found[-1]:
            return
    pytest.fail(f"{where!r} is not among {found}")


def flip_a_bit(variable):
    """Changes a variable as little as possible."""
    value = np.array(keras.ops.convert_to_numpy(variable))
    value.reshape(-1).view("uint8")[0] ^= 1
    variable.assign(value)


def put(obj, **attributes):
    """Sets attributes without anybody's tracking or checks."""
    vars(obj).update(attributes)

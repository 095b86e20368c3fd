"""`replicate` and `gather`: a model that is already built, on many devices."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console

from . import _keras
from ._backends import engines
from ._clone import clone_onto
from ._errors import SingleDeviceWarning, UsageError, UsageTypeError, explain
from ._files import written_beside
from ._placement import Layouts, device_name, find_device
from ._row_check import check_rows
from ._summary import Placement

M = TypeVar("M")


class Replicated:
    """What `replicate` adds to a model: it lies on several devices.

    It is an ordinary Keras model besides, of its own class: compile it, train it,
    give it callbacks.
    """

    replicas: engines.Replicas
    checked: weakref.WeakSet[Any]  # The models whose rows were tried.

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices."""
        return self.replicas.devices

    @property
    def template(self) -> Any:
        """The same model, seen as a plain one.

        It is live: it has the very layers, variables and optimizer that are trained
        on the devices, so saving it saves the current weights.
        """
        _keras.jax_sync(self)
        return _keras.behind(self)

    def make_train_function(self, force: bool = False) -> Any:
        """Makes what runs a step of `fit`, for a model whose batches can be split."""
        self.check_rows()
        return super().make_train_function(force)  # type: ignore[misc]

    def make_test_function(self, force: bool = False) -> Any:
        """Makes what runs a step of `evaluate`; see `make_train_function`."""
        self.check_rows()
        return super().make_test_function(force)  # type: ignore[misc]

    def make_predict_function(self, force: bool = False) -> Any:
        """Makes what runs a step of `predict`; see `make_train_function`."""
        self.check_rows()
        return super().make_predict_function(force)  # type: ignore[misc]

    def check_rows(self) -> None:
        """Refuses a model that mixes rows, before a batch is split; tried once."""
        if not self.replicas.splits_calls or self in self.checked:
            return
        self.checked.add(self)  # Before the trial, which may call the model itself.
        try:
            many = self if self.replicas.splits_every_call else None
            check_rows(self.template, many)
        except BaseException:
            self.checked.discard(self)
            raise

    def placement(self) -> Placement:
        """Returns where every variable lies; print it."""
        return Placement.of(self.template, self.replicas)

    def save(
        self, filepath: Any, overwrite: bool = True, zipped: bool | None = None
    ) -> None:
        """Writes a file that plain Keras loads on one device.

        A file that is replaced is whole at any time: the old one or the new one. Of
        several processes only the first writes; the others wait for it.
        """
        template = self.template

        def write() -> None:
            if zipped is False or not overwrite or _is_remote(filepath):
                template.save(filepath, overwrite=overwrite, zipped=zipped)
            else:
                with written_beside(filepath) as draft:
                    template.save(draft, zipped=zipped)

        self.replicas.write(write)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, **kwargs: Any
    ) -> None:
        """Writes a file of weights that plain Keras loads; see `save`."""
        template = self.template

        def write() -> None:
            if overwrite and not kwargs and not _is_remote(filepath):
                with written_beside(filepath) as draft:
                    template.save_weights(draft)
            else:
                template.save_weights(filepath, overwrite=overwrite, **kwargs)

        self.replicas.write(write)

    def export(self, *args: Any, **kwargs: Any) -> None:
        """Exports an ordinary copy that lies on one device; see `save`."""
        plain: Any = gather(self)
        self.replicas.write(lambda: plain.export(*args, **kwargs))


def replicate(
    model: M,
    devices: int | Iterable[Any] | None = None,
    *,
    merge: Any = "cpu",
    relocate: Any = None,
) -> M:
    """Returns a copy of a model that trains and predicts on many devices at once.

    Weights, optimizer state and everything else of the model are taken along; the
    model itself is left as it was. Each batch given to `fit`, `evaluate` and
    `predict` is split over the devices, and the result is that of the whole batch
    on one device. `replicas.describe()` of the result names the machinery.

    On torch and TensorFlow a model is called on a part of the rows at a time. One that
    mixes rows is refused when it first runs, as far as four rows in inference show it.
    On torch, what layers of your own assign to variables, and losses they add, is taken
    for means over rows; if it is none, that is refused likewise.

    Args:
        model: A built model, compiled or not.
        devices: How many devices, or which (`["gpu:0", "gpu:1"]`); all by default.
        merge: The device on which the results of the replicas are put together,
            where the engine does that on one device (torch and TensorFlow, in one
            process).
        relocate: The device on which weights are kept between steps, where the
            engine keeps them on one device (torch); by default the first.

    Returns:
        A model of the same class, which is also a `Replicated`: it has `devices`,
        `template` and `placement()`, and `gather` brings it back.

    Raises:
        UsageError: A device is not there, or named twice (but on torch); the model
            is not built; it is not the same in all processes; a layer cannot be run
            by several replicas.

    Example:
    >>> import keras, regraft
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> many = regraft.replicate(model, 1)
    >>> many.devices
    ('cpu:0',)
    >>> regraft.verify(model, regraft.gather(many)).same
    True
    """
    _check(model)
    engine = engines.active()
    names, found = _find(engine, devices)
    home = None if relocate is None else find_device(relocate, "relocate")
    replicas = engine.replicas(names, found, find_device(merge, "merge"), home)
    distribution = replicas.distribution
    layouts = None if distribution is None else Layouts(distribution)
    original: Any = model
    if isinstance(model, Replicated):
        original = model.template
    replicas.agree(original)
    with _progress(original, names):
        copy = clone_onto(original, device=replicas.place, layouts=layouts)
    kind = type(copy)
    # By module and name Keras writes the class into a file: it is the model's own.
    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    bases = (Replicated, replicas.steps, kind)
    made = {"replicas": replicas, "checked": weakref.WeakSet()}
    many = _keras.seen_as(copy, type(kind.__name__, bases, {**own, **made}))
    replicas.adopt(many)
    if len(replicas.devices) == 1:
        _warn_of_one(model, names[0], replicas)
    return many


def gather(many: M, device: Any = None) -> M:
    """Returns an ordinary copy, on one device, of a model on many devices.

    Args:
        many: What `replicate` returned.
        device: Where the copy is to lie; by default on the first device (of this
            process).

    Returns:
        A model of the class that the model had before it was replicated, with the
        current weights and optimizer state.

    Raises:
        UsageError: The model does not come from `replicate`.
    """
    if not isinstance(many, Replicated):
        raise UsageTypeError(
            explain(
                "Only a replicated model can be gathered.",
                where="argument `many`",
                expected="what `regraft.replicate` returned",
                received=f"{many!r} (of type {type(many).__name__})",
                fix="pass the replicated model itself; an ordinary model is copied "
                "with `regraft.clone(model, device=...)`",
            )
        )
    place = find_device(many.replicas.near if device is None else device)
    plain: Any = clone_onto(many.template, device=place)
    return plain


@contextmanager
def _progress(model: Any, names: list[str]) -> Iterator[None]:
    """Says on a terminal what is going on, while a large model is on its way."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    size = sum(map(_keras.size_in_bytes, model.variables))
    with console.status(f"{model.name}: {size:,} bytes to {', '.join(names)}"):
        yield


def _is_remote(path: Any) -> bool:
    return "://" in str(path)


def _check(model: Any) -> None:
    if not isinstance(model, _keras.Model):
        raise UsageTypeError(
            explain(
                "Only models can be replicated.",
                where="argument `model`",
                expected="a `keras.Model`",
                received=f"{model!r} (of type {type(model).__name__})",
                fix="pass the model itself, not its class, its path or a layer",
            )
        )
    if not model.built:
        raise UsageError(
            explain(
                "A model must be built before it is replicated.",
                where=model.name,
                expected="a model that has its variables",
                received="an unbuilt model",
                fix="call it on a batch, or call its `build()`",
            )
        )


def _warn_of_one(model: Any, name: str, replicas: engines.Replicas) -> None:
    warnings.warn(
        explain(
            f"The model runs on one device ({name}), by {replicas.describe()}.",
            where=model.name,
            expected="several devices, for batches to be split",
            received="one",
            fix="nothing, if that is what you want; otherwise name more devices",
        ),
        SingleDeviceWarning,
        stacklevel=3,
    )


def _find(engine: engines.Engine, devices: Any) -> tuple[list[str], list[Any]]:
    """Returns names and devices that `devices` means."""
    every = engine.default_devices()
    if devices is None:
        names = every
    elif not isinstance(devices, str | Iterable):
        if isinstance(devices, bool) or not hasattr(devices, "__index__"):
            raise UsageTypeError(
                explain(
                    "`devices` must be a number or names of devices.",
                    where="argument `devices`",
                    expected=f"an int, some of {', '.join(every)}, or None for all",
                    received=f"{devices!r} (of type {type(devices).__name__})",
                    fix="pass for example `devices=2`",
                )
            )
        if not 1 <= devices <= len(every):
            raise UsageError(
                explain(
                    f"There are not {devices} devices.",
                    where="argument `devices`",
                    expected=f"a number from 1 to {len(every)}, or some of "
                    f"{', '.join(every)}",
                    received=repr(devices),
                    fix="ask for fewer, or start the program with more devices",
                )
            )
        names = every[:devices]
    else:
        named = [devices] if isinstance(devices, str) else list(devices)
        names = [device_name(find_device(x, "devices")) for x in named]
    if not names or (len(set(names)) < len(names) and not engine.repeats()):
        raise UsageError(
            explain(
                "Each replica needs a device of its own.",
                where="argument `devices`",
                expected=f"one or more of {', '.join(every)}, each once",
                received=repr(devices),
                fix="name every device once",
            )
        )
    return names, [find_device(name) for name in names]

"""Descriptions of models: plain values that can be read, and pasted into a test.

    Spec(Graph("v", (Step("dense", (0,)), Step("merge", (0, 1)))))

is a model of one vector: tensor 0 is its input, tensor 1 what a Dense layer
makes of it, and tensor 2 both of them merged. What no step takes is an output.
"""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from .rules import RULES


class _Brief:
    """A repr without the fields that are as they are by default."""

    needed: ClassVar[int]

    def __repr__(self) -> str:
        default = type(self)(*[None] * self.needed)
        shown = [repr(getattr(self, f.name)) for f in fields(self)[: self.needed]]
        for name in [f.name for f in fields(self)[self.needed :]]:
            value = getattr(self, name)
            if value != getattr(default, name):
                shown.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class Step(_Brief):
    """One step of a graph.

    Attributes:
        kind: The name of its rule; or "model", a functional model; "sequential",
            a Sequential one; "tied", a layer with the kernel of another one.
        of: The numbers of the tensors that it takes.
        options: What its rule is given, where that is not the default.
        graph: The inner graph of a model.
        again: The number of the earlier step whose layer is called once more.
    """

    kind: str
    of: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    graph: "Graph | None" = None
    again: int | None = None
    needed = 2


@dataclass(frozen=True, repr=False)
class Graph(_Brief):
    """Inputs, by their kinds, and the steps from there.

    Attributes:
        inputs: One letter for each input, see `rules`.
        steps: What is done, in order.
        named: Whether the outputs are a dict.
    """

    inputs: str
    steps: tuple[Step, ...]
    named: bool = False
    needed = 2

    def kinds(self) -> str:
        """The kinds of all its tensors, in order."""
        kinds = self.inputs
        for step in self.steps:
            kinds += gives(step, self.steps, kinds)
        return kinds

    def outputs(self) -> list[int]:
        """The numbers of the tensors that no step takes."""
        taken = {i for step in self.steps for i in step.of}
        return [i for i in range(len(self.kinds())) if i not in taken]

    def serialisable(self) -> bool:
        """Whether Keras can save everything in it."""
        return all(
            step.graph.serialisable()
            if step.graph is not None
            else step.kind in RULES and RULES[step.kind].serialisable
            for step in self.steps
            if step.again is None
        )


def gives(step: Step, steps: tuple[Step, ...] | list[Step], kinds: str) -> str:
    """The kinds of the tensors that a step makes.

    Args:
        step: The step.
        steps: The steps of its graph, at least those before it.
        kinds: The kinds of the tensors before it.
    """
    first = kinds[step.of[0]]
    if step.kind == "model":
        graph = (step if step.again is None else steps[step.again]).graph
        inside = graph.kinds()
        return "".join(inside[i] for i in graph.outputs())
    if step.kind in ("sequential", "tied"):
        return first
    return RULES[step.kind].gives.replace("*", first)


@dataclass(frozen=True, repr=False)
class Training(_Brief):
    """What `compile` is given."""

    optimizer: str = "sgd"
    metrics: bool = False
    eager: bool = True
    needed = 0


@dataclass(frozen=True, repr=False)
class Spec(_Brief):
    """A whole model.

    Attributes:
        graph: Its graph.
        form: "functional"; "sequential", where the graph is a chain; "wrapped" in
            a subclassed model; "grown", of a subclass of a functional one.
        policy: The dtype policy.
        named_inputs: Whether the inputs are a dict.
        fixed_batch: Whether the inputs have a batch size.
        frozen: Whether the whole model is not trainable.
        lora: Whether the first Dense layer learns a low-rank change only.
        training: How it is compiled, if it is.
        trained: Whether it was trained for a step.
    """

    graph: Graph
    form: str = "functional"
    policy: str = "float32"
    named_inputs: bool = False
    fixed_batch: bool = False
    frozen: bool = False
    lora: bool = False
    training: Training | None = None
    trained: bool = False
    needed = 1

    def serialisable(self) -> bool:
        """Whether Keras can save the model and load it again."""
        return self.form != "grown" and self.graph.serialisable()

"""Strategies that draw random models."""

from typing import Any

from hypothesis import strategies as st

from .build import OPTIMIZERS
from .rules import RULES
from .specs import Graph, Spec, Step, Training, gives

CHAINABLE = [k for k, r in RULES.items() if r.is_layer and r.takes == r.gives == "*"]
NESTED = {"model": "*", "siamese": "**", "sequential": "*"}
TAKES = {kind: rule.takes for kind, rule in RULES.items()} | NESTED | {"tied": "*"}
POLICIES = ["mixed_bfloat16", "bfloat16", "mixed_float16"]
FORMS = ["functional"] * 4 + ["sequential", "wrapped", "grown"]


def rarely(odds: int) -> st.SearchStrategy[bool]:
    """True once in `odds` times."""
    return st.sampled_from([False] * (odds - 1) + [True])


def allowed(wanted: str) -> str:
    """The kinds that a letter of a rule stands for."""
    return "vsi" if wanted == "*" else wanted


@st.composite
def operands(draw: Any, takes: str, kinds: str) -> tuple[int, ...]:
    """Tensors for a step, the newest ones first, so that graphs grow deep."""
    numbers: list[int] = []
    for wanted in takes:
        fitting = allowed(wanted)
        if numbers and wanted == "*":
            fitting = kinds[numbers[0]]
        numbers.append(
            draw(
                st.sampled_from([i for i, k in enumerate(kinds) if k in fitting][::-1])
            )
        )
    return tuple(numbers)


def options(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options for a rule, without those that are as they are by default."""
    rule = RULES[kind]

    def brief(drawn: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in drawn.items() if v != rule.defaults[k]}

    drawn = {name: st.sampled_from(values) for name, values in rule.options.items()}
    return st.fixed_dictionaries(drawn).map(brief)


@st.composite
def next_steps(draw: Any, kinds: str, before: list[Step], depth: int) -> Step:
    """A step behind the tensors of these kinds."""
    usable = [
        kind
        for kind, takes in TAKES.items()
        if all(set(allowed(wanted)) & set(kinds) for wanted in takes)
        and (depth < 2 or kind not in NESTED)
    ]
    kind = draw(st.sampled_from(usable))
    of = draw(operands(TAKES[kind], kinds))
    kind = "model" if kind == "siamese" else kind
    inputs = "".join(kinds[i] for i in of)
    is_layer = kind in NESTED or (kind in RULES and RULES[kind].is_layer)
    same = [
        number
        for number, step in enumerate(before)
        if (step.kind, step.again) == (kind, None)
        and "".join(kinds[i] for i in step.of) == inputs
    ]
    if is_layer and same and draw(st.booleans()):
        return Step(kind, of, again=draw(st.sampled_from(same)))
    if kind == "model":
        return Step(kind, of, graph=draw(graphs(inputs, depth=depth + 1, most=3)))
    if kind == "sequential":
        deferred = {"deferred": True} if draw(st.booleans()) else {}
        return Step(kind, of, deferred, draw(chains(inputs)))
    if kind == "tied":
        how = draw(st.sampled_from(["variable", "layer", "call"]))
        return Step(kind, of, {"how": how, "number": draw(st.integers(0, 3))})
    return Step(kind, of, draw(options(kind)))


@st.composite
def graphs(draw: Any, inputs: str, depth: int = 0, most: int = 6) -> Graph:
    """Graphs with these inputs."""
    kinds = inputs
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, most))):
        steps.append(draw(next_steps(kinds, steps, depth)))
        kinds += gives(steps[-1], steps, kinds)
    for i in Graph(inputs, tuple(steps)).outputs():
        if kinds[i] == "t":  # There is no loss for token ids.
            steps.append(Step("embedding", (i,), draw(options("embedding"))))
        elif i < len(inputs) and depth > 0:  # Keras fails if an input is an output.
            steps.append(Step("activation", (i,)))
    return Graph(inputs, tuple(steps), named=draw(rarely(3)))


@st.composite
def chains(draw: Any, kind: str, most: int = 3) -> Graph:
    """Graphs of layers of which each takes what the one before made."""
    names = draw(st.lists(st.sampled_from(CHAINABLE), min_size=1, max_size=most))
    steps = [Step(name, (i,), draw(options(name))) for i, name in enumerate(names)]
    return Graph(kind, tuple(steps))


@st.composite
def specs(draw: Any) -> Spec:
    """Whole models."""
    form = draw(st.sampled_from(FORMS))
    if form == "sequential":
        graph = draw(chains(draw(st.sampled_from("vsi"))))
    else:
        kinds = draw(st.lists(st.sampled_from("vtsi"), min_size=1, max_size=3))
        graph = draw(graphs("".join(kinds)))
    training = draw(st.none() | trainings())
    return Spec(
        graph,
        form,
        policy=draw(st.sampled_from(["float32"] * 5 + POLICIES)),
        named_inputs=form != "sequential" and draw(rarely(4)),
        fixed_batch=draw(rarely(6)),
        frozen=draw(rarely(10)),
        lora=draw(rarely(6)),
        training=training,
        trained=training is not None and draw(st.booleans()),
    )


def trainings() -> st.SearchStrategy[Training]:
    """Ways to compile a model; rarely one that traces it, which takes longest."""
    return st.builds(
        Training,
        st.sampled_from(list(OPTIMIZERS)),
        metrics=st.booleans(),
        eager=rarely(10).map(lambda traced: not traced),
    )

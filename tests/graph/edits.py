"""Edits that fit into any model, drawn as numbers so that they can be shrunk."""

from keras import layers, ops

import regraft as rg

EDITS = {}


def edit(function):
    """Registers an edit: a function of a graph and a number that returns a graph."""
    EDITS[function.__name__] = function
    return function


def choose(nodes, number):
    """One of the nodes; None if there are none."""
    return nodes[number % len(nodes)] if nodes else None


def called(graph):
    """The nodes that a model calls, at any depth, inputs left out."""
    return [n for n in graph.walk() if n.outputs and not n.is_input]


def is_number(output):
    return "float" in output.dtype


def keeps_shape(graph, node):
    """Whether a layer returns a tensor like one that it is given, and no other."""
    if len(node.outputs) != 1 or not node.sources:
        return False
    *_, first = dict.fromkeys(node.sources)
    source = graph[first].outputs[first.output]
    out = node.outputs[0]
    return (source.shape, source.dtype) == (out.shape, out.dtype)


def quiet_layer(output, number):
    """A layer that fits behind any tensor."""
    if not is_number(output):
        return layers.Identity()
    makers = [
        lambda: layers.Dropout(0.5, seed=3),
        lambda: layers.Activation("tanh"),
        lambda: layers.Dense(output.shape[-1]),
        lambda: layers.LayerNormalization(),
    ]
    return makers[number % len(makers)]()


@edit
def insert_after(graph, number):
    node = choose([n for n in graph.walk() if n.outputs], number)
    port = number % len(node.outputs)
    return graph.insert(
        quiet_layer(node.outputs[port], number), after=node.path, port=port
    )


@edit
def insert_before(graph, number):
    node = choose([n for n in called(graph) if n.sources], number)
    if node is None:
        return graph
    sources = list(dict.fromkeys(node.sources))
    port = number % len(sources)
    source = graph[sources[port]].outputs[sources[port].output]
    call = number % node.calls if number % 2 else None
    if call is not None and node.calls > 1:
        node = graph[rg.Ref(node.path, call)]
        sources = list(dict.fromkeys(node.sources))
        port = number % len(sources)
        source = graph[sources[port]].outputs[sources[port].output]
    new = quiet_layer(source, number)
    return graph.insert(new, before=node.path, port=port, call=call)


@edit
def insert_operation(graph, number):
    nodes = [n for n in called(graph) if len(n.outputs) == 1]
    node = choose([n for n in nodes if is_number(n.outputs[0])], number)
    return graph if node is None else graph.insert(ops.tanh, after=node.path)


@edit
def remove(graph, number):
    node = choose([n for n in called(graph) if keeps_shape(graph, n)], number)
    return graph if node is None else graph.remove(node.path, keep=-1)


@edit
def remove_one_call(graph, number):
    nodes = [n for n in called(graph) if keeps_shape(graph, n) and n.is_shared]
    node = choose(nodes, number)
    if node is None:
        return graph
    return graph.remove(node.path, keep=-1, call=node.call)


@edit
def rename(graph, number):
    node = choose(list(graph.walk()), number)
    return graph.rename(node.path, lambda old: f"{old}_again")


@edit
def prefix(graph, number):
    return graph.prefix("p_")


@edit
def freeze(graph, number):
    nodes = [n for n in graph.walk() if isinstance(n.layer, layers.Layer)]
    node = choose([n for n in nodes if not n.is_input], number)
    return graph if node is None else graph.set(node.path, trainable=False)


@edit
def activate(graph, number):
    node = choose(list(graph.find(layers.Dense)), number)
    if node is None:
        return graph
    call = node.call if node.is_shared and number % 2 else None
    return graph.set(node.path, activation="tanh", call=call)


@edit
def replace_by_clone(graph, number):
    nodes = [n for n in graph.walk() if isinstance(n.layer, layers.Layer)]
    node = choose([n for n in nodes if not n.is_input], number)
    if node is None:
        return graph
    call = node.call if node.is_shared and number % 2 else None
    return graph.replace(node.path, rg.clone, call=call)


@edit
def replace_by_another(graph, number):
    node = choose(list(graph.find(layers.Dense)), number)
    if node is None:
        return graph
    return graph.replace(
        node.path,
        lambda old: layers.Dense(old.units, name=f"{old.name}_new"),
        transfer=bool(number % 2),
    )


@edit
def wrap(graph, number):
    node = choose(list(graph.find((layers.Dense, layers.Conv1D))), number)
    if node is None:
        return graph
    return graph.wrap(node.path, layers.SpectralNormalization)


@edit
def append(graph, number):
    output = number % len(graph.outputs)
    return graph.append(layers.Activation("tanh"), output=output)


@edit
def one_more_output(graph, number):
    nodes = [n for n in graph.nodes if not n.is_input and is_number(n.outputs[0])]
    node = choose(nodes, number)
    if node is None:
        return graph
    return graph.outputs(*graph.outputs, rg.Ref(node.path, node.call))


@edit
def an_output_inside(graph, number):
    nodes = [n for n in called(graph) if "/" in n.path and len(n.outputs) == 1]
    node = choose([n for n in nodes if is_number(n.outputs[0])], number)
    return graph if node is None else graph.outputs(node, graph.outputs[0])


# --- edits that undo each other -------------------------------------------------------

ROUNDS = {}


def round_trip(function):
    """Registers edits after which a graph is as it was."""
    ROUNDS[function.__name__] = function
    return function


@round_trip
def insert_and_remove(graph, number):
    node = choose([n for n in graph.walk() if n.outputs], number)
    port = number % len(node.outputs)
    new = quiet_layer(node.outputs[port], number)
    around = node.path.rpartition("/")[0]
    edited = graph.insert(new, after=node.path, port=port)
    [name] = {n.path for n in edited.walk()} - {n.path for n in graph.walk()}
    assert name.rpartition("/")[0] == around
    return edited.remove(name)


@round_trip
def rename_and_back(graph, number):
    node = choose(list(graph.walk()), number)
    around = node.path.rpartition("/")[0]
    path = f"{around}/other_name" if around else "other_name"
    return graph.rename(node.path, "other_name").rename(path, node.name)


@round_trip
def set_and_back(graph, number):
    node = choose(list(graph.find(layers.Dense)), number)
    if node is None:
        return graph
    before = node.layer.activation
    edited = graph.set(node.path, activation="tanh")
    return edited.set(node.path, activation=before)


@round_trip
def clone(graph, number):
    nodes = [n for n in graph.walk() if isinstance(n.layer, layers.Layer)]
    node = choose([n for n in nodes if not n.is_input], number)
    return graph if node is None else graph.replace(node.path, rg.clone)


@round_trip
def choose_the_outputs(graph, number):
    before = getattr(graph.model, "output", None)
    if isinstance(before, dict):
        return graph.outputs(dict(zip(sorted(before), graph.outputs, strict=True)))
    if len(graph.outputs) == 1 and isinstance(before, list):
        return graph
    return graph.outputs(*graph.outputs)

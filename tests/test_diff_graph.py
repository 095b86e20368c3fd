"""One small edit to the graph of a copy, and `diff` names the place."""

import functools

import keras
import pytest
from editing import Edits, assert_found, flip_a_bit, put
from keras import layers

import regraft

edits = Edits()


class Scale(layers.Layer):
    def call(self, x, factor=1.0):
        return x * factor


@functools.cache
def graph():
    a = keras.Input((3, 4), name="a")
    b = keras.Input((3, 4), name="b")
    masked = layers.Masking(name="masking")(a)
    y = keras.Input((3, 4), name="y")
    inner = keras.Model(y, layers.Dense(4, name="dense")(y), name="inner")
    one, two = layers.Dense(4, name="one"), layers.Dense(4, name="two")
    one.partner = two
    h = layers.Subtract(name="minus")([one(inner(masked)), two(b)])
    h = Scale(name="scale")(h, factor=2.0)
    model = keras.Model([a, b], [one(h), h], name="graph")
    model.aside = layers.Dense(2, name="aside")
    model.aside.build((None, 4))
    model.also_aside = model.aside
    return model


def input_tensor(model):
    return model.get_layer("b").output


@edits(graph, "graph/inner/dense/bias")
def bit_of_a_weight_in_a_nested_model(model, _):
    flip_a_bit(model.get_layer("inner").layers[1].bias)


@edits(graph, "graph/aside/kernel")
def bit_of_a_weight_outside_of_the_graph(model, _):
    flip_a_bit(model.aside.kernel)


@edits(graph, "arguments.kwargs['factor']")
def keyword_argument_of_a_call(model, _):
    [node] = model.get_layer("scale")._inbound_nodes
    node.arguments.kwargs["factor"] = 3.0


@edits(graph, "arguments")
def order_of_arguments_of_a_call(model, _):
    [node] = model.get_layer("minus")._inbound_nodes
    node.arguments.args[0].reverse()


@edits(graph, "graph/b.name")
def name_of_an_input(model, _):
    model.get_layer("b").name = "c"


@edits(graph, "_input_tensor.name")
def name_of_an_input_tensor(model, _):
    input_tensor(model).name = "c"


@edits(graph, "graph/b.optional")
def input_optional(model, _):
    model.get_layer("b").optional = True


@edits(graph, "graph/b.sparse")
def input_sparse(model, _):
    model.get_layer("b").sparse = True


@edits(graph, "_input_tensor._sparse")
def input_tensor_sparse(model, _):
    input_tensor(model)._sparse = True


@edits(graph, "_input_tensor._dtype")
def input_dtype(model, _):
    input_tensor(model)._dtype = "float16"


@edits(graph, "_input_tensor._shape[0]")
def input_batch_size(model, _):
    input_tensor(model)._shape = (2, 3, 4)


@edits(graph, "graph/b._batch_shape[0]")
def batch_size_of_an_input(model, _):
    model.get_layer("b")._batch_shape = (2, 3, 4)


@edits(graph, "graph._outputs[0]")
def order_of_outputs(model, _):
    model._outputs.reverse()


@edits(graph, "graph._outputs_struct")
def structure_of_outputs(model, _):
    model._outputs_struct = dict(enumerate(model._outputs))


@edits(graph, "graph.output_names")
def name_of_an_output(model, _):
    model.output_names[0] = "other"


@edits(graph, "._keras_mask")
def symbolic_mask(model, _):
    model.get_layer("masking").output._keras_mask = None


@edits(graph, "graph/masking.mask_value")
def what_is_masked(model, _):
    model.get_layer("masking").mask_value = 1.0


@edits(graph, "also_aside")
def tie_broken(model, _):
    model.also_aside = regraft.clone(model.aside)


@edits(graph, "graph/one.partner")
def two_layers_tied(model, _):
    put(model.get_layer("one"), partner=model.get_layer("inner").layers[1])


@edits(graph, "graph/two/kernel")
def two_variables_tied(model, _):
    kernel, two = model.get_layer("one").kernel, model.get_layer("two")
    put(two, _kernel=kernel, _trainable_variables=[kernel, two.bias])


@edits(graph, "graph: number of layers")
def layer_removed(model, _):
    model._layers.remove(model.aside)
    del model.also_aside, model.aside


@edits(graph, "graph/one._inbound_nodes")
def calls_cleared(model, _):
    model.get_layer("one")._inbound_nodes.clear()


@edits(graph, "graph/two._inbound_nodes")
def calls_shared(model, original):
    calls = original.get_layer("two")._inbound_nodes
    put(model.get_layer("two"), _inbound_nodes=calls)


@edits(graph, "graph/b._outbound_nodes")
def takers_cleared(model, _):
    model.get_layer("b")._outbound_nodes.clear()


@edits(graph, "graph._nodes")
def numbers_of_calls_of_another(model, original):
    put(model, _nodes=original._nodes)


@edits(graph, "<made by>: another call")
def history_removed(model, _):
    del model.outputs[1]._keras_history


@edits(graph, "<made by>: another call")
def made_by_another_call(model, _):
    tensor = model.outputs[0]
    put(tensor, _keras_history=tensor._keras_history._replace(node_index=0))


# --- the tests ----------------------------------------------------------------


@pytest.mark.parametrize(("build", "change", "where"), edits)
def test_edit_is_found(build, change, where):
    assert_found(build, change, where)


def test_copy_has_no_differences():
    model = graph()
    assert [str(d) for d in regraft.diff(model, regraft.clone(model))] == []


def test_model_built_twice_has_no_differences():
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    one = graph.__wrapped__()
    keras.utils.set_random_seed(0)
    keras.backend.clear_session()
    two = graph.__wrapped__()
    assert [str(d) for d in regraft.diff(one, two)] == []

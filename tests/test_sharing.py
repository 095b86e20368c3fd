"""What two models share at different places, and memory that is shared by itself."""

import keras
import numpy as np
import pytest
from holding import Holder
from keras import layers

import regraft

X = np.ones((1, 2), "float32")


def holder(**attributes):
    layer = layers.Identity(name="holder")
    vars(layer).update(attributes)
    return layer


class Stack(keras.Model):
    def __init__(self):
        super().__init__(name="stack")
        self.blocks = [layers.Dense(2, kernel_initializer="zeros") for _ in range(2)]

    def call(self, x):
        return self.blocks[1](self.blocks[0](x))


@pytest.fixture
def stack():
    model = Stack()
    model(X)
    return model


def lay_into(variable, other):
    """Lets a variable lie in the memory of another."""
    if keras.backend.backend() == "torch":
        variable._value.data = other._value.data
    else:
        variable._value = other._value


def found(model, twin):
    return [str(d) for d in regraft.diff(model, twin, inputs=False)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1],
        lambda: {"a": 1},
        lambda: np.zeros(3),
        lambda: np.random.default_rng(1),
        lambda: (lambda state: lambda: state.append(1))([]),
    ],
    ids=["list", "dict", "array", "generator", "closure"],
)
def test_what_the_other_model_has_elsewhere_is_found(make):
    model = holder(a=make(), b=make())
    twin = regraft.clone(model)
    assert found(model, twin) == []
    vars(twin)["a"] = model.b
    assert any("holder.b of the other" in text for text in found(model, twin))


def test_view_of_an_array_that_the_other_model_has_elsewhere_is_found():
    model = holder(a=np.zeros(3), b=np.zeros(3))
    twin = regraft.clone(model)
    vars(twin)["a"] = model.b[:]
    (text,) = found(model, twin)
    assert text.startswith("holder.a: shared buffer: that of holder.b of the other")


def test_layer_that_the_other_model_has_elsewhere_is_found(stack):
    twin = regraft.clone(stack)
    assert found(stack, twin) == []
    for items in (twin.blocks, twin._layers):
        list.__setitem__(items, 0, stack.blocks[1])
    assert any("shared by both models" in text for text in found(stack, twin))


def test_memory_of_another_variable_of_the_other_model_is_found(stack):
    twin = regraft.clone(stack)
    lay_into(twin.blocks[0].kernel, stack.blocks[1].kernel)
    assert any("shared buffer" in text for text in found(stack, twin))


def test_two_variables_in_one_memory_are_found(stack):
    twin = regraft.clone(stack)
    lay_into(twin.blocks[0].kernel, twin.blocks[1].kernel)
    texts = found(stack, twin)
    if keras.backend.backend() == "jax":  # Arrays never change: nobody can tell.
        assert texts == []
    else:
        assert any("tie: it lies in the memory of stack/dense" in x for x in texts)


def test_two_arrays_in_one_memory_are_found():
    model = holder(a=np.zeros(3), b=np.zeros(3))
    twin = regraft.clone(model)
    vars(twin)["a"] = twin.b[1:]
    assert any(
        "holder.b: tie: it lies in the memory of" in x for x in found(model, twin)
    )


def test_function_that_reads_what_another_assigns_is_shared():
    def counter():
        number = 0

        def get():
            return number

        def count():
            nonlocal number
            number += 1

        return get, count

    get, count = counter()
    model = holder(get=get, count=count)
    twin = regraft.clone(model)
    assert found(model, twin) == []
    vars(twin)["get"] = model.get
    assert any("holder.get: shared by both models" in x for x in found(model, twin))


def test_attributes_of_a_shared_tuple_are_shared():
    class Row(tuple):
        pass

    row = Row((1,))
    row.notes = []
    (text,) = found(holder(row=row), holder(row=row))
    assert text == "holder.row: shared by both models: [] | []"


def test_outputs_that_are_no_tensors_are_compared():
    class Output:
        def __init__(self, value):
            self.value = value

    class Wrapped(layers.Dense):
        def call(self, x):
            return Output(super().call(x))

    model = Wrapped(2, name="dense")
    model.build((None, 2))
    twin = regraft.clone(model)
    assert regraft.verify(model, twin, X).same
    twin.bias.assign([1.0, 2.0])
    paths = [d.path for d in regraft.diff(model, twin, X)]
    assert "dense(inputs, inference).output 0" in paths


def test_inputs_that_a_model_writes_to_are_left_alone():
    class Counts(layers.Layer):
        def call(self, x):
            x["calls"].append(1)
            return x["values"] * len(x["calls"])

    model = Counts(name="counts")
    model._convert_input_args = False
    model._allow_non_tensor_positional_args = True
    model.built = True
    inputs = {"values": X, "calls": []}
    assert regraft.verify(model, regraft.clone(model), inputs).same
    assert inputs["calls"] == []


@pytest.mark.parametrize(
    "name",
    ["_tracker", "_losses", "_loss_ids", "_inbound_nodes", "_outbound_nodes"],
)
def test_what_says_nothing_of_a_layer_may_not_be_shared_either(name):
    layer = layers.Dense(2, name="dense")
    twin = regraft.clone(layer)
    vars(twin)[name] = vars(layer)[name]
    found = [(d.path, d.why) for d in regraft.diff(layer, twin, inputs=False)]
    assert (f"dense.{name}", "shared by both models") in found


def test_a_function_that_trains_the_other_model():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)], name="net")
    model.compile("sgd", "mse")
    model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    twin = regraft.clone(model)
    assert regraft.verify(model, twin).same
    twin.train_function = model.train_function
    found = [d.path for d in regraft.diff(model, twin, inputs=False)]
    assert found == ["net.train_function"]


def test_memory_of_one_library_in_that_of_another():
    torch = pytest.importorskip("torch")
    layer = Holder([torch.zeros(3), np.zeros(3, "float32")])
    for place, other in ((1, layer.value[0].numpy()), (0, layer.value[0][:])):
        twin = regraft.clone(layer)
        twin.value[place] = other
        reasons = [d.why for d in regraft.diff(layer, twin)]
        assert any(why.startswith("shared buffer") for why in reasons)


def test_views_of_other_places_in_the_same_memory():
    left, right = np.zeros(8), np.zeros(8)
    one, other = Holder([left, left[2:4]]), Holder([right, right[4:6]])
    (found,) = regraft.diff(one, other)
    assert found.path.endswith("value[1]")
    assert "lies elsewhere in the memory of" in found.why
    assert str(found).endswith("(16, (8,)) | (32, (8,))")

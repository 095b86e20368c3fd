"""Objects of TensorFlow, JAX and torch on a layer: what their copies are."""

import gc
import io
import warnings

import keras
import numpy as np
import pytest
from keras import layers

import regraft

BACKEND = keras.backend.backend()
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow's")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="JAX's")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="torch's")
if BACKEND == "tensorflow":
    import tensorflow as tf
elif BACKEND == "jax":
    import jax
else:
    import torch

X = np.ones((1, 2), "float32")


class Net(layers.Layer):
    """A layer with another one, and an attribute past Keras's tracking."""

    def __init__(self, value=None):
        super().__init__(name="net")
        self.dense = layers.Dense(2, name="dense")
        object.__setattr__(self, "value", value)

    def call(self, x):
        return self.dense(x)


def net(value=None):
    layer = Net(value)
    layer(X)
    return layer


def copied(value):
    return regraft.clone(net(value)).value


def refused(layer):
    with pytest.raises(regraft.CopyError) as caught:
        regraft.clone(layer)
    text = str(caught.value)
    assert "net.value" in text
    assert "what to do" in text
    return text


def differences(value, new):
    return list(regraft.diff(Net(value), Net(new)))


# --- TensorFlow: variables and tensors ----------------------------------------


@on_tensorflow
def test_the_constraint_of_a_variable_follows_the_copy():
    layer = net()
    value = tf.Variable([1.0, 2.0], constraint=lambda x: x + layer.dense.bias)
    object.__setattr__(layer, "value", value)
    new = regraft.clone(layer)
    assert not list(regraft.diff(layer, new))
    new.dense.bias.assign([5.0, 5.0])
    assert new.value.constraint(new.value).numpy().tolist() == [6.0, 7.0]
    assert value.constraint(value).numpy().tolist() == [1.0, 2.0]


@on_tensorflow
def test_what_was_set_on_a_variable_is_copied():
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    class Named(ResourceVariable):
        pass

    layer = net()
    values = [tf.Variable(1.0), Named(2.0)]
    for value in values:
        value.tags, value.layer = ["x"], layer.dense
    object.__setattr__(layer, "value", values)
    copy = regraft.clone(layer)
    assert not list(regraft.diff(layer, copy))
    for value, new in zip(values, copy.value, strict=True):
        assert type(new) is type(value)
        assert new.tags == ["x"]
        assert new.tags is not value.tags
        assert new.layer is copy.dense
        assert float(new.assign_add(1.0)) == float(value) + 1
    copy.value[0].tags.append("y")
    assert any("tags" in found.path for found in regraft.diff(layer, copy))


@on_tensorflow
def test_a_variable_that_was_made_in_a_traced_function():
    held = []

    @tf.function
    def make():
        if not held:
            held.append(tf.Variable([1.0, 2.0]))
        return held[0] + 1

    make()
    layer = net(held[0])
    new = regraft.clone(layer)
    assert type(held[0]).__name__ == "UnliftedInitializerVariable"
    assert not list(regraft.diff(layer, new))


@on_tensorflow
def test_a_variable_under_a_strategy_keeps_what_was_set_on_it():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layer = net()
        value = tf.Variable(1.0, constraint=lambda x: x + layer.dense.bias)
    value.tags = ["x"]
    object.__setattr__(layer, "value", value)
    for new in (regraft.clone(layer), regraft.clone(layer, device="cpu:0")):
        assert new.value.tags == ["x"]
        assert new.value.tags is not value.tags
        (cell,) = new.value.constraint.__closure__
        assert cell.cell_contents is new


@on_tensorflow
@pytest.mark.parametrize("content", [1.0, "word"])
def test_a_tensor_keeps_its_mask(content):
    value = tf.constant([content])
    value._keras_mask = tf.constant([True])
    new = copied(value)
    assert new is not value
    assert new._keras_mask.numpy().tolist() == [True]
    assert new._keras_mask is not value._keras_mask
    assert copied(tf.constant("word")).numpy() == b"word"


@on_tensorflow
def test_a_tensor_array_that_was_written_to():
    array = tf.TensorArray(tf.float32, 2, clear_after_read=False).write(0, 1.0)
    layer = net(array)
    copy = regraft.clone(layer)
    assert not list(regraft.diff(layer, copy))
    new = copy.value.write(1, 5.0)
    assert new.stack().numpy().tolist() == [1.0, 5.0]
    assert array.write(1, 2.0).stack().numpy().tolist() == [1.0, 2.0]
    assert list(regraft.diff(layer, copy))


# --- TensorFlow: functions ------------------------------------------------------


@on_tensorflow
def test_a_method_that_was_traced_is_no_reason_to_warn():
    class Traced(Net):
        @tf.function
        def step(self, x):
            return self.dense(x)

    layer = Traced()
    layer.step(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = regraft.clone(layer)
    new.dense.kernel.assign(np.zeros((2, 2)))
    assert not new.step(X).numpy().any()
    assert layer.step(X).numpy().any()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Where a SavedModel lies that multiplies by a variable."""

    class Module(tf.Module):
        def __init__(self):
            self.rate = tf.Variable(3.0)

        @tf.function(input_signature=[tf.TensorSpec((), tf.float32)])
        def scale(self, x):
            return x * self.rate

    folder, module = str(tmp_path_factory.mktemp("saved")), Module()
    tf.saved_model.save(module, folder, signatures={"scale": module.scale})
    return folder


@on_tensorflow
@pytest.mark.parametrize("part", ["scale", "signature"])
def test_a_function_of_a_file_without_the_file_is_refused(saved, part):
    loaded = tf.saved_model.load(saved)
    signature = loaded.signatures["scale"]
    text = refused(net(loaded.scale if part == "scale" else signature))
    assert "A function of a SavedModel was met before" in text
    assert "keep the SavedModel itself on the layer" in text


@on_tensorflow
def test_a_function_of_a_file_comes_with_the_file(saved):
    loaded = tf.saved_model.load(saved)
    new = copied([loaded, loaded.scale])
    new[0].rate.assign(5.0)
    assert float(new[1](tf.constant(2.0))) == 10.0
    assert float(loaded.scale(tf.constant(2.0))) == 6.0


@on_tensorflow
def test_a_file_that_cannot_be_saved_again_is_refused(saved):
    loaded = tf.saved_model.load(saved)
    foreign = tf.Variable(1.0)
    loaded.other = tf.function(lambda x: x * foreign)
    loaded.other.get_concrete_function(tf.TensorSpec((), tf.float32))
    assert "cannot be saved again" in refused(net(loaded))


# --- TensorFlow: datasets -----------------------------------------------------


def dataset_of(layer, *, by):
    data = tf.data.Dataset.from_tensors(X)

    def call(x):
        return layer.dense(x)

    def in_python(x):
        return tf.py_function(call, [x], tf.float32)

    def rows():
        yield call(X)[0]

    if by == "generator":
        row = tf.TensorSpec((2,), tf.float32)
        return tf.data.Dataset.from_generator(rows, output_signature=row)
    if by == "inner dataset":
        inner = data.map(call)
        return tf.data.Dataset.range(2).flat_map(lambda _: inner)
    return data.map(call if by == "graph" else in_python).batch(2)


@on_tensorflow
@pytest.mark.parametrize("by", ["graph", "py_function", "generator", "inner dataset"])
def test_a_dataset_that_computes_with_the_model_is_refused(by):
    layer = net()
    object.__setattr__(layer, "value", dataset_of(layer, by=by))
    text = refused(layer)
    assert "A dataset computes with a part of this model" in text
    assert "keep=(tf.data.Dataset,)" in text
    kept = regraft.clone(layer, keep=(tf.data.Dataset,))
    assert kept.value is layer.value


@on_tensorflow
def test_a_dataset_is_shared_along_with_the_weights_that_it_uses():
    layer = net()
    object.__setattr__(layer, "value", dataset_of(layer, by="graph"))
    assert regraft.clone(layer, weights="share").value is layer.value


@on_tensorflow
def test_a_dataset_that_reads_a_table_of_the_model_is_refused():
    layer = net()
    layer.table = table = tf.lookup.experimental.MutableHashTable("int64", "int64", -1)
    data = tf.data.Dataset.range(3).map(table.lookup)
    object.__setattr__(layer, "value", data)
    assert "MutableHashTable" in refused(layer)


@on_tensorflow
def test_other_datasets_are_shared():
    foreign = keras.layers.Dense(2)
    foreign(X)
    for data in (
        tf.data.Dataset.range(3).batch(2),
        tf.data.Dataset.from_generator(lambda: iter([1]), output_types="int32"),
        tf.data.Dataset.from_tensors(X).map(foreign),
    ):
        layer = net(data)
        new = regraft.clone(layer)
        assert new.value is data
        assert not list(regraft.diff(layer, new))


# --- TensorFlow: resources ----------------------------------------------------


@on_tensorflow
@pytest.mark.parametrize("is_anonymous", [True, False])
def test_a_table_keeps_its_class_and_its_attributes(is_anonymous):
    class Words(tf.lookup.experimental.MutableHashTable):
        pass

    table = Words("string", "int64", -1, experimental_is_anonymous=is_anonymous)
    table.insert(tf.constant(["a"]), tf.constant([3], "int64"))
    layer = net(table)
    table.tags, table.owner = ["x"], layer
    copy = regraft.clone(layer)
    new = copy.value
    assert type(new) is Words
    assert new.tags == ["x"]
    assert new.tags is not table.tags
    assert new.owner is copy
    assert not list(regraft.diff(layer, copy))
    new.insert(tf.constant(["b"]), tf.constant([4], "int64"))
    assert int(table.size()) == 1
    assert new.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [3, 4, -1]
    del new.tags
    assert list(regraft.diff(layer, copy))


@pytest.fixture(scope="module")
def number_class():
    """A resource that is made of an attribute, and that can be changed."""

    class Number(tf.saved_model.experimental.TrackableResource):
        def __init__(self, start, name):
            super().__init__()
            self.start, self.resource_name = start, name
            self._initialize()

        def _create_resource(self):
            return tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=(), shared_name=self.resource_name
            )

        def _initialize(self):
            tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=self.start)

        def _destroy_resource(self):
            tf.raw_ops.DestroyResourceOp(resource=self.resource_handle)

        def read(self):
            handle = self.resource_handle
            return float(tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32))

    return Number


@on_tensorflow
def test_a_resource_that_is_not_in_checkpoints_is_made_again(number_class):
    from tensorflow.python.eager import context

    number = number_class(3.0, context.anonymous_name())
    number.tags = ["x"]
    new = copied(number)
    assert type(new) is number_class
    assert new.tags == ["x"]
    assert new.tags is not number.tags
    assert not differences(number, new)
    new.start = 5.0
    new._initialize()
    assert (number.read(), new.read()) == (3.0, 5.0)
    del new
    gc.collect()
    assert number.read() == 3.0


@on_tensorflow
def test_a_resource_that_cannot_be_made_twice_is_refused(number_class):
    number = number_class(3.0, "the_only_one")
    text = refused(net(number))
    assert "making it again gave the very same resource" in text
    assert "register_copier(" in text
    gc.collect()
    assert number.read() == 3.0


@on_tensorflow
def test_a_resource_whose_making_fails_is_refused(number_class):
    number = number_class(3.0, "a_number")
    number.resource_name = 7
    assert "making it again failed" in refused(net(number))


@on_tensorflow
def test_a_resource_with_a_state_of_its_own_is_refused():
    table = tf.lookup.experimental.DenseHashTable("int64", "int64", -1, -2, -3)
    assert "its `__del__` would be called for the copy" in refused(net(table))


@on_tensorflow
def test_a_sentencepiece_tokenizer_of_keras_hub():
    pytest.importorskip("tensorflow_text")
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    hub = pytest.importorskip("keras_hub")
    proto, special = io.BytesIO(), ["pad", "bos", "eos", "unk"]
    trainer.train(
        sentence_iterator=iter(["the quick brown fox", "the earth is round"]),
        model_writer=proto,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
        user_defined_symbols=["<start_of_turn>", "<end_of_turn>"],
        **{f"{name}_id": i for i, name in enumerate(special)},
        **{f"{name}_piece": f"<{name}>" for name in special},
    )
    tokenizer = hub.models.GemmaTokenizer(proto=proto.getvalue())
    new = regraft.clone(tokenizer)
    wanted = np.asarray(tokenizer("the quick fox")).tolist()
    resources = [x._sentence_piece._model_resource for x in (tokenizer, new)]
    assert resources[0] is not resources[1]
    del tokenizer, resources
    gc.collect()
    assert np.asarray(new("the quick fox")).tolist() == wanted


# --- JAX ------------------------------------------------------------------------


@on_jax
def test_a_primitive_stays_the_one_that_rules_are_registered_for():
    new = copied(jax.lax.add_p)
    assert new is jax.lax.add_p
    assert float(new.bind(1.0, 2.0)) == 3.0


@on_jax
def test_what_was_set_on_a_jitted_function_is_copied():
    layer = net()
    function = jax.jit(lambda x: layer.dense(x))
    function.tags, function.layer = ["x"], layer.dense
    object.__setattr__(layer, "value", function)
    copy = regraft.clone(layer)
    assert copy.value.tags == ["x"]
    assert copy.value.tags is not function.tags
    assert copy.value.layer is copy.dense


@on_jax
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_jitted_function_goes_on_running_on_its_device():
    layer, device = net(), jax.devices()[1]
    function = jax.jit(lambda x: x + len(layer.weights), device=device)
    object.__setattr__(layer, "value", function)
    assert regraft.clone(layer).value(1.0).devices() == {device}


@on_jax
def test_a_module_of_flax_is_copied_part_by_part():
    nnx = pytest.importorskip("flax.nnx")
    layer = net()
    module = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    module.inner = layer.dense
    parts = [module, nnx.Sequential(module), nnx.Dropout(0.5, rngs=nnx.Rngs(1))]
    object.__setattr__(layer, "value", parts)
    copy = regraft.clone(layer)
    new, around, dropout = copy.value
    assert regraft.verify(layer, copy).same
    assert around.layers[0] is new
    assert new.inner is copy.dense
    assert (dropout(X) == parts[2](X)).all()
    new.kernel.value = new.kernel.value * 0
    assert not around(X).any()
    assert module(X).any()
    assert not nnx.jit(lambda module, x: module(x))(new, X).any()
    new.added = nnx.Param(1.0)
    assert list(regraft.diff(layer, copy))


# --- torch ----------------------------------------------------------------------


@on_torch
def test_a_module_keeps_its_slots():
    class Slotted(torch.nn.Module):
        __slots__ = ("empty", "layer", "tags")

        def __init__(self, layer):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)
            self.tags, self.layer = ["x"], layer

    layer = net()
    module = Slotted(layer.dense)
    object.__setattr__(layer, "value", module)
    copy = regraft.clone(layer)
    new = copy.value
    assert not list(regraft.diff(layer, copy))
    assert new.tags == ["x"]
    assert new.tags is not module.tags
    assert new.layer is copy.dense
    assert not hasattr(new, "empty")
    assert new.linear.weight is not module.linear.weight


@on_torch
@pytest.mark.parametrize("kind", ["LazyLinear", "LazyBatchNorm1d"])
def test_a_module_without_shapes_is_copied(kind):
    args = [2] if kind == "LazyLinear" else []
    module = getattr(torch.nn, kind)(*args, dtype=torch.float64)
    module.weight.tags = ["x"]
    layer = net(module)
    copy = regraft.clone(layer)
    new = copy.value
    assert not list(regraft.diff(layer, copy))
    assert new.weight.tags == ["x"]
    assert new.weight.tags is not module.weight.tags
    new(torch.ones(3, 4, dtype=torch.float64))
    assert type(new.weight) is torch.nn.Parameter
    assert new.weight.dtype == torch.float64
    assert type(module.weight) is torch.nn.UninitializedParameter
    assert list(regraft.diff(layer, copy))


@on_torch
def test_a_tensor_without_values_is_compared():
    layer = net(torch.empty(2, device="meta"))
    copy = regraft.clone(layer)
    assert copy.value.is_meta
    assert regraft.verify(layer, copy).same
    object.__setattr__(copy, "value", torch.empty(3, device="meta"))
    assert not regraft.verify(layer, copy).same


@on_torch
@pytest.mark.parametrize("was_called", [True, False])
def test_a_module_that_was_compiled_in_place_stays_compiled(was_called):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x * self.weight

    module = Scale()
    module.compile(backend=backend)
    if was_called:
        module(torch.ones(1, 2))
    layer = net(module)
    copy = regraft.clone(layer)
    assert not list(regraft.diff(layer, copy))
    compiled.clear()
    with torch.no_grad():
        copy.value.weight.zero_()
    torch._dynamo.reset()
    assert not copy.value(torch.ones(1, 2)).any()
    assert len(compiled) == 1
    assert module(torch.ones(1, 2)).all()


@on_torch
def test_a_parametrized_module_keeps_its_hooks_whole():
    linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    model = layers.TorchModuleWrapper(linear)
    twin = regraft.clone(model)
    assert regraft.verify(model, twin).same
    with torch.no_grad():
        twin.module.parametrizations.weight.original0.zero_()
        assert not twin.module.weight.any()
    assert model.module.weight.any()


@on_torch
def test_the_generator_of_everybody_is_nobodys():
    layer = layers.Dense(2)
    layer.generator = torch.default_generator
    assert regraft.clone(layer).generator is torch.default_generator


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX's")
def test_a_compiled_method_is_that_of_the_copy():
    import jax

    class Doubling(layers.Layer):
        def __init__(self):
            super().__init__()
            self.run = jax.jit(self.double)

        def double(self, x):
            return 2 * x

    layer = Doubling()
    twin = regraft.clone(layer)
    assert twin.run.__wrapped__.__self__ is twin
    assert regraft.verify(layer, twin).same

"""`clone_model`: what `keras.models.clone_model` does, and what it should have done."""

from collections import OrderedDict

import keras
import numpy as np
import pytest
from keras import layers, ops

from regraft import UsageError, clone_model

BACKEND = keras.backend.backend()
X = np.random.default_rng(0).random((2, 4), "float32")
STEPS = np.array([[[1, 2], [3, 4], [0, 0]], [[5, 6], [0, 0], [0, 0]]], "float32")
TOKENS = np.array([[1, 2, 0], [3, 0, 0]], "int32")


def numbers(x):
    return [np.asarray(ops.convert_to_numpy(t)) for t in keras.tree.flatten(x)]


def assert_same_network(model, new, x):
    """With the same weights, both compute the same."""
    new.set_weights(model.get_weights())
    for ours, theirs in zip(numbers(new(x)), numbers(model(x)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def assert_independent(model, new):
    mine = {id(v) for v in model.variables}
    assert not any(id(v) in mine for v in new.variables)
    mine = {id(layer) for layer in model._flatten_layers()}
    assert not any(id(layer) in mine for layer in new._flatten_layers())


def again(layer):
    return type(layer).from_config(layer.get_config())


def call(layer, *args, **kwargs):
    return layer(*args, **kwargs)


def mlp(name="mlp"):
    x = keras.Input((4,), name="x")
    y = layers.Dense(3, activation="relu", name="hidden")(x)
    return keras.Model(x, layers.Dense(2, name="head")(y), name=name)


def shared():
    x = keras.Input((4,), name="x")
    twice = layers.Dense(4, name="twice")
    return keras.Model(x, layers.Dense(2, name="head")(twice(twice(x)) + x))


def two_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    y = layers.Subtract(name="minus")([layers.Dense(4, name="dense")(a), b])
    return keras.Model([a, b], y)


class Scale(layers.Layer):
    """A layer without a configuration."""

    def __init__(self, factor, function):
        super().__init__()
        self.factor, self.function = factor, function

    def build(self, shape):
        self.gain = self.add_weight(shape=(shape[-1],), name="gain")

    def call(self, x):
        return self.function(x) * self.gain * self.factor


class Block(layers.Layer):
    """A layer made of layers, with a weight of its own."""

    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = layers.Dense(units, name="inner")

    def build(self, shape):
        self.inner.build(shape)
        self.gain = self.add_weight(shape=(self.units,), name="gain")

    def call(self, x):
        return self.inner(x) * self.gain

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class Tagged(keras.Model):
    """A Functional subclass with a constructor and attributes of its own."""

    def __init__(self, units, tag):
        x = keras.Input((4,), name="x")
        y = layers.Dense(units, name="features")(x)
        super().__init__(x, layers.Dense(2, name="head")(y))
        self.tag = tag
        self.features = y
        self.head = self.get_layer("head")
        self.spare = layers.Dense(3, name="spare")
        self.spare.build((None, 4))
        self.extractor = keras.Model(x, y, name="extractor")


# --- without further arguments ------------------------------------------------


def sequential():
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])


@pytest.mark.parametrize("build", [mlp, shared, sequential])
def test_same_network_with_new_weights(build):
    model = build()
    new = clone_model(model)
    assert type(new) is type(model)
    assert new.name == model.name
    assert [x.name for x in new.layers] == [x.name for x in model.layers]
    for ours, theirs in zip(new.weights, model.weights, strict=True):
        same = np.array_equal(*map(ops.convert_to_numpy, (ours, theirs)))
        assert same == (ours.name == "bias")
    assert_independent(model, new)
    assert_same_network(model, new, X)


def test_unbuilt_sequential():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    new = clone_model(model)
    assert not new.built
    assert new(X).shape == (2, 2)
    assert not model.built


def test_subclassed_model_needs_no_config():
    class Net(keras.Model):
        def __init__(self, units=3):
            super().__init__()
            self.dense = layers.Dense(units)

        def call(self, x):
            return self.dense(x)

    model = Net(5)
    model(X)
    new = clone_model(model)
    assert type(new) is Net
    assert new(X).shape == (2, 5)
    assert_same_network(model, new, X)


def test_two_output_lambda_of_keras_issue_12202():
    x = keras.Input((4,))
    pair = layers.Lambda(lambda t: [t, t])(x)
    model = keras.Model(x, layers.Add()(pair))
    for new in (clone_model(model), clone_model(model, call_function=call)):
        assert_same_network(model, new, X)


def test_optional_input_and_frozen_model_stay_so():
    x = keras.Input((4,), optional=True, name="maybe")
    model = keras.Model(x, layers.Lambda(lambda t: ops.ones((1, 1)))(x))
    model.trainable = False
    for new in (clone_model(model), clone_model(model, call_function=call)):
        assert new.get_layer("maybe").optional
        assert new(None).shape == (1, 1)
        assert not new.trainable


@pytest.mark.skipif(BACKEND == "torch", reason="torch has no sparse inputs in Keras")
def test_sparse_input_stays_sparse():
    x = keras.Input((4,), sparse=True)
    model = keras.Model(x, layers.Dense(2)(x))
    for new in (clone_model(model), clone_model(model, clone_function=again)):
        assert new.inputs[0].sparse


@pytest.mark.parametrize("model", [layers.Dense(2), "mlp", keras.Model, None])
def test_only_models(model):
    with pytest.raises(ValueError, match="`clone_model` clones models") as caught:
        clone_model(model)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("argument", ["clone_function", "call_function"])
def test_functions_must_be_callable(argument):
    with pytest.raises(
        UsageError, match=f"Expected `{argument}` argument to be a call"
    ):
        clone_model(mlp(), **{argument: "again"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"clone_function": again},
        {"call_function": call},
        {"input_tensors": keras.KerasTensor((None, 4))},
    ],
)
def test_a_subclassed_model_has_no_graph_to_replay(arguments):
    class Net(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(
        UsageError, match="only supported for Functional and Sequential"
    ):
        clone_model(Net(), **arguments)


# --- clone_function -----------------------------------------------------------


def test_each_layer_is_asked_for_once_and_nothing_else():
    asked = []

    def record(layer):
        asked.append(layer.name)
        return again(layer)

    model = shared()
    new = clone_model(model, clone_function=record)
    assert asked == ["twice", "head"]
    assert len(new.get_layer("twice")._inbound_nodes) == 2
    assert [op.name for op in new.operations] == [op.name for op in model.operations]
    assert_independent(model, new)
    assert_same_network(model, new, X)


def test_calls_of_a_shared_layer_keep_their_order():
    x = keras.Input((4,))
    twice = layers.Dense(4, name="twice")
    late = twice(x)  # Called first, and needed last.
    y = layers.Dense(4)(layers.Dense(4)(twice(layers.Dense(4)(x))))
    model = keras.Model(x, [y, late])
    for arguments in ({"clone_function": again}, {"call_function": call}):
        new = clone_model(model, **arguments)
        index = new.outputs[1]._keras_history.node_index
        assert index == model.outputs[1]._keras_history.node_index
        assert_same_network(model, new, X)


def test_layers_can_be_replaced_and_kept():
    def more(layer):
        return layers.Dense(7, name="wide") if layer.name == "hidden" else layer

    model = sequential()
    kept = clone_model(model, clone_function=lambda layer: layer)
    assert type(kept) is keras.Sequential
    assert kept.layers == model.layers
    model = mlp()
    kept = clone_model(model, clone_function=lambda layer: layer)
    assert kept.get_layer("head") is model.get_layer("head")
    assert kept.inputs[0] is not model.inputs[0]
    with pytest.raises(ValueError, match="incompatible") as caught:
        clone_model(model, clone_function=more)
    assert "called mlp/head" in caught.value.__notes__[0]


@pytest.mark.parametrize("build", [mlp, shared, two_inputs, sequential])
@pytest.mark.parametrize("argument", ["clone_function", "call_function"])
def test_the_original_is_not_touched(build, argument):
    model = build()
    config = model.get_config()
    nodes = [(len(x._inbound_nodes), len(x._outbound_nodes)) for x in model.layers]
    values = model.get_weights()
    clone_model(model, **{argument: again if argument == "clone_function" else call})
    assert model.get_config() == config
    after = [(len(x._inbound_nodes), len(x._outbound_nodes)) for x in model.layers]
    assert after == nodes
    for a, b in zip(model.get_weights(), values, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_clone_function_must_return_a_layer():
    with pytest.raises(UsageError, match="did not return a layer") as caught:
        clone_model(mlp(), clone_function=lambda layer: layer.get_config())
    assert "where: mlp/hidden" in str(caught.value)
    inner = mlp("inner")
    outer = keras.Sequential([keras.Input((4,)), inner], name="outer")
    with pytest.raises(UsageError, match="where: outer/inner/hidden"):
        clone_model(outer, clone_function=lambda layer: None, recursive=True)


def test_another_number_of_outputs_is_an_error():
    x = keras.Input((3, 2))
    y, *_ = layers.LSTM(2, return_state=True, name="lstm")(x)
    model = keras.Model(x, y, name="reader")
    with pytest.raises(UsageError, match="returned other outputs") as caught:
        clone_model(model, clone_function=lambda layer: layers.LSTM(2))
    assert "where: reader/lstm" in str(caught.value)
    assert "3 symbolic tensor(s)" in str(caught.value)


class Keyed(layers.Layer):
    """Returns its input, times 1, 2 and so on, in a dict."""

    def __init__(self, keys, kind=dict, **kwargs):
        super().__init__(**kwargs)
        self.keys, self.kind = keys, kind

    def call(self, x):
        return self.kind((key, x * i) for i, key in enumerate(self.keys, 1))


def keyed():
    x = keras.Input((4,))
    outputs = Keyed("ba", name="keyed")(x)
    return keras.Model(x, outputs["b"] - 3 * outputs["a"], name="model")


def test_outputs_are_matched_by_key():
    def replace(layer):
        return Keyed("ba", OrderedDict) if layer.name == "keyed" else again(layer)

    new = clone_model(keyed(), clone_function=replace)
    np.testing.assert_allclose(numbers(new(X))[0], X - 6 * X, rtol=1e-5)


def test_other_keys_of_outputs_are_an_error():
    def replace(layer):
        return Keyed("cb", name="other") if layer.name == "keyed" else again(layer)

    with pytest.raises(UsageError, match="returned outputs with other keys") as caught:
        clone_model(keyed(), clone_function=replace)
    text = str(caught.value)
    assert "where: model/keyed" in text
    assert "expected: outputs a, b" in text
    assert "received: outputs b, c from <Keyed name=other" in text


def test_a_renamed_output_is_renamed_in_the_losses():
    model = mlp()
    model.compile("sgd", loss={"head": "mse"}, metrics={"head": ["mae"]})

    def renamed(layer):
        return type(layer).from_config(
            {**layer.get_config(), "name": f"{layer.name}_2"}
        )

    new = clone_model(model, clone_function=renamed)
    assert new.output_names == ["head_2"]
    assert np.isfinite(new.train_on_batch(X, np.ones((2, 2)))[0])


# --- recursive ----------------------------------------------------------------


def nested():
    deep = layers.Dense(3, name="deep")
    x = keras.Input((4,))
    inner = keras.Model(x, deep(x) + 1.0, name="inner")
    y = keras.Input((4,))
    stack = keras.Sequential([keras.Input((4,)), deep], name="stack")
    outputs = layers.Add(name="add")([inner(y), stack(y), deep(y)])
    return keras.Model(y, outputs, name="outer")


def test_nested_models_are_asked_for_whole_unless_recursive():
    model = nested()
    asked = []

    def record(layer):
        asked.append(layer.name)
        return layer

    clone_model(model, clone_function=record)
    assert sorted(asked) == ["add", "deep", "inner", "stack"]
    asked.clear()
    clone_model(model, clone_function=record, recursive=True)
    assert sorted(asked) == ["add", "deep"]


@pytest.mark.parametrize(
    "arguments", [{"clone_function": again}, {"call_function": call}, {}]
)
def test_a_layer_shared_by_all_levels_stays_shared(arguments):
    model = nested()
    new = clone_model(model, recursive=True, **arguments)
    deep = new.get_layer("deep")
    assert new.get_layer("inner").get_layer("deep") is deep
    assert new.get_layer("stack").layers == [deep]
    assert len(new.weights) == 2
    assert_independent(model, new)
    assert_same_network(model, new, X)


def test_a_call_function_reaches_nested_models():
    def drop(layer, *args, **kwargs):
        out = layer(*args, **kwargs)
        return layers.Dropout(0.5)(out) if layer.name == "deep" else out

    new = clone_model(nested(), call_function=drop, recursive=True)
    for model in (new.get_layer("inner"), new.get_layer("stack")):
        assert any(isinstance(layer, layers.Dropout) for layer in model.layers)
    assert isinstance(new.get_layer("stack"), keras.Sequential)
    new = clone_model(nested(), call_function=drop)
    assert len(new.get_layer("stack").layers) == 1


def test_unbuilt_nested_sequentials():
    model = keras.Sequential([keras.Sequential([layers.Dense(3, name="a")]), Block()])
    asked = []

    def record(layer):
        asked.append(layer.name)
        return again(layer)

    new = clone_model(model, clone_function=record, recursive=True)
    assert asked[0] == "a"
    assert not new.built
    assert_same_network_after_build(model, new)


def assert_same_network_after_build(model, new):
    model(X), new(X)
    assert_independent(model, new)
    assert_same_network(model, new, X)


def inside(layer):
    x = keras.Input((3, 2))
    return keras.Model(x, layer(x, x) if "attention" in layer.name else layer(x))


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (lambda: layers.TimeDistributed(layers.Dense(4)), layers.Dense),
        (lambda: layers.TimeDistributed(mlp_of(2)), layers.Dense),
        (lambda: layers.Bidirectional(layers.LSTM(2)), layers.LSTM),
        (lambda: layers.RNN([layers.GRUCell(2), layers.GRUCell(3)]), layers.GRUCell),
        (lambda: layers.MultiHeadAttention(2, 3), layers.EinsumDense),
        (lambda: Block(), layers.Dense),
    ],
)
def test_layers_inside_layers(layer, kind):
    model = inside(layer())
    found = []

    def flagged(layer):
        new = again(layer)
        new.flag = layer.name
        found.append(layer)
        return new

    new = clone_model(model, clone_function=flagged, recursive=True)
    kinds = [x for x in new._flatten_layers() if isinstance(x, kind)]
    assert kinds
    assert all(x.flag == x.name for x in kinds)
    assert len(kinds) == len([x for x in model._flatten_layers() if type(x) is kind])
    assert not any(hasattr(x, "flag") for x in model._flatten_layers())
    assert len({id(x) for x in found}) == len(found)
    assert model.layers[-1] in found
    assert new.layers[-1].flag == model.layers[-1].name
    assert len(new.weights) == len(model.weights)
    assert_independent(model, new)
    assert_same_network(model, new, STEPS)


def mlp_of(features):
    x = keras.Input((features,))
    return keras.Model(x, layers.Dense(3)(x))


def test_a_layer_inside_a_layer_is_replaced():
    def gru(layer):
        if isinstance(layer, layers.LSTM):
            return layers.GRU(2, go_backwards=layer.go_backwards, name=layer.name)
        return again(layer)

    model = inside(layers.Bidirectional(layers.LSTM(2), name="both"))
    new = clone_model(model, clone_function=gru, recursive=True)
    both = new.get_layer("both")
    assert isinstance(both.forward_layer, layers.GRU)
    assert isinstance(both.backward_layer, layers.GRU)
    assert isinstance(model.get_layer("both").forward_layer, layers.LSTM)
    assert new(STEPS).shape == (2, 4)


def test_a_layer_that_is_kept_gets_new_parts_in_a_copy():
    def relu(layer):
        if layer.name == "inner":
            return layers.Dense(layer.units, activation="relu", name="inner")
        return layer

    model = inside(Block(name="block"))
    new = clone_model(model, clone_function=relu, recursive=True)
    old_block, block = model.get_layer("block"), new.get_layer("block")
    assert block is not old_block
    assert block.gain is old_block.gain
    assert block.inner.activation is keras.activations.relu
    assert old_block.inner.activation is keras.activations.linear
    assert block.inner.built
    assert new(STEPS).shape == (2, 3, 3)
    same = clone_model(model, clone_function=lambda layer: layer, recursive=True)
    assert same.get_layer("block") is old_block


def test_a_layer_of_another_class_brings_its_own_parts():
    def plain(layer):
        if isinstance(layer, layers.Bidirectional):
            return layers.LSTM(4, name="one_way")
        assert not isinstance(layer, layers.LSTM)
        return layer

    model = inside(layers.Bidirectional(layers.LSTM(2)))
    new = clone_model(model, clone_function=plain, recursive=True)
    assert new.layers[-1].name == "one_way"


# --- masks --------------------------------------------------------------------


class Evens(layers.Layer):
    """Two outputs, the first of which alone has a mask."""

    supports_masking = True

    def call(self, x):
        return x, 2.0 * x

    def compute_mask(self, x, mask=None):
        return mask, None


def masked(name):
    if name == "embedding":
        x = keras.Input((3,), dtype="int32")
        return keras.Model(x, layers.LSTM(2)(layers.Embedding(5, 2, mask_zero=True)(x)))
    x = keras.Input((3, 2))
    y = layers.Masking()(x)
    if name == "chain":
        y = layers.Dropout(0.5)(layers.BatchNormalization()(y))
        y = layers.LSTM(2)(layers.TimeDistributed(layers.Dense(3))(y))
    elif name == "bidirectional":
        y = layers.LSTM(2)(
            layers.Bidirectional(layers.GRU(2, return_sequences=True))(y)
        )
    elif name == "two outputs":
        y = [layers.LSTM(2)(part) for part in Evens()(y)]
    elif name == "explicit":
        keep = layers.Lambda(lambda t: t[..., 0] > 2.0)(x)
        y = layers.LSTM(2)(y, mask=keep)
    elif name == "nested":
        z = keras.Input((3, 2))
        y = layers.LSTM(2)(keras.Model(z, layers.Masking()(z))(x))
    elif name == "initial state":
        state = layers.Dense(2)(layers.Flatten()(x))
        y = layers.LSTM(2)(y, initial_state=[state, state])
    elif name == "attention":
        y = layers.MultiHeadAttention(2, 2)(y, x)
    return keras.Model(x, y)


MASKED = [
    "embedding",
    "chain",
    "bidirectional",
    "two outputs",
    "explicit",
    "nested",
    "initial state",
    "attention",
]


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize(
    "arguments",
    [{"clone_function": again}, {"call_function": call, "recursive": True}],
    ids=["clone", "call"],
)
def test_masks_flow(name, arguments):
    model = masked(name)
    x = TOKENS if name == "embedding" else STEPS
    if name == "explicit" and "clone_function" in arguments:
        arguments = {"clone_function": lambda layer: layer_or_again(layer)}
    new = clone_model(model, **arguments)
    new = clone_model(new, **arguments)  # A clone of a clone.
    assert_same_network(model, new, x)
    ours = sorted(op.name for op in new.operations)
    assert ours == sorted(op.name for op in model.operations)
    mine = {
        id(t) for node in nodes(model) for t in [*node.input_tensors, *node.outputs]
    }
    for node in nodes(new):
        assert not any(id(t) in mine for t in node.input_tensors)


def layer_or_again(layer):
    return layer if isinstance(layer, layers.Lambda) else again(layer)


def nodes(model):
    return [n for depth in model._nodes_by_depth.values() for n in depth]


def test_a_layer_that_makes_no_mask_leaves_none():
    def unmasked(layer):
        if isinstance(layer, layers.Embedding):
            return layers.Embedding(5, 2)
        return again(layer)

    new = clone_model(masked("embedding"), clone_function=unmasked)
    assert [op.name.rstrip("_0123456789") for op in new.operations] == [
        "input_layer",
        "embedding",
        "lstm",
    ]
    new.layers[1].set_weights([np.ones((5, 2))])
    ours, other = numbers(new(TOKENS))[0], numbers(new(np.ones((2, 3))))[0]
    np.testing.assert_allclose(ours, other)


def test_names_of_another_program_do_not_collide():
    x = keras.Input((3,), dtype="int32")
    y = layers.Embedding(5, 2, name="embedding")(x)
    flags = ops.cast(ops.not_equal(x, 3), "float32")
    y = layers.LSTM(2, name="lstm")(y)
    model = keras.Model(x, y + ops.sum(flags, axis=1, keepdims=True))
    taken = next(op for op in model.operations if op.name.startswith("not_equal"))
    number = int(taken.name.rpartition("_")[2]) if "_" in taken.name[9:] else 0
    taken.name = f"not_equal_{number + 1}"  # As if read from a file.

    def masking(layer):
        if isinstance(layer, layers.Embedding):
            return layers.Embedding(5, 2, mask_zero=True, name="embedding")
        return again(layer)

    new = clone_model(model, clone_function=masking)
    names = [op.name for op in new.operations if op.name.startswith("not_equal")]
    assert len(set(names)) == 2
    assert taken.name in names


# --- call_function ------------------------------------------------------------


def drop_after_dense(layer, *args, **kwargs):
    out = layer(*args, **kwargs)
    return layers.Dropout(0.5)(out) if isinstance(layer, layers.Dense) else out


def test_a_call_function_inserts_layers():
    model = mlp()
    new = clone_model(model, call_function=drop_after_dense)
    kinds = [type(layer).__name__ for layer in new.layers]
    assert kinds == ["InputLayer", "Dense", "Dropout", "Dense", "Dropout"]
    assert len(model.layers) == 3
    assert new._flatten_layers() == [new, *new.layers]
    assert_same_network(model, new, X)


def test_a_call_function_sees_every_call():
    seen = []

    def record(layer, *args, **kwargs):
        seen.append((layer.name, len(args), sorted(kwargs)))
        return layer(*args, **kwargs)

    x = keras.Input((3, 2))
    state = layers.Dense(2, name="state")(layers.Flatten(name="flat")(x))
    y = layers.GRU(2, name="gru")(x, initial_state=state, training=True)
    clone_model(keras.Model(x, y * 2.0), call_function=record)
    assert seen[:3] == [
        ("flat", 1, []),
        ("state", 1, []),
        ("gru", 1, ["initial_state", "training"]),
    ]
    assert len(seen) == 4


def test_a_call_function_removes_a_layer():
    model = mlp()
    new = clone_model(
        model,
        call_function=lambda layer, x: x if layer.name == "head" else layer(x),
    )
    assert [layer.name for layer in new.layers] == ["x", "hidden"]
    assert len(new.weights) == 2


@pytest.mark.parametrize("value", [None, [], np.ones(3)])
def test_a_call_function_must_return_as_many_tensors(value):
    with pytest.raises(UsageError, match="where: mlp/hidden"):
        clone_model(mlp(), call_function=lambda layer, x: value)


def test_a_sequential_stays_one_while_it_is_a_sequence():
    model = sequential()
    model.compile("sgd", "mse")
    new = clone_model(model, call_function=drop_after_dense)
    assert type(new) is keras.Sequential
    assert [type(x).__name__ for x in new.layers] == ["Dense", "Dropout"] * 2
    assert new.compiled
    assert_same_network(model, new, X)
    new.add(layers.Dense(5))
    assert new(X).shape == (2, 5)


def test_a_sequential_that_branches_becomes_functional():
    model = sequential()
    model.trainable = False
    model.compile("sgd", "mse")
    new = clone_model(model, call_function=lambda layer, x: layer(x) + 1.0)
    assert not isinstance(new, keras.Sequential)
    assert (new.name, new.trainable, new.compiled) == (model.name, False, True)
    model.layers[1].bias.assign(np.ones(2))
    assert len(new.weights) == 4


def test_a_sequential_that_was_never_called_has_no_calls():
    model = keras.Sequential([layers.Dense(2)], name="later")
    with pytest.raises(UsageError, match="have not been called yet") as caught:
        clone_model(model, call_function=call)
    assert "where: later" in str(caught.value)
    new = clone_model(
        model, input_tensors=keras.Input((4,)), call_function=drop_after_dense
    )
    assert [type(x).__name__ for x in new.layers] == ["Dense", "Dropout"]


def test_arguments_of_calls_are_kept():
    x = keras.Input((4,))
    y = layers.Dropout(0.5, seed=1)(layers.Dense(4)(x), training=True)
    model = keras.Model(x, y)
    new = clone_model(model, clone_function=again)
    assert new.layers[-1]._inbound_nodes[0].arguments.kwargs == {"training": True}
    assert np.any(numbers(new(X))[0] == 0.0)


@pytest.mark.parametrize(
    "arguments", [{"clone_function": again}, {"call_function": call}]
)
def test_a_tied_weight_is_the_new_layers(arguments):
    model = tied()
    new = clone_model(model, **arguments)
    assert_same_network(model, new, X)
    new.get_layer("dense").kernel.assign(np.zeros((4, 4)))
    assert not np.any(numbers(new(X))[0])
    assert np.any(numbers(model(X))[0])


def tied():
    x = keras.Input((4,))
    dense = layers.Dense(4, name="dense")
    dense.build((None, 4))
    early = ops.matmul(x, dense.kernel)  # Before the layer is called.
    y = layers.Subtract()([early, ops.matmul(dense(x), dense.kernel)])
    return keras.Model(x, y, name="tied")


def test_a_tied_weight_without_a_counterpart():
    def identity(layer):
        return layers.Identity() if layer.name == "dense" else layer

    with pytest.raises(UsageError, match="has no such variable"):
        clone_model(tied(), clone_function=identity)


def test_a_free_variable_in_the_graph_is_copied():
    scale = keras.Variable(2.0)
    x = keras.Input((4,))
    model = keras.Model(x, layers.Dense(2)(x * scale) + scale)
    new = clone_model(model, clone_function=again)
    scale.assign(5.0)
    old = keras.Model(new.inputs, new.outputs)
    np.testing.assert_allclose(numbers(new(X))[0], numbers(old(X))[0])
    assert not np.allclose(numbers(new(X))[0], numbers(model(X))[0])


def test_an_output_that_cannot_be_computed():
    model = mlp()
    for depth in model._nodes_by_depth.values():
        depth[:] = [node for node in depth if node.operation.name != "hidden"]
    with pytest.raises(UsageError, match="Output '0' of the model could not be comp"):
        clone_model(model, clone_function=again)


# --- input_tensors ------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)])
@pytest.mark.parametrize("build", [mlp, sequential])
def test_a_single_input(build, wrap):
    model = build()
    x = keras.Input((4,), name="mine", batch_size=2)
    new = clone_model(model, input_tensors=wrap(x))
    assert type(new) is type(model)
    assert new.inputs == [x]
    assert new.inputs[0] is x
    assert new.outputs[0].shape == (2, 2)
    assert_same_network(model, new, X)


def test_an_input_layer_and_the_models_own_inputs():
    model = two_inputs()
    mine = [layers.InputLayer((4,), name="a"), layers.InputLayer((4,), name="b")]
    new = clone_model(model, input_tensors=mine)
    assert new.inputs[0] is mine[0].output
    assert_same_network(model, new, [X, X + 1])
    new = clone_model(model, input_tensors=model.inputs)
    assert all(a is b for a, b in zip(new.inputs, model.inputs, strict=True))
    assert_same_network(model, new, [X, X + 1])
    assert_same_network(model, clone_model(new), [X, X + 1])


def test_a_dict_of_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    y = {"sum": a + b, "dense": layers.Dense(2)(a)}
    model = keras.Model({"a": a, "b": b}, y)
    given = {"b": keras.Input((4,), name="b"), "a": keras.Input((4,), name="a")}
    new = clone_model(model, input_tensors=given)
    assert new.input["b"] is given["b"]
    assert_same_network(model, new, {"a": X, "b": X + 1})


@pytest.mark.parametrize("given_as", [dict, OrderedDict])
@pytest.mark.parametrize("made_as", [dict, OrderedDict])
@pytest.mark.parametrize("nested", [False, True])
def test_inputs_are_matched_by_key(made_as, given_as, nested):
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    inputs = made_as([("b", b), ("a", a)])
    model = keras.Model([inputs] if nested else inputs, a - 2 * b)
    first, second = keras.Input((4,), name="first"), keras.Input((4,), name="second")
    given = given_as([("b", second), ("a", first)])
    new = clone_model(model, input_tensors=[given] if nested else given)
    values = keras.Model([first, second], new.output)([X, X + 1])
    np.testing.assert_allclose(numbers(values)[0], X - 2 * (X + 1), rtol=1e-5)
    given = given_as([("a", first), ("b", second)])
    new = clone_model(model, input_tensors=[given] if nested else given)
    values = keras.Model([first, second], new.output)([X, X + 1])
    np.testing.assert_allclose(numbers(values)[0], X - 2 * (X + 1), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "count"),
    [(lambda a, b: a, 1), (lambda a, b: [a], 1), (lambda a, b: [a, b, a], 3)],
)
def test_too_few_or_too_many_tensors(given, count):
    a, b = keras.Input((4,)), keras.Input((4,))
    match = "`input_tensors` must have the same structure as model.input"
    with pytest.raises(ValueError, match=match) as caught:
        clone_model(two_inputs(), input_tensors=given(a, b))
    assert f"2 expected, {count} received" in str(caught.value)


def test_another_structure():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    model = keras.Model({"a": a, "b": b}, a + b)
    match = "must have the same structure as model.input"
    with pytest.raises(UsageError, match=match):
        clone_model(model, input_tensors=(a, b))
    with pytest.raises(UsageError, match=match):
        clone_model(two_inputs(), input_tensors={"a": a, "b": b})
    with pytest.raises(UsageError, match=match):
        clone_model(sequential(), input_tensors={"x": a})


def test_one_tensor_for_a_sequential():
    a = keras.Input((4,))
    with pytest.raises(UsageError, match="must contain a single tensor"):
        clone_model(sequential(), input_tensors=[a, a])


@pytest.mark.parametrize("build", [mlp, sequential])
def test_something_else_than_a_tensor(build):
    with pytest.raises(UsageError, match="must be KerasTensors, InputLayers") as caught:
        clone_model(build(), input_tensors="x")
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("build", [mlp, sequential])
def test_a_tensor_in_the_middle_of_a_graph_is_not_touched(build):
    x = keras.Input((6,))
    dense = layers.Dense(4)
    middle = dense(x)
    history, before = middle._keras_history, dict(vars(middle))
    calls = len(dense._inbound_nodes), len(dense._outbound_nodes)
    model = build()
    new = clone_model(model, input_tensors=middle)
    assert middle._keras_history is history
    assert vars(middle) == before
    assert (len(dense._inbound_nodes), len(dense._outbound_nodes)) == calls
    assert type(new) is type(model)
    assert new.input_shape == (None, 4)
    assert_same_network(model, new, X)
    assert keras.Model(x, new(middle)).output_shape == (None, 2)


def test_a_tensor_of_no_graph():
    new = clone_model(mlp(), input_tensors=keras.KerasTensor((3, 4)))
    assert new.output_shape == (3, 2)


def test_layers_are_built_for_another_shape():
    x = keras.Input((4, 4, 1))
    y = layers.Conv2D(2, 3, name="conv")(x)
    y = Scale(2.0, ops.tanh)(layers.Flatten()(y))
    y = Block(name="block")(y)
    y = layers.Dense(3, name="dense", kernel_regularizer="l2")(y)
    model = keras.Model(x, y)
    model.compile("sgd", "mse")
    model.get_layer("conv").mark = model.get_layer("dense").mark = object()
    new = clone_model(model, input_tensors=keras.Input((6, 6, 1)))
    shapes = [tuple(w.shape) for w in new.weights]
    assert shapes == [
        (3, 3, 1, 2),
        (2,),
        (32,),
        (3,),
        (32, 3),
        (3,),
        (3, 3),
        (3,),
    ]
    assert hasattr(new.get_layer("conv"), "mark")
    assert hasattr(new.get_layer("dense"), "mark")
    assert [type(a) for a in new.layers] == [type(a) for a in model.layers]
    assert len(new.losses) == 1
    images = np.ones((2, 6, 6, 1))
    assert np.isfinite(new.train_on_batch(images, np.ones((2, 3))))
    assert model(np.ones((2, 4, 4, 1))).shape == (2, 3)


def test_attention_is_built_for_another_shape():
    x = keras.Input((3, 2))
    model = keras.Model(x, layers.MultiHeadAttention(2, 3, name="mha")(x, x))
    longer = clone_model(model, input_tensors=keras.Input((5, 2)))
    assert longer.output_shape == (None, 5, 2)
    wider = clone_model(model, input_tensors=keras.Input((3, 7)))
    assert wider.output_shape == (None, 3, 7)
    assert len(wider._flatten_layers()) == len(model._flatten_layers())
    assert len(wider.weights) == len(model.weights)


def test_a_stateful_layer_is_built_for_another_batch_size():
    x = keras.Input(batch_shape=(4, 3, 2))
    y = layers.Bidirectional(layers.LSTM(2, stateful=True))(x)
    model = keras.Model(x, layers.Dense(2)(y))
    model(np.ones((4, 3, 2)))
    new = clone_model(model, input_tensors=keras.Input(batch_shape=(2, 3, 2)))
    model.layers[1].reset_state()
    new.set_weights(model.get_weights())
    expected = numbers(model(np.concatenate([STEPS, STEPS])))[0][:2]
    np.testing.assert_allclose(numbers(new(STEPS))[0], expected, rtol=1e-5)


def test_a_layer_that_cannot_be_built_for_another_shape():
    class Early(layers.Layer):
        def __init__(self, size):
            super().__init__(name="early")
            self.gain = self.add_weight(shape=(size,), name="gain")

        def build(self, shape):
            self.offset = self.add_weight(shape=(shape[-1],), name="offset")

        def call(self, x):
            return ops.matmul(x, self.gain[:, None]) + ops.sum(self.offset)

        def get_config(self):
            return {"size": self.gain.shape[0]}

    x = keras.Input((4,))
    model = keras.Model(x, Early(4)(x), name="model")
    with pytest.raises(Exception, match=r"Early|early") as caught:
        clone_model(model, input_tensors=keras.Input((5,)))
    assert "called model/early" in caught.value.__notes__[0]


def test_unbuilt_sequential_is_built():
    model = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    x = keras.Input((4,), name="mine")
    new = clone_model(model, input_tensors=x)
    assert type(new) is keras.Sequential
    assert new.built
    assert new.inputs[0] is x
    assert not model.built
    assert_same_network_after_build(model, new)


# --- arrays -------------------------------------------------------------------


def as_tensor(x):
    return ops.convert_to_tensor(x)


@pytest.mark.parametrize("kind", [np.asarray, as_tensor, keras.Variable])
@pytest.mark.parametrize("build", [mlp, sequential])
def test_an_array_fixes_the_only_input(build, kind):
    model = build()
    new = clone_model(model, input_tensors=kind(X))
    name = model.inputs[0]._keras_history.operation.name
    assert new.inputs[0].name == f"input_wrapper_for_{name}"
    assert new.input_shape == (2, 4)
    assert type(new) is type(model)
    new.set_weights(model.get_weights())
    expected = numbers(model(X))[0]
    for fed in (np.zeros((2, 4)), None):
        np.testing.assert_allclose(numbers(new(fed))[0], expected, rtol=1e-5)


def test_an_array_fixes_one_of_several_inputs(tmp_path):
    model = two_inputs()
    mine = keras.Input((4,), name="mine")
    new = clone_model(model, input_tensors=[mine, X + 1])
    assert new.input == [mine]
    assert new.get_layer("input_wrapper_for_b")
    new.set_weights(model.get_weights())
    expected = numbers(model([X, X + 1]))[0]
    np.testing.assert_allclose(numbers(new([X]))[0], expected, rtol=1e-5)
    new.save(tmp_path / "fixed.keras")
    again = keras.saving.load_model(tmp_path / "fixed.keras")
    np.testing.assert_allclose(numbers(again([X]))[0], expected, rtol=1e-5)


def test_arrays_fix_all_of_several_inputs():
    model = two_inputs()
    new = clone_model(model, input_tensors=(X, X + 1))
    names = [x.name for x in new.inputs]
    assert names == ["input_wrapper_for_a", "input_wrapper_for_b"]
    new.set_weights(model.get_weights())
    expected = numbers(model([X, X + 1]))[0]
    np.testing.assert_allclose(numbers(new([X * 0, X * 0]))[0], expected, rtol=1e-5)


def test_an_array_in_a_nested_structure():
    a, b, c = (keras.Input((4,), name=name) for name in "abc")
    model = keras.Model({"left": (a, b), "right": c}, a - b * c)
    x = keras.Input((4,), name="x")
    new = clone_model(model, input_tensors={"left": (X, x), "right": X})
    assert new.input == {"left": (x,)}
    ours, expected = new({"left": (X + 1,)}), X - (X + 1) * X
    np.testing.assert_allclose(numbers(ours)[0], expected, rtol=1e-5)


# --- what is kept -------------------------------------------------------------

REPLAYS = [
    {"clone_function": again},
    {"call_function": call},
    {"input_tensors": "own"},
]


def replay(model, arguments):
    if "input_tensors" in arguments:
        arguments = {"input_tensors": model.inputs}
    return clone_model(model, **arguments)


@pytest.mark.parametrize("arguments", REPLAYS, ids=["clone", "call", "inputs"])
def test_class_and_attributes_of_a_functional_subclass(arguments):
    model = Tagged(5, tag=["note"])
    model.trainable = False
    new = replay(model, arguments)
    assert type(new) is Tagged
    assert not new.trainable
    assert new.tag == ["note"]
    assert new.tag is not model.tag
    assert new.head is new.get_layer("head")
    assert new.features is new.get_layer("features").output
    assert new.spare is not model.spare
    assert len(new.weights) == len(model.weights)
    assert new.extractor.layers[-1] is new.get_layer("features")
    assert_same_network(model, new, X)
    assert_same_network(model.extractor, new.extractor, X)


@pytest.mark.parametrize("arguments", REPLAYS, ids=["clone", "call", "inputs"])
@pytest.mark.parametrize("build", [mlp, sequential])
def test_compile_configuration(build, arguments):
    def loss(y, p):
        return ops.mean(ops.abs(y - p))

    model = build()
    optimizer = keras.optimizers.Adam(0.25)
    model.compile(optimizer, loss, metrics=["mae"], run_eagerly=True)
    model.train_on_batch(X, np.ones((2, 2)))
    new = replay(model, arguments)
    assert new.compiled
    assert new.run_eagerly
    assert new.optimizer is not optimizer
    assert int(new.optimizer.iterations) == 0
    assert float(new.optimizer.learning_rate) == 0.25
    assert [v.shape for v in new.optimizer.variables] == [
        v.shape for v in optimizer.variables
    ]
    before = numbers(new.weights)
    new.train_on_batch(X, np.ones((2, 2)))
    assert not np.array_equal(numbers(new.weights)[0], before[0])
    assert int(new.optimizer.iterations) == 1
    assert int(optimizer.iterations) == 1


def test_an_optimizer_learns_about_inserted_weights():
    model = mlp()
    model.compile("adam", "mse")
    model.train_on_batch(X, np.ones((2, 2)))

    def norm(layer, x):
        out = layer(x)
        is_hidden = layer.name == "hidden"
        return layers.BatchNormalization(name="norm")(out) if is_hidden else out

    new = clone_model(model, call_function=norm)
    order = [w.path.split("/")[-2] for w in new.weights]
    assert order == ["hidden"] * 2 + ["norm"] * 4 + ["head"] * 2
    new.train_on_batch(X, np.ones((2, 2)))
    assert int(new.optimizer.iterations) == 1


@pytest.mark.parametrize("arguments", REPLAYS, ids=["clone", "call", "inputs"])
@pytest.mark.parametrize("build", [mlp, shared, two_inputs, sequential])
def test_a_replayed_model_can_be_saved(build, arguments, tmp_path):
    model = build()
    new = replay(model, arguments)
    new.save(tmp_path / "new.keras")
    loaded = keras.saving.load_model(tmp_path / "new.keras")
    x = [X, X] if len(model.inputs) == 2 else X
    assert_same_network(new, loaded, x)


def test_a_sequential_that_grew_layer_by_layer():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    model.add(layers.Dense(5))
    model.pop()
    model.add(layers.Dense(2))
    for arguments in REPLAYS:
        new = replay(model, arguments)
        assert_same_network(model, new, X)
        new.add(layers.Dense(6))
        assert new(X).shape == (2, 6)


def test_a_layer_without_a_configuration():
    model = keras.Sequential([keras.Input((4,)), Scale(2.0, lambda x: x + 1.0)])
    new = clone_model(model, input_tensors=keras.Input((4,)))
    assert_independent(model, new)
    assert_same_network(model, new, X)


def nested_sequence():
    inner = keras.Sequential([layers.Dense(4, name="i")], name="inner")
    parts = [keras.Input((4,)), inner, layers.Dense(2, name="e")]
    return keras.Sequential(parts, name="outer")


@pytest.mark.parametrize("build", [mlp, sequential, nested_sequence])
def test_new_layers_have_the_paths_of_the_old_ones(build):
    model = build()
    new = clone_model(model, clone_function=again, recursive=True)
    assert [v.path for v in new.weights] == [v.path for v in model.weights]


def test_an_unbuilt_sequence_on_a_tensor_has_the_paths_that_it_builds():
    def model():
        return keras.Sequential([layers.Dense(2, name="d")], name="unbuilt")

    built = model()
    built.build((None, 3))
    new = clone_model(model(), input_tensors=keras.Input((3,)))
    assert [v.path for v in new.weights] == [v.path for v in built.weights]

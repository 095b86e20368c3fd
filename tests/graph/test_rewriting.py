"""What a function does is found in a model, and done in another way."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

pytestmark = pytest.mark.wiring


def shake(model):
    """Gives a model values that are not those it was made with."""
    rng = np.random.default_rng(0)
    for variable in model.weights:
        variable.assign(rng.uniform(0.5, 1.5, variable.shape))
    return model


def outputs_of(model, *shape, seed=1):
    x = np.random.default_rng(seed).normal(size=(3, *shape)).astype("float32")
    found = keras.tree.flatten(model(x, training=False))
    return [ops.convert_to_numpy(y) for y in found]


def assert_computes_the_same(one, other, *shape, atol=1e-5):
    pairs = zip(outputs_of(one, *shape), outputs_of(other, *shape), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=atol)


def calls_known(model):
    """How many calls each operation knows of."""
    return [
        (len(x._inbound_nodes), len(x._outbound_nodes))
        for x in [*model._operations, *model._flatten_layers()]
        if hasattr(x, "_inbound_nodes")
    ]


# --- convolutions and batch normalizations -------------------------------------------


def conv_bn(x, conv: layers.Conv2D, bn: layers.BatchNormalization):
    return bn(conv(x))


def folded(x, conv, bn):
    kernel, gamma, beta, mean, variance = map(
        ops.convert_to_numpy,
        (conv.kernel, bn.gamma, bn.beta, bn.moving_mean, bn.moving_variance),
    )
    bias = ops.convert_to_numpy(conv.bias) if conv.use_bias else 0.0
    scale = gamma / np.sqrt(variance + bn.epsilon)
    new = layers.Conv2D.from_config({**conv.get_config(), "use_bias": True})
    y = new(x)
    new.set_weights([kernel * scale, (bias - mean) * scale + beta])
    return y


def conv_net(blocks=3):
    x = keras.Input((6, 6, 3), name="image")
    h = x
    for i in range(blocks):
        h = layers.Conv2D(4, 3, padding="same", use_bias=i % 2, name=f"conv_{i}")(h)
        h = layers.BatchNormalization(name=f"bn_{i}")(h)
        h = layers.ReLU(name=f"relu_{i}")(h)
    return shake(keras.Model(x, layers.Flatten(name="flat")(h), name="net"))


def test_batch_normalizations_are_folded_into_convolutions():
    model = conv_net()
    before = calls_known(model)
    graph = rg.graph(model).rewrite(conv_bn, folded, count=3)
    assert graph.notes == ("rewrite: conv_bn found 3 times",)
    assert calls_known(model) == before
    new = graph.build()
    assert [layer.name for layer in new.layers] == [
        "image",
        *(f"{kind}_{i}" for i in range(3) for kind in ("conv", "relu")),
        "flat",
    ]
    assert_computes_the_same(model, new, 6, 6, 3, atol=1e-3)


def test_a_folded_model_survives_a_file(tmp_path):
    model = conv_net(1)
    new = rg.graph(model).rewrite(conv_bn, folded).build()
    new.save(tmp_path / "folded.keras")
    loaded = keras.models.load_model(tmp_path / "folded.keras")
    assert_computes_the_same(new, loaded, 6, 6, 3)
    assert_computes_the_same(model, loaded, 6, 6, 3)


def test_the_fate_of_the_weights_is_told():
    new = rg.graph(conv_net(1)).rewrite(conv_bn, folded).build()
    fates = [(fate.path, fate.what) for fate in rg.lineage(new)]
    assert ("conv_0/kernel", "given") in fates
    assert ("bn_0/gamma", "dropped") in fates


def test_a_replacement_may_decline():
    def unless_biased(x, conv, bn):
        return NotImplemented if conv.use_bias else folded(x, conv, bn)

    graph = rg.graph(conv_net()).rewrite(conv_bn, unless_biased, count=2)
    assert graph.notes == (
        "rewrite: conv_bn found 2 times, declined by the replacement once",
    )
    assert [node.name for node in graph.find("bn_*")] == ["bn_1"]
    none = rg.graph(conv_net()).rewrite(conv_bn, lambda x: NotImplemented)
    assert str(none) == str(rg.graph(conv_net()))


# --- operations ---------------------------------------------------------------------


def chain(*functions, shape=(4,)):
    x = h = keras.Input(shape, name="x")
    for function in functions:
        h = function(h)
    return keras.Model(x, h, name="net")


def test_operations_are_found_in_any_order_of_a_product():
    model = chain(
        lambda x: x * ops.sigmoid(x), layers.Dense(4), lambda x: ops.sigmoid(x) * x
    )
    graph = rg.graph(model).rewrite(
        lambda x: x * ops.sigmoid(x), lambda x: ops.silu(x), count=2
    )
    kinds = [node.kind.__name__ for node in graph]
    assert kinds == ["InputLayer", "Silu", "Dense", "Silu"]
    assert_computes_the_same(model, graph.build(), 4)


def negated_twice(x):
    return ops.negative(ops.negative(x))


def test_a_double_negation_goes_and_matches_do_not_overlap():
    negations = [lambda x: -x] * 5
    model = chain(ops.tanh, *negations, layers.ReLU(name="end"))
    graph = rg.graph(model).rewrite(negated_twice, lambda x: x)
    assert graph.notes == ("rewrite: negated_twice found 2 times",)
    assert [n.kind.__name__ for n in graph] == [
        "InputLayer",
        "Tanh",
        "Negative",
        "ReLU",
    ]
    assert_computes_the_same(model, graph.build(), 4)


def test_a_replacement_may_return_the_input_of_the_model():
    model = chain(negated_twice, layers.Dense(2))
    graph = rg.graph(model).rewrite(negated_twice, lambda x: x)
    assert [n.kind.__name__ for n in graph] == ["InputLayer", "Dense"]
    assert_computes_the_same(model, graph.build(), 4)


def test_numbers_and_settings_must_be_equal():
    model = chain(lambda x: x * 2.0, lambda x: ops.sum(x, axis=-1, keepdims=True))
    graph = rg.graph(model)
    graph.rewrite(lambda x: x * 2.0, lambda x: x + x, count=1)
    graph.rewrite(lambda x: 2.0 * x, lambda x: x + x, count=1)
    graph.rewrite(lambda x: x * 3.0, lambda x: x + x, count=0)
    graph.rewrite(lambda x: x * 2, lambda x: x + x, count=0)
    total = lambda x: ops.sum(x, axis=-1, keepdims=True)  # noqa: E731
    graph.rewrite(total, lambda x: 4.0 * ops.mean(x, -1, keepdims=True), count=1)
    graph.rewrite(lambda x: ops.sum(x, axis=0, keepdims=True), lambda x: x, count=0)


def test_numbers_may_depend_on_shapes():
    def scaled(x):
        return x / float(x.shape[-1])

    model = chain(scaled, layers.Dense(6), scaled, lambda x: x / 4.0)
    graph = rg.graph(model).rewrite(scaled, lambda x: ops.multiply(x, 1.0), count=2)
    assert [n.kind.__name__ for n in graph][-1] == "TrueDivide"


def test_layers_with_settings_are_found_by_them():
    model = chain(layers.ReLU(), layers.ReLU(max_value=6.0), layers.Activation("gelu"))
    graph = rg.graph(model)
    graph.rewrite(lambda x: layers.ReLU(max_value=6.0)(x), ops.relu6, count=1)
    graph.rewrite(
        lambda x: layers.Activation("gelu")(x), lambda x: ops.gelu(x), count=1
    )
    graph.rewrite(
        lambda x: layers.Activation("tanh")(x), lambda x: ops.tanh(x), count=0
    )


def test_what_set_changed_is_what_is_looked_at():
    model = chain(layers.ReLU(name="act"), layers.Dense(2, name="dense"))
    graph = rg.graph(model).set("act", max_value=6.0).set("dense", activation="tanh")
    graph.rewrite(lambda x: layers.ReLU()(x), ops.relu, count=0)
    graph.rewrite(lambda x: layers.ReLU(max_value=6.0)(x), ops.relu6, count=1)
    seen = []

    def look(x, dense):
        seen.append(dense.activation)
        return dense(x)

    again = graph.rewrite(lambda x, dense=layers.Dense: dense(x), look)
    assert seen == [keras.activations.tanh]
    assert again.build().get_layer("dense").activation is keras.activations.tanh


def test_a_layer_of_the_model_itself_can_be_named():
    model = chain(layers.Dense(4, name="a"), layers.Dense(4, name="b"))
    before = calls_known(model)
    b = model.get_layer("b")
    graph = rg.graph(model).rewrite(lambda x: b(x), lambda x: ops.relu(b(x)), count=1)
    assert [n.name for n in graph][:3] == ["x", "a", "b"]
    assert calls_known(model) == before


# --- larger patterns ----------------------------------------------------------------


def attention(x, q: layers.Dense, k: layers.Dense, v: layers.Dense):
    scores = ops.matmul(q(x), ops.transpose(k(x), (0, 2, 1)))
    return ops.matmul(ops.softmax(scores), v(x))


def attention_net():
    x = keras.Input((5, 6), name="x")
    h = attention(x, *(layers.Dense(4, name=f"a_{n}") for n in "qkv"))
    h = layers.Dense(6, name="between")(h)
    h = attention(h, *(layers.Dense(4, name=f"b_{n}") for n in "qkv"))
    return shake(keras.Model(x, h, name="net"))


class Attention(layers.Layer):
    def call(self, q, k, v):
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1)))
        return ops.matmul(ops.softmax(scores), v)


def test_an_attention_becomes_a_layer_and_its_layers_keep_their_weights():
    model = attention_net()
    before = calls_known(model)
    graph = rg.graph(model).rewrite(
        attention, lambda x, q, k, v: Attention()(q(x), k(x), v(x)), count=2
    )
    assert calls_known(model) == before
    new = graph.build()
    assert_computes_the_same(model, new, 5, 6)
    names = {layer.name for layer in new.layers}
    assert {f"{block}_{n}" for block in "ab" for n in "qkv"} < names
    assert {fate.what for fate in rg.lineage(new)} == {"copied"}


def test_a_pattern_may_have_several_outputs():
    def three(x, q: layers.Dense, k: layers.Dense, v: layers.Dense):
        return q(x), k(x), v(x)

    def fused(x, q, k, v):
        one = layers.Dense(12, name=f"{q.name}kv")
        y = one(x)
        kernels = [ops.convert_to_numpy(layer.kernel) for layer in (q, k, v)]
        biases = [ops.convert_to_numpy(layer.bias) for layer in (q, k, v)]
        one.set_weights([np.concatenate(kernels, 1), np.concatenate(biases)])
        return tuple(ops.split(y, 3, axis=-1))

    model = attention_net()
    new = rg.graph(model).rewrite(three, fused, count=2).build()
    assert [x.name for x in new.layers if isinstance(x, layers.Dense)] == [
        "a_qkv",
        "between",
        "b_qkv",
    ]
    assert_computes_the_same(model, new, 5, 6)


def test_what_others_need_is_no_match_unless_the_pattern_returns_it():
    x = keras.Input((4,), name="x")
    inner = ops.tanh(x)
    model = keras.Model(x, [ops.relu(inner), inner], name="net")
    graph = rg.graph(model)
    graph.rewrite(lambda x: ops.relu(ops.tanh(x)), lambda x: x, count=0)

    def both(x):
        inner = ops.tanh(x)
        return ops.relu(inner), inner

    found = graph.rewrite(both, lambda x: (ops.relu(x), x), count=1)
    assert [n.kind.__name__ for n in found] == ["InputLayer", "Relu"]


def test_what_would_make_a_circle_is_no_match():
    x = keras.Input((4,), name="x")
    a = ops.tanh(x)
    model = keras.Model(x, [ops.exp(ops.relu(a)) + a, a], name="net")

    def pattern(x, y):
        a = ops.tanh(x)
        return y + a, a

    graph = rg.graph(model).rewrite(pattern, lambda x, y: (y, x), count=0)
    assert len(graph) == 5


def test_the_same_parameter_means_the_same_thing():
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    shared, other = layers.Dense(4, name="shared"), layers.Dense(4, name="other")
    model = keras.Model(
        [x, y], [shared(shared(x)), other(shared(y)), x * x, x * y], name="net"
    )
    graph = rg.graph(model)

    def twice(x, dense: layers.Dense):
        return dense(dense(x))

    graph.rewrite(twice, lambda x, dense: dense(x), count=1)
    graph.rewrite(lambda x: x * x, lambda x: ops.square(x), count=1)
    graph.rewrite(lambda x, y: x * y, lambda x, y: ops.maximum(x, y), count=2)


def test_a_shared_layer_is_found_at_each_of_its_calls():
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    shared = layers.Dense(4, name="shared")
    model = keras.Model([x, y], [ops.relu(shared(x)), shared(y)], name="net")
    graph = rg.graph(model).rewrite(
        lambda x, d=layers.Dense: ops.relu(d(x)), lambda x, d: ops.tanh(d(x)), count=1
    )
    assert [n.path for n in graph.find(layers.Dense)] == ["shared", "shared"]
    new = graph.build()
    assert len(new.weights) == 2


# --- unions, subclasses, nesting, masks ----------------------------------------------


class MyDense(layers.Dense):
    pass


def test_layers_are_found_by_class_union_tuple_and_default():
    model = chain(layers.Dense(4), MyDense(4), layers.EinsumDense("ab,bc->ac", (4,)))
    graph = rg.graph(model)

    def one(x, d: layers.Dense):
        return d(x)

    def union(x, d: layers.Dense | layers.EinsumDense):
        return d(x)

    def some(x, d: (MyDense, layers.EinsumDense)):
        return d(x)

    def default(x, d=MyDense):
        return d(x)

    for pattern, count in ((one, 2), (union, 3), (some, 2), (default, 1)):
        graph.rewrite(pattern, lambda x, d: ops.relu(d(x)), count=count)


def test_nested_models_are_searched_once_each():
    def block(name):
        x = keras.Input((4,), name="x")
        return keras.Model(x, negated_twice(layers.Dense(4, name="d")(x)), name=name)

    inner = block("inner")
    sequence = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, name="s"), layers.ReLU(name="r")],
        name="seq",
    )
    model = chain(inner, inner, block("other"), sequence, negated_twice)
    graph = rg.graph(model).rewrite(negated_twice, lambda x: x, count=3)
    assert not graph.find(lambda node: node.kind.__name__ == "Negative")
    graph = graph.rewrite(
        lambda x, d=layers.Dense: layers.ReLU()(d(x)), lambda x, d: d(x), count=1
    )
    new = graph.build()
    assert [x.name for x in new.get_layer("seq").layers] == ["s"]
    assert new.get_layer("inner") is not inner
    nothing = [ops.convert_to_numpy(v) for v in model.weights]
    for a, b in zip(nothing, new.weights, strict=True):
        np.testing.assert_array_equal(a, ops.convert_to_numpy(b))


def test_masks_survive():
    x = keras.Input((5,), dtype="int32", name="x")
    h = layers.Embedding(9, 4, mask_zero=True, name="e")(x)
    h = layers.Dropout(0.5, name="drop")(layers.Activation("linear", name="a")(h))
    model = keras.Model(x, layers.LSTM(3, name="lstm")(h), name="net")
    graph = rg.graph(model).rewrite(
        lambda x, a=layers.Activation, d=layers.Dropout: d(a(x)), lambda x: x, count=1
    )
    assert graph["e"].outputs[0].is_masked
    tokens = np.array([[1, 2, 0, 0, 0], [3, 0, 0, 0, 0]])
    old, new = (
        model.predict(tokens, verbose=0),
        graph.build().predict(tokens, verbose=0),
    )
    np.testing.assert_allclose(old, new, rtol=1e-6)


def test_calls_with_other_arguments_are_others():
    x = keras.Input((4,), name="x")
    drop = layers.Dropout(0.5, name="drop")
    model = keras.Model(x, drop(drop(x), training=True), name="net")
    graph = rg.graph(model)
    graph.rewrite(lambda x, d=layers.Dropout: d(x), lambda x: x, count=1)
    graph.rewrite(lambda x, d=layers.Dropout: d(x, training=True), lambda x: x, count=1)
    graph.rewrite(
        lambda x, d=layers.Dropout: d(x, training=False), lambda x: x, count=0
    )


def test_layers_of_earlier_edits_are_found_and_readable():
    model = chain(layers.Dense(4, name="a"), layers.ReLU(name="r"))
    graph = rg.graph(model).insert(layers.Dense(4, name="new"), before="r")
    shapes = []

    def read(x, d):
        shapes.append(tuple(d.kernel.shape))
        return d(x)

    graph = graph.rewrite(lambda x, d=layers.Dense: layers.ReLU()(d(x)), read)
    assert shapes == [(4, 4)]
    assert [n.name for n in graph] == ["x", "a", "new"]
    assert [x.name for x in graph.build().layers] == ["x", "a", "new"]


def test_a_new_layer_may_be_shared_by_all_places():
    model = chain(ops.relu, layers.Dense(4), ops.relu)
    one = layers.PReLU(name="one")
    graph = rg.graph(model).rewrite(lambda x: ops.relu(x), lambda x: one(x), count=2)
    assert [n.name for n in graph].count("one") == 2
    assert not one._inbound_nodes
    graph.build()


# --- a pattern rewritten into itself ------------------------------------------------


def pooled(x, d: layers.Layer):
    return d(x)


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (conv_net, conv_bn),
        (conv_net, pooled),
        (attention_net, pooled),
    ],
)
def test_a_pattern_rewritten_into_itself_changes_nothing(make, pattern):
    model = make()
    graph = rg.graph(model).rewrite(pattern, pattern)
    rg.verify(model, graph.build()).raise_if_different()


# --- errors ---------------------------------------------------------------------------


def refusal(pattern, replacement=lambda x: x, **options):
    model = chain(layers.Dense(4, name="first"), layers.ReLU(name="relu"))
    before = calls_known(model)
    with pytest.raises(rg.UsageError) as caught:
        rg.graph(model).rewrite(pattern, replacement, **options)
    assert calls_known(model) == before
    assert "what to do:" in str(caught.value)
    return str(caught.value)


def test_a_pattern_that_is_nowhere_tells_the_nearest_place():
    text = refusal(lambda x, d=layers.Dense: ops.tanh(layers.ReLU()(d(x))))
    assert "the pattern is nowhere in the model" in text
    assert "expected: Tanh(ReLU(Dense(x)))" in text
    assert "nothing like its last operation" in text
    text = refusal(lambda x, d=layers.Conv2D: layers.ReLU()(d(x)))
    assert "1 of 2 at first, but Dense is not Conv2D" in text
    text = refusal(lambda x: layers.ReLU(max_value=3.0)(x))
    assert "1 of 1 at relu, but it has other settings" in text
    text = refusal(lambda x, d=layers.Dense: d(x, training=True))
    assert "1 of 1 at first, but it is called with other arguments" in text
    text = refusal(lambda x, y: x + y, lambda x, y: x)
    assert "expected: Add(x, y)" in text


def test_what_is_needed_outside_is_told():
    x = keras.Input((4,), name="x")
    h = layers.Dense(4, name="first")(x)
    model = keras.Model(x, [layers.ReLU(name="relu")(h), -h], name="net")
    with pytest.raises(
        rg.UsageError, match=r"negative\w*, outside of the pattern, needs"
    ):
        rg.graph(model).rewrite(
            lambda x, d=layers.Dense: layers.ReLU()(d(x)), lambda x, d: d(x)
        )


def test_another_count_is_an_error():
    text = refusal(lambda x: layers.ReLU()(x), count=2)
    assert "the pattern is found once" in text
    assert "expected: 2 times: ReLU(x)" in text
    assert "received: once, at relu" in text
    assert "`count` must be a whole number" in refusal(lambda x: -x, count="2")
    assert "`count` must be a whole number" in refusal(lambda x: -x, count=True)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (layers.ReLU(), "the pattern must be a function"),
        (layers.ReLU, "the pattern must be a function"),
        ("relu", "the pattern must be a function"),
        (lambda *x: -x[0], "the parameters of the pattern must have names"),
        (lambda **x: -x["x"], "the parameters of the pattern must have names"),
        (lambda: 3, "the pattern takes no tensor"),
        (lambda d=layers.Dense: d, "the pattern takes no tensor"),
        (lambda x: x, "the pattern returns what it is given"),
        (lambda x: (-x, x), "the pattern returns what it is given"),
        (lambda x: None, "does not return tensors that it makes"),
        (lambda x: 3.0, "does not return tensors that it makes"),
        (lambda x, y: -x, "does not use its parameter 'y'"),
        (lambda x, d=layers.Dense: -x, "does not use its parameter 'd'"),
        (lambda x, y: (-x, -y), "consists of pieces without a connection"),
        (lambda x: ops.matmul(x, "no"), "the pattern cannot be called"),
        (lambda x, d=layers.Dense: d(x) * d.units, "a pattern only calls its layers"),
    ],
)
def test_bad_patterns_are_refused(pattern, what):
    assert what in refusal(pattern)


def test_annotations_that_nobody_knows_are_told():
    def pattern(x, conv: "Unknown"):  # noqa: F821
        return conv(x)

    text = refusal(pattern)
    assert "the parameters of the pattern cannot be read" in text
    assert "`conv=layers.Conv2D`" in text


@pytest.mark.parametrize(
    ("replacement", "what"),
    [
        (layers.ReLU(), "the replacement must be a function"),
        (lambda y: y, "the replacement wants 'y', which the pattern does not have"),
        (lambda x: (x, x), "another number of tensors than the pattern"),
        (lambda x: ops.sum(x, -1), "a tensor of another shape"),
        (lambda x: None, "returned something that it did not make"),
        (lambda x: np.ones(3), "returned something that it did not make"),
        (lambda x: 1 / 0, "the function cannot be called there"),
        (
            lambda x: layers.Dense(4, name="first")(x),
            "two layers of the model the same",
        ),
    ],
)
def test_bad_replacements_are_refused(replacement, what):
    assert what in refusal(lambda x: layers.ReLU()(x), replacement)


def test_an_old_layer_and_a_new_one_may_not_have_one_name():
    def both(x, d):
        return d(layers.Dense(4, name="first")(x))

    text = refusal(lambda x, d=layers.Dense: d(x), both)
    assert "two layers of the model the same name" in text


def test_arrays_are_no_tensors_of_the_pattern():
    factors = np.arange(4.0, dtype="float32")
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.Dense(4, name="d")(x) * factors)
    with pytest.raises(rg.UsageError, match="called with other arguments"):
        rg.graph(model).rewrite(lambda x: x * 2.0, lambda x: ops.relu(x))
    made = rg.graph(model).rewrite(lambda x: x * factors, lambda x: ops.relu(x))
    layer = keras.Sequential([keras.Input((4,)), model.get_layer("d"), layers.ReLU()])
    assert_computes_the_same(made.build(), layer, 4)

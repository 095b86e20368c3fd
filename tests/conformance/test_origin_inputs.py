"""Cases that cloners got wrong: inputs, given ones and the model's own."""

import keras
import numpy as np
import pytest
from conformance.checks import (
    COPIERS,
    assert_copy,
    assert_equal,
    assert_same_calls,
    by_clone,
    by_clone_model,
    call,
)
from keras import layers

import regraft

ROWS = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
each_copier = pytest.mark.parametrize("copy", COPIERS, ids=lambda f: f.__name__)


def one_input():
    x = keras.Input((4,), name="x")
    return keras.Model(x, layers.Dense(3, "tanh", name="dense")(x), name="one")


def two_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    h = layers.Dense(4, "tanh", name="dense")(a)
    return keras.Model([a, b], layers.Subtract(name="minus")([h, b]), name="two")


def with_weights_of(model, twin):
    twin.set_weights(model.get_weights())
    return twin


# --- given tensors ------------------------------------------------------------


def test_given_keras_tensors():
    model = two_inputs()
    given = [keras.Input((4,), name="left"), keras.Input((4,), name="right")]
    twin = with_weights_of(model, regraft.clone_model(model, input_tensors=given))
    assert twin.inputs[0] is given[0]
    assert twin.inputs[1] is given[1]
    assert [x.name for x in twin.layers] == ["left", "dense", "right", "minus"]
    assert_same_calls(model, twin, [ROWS, -ROWS])


def test_given_a_bare_tensor_or_a_list():
    model = one_input()
    for given in (keras.Input((4,)), [keras.Input((4,))]):
        twin = with_weights_of(model, regraft.clone_model(model, given))
        assert len(twin.inputs) == 1
        assert_same_calls(model, twin, ROWS)


def test_given_the_models_own_inputs():
    model = one_input()
    config = model.get_config()
    twin = with_weights_of(model, regraft.clone_model(model, model.inputs))
    assert twin.inputs[0] is model.inputs[0]
    assert twin.layers[1] is not model.layers[1]
    assert_same_calls(model, twin, ROWS)
    assert model.get_config() == config
    assert [x.name for x in model.layers] == ["x", "dense"]


def test_given_an_intermediate_tensor():
    model = one_input()
    x = keras.Input((6,), name="far")
    middle = layers.Dense(4, name="before")(x)
    twin = with_weights_of(model, regraft.clone_model(model, middle))
    assert [x.shape for x in twin.inputs] == [(None, 4)]
    assert "before" not in [x.name for x in twin.layers]
    assert_same_calls(model, twin, ROWS)


def test_given_one_raw_tensor_fixes_that_input():
    model = two_inputs()
    fixed = keras.ops.convert_to_tensor(-ROWS)
    given = [keras.Input((4,), name="a"), fixed]
    twin = with_weights_of(model, regraft.clone_model(model, given))
    assert twin.get_layer("input_wrapper_for_b")
    assert len(twin.inputs) == 1
    assert_equal(call(model, [ROWS, -ROWS])[0], call(twin, [ROWS])[0])


def test_given_only_raw_tensors_fixes_the_output():
    model = one_input()
    twin = with_weights_of(model, regraft.clone_model(model, ROWS))
    assert twin.inputs[0].name == "input_wrapper_for_x"
    [values], _ = call(model, ROWS)
    for ignored in (0 * ROWS, ROWS):
        assert_equal([values], call(twin, ignored)[0])


def test_given_raw_tensors_the_copy_can_be_copied_again():
    model = one_input()
    twin = regraft.clone_model(model, ROWS)
    assert_copy(twin, regraft.clone(twin), ROWS)


@pytest.mark.parametrize("given", [[], [keras.Input((4,))]], ids=["none", "one"])
def test_too_few_tensors(given):
    with pytest.raises(ValueError, match=f"2 expected, {len(given)} received"):
        regraft.clone_model(two_inputs(), given)


@pytest.mark.parametrize("given", [keras.Input((4,)), ROWS], ids=["keras", "raw"])
def test_too_many_tensors(given):
    with pytest.raises(ValueError, match="1 expected, 2 received"):
        regraft.clone_model(one_input(), [given, given])


def test_a_sequential_takes_one_tensor():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    with pytest.raises(ValueError, match="must contain a single tensor"):
        regraft.clone_model(model, [keras.Input((4,)), keras.Input((4,))])
    given = keras.Input((4,), name="given")
    twin = with_weights_of(model, regraft.clone_model(model, given))
    assert isinstance(twin, keras.Sequential)
    assert twin.inputs[0] is given
    assert_same_calls(model, twin, ROWS)


# --- refusals -----------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["one", None, keras.Model, [1, 2]], ids=repr)
def test_refuses_what_is_no_model(wrong):
    with pytest.raises(ValueError, match=r"expected: a `keras\.Model`"):
        regraft.clone_model(wrong)
    with pytest.raises(ValueError, match=r"expected: a `keras\.Model`, `keras\.Layer`"):
        regraft.clone(wrong)


def test_refuses_tensors_for_a_model_without_a_graph():
    class Subclassed(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(ValueError, match="only supported for Functional"):
        regraft.clone_model(Subclassed(), keras.Input((4,)))


# --- the model's own inputs ---------------------------------------------------


@each_copier
def test_dtype_name_and_batch_shape_are_kept(copy):
    a = keras.Input(batch_shape=(2, 4), dtype="int32", name="numbers")
    b = keras.Input((None, 4), dtype="float16", name="halves")
    total = layers.Dense(2)(a) + keras.ops.sum(layers.Dense(2)(b), 1)
    model = keras.Model({"numbers": a, "halves": b}, total)
    twin = copy(model)
    for name, shape, dtype in [
        ("numbers", (2, 4), "int32"),
        ("halves", (None, None, 4), "float16"),
    ]:
        new = twin.input[name]
        assert (new.name, new.shape, new.dtype) == (name, shape, dtype)
        layer = twin.get_layer(name)
        assert (layer.batch_shape, layer.dtype) == (shape, dtype)
    inputs = {"numbers": (9 * ROWS).astype("int32"), "halves": ROWS[:, None]}
    inputs["halves"] = inputs["halves"].astype("float16")
    assert_copy(model, twin, inputs)


@each_copier
def test_optional_inputs_stay_optional(copy):
    class MaybeAdd(layers.Layer):
        def call(self, a, b=None):
            return a if b is None else a + b

    a = keras.Input((4,), name="a")
    b = keras.Input((4,), name="b", optional=True)
    model = keras.Model([a, b], MaybeAdd()(layers.Dense(4)(a), b))
    twin = copy(model)
    assert twin.get_layer("b").optional
    assert not twin.get_layer("a").optional
    assert_same_calls(model, twin, [ROWS, None])
    assert_same_calls(model, twin, [ROWS, ROWS])


def sparse_rows():
    if keras.backend.backend() == "jax":
        from jax.experimental import sparse

        return sparse.BCOO.fromdense(ROWS, nse=ROWS.size)
    import tensorflow as tf

    return tf.sparse.from_dense(ROWS)


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras has no sparse inputs on torch"
)
@each_copier
def test_sparse_inputs_stay_sparse(copy):
    x = keras.Input((4,), sparse=True, name="x")
    model = keras.Model(x, layers.Dense(3, name="dense")(x))
    twin = copy(model)
    assert twin.input.sparse
    assert twin.get_layer("x").sparse
    assert_copy(model, twin, sparse_rows())


@each_copier
def test_no_input_layers_are_added(copy):
    model = two_inputs()
    twin = copy(copy(model))
    inputs = [x for x in twin.layers if isinstance(x, layers.InputLayer)]
    assert [x.name for x in inputs] == ["a", "b"]
    assert [op.name for op in twin.operations] == [op.name for op in model.operations]


# --- flags, configuration and calls -------------------------------------------


@each_copier
def test_trainable_of_layers_and_models_is_kept(copy):
    x = keras.Input((4,))
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)], name="inner")
    frozen = layers.Dense(4, name="frozen", trainable=False)
    model = keras.Model(x, layers.Dense(2, name="free")(frozen(inner(x))))
    inner.trainable = False
    twin = copy(model)
    flags = {x.name: x.trainable for x in twin.layers[1:]}
    assert flags == {"inner": False, "frozen": False, "free": True}
    assert [v.path for v in twin.trainable_weights] == ["free/kernel", "free/bias"]
    assert_copy(model, twin, ROWS)


@each_copier
def test_trainable_of_the_model_is_kept(copy):
    model = one_input()
    model.trainable = False
    twin = copy(model)
    assert not twin.trainable
    assert twin.trainable_weights == []
    assert len(twin.non_trainable_weights) == 2


@each_copier
def test_the_original_is_unchanged(copy):
    model = two_inputs()
    config, values = model.get_config(), model.get_weights()
    nodes = [len(op._inbound_nodes) for op in model.operations]
    outbound = [len(op._outbound_nodes) for op in model.operations]
    copy(model)
    assert model.get_config() == config
    assert_equal(model.get_weights(), values)
    assert [len(op._inbound_nodes) for op in model.operations] == nodes
    assert [len(op._outbound_nodes) for op in model.operations] == outbound


@pytest.mark.parametrize("copy", [by_clone, by_clone_model])
def test_the_copy_has_the_same_config(copy):
    model = two_inputs()
    assert copy(model).get_config() == model.get_config()


@each_copier
def test_copy_of_a_copy(copy):
    model = two_inputs()
    twin = copy(copy(copy(model)))
    assert_copy(model, twin, [ROWS, -ROWS])


@each_copier
def test_calling_a_copy_in_another_model(copy):
    model = one_input()
    twin = copy(model)
    x = keras.Input((4,))
    outer = keras.Model(x, twin(twin(x) @ np.ones((3, 4), "float32")))
    inner, _ = call(model, ROWS)
    expected, _ = call(model, inner[0] @ np.ones((3, 4), "float32"))
    np.testing.assert_allclose(call(outer, ROWS)[0][0], expected[0], rtol=1e-5)
    assert len(model._inbound_nodes) == 0
    assert_copy(outer, copy(outer), ROWS)


def test_original_and_renamed_copy_in_one_model():
    model = one_input()
    x = keras.Input((4,))
    both = keras.Model(x, [model(x), regraft.clone(model, name="other")(x)])
    [left, right], _ = call(both, ROWS)
    assert_equal([left], [right])
    assert len(both.weights) == 4
    assert_copy(both, regraft.clone(both), ROWS)


@each_copier
def test_layer_losses(copy):
    x = keras.Input((4,))
    regularized = layers.Dense(
        3, kernel_regularizer="l2", bias_regularizer="l1", activity_regularizer="l2"
    )
    model = keras.Model(x, regularized(x))
    twin = copy(model)
    for either in (model, twin):
        either(ROWS)
    assert len(twin.losses) == len(model.losses) == 3
    losses = [[keras.ops.convert_to_numpy(x) for x in m.losses] for m in (model, twin)]
    assert_equal(*losses)
    assert losses[0][0] > 0
    model.layers[1].kernel.assign(np.zeros((4, 3)))
    assert keras.ops.convert_to_numpy(twin.losses[1]) > 0

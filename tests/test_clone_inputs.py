"""`clone(inputs=...)`: the same weights on other inputs, or a clear refusal."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers, ops

import regraft as rg

pytestmark = pytest.mark.wiring

BACKEND = keras.backend.backend()
TOKENS = np.array([[1, 2, 0, 4, 0], [3, 0, 0, 0, 0]], "int32")


def image(side, rows=2, channels=3):
    shape = (rows, side, side, channels)
    return np.random.default_rng(side).random(shape, "float32")


def numbers(x):
    return [ops.convert_to_numpy(t) for t in keras.tree.flatten(x)]


def assert_close(left, right):
    for a, b in zip(numbers(left), numbers(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def assert_same_weights(model, new):
    assert [v.path for v in new.variables] == [v.path for v in model.variables]
    for mine, other in zip(model.variables, new.variables, strict=True):
        assert mine is not other
        assert ops.convert_to_numpy(mine).tobytes() == (
            ops.convert_to_numpy(other).tobytes()
        )


def assert_consistent(new, x):
    """What the graph says about shapes and dtypes is what comes out."""
    outputs = keras.tree.flatten(new(x))
    for symbolic, real in zip(new.outputs, outputs, strict=True):
        assert len(symbolic.shape) == len(real.shape)
        for said, size in zip(symbolic.shape, real.shape, strict=True):
            assert said in (None, size)
        assert symbolic.dtype == keras.backend.standardize_dtype(real.dtype)


def assert_reloads(new, x, path):
    file = str(path / "model.keras")
    new.save(file)
    loaded = keras.saving.load_model(file)
    assert loaded.input_shape == new.input_shape
    assert loaded.output_shape == new.output_shape
    assert_close(new(x), loaded(x))


def convnet(side=8, name="net"):
    x = keras.Input((side, side, 3), name="image")
    y = layers.Conv2D(4, 3, padding="same", name="conv")(x)
    y = layers.BatchNormalization(name="norm")(y)
    y = layers.MaxPooling2D(name="pool")(layers.ReLU(name="relu")(y))
    y = layers.GlobalAveragePooling2D(name="mean")(y)
    return keras.Model(x, layers.Dense(2, name="head")(y), name=name)


def chain(*parts, shape=(8, 8, 3)):
    x = y = keras.Input(shape, name="x")
    for part in parts:
        y = part(y)
    return keras.Model(x, y, name="net")


def refused(model, inputs):
    before = rg.clone(model)
    with pytest.raises(rg.ShapeError) as error:
        rg.clone(model, inputs=inputs)
    rg.verify(model, before, inputs=False).raise_if_different()
    text = str(error.value)
    for part in ("  where: ", "  expected: ", "  received: ", "  what to do: "):
        assert part in text
    return text


# --- what inputs may be --------------------------------------------------------


@pytest.mark.every_backend
def test_a_shape_changes_the_shapes_and_nothing_else(tmp_path):
    model = convnet()
    new = rg.clone(model, inputs=(16, 16, 3))
    assert new.input_shape == (None, 16, 16, 3)
    assert [x.shape for x in rg.graph(new)["pool"].outputs] == [(None, 8, 8, 4)]
    assert model.input_shape == (None, 8, 8, 3)
    assert [layer.name for layer in new.layers] == [x.name for x in model.layers]
    assert new.get_layer("image").batch_shape == (None, 16, 16, 3)
    assert_same_weights(model, new)
    wide = convnet(16)
    wide.set_weights(model.get_weights())
    assert_close(new(image(16)), wide(image(16)))
    assert_consistent(new, image(16))
    assert new.get_config() == wide.get_config()
    assert_reloads(new, image(16), tmp_path)


def test_an_input_becomes_the_input_of_the_copy(tmp_path):
    model = convnet()
    x = keras.Input(batch_shape=(2, 16, 16, 3), name="photo")
    new = rg.clone(model, inputs=x)
    assert new.input is x
    assert new.layers[0].name == "photo"
    assert new.output_shape == (2, 2)
    assert_same_weights(model, new)
    both = keras.Model(x, [new.output, layers.Flatten()(x)])
    assert_close(both(image(16))[0], new(image(16)))
    assert_reloads(new, image(16), tmp_path)
    assert rg.clone(model, inputs=x._keras_history.operation).input is x
    assert_close(rg.clone(new)(image(16)), new(image(16)))


def test_the_end_of_another_graph_gives_the_shape_to_be_put_onto_it():
    model = convnet()
    other = keras.Input((32, 32, 3), name="start")
    middle = layers.AveragePooling2D(2, name="shrink")(other)
    nodes = len(middle._keras_history.operation._outbound_nodes)
    new = rg.clone(model, inputs=middle)
    assert new.input_shape == (None, 16, 16, 3)
    assert new.input.name == "image"
    assert len(middle._keras_history.operation._outbound_nodes) == nodes
    whole = keras.Model(other, new(middle))
    assert_close(whole(image(32)), new(layers.AveragePooling2D(2)(image(32))))


def two_inputs():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    y = layers.Dense(3, name="dense")(layers.Concatenate(name="both")([a, b]))
    return keras.Model([a, b], y, name="pair")


def test_inputs_are_known_by_the_keys_that_a_model_takes():
    first, second = keras.Input((4,), name="b"), keras.Input((4,), name="c")
    h = layers.Concatenate()([layers.Dense(2)(first), layers.Flatten()(second)])
    model = keras.Model({"a": first, "b": second}, h)
    for new in (
        rg.clone(model, inputs={"b": (3, 2)}),
        rg.graph(model).inputs(b=keras.Input((3, 2))).build(),
        rg.clone(model, inputs={"c": (3, 2)}),
        rg.graph(model).inputs(c=(3, 2)).build(),
    ):
        assert {k: x.shape for k, x in new.input.items()} == {
            "a": (None, 4),
            "b": (None, 3, 2),
        }


def test_inputs_are_named_in_a_dict_or_listed():
    a = keras.Input((None, 2), name="a")
    b = keras.Input((6, 2), name="b")
    model = keras.Model({"a": a, "b": b}, [layers.Dense(3)(a), layers.Dense(2)(b)])
    x = {"a": np.ones((1, 5, 2)), "b": np.ones((1, 3, 2))}
    for inputs in ({"b": (3, 2)}, [None, (3, 2)], {"b": keras.Input((3, 2), name="b")}):
        new = rg.clone(model, inputs=inputs)
        assert new.input["b"].shape == (None, 3, 2)
        assert new.input["a"].shape == (None, None, 2)
        assert_consistent(new, x)


def test_an_array_fixes_an_input(tmp_path):
    model = two_inputs()
    first, second = image(2)[:, 0].reshape(2, -1)[:, :4], np.full((4,), 2, "float32")
    new = rg.clone(model, inputs={"b": second})
    assert [x.name for x in new.inputs] == ["a"]
    assert new.output_shape == (None, 3)
    assert_same_weights(model, new)
    assert_close(new(first), model([first, np.stack([second] * 2)]))
    assert_reloads(new, [first], tmp_path)
    rows = np.arange(8, dtype="float32").reshape(2, 4)
    assert_close(rg.clone(model, inputs=[None, rows])(first), model([first, rows]))
    wide = rg.clone(model, inputs={"a": keras.Input((4,), name="c"), "b": second})
    assert [x.name for x in wide.inputs] == ["c"]
    assert_close(wide(first), new(first))


def test_an_array_can_fix_the_only_input():
    model = convnet()
    for inputs in (image(8), ops.convert_to_tensor(image(8))):
        new = rg.clone(model, inputs=inputs)
        assert_close(new(image(8) * 0), model(image(8)))
    line = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    new = rg.clone(line, inputs=np.ones((3, 4), "float32"))
    assert type(new) is keras.Sequential
    assert_close(new(np.zeros((3, 4))), line(np.ones((3, 4))))


def test_a_batch_size_can_be_fixed_and_opened(tmp_path):
    x = keras.Input(batch_shape=(4, 5, 2), name="steps")
    model = keras.Model(x, layers.LSTM(3, stateful=True, name="lstm")(x))
    steps = np.random.default_rng(0).random((4, 5, 2), "float32")
    model(steps)
    one = rg.clone(model, inputs=keras.Input(batch_shape=(1, 1, 2), name="steps"))
    assert one.get_layer("lstm").states[0].shape == (1, 3)
    assert one.output_shape == (1, 3)
    for i in range(5):
        last = one(steps[:1, i : i + 1])
    model.get_layer("lstm").reset_state()
    assert_close(last[0], model(steps)[0])
    longer = rg.clone(model, inputs=(9, 2))
    assert longer.input_shape == (4, 9, 2)
    assert_close(longer.get_layer("lstm").states, model.get_layer("lstm").states)
    text = refused(model, keras.Input((5, 2)))
    assert "a stateful layer needs to know the batch size" in text


def test_a_sequential_stays_one(tmp_path):
    class Line(keras.Sequential):
        pass

    for kind in (keras.Sequential, Line):
        parts = [keras.Input((8, 8, 3)), layers.Conv2D(2, 3), layers.Flatten()]
        model = kind(parts, name="line")
        for inputs in ((10, 10, 3), keras.Input((10, 10, 3))):
            new = rg.clone(model, inputs=inputs)
            assert type(new) is kind
            assert new.output_shape == (None, 128)
            assert_same_weights(model, new)
            assert_consistent(new, image(10))
    built = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    built.build((None, 4))
    new = rg.clone(built, inputs=(6, 4))
    assert new.get_build_config() == {"input_shape": (None, 6, 4)}
    assert_reloads(new, np.ones((1, 6, 4), "float32"), tmp_path)


def test_what_was_trained_stays_trained():
    model = convnet()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    model.fit(image(8), np.ones((2, 2)), verbose=0)
    new = rg.clone(model, inputs=(16, 16, 3))
    assert int(new.optimizer.iterations.numpy()) == 1
    slots = zip(model.optimizer.variables, new.optimizer.variables, strict=True)
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in slots)
    assert not rg.clone(model, inputs=(16, 16, 3), compiled="drop").compiled
    moved = rg.clone(model, inputs=keras.Input((16, 16, 3)))
    moved.fit(image(16), np.ones((2, 2)), verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 1
    assert int(moved.optimizer.iterations.numpy()) == 2
    if BACKEND != "jax":  # Each program is compiled.
        new.fit(image(16), np.ones((2, 2)), verbose=0)
        assert_close(moved.get_weights(), new.get_weights())


def test_other_arguments_work_with_inputs():
    model = convnet()
    model.get_layer("conv").trainable = False
    shared = rg.clone(model, inputs=(16, 16, 3), weights="share", prefix="b_")
    assert shared.get_layer("b_conv").kernel is model.get_layer("conv").kernel
    fresh = rg.clone(model, inputs=(16, 16, 3), weights="fresh", seed=1)
    assert fresh.input_shape == (None, 16, 16, 3)
    assert not fresh.get_layer("conv").trainable
    kept = model.get_layer("conv")
    new = rg.clone(model, inputs=(16, 16, 3), keep=kept)
    assert new.get_layer("conv") is kept
    assert kept.get_build_config() == {"input_shape": (None, 8, 8, 3)}
    assert model.get_layer("conv").output.shape == (None, 8, 8, 4)
    assert_consistent(new, image(16))
    assert rg.clone(model, inputs=(16, 16, 3), device="cpu").built


# --- what follows --------------------------------------------------------------


def test_models_inside_follow(tmp_path):
    inner = convnet(name="inner")
    x = keras.Input((8, 8, 3), name="x")
    line = keras.Sequential([layers.Conv2D(3, 1, name="mix")], name="line")
    model = keras.Model(x, inner(line(x)), name="outer")
    new = rg.clone(model, inputs=(16, 16, 3))
    assert new.get_layer("inner").input_shape == (None, 16, 16, 3)
    assert new.get_layer("line").output_shape == (None, 16, 16, 3)
    assert inner.input_shape == (None, 8, 8, 3)
    assert_same_weights(model, new)
    assert_consistent(new, image(16))
    alone = rg.clone(inner, inputs=(16, 16, 3))
    assert_close(new.get_layer("inner")(image(16)), alone(image(16)))
    assert_reloads(new, image(16), tmp_path)


def test_a_model_that_is_called_on_two_shapes_takes_both():
    inner = convnet(name="inner")
    a, b = keras.Input((8, 8, 3), name="a"), keras.Input((8, 8, 3), name="b")
    model = keras.Model([a, b], layers.Subtract()([inner(a), inner(b)]))
    for name in "ab":
        new = rg.clone(model, inputs={name: (16, 16, 3)})
        assert new.get_layer("inner").input_shape == (None, None, None, 3)
        x = {"a": image(8), "b": image(8), name: image(16)}
        assert_consistent(new, [x["a"], x["b"]])
    both = rg.clone(model, inputs=[(16, 16, 3)] * 2)
    assert both.get_layer("inner").input_shape == (None, 16, 16, 3)


def test_models_that_layers_hold_follow():
    class Twice(layers.Layer):
        def __init__(self, model, **kwargs):
            super().__init__(**kwargs)
            self.model = model

        def call(self, x):
            return self.model(x) + self.model(x[:, ::2, ::2])

        def build(self, shape):
            self.built = True

    inner = chain(layers.Conv2D(2, 1, name="conv"), layers.GlobalMaxPooling2D())
    video = keras.Input((3, 8, 8, 3))
    model = keras.Model(video, layers.TimeDistributed(inner, name="each")(video))
    new = rg.clone(model, inputs=(5, 16, 16, 3))
    assert new.output_shape == (None, 5, 2)
    assert new.get_layer("each").layer.input_shape == (None, 16, 16, 3)
    frames = np.stack([image(16)] * 5, axis=1)
    assert_close(new(frames)[:, 3], rg.clone(inner, inputs=(16, 16, 3))(image(16)))
    parts = layers.Conv2D(2, 1), layers.GlobalMaxPooling2D()
    open_ = chain(*parts, shape=(None, None, 3))
    model = chain(Twice(open_, name="twice"))
    new = rg.clone(model, inputs=(16, 16, 3))
    assert new.get_layer("twice").model.input_shape == (None, None, None, 3)
    assert_close(new(image(16)), model.get_layer("twice")(image(16)))
    a, b = keras.Input((3, 8, 8, 3), name="a"), keras.Input((3, 8, 8, 3), name="b")
    each = layers.TimeDistributed(rg.clone(inner), name="each")
    model = keras.Model([a, b], [each(a), each(b)])
    for name in "ab":
        new = rg.clone(model, inputs={name: (3, 16, 16, 3)})
        assert new.get_layer("each").layer.input_shape == (None, None, None, 3)


@pytest.mark.every_backend
def test_masks_ties_and_shared_layers_follow():
    x = keras.Input((5,), dtype="int32", name="tokens")
    table = layers.Embedding(6, 4, mask_zero=True, name="table")
    twice = layers.Dense(4, name="twice")
    y = twice(twice(table(x)))
    y = layers.MultiHeadAttention(2, 2, name="heads")(y, y)
    y = layers.Add(name="sum")([y, table(x)])
    y = layers.LayerNormalization(name="norm")(y)
    y = layers.LSTM(3, name="lstm")(y)
    model = keras.Model(x, y, name="text")
    new = rg.clone(model, inputs=(7,))
    assert new.get_layer("norm").output.shape == (None, 7, 4)
    assert [op.name for op in new.operations] == [op.name for op in model.operations]
    mask = new.get_layer("norm").output._keras_mask
    assert mask is None or mask.shape == (None, 7)
    if BACKEND != "jax":  # Where each operation is compiled.
        longer = np.pad(TOKENS, ((0, 0), (0, 2)))
        assert_close(new(longer), model(TOKENS))
    opened = rg.clone(model, inputs=(None,))
    assert opened.input_shape == (None, None)
    assert opened.get_layer("norm").output.shape == (None, None, 4)


def test_numbers_that_build_worked_out_are_worked_out_again():
    class Middle(layers.Layer):
        """Weights the rows of a picture by their distance from the middle."""

        def build(self, shape):
            self.rows = shape[1]
            self.gain = self.add_weight(shape=(shape[-1],), name="gain")
            self.table = ops.abs(ops.arange(shape[1], dtype="float32") - shape[1] / 2)
            self.draw = np.random.default_rng().random(3)

        def call(self, x):
            table = ops.reshape(self.table, (1, self.rows, 1, 1))
            return x * table * self.gain * ops.convert_to_tensor(self.draw, x.dtype)

    model = chain(Middle(name="middle"))
    new = rg.clone(model, inputs=(6, 8, 3))
    layer = new.get_layer("middle")
    assert layer.rows == 6
    assert layer.get_build_config() == {"input_shape": (None, 6, 8, 3)}
    assert layer.draw.tobytes() == model.get_layer("middle").draw.tobytes()
    assert_consistent(new, np.ones((1, 6, 8, 3), "float32"))
    assert model.get_layer("middle").rows == 8
    with pytest.raises(rg.ShapeError, match="`keep=` shares it with the original"):
        rg.clone(model, inputs=(6, 8, 3), keep=model.get_layer("middle"))
    a, b = keras.Input((8, 8, 3), name="a"), keras.Input((8, 8, 3), name="b")
    middle = Middle(name="middle")
    pair = keras.Model([a, b], [middle(a), middle(b)], name="pair")
    for name in "ab":
        with pytest.raises(rg.ShapeError, match="follow from one shape") as error:
            rg.clone(pair, inputs={name: (6, 8, 3)})
        assert "it is called with [(" in str(error.value)
    assert rg.clone(pair, inputs=[(6, 8, 3)] * 2).get_layer("middle").rows == 6


def test_a_reshape_with_an_open_axis_follows():
    model = chain(
        layers.Reshape((-1, 3), name="rows"), layers.Dense(3), shape=(8, 8, 3)
    )
    new = rg.clone(model, inputs=(4, 10, 3))
    assert new.output_shape == (None, 40, 3)
    x = keras.Input((8, 8, 3))
    model = keras.Model(x, ops.reshape(x, (-1, 64, 3))[:, 1:, None])
    assert rg.clone(model, inputs=(4, 16, 3)).output_shape == (None, 63, 1, 3)


def test_a_class_with_a_constructor_follows(tmp_path):
    @keras.saving.register_keras_serializable()
    class Backbone(keras.Model):
        def __init__(self, image_shape=(8, 8, 3), width=2, **kwargs):
            x = keras.Input(image_shape, name="x")
            super().__init__(x, layers.Conv2D(width, 3, name="conv")(x), **kwargs)
            self.image_shape, self.width = image_shape, width

        def get_config(self):
            own = {"image_shape": self.image_shape, "width": self.width}
            return {"name": self.name, **own}

    model = Backbone(width=5)
    new = rg.clone(model, inputs=(12, 12, 3))
    assert type(new) is Backbone
    assert (new.image_shape, new.width) == ((12, 12, 3), 5)
    assert model.image_shape == (8, 8, 3)
    assert_reloads(new, image(12), tmp_path)


@pytest.mark.skipif(BACKEND == "jax", reason="drawing its weights takes long")
@pytest.mark.parametrize("top", [True, False] if BACKEND == "torch" else [False])
@pytest.mark.every_backend
def test_a_network_for_images_takes_larger_ones(top):
    def make(side):
        return keras.applications.MobileNetV3Small(
            input_shape=(side, side, 3), include_top=top, weights=None, classes=5
        )

    model, wide = make(32), make(64)
    new = rg.clone(model, inputs=(64, 64, 3))
    wide.set_weights(model.get_weights())
    assert_same_weights(model, new)
    if BACKEND == "torch":  # Elsewhere each of its operations is compiled.
        assert_close(new(image(64) * 255), wide(image(64) * 255))
    shapes = [layer.output.shape for layer in new.layers]
    assert shapes == [layer.output.shape for layer in wide.layers]


@pytest.mark.skipif(BACKEND == "jax", reason="drawing its weights takes long")
def test_a_backbone_takes_longer_texts():
    hub = pytest.importorskip("keras_hub")
    model = hub.models.BertBackbone(
        vocabulary_size=20,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        max_sequence_length=12,
    )
    new = rg.clone(model, inputs=dict.fromkeys(model.input, (6,)))
    assert type(new) is type(model)
    x = {name: np.ones((2, 6), "int32") for name in model.input}
    assert_close(new(x), model(x))
    assert new.output["sequence_output"].shape == (None, 6, 8)
    if BACKEND != "tensorflow":  # It looks at the end of a slice when it takes it.
        with pytest.raises(rg.ShapeError, match="cannot follow the new input shape"):
            rg.clone(new, inputs=dict.fromkeys(model.input, (13,)))


# --- what is refused -----------------------------------------------------------


def test_a_dense_behind_a_flatten_is_refused_with_both_shapes():
    text = refused(
        chain(layers.Flatten(name="flat"), layers.Dense(2, name="head")), (9, 9, 3)
    )
    assert "where: net/head (Dense), behind flat (Flatten)" in text
    assert "expected: input shape (None, 192)" in text
    assert "head/kernel (192, 2)" in text
    assert "received: input shape (None, 243)" in text
    assert "clone_model(model, input_tensors=...)" in text


@pytest.mark.parametrize(
    ("part", "shape", "words"),
    [
        (layers.Reshape((192,)), (9, 9, 3), "The total size of the tensor"),
        (layers.Reshape((192,)), (None, None, 3), "cannot be reshaped to (192,)"),
        (layers.Reshape((8, 8, -1)), (16, 16, 3), "the axis (16,) would become"),
        (lambda x: ops.reshape(x, (-1, 192)), (16, 16, 3), "(None, 192)"),
        (lambda x: ops.reshape(x, (-1, 64, 3)), (16, 16, 3), "the axes (16, 16)"),
        (lambda x: x[:, :8], (16, 16, 3), "it takes 8 of 16 along axis 1"),
        (lambda x: x[..., 7, :], (8, 16, 3), "it takes 8 of 16 along axis 2"),
        (
            lambda x: ops.take(x, np.arange(8), axis=1),
            (16, 8, 3),
            "it takes 8 of 16 along axis 1",
        ),
        (
            lambda x: ops.slice(x, (0, 0, 0, 0), (1, 8, 8, 3)),
            (16, 8, 3),
            "it takes 8 of 16 along axis 1",
        ),
        (lambda x: x + np.ones((1, 8, 8, 3), "float32"), (16, 16, 3), "shape"),
        (lambda x: x * ops.mean(x[:, :1], 1, keepdims=True), (1, 1, 3), None),
        (layers.Conv2D(2, 5), (3, 3, 3), "shape"),
        (layers.Conv2D(2, 3), (8, 8, 4), "kernel (3, 3, 3, 2)"),
        (layers.LayerNormalization(axis=[1, 2]), (1, 1, 3), "would have to be of"),
        (layers.ZeroPadding2D(), (8, 3), "expected ndim=4"),
    ],
)
def test_what_cannot_follow_is_refused(part, shape, words):
    model = chain(part)
    if words is None:
        rg.clone(model, inputs=shape)
        return
    assert words in refused(model, shape)


def test_a_weight_for_each_position_is_refused():
    class Positions(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(1, *shape[1:]), name="table")

        def call(self, x):
            return x + self.table

    model = chain(Positions(name="positions"), shape=(8, 4))
    text = refused(model, (1, 4))
    assert "where: net/positions (Positions)" in text
    assert "table of shape (1, 8, 4) would have to be of shape (1, 1, 4)" in text


def test_a_table_of_unknown_origin_is_refused():
    class Noise(layers.Layer):
        def build(self, shape):
            self.noise = np.random.default_rng().random(shape[1:])

        def call(self, x):
            return x + ops.convert_to_tensor(self.noise, x.dtype)

        def compute_output_shape(self, shape):
            return shape

    text = refused(chain(Noise(name="noise"), shape=(8, 1)), (1, 1))
    assert "its `noise` of shape (8, 1) would have to be of shape (1, 1)" in text


def test_a_layer_that_cannot_be_built_again_is_refused():
    class Once(layers.Layer):
        made = 0

        def build(self, shape):
            if self.made:
                raise RuntimeError("only once")
            self.made = 1
            self.gain = self.add_weight(shape=(shape[-1],), name="gain")

        def call(self, x):
            return x * self.gain

    text = refused(chain(Once(), shape=(8, 2)), (9, 2))
    assert "it cannot be built again to see whether its weights fit" in text
    assert "RuntimeError: only once" in text


def test_code_that_lets_the_batch_make_up_for_a_change_is_refused():
    class Halves(layers.Layer):
        def __init__(self, size, **kwargs):
            super().__init__(**kwargs)
            self.size = size
            self.mix = layers.Dense(2, name="mix")

        def call(self, x):
            return self.mix(ops.reshape(x, (-1, self.size, 4)))

    rows = layers.Lambda(lambda x: ops.reshape(x, (-1, 8, 4)), name="part")
    for part in (rows, Halves(8, name="part")):
        text = refused(chain(part, shape=(4, 8)), (8, 8))
        assert "where: net/part" in text
        assert "of 31 rows it makes 62: a fixed shape in its code" in text
        assert rg.clone(chain(part, shape=(4, 8)), inputs=(2, 16)).built


def test_tensors_are_not_repeated_where_they_were_not():
    a, b = keras.Input((8, 2), name="a"), keras.Input((8, 2), name="b")
    for y in (layers.Add(name="sum")([a, b]), ops.multiply(a, b)):
        model = keras.Model([a, b], y, name="net")
        text = refused(model, {"b": (1, 2)})
        assert "sizes 8 and 1 along axis 1, where they were the same" in text


def test_branches_that_come_out_of_step_are_refused():
    x = keras.Input((16, 16, 3), name="x")
    y = layers.UpSampling2D(name="up")(layers.MaxPooling2D(name="down")(x))
    model = keras.Model(x, layers.Concatenate(name="both")([x, y]), name="net")
    assert rg.clone(model, inputs=(32, 32, 3)).output_shape == (None, 32, 32, 6)
    text = refused(model, (17, 17, 3))
    assert "where: net/both (Concatenate)" in text
    assert "(None, 17, 17, 3), (None, 16, 16, 3)" in text


@pytest.mark.every_backend
def test_there_and_back_is_the_same():
    model = convnet()
    model.compile("adam", "mse")
    wide = rg.clone(model, inputs=(16, 16, 3))
    back = rg.clone(wide, inputs=(8, 8, 3))
    rg.verify(model, back, inputs=False).raise_if_different()
    x = keras.Input((16, 16, 3), name="image")
    back = rg.clone(rg.clone(model, inputs=x), inputs=(8, 8, 3))
    rg.verify(model, back, inputs=False).raise_if_different()


def test_an_axis_of_which_nothing_is_left_is_refused():
    text = refused(chain(lambda x: x[:, 3:]), (3, 8, 3))
    assert "nothing is left of an axis: (None, 0, 8, 3)" in text
    assert "An operation cannot follow" in text


def test_a_refusal_inside_a_model_names_the_way_to_it():
    inner = keras.Sequential(
        [layers.Flatten(), layers.Dense(2, name="head")], name="inner"
    )
    assert "where: net/inner/head (Dense)" in refused(chain(inner), (9, 9, 3))


class Own(keras.Model):
    def call(self, x):
        return x


@pytest.mark.parametrize(
    ("make", "inputs", "kind", "text"),
    [
        (Own, (3,), ValueError, "This model has no graph"),
        (lambda: layers.Dense(2), (3,), ValueError, "This model has no graph"),
        (
            lambda: keras.Sequential([layers.Dense(2)]),
            (3,),
            ValueError,
            "which is not built",
        ),
        (two_inputs, (3,), ValueError, "The model has 2 inputs, not 1."),
        (two_inputs, {"aa": (3,)}, ValueError, "Did you mean 'a'?"),
        (convnet, (0, 8, 3), ValueError, "A size is not positive."),
        (convnet, "big", TypeError, "This cannot become an input."),
        (convnet, [True], TypeError, "received: True (of type bool)"),
        (convnet, np.ones((3,)), ValueError, "another number of axes"),
    ],
)
def test_wrong_inputs_are_refused(make, inputs, kind, text):
    model = make()
    with pytest.raises(rg.UsageError) as error:
        rg.clone(model, inputs=inputs)
    assert isinstance(error.value, kind)
    assert text in str(error.value)
    for part in ("  where: ", "  expected: ", "  received: ", "  what to do: "):
        assert part in str(error.value)


def test_an_array_must_fit_the_dtype_of_the_input():
    x = keras.Input((4,), dtype="int32")
    model = keras.Model(x, layers.Embedding(5, 2)(x))
    with pytest.raises(rg.UsageError, match="loses values in the dtype of the input"):
        rg.clone(model, inputs=np.full((1, 4), 1.5))


@pytest.mark.every_backend
def test_layers_inside_a_quantized_attention():
    x = keras.Input((6, 8), name="x")
    model = keras.Model(x, layers.MultiHeadAttention(2, 4, name="mha")(x, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Inputs cannot be quantized.
        model.quantize("int4")
    new = rg.clone(model, inputs=(9, 8))
    assert new.output_shape == (None, 9, 8)
    assert_same_weights(model, new)
    given = np.random.default_rng(0).random((2, 9, 8), "float32")
    assert_close(new(given), model.get_layer("mha")(given, given))
    with pytest.raises(rg.ShapeError) as error:
        rg.clone(model, inputs=(6, 10))
    assert "mha/query/kernel of shape (8, 4) would have to be of shape (10, 4)" in (
        str(error.value)
    )
    assert "mha/query/bias of shape" not in str(error.value)


class Rows(layers.Layer):
    def call(self, x):
        return [x[:, i] for i in range(x.shape[1])]


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(
    "split", [lambda x: ops.unstack(x, axis=1), Rows(name="rows")], ids=["op", "layer"]
)
def test_another_number_of_outputs(split, size):
    x = keras.Input((3, 4))
    text = refused(keras.Model(x, split(x)[0]), (size, 4))
    assert f"it returns {size} tensors, where it returned 3" in text
    assert "leave the size of the axis as it is" in text
    assert "(None, 3, 4)" in text
    assert f"(None, {size}, 4)" in text

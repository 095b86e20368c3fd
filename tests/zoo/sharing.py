"""One layer in several places, and one variable in several layers."""

import keras
from keras import layers, ops

from .data import floats, tokens
from .registry import Case, case, learns


class TiedDecoder(layers.Layer):
    """Multiplies with the transposed kernel of another layer."""

    def __init__(self, encoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder = encoder

    def build(self, shape):
        width = self.encoder.kernel.shape[0]
        self.bias = self.add_weight(shape=(width,), initializer="zeros")

    def call(self, code):
        return ops.matmul(code, ops.transpose(self.encoder.kernel)) + self.bias


class Borrower(layers.Layer):
    """Tracks a variable that it was given."""

    def __init__(self, kernel, **kwargs):
        super().__init__(**kwargs)
        self.kernel = kernel

    def call(self, x):
        return ops.matmul(x, self.kernel)


class Noise(layers.Layer):
    """Draws from a generator that it was given."""

    def __init__(self, generator, **kwargs):
        super().__init__(**kwargs)
        self.generator = generator

    def call(self, x):
        return x + keras.random.normal(ops.shape(x), seed=self.generator)


def _built(layer, *shape):
    layer.build((None, *shape))
    return layer


@case("shared/called_twice")
def _():
    dense = layers.Dense(4)
    x = keras.Input((4,))
    return learns(keras.Model(x, dense(dense(x))), floats(4), floats(4))


@case("shared/siamese")
def _():
    a, b = keras.Input((4,)), keras.Input((4,))
    encoder = keras.Sequential([keras.Input((4,)), layers.Dense(3, "relu")])
    y = ops.abs(encoder(a) - encoder(b))
    model = keras.Model([a, b], layers.Dense(1)(y))
    return learns(model, [floats(4), floats(4, seed=1)], floats(1))


@case("shared/called_on_two_inputs_in_reverse")
def _():
    a, b = keras.Input((4,)), keras.Input((4,))
    dense = layers.Dense(2)
    second, first = dense(b), dense(a)
    model = keras.Model([a, b], [first, second])
    return learns(model, [floats(4), floats(4, seed=1)], [floats(2)] * 2)


@case("shared/across_nesting_levels")
def _():
    dense = layers.Dense(4)
    inside = keras.Input((4,))
    inner = keras.Model(inside, layers.ReLU()(dense(inside)))
    x = keras.Input((4,))
    return learns(keras.Model(x, dense(inner(x))), floats(4), floats(4))


@case("shared/between_two_nested_models")
def _():
    dense = layers.Dense(4)
    first = keras.Sequential([keras.Input((4,)), dense])
    second = keras.Sequential([keras.Input((4,)), layers.Dense(4), dense])
    x = keras.Input((4,))
    return learns(keras.Model(x, second(first(x))), floats(4), floats(4))


@case("shared/between_wrappers")
def _():
    dense = layers.Dense(4)
    x = keras.Input((5, 4))
    y = layers.TimeDistributed(dense)(x)
    y = layers.TimeDistributed(layers.TimeDistributed(dense))(y[:, None])
    y = dense(y[:, 0])
    return learns(keras.Model(x, y), floats(5, 4), floats(5, 4))


@case("shared/recurrent_layer_and_its_wrapper")
def _():
    lstm = layers.LSTM(3, return_sequences=True)
    x = keras.Input((5, 4))
    y = layers.Concatenate()([lstm(x), layers.Bidirectional(lstm)(x)])
    return learns(keras.Model(x, y), floats(5, 4), floats(5, 9))


@case("shared/one_cell_in_two_rnns")
def _():
    cell = layers.GRUCell(3)
    x = keras.Input((5, 4))
    y = layers.Add()([layers.RNN(cell)(x), layers.RNN(cell)(x[:, ::2])])
    return learns(keras.Model(x, y), floats(5, 4), floats(3))


@case("shared/dropout_called_twice")
def _():
    drop = layers.Dropout(0.5, seed=1)
    x = keras.Input((4,))
    y = layers.Dense(2)(drop(layers.Dense(4)(drop(x))))
    return learns(keras.Model(x, y), floats(4), floats(2))


@case("shared/batch_norm_called_twice")
def _():
    norm = layers.BatchNormalization()
    x = keras.Input((4,))
    return learns(keras.Model(x, norm(norm(x) * 2.0)), floats(4), floats(4))


@case("shared/called_at_two_ranks")
def _():
    dense = layers.Dense(3, activation="tanh")
    x = keras.Input((4,))
    sequence = layers.RepeatVector(2)(x)
    y = layers.Add()([layers.Flatten()(dense(sequence))[:, :3], dense(x)])
    return learns(keras.Model(x, y), floats(4), floats(3))


@case("shared/in_a_list_twice")
def _():
    class Repeats(layers.Layer):
        def __init__(self):
            super().__init__()
            dense = layers.Dense(4)
            self.stack = [dense, layers.ReLU(), dense]

        def build(self, shape):
            self.stack[0].build(shape)

        def call(self, x):
            for layer in self.stack:
                x = layer(x)
            return x

    x = keras.Input((4,))
    return learns(keras.Model(x, Repeats()(x)), floats(4), floats(4))


@case("shared/seed_generator")
def _():
    seed = keras.random.SeedGenerator(4)
    x = keras.Input((4,))
    y = layers.Dense(4)(Noise(seed)(x))
    return learns(keras.Model(x, Noise(seed)(y)), floats(4), floats(4))


@case("tied/decoder_reads_the_encoder")
def _():
    encoder = _built(layers.Dense(3), 4)
    x = keras.Input((4,))
    y = TiedDecoder(encoder)(encoder(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("tied/attribute_assignment")
def _():
    first, second = (_built(layers.Dense(4), 4) for _ in range(2))
    second._tracker.unlock()
    second._kernel = first._kernel
    x = keras.Input((4,))
    return Case(keras.Model(x, second(first(x))), floats(4))


@case("tied/tracked_by_two_layers")
def _():
    kernel = keras.Variable(floats(4, 4)[0], name="kernel")
    x = keras.Input((4,))
    y = Borrower(kernel)(layers.ReLU()(Borrower(kernel)(x)))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("tied/weight_lists_replaced")
def _():
    first, second = (_built(layers.Dense(4), 4) for _ in range(2))
    tracker = second._tracker
    tracker.unlock()
    second._trainable_variables[0] = first._trainable_variables[0]
    second._kernel = first._kernel
    tracker.lock()
    x = keras.Input((4,))
    return Case(keras.Model(x, second(first(x))), floats(4))


@case("tied/kernel_of_a_nested_model")
def _():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)])
    x = keras.Input((4,))
    y = Borrower(inner.layers[0].kernel)(inner(x))
    return learns(keras.Model(x, y), floats(4), floats(4))


@case("tied/across_nested_models")
def _():
    dense = _built(layers.Dense(3), 4)
    code = keras.Input((3,))
    decoder = keras.Model(code, TiedDecoder(dense)(code))
    x = keras.Input((4,))
    encoder = keras.Model(x, dense(x))
    return learns(keras.Model(x, decoder(encoder(x))), floats(4), floats(4))


@case("tied/reversible_embedding")
def _():
    embedding = layers.ReversibleEmbedding(7, 4)
    ids = keras.Input((5,), dtype="int32")
    y = embedding(layers.Dense(4)(embedding(ids)), reverse=True)
    return learns(keras.Model(ids, y), tokens(), floats(5, 7))


@case("tied/reversible_embedding_untied")
def _():
    embedding = layers.ReversibleEmbedding(7, 4, tie_weights=False)
    ids = keras.Input((5,), dtype="int32")
    y = embedding(embedding(ids), reverse=True)
    return learns(keras.Model(ids, y), tokens(), floats(5, 7))


@case("tied/embedding_as_a_softmax")
def _():
    embedding = layers.Embedding(7, 4)
    ids = keras.Input((5,), dtype="int32")
    y = embedding(ids)
    y = ops.matmul(y, ops.transpose(embedding.embeddings))
    return learns(keras.Model(ids, y), tokens(), floats(5, 7))


@case("tied/variable_of_the_model")
def _():
    class Scaled(keras.Model):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=(4,), initializer="ones")
            self.first = Borrower(self.scale)
            self.dense = layers.Dense(4)

        def build(self, shape):
            self.dense.build(shape)
            self.built = True

        def call(self, x):
            return self.dense(x * self.scale) * self.first.kernel

    model = Scaled()
    model.build((None, 4))
    return learns(model, floats(4), floats(4))


@case("tied/list_and_attribute")
def _():
    class Both(layers.Layer):
        def build(self, shape):
            kernel = self.add_weight(shape=(4, 4))
            self.kernels = [kernel, self.add_weight(shape=(4, 4)), kernel]
            self.by_name = {"kernel": kernel}

        def call(self, x):
            for kernel in self.kernels:
                x = ops.matmul(x, kernel)
            return ops.matmul(x, self.by_name["kernel"])

    x = keras.Input((4,))
    return learns(keras.Model(x, Both()(x)), floats(4), floats(4))

"""Preprocessing layers, most of them adapted to data."""

import keras
import numpy as np
from keras import layers

from .data import floats, ints
from .registry import Case, case, learns

WORDS = np.array(["red", "green", "red", "blue"])
PHRASES = np.array(["the red fox", "the dog", "a green dog ran"])


def _lookup_case(layer, inputs, *adapt):
    """A lookup layer on its own: strings have no place in most graphs."""
    for data in adapt:
        layer.adapt(data)
    return Case(layer, inputs, training_calls_ok=False)


@case("preprocessing/normalization_adapted")
def _():
    layer = layers.Normalization()
    layer.adapt(5.0 + 2.0 * floats(4))
    x = keras.Input((4,))
    return learns(keras.Model(x, layers.Dense(2)(layer(x))), floats(4), floats(2))


@case("preprocessing/normalization_adapted_inside")
def _():
    layer = layers.Normalization(axis=None)
    model = keras.Sequential([keras.Input((4,)), layer, layers.Dense(2)])
    layer.adapt(5.0 + 2.0 * floats(4))
    return learns(model, floats(4), floats(2))


@case("preprocessing/normalization_given")
def _():
    layer = layers.Normalization(mean=[1.0, 2.0], variance=[4.0, 9.0])
    x = keras.Input((2,))
    return Case(keras.Model(x, layer(x)), floats(2))


@case("preprocessing/normalization_inverted")
def _():
    layer = layers.Normalization(invert=True)
    layer.adapt(5.0 + floats(4))
    return Case(layer, floats(4))


@case("preprocessing/discretization_adapted")
def _():
    layer = layers.Discretization(num_bins=3)
    layer.adapt(floats(50))
    x = keras.Input((4,))
    return Case(keras.Model(x, layer(x)), floats(4))


@case("preprocessing/discretization_given")
def _():
    layer = layers.Discretization([-1.0, 0.0, 1.0], output_mode="one_hot")
    return Case(layer, floats(1))


@case("preprocessing/category_encoding")
def _():
    layer = layers.CategoryEncoding(5, output_mode="multi_hot")
    x = keras.Input((3,), dtype="int32")
    return Case(keras.Model(x, layers.Dense(2)(layer(x))), ints(5, 3))


@case("preprocessing/category_counts")
def _():
    layer = layers.CategoryEncoding(5, output_mode="count")
    return Case(layer, ints(5, 3))


@case("preprocessing/rescaling")
def _():
    x = keras.Input((4,))
    y = layers.Rescaling([1.0, 2.0, 3.0, 4.0], offset=-1.0)(x)
    return Case(keras.Model(x, y), floats(4))


@case("preprocessing/mel_spectrogram")
def _():
    x = keras.Input((400,))
    layer = layers.MelSpectrogram(num_mel_bins=8, fft_length=64, sequence_stride=32)
    return Case(keras.Model(x, layer(x)), floats(400))


@case("preprocessing/stft_spectrogram")
def _():
    x = keras.Input((400, 1))
    layer = layers.STFTSpectrogram(frame_length=64, frame_step=32)
    return Case(keras.Model(x, layer(x)), floats(400, 1))


@case("preprocessing/hashing")
def _():
    return _lookup_case(layers.Hashing(3, salt=7), ints(100, 2))


@case("preprocessing/hashing_words")
def _():
    return _lookup_case(layers.Hashing(3, mask_value=""), WORDS[:, None])


@case("preprocessing/hashed_crossing")
def _():
    layer = layers.HashedCrossing(5, output_mode="one_hot")
    return _lookup_case(layer, (WORDS[:3], np.array([1, 2, 3])))


@case("preprocessing/string_lookup_adapted")
def _():
    return _lookup_case(layers.StringLookup(), WORDS, WORDS)


@case("preprocessing/string_lookup_given")
def _():
    layer = layers.StringLookup(vocabulary=["red", "blue"], num_oov_indices=2)
    return _lookup_case(layer, WORDS)


@case("preprocessing/string_lookup_inverted", backends=("torch", "tensorflow"))
def _():
    # JAX has no strings to give back.
    layer = layers.StringLookup(vocabulary=["red", "blue"], invert=True)
    return _lookup_case(layer, np.array([0, 1, 2]))


@case("preprocessing/string_lookup_tf_idf")
def _():
    layer = layers.StringLookup(output_mode="tf_idf", pad_to_max_tokens=False)
    return _lookup_case(layer, WORDS[None], WORDS[:, None])


@case("preprocessing/integer_lookup_adapted")
def _():
    numbers = np.array([[10], [20], [10], [30]])
    return _lookup_case(layers.IntegerLookup(), numbers, numbers)


@case("preprocessing/integer_lookup_multi_hot")
def _():
    layer = layers.IntegerLookup(vocabulary=[10, 20], output_mode="multi_hot")
    return _lookup_case(layer, np.array([[10, 5], [20, 10]]))


@case("preprocessing/text_vectorization_adapted")
def _():
    layer = layers.TextVectorization(output_sequence_length=4)
    return _lookup_case(layer, PHRASES, PHRASES)


@case("preprocessing/text_vectorization_ngrams")
def _():
    layer = layers.TextVectorization(ngrams=2, output_mode="count")
    return _lookup_case(layer, PHRASES, PHRASES)


@case("preprocessing/text_vectorization_given")
def _():
    layer = layers.TextVectorization(
        vocabulary=["red", "dog"], output_mode="int", split="whitespace"
    )
    return _lookup_case(layer, PHRASES)


@case("preprocessing/text_model", backends=("tensorflow",))
def _():
    layer = layers.TextVectorization(output_sequence_length=4)
    layer.adapt(PHRASES)
    text = keras.Input((), dtype="string")
    y = layers.Embedding(layer.vocabulary_size(), 3, mask_zero=True)(layer(text))
    model = keras.Model(text, layers.GRU(2)(y))
    return Case(model, keras.ops.convert_to_tensor(PHRASES))


@case("preprocessing/lookup_model", backends=("tensorflow",))
def _():
    layer = layers.StringLookup(output_mode="one_hot")
    layer.adapt(WORDS)
    word = keras.Input((1,), dtype="string")
    model = keras.Model(word, layers.Dense(2)(layer(word)))
    return Case(model, keras.ops.convert_to_tensor(WORDS[:, None]))


@case("preprocessing/integer_lookup_model", backends=("tensorflow",))
def _():
    layer = layers.IntegerLookup(vocabulary=[10, 20, 30])
    x = keras.Input((2,), dtype="int64")
    y = layers.Dense(2)(layers.Embedding(4, 3)(layer(x)))
    return learns(keras.Model(x, y), ints(4, 2, dtype="int64") * 10, floats(2, 2))


@case("preprocessing/feature_space")
def _():
    import tensorflow as tf

    data = {
        "size": np.array([1.0, 2.0, 3.0, 4.0], "float32"),
        "kind": np.array([1, 2, 1, 3]),
    }
    space = keras.utils.FeatureSpace(
        features={
            "size": keras.utils.FeatureSpace.float_normalized(),
            "kind": keras.utils.FeatureSpace.integer_categorical(),
        },
        crosses=[],
        output_mode="concat",
    )
    space.adapt(tf.data.Dataset.from_tensor_slices(data))
    return Case(space, data, training_calls_ok=False)


@case("preprocessing/feature_space_encoder", backends=("tensorflow",))
def _():
    import tensorflow as tf

    kinds = keras.utils.FeatureSpace
    space = kinds(
        features={"word": kinds.string_categorical(), "size": kinds.float()},
        output_mode="concat",
    )
    data = {"word": WORDS, "size": np.arange(4, dtype="float32")}
    space.adapt(tf.data.Dataset.from_tensor_slices(data))
    encoded = space.get_encoded_features()
    model = keras.Model(space.get_inputs(), layers.Dense(2)(encoded))
    inputs = {
        "word": tf.constant(WORDS[:, None]),
        "size": tf.constant(data["size"][:, None]),
    }
    return Case(model, inputs)

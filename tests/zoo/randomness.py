"""Layers that draw random numbers: regularization and augmentation."""

import keras
from keras import layers

from .data import floats
from .registry import Case, case, learns

PICTURE = (8, 8, 3)

REGULARIZERS = {
    "dropout": lambda seed: layers.Dropout(0.4, seed=seed),
    "dropout_noise_shape": lambda seed: layers.Dropout(
        0.4, noise_shape=(None, 1), seed=seed
    ),
    "gaussian_noise": lambda seed: layers.GaussianNoise(0.4, seed=seed),
    "gaussian_dropout": lambda seed: layers.GaussianDropout(0.4, seed=seed),
    "alpha_dropout": lambda seed: layers.AlphaDropout(0.4, seed=seed),
}

AUGMENTATIONS = {
    "flip": lambda seed: layers.RandomFlip("horizontal", seed=seed),
    "rotation": lambda seed: layers.RandomRotation(0.2, seed=seed),
    "zoom": lambda seed: layers.RandomZoom(0.2, seed=seed),
    "translation": lambda seed: layers.RandomTranslation(0.2, 0.1, seed=seed),
    "crop": lambda seed: layers.RandomCrop(5, 6, seed=seed),
    "contrast": lambda seed: layers.RandomContrast(0.3, seed=seed),
    "brightness": lambda seed: layers.RandomBrightness(
        0.3, value_range=(0.0, 1.0), seed=seed
    ),
    "shear": lambda seed: layers.RandomShear(0.2, 0.2, seed=seed),
    "hue": lambda seed: layers.RandomHue(0.3, value_range=(0.0, 1.0), seed=seed),
    "erasing": lambda seed: layers.RandomErasing(value_range=(0.0, 1.0), seed=seed),
    "gaussian_blur": lambda seed: layers.RandomGaussianBlur(
        value_range=(0.0, 1.0), seed=seed
    ),
    "color_jitter": lambda seed: layers.RandomColorJitter(
        (0.0, 1.0), 0.2, 0.2, 0.2, 0.2, seed=seed
    ),
    "rand_augment": lambda seed: layers.RandAugment((0.0, 1.0), num_ops=1, seed=seed),
}


def _pictures():
    return (floats(*PICTURE) % 1.0).astype("float32")


def _regularized(make, seed):
    x = keras.Input((4,))
    y = layers.Dense(2)(make(seed)(layers.Dense(4)(x)))
    return learns(keras.Model(x, y), floats(4), floats(2))


def _augmented(make, seed):
    x = keras.Input(PICTURE)
    return Case(keras.Model(x, make(seed)(x)), _pictures())


for _seed, _label in ((5, "seeded"), (None, "unseeded")):
    for _name, _make in REGULARIZERS.items():
        case(f"random/{_name}_{_label}")(
            lambda make=_make, seed=_seed: _regularized(make, seed)
        )

for _name, _make in AUGMENTATIONS.items():
    case(f"augment/{_name}")(lambda make=_make: _augmented(make, 5))

for _name in ("flip", "rotation"):
    case(f"augment/{_name}_unseeded")(
        lambda make=AUGMENTATIONS[_name]: _augmented(make, None)
    )


@case("random/spatial_dropout")
def _():
    x = keras.Input((5, 4))
    y = layers.SpatialDropout1D(0.5, seed=3)(x)
    return learns(keras.Model(x, layers.Dense(2)(y)), floats(5, 4), floats(5, 2))


@case("random/streams_already_drawn_from")
def _():
    x = keras.Input((4,))
    y = layers.Dense(4)(layers.Dropout(0.5, seed=1)(x))
    model = keras.Model(x, layers.GaussianNoise(1.0, seed=2)(y))
    for _ in range(3):
        model(floats(4), training=True)
    return learns(model, floats(4), floats(4))


@case("augment/pipeline")
def _():
    pipeline = layers.Pipeline(
        [layers.RandomFlip(seed=1), layers.RandomContrast(0.1, seed=2)]
    )
    x = keras.Input(PICTURE)
    return Case(keras.Model(x, pipeline(x)), _pictures())


@case("augment/before_a_classifier")
def _():
    model = keras.Sequential(
        [
            keras.Input(PICTURE),
            layers.RandomFlip(seed=1),
            layers.RandomTranslation(0.1, 0.1, seed=2),
            layers.Conv2D(2, 3),
            layers.GlobalMaxPooling2D(),
            layers.Dense(2),
        ]
    )
    return learns(model, _pictures(), floats(2))


@case("augment/mix_up")
def _():
    layer = layers.MixUp(alpha=0.3, seed=1)
    return Case(layer, {"images": _pictures(), "labels": floats(2)})


@case("augment/cut_mix")
def _():
    layer = layers.CutMix(0.5, seed=1)
    return Case(layer, {"images": _pictures(), "labels": floats(2)})

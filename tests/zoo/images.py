"""Convolutions and pools of every kind, one layer a case."""

import keras
from keras import layers

from .data import floats
from .registry import Case, case, learns

LINE, PLANE, CUBE = (8, 4), (8, 8, 4), (6, 6, 6, 2)

CONVOLUTIONS = {
    "conv1d": (LINE, lambda: layers.Conv1D(3, 2, padding="causal")),
    "conv1d_dilated": (LINE, lambda: layers.Conv1D(3, 2, dilation_rate=2)),
    "conv1d_grouped": (LINE, lambda: layers.Conv1D(4, 3, groups=2)),
    "conv1d_transpose": (LINE, lambda: layers.Conv1DTranspose(3, 2, 2)),
    "conv2d": (PLANE, lambda: layers.Conv2D(3, 3, 2, activation="relu")),
    "conv2d_same": (PLANE, lambda: layers.Conv2D(3, (2, 3), padding="same")),
    "conv2d_transpose": (PLANE, lambda: layers.Conv2DTranspose(3, 3, 2, "same")),
    "conv3d": (CUBE, lambda: layers.Conv3D(2, 2, use_bias=False)),
    "conv3d_transpose": (CUBE, lambda: layers.Conv3DTranspose(2, 2)),
    "depthwise1d": (LINE, lambda: layers.DepthwiseConv1D(3, depth_multiplier=2)),
    "depthwise2d": (PLANE, lambda: layers.DepthwiseConv2D(3)),
    "separable1d": (LINE, lambda: layers.SeparableConv1D(3, 2)),
    "separable2d": (PLANE, lambda: layers.SeparableConv2D(3, 3, padding="same")),
}

POOLS = {
    "max1d": (LINE, lambda: layers.MaxPooling1D(2)),
    "max2d": (PLANE, lambda: layers.MaxPooling2D((2, 3), 2, "same")),
    "max3d": (CUBE, lambda: layers.MaxPooling3D(2)),
    "average1d": (LINE, lambda: layers.AveragePooling1D(3, 1)),
    "average2d": (PLANE, lambda: layers.AveragePooling2D(2)),
    "average3d": (CUBE, lambda: layers.AveragePooling3D(2)),
    "global_max1d": (LINE, lambda: layers.GlobalMaxPooling1D(keepdims=True)),
    "global_max2d": (PLANE, layers.GlobalMaxPooling2D),
    "global_max3d": (CUBE, layers.GlobalMaxPooling3D),
    "global_average1d": (LINE, layers.GlobalAveragePooling1D),
    "global_average2d": (PLANE, layers.GlobalAveragePooling2D),
    "global_average3d": (CUBE, layers.GlobalAveragePooling3D),
    "adaptive_max2d": (PLANE, lambda: layers.AdaptiveMaxPooling2D(3)),
    "adaptive_average2d": (PLANE, lambda: layers.AdaptiveAveragePooling2D(3)),
    "adaptive_average1d": (LINE, lambda: layers.AdaptiveAveragePooling1D(3)),
}


def _layer_case(shape, make):
    x = keras.Input(shape)
    return Case(keras.Model(x, make()(x)), floats(*shape))


for _group, _table in (("conv", CONVOLUTIONS), ("pool", POOLS)):
    for _name, (_shape, _make) in _table.items():
        case(f"{_group}/{_name}")(
            lambda shape=_shape, make=_make: _layer_case(shape, make)
        )


@case("conv/channels_first", backends=("jax", "torch"))
def _():
    # TensorFlow on a CPU convolves channels_last only.
    x = keras.Input((2, 8, 8))
    y = layers.Conv2D(3, 3, data_format="channels_first")(x)
    y = layers.MaxPooling2D(data_format="channels_first")(y)
    return learns(keras.Model(x, y), floats(2, 8, 8), floats(3, 3, 3))


@case("conv/net")
def _():
    x = keras.Input((8, 8, 1))
    y = layers.Conv2D(3, 3, activation="relu")(x)
    y = layers.MaxPooling2D()(y)
    y = layers.SeparableConv2D(4, 2)(y)
    y = layers.BatchNormalization()(y)
    y = layers.GlobalAveragePooling2D()(y)
    model = keras.Model(x, layers.Dense(2)(layers.Dropout(0.2, seed=1)(y)))
    return learns(model, floats(8, 8, 1), floats(2))


@case("conv/cube_reshapes")
def _():
    x = keras.Input((3, 4, 4, 2))
    y = layers.ZeroPadding3D(1)(x)
    y = layers.Cropping3D(((1, 0), (0, 1), (1, 1)))(y)
    return Case(keras.Model(x, layers.UpSampling3D(2)(y)), floats(3, 4, 4, 2))

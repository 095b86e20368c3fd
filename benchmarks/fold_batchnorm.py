"""How much faster inference is when batch normalization is folded away.

    KERAS_BACKEND=torch python benchmarks/fold_batchnorm.py --only ResNet50

The two models take turns on the same images, after a round that does not count. The
figures are medians, and the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import keras
import numpy as np

import regraft

MODELS = ("MobileNetV3Small", "ResNet50", "EfficientNetV2B0")


def seconds(model: keras.Model, images: np.ndarray) -> float:
    start = time.perf_counter()
    model.predict_on_batch(images)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=MODELS)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch", type=int, default=4)
    chosen = parser.parse_args()
    shape = (chosen.size, chosen.size, 3)
    images = np.random.default_rng(0).uniform(0, 255, (chosen.batch, *shape))
    images = images.astype("float32")
    for name in chosen.only:
        model = getattr(keras.applications, name)(weights=None, input_shape=shape)
        pair = [model, regraft.recipes.fold_batchnorm(model)]
        times: list[list[float]] = [[], []]
        for turn in range(chosen.repeats + 2):
            for i in (0, 1) if turn % 2 else (1, 0):
                times[i].append(seconds(pair[i], images))
        before, after = (statistics.median(found[2:]) for found in times)
        [note] = regraft.lineage(pair[1]).notes
        print(
            f"{keras.backend.backend()} {name}: {1e3 * before:.1f} ms -> "
            f"{1e3 * after:.1f} ms, {before / after:.2f} times ({note})"
        )


if __name__ == "__main__":
    main()

"""Every recipe on networks that people use: what it does not name stays, bit by bit."""

import fnmatch
import warnings

import pytest
from keras import layers
from networks import NETWORKS

import regraft
from regraft import recipes

from .nets import assert_copied, untouched


def head():
    return layers.Dense(3, name="head")


def adapt(where):
    return lambda model: recipes.insert_adapters(model, where, 4)


def swap(old, new):
    return lambda model: recipes.swap_activation(model, old, new)


def prune(where):
    return lambda model: recipes.prune_channels(model, where, [0, 7], together=True)


# For each network what is done, and what variables it may change or bring.
CASES = {
    "resnet": [
        (lambda m: recipes.swap_head(m, head()), "head/*"),
        (lambda m: recipes.features(m, "conv3_block4_out"), ""),
        (lambda m: recipes.change_channels(m, 4), "conv1_conv/*"),
        (recipes.fold_batchnorm, "conv*_conv/*"),
        (lambda m: recipes.add_lora(m, "predictions", 2), "*/lora_*"),
        (adapt("conv4_*_out"), "*_adapter*/*"),
        (swap("relu", "gelu"), ""),
        (prune("conv5_block3_1_conv"), "conv5_block3_[12]_*/*"),
    ],
    "efficientnet": [
        (lambda m: recipes.swap_head(m, head()), "head/*"),
        (lambda m: recipes.features(m, "block4a_expand_activation"), ""),
        (lambda m: recipes.change_channels(m, 1), "stem_conv/*"),
        (recipes.fold_batchnorm, "*conv*/*"),
        (lambda m: recipes.add_lora(m, "predictions", 2), "*/lora_*"),
        (adapt("block5*_add"), "*_adapter*/*"),
        (swap("silu", "relu"), ""),
        (prune("block6a_expand_conv"), "block6a_*/*"),
    ],
    "mobilenet": [
        (lambda m: recipes.swap_head(m, head()), "head/*"),
        (lambda m: recipes.features(m, "expanded_conv_3_project_bn"), ""),
        (lambda m: recipes.change_channels(m, 4), "conv/*"),
        (recipes.fold_batchnorm, "*conv*/*"),
        (adapt("expanded_conv_*_add"), "*_adapter*/*"),
        (swap("relu", "gelu"), ""),
        (prune("expanded_conv_5_expand"), "expanded_conv_5_*/*"),
    ],
    "transformer": [
        (lambda m: recipes.swap_head(m, layers.Dense(3, name="new")), "new/*"),
        (lambda m: recipes.features(m, "norm_*"), ""),
        (lambda m: recipes.add_lora(m, "*/query", 2), "*/lora_*"),
        (adapt("sum_*"), "*_adapter*/*"),
        (swap("relu", "gelu"), ""),
        (prune("up_0"), "*_0/*"),
    ],
    "backbone": [
        (lambda m: recipes.swap_head(m, head(), output=0), "head/*"),
        (lambda m: recipes.features(m, "transformer_layer_?"), ""),
        (lambda m: recipes.add_lora(m, "*/query", 2), "*/lora_*"),
        (adapt("transformer_layer_?"), "*_adapter*/*"),
        (swap("tanh", "relu"), ""),
        (prune("pooled_dense"), "pooled_dense/*"),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_recipe_does_not_name_stays(name):
    model = NETWORKS[name]()
    with untouched(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Classes change, and files do not tell.
        for recipe, pattern in CASES[name]:
            made = recipe(model)
            assert_copied(made, model)
            lineage = regraft.lineage(made)
            other = [fate for fate in lineage if fate.what not in ("copied", "dropped")]
            assert [f for f in other if not fnmatch.fnmatch(f.path, pattern)] == []

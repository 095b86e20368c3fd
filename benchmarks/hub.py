"""A zoo of real architectures, each as small as it will go.

`BACKBONES` has a builder for every backbone that `keras_hub.models` exports,
with a tiny configuration and random weights; `APPLICATIONS` has one for every
family in `keras.applications`. A builder takes nothing and returns the model
and a batch of NumPy inputs it can be called on:

>>> model, inputs = BACKBONES["BertBackbone"]()
>>> outputs = model(inputs, training=False)

Nothing is downloaded. `uncovered()` names what a newer Keras Hub exports and
this file does not build yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras_hub import layers, models
from numpy.typing import NDArray

Array = NDArray[Any]
Inputs = Array | list[Array] | dict[str, Array]
Builder = Callable[[], tuple[keras.Model, Inputs]]
Config = dict[str, Any]

BATCH = 2
LENGTH = 6  # tokens in a sequence
IMAGE = 32  # pixels along a side, where the model leaves it open
VOCABULARY = 16

BACKBONES: dict[str, Builder] = {}
APPLICATIONS: dict[str, Builder] = {}

# Second names of one and the same class.
ALIASES = {
    "ESM2Backbone": "ESMBackbone",
    "Qwen2Backbone": "QwenBackbone",
    "SmolLMBackbone": "SmolLM3Backbone",
}

# Base classes that cannot be built on their own.
ABSTRACT = frozenset({"Backbone", "FeaturePyramidBackbone"})

# model -> backend -> why the library it comes from cannot build it there.
SKIP: dict[str, dict[str, str]] = {
    "NASNetMobile": {"torch": "keras.applications refuses to build it on torch"},
}


def uncovered() -> list[str]:
    """Names the exported backbones that have no builder here."""
    exported = {name for name in dir(models) if name.endswith("Backbone")}
    return sorted(exported - BACKBONES.keys() - ALIASES.keys() - ABSTRACT)


# Inputs


def sample(
    model: keras.Model, *, batch: int = BATCH, size: int = IMAGE, **given: Array
) -> Inputs:
    """Draws a batch for `model`, in the structure of its symbolic inputs.

    Args:
        model: A built Functional model.
        batch: How many samples to draw.
        size: What an open dimension of an image is taken to be.
        **given: Arrays to use as they are, by the name of their input.
    """
    rng = np.random.default_rng(0)

    def draw(tensor: keras.KerasTensor) -> Array:
        if tensor.name in given:
            return given[tensor.name]
        rank = len(tensor.shape)
        free = size if rank >= 4 else LENGTH
        shape = (batch, *(free if d is None else d for d in tensor.shape[1:]))
        if tensor.name.endswith("mask"):
            mask = np.ones(shape, tensor.dtype)
            mask[-1, -1:] = 0
            return mask
        if tensor.name.endswith("segment_ids"):
            return rng.integers(0, 2, shape, dtype=tensor.dtype)
        if "int" in tensor.dtype:
            return rng.integers(1, VOCABULARY, shape, dtype=tensor.dtype)
        return rng.uniform(size=shape).astype(tensor.dtype)

    inputs: Inputs = keras.tree.map_structure(draw, model.input)
    return inputs


def _add(name: str, *, size: int = IMAGE, **config: Any) -> None:
    """Registers a backbone that needs nothing but plain configuration."""

    def build() -> tuple[keras.Model, Inputs]:
        model = getattr(models, name)(**config)
        return model, sample(model, size=size)

    BACKBONES[name] = build


def _composite(builder: Builder) -> Builder:
    """Registers a backbone built by a function named after it."""
    BACKBONES[builder.__name__] = builder
    return builder


def _float(*shape: int) -> Array:
    return np.random.default_rng(1).uniform(size=shape).astype("float32")


def _int(*shape: int) -> Array:
    return np.zeros(shape, "int32")


# Text

_BLOCKS: Config = {"num_layers": 2, "hidden_dim": 8, "intermediate_dim": 16}
_PLAIN: Config = {**_BLOCKS, "vocabulary_size": VOCABULARY, "num_heads": 2}
_SHORT: Config = {**_PLAIN, "max_sequence_length": LENGTH}
_GROUPED: Config = {
    **_BLOCKS,
    "vocabulary_size": VOCABULARY,
    "num_query_heads": 4,
    "num_key_value_heads": 2,
}
_EXPERTS: Config = {"num_experts": 4, "top_k": 2}

_add("AlbertBackbone", **_SHORT, embedding_dim=4)
_add("BartBackbone", **_SHORT)
_add("BertBackbone", **_SHORT)
_add("BloomBackbone", **_PLAIN)
_add("DebertaV3Backbone", **_SHORT, bucket_size=4)
_add("DistilBertBackbone", **_SHORT)
_add("ESMBackbone", **_SHORT)
_add("GPT2Backbone", **_SHORT)
_add("GPTNeoXBackbone", **_SHORT, rotary_percentage=0.5)
_add("OPTBackbone", **_SHORT)
_add("RobertaBackbone", **_SHORT)
_add("RoformerV2Backbone", **_PLAIN, head_size=4)
_add("T5Backbone", **_PLAIN)
_add("XLMRobertaBackbone", **_SHORT)
_add("XLNetBackbone", **_PLAIN)
_add(
    "EdRecBackbone",
    vocab_size=VOCABULARY,
    num_layers_enc=2,
    num_layers_dec=2,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=16,
)
_add(
    "ElectraBackbone",
    **_BLOCKS,
    vocab_size=VOCABULARY,
    num_heads=2,
    embedding_dim=4,
    max_sequence_length=LENGTH,
)
_add(
    "FNetBackbone",
    **_BLOCKS,
    vocabulary_size=VOCABULARY,
    max_sequence_length=LENGTH,
)
_add(
    "FalconBackbone",
    **_BLOCKS,
    vocabulary_size=VOCABULARY,
    num_attention_heads=2,
)

_add("GemmaBackbone", **_GROUPED, head_dim=4)
_add("GptOssBackbone", **_GROUPED, **_EXPERTS, sliding_window=4)
_add("Llama3Backbone", **_GROUPED)
_add("LlamaBackbone", **_GROUPED)
_add("MistralBackbone", **_GROUPED, sliding_window=4)
_add("MixtralBackbone", **_GROUPED, **_EXPERTS, sliding_window=4)
_add("Phi3Backbone", **_GROUPED)
_add("Qwen3Backbone", **_GROUPED, head_dim=4)
_add("QwenBackbone", **_GROUPED)
_add(
    "Qwen3MoeBackbone",
    **_GROUPED,
    **_EXPERTS,
    head_dim=4,
    moe_intermediate_dim=8,
)
_add(
    "QwenMoeBackbone",
    **_GROUPED,
    **_EXPERTS,
    moe_intermediate_dim=8,
    shared_expert_intermediate_dim=8,
)
_add(
    "RWKV7Backbone",
    hidden_size=8,
    head_size=4,
    num_layers=2,
    vocabulary_size=VOCABULARY,
    intermediate_dim=16,
    gate_lora=4,
    mv_lora=4,
    aaa_lora=4,
    decay_lora=4,
)
_add(
    "SmolLM3Backbone",
    **_BLOCKS,
    vocabulary_size=VOCABULARY,
    num_attention_heads=4,
    num_key_value_heads=2,
    attention_bias=False,
    attention_dropout=0.0,
    rope_layer_enabled_list=[True, False],
    layer_types=["attention"] * 2,
    mlp_bias=False,
    layer_norm_epsilon=1e-5,
    max_position_embeddings=LENGTH,
    rope_theta=10000.0,
    partial_rotary_factor=1.0,
)


def _both(**config: Any) -> Config:
    """The same configuration for an encoder and for a decoder."""
    return {
        f"{half}_{key}": value
        for half in ("encoder", "decoder")
        for key, value in config.items()
    }


_T5GEMMA: Config = {
    **_both(
        hidden_dim=8,
        intermediate_dim=16,
        num_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "vocabulary_size": VOCABULARY,
    "sliding_window": 4,
    "cross_attention_hidden_size": 8,
}
_add("T5GemmaBackbone", **_T5GEMMA)

_LINEAR: Config = {
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 2,
}


# Sound

_add("WhisperBackbone", **_PLAIN, num_mels=4, max_decoder_sequence_length=LENGTH)


@_composite
def MoonshineBackbone() -> tuple[keras.Model, Inputs]:
    model = models.MoonshineBackbone(
        vocabulary_size=VOCABULARY,
        filter_dim=8,
        hidden_dim=8,
        intermediate_dim=16,
        **_both(num_layers=1, num_heads=2),
    )
    samples = 1024  # the strided convolutions swallow most of them
    return model, sample(
        model,
        encoder_input_values=_float(BATCH, samples, 1),
        encoder_padding_mask=np.ones((BATCH, samples), bool),
    )


# Images

_VIT: Config = {
    "patch_size": 4,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "image_shape": (16, 16, 3),
}
_DINO: Config = {**_VIT, "intermediate_dim": 16}

_add("DINOV2Backbone", **_DINO, position_embedding_shape=(16, 16, 3))
_add("DINOV3Backbone", **_DINO)
_add("DeiTBackbone", **_DINO)
_add("DenseNetBackbone", stackwise_num_repeats=[1, 1, 1], growth_rate=4)
_add("ViTBackbone", **_VIT, mlp_dim=16)
_add("VGGBackbone", stackwise_num_repeats=[1, 1], stackwise_num_filters=[4, 8])
_add(
    "CSPNetBackbone",
    stem_filters=4,
    stem_kernel_size=3,
    stem_strides=1,
    stem_padding="same",
    stackwise_depth=[1, 1],
    stackwise_strides=2,
    stackwise_num_filters=[4, 8],
    block_type="dark_block",
    stage_type="csp",
    bottle_ratio=(0.5, 1.0),
    block_ratio=(1.0, 0.5),
    expand_ratio=(2.0, 1.0),
    down_growth=True,
)
_add(
    "EfficientNetBackbone",
    stackwise_width_coefficients=[1.0, 1.0, 1.0],
    stackwise_depth_coefficients=[1.0, 1.0, 1.0],
    stackwise_kernel_sizes=[3, 3, 3],
    stackwise_num_repeats=[1, 2, 1],
    stackwise_input_filters=[8, 8, 8],
    stackwise_output_filters=[8, 8, 8],
    stackwise_expansion_ratios=[1, 2, 2],
    stackwise_squeeze_and_excite_ratios=[0.0, 0.25, 0.25],
    stackwise_strides=[1, 2, 2],
    stackwise_block_types=["fused", "unfused", "v1"],
    stackwise_force_input_filters=[0, 0, 0],
    stackwise_nores_option=[False, False, False],
    num_features=16,
)
_add(
    "HGNetV2Backbone",
    depths=[1, 1],
    embedding_size=8,
    hidden_sizes=[8, 16],
    stem_channels=[3, 4, 8],
    hidden_act="relu",
    use_learnable_affine_block=True,
    stackwise_stage_filters=[[8, 4, 8, 1, 1, 3], [8, 4, 16, 1, 1, 3]],
    apply_downsample=[False, True],
    use_lightweight_conv_block=[False, True],
    image_shape=(IMAGE, IMAGE, 3),
)
_add(
    "MobileNetBackbone",
    stackwise_expansion=[[8], [8, 8]],
    stackwise_num_blocks=[1, 2],
    stackwise_num_filters=[[8], [8, 8]],
    stackwise_kernel_size=[[3], [3, 5]],
    stackwise_num_strides=[[2], [2, 1]],
    stackwise_se_ratio=[[None], [0.25, 0.25]],
    stackwise_activation=[["relu"], ["hard_swish", "hard_swish"]],
    stackwise_padding=[[1], [1, 2]],
    output_num_filters=16,
    depthwise_filters=8,
    depthwise_stride=2,
    depthwise_residual=False,
    last_layer_filter=16,
    squeeze_and_excite=0.5,
    input_num_filters=8,
    image_shape=(IMAGE, IMAGE, 3),
)
_add(
    "SwinTransformerBackbone",
    image_shape=(16, 16, 3),
    embed_dim=4,
    depths=(2, 2),
    num_heads=(1, 2),
    window_size=2,
    patch_size=2,
)
_add(
    "ViTDetBackbone",
    hidden_size=8,
    num_layers=2,
    intermediate_dim=16,
    num_heads=2,
    global_attention_layer_indices=[1],
    image_shape=(16, 16, 3),
    patch_size=4,
    num_output_channels=4,
    window_size=2,
)
_add(
    "XceptionBackbone",
    stackwise_conv_filters=[[4, 8], [8, 8]],
    stackwise_pooling=[True, False],
)

_RESNET: Config = {
    "input_conv_filters": [8],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 8, 8, 8],  # no other first width is taken
    "stackwise_num_blocks": [1, 1, 1, 1],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "bottleneck_block",
}
_add("ResNetBackbone", **_RESNET)

_MIT: Config = {
    "num_layers": 4,
    "hidden_dims": [4, 6, 8, 12],  # all different: SegFormer names layers by them
    "layerwise_depths": [1, 1, 1, 1],
    "layerwise_num_heads": [1, 1, 2, 2],
    "layerwise_sr_ratios": [8, 4, 2, 1],
    "layerwise_patch_sizes": [7, 3, 3, 3],
    "layerwise_strides": [4, 2, 2, 2],
    "max_drop_path_rate": 0.1,
    "image_shape": (64, 64, 3),
}
_add("MiTBackbone", **_MIT)

_MOBILENETV5: Config = {
    "stackwise_block_types": [["er"], ["uir", "mqa"]],
    "stackwise_num_blocks": [1, 2],
    "stackwise_num_filters": [[8], [8, 8]],
    "stackwise_strides": [[2], [2, 1]],
    "stackwise_act_layers": [["relu"], ["relu", "relu"]],
    "stackwise_exp_ratios": [[2.0], [2.0, 1.0]],
    "stackwise_se_ratios": [[0.0], [0.0, 0.0]],
    "stackwise_dw_kernel_sizes": [[0], [3, 3]],
    "stackwise_dw_start_kernel_sizes": [[0], [0, 0]],
    "stackwise_dw_end_kernel_sizes": [[0], [0, 0]],
    "stackwise_exp_kernel_sizes": [[3], [0, 0]],
    "stackwise_pw_kernel_sizes": [[1], [0, 0]],
    "stackwise_num_heads": [[0], [0, 2]],
    "stackwise_key_dims": [[0], [0, 4]],
    "stackwise_value_dims": [[0], [0, 4]],
    "stackwise_kv_strides": [[0], [0, 1]],
    "stackwise_use_cpe": [[False], [False, False]],
    "stem_size": 8,
    "num_features": 8,
    "image_shape": (IMAGE, IMAGE, 3),
}
_add("MobileNetV5Backbone", **_MOBILENETV5, use_msfa=False)


def _resnet() -> keras.Model:
    return models.ResNetBackbone(**_RESNET)


@_composite
def BASNetBackbone() -> tuple[keras.Model, Inputs]:
    model = models.BASNetBackbone(
        image_encoder=_resnet(), num_classes=1, projection_filters=8
    )
    return model, sample(model, size=64)


@_composite
def DeepLabV3Backbone() -> tuple[keras.Model, Inputs]:
    model = models.DeepLabV3Backbone(
        image_encoder=_resnet(),
        spatial_pyramid_pooling_key="P5",
        low_level_feature_key="P2",
        upsampling_size=8,
        dilation_rates=[1, 2],
        projection_filters=4,
        image_shape=(IMAGE, IMAGE, 3),
    )
    return model, sample(model)


@_composite
def DepthAnythingBackbone() -> tuple[keras.Model, Inputs]:
    model = models.DepthAnythingBackbone(
        image_encoder=models.DINOV2Backbone(
            **{**_DINO, "num_layers": 4, "image_shape": (IMAGE, IMAGE, 3)},
            position_embedding_shape=(IMAGE, IMAGE, 3),
        ),
        reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_dims=[4, 4, 8, 8],
        fusion_hidden_dim=8,
        head_hidden_dim=4,
        head_in_index=-1,
        feature_keys=["stage1", "stage2", "stage3", "stage4"],
    )
    return model, sample(model)


@_composite
def DFineBackbone() -> tuple[keras.Model, Inputs]:
    stages = ["stage3", "stage4"]
    encoder = models.HGNetV2Backbone(
        depths=[1, 1, 1, 1],
        embedding_size=8,
        hidden_sizes=[8, 8, 8, 8],
        stem_channels=[3, 8, 8],
        hidden_act="relu",
        use_learnable_affine_block=True,
        stackwise_stage_filters=[[8, 4, 8, 1, 1, 3]] * 4,
        apply_downsample=[False, True, True, True],
        use_lightweight_conv_block=[False, False, True, True],
        out_features=stages,
    )
    model = models.DFineBackbone(
        backbone=encoder,
        decoder_in_channels=[8, 8],
        encoder_hidden_dim=8,
        num_labels=4,
        num_denoising=0,
        learn_initial_query=False,
        num_queries=4,
        anchor_image_size=(64, 64),
        feat_strides=[16, 32],
        num_feature_levels=2,
        hidden_dim=8,
        encoder_in_channels=[8, 8],
        encode_proj_layers=[1],
        num_attention_heads=2,
        encoder_ffn_dim=16,
        num_encoder_layers=1,
        hidden_expansion=0.5,
        depth_multiplier=0.34,
        eval_idx=-1,
        num_decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=16,
        decoder_n_points=[2, 2],
        lqe_hidden_dim=8,
        num_lqe_layers=2,
        out_features=stages,
        seed=0,
    )
    return model, sample(model, size=64)


@_composite
def RetinaNetBackbone() -> tuple[keras.Model, Inputs]:
    model = models.RetinaNetBackbone(
        image_encoder=_resnet(), min_level=3, max_level=6, use_p5=False
    )
    return model, sample(model, size=64)


@_composite
def SegFormerBackbone() -> tuple[keras.Model, Inputs]:
    model = models.SegFormerBackbone(
        image_encoder=models.MiTBackbone(**_MIT), projection_filters=8
    )
    return model, sample(model)


@_composite
def SAMBackbone() -> tuple[keras.Model, Inputs]:
    side, embedded = 16, 4
    model = models.SAMBackbone(
        image_encoder=models.ViTDetBackbone(
            hidden_size=8,
            num_layers=2,
            intermediate_dim=16,
            num_heads=2,
            global_attention_layer_indices=[1],
            image_shape=(side, side, 3),
            patch_size=side // embedded,
            num_output_channels=8,
            window_size=2,
        ),
        prompt_encoder=layers.SAMPromptEncoder(
            hidden_size=8,
            image_embedding_size=(embedded, embedded),
            input_image_size=(side, side),
            mask_in_channels=4,
        ),
        mask_decoder=layers.SAMMaskDecoder(
            num_layers=1,
            hidden_size=8,
            intermediate_dim=16,
            num_heads=2,
            embedding_dim=8,
            num_multimask_outputs=2,
            iou_head_depth=2,
            iou_head_hidden_dim=8,
        ),
    )
    return model, sample(
        model,
        points=_float(BATCH, 1, 2),
        labels=np.ones((BATCH, 1), "float32"),
        boxes=_float(BATCH, 1, 2, 2),
        masks=_float(BATCH, 1, 4 * embedded, 4 * embedded, 1),
    )


# Images and words

_TOWER: Config = {**_BLOCKS, "num_heads": 2}
_WORDS: Config = {
    **_TOWER,
    "vocabulary_size": VOCABULARY,
    "embedding_dim": 8,
    "max_sequence_length": LENGTH,
}
_PICTURES: Config = {**_TOWER, "patch_size": 4, "image_shape": (16, 16, 3)}


@_composite
def CLIPBackbone() -> tuple[keras.Model, Inputs]:
    model = models.CLIPBackbone(
        vision_encoder=models.CLIPVisionEncoder(**_PICTURES),
        text_encoder=models.CLIPTextEncoder(**_WORDS),
        projection_dim=4,
    )
    return model, sample(model)


@_composite
def MetaCLIP2Backbone() -> tuple[keras.Model, Inputs]:
    model = models.MetaCLIP2Backbone(
        vision_encoder=models.MetaCLIP2VisionEncoder(**_PICTURES),
        text_encoder=models.MetaCLIP2TextEncoder(**_WORDS),
        projection_dim=4,
    )
    return model, sample(model)


@_composite
def SigLIPBackbone() -> tuple[keras.Model, Inputs]:
    model = models.SigLIPBackbone(
        vision_encoder=models.SigLIPVisionEncoder(**_PICTURES),
        text_encoder=models.SigLIPTextEncoder(**_WORDS),
    )
    return model, sample(model)


@_composite
def BLIP2Backbone() -> tuple[keras.Model, Inputs]:
    queries = 2
    model = models.BLIP2Backbone(
        vision_encoder=models.BLIP2VisionEncoder(
            **_TOWER,
            image_size=16,
            patch_size=4,
            use_patch_bias=True,
            use_class_token=True,
            use_mha_bias=True,
            use_mlp_bias=True,
            dropout_rate=0.0,
            layer_norm_epsilon=1e-6,
            initializer_range=0.02,
        ),
        qformer=models.BLIP2QFormer(
            **_TOWER,
            num_query_tokens=queries,
            vision_dim=8,
            cross_attention_frequency=1,
            dropout=0.0,
            layer_norm_epsilon=1e-6,
        ),
        language_model=models.BLIP2CustomOPT(
            **_TOWER,
            vocabulary_size=VOCABULARY,
            num_query_tokens=queries,
            qformer_hidden_dim=8,
            max_sequence_length=LENGTH + queries,
            dropout=0.0,
        ),
    )
    return model, sample(model)


@_composite
def PARSeqBackbone() -> tuple[keras.Model, Inputs]:
    model = models.PARSeqBackbone(
        image_encoder=models.ViTBackbone(**_VIT, mlp_dim=16, use_class_token=False),
        vocabulary_size=VOCABULARY,
        max_label_length=LENGTH,
        decoder_hidden_dim=8,
        num_decoder_layers=1,
        num_decoder_heads=2,
        decoder_mlp_dim=16,
    )
    return model, sample(model)


_add(
    "PaliGemmaBackbone",
    **_GROUPED,
    head_dim=4,
    image_size=16,
    vit_patch_size=4,
    vit_num_heads=2,
    vit_hidden_dim=8,
    vit_num_layers=2,
    vit_intermediate_dim=16,
)


@_composite
def Gemma3Backbone() -> tuple[keras.Model, Inputs]:
    model = models.Gemma3Backbone(
        **_GROUPED,
        head_dim=4,
        image_size=16,
        use_post_ffw_norm=True,
        use_post_attention_norm=True,
        use_sliding_window_attention=True,
        sliding_window_size=4,
        vision_encoder=_gemma3_vision(),
    )
    return model, sample(model, **_placed(images=_float(BATCH, 1, 16, 16, 3)))


@_composite
def Gemma3nBackbone() -> tuple[keras.Model, Inputs]:
    hears = {
        "hidden_size": 8,
        "input_feat_size": 16,
        "sscp_conv_channel_size": [4, 8],
        "sscp_conv_kernel_size": [(3, 3), (3, 3)],
        "sscp_conv_stride_size": [(2, 2), (2, 2)],
        "sscp_conv_group_norm_eps": 1e-5,
        "num_hidden_layers": 1,
        "rms_norm_eps": 1e-6,
        "gradient_clipping": 1.0,
        "residual_weight": 0.5,
        "num_attention_heads": 1,
        "attention_chunk_size": 4,
        "num_attention_context_right": 2,
        "num_attention_context_left": 2,
        "attention_logit_cap": 50.0,
        "conv_kernel_size": 3,
        "reduction_factor": 1,
    }
    sees = models.MobileNetV5Backbone(**_MOBILENETV5, use_msfa=False)
    model = models.Gemma3nBackbone(
        text_vocab_size=VOCABULARY,
        text_hidden_size=8,
        num_hidden_layers=2,
        pad_token_id=0,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        intermediate_size=[16, 16],
        hidden_activation="gelu_approximate",
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=4,
        rope_theta=10000.0,
        max_position_embeddings=LENGTH,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=2,
        altup_num_inputs=2,
        laurel_rank=1,
        vision_encoder_config=sees.get_config(),
        vision_hidden_size=8,
        audio_encoder_config=hears,
        audio_hidden_size=8,
    )
    return model, sample(
        model,
        images=_float(BATCH, 1, IMAGE, IMAGE, 3),
        input_features=_float(BATCH, 1, 16, 16),
        input_features_mask=np.zeros((BATCH, 1, 16), bool),
    )


@_composite
def Gemma4Backbone() -> tuple[keras.Model, Inputs]:
    model = models.Gemma4Backbone(
        **_GROUPED,
        head_dim=4,
        image_size=16,
        sliding_window_size=4,
        enable_moe_block=True,
        num_experts=4,
        expert_intermediate_dim=8,
        num_experts_per_token=2,
        vision_encoder=models.Gemma4VisionEncoder(
            **_TOWER,
            image_size=16,
            patch_size=4,
            pool_size=2,
            head_dim=4,
            num_key_value_heads=2,
            output_dim=8,
            position_embedding_size=16,
        ),
        audio_encoder=models.Gemma4AudioEncoder(
            input_feat_size=8,
            hidden_size=8,
            num_heads=2,
            num_layers=1,
            chunk_size=4,
            context_left=5,
            context_right=0,
            sscp_conv_channels=(4, 2),
            output_proj_dims=None,
            output_dim=8,
        ),
        num_audio_tokens_per_clip=4,
    )
    patches = (16 // 4) ** 2
    return model, sample(
        model,
        **_placed(pixel_values=_float(BATCH, 1, patches, 3 * 4 * 4)),
        pixel_position_ids=np.ones((BATCH, 1, patches, 2), "int32"),
        position_ids=np.tile(np.arange(LENGTH, dtype="int32"), (BATCH, 1)),
        audio_mel=_float(BATCH, 1, 16, 8),
        audio_mel_mask=np.ones((BATCH, 1, 16), "int32"),
        audio_indices=_int(BATCH, 4),
        audio_mask=_int(BATCH, LENGTH),
    )


@_composite
def T5Gemma2Backbone() -> tuple[keras.Model, Inputs]:
    model = models.T5Gemma2Backbone(**_T5GEMMA, vision_encoder=_gemma3_vision())
    return model, sample(model, **_placed(images=_float(BATCH, 1, 16, 16, 3)))


@_composite
def Qwen3_5Backbone() -> tuple[keras.Model, Inputs]:
    model = models.Qwen3_5Backbone(**_GROUPED, **_LINEAR)
    return model, sample(model)


@_composite
def Qwen3_5MoeBackbone() -> tuple[keras.Model, Inputs]:
    config = {**_GROUPED, **_LINEAR, **_EXPERTS}
    del config["intermediate_dim"]
    model = models.Qwen3_5MoeBackbone(
        **config, moe_intermediate_dim=8, shared_expert_intermediate_size=8
    )
    return model, sample(model)


def _gemma3_vision() -> keras.Model:
    return models.Gemma3VisionEncoder(
        **_TOWER, image_size=16, patch_size=4, pool_size=2, output_dim=8
    )


def _placed(**images: Array) -> dict[str, Any]:
    """Puts the four tokens of an image at the head of each sequence."""
    indices = np.tile(np.arange(4, dtype="int32"), (BATCH, 1))
    mask = _int(BATCH, LENGTH)
    mask[:, :4] = 1
    return {**images, "vision_indices": indices, "vision_mask": mask}


@_composite
def SAM3PromptableConceptBackbone() -> tuple[keras.Model, Inputs]:
    side = 56
    model = models.SAM3PromptableConceptBackbone(
        vision_encoder=layers.SAM3VisionEncoder(
            **_TOWER,
            image_shape=(side, side, 3),
            patch_size=14,
            fpn_hidden_dim=8,
            fpn_scale_factors=[4.0, 2.0, 1.0, 0.5],
            pretrain_image_shape=(28, 28, 3),
            window_size=2,
            global_attn_indexes=[1],
        ),
        text_encoder=layers.SAM3TextEncoder(**_WORDS),
        geometry_encoder=layers.SAM3GeometryEncoder(**_TOWER, roi_size=2),
        detr_encoder=layers.SAM3DetrEncoder(**_TOWER),
        detr_decoder=layers.SAM3DetrDecoder(
            **_TOWER,
            image_shape=(side, side, 3),
            patch_size=14,
            num_queries=4,
        ),
        mask_decoder=layers.SAM3MaskDecoder(
            num_upsampling_stages=3, hidden_dim=8, num_heads=2
        ),
    )
    # A prompt of words alone, since boxes need torchvision on torch, and one of
    # it: the mask of the boxes broadcasts only to one more row than boxes.
    return model, sample(model, batch=1, boxes=_float(1, 0, 5), box_labels=_int(1, 0))


@_composite
def VideoPrismBackbone() -> tuple[keras.Model, Inputs]:
    model = models.VideoPrismBackbone(
        num_frames=2,
        patch_size=4,
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_spatial_layers=1,
        num_temporal_layers=1,
        num_auxiliary_layers=1,
        vocabulary_size=VOCABULARY,
        num_text_layers=1,
        attention_logit_soft_cap=50.0,
        image_shape=(16, 16, 3),
    )
    return model, sample(model)


# Diffusion

_add(
    "FluxBackbone",
    input_channels=4,
    hidden_size=16,
    mlp_ratio=2.0,
    num_heads=2,
    depth=1,
    depth_single_blocks=1,
    axes_dim=[4, 2, 2],
    theta=10000,
    use_bias=True,
    guidance_embed=True,
    image_shape=(LENGTH, 4),
    text_shape=(LENGTH, 4),
    image_ids_shape=(LENGTH, 3),
    text_ids_shape=(LENGTH, 3),
    y_shape=(8,),
)


@_composite
def StableDiffusion3Backbone() -> tuple[keras.Model, Inputs]:
    # Keras Hub exports the model that needs an autoencoder, not the autoencoder.
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone

    model = models.StableDiffusion3Backbone(
        mmdit_patch_size=2,
        mmdit_hidden_dim=8,
        mmdit_num_layers=2,
        mmdit_num_heads=2,
        mmdit_position_size=8,
        mmdit_qk_norm=None,
        mmdit_dual_attention_indices=None,
        # The mode of the latent, not a draw: the outputs are then a function
        # of the inputs.
        vae=VAEBackbone([32] * 4, [1] * 4, [32] * 4, [1] * 4, "mode", name="vae"),
        clip_l=models.CLIPTextEncoder(
            **_WORDS, intermediate_output_index=-2, name="clip_l"
        ),
        clip_g=models.CLIPTextEncoder(
            **_WORDS, intermediate_output_index=-2, name="clip_g"
        ),
        image_shape=(IMAGE, IMAGE, 3),
    )
    # Else the scheduler keeps what tracing the symbolic call left in it.
    model.configure_scheduler(2)
    return model, sample(
        model,
        num_steps=np.full((BATCH,), 2, "int32"),
        guidance_scale=np.ones((BATCH,), "float32"),
    )


BACKBONES = dict(sorted(BACKBONES.items()))


# keras.applications


def _application(name: str, side: int) -> None:
    def build() -> tuple[keras.Model, Inputs]:
        model = getattr(keras.applications, name)(
            weights=None, input_shape=(side, side, 3), classes=10
        )
        return model, 255 * _float(BATCH, side, side, 3)

    APPLICATIONS[name] = build


for _name, _side in {
    "ConvNeXtTiny": 32,
    "DenseNet121": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionResNetV2": 75,
    "InceptionV3": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "NASNetMobile": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "VGG16": 32,
    "Xception": 71,
}.items():
    _application(_name, _side)

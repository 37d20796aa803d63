"""Networks of torchvision, timm and transformers, and small ones of single layers, with random
weights: `MODELS[name]()` returns a module and its inputs."""

import torch
from torch import nn
from torch.nn import functional as F


def normal(*shape):
    return torch.randn(*shape)


def integers(end, *shape):
    return torch.randint(0, end, shape)


def image(size):
    return (normal(1, 3, size, size),)


def vision(name, size=64, **options):
    def make():
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options), image(size)

    return make


def timm_model(name, size):
    """A model of timm; `None` is the size that its weights were trained for."""

    def make():
        import timm

        model = timm.create_model(name, pretrained=False)
        return model, image(size or model.default_cfg["input_size"][-1])

    return make


class Named(nn.Module):
    """Calls a model of transformers by names, and returns all tensors of its result."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        result = self.model(**dict(zip(self.names, inputs)), return_dict=True)
        return tuple(value for value in result.values() if isinstance(value, torch.Tensor))


def transformer(architecture, config, names, **options):
    def make():
        import transformers

        own = getattr(transformers, config)(**options)
        own._attn_implementation = "eager"
        size = options.get("image_size", 32)
        size = size if isinstance(size, int) else size[0]
        inputs = {
            "input_ids": lambda: integers(90, 1, 16),
            "attention_mask": lambda: torch.ones(1, 16, dtype=torch.int64),
            "token_type_ids": lambda: integers(2, 1, 16),
            "pixel_values": lambda: normal(1, 3, size, size),
            "decoder_input_ids": lambda: integers(90, 1, 8),
            "input_values": lambda: normal(1, 1600),
            "input_features": lambda: normal(1, 80, 64),
        }
        model = getattr(transformers, architecture)(own)
        return Named(model, names), tuple(inputs[name]() for name in names)

    return make


class Call(nn.Module):
    """A function of layers and inputs."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *inputs):
        return self.function(self.layers, *inputs)


def call(function, inputs, *layers):
    return lambda: (Call(function, *(layer() for layer in layers)), inputs())


def activations(_, x):
    return (
        F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x), F.selu(x),
        F.celu(x, 1.3), F.hardtanh(x), F.hardsigmoid(x), F.softsign(x), F.logsigmoid(x),
        F.relu6(x), F.tanhshrink(x), F.softshrink(x), F.hardshrink(x), F.log_softmax(x, 1),
        F.softmin(x, 0), torch.erf(x), torch.atan2(x, x + 1), torch.fmod(x, 0.3),
        torch.remainder(x, 0.3), torch.sign(x), torch.expm1(x), torch.log1p(x.abs()),
        torch.round(x * 4), torch.trunc(x * 4), torch.frac(x * 4), torch.clamp(x, min=0.1),
        torch.rsqrt(x.abs() + 1), torch.pow(x.abs(), 1.7), torch.floor_divide(x, 0.3),
        torch.lerp(x, x * 2, 0.3), torch.addcmul(x, x, x, value=0.5), torch.isnan(x),
        torch.logical_xor(x > 0, x > 1),
    )


def indexing(_, x, i):
    return (
        x[:, i], x.gather(1, i[None].expand(x.shape[0], -1)), torch.cumsum(x, 1), x.topk(3, 1)[0],
        x.sort(1, descending=True)[1], x.argmax(1), torch.where(x > 0, x, -x).flip(1),
        x.roll(2, 1), torch.tril(x @ x.T), x.std(1), x.var(0), x.norm(dim=1), x.logsumexp(1),
        torch.einsum("ij,kj->ik", x, x), x.unfold(1, 3, 2),
    )


def windows(_, x):
    return (
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        F.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True), F.lp_pool2d(x, 2, 3, 2),
        F.unfold(x, 3, padding=1), F.fold(F.unfold(x, 2, stride=2), (12, 10), 2, stride=2),
        F.local_response_norm(x, 3), F.normalize(x, dim=1), F.pad(x, (1, 2, 0, 1), mode="circular"),
    )


def resized(layers, x):
    large = F.interpolate(layers[0](x), scale_factor=2, mode="bicubic", align_corners=False)
    return large + F.interpolate(x, size=(18, 18), mode="bilinear", align_corners=True)


def mask():
    return torch.zeros(9, 9).masked_fill(torch.triu(torch.ones(9, 9), 1) > 0, float("-inf"))


MODELS = {
    "t_activations": call(activations, lambda: (normal(4, 9),)),
    "t_indexing": call(indexing, lambda: (normal(4, 10), integers(10, 5))),
    "t_windows": call(windows, lambda: (normal(1, 4, 12, 10),)),
    "t_resized": call(resized, lambda: image(9), lambda: nn.Conv2d(3, 3, 3, padding=1)),
    "t_gru": call(
        lambda m, x: m[0](x), lambda: (normal(2, 12, 16),),
        lambda: nn.GRU(16, 32, 2, bidirectional=True, batch_first=True),
    ),
    "t_lstm": call(
        lambda m, x: m[0](x)[0], lambda: (normal(2, 12, 16),),
        lambda: nn.LSTM(16, 32, 2, batch_first=True),
    ),
    "t_rnn": call(lambda m, x: m[0](x)[0], lambda: (normal(12, 2, 16),), lambda: nn.RNN(16, 32)),
    "t_transformer": lambda: (
        nn.Transformer(32, 4, 2, 2, 64, batch_first=True), (normal(2, 9, 32), normal(2, 7, 32)),
    ),
    "t_attention": call(
        lambda m, x, k: m[0](x, x, x, attn_mask=k)[0], lambda: (normal(2, 9, 32), mask()),
        lambda: nn.MultiheadAttention(32, 4, batch_first=True),
    ),
    "t_conv1d": lambda: (
        nn.Sequential(
            nn.Conv1d(8, 16, 5, 2, 2), nn.PReLU(16), nn.Conv1d(16, 16, 3, groups=4, dilation=2),
            nn.GLU(1), nn.ConvTranspose1d(8, 4, 4, 2, 1, output_padding=1), nn.Softplus(),
        ),
        (normal(2, 8, 50),),
    ),
    "t_conv3d": lambda: (
        nn.Sequential(
            nn.Conv3d(3, 8, 3, 1, 1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2),
            nn.ConvTranspose3d(8, 4, 2, 2), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool3d((4, 5, 6)),
        ),
        (normal(1, 3, 8, 10, 12),),
    ),
    "t_pixels": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2), nn.PixelUnshuffle(3),
            nn.InstanceNorm2d(27, affine=True), nn.Hardswish(), nn.ReflectionPad2d(2),
            nn.ReplicationPad2d((1, 0, 2, 1)),
        ),
        image(12),
    ),
    "t_grid": call(
        lambda _, x, t: F.grid_sample(
            x, F.affine_grid(t, [1, 3, 7, 9], align_corners=False), align_corners=False,
            padding_mode="border",
        ),
        lambda: (normal(1, 3, 8, 8), normal(1, 2, 3) * 0.5),
    ),
}

VISION = """convnext_tiny densenet121 efficientnet_v2_s mnasnet0_5 mobilenet_v3_small regnet_y_400mf
resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t"""
SEGMENTATION = "deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large"
MODELS |= {f"tv_{name}": vision(name) for name in VISION.split()}
MODELS |= {f"tv_{name}": vision(name, weights_backbone=None) for name in SEGMENTATION.split()}
MODELS |= {
    "tv_googlenet": vision("googlenet", aux_logits=False),
    "tv_inception_v3": vision("inception_v3", 80),
    "tv_maxvit_t": vision("maxvit_t", 224),
}

# With the size of their weights, because it is a part of the model.
TRAINED_SIZE = """beit_base_patch16_224 botnet26t_256 cait_xxs24_224 coat_lite_tiny
coatnet_nano_rw_224 convnextv2_atto crossvit_tiny_240 deit_tiny_distilled_patch16_224
edgenext_xx_small efficientformer_l1 efficientformerv2_s0 efficientvit_m0 focalnet_tiny_srf
gcvit_xxtiny hiera_tiny_224 lambda_resnet26t levit_128s maxvit_rmlp_pico_rw_256 mixer_s32_224
mvitv2_tiny nest_tiny_jx pit_ti_224 resmlp_12_224 sebotnet33ts_256 sequencer2d_s
swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_patch16_224 twins_pcpvt_small twins_svt_small
visformer_tiny vit_tiny_patch16_224 vitamin_small_224 xcit_nano_12_p16_224"""
ANY_SIZE = """convmixer_768_32 cspdarknet53 cspresnet50 dla34 dm_nfnet_f0 dpn68 efficientvit_b0
fastvit_t8 fbnetc_100 gcresnet33ts gernet_s ghostnet_100 hardcorenas_a hgnet_tiny hgnetv2_b0
hrnet_w18_small inception_next_tiny lcnet_050 mambaout_femto mixnet_s mobilenetv4_conv_small
mobilenetv4_hybrid_medium mobileone_s0 mobilevit_xxs mobilevitv2_050 nextvit_small poolformer_s12
pvt_v2_b0 rdnet_tiny repghostnet_050 repvgg_a0 repvit_m0_9 res2net50_14w_8s resnest14d resnetv2_50
rexnet_100 selecsls42b semnasnet_075 shvit_s1 skresnet18 spnasnet_100 starnet_s1 swiftformer_xs
tf_efficientnet_lite0 tinynet_e tresnet_m vovnet39a xception41"""
MODELS |= {f"timm_{name}": timm_model(name, None) for name in TRAINED_SIZE.split()}
MODELS |= {f"timm_{name}": timm_model(name, 64) for name in ANY_SIZE.split()}

SMALL = dict(
    vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=128,
)
GPT = dict(vocab_size=100, hidden_size=64, n_layer=2, n_head=4, use_cache=False)
T5 = dict(vocab_size=100, d_model=64, num_layers=2, num_heads=4, d_ff=128, d_kv=16)
ENCODER_DECODER = dict(
    vocab_size=100, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
    decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, use_cache=False,
)
VISION_SMALL = {name: value for name, value in SMALL.items() if name != "vocab_size"}
IDS, MASKED = ["input_ids"], ["input_ids", "attention_mask"]
TYPED, PIXELS = [*MASKED, "token_type_ids"], ["pixel_values"]


def encoders(names, inputs, **options):
    """Models whose class and configuration have one name."""
    return {
        f"hf_{name.lower()}": transformer(f"{name}Model", f"{name}Config", inputs, **options)
        for name in names.split()
    }


MODELS |= encoders("LayoutLM MPNet Roberta", MASKED, **SMALL)
MODELS |= encoders("Electra ConvBert", MASKED, embedding_size=32, **SMALL)
MODELS |= encoders("Albert", TYPED, embedding_size=32, **SMALL)
MODELS |= encoders("Esm", MASKED, position_embedding_type="rotary", pad_token_id=0, **SMALL)
MODELS |= encoders("GPTNeoX Phi", IDS, use_cache=False, **SMALL)
MODELS |= encoders("Falcon", IDS, use_cache=False, **SMALL)
MODELS |= encoders("Llama Mistral Qwen2", IDS, num_key_value_heads=2, use_cache=False, **SMALL)
MODELS |= encoders(
    "Gemma2 Qwen3", IDS, num_key_value_heads=2, head_dim=16, use_cache=False, **SMALL
)
MODELS |= encoders("Bloom", MASKED, **GPT)
MODELS |= encoders("Bart", ["input_ids", "decoder_input_ids"], **ENCODER_DECODER)
MODELS |= encoders("T5", ["input_ids", "decoder_input_ids"], use_cache=False, **T5)
MODELS |= encoders("Dinov2", PIXELS, image_size=56, patch_size=14, **VISION_SMALL)
MODELS |= {
    "hf_clip": transformer(
        "CLIPVisionModel", "CLIPVisionConfig", PIXELS, image_size=32, patch_size=8, **VISION_SMALL
    ),
    "hf_deberta": transformer(
        "DebertaV2Model", "DebertaV2Config", MASKED, relative_attention=True,
        pos_att_type=["p2c", "c2p"], position_buckets=8, max_relative_positions=16,
        norm_rel_ebd="layer_norm", share_att_key=True, **SMALL,
    ),
    "hf_distilbert": transformer(
        "DistilBertModel", "DistilBertConfig", MASKED, vocab_size=100, dim=64, n_layers=2,
        n_heads=4, hidden_dim=128,
    ),
    "hf_funnel": transformer(
        "FunnelBaseModel", "FunnelConfig", MASKED, vocab_size=100, block_sizes=[1, 1], d_model=64,
        n_head=4, d_head=16, d_inner=128,
    ),
    "hf_mamba": transformer(
        "MambaModel", "MambaConfig", IDS, vocab_size=100, hidden_size=32, num_hidden_layers=1,
        state_size=4, use_cache=False,
    ),
    "hf_mobilebert": transformer(
        "MobileBertModel", "MobileBertConfig", MASKED, vocab_size=100, hidden_size=64,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, embedding_size=32,
        true_hidden_size=32, intra_bottleneck_size=32,
    ),
    "hf_modernbert": transformer(
        "ModernBertModel", "ModernBertConfig", MASKED, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, cls_token_id=1, sep_token_id=2, **SMALL,
    ),
    "hf_nystromformer": transformer(
        "NystromformerModel", "NystromformerConfig", MASKED, num_landmarks=16,
        segment_means_seq_len=16, **SMALL,
    ),
    "hf_segformer": transformer(
        "SegformerForSemanticSegmentation", "SegformerConfig", PIXELS, image_size=64,
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4],
        decoder_hidden_size=32,
    ),
    "hf_swin2sr": transformer(
        "Swin2SRModel", "Swin2SRConfig", PIXELS, image_size=32, embed_dim=32, depths=[2, 2],
        num_heads=[2, 2], window_size=8,
    ),
    "hf_wav2vec2": transformer(
        "Wav2Vec2Model", "Wav2Vec2Config", ["input_values"], conv_dim=[32] * 7, **SMALL
    ),
    "hf_whisper": transformer(
        "WhisperModel", "WhisperConfig", ["input_features", "decoder_input_ids"], pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, max_source_positions=32,
        **ENCODER_DECODER,
    ),
}

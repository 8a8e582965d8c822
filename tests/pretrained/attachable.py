"""Small random models of transformers, and what they read; `EVERY` has all architectures."""

import torch
import transformers

# Each names, fuses or shares its projections in a way of its own. What works with all others: `test_architectures`.
ARCHITECTURES = ("bert", "gpt2", "gpt_neox", "llama", "bart", "t5")


def model_of(kind, **settings):
    """Its parameters are larger than transformers draws them, so that heads differ and a mask is seen."""
    return random_model(kind, 2 if kind == "t5" else 8, **settings)


def random_model(kind, times=1, **settings):
    """A small random model of `EVERY`, its matrices multiplied by ``times``; settings override those of its row."""
    name, sizes, _ = EVERY[kind]
    cls = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        model = cls(cls.config_class(**{**sizes, **settings})).eval()
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter.requires_grad:
                parameter.mul_(times)
    return model


def arguments(model, seed=0, lengths=(7, 5, 3), labels=False, left=False):
    """A padded batch."""
    draw = torch.Generator().manual_seed(seed)
    B, N = len(lengths), max(lengths)
    mask = (torch.arange(N) < torch.tensor(lengths)[:, None]).long()
    mask = mask.flip(1) if left else mask
    ids = torch.randint(4, 100, (B, N), generator=draw) * mask
    batch = {"input_ids": ids, "attention_mask": mask}
    target = torch.randint(4, 100, (B, N - 1), generator=draw)
    if model.config.is_encoder_decoder and not labels:
        batch["decoder_input_ids"] = target
    if labels:
        batch["labels"] = target if model.config.is_encoder_decoder else ids.masked_fill(mask == 0, -100)
    return batch


@torch.no_grad()
def logits(model, batch):
    return model(**batch).logits


def difference(one, other, batch):
    """Largest difference at real tokens."""
    if len(one.shape) == 3 and one.shape[1] == batch["attention_mask"].shape[1]:
        real = batch["attention_mask"].bool()
        one, other = one[real], other[real]
    return float((one - other).abs().max())


# ---- model class, sizes, and which inputs it takes. A new one costs a row here, and one in
# headdiv/pretrained/projections.py where it names its projections in a new way.

ENCODER = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64}
GROUPED = {**ENCODER, "num_key_value_heads": 2}
BOTH = {
    **{f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in
       (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))},
    "d_model": 32,
}  # fmt: skip
SQUARE = {"image_size": 8, "patch_size": 4}
IMAGE = {**ENCODER, **SQUARE}
SPECIAL = {"vocab_size": 100, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
TEXT = {**ENCODER, **SPECIAL}
SPEECH = {
    **ENCODER, "conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3], "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "layerdrop": 0.0,
}  # fmt: skip
SPEECH_TO_TEXT = {
    **SPECIAL, "num_mel_bins": 8, "max_source_positions": 10, "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
EXPERTS = {
    "num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}  # fmt: skip
FULL = {"layer_types": ["full_attention", "full_attention"]}
LENGTHS = torch.tensor([[6], [4]])
KEYS = {**TEXT, **GROUPED}
WIDE = {**KEYS, "head_dim": 8}
PAIR = {**BOTH, **SPECIAL}
T5 = {**SPECIAL, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 2}
NEO = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
EVERY = {
    "bert": ("BertForMaskedLM", TEXT, "text"),
    "roberta": ("RobertaForMaskedLM", TEXT, "text"),
    "gpt2": ("GPT2LMHeadModel", {**SPECIAL, "n_embd": 32, "n_head": 4, "n_layer": 2}, "text"),
    "opt": ("OPTForCausalLM", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}, "text"),
    "gpt_neox": ("GPTNeoXForCausalLM", TEXT, "text"),
    "llama": ("LlamaForCausalLM", KEYS, "text"),
    "mistral": ("MistralForCausalLM", KEYS, "text"),
    "qwen2": ("Qwen2ForCausalLM", KEYS, "text"),
    "qwen3": ("Qwen3ForCausalLM", {**KEYS, "head_dim": 16}, "text"),
    "marian": ("MarianMTModel", PAIR, "texts"),
    "bart": ("BartForConditionalGeneration", PAIR, "texts"),
    "t5": ("T5ForConditionalGeneration", T5, "texts"),
    "vit": ("ViTModel", IMAGE, "image"),
    "deit": ("DeiTModel", IMAGE, "image"),
    "dinov2": ("Dinov2Model", IMAGE, "image"),
    "beit": ("BeitModel", IMAGE, "image"),
    "vit_mae": ("ViTMAEModel", IMAGE, "image"),
    "yolos": ("YolosModel", {**IMAGE, "image_size": [8, 8], "num_detection_tokens": 2}, "image"),
    "clip": ("CLIPModel", {"text_config": TEXT, "vision_config": IMAGE, "projection_dim": 16}, "both"),
    "siglip": ("SiglipModel", {"text_config": TEXT, "vision_config": IMAGE}, "both"),
    "wav2vec2": ("Wav2Vec2Model", SPEECH, "speech"),
    "whisper": ("WhisperForConditionalGeneration", {**BOTH, **SPEECH_TO_TEXT}, "spectrum"),
    "gemma2": ("Gemma2ForCausalLM", WIDE, "text"),
    "gpt_oss": ("GptOssForCausalLM", {**WIDE, **EXPERTS}, "text"),
    "diffllama": ("DiffLlamaForCausalLM", {**TEXT, "num_key_value_heads": 4}, "text"),
    "qwen3_next": ("Qwen3NextForCausalLM", {**WIDE, **FULL, **EXPERTS}, "text"),
    "stablelm": ("StableLmForCausalLM", KEYS, "text"),
    "olmo2": ("Olmo2ForCausalLM", TEXT, "text"),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {"vocab_size": 100, "n_embd": 32, "n_head": 4, "n_layer": 2}, "text"),
    "umt5": ("UMT5ForConditionalGeneration", T5, "texts"),
    "doge": ("DogeForCausalLM", KEYS, "text"),
    "swin": ("SwinModel", {"embed_dim": 16, "depths": [2], "num_heads": [4], "window_size": 2, **SQUARE}, "image"),
    "albert": ("AlbertForMaskedLM", {**TEXT, "embedding_size": 16}, "text"),
    "modernbert": ("ModernBertForMaskedLM", {**TEXT, "sep_token_id": 2, "cls_token_id": 1}, "text"),
    "distilbert": (
        "DistilBertForMaskedLM",
        {**SPECIAL, "dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64},
        "text",
    ),
    "electra": ("ElectraForMaskedLM", {**TEXT, "embedding_size": 32}, "text"),
    "camembert": ("CamembertForMaskedLM", TEXT, "text"),
    "xlm_roberta": ("XLMRobertaForMaskedLM", TEXT, "text"),
    "data2vec_text": ("Data2VecTextForMaskedLM", TEXT, "text"),
    "ernie": ("ErnieForMaskedLM", TEXT, "text"),
    "phi": ("PhiForCausalLM", TEXT, "text"),
    "phi3": ("Phi3ForCausalLM", KEYS, "text"),
    "gptj": ("GPTJForCausalLM", {**SPECIAL, "n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4}, "text"),
    "gpt_neo": ("GPTNeoForCausalLM", {**SPECIAL, **NEO, "window_size": 3}, "text"),
    "gemma": ("GemmaForCausalLM", WIDE, "text"),
    "gemma3": ("Gemma3ForCausalLM", WIDE, "text"),
    "granite": ("GraniteForCausalLM", KEYS, "text"),
    "olmo": ("OlmoForCausalLM", KEYS, "text"),
    "cohere": ("CohereForCausalLM", KEYS, "text"),
    "starcoder2": ("Starcoder2ForCausalLM", KEYS, "text"),
    "mixtral": ("MixtralForCausalLM", {**KEYS, **EXPERTS}, "text"),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**WIDE, **EXPERTS}, "text"),
    "nemotron": ("NemotronForCausalLM", WIDE, "text"),
    "smollm3": ("SmolLM3ForCausalLM", KEYS, "text"),
    "helium": ("HeliumForCausalLM", WIDE, "text"),
    "glm": ("GlmForCausalLM", WIDE, "text"),
    "biogpt": ("BioGptForCausalLM", TEXT, "text"),
    "mbart": ("MBartForConditionalGeneration", PAIR, "texts"),
    "pegasus": ("PegasusForConditionalGeneration", PAIR, "texts"),
    "blenderbot": ("BlenderbotForConditionalGeneration", PAIR, "texts"),
    "m2m_100": ("M2M100ForConditionalGeneration", PAIR, "texts"),
    "plbart": ("PLBartForConditionalGeneration", PAIR, "texts"),
    "mt5": ("MT5ForConditionalGeneration", T5, "texts"),
    "hubert": ("HubertModel", SPEECH, "speech"),
    "vit_msn": ("ViTMSNModel", IMAGE, "image"),
    "ijepa": ("IJepaModel", IMAGE, "image"),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", IMAGE, "image"),
    "clip_vision_model": ("CLIPVisionModel", IMAGE, "image"),
    "deberta": ("DebertaForMaskedLM", {**TEXT, "pooler_hidden_size": 32}, "text"),
    "megatron-bert": ("MegatronBertForMaskedLM", TEXT, "text"),
    "bloom": ("BloomForCausalLM", {**SPECIAL, "hidden_size": 32, "n_head": 4, "n_layer": 2}, "text"),
    "falcon": (
        "FalconForCausalLM",
        {**SPECIAL, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2},
        "text",
    ),
    "xglm": (
        "XGLMForCausalLM",
        {**SPECIAL, "d_model": 32, "attention_heads": 4, "num_layers": 2, "ffn_dim": 64},
        "text",
    ),
}
INPUTS = {
    "text": lambda: {"input_ids": torch.randint(4, 90, (2, 6)), "attention_mask": torch.arange(6) < LENGTHS},
    "texts": lambda: INPUTS["text"]() | {"decoder_input_ids": torch.randint(4, 90, (2, 5))},
    "image": lambda: {"pixel_values": torch.randn(2, 3, 8, 8)},
    "both": lambda: INPUTS["text"]() | INPUTS["image"](),
    "speech": lambda: {"input_values": torch.randn(2, 400), "attention_mask": (torch.arange(400) < LENGTHS * 60)},
    "spectrum": lambda: {
        "input_features": torch.randn(2, 8, 20),
        "attention_mask": torch.arange(20) < LENGTHS,
        "decoder_input_ids": torch.randint(4, 90, (2, 6)),
        "decoder_attention_mask": torch.arange(6) < LENGTHS,
    },
}


def other(kind, **settings):
    """A small random model of `EVERY` and its arguments."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)  # not the parameters' numbers
        return random_model(kind, 4, **settings), INPUTS[EVERY[kind][2]]()


@torch.no_grad()
def output(model, batch):
    """Whatever comes first: logits, or states of the last layer."""
    return model(**batch)[0]

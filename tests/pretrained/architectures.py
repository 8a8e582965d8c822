"""More architectures of transformers, as in `attachable.OTHERS`: model class, sizes of its configuration, inputs.

`EVERY` has all of them; a new one costs a row here, and one in headdiv/pretrained/projections.py where it names its
projections in a new way.
"""

from attachable import BOTH, EXPERTS, GROUPED, IMAGE, OTHERS, SMALL, SPECIAL, SPEECH, TEXT

KEYS = {**TEXT, **GROUPED}
WIDE = {**KEYS, "head_dim": 8}
PAIR = {**BOTH, **SPECIAL}
NEO = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
MORE = {
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
    "mt5": ("MT5ForConditionalGeneration", {**SMALL["t5"][1], **SPECIAL}, "texts"),
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
TWO_STACKS = ("marian", "bart", "t5")
EVERY = {
    **{
        kind: (name, {**SPECIAL, **sizes}, "texts" if kind in TWO_STACKS else "text")
        for kind, (name, sizes) in SMALL.items()
    },
    **OTHERS,
    **MORE,
}

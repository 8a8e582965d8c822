"""Small random models of transformers, and what they read."""

import torch
import transformers

from headdiv.data.pretrained import ENCODER, SMALL, small_model

ARCHITECTURES = list(SMALL)


def model_of(kind, seed=1, **settings):
    """Its parameters are larger than transformers draws them, so that heads differ and a mask is seen."""
    model = small_model(kind, seed=seed, **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2 and parameter.requires_grad:
                parameter.mul_(8 if kind != "t5" else 2)
    return model


def arguments(model, seed=0, lengths=(7, 5, 3), labels=False, left=False):
    """A padded batch."""
    draw = torch.Generator().manual_seed(seed)
    B, N = len(lengths), max(lengths)
    mask = (torch.arange(N) < torch.tensor(lengths)[:, None]).long()
    mask = mask.flip(1) if left else mask
    ids = torch.randint(4, 100, (B, N), generator=draw) * mask
    given = {"input_ids": ids, "attention_mask": mask}
    target = torch.randint(4, 100, (B, N - 1), generator=draw)
    if model.config.is_encoder_decoder and not labels:
        given["decoder_input_ids"] = target
    if labels:
        given["labels"] = target if model.config.is_encoder_decoder else ids.masked_fill(mask == 0, -100)
    return given


@torch.no_grad()
def logits(model, given):
    return model(**given).logits


def difference(one, other, given):
    """Largest difference at real tokens."""
    if len(one.shape) == 3 and one.shape[1] == given["attention_mask"].shape[1]:
        real = given["attention_mask"].bool()
        one, other = one[real], other[real]
    return float((one - other).abs().max())


# ---- what is not in `SMALL`: model class, sizes, and which inputs it takes

IMAGE = {**ENCODER, "image_size": 8, "patch_size": 4}
OTHERS = {
    "vit": ("ViTModel", IMAGE, "image"),
    "deit": ("DeiTModel", IMAGE, "image"),
    "dinov2": ("Dinov2Model", IMAGE, "image"),
    "beit": ("BeitModel", IMAGE, "image"),
}
INPUTS = {
    "image": lambda: {"pixel_values": torch.randn(2, 3, 8, 8)},
}


def other(kind, **settings):
    """A small random model of `OTHERS` and its arguments."""
    name, sizes, inputs = OTHERS[kind]
    cls = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        model = cls(cls.config_class(**{**sizes, **settings})).eval()
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(4)
        return model, INPUTS[inputs]()


@torch.no_grad()
def output(model, given):
    """Whatever comes first: logits, or states of the last layer."""
    return model(**given)[0]

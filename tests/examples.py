"""Every method's options in a small size, and a tiny model one step into its training."""

import pytest
import torch
from small_model import Small, SmallSizes, initialise, loss_of, make_batch, some_pairs

from headdiv.methods import check_method, make_method
from headdiv.nn.packing import AttentionLayout, attention_mask, pack
from headdiv.nn.records import HeadRecord, record_heads
from headdiv.nn.sizes import AttentionSpec

ARCHITECTURES = ["direct", "average", "nonlinear"]
PLACES = ["subspace", "position", "output"]
CONFIG = SmallSizes(d_model=12, heads=3, d_ff=10, dropout=0.1)


def deacon(architecture="direct", m=3, **options):
    return {"name": "deacon", "architecture": architecture, "m": m, **options}


def sparse(attention="none", block="none", **options):
    return {"name": "homeostasis", "attention": attention, "block": block, **options}


def planned(**more):
    return {"layers": [1, 1], "epochs": [2], **more}


def dynamic(choice="hard", **more):
    return {"name": "dynamic-rotation", "choice": choice, **more}


def combined(*methods):
    """With every method's options filled in: their own tests say what is left out."""
    return check_method({"name": "combined", "methods": list(methods)}, CONFIG)


# By method: options that suit `CONFIG` and every larger model of an even number of heads.
EXAMPLES = {
    "baseline": [{"name": "baseline"}],
    "deacon": [
        *(deacon(name, gha_steps=5) for name in ARCHITECTURES),
        deacon(gha_steps=5, normalisation="layer", batch_norm_scale=0.3, update_every=2),
    ],
    "rotation": [{"name": "rotation", "plan": [{"kind": "cross", "layers": [1, 1], "heads": [[1, 2]], "epochs": [2]}]}],
    "dynamic-rotation": [{"name": "dynamic-rotation", "choice": "hard", "swaps": 1, "every": 1}],
    "mixing": [{"name": "mixing", "start": 0.0}],
    "disagreement": [{"name": "disagreement", "term": term} for term in PLACES],
    "dpp": [{"name": "dpp", "term": term} for term in PLACES],
    "orthogonality": [{"name": "orthogonality", "term": "output"}],
    "hsic": [{"name": "hsic", "term": "output"}],
    "head-scale": [{"name": "head-scale", "normalisation": "batch", "output_scale": 0.3, "gate": 0.5}],
    "homeostasis": [
        {"name": "homeostasis", "attention": "kwta", "s_att": 0.5},
        {"name": "homeostasis", "attention": "rfb-kwta", "block": "smart", "s_att": 0.5, "q_att": 4, "q_bo": 4},
        {"name": "homeostasis", "attention": "smart", "block": "rfb-kwta", "s_bo": 0.5, "q_att": 4, "q_bo": 4},
    ],
    "moa": [{"name": "moa", "experts": 4, "k": 2}, {"name": "moa", "experts": 5, "k": 3, "noisy": True}],
    "drop-head": [{"name": "drop-head", "start": 0.5}],
    "combined": [
        combined(deacon(gha_steps=5), {"name": "disagreement", "term": "output"}),
        combined({"name": "mixing", "start": 0.0}, {"name": "homeostasis", "attention": "kwta", "s_att": 0.5}),
    ],
}


# Held to the contracts by another example of their method, whose code they share.
ALIKE = {"disagreement-1", "disagreement-2", "dpp-2", "dpp-3", "homeostasis-3"}
OF_CONTRACTS = {
    f"{name}-{number}": options
    for name, examples in EXAMPLES.items()
    for number, options in enumerate(examples, start=1)
    if f"{name}-{number}" not in ALIKE
}


def every_method(*but):
    """Parametrises a test by ``options`` of every method, but those of these names."""
    chosen = {name: options for name, options in OF_CONTRACTS.items() if options["name"] not in but}
    return pytest.mark.parametrize("options", chosen.values(), ids=chosen)


def of_attention(options):
    """The options without what acts on the outputs of layers, which the drop-in refuses."""
    return {key: value for key, value in options.items() if key != "block"}


def watched_pass(model, method, batch, progress=0.5):
    """Hidden states of a pass through the model, and what the method adds to the loss (0 where it adds nothing)."""
    watched = method.required_records()
    if watched == "nothing":
        hidden, records = model(batch), []
    else:
        with record_heads(model, weights=watched == "weights") as records:
            hidden = model(batch)
    added = method.aux_loss(model, records, progress, max(len(hidden), 1))
    return hidden, hidden.new_zeros(()) if added is None else added


def tiny(options, dtype=torch.float64, seed=1, **sizes):
    """A fresh model in evaluation mode, and its method."""
    method = make_method(options)
    model = Small(CONFIG.model_copy(update=sizes), method)
    initialise(model, seed)
    return model.to(dtype).eval(), method


def heads_by_sentence(model, pairs):
    """What every module's heads do with each pair alone, without packing: spec, A (H, N, S), V (H, S, K), O (H, N, K).

    A line for each pair, in their order.
    """
    lines = []
    for i in range(len(pairs)):
        with record_heads(model) as records:
            model(make_batch(pairs, [i]))
        lines.append([(r.spec, r.weights[0], r.values.transpose(0, 1), r.outputs.transpose(0, 1)) for r in records])
    return lines


def record_of(weights, values, outputs):
    """A record of one sentence: A (H, N, S), V (H, S, K), O (H, N, K)."""
    queries, keys = (pack([x.shape[1]], [[0]]) for x in (outputs, values))
    layout = AttentionLayout(queries, keys, attention_mask(queries, keys))
    spec = AttentionSpec("cross", 0, values.shape[0] * values.shape[2], values.shape[0])
    return HeadRecord(spec, layout, weights[None], values.transpose(0, 1), outputs.transpose(0, 1))


def made_up_heads(seed, H=3, N=4, S=5, K=2, dtype=torch.float64):
    """A, V and O of one sentence, as `record_of` wants them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (H, N, S), (H, S, K), (H, N, K)
    scores, values, outputs = (torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    return scores.softmax(-1), values, outputs


def trained_one_step(options, dtype=torch.float32):
    """A model with all gradients in place, and its method."""
    method = make_method(options)
    model = Small(CONFIG, method)
    initialise(model, 1)
    model.to(dtype)
    torch.manual_seed(2)
    batch = make_batch(some_pairs(), range(6))
    hidden, added = watched_pass(model, method, batch)
    (loss_of(model, hidden, batch) + added).backward()
    return model, method

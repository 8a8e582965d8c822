"""The heads of a trained model: stories260K, a Llama of llama2.c, on texts that it has drawn itself."""

import itertools
import json
import math
import os
from pathlib import Path

import pytest
import torch

import headdiv

SOURCE = Path(os.environ.get("HEADDIV_MIRROR") or "", "stories260K")
pytestmark = pytest.mark.skipif(not SOURCE.is_dir(), reason="needs stories260K in HEADDIV_MIRROR")
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
TEXT = "Once upon a time, there was a little girl named Lily. She had 3 ü cats."


def logits_literal(model, ids):
    """run.c's forward pass, a word and a head at a time."""
    w, width, keys, values, rows = model.weights, model.dim // model.heads, {}, {}, []

    def norm(x, weight):
        return x / math.sqrt(float((x * x).mean()) + 1e-5) * weight

    def turned(x, place):
        x = x.clone()
        for first in range(0, len(x), 2):
            cosine, sine = w["cosine"][place, first % width // 2], w["sine"][place, first % width // 2]
            even, odd = x[first].clone(), x[first + 1].clone()
            x[first], x[first + 1] = even * cosine - odd * sine, even * sine + odd * cosine
        return x

    for place, word in enumerate(ids):
        x = w["embedding"][word].clone()
        for layer in range(model.layers):
            z, heads = norm(x, w["attention_norm"][layer]), []
            q = turned(w["q"][layer] @ z, place)
            keys[layer, place], values[layer, place] = turned(w["k"][layer] @ z, place), w["v"][layer] @ z
            for head in range(model.heads):
                shared = head // (model.heads // model.key_heads)
                own, of_group = (slice(i * width, (i + 1) * width) for i in (head, shared))
                scores = [q[own] @ keys[layer, s][of_group] / math.sqrt(width) for s in range(place + 1)]
                weights = torch.stack(scores).softmax(0)
                heads.append(sum(a * values[layer, s][of_group] for s, a in enumerate(weights)))
            x = x + w["o"][layer] @ torch.cat(heads)
            z = norm(x, w["mlp_norm"][layer])
            gate = w["w1"][layer] @ z
            x = x + w["w2"][layer] @ (gate * torch.sigmoid(gate) * (w["w3"][layer] @ z))
        rows.append(w["embedding"] @ norm(x, w["norm"]))
    return torch.stack(rows)


def ids_literal(pieces, text):
    """run.c's encoding: characters, or bytes where they are no piece; then the best pair is merged, again and again."""
    known = {piece: i for i, (piece, _) in enumerate(pieces)}
    ids = [known[" "]]
    for character in text:
        ids += [known[character]] if character in known else [byte + 3 for byte in character.encode()]
    while True:
        unions = [known.get(pieces[one][0] + pieces[two][0]) for one, two in itertools.pairwise(ids)]
        if not (found := [(pieces[union][1], -at) for at, union in enumerate(unions) if union is not None]):
            return [1, *ids]
        at = -max(found)[1]
        ids[at : at + 2] = [unions[at]]


def curve_of(heads, loss, order):
    return {each.kept: round(each.value, 3) for each in heads.pruning_curve(loss, order, steps=8)}


@pytest.mark.slow
def test_the_converted_llama_and_its_tokeniser_do_what_run_c_does():
    from llama2c import as_tokenizer, as_transformers, read_model, read_pieces

    original, pieces = read_model(SOURCE / "stories260K.bin"), read_pieces(SOURCE / "tok512.bin")
    model, tokenizer = as_transformers(original), as_tokenizer(pieces)
    ids = ids_literal(pieces, TEXT)
    assert tokenizer(TEXT)["input_ids"] == ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == TEXT
    with torch.no_grad():
        torch.testing.assert_close(
            model(torch.tensor([ids])).logits[0], logits_literal(original, ids), rtol=0, atol=2e-4
        )


@pytest.mark.slow
def test_heads_of_a_trained_llama_are_measured_masked_and_removed(tmp_path, capsys):
    from llama2c import convert

    tokenizer, texts = convert(SOURCE, tmp_path)
    model = headdiv.pretrained.load(tmp_path)
    ranked, held_out = (
        list(headdiv.pretrained.text_batches(model, tokenizer, of)) for of in (texts[:200], texts[200:])
    )
    heads = headdiv.pretrained.attach(model)
    loss = headdiv.pretrained.mean_loss(model, held_out)
    alone = heads.leave_one_out(headdiv.pretrained.mean_loss(model, ranked))
    orders = {
        "masked alone": headdiv.pretrained.least_important_first(alone),
        "gradient score": headdiv.pretrained.least_important_first(heads.importance(ranked)),
    }
    sizes = {name: getattr(model.config, name) for name in SIZES}
    untrained = headdiv.pretrained.attach(headdiv.pretrained.small_model("llama", model.config.vocab_size, **sizes))
    cka, of_untrained = (one.table(held_out, tokenizer.all_special_ids)["cka"].mean() for one in (heads, untrained))
    found = {
        "loss": loss(),
        "masked alone": sorted(round(each.change, 4) for each in alone),
        "curves": {name: curve_of(heads, loss, order) for name, order in orders.items()},
        "opposite": curve_of(heads, loss, orders["masked alone"][::-1]),
        "cka": cka,
        "cka untrained": of_untrained,
    }
    with capsys.disabled():
        print(json.dumps(found))
    assert found["loss"] < 1.5
    assert found["masked alone"][0] > 0
    assert cka < of_untrained / 2
    for curve in found["curves"].values():
        assert curve[35] < found["opposite"][35]
    group = [("decoder 1", 7), ("decoder 1", 8)]  # one key's heads
    with heads.without(group):
        masked = loss()
    removed = heads.remove(group, held_out[0])
    assert removed.parameters_after < removed.parameters_before
    assert loss() == pytest.approx(masked, abs=1e-5)

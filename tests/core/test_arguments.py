"""What is no argument of a public call is refused in one sentence that names it."""

import itertools

import pytest
import torch
from torch import nn

import headdiv
from headdiv import gha
from headdiv.core.errors import DataError, HeaddivError
from headdiv.pretrained import mean_loss, small_model, small_tokenizer, text_batches, text_examples


def encoder():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 16, batch_first=True), 1, enable_nested_tensor=False
    )
    headdiv.insert(model, {"name": "baseline"})
    return model


BATCH = torch.randn(1, 2, 16)
TEXTS = [  # what takes a list of texts
    small_tokenizer,
    lambda texts: next(text_batches(small_model("gpt2"), None, texts)),
    lambda texts: text_examples(small_model("gpt2"), None, texts),
]


@pytest.mark.parametrize("call", TEXTS)
def test_where_a_list_is_expected_nothing_endless_is_read(call):
    with pytest.raises(TypeError, match=r"^texts.*: found .*expected a list of"):
        call(itertools.cycle(["a"]))


def test_batches_without_a_length_are_no_batches_of_an_epoch():
    with pytest.raises(HeaddivError, match="has no length"):
        headdiv.Trainer(encoder(), itertools.cycle([BATCH]), lambda model, x: model(x).mean(), epochs=1)


C, w = torch.eye(3), torch.ones(3, 2)
WRONG = [
    (lambda: gha.covariance([1.0]), TypeError, "^rows: found"),
    (lambda: gha.moments(torch.ones(3)), ValueError, r"^rows: .*\(3,\), expected \(\.\.\., N, k\)"),
    (lambda: gha.sanger_rule(C, torch.ones(2, 2)), ValueError, r"^C and w: .*\(3, 3\) and \(2, 2\)"),
    (lambda: gha.sanger_rule(C.long(), w), TypeError, "^C: .*int64"),
    (lambda: gha.sanger_rule(C.double(), w), TypeError, "^C and w: .*float64"),
    (lambda: gha.gha_inner_loop(C, w, 0.5), TypeError, "^steps: found 0.5"),
    (lambda: gha.gha_inner_loop(C, w, 3, "fast"), TypeError, "^lr: found 'fast'"),
    (lambda: gha.principal_components(torch.ones(3, 2), 1), ValueError, "^C: "),
    (lambda: gha.deacon_update(w, C, 0.1, 0.5), ValueError, "^G and F: "),
    (lambda: gha.deacon_update(w, w, None, 0.5), TypeError, "^delta_p: found None"),
    (lambda: headdiv.insert(3, {"name": "baseline"}), TypeError, "^model: found 3"),
    (lambda: headdiv.remove_method([]), TypeError, r"^model: found \[\]"),
    (lambda: headdiv.load(7), TypeError, "^folder: found 7"),
    (lambda: headdiv.MultiheadAttention(16, 4)("q", "q", "q"), TypeError, "^query: found 'q'"),
    (lambda: headdiv.MultiheadAttention(16, 4)(*[BATCH] * 3, attn_mask=True), TypeError, "^attn_mask: found True"),
    (lambda: small_model("brat"), HeaddivError, "did you mean 'bert'"),
    (lambda: mean_loss(small_model("gpt2"), []), DataError, "^batches: found none"),
    (lambda: text_examples(small_model("gpt2"), None, []), DataError, "^texts: found none"),
    (lambda: small_tokenizer([3]), TypeError, r"^texts\[0\]: found 3"),
    (lambda: small_tokenizer(["a dog"], 200), ValueError, "^words: found 200, expected 260 at least"),
]


@pytest.mark.parametrize(("call", "kind", "said"), WRONG)
def test_a_wrong_argument_is_named(call, kind, said):
    with pytest.raises(kind, match=said):
        call()

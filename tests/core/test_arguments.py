"""What is no argument of a public call is refused in one sentence that names it."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import headdiv
from headdiv import gha
from headdiv.companion.analysis import comparison, components, statistics
from headdiv.companion.models import decoding
from headdiv.core.errors import DataError, HeaddivError
from headdiv.nn.sizes import DecodeConfig
from headdiv.pretrained import mean_loss, small_model, small_tokenizer, text_batches, text_examples


def encoder():
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 16, batch_first=True), 1, enable_nested_tensor=False
    )
    headdiv.insert(model, {"name": "baseline"})
    return model


def again(one):
    while True:
        yield one


BATCH = torch.randn(1, 2, 16)
LISTS = {  # what takes a list
    "values": [
        lambda endless: statistics.interval(endless(1.0)),
    ],
    "weights": [lambda endless: comparison.contrasts({"a": {1: 1.0}}, endless({"a": 1.0}))],
    "sources": [lambda endless: decoding.translate(nn.Identity(), endless(np.array([4])), DecodeConfig())],
    "texts": [
        lambda endless: small_tokenizer(endless("a")),
        lambda endless: next(text_batches(small_model("gpt2"), None, endless("a"))),
        lambda endless: text_examples(small_model("gpt2"), None, endless("a")),
    ],
}


def cases(calls):
    return [(name, call) for name, each in calls.items() for call in each]


@pytest.mark.parametrize(("name", "call"), cases(LISTS))
@pytest.mark.parametrize("endless", [again, lambda one: itertools.cycle([one])])
def test_where_a_list_is_expected_nothing_else_is_read(name, call, endless):
    with pytest.raises(TypeError, match=f"^{name}.*: found .*expected a list of"):
        call(endless)


def test_batches_without_a_length_are_no_batches_of_an_epoch():
    with pytest.raises(HeaddivError, match="has no length"):
        headdiv.Trainer(encoder(), again(BATCH), lambda model, x: model(x).mean(), epochs=1)


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
    (lambda: components.compare_components(w * math.nan, C), ValueError, "finite"),
    (lambda: statistics.interval([1.0, "2"]), TypeError, r"^values\[1\]: found '2'"),
    (lambda: statistics.interval([1.0, math.inf]), ValueError, "^values: found inf"),
    (lambda: comparison.against({"a": [1.0]}, "a"), TypeError, r"^scores\['a'\]: found"),
    (lambda: comparison.contrasts({"a": {1: 1.0}}, [{}]), ValueError, "^weights: found {}"),
    (lambda: comparison.simultaneous_quantile(np.ones((2, 3)), 3), ValueError, "^correlation: "),
    (lambda: comparison.simultaneous_quantile(2 * np.ones((2, 2)), 3), ValueError, "^correlation: .* the diagonal"),
    (lambda: comparison.simultaneous_quantile(np.triu(np.ones((2, 2))), 3), ValueError, "^correlation: .* symmetric"),
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
    (lambda: decoding.translate(nn.Identity(), [np.ones((2, 2))], DecodeConfig()), ValueError, r"^sources\[0\]: "),
]


@pytest.mark.parametrize(("call", "kind", "said"), WRONG)
def test_a_wrong_argument_is_named(call, kind, said):
    with pytest.raises(kind, match=said):
        call()

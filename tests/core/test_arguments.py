"""A wrong argument of a public call that would go unnoticed is refused in one sentence that names it."""

import pytest
import torch

import headdiv
from headdiv import gha
from headdiv.core.errors import HeaddivError

w = torch.ones(3, 2)


def endless():
    while True:
        yield torch.ones(1, 2, 16)


WRONG = [
    (lambda: gha.deacon_update(w, torch.eye(3)[:, :1], 0.1, 0.5), ValueError, "^G and F: "),
    (
        lambda: headdiv.Trainer(headdiv.MultiheadAttention(16, 4), endless(), lambda model, x: x.mean(), epochs=1),
        HeaddivError,
        "has no length",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG)
def test_a_wrong_argument_is_named(call, kind, words):
    with pytest.raises(kind, match=words):
        call()

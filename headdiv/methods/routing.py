"""Which experts serve a token: a mixture's router, its losses, and what it has learnt.

    H = x W^g + ε ⊙ (softplus(x W^noise) + floor)      ε standard normal, in training and where it is noisy (Eq. 3)
    p = softmax(H)                           (Eq. 7)

The k experts with the largest p serve the token (Eq. 8); p itself is their gate. Renormalised, the gates are the
softmax over the chosen logits alone (Eq. 2).

Losses of a batch, over all rows of all ranks, with f_e the share of e in the choices, P_e the mean of p_e, and I_e
the sum of e's gates, its importance (Fedus et al. 2021; Zoph et al. 2022; Shazeer et al. 2017):

    balance    E Σ_e f_e P_e                  1 when both are even
    z          mean of (log Σ_e exp H_e)²
    cv         variance of I over the square of its mean

In the authors' code z is a mean over rows of padding too, cv uses the sample variance (E/(E − 1) times this one), and
the floor of the noise is 0.01, where Eq. 3 has none.

Letters: T rows, E experts, k chosen ones, D model width, V words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.analysis.similarity import ENOUGH, rounded
from headdiv.core import distributed
from headdiv.core.errors import TrainingError
from headdiv.core.precision import at_least_float32, full_precision
from headdiv.methods.base import ValidationSplit, groups
from headdiv.nn.records import HeadRecord

Renormalise = bool | Literal["detached"]  # of the gates
EPSILON = 1e-6  # beside the detached sum of gates, as in the authors' code


@dataclass(frozen=True)
class Routing:
    """A router's output for T rows. A row's chosen experts are in the order of their gates, the largest first."""

    logits: Tensor  # (T, E), with noise where there is any
    probabilities: Tensor  # (T, E)
    experts: Tensor  # (T, k)
    gates: Tensor  # (T, k)


@dataclass(frozen=True)
class RoutedRecord(HeadRecord):
    """Head i of a row is the i-th of its chosen experts."""

    routing: Routing


class Router(nn.Module):
    """Linear layer, softmax, the k largest; in float32 even under autocast, as the choice depends on small differences.

    Args:
        d_model: D.
        experts: E.
        k: how many are chosen.
        noisy: noise on the logits in training, of learnt size (Eq. 3).
        renormalise: divide the chosen gates by their sum, whose gradient counts too; "detached": by their sum plus
            `EPSILON` as a constant, as in the authors' code, where this is commented out.
        floor: of the noise's size.
    """

    def __init__(
        self,
        d_model: int,
        experts: int,
        k: int,
        *,
        noisy: bool = False,
        renormalise: Renormalise = False,
        floor: float = 0.0,
    ) -> None:
        super().__init__()
        self.k, self.renormalise, self.floor = k, renormalise, floor
        self.weight = nn.Parameter(torch.empty(experts, d_model))
        self.noise = nn.Parameter(torch.zeros(experts, d_model)) if noisy else None
        nn.init.xavier_uniform_(self.weight)

    def initialise(self, generator: torch.Generator) -> None:
        """Not zeros as in the authors' code, which would give every token the same experts at first."""
        nn.init.xavier_uniform_(self.weight, generator=generator)
        if self.noise is not None:
            nn.init.zeros_(self.noise)  # as in the authors' code: noise of log 2 everywhere

    def forward(self, x: Tensor) -> Routing:
        """(T, D) -> what is chosen for each row."""
        with full_precision(x):
            x = at_least_float32(x)
            logits = F.linear(x, at_least_float32(self.weight))  # (T, E)
            if self.noise is not None and self.training:
                size = F.softplus(F.linear(x, at_least_float32(self.noise))) + self.floor  # (T, E)
                logits = logits + torch.randn_like(logits) * size
            probabilities = logits.softmax(dim=-1)
            experts = chosen(probabilities, self.k)
            gates = probabilities.gather(-1, experts)  # (T, k)
            if self.renormalise:
                total = gates.sum(dim=-1, keepdim=True)  # (T, 1)
                gates = gates / (total.detach() + EPSILON if self.renormalise == "detached" else total)
        return Routing(logits, probabilities, experts, gates)


def chosen(probabilities: Tensor, k: int) -> Tensor:
    """The k largest of each row, the largest first: (T, E) -> (T, k).

    Among equal ones the expert with the lower number comes first, which `torch.topk` does not guarantee.
    """
    order = torch.sort(probabilities.detach(), dim=-1, descending=True, stable=True).indices
    return order[:, :k].contiguous()


# ---- losses


def routing_sums(routing: Routing) -> Tensor:
    """What the losses need from a module's rows, as one line: Σp (E), Σgates (E), choices (E), Σz², T, (3·E + 2,)."""
    p, E = routing.probabilities, routing.probabilities.shape[1]
    experts = routing.experts.flatten()
    importance = p.new_zeros(E).index_add(0, experts, routing.gates.flatten())
    choices = p.new_zeros(E).index_add(0, experts, p.new_ones(len(experts)))  # bincount makes a GPU wait
    squares = routing.logits.logsumexp(dim=-1).square().sum()
    return torch.cat([p.sum(0), importance, choices, squares[None], p.new_full((1,), len(p))])


def routing_losses(sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Balance, z and cv of every module: (…, 3·E + 2) -> (…) each; 0 where there are no rows."""
    E = (sums.shape[-1] - 2) // 3
    p, importance, choices, squares, rows = sums.split([E, E, E, 1, 1], dim=-1)
    rows = rows.clamp_min(1)
    balance = E * (_shares(choices) * p / rows).sum(-1)
    # Shares i have the mean 1/E, so that their variance over the mean's square is E Σ i² − 1.
    share = _shares(importance)
    cv = E * (share - 1 / E).square().sum(-1)
    return balance, (squares / rows).squeeze(-1), torch.where(choices.sum(-1) > 0, cv, torch.zeros_like(cv))


def _shares(values: Tensor) -> Tensor:
    total = values.sum(-1, keepdim=True)
    return values / torch.where(total > 0, total, torch.ones_like(total))


def pooled_losses(records: Iterable[HeadRecord]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """`routing_losses` over the rows of all ranks, (modules,) each, for the routed modules of each number of experts.

    Raises:
        TrainingError: there is none.
    """
    routings = [record.routing for record in records if isinstance(record, RoutedRecord)]
    if not routings:
        raise TrainingError("the method found no router: no attention module that it built, or no words")
    losses = []
    for group in groups(routings, lambda routing: routing.probabilities.shape[1]):
        sums = torch.stack([routing_sums(routing) for routing in group])
        losses.append(routing_losses(distributed.total(sums)))
    return losses


# ---- what it has learnt


def words_by_expert(experts: Tensor, words: Tensor, E: int, V: int) -> Tensor:
    """How often each expert is chosen for each word: experts (T, k) of words (T,) -> (E, V)."""
    pairs = experts * V + words.unsqueeze(1)  # (T, k)
    return torch.bincount(pairs.flatten(), minlength=E * V).view(E, V)


def typical_words(counts: Tensor, top: int = 10, least: int = 5) -> list[list[tuple[int, float, int]]]:
    """The words that each expert serves more often than the average expert does.

    Args:
        counts: (E, V), see `words_by_expert`.
        top: maximum number per expert.
        least: words for which the expert was chosen less often are left out.

    Returns:
        For each expert (word, ratio, count), the largest ratio first, then the largest count, then the lowest index.
        The ratio is the expert's share of the word's choices over its share of all choices; only those above 1.
    """
    n = counts.cpu().double().numpy()
    by_expert, by_word = n.sum(1, keepdims=True), n.sum(0, keepdims=True)
    expected = by_expert * by_word / max(n.sum(), 1.0)  # (E, V)
    ratio = np.divide(n, expected, out=np.zeros_like(n), where=expected > 0)
    # A word that an expert serves as often as the average must not slip in by rounding.
    ratio = np.where((n >= max(least, 1)) & (ratio > 1 + 1e-9), ratio, 0.0)
    result = []
    for ratios, numbers in zip(ratio, n, strict=True):
        words = np.flatnonzero(ratios)
        order = words[np.lexsort((words, -numbers[words], -ratios[words]))][:top]
        result.append([(int(word), float(ratios[word]), int(numbers[word])) for word in order])
    return result


@torch.no_grad()
def router_statistics(validation: ValidationSplit) -> dict[str, Any]:
    """What every router does on the first `ENOUGH` tokens of a split, as JSON by name: "encoder 1", "cross 2".

    Args:
        validation: the split, read no further than is needed; with several ranks, this one's share.

    Returns:
        {"router": {name: …}} with tokens (their number), load (share of each expert in the choices), gate (mean of
        each expert's gates where it is chosen; 0 for one that never is), entropy (of p, mean over the tokens, in nats,
        0 to log E), and words: for each expert its `typical_words` as {word, ratio, count}. Empty without routers.
    """
    sums: dict[tuple[str, int], list[Tensor]] = {}
    for batch in validation.observe():
        for record in batch.records:
            if isinstance(record, RoutedRecord):
                kind, layer = record.spec.kind, record.spec.layer
                values = _statistics(record.routing, batch.words.get(kind), validation.vocabulary)
                if (kind, layer) in sums:
                    values = [a + b for a, b in zip(sums[kind, layer], values, strict=True)]
                sums[kind, layer] = values
        if min((float(numbers[0]) for numbers, _ in sums.values()), default=0.0) >= ENOUGH:
            break
    result = {}
    for (kind, layer), (numbers, words) in sums.items():
        counts = distributed.total(words)
        E = len(words)
        tokens, entropy, choices, gates = distributed.total(numbers).cpu().split([1, 1, E, E])
        result[f"{kind} {layer + 1}"] = {
            "tokens": int(tokens),
            "load": rounded((choices / choices.sum().clamp_min(1)).tolist()),
            "gate": rounded((gates / choices.clamp_min(1)).tolist()),
            "entropy": round(float(entropy / tokens.clamp_min(1)), 6),
            "words": [
                [
                    {"word": validation.decode_token(kind, word), "ratio": round(ratio, 3), "count": count}
                    for word, ratio, count in row
                ]
                for row in typical_words(counts)
            ],
        }
    return {"router": result} if result else {}


def _statistics(routing: Routing, words: Tensor | None, V: int) -> list[Tensor]:
    """Number of rows, sum of entropies, choices and gates by expert (2 + 2·E,), float64; counts of words (E, V)."""
    p = routing.probabilities.double()
    E, experts = p.shape[1], routing.experts
    entropy = torch.special.entr(p).sum()
    choices = torch.bincount(experts.flatten(), minlength=E).double()
    gates = p.new_zeros(E).index_add(0, experts.flatten(), routing.gates.double().flatten())
    numbers = torch.cat([p.new_tensor([len(p)]), entropy[None], choices, gates])
    if words is None:
        return [numbers, torch.zeros(E, V, dtype=torch.int64, device=p.device)]
    return [numbers, words_by_expert(experts, words, E, V)]

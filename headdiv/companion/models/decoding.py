"""Translation: greedy and beam search, batched, one new token at a time with cached keys and values.

Letters: n unfinished sentences, W hypotheses of each (the beam's width), N = n·W lines, V vocabulary, L longest output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from headdiv.companion.models.batching import BEGIN, END, PAD
from headdiv.companion.models.sizes import DecodeConfig
from headdiv.companion.models.transformer import Transformer
from headdiv.core import progress
from headdiv.nn.packing import MAX_POSITIONS, AttentionLayout, assign_windows, attention_mask, pack

NEVER = (PAD, BEGIN, END)  # no hypothesis continues with these


def beam_search(
    step: Callable[[Tensor], Tensor],
    select: Callable[[Tensor], object],
    limits: Tensor,
    width: int,
    length_penalty: float,
) -> list[list[int]]:
    """The most probable output for each sentence, by sum of log-probabilities over length^α.

    Width 1 is greedy search. A sentence is finished once none of its hypotheses can beat its best ended one.

    Args:
        step: the words (N,) with which the lines end -> logits (N, V) of the words that follow. The W lines of a
            sentence are adjacent, sentences in order.
        select: called with the numbers (n, W) of the former lines that the lines continue; a finished sentence has
            none.
        limits: (n,) maximum words of each output, END included; the last of them can only be END.
        width: W.
        length_penalty: α ≥ 0.

    Returns:
        Word indices for each sentence, without BEGIN and END.
    """
    n, W, L, device = len(limits), width, int(limits.max()), limits.device
    results: list[list[int]] = [[] for _ in range(n)]
    sentence = torch.arange(n, device=device)  # which sentence each group of W hypotheses belongs to
    words = torch.full((n, W, L + 1), PAD, device=device)
    words[:, :, 0] = BEGIN
    alive = torch.full((n, W), -torch.inf, device=device)  # sums of log-probabilities
    alive[:, 0] = 0.0  # all are equal at first: only one may continue
    best = torch.full((n,), -torch.inf, device=device)  # of the ended hypotheses
    ended = torch.full((n, L), PAD, device=device)
    never = torch.tensor(NEVER, device=device)
    for position in range(L):
        n = len(sentence)
        scores = step(words[:, :, position].flatten()).float()  # (N, V)
        # Greedy search compares words of one line alone, and without rounding.
        scores = scores.log_softmax(-1) if W > 1 else scores.clone()
        end = scores[:, END].clone().view(n, W)
        top, candidates = scores.index_fill_(1, never, -torch.inf).topk(min(W, scores.shape[1]), dim=1)  # (N, ≤ W)
        at_limit = position + 1 >= limits[sentence]  # (n,)

        score, line = ((alive + end) / (position + 1) ** length_penalty).max(dim=1)
        if W == 1:  # END only where it is the likeliest word
            score = score.masked_fill(~at_limit & (top[:, 0] > end[:, 0]), -torch.inf)
        better = score > best
        best = torch.where(better, score, best)
        ended[better] = PAD
        ended[better, :position] = words[better, line[better], 1 : position + 1]

        top = alive[:, :, None] + top.view(n, W, -1)  # (n, W, ≤ W)
        top = top.masked_fill_(at_limit[:, None, None], -torch.inf)
        alive, choice = top.flatten(1).topk(W, dim=1)  # (n, W)
        parent = choice // top.shape[2]
        word = candidates.view(n, -1).gather(1, choice)
        words = words.gather(1, parent[:, :, None].expand_as(words))
        words[:, :, position + 1] = word
        lines = torch.arange(n, device=device)[:, None] * W + parent
        largest = alive[:, 0] / limits[sentence] ** length_penalty  # that a score can still be: sums only fall
        unfinished = largest > best if W > 1 else best == -torch.inf
        if not bool(unfinished.all()):
            for i in (~unfinished).nonzero().flatten().tolist():
                results[int(sentence[i])] = [w for w in ended[i].tolist() if w != PAD]
            if not bool(unfinished.any()):
                break
            sentence, words, alive, best, ended, lines = (
                x[unfinished] for x in (sentence, words, alive, best, ended, lines)
            )
        select(lines)
    return results


@torch.inference_mode()
def translate(
    model: Transformer,
    sources: Sequence[np.ndarray],
    config: DecodeConfig,
    device: torch.device | str = "cpu",
) -> list[list[int]]:
    """Translate sentences given as word indices (without END); outputs as word indices, in the same order."""
    model.eval()
    outputs: list[list[int]] = [[] for _ in sources]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))  # similar lengths end together
    chunks = [order[i : i + config.batch_sentences] for i in range(0, len(order), config.batch_sentences)]
    with progress.bar(len(chunks), "translating") as advance:
        for chunk in chunks:
            translations = _translate_batch(model, [sources[i] for i in chunk], config, device)
            for number, words in zip(chunk, translations, strict=True):
                outputs[number] = words
            advance("")
    return outputs


def _translate_batch(
    model: Transformer, sources: list[np.ndarray], config: DecodeConfig, device: torch.device | str
) -> list[list[int]]:
    lengths = [len(source) + 1 for source in sources]
    windows = assign_windows(lengths)
    order = [i for window in windows for i in window]
    rows = pack(lengths, windows).to(device)
    words = np.concatenate([np.append(sources[i], END) for i in order])
    layout = AttentionLayout(rows, rows, attention_mask(rows, rows))
    memory = model.encode(torch.from_numpy(words.astype(np.int64)).to(device), layout)
    limits = (rows.lengths * config.max_length_factor + config.max_length_offset).long().clamp(max=MAX_POSITIONS)
    state = model.start(memory, rows, config.beam)

    def step(words: Tensor) -> Tensor:
        return F.linear(model.step(words, state), model.output_weight)

    results = beam_search(step, state.select, limits, config.beam, config.length_penalty)
    outputs: list[list[int]] = [[] for _ in sources]
    for number, output in zip(order, results, strict=True):
        outputs[number] = output
    return outputs

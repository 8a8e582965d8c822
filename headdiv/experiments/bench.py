"""Speed, as ratios of medians measured interleaved: only these mean anything on another machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headdiv.core.provenance import provenance
from headdiv.data.corpora.seq2seq import Corpus, load_translation
from headdiv.experiments.bench_moa import measure_moa
from headdiv.experiments.profiles import Runs
from headdiv.experiments.running import build_model, task_loss
from headdiv.methods import check_method
from headdiv.nn.batching import Batch, batch_numbers, make_batch
from headdiv.nn.packing import pad_rows
from headdiv.nn.transformer import Transformer
from headdiv.tasks import TASKS
from headdiv.tasks.base import vocabulary_of
from headdiv.tasks.config import RunConfig
from headdiv.training.learner import Learner

EXPERIMENT = "deacon/translation"
WARM_UP = 3
GEMM = (2048, 2048, 2048)
METHODS: dict[str, dict[str, Any]] = {  # of each, what costs most
    "deacon": {"name": "deacon", "architecture": "direct", "m": 8},
    "disagreement": {"name": "disagreement", "term": "position"},
    "dpp": {"name": "dpp", "term": "position"},
    "mixing": {"name": "mixing", "start": 0.0},
    "moa": {"name": "moa", "experts": 32, "k": 4},
}


def measure(profile: str, rounds: int = 15) -> dict[str, Any]:
    """Time steps of the baseline, of every method of `METHODS` and of `torch.nn.Transformer` on the same batches.

    Each round times one batch with each model in turn and one large matrix product. Every ratio is taken
    within a round; reported are its median and quartiles over the rounds.

    Returns:
        <method>_step_over_baseline: duration of its step over a baseline step; DEACON is Direct-8, its inner loop
            included, disagreement and DPP are taken on the attention weights, mixing after its frozen time, a
            mixture of heads with 4 of 32 experts.
        moa_e32_over_e4: of one layer alone, see `measure_moa`.
        baseline_over_nn_transformer: our baseline's tokens/s over those of `torch.nn.Transformer` with the
            same sizes, padded batches, and the same optimiser.
        gemm_share: rate of the baseline's matrix products, whole step counted, over the machine's rate
            for a large product in float32.
    """
    runs = Runs(profile)
    config = runs.one(EXPERIMENT, "baseline", runs.profile.seeds[0])
    torch.set_num_threads(config.threads)
    corpus = load_translation(config.data)
    chosen = batch_numbers(corpus.train.pairs.sizes("target"), config.train.tokens_per_batch, seed=config.seed)[
        : rounds + WARM_UP
    ]
    batches = [make_batch(corpus.train.pairs, numbers) for numbers in chosen]
    learner, steps = _learner(config, corpus), {}
    steps["baseline"] = _stepper(learner, corpus)
    for name, told in METHODS.items():
        method = check_method(told, config.model)
        steps[name] = _stepper(_learner(config.model_copy(update={"method": method}), corpus), corpus)
    steps["nn_transformer"] = PlainTorch(config, corpus).step
    a, b = (torch.randn(GEMM[i], GEMM[i + 1]) for i in range(2))
    steps["gemm"] = lambda batch: a @ b
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for batch in batches:
        for name, step in steps.items():
            began = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - began)
    timed = {name: values[WARM_UP:] for name, values in seconds.items()}
    flops = [matrix_flops(learner.model, batch) for batch in batches[WARM_UP:]]
    gemm_rate = 2 * float(np.prod(GEMM)) / statistics.median(timed["gemm"])
    tokens = [len(batch.target_out) for batch in batches[WARM_UP:]]
    return {
        **{f"{name}_step_over_baseline": _spread(_ratios(timed[name], timed["baseline"])) for name in METHODS},
        "moa_e32_over_e4": measure_moa(rounds, config.threads)["moa_e32_over_e4"],
        "baseline_over_nn_transformer": _spread(_ratios(timed["nn_transformer"], timed["baseline"])),
        "gemm_share": _spread(_ratios([f / gemm_rate for f in flops], timed["baseline"])),
        "tokens_per_second": {
            name: round(statistics.median(_ratios(tokens, timed[name])))
            for name in ("baseline", *METHODS, "nn_transformer")
        },
        "gemm_gflops": round(gemm_rate / 1e9, 1),
        "rounds": rounds,
        "data": config.data.name,
        "tokens_per_batch": config.train.tokens_per_batch,
        "provenance": provenance(config.threads, torch.device("cpu")),
    }


def say(told: dict[str, Any]) -> str:
    """`measure`'s answer as lines to read."""
    ratios = {name: value for name, value in told.items() if isinstance(value, dict) and "median" in value}
    lines = [
        f"{name:<34}{value['median']:7.3f}  (quartiles {value['low']:.3f} to {value['high']:.3f})"
        for name, value in ratios.items()
    ]
    speeds = ", ".join(f"{name} {rate:,}" for name, rate in told["tokens_per_second"].items())
    return "\n".join([*lines, f"target tokens/s: {speeds}; matrix products {told['gemm_gflops']} GFLOP/s in float32"])


def _learner(config: RunConfig, corpus: Corpus) -> Learner:
    model, method = build_model(config, vocabulary_of(corpus))
    loss = task_loss(TASKS[config.kind], model, config.train.label_smoothing)
    return Learner(model.train(), loss, method, config.train)


def _stepper(learner: Learner, corpus: Corpus) -> Callable[[Batch], object]:
    """A step with the laying out of its batch, which training pays for too."""
    return lambda batch: learner.step(make_batch(corpus.train.pairs, batch.numbers.tolist()), number=1, steps=1000)


def matrix_flops(model: Transformer, batch: Batch) -> float:
    """Floating-point operations of the products with weight matrices, forward and backward.

    Six for each weight and token; attention's own products are left out. Keys and values of
    encoder-decoder attention are computed for source tokens, everything else in the decoder for target tokens.
    """
    source, target = len(batch.source), len(batch.target_out)
    encoder = sum(p.numel() for p in model.encoder.parameters() if p.dim() == 2)
    decoder = sum(p.numel() for p in model.decoder.parameters() if p.dim() == 2) + model.output_embedding.weight.numel()
    memory = sum(2 * layer.attention["cross"].in_projection.weight.numel() // 3 for layer in model.decoder)
    return 6.0 * (source * (encoder + memory) + target * (decoder - memory))


class PlainTorch:
    """The same Transformer from torch's own parts, on padded batches: what people write without this library."""

    def __init__(self, config: RunConfig, corpus: Corpus) -> None:
        sizes = config.model
        self.transformer = nn.Transformer(
            sizes.d_model, sizes.heads, sizes.encoder_layers, sizes.decoder_layers, sizes.d_ff, sizes.dropout,
            batch_first=True,
        )  # fmt: skip
        self.source = nn.Embedding(len(corpus.source), sizes.d_model)
        self.target = nn.Embedding(len(corpus.target), sizes.d_model)
        self.output = nn.Linear(sizes.d_model, len(corpus.target), bias=False)
        self.dropout = nn.Dropout(sizes.dropout)
        modules = (self.transformer, self.source, self.target, self.output)
        self.parameters = [p for module in modules for p in module.parameters()]
        self.optimiser = torch.optim.AdamW(self.parameters, lr=config.train.learning_rate, fused=True)
        self.scale = sizes.d_model**0.5

    def step(self, batch: Batch) -> Tensor:
        """One training step."""
        source, target_in, target_out = (
            pad_rows(words, side)
            for words, side in (
                (batch.source, batch.source_side),
                (batch.target_in, batch.target_side),
                (batch.target_out, batch.target_side),
            )
        )
        length = target_in.shape[1]
        hidden = self.transformer(
            self.dropout(self.source(source) * self.scale),
            self.dropout(self.target(target_in) * self.scale),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target_in == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        loss = F.cross_entropy(self.output(hidden).flatten(0, 1), target_out.flatten(), ignore_index=0)
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimiser.step()
        return loss


def _ratios(a: list[Any], b: list[Any]) -> list[float]:
    return [x / y for x, y in zip(a, b, strict=True)]


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"median": round(float(middle), 4), "low": round(float(low), 4), "high": round(float(high), 4)}

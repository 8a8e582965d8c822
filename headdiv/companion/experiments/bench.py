"""Speed, as ratios of medians measured interleaved: only these mean anything on another machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headdiv.companion.data.corpora.seq2seq import Corpus, load_translation
from headdiv.companion.experiments.export import export
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import build_model, is_trained, load_run, task_loss
from headdiv.companion.provenance import provenance
from headdiv.companion.tasks.base import Run, vocabulary_of
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import runtime
from headdiv.methods.options import check_method
from headdiv.methods.registry import make_method
from headdiv.nn.attention import AttentionLayout, AttentionSpec, record_heads
from headdiv.nn.batching import Batch, batch_numbers, make_batch
from headdiv.nn.decoding import translate
from headdiv.nn.packing import assign_windows, attention_mask, lay_out, pad_rows
from headdiv.nn.transformer import Transformer, initialise
from headdiv.training.learner import Learner

EXPERIMENT = "deacon/translation"
WARM_UP = 3  # rounds that are not counted
GEMM = 2048  # rows and columns of the matrices
METHODS: dict[str, dict[str, Any]] = {  # of each, what costs most
    "deacon": {"name": "deacon", "architecture": "direct", "m": 8},
    "disagreement": {"name": "disagreement", "term": "position"},
    "dpp": {"name": "dpp", "term": "position"},
    "mixing": {"name": "mixing", "start": 0.0},
    "moa": {"name": "moa", "experts": 32, "k": 4},
}
NARROW = {"baseline_bf16": {"name": "baseline"}, "deacon_bf16": METHODS["deacon"]}  # timed in bfloat16 too
MOA_WIDTH, MOA_HEADS, MOA_K, MOA_ROWS = 256, 4, 4, 1800
DECODED = 13  # words of each output where weights are random: a mean of Multi30k's
MOA_LENGTHS = (8, 22)  # of the sentences, as in Multi30k

Step = Callable[[int], object]  # called with the number of the round


def measure(profile: str, rounds: int = 15) -> dict[str, Any]:
    """Time steps of the baseline, of every method of `METHODS` and of `torch.nn.Transformer` on the same batches.

    Each round times one batch with each model in turn and one large matrix product. Every ratio is taken
    within a round; reported are its median and quartiles over the rounds.

    Returns:
        <method>_step_over_baseline: duration of its step over a baseline step; DEACON is Direct-8, its inner loop
            included, disagreement and DPP are taken on the attention weights, mixing after its frozen time, a
            mixture of heads with 4 of 32 experts.
        bf16_over_fp32: tokens/s of the baseline in bfloat16 over those in float32.
        deacon_bf16_step_over_baseline: as above, both in bfloat16.
        moa_e32_over_e4: of one layer alone, see `measure_moa`.
        baseline_over_nn_transformer: our baseline's tokens/s over those of `torch.nn.Transformer` with the
            same sizes, padded batches, and the same optimiser.
        decode_over_ctranslate2: time of the profile's search with the baseline over that of CTranslate2 in float32, as
            many threads, batches of as many sentences; absent where that is not installed. ``decoding`` says whether
            the run's trained weights were there, or random ones wrote outputs of equal length.
        gemm_share: rate of the baseline's matrix products, whole step counted, over the machine's rate
            for a large product in float32.
    """
    runs = Runs(profile)
    config = runs.one(EXPERIMENT, "baseline", runs.profile.seeds[0])
    runtime.configure(config.threads)
    corpus = load_translation(config.data)
    pairs, budget = corpus.train.pairs, config.train.tokens_per_batch
    numbers = batch_numbers(pairs.sizes("target"), budget, seed=config.seed)[: rounds + WARM_UP]
    batches = [make_batch(pairs, batch) for batch in numbers]
    a, b = torch.randn(2, GEMM, GEMM)

    def training(method: dict[str, Any], precision: str = "float32") -> tuple[Step, Transformer]:
        """A step with the laying out of its batch, which training pays for too."""
        changed = config.model_copy(update={"method": check_method(method, config.model)})
        model, made = build_model(changed, vocabulary_of(corpus))
        train = config.train.model_copy(update={"precision": precision})
        learner = Learner(model.train(), task_loss(config, model), made, train)
        return lambda round_: learner.step(make_batch(pairs, batches[round_].numbers.tolist()), 1, 1000), model

    baseline, model = training({"name": "baseline"})
    plain = plain_torch(config, corpus)
    steps = {"baseline": baseline, **{name: training(method)[0] for name, method in METHODS.items()}}
    others: dict[str, Step] = {"nn_transformer": lambda round_: plain(batches[round_]), "gemm": lambda round_: a @ b}
    narrow = {name: training(method, "bfloat16")[0] for name, method in NARROW.items()}
    seconds = interleaved(steps | others | narrow, len(batches))
    flops = np.array([matrix_flops(model, batch) for batch in batches[WARM_UP:]])
    tokens = np.array([len(batch.target_out) for batch in batches[WARM_UP:]])
    gemm_rate = 2 * GEMM**3 / float(np.median(seconds["gemm"]))
    return {
        **{f"{name}_step_over_baseline": _spread(seconds[name] / seconds["baseline"]) for name in METHODS},
        "bf16_over_fp32": _spread(seconds["baseline"] / seconds["baseline_bf16"]),
        "deacon_bf16_step_over_baseline": _spread(seconds["deacon_bf16"] / seconds["baseline_bf16"]),
        "moa_e32_over_e4": measure_moa(rounds, config.threads)["moa_e32_over_e4"],
        **measure_decoding(config, corpus, rounds),
        "baseline_over_nn_transformer": _spread(seconds["nn_transformer"] / seconds["baseline"]),
        "gemm_share": _spread(flops / gemm_rate / seconds["baseline"]),
        "tokens_per_second": {name: round(np.median(tokens / seconds[name])) for name in (*steps, "nn_transformer")},
        "gemm_gflops": round(gemm_rate / 1e9, 1),
        "rounds": len(batches) - WARM_UP,
        "data": config.data.name,
        "tokens_per_batch": budget,
        "provenance": provenance(config.threads, torch.device("cpu")),
    }


def measure_decoding(config: RunConfig, corpus: Corpus, rounds: int) -> dict[str, Any]:
    """Time the search of test sentences, a batch a round, with the baseline here and in CTranslate2: see `measure`."""
    try:
        import ctranslate2
    except ModuleNotFoundError:
        return {}
    decode, options = config.decode, {"max_decoding_length": 256}
    if trained := is_trained(config):
        run = load_run(config, "cpu")
    else:
        run = Run(config, Path(), corpus, build_model(config, vocabulary_of(corpus))[0].eval(), {})
        decode = decode.model_copy(update={"max_length_factor": 0.0, "max_length_offset": DECODED + 1})
        options = {"max_decoding_length": DECODED, "min_decoding_length": DECODED}
    sources = sorted(corpus.test.pairs.source, key=len)
    starts = np.linspace(0, max(0, len(sources) - decode.batch_sentences), rounds + WARM_UP).astype(int)
    batches = [sources[start : start + decode.batch_sentences] for start in starts]
    words = [[corpus.source.decode(source) for source in batch] for batch in batches]
    with tempfile.TemporaryDirectory() as folder:
        made = str(export(run, Path(folder), "ctranslate2"))
        other = ctranslate2.Translator(made, compute_type="float32", intra_threads=config.threads)
        search = {"beam_size": decode.beam, "length_penalty": decode.length_penalty, **options}
        steps: dict[str, Step] = {
            "ours": lambda round_: translate(run.model, batches[round_], decode),
            "theirs": lambda round_: other.translate_batch(words[round_], **search),
        }
        seconds = interleaved(steps, len(batches))
    how = "trained weights" if trained else f"random weights, {DECODED} words each"
    return {"decode_over_ctranslate2": _spread(seconds["ours"] / seconds["theirs"]), "decoding": how}


def measure_moa(rounds: int = 25, threads: int = 1) -> dict[str, Any]:
    """Time a training step of one layer, encoder self-attention of width 256, with E = 4 and with E = 32, k = 4.

    A layer's time must grow with k, the chosen experts, and not with E. A step is forward pass, the router's losses,
    backward pass (with the gradient of the input) and AdamW.

    Returns:
        moa_e32_over_e4: median and quartiles over the rounds.
        moa_milliseconds: median of each step, by "e4" and "e32".
        and what was measured: rows, rounds, provenance.
    """
    runtime.configure(threads)
    seconds = interleaved({f"e{experts}": _moa_step(experts) for experts in (4, 32)}, rounds + WARM_UP)
    return {
        "moa_e32_over_e4": _spread(seconds["e32"] / seconds["e4"]),
        "moa_milliseconds": {name: round(1000 * float(np.median(values)), 2) for name, values in seconds.items()},
        "rows": MOA_ROWS,
        "rounds": rounds,
        "provenance": provenance(threads, torch.device("cpu")),
    }


def interleaved(steps: Mapping[str, Step], rounds: int) -> dict[str, np.ndarray]:
    """Time every step once a round, in turns the first and the last one first.

    Returns:
        By name, seconds of each round, those of the warm-up left out: (rounds − `WARM_UP`,).
    """
    seconds = {name: np.zeros(rounds) for name in steps}
    for number in range(rounds):
        for name in list(steps)[:: -1 if number % 2 else 1]:
            began = time.perf_counter()
            steps[name](number)
            seconds[name][number] = time.perf_counter() - began
    return {name: values[WARM_UP:] for name, values in seconds.items()}


def message(measured: dict[str, Any]) -> str:
    """The result of `measure` as lines of text."""
    lines = [
        f"{name:<34}{value['median']:7.3f}  (quartiles {value['low']:.3f} to {value['high']:.3f})"
        for name, value in measured.items()
        if isinstance(value, dict) and "median" in value
    ]
    speeds = ", ".join(f"{name} {rate:,}" for name, rate in measured["tokens_per_second"].items())
    gemm = f"matrix products {measured['gemm_gflops']} GFLOP/s in float32"
    return "\n".join([*lines, f"target tokens/s: {speeds}; {gemm}"])


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


def plain_torch(config: RunConfig, corpus: Corpus) -> Callable[[Batch], Tensor]:
    """A step of the same Transformer from torch's own parts, on padded batches: what people write without headdiv."""
    sizes, words = config.model, (len(corpus.source), len(corpus.target))
    layers = (sizes.encoder_layers, sizes.decoder_layers)
    transformer = nn.Transformer(sizes.d_model, sizes.heads, *layers, sizes.d_ff, sizes.dropout, batch_first=True)
    source_embedding, target_embedding = (
        nn.Sequential(nn.Embedding(number, sizes.d_model), nn.Dropout(sizes.dropout)) for number in words
    )
    output = nn.Linear(sizes.d_model, words[1], bias=False)
    model = nn.ModuleList([transformer, source_embedding, target_embedding, output])
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.train.learning_rate, fused=True)

    def step(batch: Batch) -> Tensor:
        source = pad_rows(batch.source, batch.source_side)
        target_in, target_out = (pad_rows(rows, batch.target_side) for rows in (batch.target_in, batch.target_out))
        length = target_in.shape[1]
        hidden = transformer(
            source_embedding(source) * sizes.d_model**0.5,
            target_embedding(target_in) * sizes.d_model**0.5,
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=source == 0,
            tgt_key_padding_mask=target_in == 0,
            memory_key_padding_mask=source == 0,
            tgt_is_causal=True,
        )
        loss = nn.functional.cross_entropy(output(hidden).flatten(0, 1), target_out.flatten(), ignore_index=0)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss

    return step


def _moa_step(experts: int) -> Step:
    """A training step of a layer with this many experts, on the same rows for every number of them."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(*MOA_LENGTHS, size=MOA_ROWS).cumsum().clip(max=MOA_ROWS)  # ends of the sentences
    lengths = [length for length in np.diff(lengths, prepend=0).tolist() if length]
    side = lay_out(lengths, assign_windows(lengths))
    layout = AttentionLayout(side, side, attention_mask(side, side))
    x = torch.from_numpy(rng.standard_normal((MOA_ROWS, MOA_WIDTH), dtype=np.float32)).requires_grad_()
    method = make_method({"name": "moa", "experts": experts, "k": MOA_K})
    layer = method.attention(AttentionSpec("encoder", 0, MOA_WIDTH, MOA_HEADS))
    initialise(layer, seed=1)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=1e-4, fused=True)

    def step(round_: int) -> None:
        optimiser.zero_grad()
        x.grad = None
        with record_heads(layer, weights=False) as records:
            y = layer(x, None, layout)
        added = method.aux_loss(layer, records, 0.0, MOA_ROWS)
        (y.square().mean() + (0.0 if added is None else added)).backward()
        optimiser.step()

    return step


def _spread(values: np.ndarray) -> dict[str, float]:
    low, middle, high = (round(float(value), 4) for value in np.quantile(values, [0.25, 0.5, 0.75]))
    return {"median": middle, "low": low, "high": high}

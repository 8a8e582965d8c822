"""Speed of training steps and of the search, as ratios within a round, with the data and sizes of a profile.

    python benchmarks/speed.py [--json] [--profile multi30k] [--rounds 15]

`headdiv` must be installed; CTranslate2 is measured where it is. Medians of:

deacon_step_over_baseline: seconds of a step with DEACON (Direct-8, its inner loop included) over the baseline's.
bf16_over_fp32: tokens/s of the baseline in bfloat16 over those in float32.
baseline_over_nn_transformer: the baseline's tokens/s over those of `torch.nn.Transformer`, with the same sizes and
    optimiser on padded batches.
gemm_share: rate of the baseline's matrix products, whole step counted, over that of one large product in float32.
decode_over_ctranslate2: seconds of the profile's search with the baseline over CTranslate2's, float32, as many threads.
    The model is the profile's trained run or, where there is none, a random one whose outputs have 13 words.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import WARM_UP, Ratio, Step, interleaved
from torch import Tensor, nn

from headdiv.companion import runtime
from headdiv.companion.data.corpora.seq2seq import Corpus, load_translation
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import build_model, is_trained, load_run, task_loss
from headdiv.companion.models.batching import PAD, Batch, batch_numbers, make_batch
from headdiv.companion.models.decoding import translate
from headdiv.companion.models.transformer import Transformer
from headdiv.companion.tasks.base import vocabulary_of
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.methods import check_method
from headdiv.nn.packing import pad_rows
from headdiv.training.learner import Learner

GEMM = 2048  # rows and columns of the large product
DECODED = 13  # words of each output where weights are random: a mean of Multi30k's
DEACON = {"name": "deacon", "architecture": "direct", "m": 8}


def measure(profile: str, rounds: int) -> dict[str, Ratio]:
    """The ratios described above."""
    runs = Runs(profile)
    config = runs.config("deacon/translation", "baseline", runs.profile.seeds[0])
    runtime.configure(config.threads)
    corpus = load_translation(config.data)
    pairs = corpus.train.pairs
    numbers = batch_numbers(pairs.sizes("target"), config.train.tokens_per_batch, seed=config.seed)
    batches = [make_batch(pairs, numbers[round_ % len(numbers)]) for round_ in range(rounds + WARM_UP)]

    def training(method: dict[str, Any], precision: str = "float32") -> tuple[Step, Transformer]:
        """A step with the laying out of its batch, which training pays for too."""
        run_config = config.model_copy(update={"method": check_method(method, config.model)})
        model, run_method = build_model(run_config, vocabulary_of(corpus))
        train = config.train.model_copy(update={"precision": precision})
        learner = Learner(model.train(), task_loss(config, model), run_method, train)
        return lambda round_: learner.step([make_batch(pairs, batches[round_].numbers.tolist())], 1, 1000), model

    baseline, model = training({"name": "baseline"})
    large = torch.randn(GEMM, GEMM)
    steps: dict[str, Step] = {
        "baseline": baseline,
        "deacon": training(DEACON)[0],
        "bf16": training({"name": "baseline"}, "bfloat16")[0],
        "nn_transformer": padded_step(*nn_transformer(config, corpus), config, batches),
        "gemm": lambda _: large @ large,
    }
    seconds = interleaved(steps, rounds)
    flops = np.array([matrix_flops(model, batch) for batch in batches[WARM_UP:]])
    gemm_rate = 2 * GEMM**3 / float(np.median(seconds["gemm"]))
    return {
        "deacon_step_over_baseline": Ratio.of(seconds["deacon"] / seconds["baseline"]),
        "bf16_over_fp32": Ratio.of(seconds["baseline"] / seconds["bf16"]),
        "baseline_over_nn_transformer": Ratio.of(seconds["nn_transformer"] / seconds["baseline"]),
        "gemm_share": Ratio.of(flops / gemm_rate / seconds["baseline"]),
        **decoding(config, corpus, rounds),
    }


def matrix_flops(model: Transformer, batch: Batch) -> float:
    """Floating-point operations of the products with weight matrices, forward and backward.

    Six for each weight and token; attention's own products are left out. Keys and values of
    encoder-decoder attention are computed for source tokens, everything else in the decoder for target tokens.
    """
    source, target = len(batch.source), len(batch.target_out)
    encoder = sum(p.numel() for p in model.encoder.parameters() if p.dim() == 2)
    decoder = sum(p.numel() for p in model.decoder.parameters() if p.dim() == 2) + model.output_weight.numel()
    memory = sum(2 * layer.attention["cross"].in_projection.weight.numel() // 3 for layer in model.decoder)
    return 6.0 * (source * (encoder + memory) + target * (decoder - memory))


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of source, target input, target output, padded with PAD: (B, N)


def padded_step(model: nn.Module, loss: Loss, config: RunConfig, batches: Sequence[Batch]) -> Step:
    """A step of another library's model on padded batches."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.train.learning_rate, fused=True)

    def step(round_: int) -> None:
        batch = batches[round_]
        source = pad_rows(batch.source, batch.source_rows)
        target_in, target_out = (pad_rows(rows, batch.target_rows) for rows in (batch.target_in, batch.target_out))
        optimiser.zero_grad()
        loss(source, target_in, target_out).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def nn_transformer(config: RunConfig, corpus: Corpus) -> tuple[nn.Module, Loss]:
    """The same Transformer from torch's own parts: what people write without headdiv."""
    sizes, words = config.model, (len(corpus.source), len(corpus.target))
    layers = (sizes.encoder_layers, sizes.decoder_layers)
    transformer = nn.Transformer(sizes.d_model, sizes.heads, *layers, sizes.d_ff, sizes.dropout, batch_first=True)
    source_embedding, target_embedding = (
        nn.Sequential(nn.Embedding(number, sizes.d_model), nn.Dropout(sizes.dropout)) for number in words
    )
    output = nn.Linear(sizes.d_model, words[1], bias=False)

    def loss(source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        length = target_in.shape[1]
        hidden = transformer(
            source_embedding(source) * sizes.d_model**0.5,
            target_embedding(target_in) * sizes.d_model**0.5,
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target_in == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return nn.functional.cross_entropy(output(hidden).flatten(0, 1), target_out.flatten(), ignore_index=PAD)

    return nn.ModuleList([transformer, source_embedding, target_embedding, output]), loss


def decoding(config: RunConfig, corpus: Corpus, rounds: int) -> dict[str, Ratio]:
    """The search of test sentences, a batch a round, here and in CTranslate2; empty where that is not installed."""
    if not importlib.util.find_spec("ctranslate2"):
        return {}
    import ctranslate2
    from ctranslate2_model import convert

    decode, options = config.decode, {"max_decoding_length": 256}
    if is_trained(config):
        model = load_run(config, "cpu").model
    else:
        model = build_model(config, vocabulary_of(corpus))[0].eval()
        decode = decode.model_copy(update={"max_length_factor": 0.0, "max_length_offset": DECODED + 1})
        options = {"max_decoding_length": DECODED, "min_decoding_length": DECODED}
    sources = sorted(corpus.test.pairs.source, key=len)
    starts = np.linspace(0, max(0, len(sources) - decode.batch_sentences), rounds + WARM_UP).astype(int)
    batches = [sources[start : start + decode.batch_sentences] for start in starts]
    words = [[corpus.source.decode(source) for source in batch] for batch in batches]
    options |= {"beam_size": decode.beam, "length_penalty": decode.length_penalty}
    with tempfile.TemporaryDirectory() as folder:
        converted = str(convert(model, config.model.activation, corpus, Path(folder) / "model"))
        other = ctranslate2.Translator(converted, compute_type="float32", intra_threads=config.threads)
        steps: dict[str, Step] = {
            "ours": lambda round_: translate(model, batches[round_], decode),
            "theirs": lambda round_: other.translate_batch(words[round_], **options),
        }
        seconds = interleaved(steps, rounds)
    return {"decode_over_ctranslate2": Ratio.of(seconds["ours"] / seconds["theirs"])}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the medians alone, as JSON")
    parser.add_argument("--profile", default="multi30k", help="whose deacon/translation gives data and sizes")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    ratios = measure(arguments.profile, arguments.rounds)
    if arguments.json:
        print(json.dumps({name: ratio.median for name, ratio in ratios.items()}))
    else:
        for name, ratio in ratios.items():
            print(f"{name:<30}{ratio.median:7.3f}  (quartiles {ratio.low:.3f} to {ratio.high:.3f})")

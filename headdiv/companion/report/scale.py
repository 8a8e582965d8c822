"""Captions about scale: how large runs were, and what their data lost in preparation."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from headdiv.companion import paths
from headdiv.companion.data.public_sets import load_registry
from headdiv.companion.experiments.run_result import RunResult
from headdiv.companion.report.formats import as_printed, plural, plurals, seeds_named
from headdiv.companion.tasks import TASKS

SPLITS = {"train": "training", "valid": "validation", "test": "test"}

SAMPLED = "-sample"  # ends the name of a small part of a public set
PART = "-part"  # of one whose training set is not whole; its validation and test sets are, or the profile says so
SIZES_BY_DATA = {"context": "context", "vocabulary_size": "vocabulary"}  # of a language model
PARTS = {SAMPLED: "sample", PART: "trained on a part"}

TOY = "**A toy corpus: this shows that the pipeline works and reproduces nothing of the paper.**"
SAMPLE = "**Toy size, on a sample of the data set: this shows that the task runs and reproduces nothing of the paper.**"


@functools.cache
def data_title(name: str) -> str:
    """The title of a public data set, "Multi30k English-German", or of a part of it; others go by their names."""
    ending = next((ending for ending in PARTS if name.endswith(ending)), "")
    whole = name.removesuffix(ending)
    public_set = load_registry().get(whole)
    title = public_set.title.partition(",")[0] if public_set else whole
    return f"{title} ({PARTS[ending]})" if ending else title


def training_size(run: RunResult, *others: RunResult) -> str:
    """How much text runs learn from: "29,000 training pairs", "10 % or all of 29,000 training pairs".

    Of a part of a public set's training set: "21,000 of 29,000 training pairs".
    """
    whole = None
    if run.data_name.endswith(PART):
        public_set = load_registry().get(run.data_name.removesuffix(PART))
        whole = public_set.splits["train"].count if public_set else None
    size = TASKS[run.kind].training_size(run.config.data, run.data.model_dump(), whole)
    shares = sorted({other.config.train.get("share", 1.0) for other in (run, *others)})
    if shares == [1.0]:
        return size
    labels = ["all" if share == 1 else f"{100 * share:g} %" for share in shares]
    return f"{' or '.join(labels)} of {size}"


def scale(runs: list[RunResult], profile: str) -> str:
    """Data, sizes, seeds and machine of an experiment's runs, in sentences, with the warning about toy corpora."""
    first = runs[0]
    task, test = TASKS[first.kind], first.data.test
    failed = [f"{run.variant}, seed {run.seed}: {'; '.join(run.failures())}" for run in runs if run.failures()]
    batches = dict.fromkeys(f"{run.config.train['tokens_per_batch']:,}" for run in runs)  # a variant may have its own
    tokens = f" of {test['tokens']:,} tokens" if "tokens" in test else ""
    parts = [
        data_title(first.data_name),
        training_size(*runs),
        *_tokens_drawn(first),
        f"{test['examples']:,} test {task.example_noun}{tokens}",
        f"{plurals((run.epochs for run in runs), 'epoch')} of batches of {' or '.join(batches)} {task.batch_unit}",
        " or ".join(dict.fromkeys(model_size(run.config.model, run.config.data) for run in runs)),
        seeds_named(run.seed for run in runs),
        "; ".join(sorted({machine(run) for run in runs})),
    ]
    sentences = [f"Profile {paths.profile_file(profile).stem}: {', '.join(parts)}.", *data_losses(first), *toy(first)]
    if failed:
        sentences.append(f"**Diverged, or learnt nothing: {'. '.join(failed)}.**")
    return " ".join(sentences)


def _tokens_drawn(run: RunResult) -> list[str]:
    """How much of a stream of one text a run has drawn, and how often that was all of it; a mixture has a table."""
    stream = run.data.stream
    if len(stream.tokens) != 1:
        return []
    (tokens,), (passes,) = stream.tokens.values(), stream.passes.values()
    return [f"{tokens:,} tokens drawn (complete passes over the training text: {passes:,})"]


def toy(run: RunResult) -> list[str]:
    """The sentence about toys, if this is one: a generated text, or a sample of a public one."""
    if run.data_name == "toy":
        return [TOY]
    return [SAMPLE] if run.data_name.endswith(SAMPLED) else []


def model_size(model: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Width and depth of a model, and what its data add to its size: "d = 256, 2 + 2 layers"."""
    if "layers" in model:
        layers = plural(model["layers"], "layer")
    else:
        layers = f"{model['encoder_layers']} + {model['decoder_layers']} layers"
    parts = [f"d = {model['d_model']:,}", layers]
    parts += [f"{name} {data[key]:,}" for key, name in SIZES_BY_DATA.items() if key in data and "context" in data]
    return ", ".join(parts)


def machine(run: RunResult) -> str:
    """Device, threads and processes of a run."""
    provenance = run.provenance
    parts = [provenance.device, plural(provenance.threads, "thread")]
    if provenance.ranks != 1:
        parts.append(plural(provenance.ranks, "rank"))
    return ", ".join(parts)


def data_losses(run: RunResult) -> list[str]:
    """Sentences about records left out, texts cut short and answers lost; none where nothing was."""
    task, splits = TASKS[run.kind], {split: getattr(run.data, split) for split in SPLITS}
    sentences = []
    for source, refused in (("", run.data.refused), (" of the training stream", run.data.stream.refused)):
        if refused:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in refused.items())
            sentences.append(f"Records left out{source}: {sum(refused.values()):,} ({reasons}).")
    for cut in task.cuts:
        shares = {split: splits[split][cut.share] for split in SPLITS}
        if any(shares.values()):
            percents = _by_split({split: f"{as_printed(100 * share, 1)} %" for split, share in shares.items() if share})
            sentences.append(f"Cut at {run.config.data[cut.limit]:,} words: {percents} of the {cut.what}.")
    for key, label in task.mentioned.items():
        counts = {split: f"{statistics[key]:,}" for split, statistics in splits.items() if statistics.get(key)}
        if counts:
            sentences.append(f"{label}: {_by_split(counts)}.")
    return sentences


def _by_split(values: dict[str, str]) -> str:
    return ", ".join(f"{value} ({SPLITS[split]})" for split, value in values.items())

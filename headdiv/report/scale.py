"""How large runs were and what their data lost on the way, in words."""

from __future__ import annotations

from dataclasses import dataclass

from headdiv.core import paths
from headdiv.experiments.results import Metrics
from headdiv.report.formats import as_printed, plural

SPLITS = {"train": "training", "valid": "validation", "test": "test"}


@dataclass(frozen=True)
class Cut:
    """Something that is cut at a length, and what is said about it."""

    share: str  # key of each split's statistics
    what: str
    limit: str  # key of the data's configuration


@dataclass(frozen=True)
class Wording:
    """What a task calls its data."""

    examples: str
    batch: str  # what the budget of a batch counts
    cuts: tuple[Cut, ...] = ()


WORDING = {
    "translation": Wording("pairs", "target tokens"),
    "summarisation": Wording(
        "articles",
        "tokens of article and summary",
        (
            Cut("source_truncated_share", "articles", "document_words"),
            Cut("target_truncated_share", "summaries", "summary_words"),
        ),
    ),
    "qa": Wording("questions", "tokens of passages", (Cut("target_truncated_share", "passages", "context_words"),)),
    "lm": Wording("documents", "tokens"),
    "mlm": Wording("documents", "tokens"),
}
ANSWERS = {
    "answers_cut_off": "Answers behind the cut (not learnt from, but scored)",
    "answers_not_on_word_borders": "Answers that do not begin and end with a word (whole words are learnt)",
}
TOY = "**A toy corpus: this shows that the pipeline works and reproduces nothing of the paper.**"


def training_size(metrics: Metrics) -> str:
    """How much text a run learns from: "29,000 training pairs", "100,000 tokens of text an epoch"."""
    data = metrics["config"]["data"]
    if "epoch_tokens" in data:
        return f"{data['epoch_tokens']:,} tokens of text an epoch"
    return f"{metrics['data']['train']['examples']:,} training {WORDING[metrics['kind']].examples}"


def scale(runs: list[Metrics], profile: str) -> str:
    """What the runs of an experiment learnt from, how large they were, and that a toy is a toy."""
    first = runs[0]
    config, wording = first["config"], WORDING[first["kind"]]
    test = first["data"]["test"]
    seeds = sorted({run["seed"] for run in runs})
    *fewer, epochs = sorted({len(run["curve"]) for run in runs})
    parts = [
        config["data"]["name"],
        training_size(first),
        f"{test['examples']:,} test {wording.examples}"
        + (f" of {test['tokens']:,} tokens" if "tokens" in test else ""),
        "".join(f"{count} or " for count in fewer)
        + f"{plural(epochs, 'epoch')} of batches of {config['train']['tokens_per_batch']:,} {wording.batch}",
        _model(first),
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        "; ".join(sorted({_machine(run) for run in runs})),
    ]
    said = [f"Profile {paths.profile_file(profile).stem}: {', '.join(parts)}.", *data_losses(first)]
    return " ".join([*said, *toy(first)])


def toy(metrics: Metrics) -> list[str]:
    """The sentence about toys, if this is one."""
    return [TOY] if metrics["config"]["data"]["name"] == "toy" else []


def _model(metrics: Metrics) -> str:
    model, data = metrics["config"]["model"], metrics["config"]["data"]
    if "layers" in model:
        layers = plural(model["layers"], "layer")
    else:
        layers = f"{model['encoder_layers']} + {model['decoder_layers']} layers"
    said = f"d = {model['d_model']:,}, {layers}"
    if "context" in data:
        said += f", context {data['context']:,}, vocabulary {data['vocabulary_size']:,}"
    return said


def _machine(metrics: Metrics) -> str:
    told = metrics["provenance"]
    ranks = told.get("ranks", 1)
    return f"{told['device']}, {plural(told['threads'], 'thread')}" + (f", {ranks} ranks" if ranks > 1 else "")


def data_losses(metrics: Metrics) -> list[str]:
    """Sentences about records left out, texts cut short and answers lost; none where there is nothing to say."""
    data, config, said = metrics["data"], metrics["config"]["data"], []
    for what, refused in (("", data["refused"]), (" of the training stream", data["stream"].get("refused", {}))):
        if refused:
            reasons = ", ".join(f"{reason}: {count:,}" for reason, count in refused.items())
            said.append(f"Records left out{what}: {sum(refused.values()):,} ({reasons}).")
    for cut in WORDING[metrics["kind"]].cuts:
        shares = {
            split: f"{as_printed(100 * data[split][cut.share], 1)} %" for split in SPLITS if data[split][cut.share]
        }
        if shares:
            said.append(f"Cut at {config[cut.limit]:,} words: {_by_split(shares)} of the {cut.what}.")
    for key, what in ANSWERS.items():
        counts = {split: f"{data[split][key]:,}" for split in SPLITS if data[split].get(key)}
        if counts:
            said.append(f"{what}: {_by_split(counts)}.")
    return said


def _by_split(told: dict[str, str]) -> str:
    return ", ".join(f"{value} ({SPLITS[split]})" for split, value in told.items())

"""Metrics of every task, as `evaluate` gives them but written by hand: shared by the tests of the report."""

import copy

import numpy as np
import yaml

from headdiv.companion.analysis.comparison import simultaneous_quantile
from headdiv.companion.experiments import results as store
from headdiv.companion.experiments.papers import task_of
from headdiv.core import manifest
from headdiv.core.files import write_json

MIXTURE = {"CommonCrawl": 67.0, "C4": 15.0, "GitHub": 4.5, "Books": 4.5, "Wikipedia": 4.5, "ArXiv": 2.5}
MIXTURE["StackExchange"] = 2.0
DRAWN = {"CommonCrawl": 6700, "C4": 1500, "GitHub": 450, "Books": 450, "Wikipedia": 450, "ArXiv": 250}
DRAWN["StackExchange"] = 200

WORDS = {"name": "toy"}
SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 3}
TRAIN = {"tokens_per_batch": 1500}
EXPERIMENTS = {
    "translation": {"data": WORDS, "model": SIZES, "train": TRAIN},
    "summarisation": {"data": WORDS | {"document_words": 400, "summary_words": 60}, "model": SIZES, "train": TRAIN},
    "qa": {"data": WORDS | {"context_words": 300, "question_words": 60}, "model": SIZES, "train": TRAIN},
    "lm": {
        "data": {"name": "toy", "vocabulary_size": 500, "context": 64, "epoch_tokens": 5000, "mixture": MIXTURE},
        "model": {"d_model": 16, "layers": 1},
        "train": TRAIN,
    },
}
COUNTS = {"examples": 1000}
CUT = {"source_truncated_share": 0.0, "target_truncated_share": 0.0}
FOUND = {"target_truncated_share": 0.0, "answers_cut_off": 0, "answers_not_on_word_borders": 0}
DATA = {
    "translation": {"train": {"examples": 29000}, "valid": COUNTS, "test": COUNTS},
    "summarisation": {"train": {"examples": 29000} | CUT, "valid": COUNTS | CUT, "test": COUNTS | CUT},
    "qa": {"train": {"examples": 29000} | FOUND, "valid": COUNTS | FOUND, "test": COUNTS | FOUND},
    "lm": {"train": {"files": 3, "bytes": 9}, "valid": COUNTS | {"tokens": 70}, "test": COUNTS | {"tokens": 80}},
}
STREAM = {"tokens": DRAWN, "passes": dict.fromkeys(DRAWN, 0) | {"ArXiv": 2}, "refused": {}}
UNITS = {"translation": "nats/token", "summarisation": "nats/token", "qa": "nats/answer", "lm": "nats/token"}
LOSSES = {"training_loss": 1.0, "validation_accuracy": 2.0, "validation_nll": 1.5, "unigram_nll": 4.0}
SCORES = {
    "translation": {"bleu": 3.0, "chrf": 4.0},
    "summarisation": {"rouge1": 3.0, "rouge2": 2.0, "rougeL": 1.0},
    "qa": {"em": 3.0, "f1": 4.0},
    "lm": {"perplexity": 4.5, "bits_per_byte": 1.25, "training_days": 0.000116, "inference_ms": 0.31}
    | {"convergence_epoch": 1.9},
}


def put(*runs, profile="p"):
    """Record these metrics."""
    for run in runs:
        store.record(run, profile)


def renew(path, content=None):
    """Write this as a stored file, or take it as it is; its folder's checksums follow."""
    if content is not None:
        write_json(path, content)
    manifest.note(path.parent, path.name)


def metrics(variant, seed, *, task="translation", experiment=None, parameters=1000, epochs=2, data="toy", **values):
    """As `evaluate` gives them; ``values`` are scores. With an ``experiment``: of its variant and method."""
    numbers = LOSSES | SCORES[task] | values
    curve = [
        {
            "epoch": n,
            "training_loss": 5.0 / n + seed,
            "validation_nll": 4.0 / n,
            "validation_accuracy": 10.0 * n,
        }
        for n in range(1, epochs + 1)
    ]
    weights = {
        f"{kind}.0": {"place": f"{kind} 1", "cosines": [[1.0, 0.5], [0.5, 1.0]], "mean_absolute_cosine": 0.5}
        for kind in ("encoder", "cross")
    }
    config = copy.deepcopy(EXPERIMENTS[task])
    config["data"]["name"] = data
    paper, name = (experiment or f"deacon/{task}").split("/")
    if experiment:
        known = task_of(experiment).variants
        config["method"] = copy.deepcopy(known[variant].method) if variant in known else {"name": "baseline"}
    return {
        "format": 3,
        "paper": paper,
        "task": name,
        "kind": task,
        "variant": variant,
        "seed": seed,
        "hash": f"hash-of-{variant}-{seed}",
        "config": config,
        "parameters": parameters,
        "scores": {
            key: {"value": v, "unit": UNITS[task] if key in LOSSES else "u", "signature": f"how {key} is made"}
            for key, v in numbers.items()
        },
        "curve": curve,
        "heads": {"pca_weights": {} if variant == "baseline" else weights},
        "outputs": None,
        "cost": {"training_seconds": 10.0 * seed, "target_tokens_per_second": 1000.0 * seed, "peak_memory_mib": 5.0},
        "data": copy.deepcopy(DATA[task]) | {"refused": {}, "stream": STREAM if task == "lm" else {}},
        "provenance": {"commit": "abc123", "device": "a CPU", "threads": 2, "packages": {"torch": "2.6"}, "ranks": 1},
    }


# ---- what heads do

PLAIN = {"data": WORDS, "model": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 5}, "train": TRAIN}


def measures(seed, *, heads=3, layers=2):
    """Of every kind's modules, as `head_measures` gives them; heads differ more with every seed."""
    rng = np.random.default_rng(seed)
    found = {}
    for kind in ("encoder", "decoder", "cross"):
        for layer in range(1, layers + 1):
            outputs = rng.normal(size=(heads, 4)) + 1 / seed
            unit = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
            found[f"{kind} {layer}"] = {
                "queries": 100,
                "confidence": rng.uniform(0.2, 0.8, heads).tolist(),
                "entropy": rng.uniform(0.5, 2.5, heads).tolist(),
                "cosine": (unit @ unit.T).tolist(),
                "l2": np.linalg.norm(outputs[:, None] - outputs, axis=2).tolist(),
            }
    return {"measures": found}


def swap(kind, one, other):
    """Two heads, each as (layer, head) counted from 1, as rotation tells of them."""
    return {"kind": kind, "one": list(one), "other": list(other)}


def headed(variant, seed, *, experiment="mhr/translation", heads=3, layers=2, swaps=None, **values):
    """`metrics` with measures of the heads; ``swaps``: by the epoch after which they are made, (pairs, back)."""
    run = metrics(variant, seed, experiment=experiment, **values)
    run["config"]["train"]["epochs"] = len(run["curve"])
    run["heads"] = measures(seed, heads=heads, layers=layers)
    for epoch, (pairs, back) in (swaps or {}).items():
        run["curve"][epoch - 1]["method"] = {"swaps": pairs, "back": back}
    return run


# ---- activity of units

HOMEOSTASIS = ("homeostasis/memorisation", "homeostasis/small", "homeostasis/base", "homeostasis/big")


def activations(method, seed, *, units=6, layers=2):
    """Of every module that counts, as homeostasis' `findings` gives them."""
    rng = np.random.default_rng(seed)
    kinds = {"attention": ("encoder {}", "s_att", 3), "block": ("encoder block {}", "s_bo", 1)}
    found = {}
    for key, (place, s, groups) in kinds.items():
        mechanism = method.get(key, "none")
        if mechanism in ("kwta", "rfb-kwta", "smart"):
            for layer in range(1, layers + 1):
                shares = np.clip(rng.normal(method[s], 0.1, (groups, units)), 0, 1)
                row = {"mechanism": mechanism, "s": method[s], "shares": shares.tolist()}
                found[place.format(layer)] = row
    return {"activations": found} if found else {}


def homeostatic(variant, seed, *, experiment="homeostasis/small", scored=True, **values):
    """`metrics` of a run of the homeostasis paper; ``scored``: with BLEU after every epoch."""
    run = metrics(variant, seed, experiment=experiment, **values)
    run["config"]["train"] |= {"epoch_scores": 100 if scored else 0}
    run["heads"] = activations(run["config"]["method"], seed)
    for point in run["curve"] if scored else ():
        n = point["epoch"]
        point |= {"training_bleu": 20.0 * n + seed, "validation_bleu": 10.0 * n + seed}
    return run


# ---- profiles


def write_profile(project, name, *tasks, seeds=(1, 2), variants=None, title=None):
    """A profile of these experiments, each with these variants, or all of the paper's and "own".

    A task of DEACON is named without its paper, all others with it; none named: all of DEACON's.
    """
    own = {"own": {"name": "deacon", "architecture": "direct", "m": 2}}
    sections = {"define": own if variants is None or "own" in variants else {}, "variants": variants}
    names = {task: task if "/" in task else f"deacon/{task}" for task in tasks or EXPERIMENTS}
    experiments = {name: EXPERIMENTS.get(task, PLAIN) | sections for task, name in names.items()}
    content = {"title": title or name, "seeds": list(seeds), "threads": 1, "experiments": experiments}
    return project.write_config(name, yaml.safe_dump(content, sort_keys=False))


def store_all(profile, *runs):
    """Record these metrics, and one run of the baseline of every task that has none among them."""
    lacking = set(EXPERIMENTS) - {run["task"] for run in runs}
    put(*runs, *(metrics("baseline", 1, task=task) for task in sorted(lacking)), profile=profile)


# ---- differences


def worked_out(scores, *pairs):
    """A twin of `comparison.differences`: by pair (difference, half its simultaneous interval, standard error).

    The normal equations of variants and of seeds but the first; ``scores`` by variant and seed, with runs to spare.
    """
    rows = [(variant, seed, y) for variant, of_seeds in scores.items() for seed, y in of_seeds.items()]
    variants, seeds = list(scores), sorted({seed for _, seed, _ in rows})[1:]
    X = np.array([[v == one for one in variants] + [s == one for one in seeds] for v, s, _ in rows], dtype=float)
    y = np.array([row[2] for row in rows])
    C = np.array(
        [[(v == one) - (v == other) for v in variants] + [0] * len(seeds) for one, other in pairs], dtype=float
    )
    beta = np.linalg.solve(X.T @ X, X.T @ y)
    freedom = len(rows) - X.shape[1]
    covariance = C @ np.linalg.inv(X.T @ X) @ C.T * ((y - X @ beta) ** 2).sum() / freedom
    errors = np.sqrt(np.diag(covariance))
    c = simultaneous_quantile(covariance / np.outer(errors, errors), freedom)
    return {pair: (mean, c * error, error) for pair, mean, error in zip(pairs, C @ beta, errors, strict=True)}


# ---- figures

WIDEST = 9.6  # inches: labels of 8 points can still be read where a page is 830 pixels wide


def assert_readable(figure):
    """What every figure must be: no wider than a page, no empty axes, words on all axes, each legend entry once."""
    assert figure.get_figwidth() <= WIDEST
    for ax in (ax for ax in figure.axes if ax.axison and ax.get_visible()):
        assert ax.has_data() or ax.texts, "empty axes"
        if ax.get_label() == "<colorbar>":
            assert ax.get_xlabel() or ax.get_ylabel() or ax.get_title()
            continue
        place = ax.get_subplotspec()
        if place.is_last_row():
            assert ax.get_xlabel(), "no words on the horizontal axis"
        if place.is_first_col():
            named = any(not label.get_text().lstrip("−-").replace(".", "").isdigit() for label in ax.get_yticklabels())
            assert ax.get_ylabel() or ax.get_title() or named, "no words on the vertical axis"
    for legend in figure.legends:
        labels = [text.get_text() for text in legend.get_texts()]
        assert labels
        assert len(set(labels)) == len(labels)

"""What a trained model's heads do with a text that is typed in: similarity, masking, PCA weights against components.

Letters: H heads, k inputs of a PCA layer's weights w.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import normalize

from headdiv.analysis.masking import heads_of, masked_heads, masks_without, module_named
from headdiv.analysis.similarity import Observed, compare_heads
from headdiv.companion.experiments.attention_maps import AttentionMap, maps_of
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.running import is_trained, load_run
from headdiv.companion.experiments.shipped import is_shipped, load_shipped
from headdiv.companion.report.groups import place_name
from headdiv.companion.tasks.base import Run
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core.errors import DataError
from headdiv.gha import principal_components
from headdiv.methods.deacon import collected_moments, pca_layers
from headdiv.nn.records import record_heads

# ---- which runs there are


def available_runs(
    profile: str, experiment: str | None = None, variant: str | None = None, seed: int | None = None
) -> list[RunConfig]:
    """The runs of a profile whose trained model is on this machine, in the profile's order; equal trainings once.

    Raises:
        ConfigError: no such profile, or it has no run with these names.
    """
    configs = {config.hash: config for config in reversed(Runs(profile).configs(experiment, variant, seed))}
    return [config for config in reversed(configs.values()) if is_shipped(config) or _is_trained(config)]


def load(config: RunConfig) -> Run:
    """The trained run of a configuration, or the model of it that comes with the project."""
    return load_run(config) if _is_trained(config) else load_shipped(config)


def _is_trained(config: RunConfig) -> bool:
    try:
        return is_trained(config)
    except DataError:  # a run's folder is named by its text as well: without the text no model can be found
        return False


# ---- what is looked at


@dataclass(frozen=True, eq=False)
class View:
    """One head of one run, and a text.

    Attributes:
        run: a finished run.
        text: what the model reads; in question answering the passage.
        other: question answering: the question. Translation and summarisation: the output that the decoder is given;
            None: the model's own.
        place: the attention module: "encoder 1", "decoder 2", "cross 1".
        head: counted from 1; of a mixture its slot.
    """

    run: Run
    text: str
    other: str | None
    place: str
    head: int

    def __post_init__(self) -> None:
        count = module_named(self.place, heads_of(self.run.model))
        if not 1 <= self.head <= count:
            raise DataError(f"{self.place} has the heads 1 to {count}, found head {self.head}")

    @property
    def name(self) -> str:
        """ "deacon/translation direct-8 seed 1"."""
        return self.run.config.label

    @cached_property
    def batch(self) -> Any:
        """The text as a batch of one example; the model's own output is searched for once."""
        return self.run.task.example_batch(self.run, self.text, self.other)

    @cached_property
    def attention(self) -> AttentionMap:
        """The attention maps of all heads of the module."""
        return maps_of(self.run, self.batch)[self.place]


def view_of(
    run: Run, text: str | None = None, other: str | None = None, place: str | None = None, head: int = 1
) -> View:
    """A view of a run, by default of the test set's first example and the last attention module.

    Raises:
        DataError: the model has no such place or head.
    """
    if text is None:
        text, question, _ = run.task.example_texts(run.corpus, "test", 1)[0]
        other = question if other is None else other
    return View(run, text, other, place or list(heads_of(run.model))[-1], head)


# ---- how alike the heads are


class PairMeasure(NamedTuple):
    """A measure of two heads: what it is called, and the least that it can be; the most is 1."""

    label: str
    low: float


MEASURES = {  # of similarity
    "cosine": PairMeasure("cosine of outputs", -1),
    "correlation": PairMeasure("correlation of outputs", -1),
    "cka": PairMeasure("CKA of outputs", 0),
    "js": PairMeasure("1 − Jensen–Shannon distance of attention", 0),
}


@torch.no_grad()
def similarity(view: View, measure: str = "cosine") -> np.ndarray:
    """How alike the heads of a module are on the text, special tokens left out: (H, H), 1 where they are equal.

    The measures are those of `headdiv.analysis.similarity.HeadComparison`, of the Jensen–Shannon distance 1 minus it.
    Of few words CKA is near 1 for any heads: it is about K / T between independent ones of width K on T words.

    Raises:
        DataError: a text without words.
    """
    run, batch = view.run, view.batch
    with record_heads(run.model) as records:
        run.model(batch)
    comparisons = compare_heads([Observed(records, run.task.special_tokens(batch))])
    comparison = next(comparison for spec, comparison in comparisons if spec.name == view.place)
    if not comparison.queries:
        raise DataError(f"{view.place}: no words that heads could be compared on")
    values = getattr(comparison, measure).numpy()
    return 1 - values if measure == "js" else values


# ---- what a head is for


@torch.no_grad()
def masking(view: View) -> pd.DataFrame:
    """The output with all heads and without this one, its neighbours left alone: two lines.

    Columns: the output for the text, and the mean log-probability of the output that all heads give (or of
    ``view.other``, where the decoder is given one), in nats a token, an answer or a masked token; of a language model
    the loss on the text itself, in nats a token.

    Raises:
        DataError: a text without anything to predict.
    """
    run, task = view.run, view.run.task
    batch = task.expect_output(run, view.batch)
    is_given = view.other is not None and not task.second_is_input
    output = "the output given" if is_given else f"all heads' {task.output}"
    column = f"loss on the text ({task.unit})" if task.predicts_text else f"log-probability of {output} ({task.unit})"
    masks_by_row = {
        "all heads": {},
        f"without {place_name(view.place)}, head {view.head}": masks_without(run.model, [(view.place, view.head)]),
    }
    rows = {}
    for name, masks in masks_by_row.items():
        with masked_heads(run.model, masks):
            losses = task.loss(run.model, run.model.output_weight, batch)
            nll = losses.nll.item() / losses.count
            output = task.apply(run, view.text, view.other)
            rows[name] = [output, nll if task.predicts_text else -nll]
    return pd.DataFrame.from_dict(rows, orient="index", columns=[task.output, column])


# ---- PCA weights and components


class Components(NamedTuple):
    """The weights of a PCA layer, M columns, against the principal components of its inputs."""

    cosines: np.ndarray  # (M, M) absolute cosines of column i with the j-th component; an eigenvector has no sign
    inputs: int  # k
    kept: float  # share of the inputs' variance that the span of the columns keeps
    best: float  # the most that M columns can keep


def components(view: View) -> Components | None:
    """The PCA layer of the view's module against its inputs over the validation split; None where it has none.

    Raises:
        DataError: the inputs do not vary.
    """
    layers = {layer.spec.name: layer for layer in pca_layers(view.run.model).values()}
    if view.place not in layers:
        return None
    C = held_out_covariances(view.run)[view.place]
    if not C.trace() > 0:
        raise DataError(f"{view.place}: the inputs of the PCA layer do not vary")
    return compare_components(layers[view.place].w.detach().cpu().double(), C)


def compare_components(w: Tensor, C: Tensor) -> Components:
    """Weights (k, M), whose columns may depend on each other, against inputs of covariance C (k, k); both float64."""
    best = principal_components(C, w.shape[1])  # (k, M), orthonormal
    columns = normalize(w, dim=0)
    projections = columns @ torch.linalg.pinv(columns), best @ best.T  # onto the span of w, and the best one
    kept, possible = (float((P @ C).trace() / C.trace()) for P in projections)
    return Components((columns.T @ best).abs().clamp_max(1).numpy(), len(w), kept, possible)


@torch.no_grad()
def held_out_covariances(run: Run) -> dict[str, Tensor]:
    """C of every PCA layer's inputs over the validation split, nothing dropped out, by place: (k, k), float64.

    Taken once for each loaded run; a model that comes with the project, without its validation text, has them stored.
    """
    if "covariances" not in run.record:
        run.model.eval()
        with collected_moments(run.model) as moments:
            for batch in run.task.held_out(run.corpus, "valid", run.config):
                run.model(batch.to(run.device))
        run.record["covariances"] = {place: C for place, (_, _, C) in moments.items()}
    return run.record["covariances"]

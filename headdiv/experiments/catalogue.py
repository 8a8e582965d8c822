"""The tables and figures that there are, as data: which runs each needs and what it shows.

A paper's file lists its figures and its tables of data; every task of a paper has a table of results and a figure of
learning curves besides. `headdiv.report.figures` draws them; nothing here imports matplotlib.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from headdiv.core.errors import DataError
from headdiv.core.settings import nearest
from headdiv.experiments.papers import PaperFigure, load_paper, paper_names
from headdiv.tasks import TASKS

CURVES, HEADS, PRUNING = "curves", "heads-by-epoch", "pruning"  # kinds of figure that every task of a paper can have

# Captions that several figures of one kind share; braces are filled from the figure's label and options.
CAPTIONS = {
    "alphas": (
        "The Alphas of every attention module, trained {how} (the paper's {label}, which shows the decoder's "
        "self-attention). Row i holds the coefficients of which head i becomes the mixture. Colours show A minus the "
        "identity that A starts from: white is as at the start. Above each, its nuclear norm (at the start: the "
        "number of heads), and how much of the squares off the diagonal belongs to the skew-symmetric part: 1 where "
        "opposite entries differ in sign only, 0 where they are equal, one half where they have nothing to do with "
        "each other."
    ),
    "changes": (
        "How far the heads of a layer are from each other, against the baseline (the paper's {label}): change in "
        "percent of the L₁,₁ norm of the matrix of their distances, {definition}, mean over the words of the "
        "validation split. Above zero the heads are further apart than the baseline's, below zero closer together."
    ),
    "bleu": (
        "BLEU of greedy translations of the first pairs of the {split} text after each epoch (the paper's "
        "{label}){and_larger}. It is taken over the vocabulary's words, one reference each."
    ),
    "routers": (
        "How evenly the experts of every attention module are chosen, and how surely, on the validation split. Left, "
        "each expert's share of the choices, in its module's own order; middle, its share of the gates; white is an "
        "even share. With k = E all loads are even and only the gates differ. Right, the mean entropy of the routing "
        "probabilities; the dashed line, log E, is a router that prefers nothing."
    ),
    "words": (
        "Which words the experts serve: of every module the experts that are chosen most often, with their share of "
        "the choices, and the words that they serve most often in comparison with the average expert. In "
        "encoder-decoder attention it is the word that asks. ␣ is the space before a word, ↵ the end of a line."
    ),
    HEADS: (
        "How alike the heads are after each epoch, on the validation split: means over the attention modules; thick "
        "lines the mean over seeds, thin ones each seed. Linear CKA and cosine are of the outputs of two heads, the "
        "effective rank is that of all heads' outputs side by side, the Jensen–Shannon distance that of two heads' "
        "attention. Of DEACON there is also the mean absolute cosine of two columns of w (Figure 6)."
    ),
    PRUNING: (
        "The score on the test set with ever fewer heads: after training, heads are masked in the order of how little "
        "masking each alone adds to the validation loss, measured anew when half of them are gone, and nothing is "
        "trained again. Dashed: models of DEACON, by the number m of components that they were trained with."
    ),
}


@dataclass(frozen=True)
class FigureEntry:
    """A figure: its kind, the experiment whose runs it needs, and what it shows."""

    name: str
    kind: str  # names the function that draws it
    experiment: str
    caption: str
    label: str = ""  # what its title and errors call it: "Figure 6"
    variants: tuple[str, ...] = ()  # one of these must be in the profile; none named: any will do
    against: tuple[str, ...] = ()  # and all of these
    beside: tuple[str, ...] = ()  # further experiments: their runs are shown as well where the profile has them
    options: dict[str, Any] = field(default_factory=dict)  # what its kind asks for besides

    @property
    def on_request(self) -> bool:
        """Whether it is drawn from what `headdiv importance` stores: no run of a profile makes it."""
        return self.kind == PRUNING

    @property
    def paper(self) -> str:
        """The paper that the figure belongs to."""
        return self.experiment.partition("/")[0]


def figures_of_paper(name: str) -> dict[str, FigureEntry]:
    """Every figure of a paper by its name: task by task those by epoch, then what the paper's file lists."""
    entries, paper = [], load_paper(name)
    for task, content in paper.tasks.items():
        caption = TASKS[content.kind or task].curves_caption
        entries.append(FigureEntry(f"{name}_{task}_curves", CURVES, f"{name}/{task}", caption))
        entries.append(FigureEntry(f"{name}_{task}_heads_by_epoch", HEADS, f"{name}/{task}", CAPTIONS[HEADS]))
        entries += [_entry(name, key, figure) for key, figure in paper.figures.items() if figure.task == task]
    return {entry.name: entry for entry in entries}


def _entry(paper: str, name: str, figure: PaperFigure) -> FigureEntry:
    name, beside = f"{paper}_{name}", tuple(f"{paper}/{task}" for task in figure.beside)
    larger = f"; {' and '.join(beside)} where the profile has them" if beside else ""
    caption = figure.caption or CAPTIONS[figure.kind].format(label=figure.label, and_larger=larger, **figure.options)
    needs = (figure.variants, figure.against, beside, figure.options)
    return FigureEntry(name, figure.kind, f"{paper}/{figure.task}", caption, figure.label or name, *needs)


def known_figures(on_request: bool = False) -> dict[str, FigureEntry]:
    """The figures of all papers by name: those drawn from a profile's runs, or those drawn on request."""
    known = {name: entry for paper in paper_names() for name, entry in figures_of_paper(paper).items()}
    return {name: entry for name, entry in known.items() if entry.on_request == on_request}


def figure_entry(name: str) -> FigureEntry:
    """The figure of this name. Raises DataError: there is none."""
    known = known_figures() | known_figures(on_request=True)
    if name not in known:
        raise DataError(f"figure {name!r} is not known{nearest(name, list(known))}")
    return known[name]


def figures_of(configured: Iterable[tuple[str, str]], by_epoch: Container[str] = ()) -> dict[str, FigureEntry]:
    """The figures that runs, (experiment, variant) each, allow, without those that are drawn on request alone.

    ``by_epoch``: the experiments whose heads are measured after each epoch.
    """
    variants: dict[str, set[str]] = {}
    for experiment, variant in configured:
        variants.setdefault(experiment, set()).add(variant)
    return {
        name: entry
        for paper in dict.fromkeys(experiment.partition("/")[0] for experiment in variants)
        for name, entry in figures_of_paper(paper).items()
        if not entry.on_request
        and (entry.kind != HEADS or entry.experiment in by_epoch)
        and (there := variants.get(entry.experiment))
        and (not entry.variants or there & set(entry.variants))
        and there.issuperset(entry.against)
    }


def tables_of(experiments: Iterable[str]) -> dict[str, str]:
    """The tables that these experiments give, each with the experiment whose runs it needs.

    A table about an experiment's data comes before that of its results.
    """
    found = {}
    for experiment in experiments:
        paper, _, task = experiment.partition("/")
        about = {f"{paper}/{name}": experiment for name, t in load_paper(paper).tables.items() if t.task == task}
        found |= about | {experiment: experiment}
    return found

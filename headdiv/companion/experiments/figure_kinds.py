"""The kinds of figure: what each is asked for in a paper's file, and the captions that figures of one kind share.

`headdiv.companion.report.figures` has the function that draws each; nothing here imports matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from headdiv.core.settings import Settings

# Those that every task of a paper can have.
CURVES, HEADS, PRUNING = "curves", "heads-by-epoch", "pruning"


class NoOptions(Settings):
    """Nothing."""


class PCAOptions(Settings):
    """How the cosines of PCA weights are shown."""

    limit: float = Field(gt=0, description="of the colours; 1 is the full scale")


class AlphasOptions(Settings):
    """What the caption says of Alphas."""

    how: str = Field("", description="they were trained: 'with the nuclear loss'")


class ChangesOptions(Settings):
    """Which distance of heads is compared."""

    distance: Literal["cosine", "l2"]
    definition: str = Field("", description="of the distances, for the caption")


class DifferencesOptions(Settings):
    """What is compared."""

    scores: list[str] = Field(default_factory=list, description="those of the table where left out")
    costs: bool = Field(False, description="parameters and times beside them")


class BleuOptions(Settings):
    """Whose BLEU by epoch is shown."""

    split: Literal["training", "validation"]


@dataclass(frozen=True)
class FigureKind:
    """What a figure of this kind needs in a paper's file.

    Attributes:
        title: what the gallery calls a figure to which the paper gives no number.
        caption: of figures without their own; braces are filled from label and options. "": each needs its own.
        Options: the keys of the figure's ``options``.
        variants: how many the figure names; None: any number. Likewise ``against``.
    """

    title: str
    caption: str = ""
    Options: type[Settings] = NoOptions
    variants: int | None = None
    against: int | None = None


FIGURE_KINDS = {
    CURVES: FigureKind("learning curves"),
    "alphas": FigureKind(
        "mixing matrices",
        "The Alphas of every attention module, trained {how} (the paper's {label}, which shows the decoder's "
        "self-attention). Row i holds the coefficients of the mixture that head i becomes. Colours show A minus the "
        "identity, where A starts: white is unchanged. Above each: its nuclear norm (at the start, the number of "
        "heads) and the share of the squared off-diagonal entries that belongs to the skew-symmetric part: 1 if "
        "opposite entries differ only in sign, 0 if they are equal, one half if they are unrelated.",
        AlphasOptions,
        variants=1,
        against=0,
    ),
    "changes": FigureKind(
        "distances between heads",
        "How far apart the heads of a layer are, against the baseline (the paper's {label}): change in percent of the "
        "L₁,₁ norm of the matrix of their distances, {definition}, mean over the words of the validation split. Above "
        "zero the heads are further apart than the baseline's, below zero closer together.",
        ChangesOptions,
        against=1,
    ),
    "bleu": FigureKind(
        "BLEU by epoch",
        "BLEU of greedy translations of the first pairs of the {split} text after each epoch (the paper's "
        "{label}){and_larger}. It is computed over the vocabulary's words, with one reference each.",
        BleuOptions,
    ),
    "routers": FigureKind(
        "routers",
        "How evenly and how decisively the experts of every attention module are chosen, on the validation split. "
        "Left: each expert's share of the choices, sorted within its module; middle, sorted anew: of the gates; white "
        "is an even share. With k = E all loads are even and only the gates differ. Right: the mean entropy of the "
        "routing probabilities; the dashed line, log E, is a router without preferences.",
    ),
    "words": FigureKind(
        "words of the experts",
        "Which words the experts serve: each module's most often chosen experts, with their share of the choices, and "
        "the words that they serve most often compared with the average expert. In encoder-decoder attention it is the "
        "query's word. ␣ is the space before a word, ↵ the end of a line.",
    ),
    HEADS: FigureKind(
        "heads by epoch",
        "How alike the heads are after each epoch, on the validation split: means over the attention modules; thick "
        "lines are means over seeds, thin ones single seeds. Linear CKA and cosine compare the outputs of two heads, "
        "the Jensen–Shannon distance their attention; the effective rank is that of all heads' outputs side by side. "
        "For DEACON there is also the mean absolute cosine of two columns of w (Figure 6).",
    ),
    PRUNING: FigureKind(
        "pruning",
        "The score on the test set with ever fewer heads: after training, heads are masked in increasing order of what "
        "masking each alone adds to the validation loss, measured again when half of them are gone, without "
        "retraining. Dashed: DEACON models, by the number m of components that they were trained with.",
    ),
    "pca-weights": FigureKind("PCA weights", Options=PCAOptions),
    "activations": FigureKind("how often units are active"),
    "confidence": FigureKind("confidence of heads"),
    "differences": FigureKind("differences from the Transformer", Options=DifferencesOptions),
    "diversity": FigureKind("diversity and score"),
    "levels": FigureKind("gains by dropout, or by the share of data"),
    "level-curves": FigureKind("learning curves"),
    "measures": FigureKind("measures of heads"),
    "swaps": FigureKind("swaps"),
}

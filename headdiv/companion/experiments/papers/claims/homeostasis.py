"""What the homeostasis paper claims beside its tables' numbers, and how numbers are computed.

It prints BLEU as a share of 1; its tables' file, which claims refer to, has it of 100.
"""

from collections.abc import Sequence

from headdiv.companion.experiments.claims.functions import (
    all_higher,
    all_higher_in_each,
    best_is_as_high,
    best_is_higher,
    difference,
    each_higher,
    higher,
    hundredth,
    in_millions,
    in_thousands,
    itself,
    lower,
    percent_above,
    ratio,
)
from headdiv.companion.experiments.claims.records import (
    Cause,
    Claim,
    Examples,
    NumbersOf,
    PaperClaims,
    Scale,
    TableSetting,
    claim,
    how,
    measured,
    relation,
    stated,
)

T2, SMALL, BASE, BIG = NumbersOf("memorisation"), NumbersOf("small"), NumbersOf("base"), NumbersOf("big")
RFB = ("rfb-50", "rfb-70", "rfb-80", "rfb-90")
SMART = ("smart-1", "smart-16", "smart-256", "smart-1024")
RFB_SMART = ("rfb-smart-1", "rfb-smart-4", "rfb-smart-16", "rfb-smart-512")

EQ_7_AS_PRINTED = Cause(
    "slip", "Eq. 7 does not reach the smallest and largest probability that it is written for; a term is missing."
)
EQ_9_AS_PRINTED = Cause(
    "result",
    "Eq. 9's sum telescopes, so that no IMI can exceed one half: Table 2's values, on which §3.2 rests, were worked "
    "out by another formula, which the paper does not give.",
)
SIZES_OF_SPLITS = Cause("slip", "Multi30k's splits have other sizes.")
SMALL_AGAINST_BASE = Cause(
    "result", "In Table 3 the base model is better than the small one in its best row, but worse at s = 0.5 and 0.8."
)


# ---- functions


def highest_as_share(numbers: Sequence[float]) -> float:
    """The highest of the numbers, of 100, as a share of 1."""
    return max(numbers) / 100


def total_in_thousands(numbers: Sequence[float]) -> float:
    """The sum of the numbers, in thousands."""
    return sum(numbers) / 1000


def eq_7(fraction: float) -> float:
    """Eq. 7 as printed, for a fraction of 0 or 1: it is multiplied by a - b, 0.99 - 0.01, and nothing is added."""
    return ((0.99 - 0.01) * fraction) ** 0.83


def eq_7_with_b(fraction: float) -> float:
    """Eq. 7 with b, 0.01, added to the product of the fraction and a - b."""
    return ((0.99 - 0.01) * fraction + 0.01) ** 0.83


def eq_9(last: float, first: float) -> float:
    """Eq. 9 over two epochs: its sum of differences telescopes to (last - first) / (2 (E - 1)), here of E = 2."""
    return (last - first) / (2 * (2 - 1))


def eq_9_with_sum(last: float, first: float) -> float:
    """Eq. 9 over two epochs with their sum in the place of their difference."""
    return (last + first) / (2 * (2 - 1))


def eq_9_bound(best: float) -> float:
    """The most that Eq. 9 can give: two epochs, the first at BLEU 0 and the last at the best, as a share of 1."""
    return best / 100 / (2 * (2 - 1))


def checkpoints(measures: float, splits: float) -> float:
    """One for each measure on each split, and the last."""
    return measures * splits + 1


# ---- what the text states

SENTENCES: dict[str, list[Claim]] = {
    "Abstract": [
        claim("BLEU of the classical Transformer", "0.2768 of 1", hundredth, *BASE("bleu", "baseline")),
        claim("BLEU of dropout at both places", "0.3007 of 1", hundredth, *BASE("bleu", "dropout")),
        claim("the best BLEU", "0.3062 of 1", highest_as_share,
            (SMALL.column("bleu"), BASE.column("bleu"), BIG.column("bleu")),
            also={
                "above the classical Transformer, in points of BLEU": how(difference,
                    *BASE("bleu", "smart-16", "baseline")),
                "above it, in %": how(percent_above, *BASE("bleu", "smart-16", "baseline")),
                "above dropout, in points of BLEU": how(difference, *BASE("bleu", "smart-16", "dropout")),
            }),
        measured("the base model's best mechanism is better than the classical Transformer", higher,
            *BASE.runs("bleu", "smart-16", "baseline")),
        measured("the base model's best mechanism is better than dropout", higher,
            *BASE.runs("bleu", "smart-16", "dropout")),
    ],
    "§2.4, Eq. 7": [
        claim("largest probability a", "0.99 probability", eq_7, 1,
            also={"with b added, as its name wants it": how(eq_7_with_b, 1)}, cause=EQ_7_AS_PRINTED),
        claim("smallest probability b", "0.01 probability", eq_7, 0,
            also={"with b added, as its name wants it": how(eq_7_with_b, 0)}, cause=EQ_7_AS_PRINTED),
        stated("exponent", "0.83 exponent"),
    ],
    "§2.5, Eq. 9": [
        claim("Table 2's IMI of Small is within reach", "0.705 IMI", eq_9_bound, *T2("training_bleu", "baseline"),
            sign=">=", cause=EQ_9_AS_PRINTED),
        claim("Table 2's IMI of kWTA with s = 0.2 is within reach", "0.728 IMI", eq_9_bound,
            *T2("training_bleu", "kwta-20"), sign=">=", cause=EQ_9_AS_PRINTED),
        claim("Table 2's IMI of kWTA with s = 0.5 is within reach", "0.743 IMI", eq_9_bound,
            *T2("training_bleu", "kwta-50"), sign=">=", cause=EQ_9_AS_PRINTED),
        claim("IMI of the ideal model, which knows all from the first epoch", "1 IMI", eq_9, 1, 1,
            also={"with the sum of two epochs in the place of their difference": how(eq_9_with_sum, 1, 1)},
            note="it is the ratio to that model's area", cause=EQ_9_AS_PRINTED),
    ],
    "§2.6": [
        claim("training pairs", "29 thousand pairs", in_thousands, Examples("multi30k", "train"), kind="setting"),
        claim("test pairs", "1024 pairs", itself, Examples("multi30k", "test_2016_flickr"), cause=SIZES_OF_SPLITS,
            kind="setting"),
        claim("validation pairs", "1024 pairs", itself, Examples("multi30k", "valid"), cause=SIZES_OF_SPLITS,
            kind="setting"),
        stated("steps", "181 thousand steps"),
        stated("learning rate", "0.0001 step", BASE.setting("train.learning_rate")),
        claim("checkpoints that are kept", "5 checkpoints", checkpoints, 2, 2,
            note="loss and BLEU, training and validation; the last"),
        stated("epochs between them", "30 epochs"),
    ],
    "§3.1": [
        claim("small model", "23.1 million parameters", in_millions, *SMALL.counted("baseline"),
            kind="parameter count"),
        claim("base model", "68.3 million parameters", in_millions, *BASE.counted("baseline"), kind="parameter count"),
        claim("big model", "224.6 million parameters", in_millions, *BIG.counted("baseline"), kind="parameter count"),
        stated("types of models", "3 models"),
    ],
    "§3.2": [
        stated("steps", "45 thousand steps"),
        relation("kWTA memorises more by Table 2", all_higher_in_each, T2("training_bleu", "kwta-20", "kwta-50"),
            *T2("training_bleu", "baseline"), T2("training_imi", "kwta-20", "kwta-50"),
            *T2("training_imi", "baseline")),
        relation("kWTA generalises less by Table 2", all_higher, T2("validation_bleu", "baseline"),
            T2("validation_bleu", "kwta-20", "kwta-50")),
        measured("kWTA with s = 0.5 memorises faster", higher, *T2.runs("training_imi", "kwta-50", "baseline")),
        measured("kWTA with s = 0.2 memorises faster", higher, *T2.runs("training_imi", "kwta-20", "baseline")),
        measured("kWTA with s = 0.5 generalises less", lower, *T2.runs("validation_bleu", "kwta-50", "baseline")),
        measured("kWTA with s = 0.2 generalises less", lower, *T2.runs("validation_bleu", "kwta-20", "baseline")),
    ],
    "§3.3, Figures 3 and 4": [
        claim("big has more parameters than small, times", "10 times", ratio, *BIG("parameters", "baseline"),
            *SMALL("parameters", "baseline"), sign="about"),
        relation("big is worse than small with RFB-kWTA, s = 0.5, by Table 3", lower, *BIG("bleu", "baseline"),
            *SMALL("bleu", "rfb-50")),
        measured("big is worse than small with RFB-kWTA, s = 0.5", lower, *BIG.runs("bleu", "baseline"),
            *SMALL.runs("bleu", "rfb-50")),
        measured("small is better with RFB-kWTA, s = 0.5", higher, *SMALL.runs("bleu", "rfb-50", "baseline")),
        measured("small is better with RFB-kWTA, s = 0.8", higher, *SMALL.runs("bleu", "rfb-80", "baseline")),
    ],
    "§4": [
        relation("every model with a mechanism is better than every classical one by Table 3", all_higher,
            (*SMALL("bleu", *RFB), *BASE("bleu", *RFB, *SMART), *BIG("bleu", *RFB, *RFB_SMART)),
            (*SMALL("bleu", "baseline"), *BASE("bleu", "baseline"), *BIG("bleu", "baseline"))),
        relation("smart inhibition improves on dropout, base model", best_is_higher, BASE("bleu", *SMART),
            BASE("bleu", *RFB)),
        relation("smart inhibition improves on dropout, big model", best_is_higher, BIG("bleu", *RFB_SMART),
            BIG("bleu", *RFB)),
        claim("samples of the data set", "30 thousand pairs", total_in_thousands,
            (Examples("multi30k", "train"), Examples("multi30k", "valid"), Examples("multi30k", "test_2016_flickr")),
            cause=SIZES_OF_SPLITS),
        relation("the big model is not the best", best_is_higher, (SMALL.column("bleu"), BASE.column("bleu")),
            BIG.column("bleu")),
        relation("the base model is better than the small one, classical", higher, *BASE("bleu", "baseline"),
            *SMALL("bleu", "baseline")),
        relation("the base model is better than the small one, best rows", best_is_higher, BASE.column("bleu"),
            SMALL.column("bleu")),
        relation("the base model is better than the small one, at every s of (B)", each_higher, BASE("bleu", *RFB),
            SMALL("bleu", *RFB), cause=SMALL_AGAINST_BASE),
    ],
    "§5": [
        claim("small has fewer parameters than big, times", "10 times", ratio, *BIG("parameters", "baseline"),
            *SMALL("parameters", "baseline"), sign="about"),
        claim("small's best BLEU", "0.3025 of 1", highest_as_share, SMALL.column("bleu")),
        claim("big's BLEU", "0.2751 of 1", hundredth, *BIG("bleu", "baseline")),
        relation("the best row is the base model's with smart inhibition at both places", best_is_as_high,
            BASE("bleu", *SMART), (SMALL.column("bleu"), BASE.column("bleu"), BIG.column("bleu"))),
    ],
}  # fmt: skip


# ---- sizes and settings

WORDS = {
    "name": "multi30k",
    "source": "en",
    "target": "de",
    "tokenizer": "spacy",
    "lowercase": True,
    "min_frequency": 1,
    "test": "test_2016_flickr",
}
# Steps are printed in thousands, 45 and 181: half a thousand less is as long.
WHOLE = Scale(WORDS, examples=29000, steps=180500)
SIZES = {
    "D": ("model.d_model", "values"),
    "H": ("model.heads", "heads"),
    "D_ff": ("model.d_ff", "values"),
    "N_blocks": ("model.encoder_layers", "layers"),
    "dropout rate": ("model.dropout", "share"),
}
OPTIONS = {"Q_Att": ("method.q_att", "steps"), "Q_BO": ("method.q_bo", "steps"), "s": ("method.s_att", "share")}


def settings(table: str, *options: str) -> dict[str, TableSetting]:
    """Table 1's sizes of a model, and the options of Table 3's rows."""
    sizes = {
        label: TableSetting((path,), unit, rows=("baseline",), table="Table 1") for label, (path, unit) in SIZES.items()
    }
    return sizes | {
        label: TableSetting((path,), unit, table=table) for label, (path, unit) in OPTIONS.items() if label in options
    }


CLAIMS = PaperClaims(
    sentences=SENTENCES,
    scale={"memorisation": Scale(WORDS, examples=29000, steps=44500), "small": WHOLE, "base": WHOLE, "big": WHOLE},
    tables={
        "small": {"parameters": "Table 1", "bleu": "Table 3, Small"},
        "base": {"parameters": "Table 1", "bleu": "Table 3, Base"},
        "big": {"parameters": "Table 1", "bleu": "Table 3, Big"},
    },
    settings={
        "memorisation": {"s": TableSetting(("method.s_att",), "share")},
        "small": settings("Table 3, Small", "Q_Att", "s"),
        "base": settings("Table 3, Base", "Q_Att", "Q_BO", "s"),
        "big": settings("Table 3, Big", "Q_Att", "Q_BO", "s"),
    },
)

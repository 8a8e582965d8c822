"""What Multi-Head Rotation claims beside its tables' numbers, and how numbers are computed."""

from collections.abc import Sequence
from typing import Any

from headdiv.companion.experiments.claims.functions import (
    TIE,
    Margins,
    all_higher,
    best_is_higher,
    difference,
    each_higher,
    higher,
    in_thousands,
    itself,
    not_higher,
    ratio,
    whole_words,
    within_half_a_point,
)
from headdiv.companion.experiments.claims.records import (
    Cause,
    Claim,
    Computation,
    Counted,
    Examples,
    Model,
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

GERMAN, SPANISH = NumbersOf("translation"), NumbersOf("spanish")
COPIED_COUNTS = Cause("slip", "A count is that of another row, the baseline's or the German model's.")
WIDTH_OF_HEADS = Cause("slip", "Table 2's counts are of heads of 64 values, not of 128.")
RANDOM_SWAPS = Cause("result", "Random swaps, one of the methods, are worse than the baseline in Table 5.")


# ---- functions


def mixtures(heads: float) -> float:
    """18 modules mix h heads: h × h weights and h biases each, for the number of heads h."""
    return 18 * (heads * heads + heads)


def as_in_german(baseline: float, mixed: float, plain: float) -> float:
    """The first number, and what the second, with mixtures, is above the third, without them."""
    return baseline + mixed - plain


def spanish_words(reported: float, of_one: float) -> float:
    """Words of both vocabularies: two, and one for each 512 parameters that the first number is above the second."""
    return 2 + (reported - of_one) / 512


def with_heads_of_128(parameters: float) -> float:
    """The number, and what 8 heads of 128 instead of 64 add in 18 modules to W^Q, W^K, W^V (with biases) and W^O."""
    return parameters + 18 * (3 * (512 * 512 + 512) + 512 * 512)


def gain_of_best(numbers: Sequence[float], baseline: float) -> float:
    """The highest of the first numbers minus the last."""
    return max(numbers) - baseline


def largest_gain(
    alphas: float, baseline: float, rows: Sequence[float], others: Sequence[float], other_baseline: float
) -> Margins:
    """The first number's gain over the second is larger than any other row's over its baseline, in both languages."""
    gains = gain_of_best(rows, baseline), gain_of_best(others, other_baseline)
    return [alphas - baseline - gain - TIE for gain in gains]


# ---- how numbers of the tables are computed


def spanish_count(row: str) -> Computation:
    """The paper does not give its vocabularies: one pair of whole numbers must make the baselines' count."""
    sizes = Counted("spanish_of_1", row), Counted("spanish_of_2", row)
    reported = SPANISH("parameters", row)
    words = {"words of both vocabularies": how(spanish_words, *reported, sizes[0])}
    return how(whole_words, *reported, *sizes, also=words)


def spanish_mixed(row: str, baseline: str, **explained: Any) -> Computation:
    """The mixtures then add what they add in the German model."""
    return how(as_in_german, *SPANISH("parameters", baseline), *GERMAN.counted(row, baseline), **explained)


# ---- what the text states

SENTENCES: dict[str, list[Claim]] = {
    "§3.1.2": [
        stated("dominant heads of eight in a layer, at the most (Voita et al.)", "2 heads"),
        stated("BLEU lost by masking lower layers, at the most (Michel et al.)", "13 BLEU", kind="score"),
        stated("BLEU lost by masking upper layers (Michel et al.)", "0.2 BLEU", kind="score"),
    ],
    "Table 1, German to English": [
        claim("training pairs", "160 thousand pairs", in_thousands, Examples("iwslt14", "train"), kind="setting"),
        claim("validation pairs", "7 thousand pairs", in_thousands, Examples("iwslt14", "valid"), kind="setting"),
        claim("test pairs", "7 thousand pairs", in_thousands, Examples("iwslt14", "test"), kind="setting"),
    ],
    "Table 1, Spanish to English": [
        stated("training pairs", "169 thousand pairs"),
        stated("validation pairs", "7 thousand pairs"),
        stated("test pairs", "6 thousand pairs"),
    ],
    "§4.2": [
        stated("first of the two decoder layers that change heads", "1 layer"),
        stated("second of the two decoder layers that change heads", "5 layer"),
    ],
    "§4.3": [
        stated("layers of the encoder", "6 layers", GERMAN.setting("model.encoder_layers")),
        stated("layers of the decoder", "6 layers", GERMAN.setting("model.decoder_layers")),
        stated("d_model", "512 values", GERMAN.setting("model.d_model")),
        claim("d_k = d_v at Table 2's count", "128 values", ratio, 512, 8,
            also={
                "parameters with heads of 64": how(itself, *GERMAN.counted("baseline")),
                "parameters with heads of 128": how(with_heads_of_128, *GERMAN.counted("baseline")),
            }, cause=WIDTH_OF_HEADS),
        stated("Adam's β1", "0.9 share"),
        stated("Adam's β2", "0.98 share"),
        stated("Adam's ε", "0.00000001 step", GERMAN.setting("train.epsilon")),
        stated("largest batch", "128 sentences"),
        stated("GPUs", "1 Titan Xp"),
    ],
    "§4.4": [
        stated("beam", "5 hypotheses", GERMAN.setting("decode.beam")),
    ],
    "§5.1": [
        claim("gain of the Alphas in German", "0.53 BLEU", difference, *GERMAN("bleu", "alphas", "baseline")),
        relation("the Alphas' gain is the largest", largest_gain, *GERMAN("bleu", "alphas", "baseline"),
            GERMAN("bleu", "manual", "soft", "hard", "random"), SPANISH("bleu", "alphas", "manual"),
            *SPANISH("bleu", "baseline")),
        relation("the Alphas are better in both languages", each_higher,
            (*GERMAN("bleu", "alphas"), *SPANISH("bleu", "alphas")),
            (*GERMAN("bleu", "baseline"), *SPANISH("bleu", "baseline"))),
        claim("gain of the manual swaps in Spanish", "0.38 BLEU", difference, *SPANISH("bleu", "manual", "baseline")),
        claim("highest gain of the dynamic swaps in German", "0.25 BLEU", gain_of_best,
            GERMAN("bleu", "soft", "hard", "random"), *GERMAN("bleu", "baseline")),
        relation("it is the highest of all rotations in German", best_is_higher,
            GERMAN("bleu", "soft", "hard", "random"), GERMAN("bleu", "manual")),
        relation("all methods are better than the baseline", all_higher,
            GERMAN("bleu", "alphas", "manual", "soft", "hard", "random"), GERMAN("bleu", "baseline"),
            note="the random choice, which is a method of §3.1.3 and a check of the two others, is among them",
            cause=RANDOM_SWAPS),
        relation("all methods but the random choice are better than the baseline", all_higher,
            GERMAN("bleu", "alphas", "manual", "soft", "hard"), GERMAN("bleu", "baseline")),
        measured("the Alphas are better than the baseline", higher, *GERMAN.runs("bleu", "alphas", "baseline")),
        measured("the Alphas are better than the baseline in Spanish", higher,
            *SPANISH.runs("bleu", "alphas", "baseline")),
        measured("the Alphas are better than the baseline with 16 heads", higher,
            *GERMAN.runs("bleu", "alphas-16", "baseline-16")),
        measured("manual swaps are better than the baseline", higher, *GERMAN.runs("bleu", "manual", "baseline")),
        measured("manual swaps are better than the baseline in Spanish", higher,
            *SPANISH.runs("bleu", "manual", "baseline")),
        measured("soft swaps are better than the baseline", higher, *GERMAN.runs("bleu", "soft", "baseline")),
        measured("hard swaps are better than the baseline", higher, *GERMAN.runs("bleu", "hard", "baseline")),
        measured("soft swaps are better than random ones", higher, *GERMAN.runs("bleu", "soft", "random")),
    ],
    "§3.2": [
        measured("without the nuclear loss the Alphas are no better than the baseline", within_half_a_point,
            *GERMAN.runs("bleu", "alphas-plain", "baseline"), note="the text has the results almost intact"),
    ],
    "§5.3": [
        measured("the loss on cosines is no better than the baseline", not_higher,
            *GERMAN.runs("bleu", "cosine", "baseline")),
    ],
}  # fmt: skip


# ---- sizes and settings

BOTH = {
    "layers": TableSetting(
        ("model.encoder_layers",), "layers", rows=("baseline", "baseline-16", "alphas", "alphas-16")
    ),
    "heads": TableSetting(("model.heads",), "heads", rows=("baseline", "baseline-16", "alphas", "alphas-16")),
}
SIZES = {"d_model": 512, "d_ff": 1024, "encoder_layers": 6, "decoder_layers": 6, "tied_output": True}
WITH_BIAS = {**SIZES, "attention_bias": True}

CLAIMS = PaperClaims(
    sentences=SENTENCES,
    scale={
        "translation": Scale(data={"name": "iwslt14", "source": "de", "target": "en"}, examples=160239, epochs=50),
        "spanish": Scale(
            data={"source": "es", "target": "en", "merges": 10000},
            examples=169000,
            model={**SIZES, "heads": 8},
            epochs=50,
        ),
    },
    models={
        "spanish_of_1": Model("one word in both languages", "spanish", (1, 1), WITH_BIAS),
        "spanish_of_2": Model("a second Spanish word", "spanish", (2, 1), WITH_BIAS),
    },
    tables={
        "translation": {
            "baseline": "Table 2, DE-EN",
            "baseline-16": "Table 2, DE-EN",
            "alphas": "Table 3, DE-EN",
            "alphas-16": "Table 3, DE-EN",
            "manual": "Table 4, DE-EN",
            "soft": "Table 5, DE-EN",
            "hard": "Table 5, DE-EN",
            "random": "Table 5, DE-EN",
        },
        "spanish": {
            "baseline": "Table 2, ES-EN",
            "baseline-16": "Table 2, ES-EN",
            "alphas": "Table 3, ES-EN",
            "alphas-16": "Table 3, ES-EN",
            "manual": "Table 4, ES-EN",
        },
    },
    numbers={
        "translation": {
            ("alphas", "parameters"): lambda row: how(
                itself,
                *GERMAN.counted(row),
                also={"in 18 mixtures of 8 × 8 and 8 biases": how(mixtures, 8)},
                note="in training; at inference they are multiplied into W^O (headdiv.fold), and mixed heads, as "
                "rotated ones, are plain attention",
            ),
            ("alphas-16", "parameters"): lambda row: how(
                itself,
                *GERMAN.counted(row),
                also={"in 18 mixtures of 16 × 16 and 16 biases": how(mixtures, 16)},
                cause=COPIED_COUNTS,
            ),
        },
        "spanish": {
            "parameters": spanish_count,
            ("alphas", "parameters"): lambda row: spanish_mixed(row, "baseline"),
            ("alphas-16", "parameters"): lambda row: spanish_mixed(
                row,
                "baseline-16",
                also={"the German model with 16 heads mixed": how(itself, *GERMAN.counted("alphas-16"))},
                cause=COPIED_COUNTS,
            ),
        },
    },
    settings={"translation": BOTH, "spanish": BOTH},
)

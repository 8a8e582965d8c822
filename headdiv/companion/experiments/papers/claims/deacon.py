"""What DEACON claims beside its tables' numbers, and how numbers are computed; language modelling is in ``deacon_lm``.

A sentence's place is its section and what it is about; percentages are of what the sentence names.
"""

from collections.abc import Callable, Sequence
from typing import Any

from headdiv.companion.experiments.claims.functions import (
    TIE,
    Margins,
    all_higher,
    all_higher_in_each,
    all_lower_in_each,
    ascending,
    best_is_higher_in_each,
    difference,
    each_higher,
    higher,
    highest,
    itself,
    lower,
    lowest,
    percent,
    percent_above,
    percent_below,
    product,
    ratio,
    total,
    whole_words,
    within_half_a_point,
    words,
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
from headdiv.companion.experiments.papers.claims import deacon_lm

T3, T4, T5, T6 = (NumbersOf(name) for name in ("translation", "summarisation", "qa", "lm"))
EACH_TASK = (
    *(T3.column("bleu"), *T3("bleu", "baseline")),
    *(T4.column("rouge1"), *T4("rouge1", "baseline")),
    *(T5.column("f1"), *T5("f1", "baseline")),
    *(T6.column("perplexity"), *T6("perplexity", "baseline")),
)
SAYS_PERCENT = "the text says %"

REPEATED_COUNTS = Cause(
    "slip",
    "Tables 4 and 5 repeat Table 3's counts of parameters, although their vocabularies are others; no whole number of "
    "words gives them.",
)
CONSISTENT_IMPROVEMENT = Cause(
    "result",
    "The improvement is called consistent, but some rows of the tables, and one of the direct architecture, are worse "
    "than the baseline.",
)
THRESHOLD_OF_WORDS = Cause(
    "slip", "Table 3's counts are of the words seen at least five times, not more than five times."
)
SHARE_OF_ITS_OWN_LOSS = Cause(
    "slip", "What is called a percentage of the baseline's loss is one of the row's own, larger loss."
)
LOSS_OF_AVERAGE_8 = Cause(
    "open",
    "Table 3 and the text give Average-8 different training losses; the text's own 37 % between Average-8 and "
    "Average-3 follows from the table's.",
)

# ---- functions


def some_row_is_better(*columns: Any) -> Margins:
    """Some row of each table is better than its baseline: by BLEU, ROUGE-1 and F1 higher, by perplexity lower."""
    *scores, perplexities, baseline = columns
    return [*best_is_higher_in_each(*scores), baseline - min(perplexities) - TIE]


def no_row_is_worse(*columns: Any) -> Margins:
    """No row of a table is worse than its baseline: by BLEU, ROUGE-1 and F1 lower, by perplexity higher."""
    *scores, perplexities, baseline = columns
    return [*(margin + TIE for margin in all_higher_in_each(*scores)), baseline - max(perplexities)]


def averaged_values(heads: float, values: float) -> float:
    """Each head's values become one: heads times values, divided by the values."""
    return heads * values / values


def features(heads: float) -> float:
    """Of h heads: h, their h squares, and h (h - 1) / 2 products of two."""
    return heads * (heads + 1) / 2 + heads


def what_is_left(number: float, numbers: Sequence[float]) -> float:
    """The first number minus all others."""
    return number - sum(numbers)


def words_counted_twice(reported: float, of_one: float) -> float:
    """Three words, and one for each 256 parameters that the first number is above the second."""
    return 3 + (reported - of_one) / 256


def counted_twice(source: float, target: float) -> float:
    """The first number, and twice the second."""
    return source + 2 * target


# ---- how numbers of the tables are computed


def repeated_count(table: NumbersOf, of_one: str, of_two: str, note: str) -> Callable[[str], Computation]:
    """Tables 4 and 5 repeat Table 3's counts: the count nearest to it that a whole number of words makes."""

    def of_row(row: str) -> Computation:
        numbers = (*table("parameters", row), Counted(of_one, row), Counted(of_two, row))
        also = {"words that give the paper's count": how(words, *numbers)}
        if table is T4:
            also["words of two vocabularies, the target's counted twice"] = how(words_counted_twice, *numbers[:2])
            also["Multi30k's, counted so"] = how(counted_twice, 3369, 3665)
        return how(whole_words, *numbers, also=also, note=note, cause=REPEATED_COUNTS)

    return of_row


def of_the_base(table: NumbersOf) -> Callable[[str], Computation]:
    """A row's count in percent of the baseline's."""
    return lambda row: how(percent, *table("parameters", row, "baseline"))


# ---- what the text states

SENTENCES: dict[str, list[Claim]] = {
    "Abstract": [
        relation("on each of the four tasks a row is better than the baseline", some_row_is_better, *EACH_TASK),
        relation("on each of the four tasks no row is worse than the baseline", no_row_is_worse, *EACH_TASK,
            note="the improvement is called consistent; read so, of every row", cause=CONSISTENT_IMPROVEMENT),
    ],
    "§3.2": [
        claim("values of 8 heads of 32 for each word", "256 values", product, 8, 32),
        claim("values for each word after averaging", "8 values", averaged_values, 8, 32),
        claim("heads pruned of 8 when 3 components stay", "5 heads", difference, 8, 3),
    ],
    "§3.3": [
        claim("features of 4 heads, their squares and products", "14 features", features, 4),
        stated("degree r of the polynomials", "2 degree"),
    ],
    "§4, Multi30k": [
        stated("training pairs", "29000 pairs", Examples("multi30k", "train")),
        stated("validation pairs", "1014 pairs", Examples("multi30k", "valid")),
        stated("test pairs", "1000 pairs", Examples("multi30k", "test_2016_flickr")),
        claim("Table 3's baseline with the words seen more than five times", "5370112 parameters", itself,
            Counted("more_than_five"),
            also={"with those seen at least five times": how(itself, *T3.counted("baseline"))},
            cause=THRESHOLD_OF_WORDS, kind="parameter count"),
    ],
    "§4, XSum": [
        claim("pairs in all", "226711 pairs", total, (204045, 11332, 11334)),
        stated("training pairs", "204045 pairs", Examples("xsum", "train")),
        stated("validation pairs", "11332 pairs", Examples("xsum", "validation")),
        stated("test pairs", "11334 pairs", Examples("xsum", "test")),
    ],
    "§4, SQuAD": [
        claim("pairs in all, the two public splits at most", "107785 pairs", total,
            (Examples("squad", "train"), Examples("squad", "valid")), sign="<=",
            also={"left for the hidden test set": how(what_is_left, 107785, (87599, 10570))}),
        stated("articles", "536 articles"),
        stated("training pairs", "87599 pairs", Examples("squad", "train")),
        stated("validation pairs", "10570 pairs", Examples("squad", "valid")),
    ],
    **deacon_lm.DATA,
    "§5.1, settings": [
        stated("iterations of the inner loop", "500 iterations", T3.setting("method.gha_steps", "direct-8")),
        stated("δP", "0.2 length", T3.setting("method.delta_p", "direct-8")),
        stated("ξ", "0.8 share", T3.setting("method.xi", "direct-8")),
        stated("least δP of about the same results", "0.05 length"),
        stated("largest δP of about the same results", "0.5 length"),
        stated("least ξ of about the same results", "0.8 share"),
        stated("largest ξ of about the same results", "0.99 share"),
        stated("heads h", "8 heads", T3.setting("model.heads")),
        stated("layers of the encoder", "2 layers", T3.setting("model.encoder_layers")),
        stated("layers of the decoder", "2 layers", T3.setting("model.decoder_layers")),
        stated("d", "256 values", T3.setting("model.d_model")),
        claim("d_k = d / h", "32 values", ratio, 256, 8),
        stated("epochs", "30 epochs", T3.setting("train.epochs")),
    ],
    "§5.1, Direct-8": [
        claim("the highest BLEU", "28.9 BLEU", highest, T3.column("bleu")),
        claim("the lowest training loss", "0.8031 nats/token", lowest, T3.column("training_loss")),
        claim("the highest accuracy", "69.75 %", highest, T3.column("validation_accuracy")),
        claim("training loss below the baseline's", "2.19 %", percent_below,
            *T3("training_loss", "direct-8", "baseline")),
        claim("accuracy above the baseline's", "1.12 points", difference,
            *T3("validation_accuracy", "direct-8", "baseline"),
            also={"relative, in %": how(percent_above, *T3("validation_accuracy", "direct-8", "baseline"))},
            note=SAYS_PERCENT),
        measured("a higher BLEU than the baseline's", higher, *T3.runs("bleu", "direct-8", "baseline")),
        measured("a higher accuracy than the baseline's", higher,
            *T3.runs("validation_accuracy", "direct-8", "baseline")),
        measured("a lower training loss than the baseline's", lower, *T3.runs("training_loss", "direct-8", "baseline")),
    ],
    "§5.1, Direct-3": [
        claim("training loss above the baseline's", "16.95 %", percent_above,
            *T3("training_loss", "direct-3", "baseline"),
            also={"as a share of its own loss": how(percent_below, *T3("training_loss", "baseline", "direct-3"))},
            cause=SHARE_OF_ITS_OWN_LOSS),
        claim("fewer parameters than the baseline", "4 %", percent_below, *T3("parameters", "direct-3", "baseline"),
            sign="about"),
        claim("heads that stay", "37 %", percent, 3, 8, sign="about"),
        claim("heads that are pruned of eight", "5 heads", difference, 8, 3),
        measured("a higher training loss than the baseline's", higher,
            *T3.runs("training_loss", "direct-3", "baseline")),
        measured("BLEU within half a point of the baseline's", within_half_a_point,
            *T3.runs("bleu", "direct-3", "baseline"), note="the text says essentially the same"),
    ],
    "§5.1, Average-8": [
        claim("training loss above the baseline's", "9.07 %", percent_above,
            *T3("training_loss", "average-8", "baseline"), cause=LOSS_OF_AVERAGE_8),
        claim("accuracy below the baseline's", "0.85 points", difference,
            *T3("validation_accuracy", "baseline", "average-8"), note=SAYS_PERCENT),
        claim("BLEU as a share of the baseline's", "99 %", percent, *T3("bleu", "average-8", "baseline"), sign="about"),
        claim("fewer parameters than the baseline", "7 %", percent_below, *T3("parameters", "average-8", "baseline"),
            sign="about"),
    ],
    "§5.1, Average-3": [
        claim("the highest training loss", "1.1382 nats/token", highest, T3.column("training_loss")),
        claim("training loss above Average-8's", "37 %", percent_above, *T3("training_loss", "average-3", "average-8"),
            sign="about"),
        claim("the lowest accuracy", "63.70 %", lowest, T3.column("validation_accuracy")),
        claim("accuracy below Average-8's", "4.08 points", difference,
            *T3("validation_accuracy", "average-8", "average-3"), note=SAYS_PERCENT),
        claim("BLEU below Average-8's", "4.62 %", percent_below, *T3("bleu", "average-3", "average-8")),
        measured("a lower BLEU than Average-8's", lower, *T3.runs("bleu", "average-3", "average-8")),
        measured("the highest training loss", all_higher, T3.runs("training_loss", "average-3"),
            T3.runs("training_loss", "baseline", "direct-8", "direct-3", "average-8", "nonlinear-8", "nonlinear-3")),
    ],
    "§5.1, Non-Linear-8": [
        claim("features of 8 heads", "44 features", features, 8),
        claim("training loss above the baseline's", "17.19 %", percent_above,
            *T3("training_loss", "nonlinear-8", "baseline"),
            also={"as a share of its own loss": how(percent_below, *T3("training_loss", "baseline", "nonlinear-8"))},
            cause=SHARE_OF_ITS_OWN_LOSS),
        claim("accuracy below the baseline's", "0.61 points", difference,
            *T3("validation_accuracy", "baseline", "nonlinear-8"), note=SAYS_PERCENT),
        claim("BLEU below the baseline's", "0.7 %", percent_below, *T3("bleu", "nonlinear-8", "baseline")),
        claim("features that are discarded", "36 features", difference, 44, 8),
        claim("more features discarded than this share", "82 %", percent, 36, 44, sign=">"),
    ],
    "§5.1, Non-Linear-3": [
        claim("features that stay", "7 %", percent, 3, 44),
        claim("training loss below Non-Linear-8's", "12.3 %", percent_below,
            *T3("training_loss", "nonlinear-3", "nonlinear-8")),
        measured("a lower training loss than Non-Linear-8's", lower,
            *T3.runs("training_loss", "nonlinear-3", "nonlinear-8")),
        measured("BLEU within half a point of Non-Linear-8's", within_half_a_point,
            *T3.runs("bleu", "nonlinear-3", "nonlinear-8"), note="the text says almost the same"),
    ],
    "§5.1, Figure 6": [
        claim("length of the columns of w in Direct-8", "1 length", itself, *T3.runs("column_lengths", "direct-8"),
            kind="score"),
        relation("Non-Linear-8's columns are nearer to orthogonal than Average-8's", lower,
            *T3.runs("mean_absolute_cosine", "nonlinear-8", "average-8"), kind="score"),
        relation("Direct-8's columns are nearer to orthogonal than Average-8's", lower,
            *T3.runs("mean_absolute_cosine", "direct-8", "average-8"), kind="score"),
    ],
    "§5.2, Direct-8": [
        claim("the lowest training loss", "3.187 nats/token", lowest, T4.column("training_loss")),
        claim("training loss below the baseline's", "1.79 %", percent_below,
            *T4("training_loss", "direct-8", "baseline")),
        claim("the highest ROUGE-1", "33.12 %", highest, T4.column("rouge1")),
        claim("ROUGE-1 above the baseline's", "2.06 %", percent_above, *T4("rouge1", "direct-8", "baseline")),
        claim("the highest ROUGE-2", "12.05 %", highest, T4.column("rouge2")),
        claim("ROUGE-2 above the baseline's", "2.29 %", percent_above, *T4("rouge2", "direct-8", "baseline")),
        claim("the highest ROUGE-L", "26.21 %", highest, T4.column("rougeL")),
        claim("ROUGE-L above the baseline's", "2.10 %", percent_above, *T4("rougeL", "direct-8", "baseline")),
        measured("a higher ROUGE-1 than the baseline's", higher, *T4.runs("rouge1", "direct-8", "baseline")),
        measured("a higher ROUGE-2 than the baseline's", higher, *T4.runs("rouge2", "direct-8", "baseline")),
        measured("a higher ROUGE-L than the baseline's", higher, *T4.runs("rougeL", "direct-8", "baseline")),
    ],
    "§5.2, other rows": [
        claim("Average-8 has fewer parameters than the baseline", "7 %", percent_below,
            *T4("parameters", "average-8", "baseline"), sign="about"),
        relation("Average-3 loses more ROUGE-1 than Average-8", ascending,
            T4("rouge1", "average-3", "average-8", "baseline")),
        relation("Non-Linear-8 is worse than the baseline and better than Average-8", ascending,
            T4("rouge1", "average-8", "nonlinear-8", "baseline")),
        claim("Non-Linear-8 discards more features than this share", "82 %", percent, 36, 44, sign=">"),
        claim("Non-Linear-8 discards features", "36 features", difference, 44, 8),
        claim("Non-Linear-3 retains features", "7 %", percent, 3, 44),
    ],
    "§5.3, Direct-8": [
        claim("the lowest training loss", "2.812 nats/answer", lowest, T5.column("training_loss")),
        claim("the highest EM", "68.73 %", highest, T5.column("em")),
        claim("the highest F1", "78.21 %", highest, T5.column("f1")),
        measured("a higher EM than the baseline's", higher, *T5.runs("em", "direct-8", "baseline")),
        measured("a higher F1 than the baseline's", higher, *T5.runs("f1", "direct-8", "baseline")),
    ],
    "§5.3, other rows": [
        claim("Direct-3 has fewer parameters than the baseline", "4.5 %", percent_below,
            *T5("parameters", "direct-3", "baseline"), sign="about"),
        relation("Average-3 drops further than Average-8", ascending, T5("em", "average-3", "average-8", "baseline")),
        relation("Non-Linear-8 is better than the baseline", each_higher, T5.row("nonlinear-8", "em", "f1"),
            T5.row("baseline", "em", "f1")),
        measured("Non-Linear-8 is better than the baseline", each_higher,
            (*T5.runs("em", "nonlinear-8"), *T5.runs("f1", "nonlinear-8")),
            (*T5.runs("em", "baseline"), *T5.runs("f1", "baseline"))),
        claim("Non-Linear-8 keeps features", "18 %", percent, 8, 44, sign="about"),
        claim("Non-Linear-3 discards features", "93 %", percent, 41, 44),
    ],
    **deacon_lm.SENTENCES,
    "§6": [
        relation("the direct architecture has a higher BLEU than the baseline", all_higher,
            T3("bleu", "direct-8", "direct-3"), T3("bleu", "baseline"),
            note="the improvement is called consistent; read so, of both rows", cause=CONSISTENT_IMPROVEMENT),
        relation("the direct architecture has higher ROUGE than the baseline", best_is_higher_in_each,
            T4("rouge1", "direct-8", "direct-3"), *T4("rouge1", "baseline"), T4("rouge2", "direct-8", "direct-3"),
            *T4("rouge2", "baseline"), T4("rougeL", "direct-8", "direct-3"), *T4("rougeL", "baseline"),
            note="of its better row"),
        relation("EM and F1 are improved", best_is_higher_in_each, T5.column("em"), *T5("em", "baseline"),
            T5.column("f1"), *T5("f1", "baseline")),
        relation("the direct architecture has a lower perplexity and converges sooner", all_lower_in_each,
            T6("perplexity", "direct-16", "direct-8"), *T6("perplexity", "baseline"),
            T6("convergence_epoch", "direct-16", "direct-8"), *T6("convergence_epoch", "baseline")),
    ],
}  # fmt: skip


# ---- sizes and settings

SIZES = {"d_model": 256, "heads": 8, "encoder_layers": 2, "decoder_layers": 2, "d_ff": 512}
MULTI30K = {
    "name": "multi30k",
    "source": "en",
    "target": "de",
    "tokenizer": "moses",
    "lowercase": False,
    "min_frequency": 5,
    "test": "test_2016_flickr",
}

CLAIMS = PaperClaims(
    sentences=SENTENCES,
    scale={
        "translation": Scale(MULTI30K, examples=29000, epochs=30),
        "summarisation": Scale({"name": "xsum"}, examples=204045, model=SIZES, epochs=30),
        "qa": Scale({"name": "squad"}, examples=87599, model=SIZES, epochs=30),
        # The paper does not say for how many epochs it trained; the latest convergence it reports is at 2.9.
        "lm": Scale({"name": "slimpajama", "epoch_tokens": 299780000000}, epochs=3, device="H100", ranks=8),
    },
    models={
        "more_than_five": Model("words seen six times or more", "translation", (2984, 3211)),
        "xsum_of_1": Model("one word", "summarisation", (1, 1)),
        "xsum_of_2": Model("two words", "summarisation", (2, 2)),
        "squad_of_1": Model("one word", "qa", (1,)),
        "squad_of_2": Model("two words", "qa", (2,)),
        **deacon_lm.MODELS,
    },
    numbers={
        "translation": {"parameters_of_base": of_the_base(T3)},
        "summarisation": {
            "parameters": repeated_count(T4, "xsum_of_1", "xsum_of_2", "one vocabulary for articles and summaries")
        },
        "qa": {
            "parameters": repeated_count(T5, "squad_of_1", "squad_of_2", "one vocabulary for questions and passages"),
            "parameters_of_base": of_the_base(T5),
        },
        "lm": {"parameters": deacon_lm.count_of_table_6},
        "sources": {"sampling": deacon_lm.of_all_tokens, "share": deacon_lm.of_all_tokens},
    },
    settings={
        name: {"PCA heads": TableSetting(("method.m", "model.heads"), "heads")}
        for name in ("translation", "summarisation", "qa", "lm")
    },
    notes={
        "training_loss": "our training loss is the mean over the last epoch's steps in training mode, with dropout, "
        "and under this project's recipe, since the paper states none of its own"
    },
)

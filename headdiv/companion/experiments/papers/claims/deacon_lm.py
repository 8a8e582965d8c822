"""What DEACON claims about language modelling (§4, §5.4, Tables 2 and 6), and how these numbers are computed."""

from collections.abc import Sequence

from headdiv.companion.experiments.claims.functions import (
    Margins,
    each_higher,
    higher,
    in_millions,
    itself,
    lower,
    lowest,
    percent_above,
    percent_below,
    percent_of_total,
    ratio,
    total,
)
from headdiv.companion.experiments.claims.records import (
    Cause,
    Claim,
    Computation,
    Counted,
    Model,
    NumbersOf,
    claim,
    how,
    measured,
    relation,
    stated,
)

T2, T6 = NumbersOf("sources"), NumbersOf("lm")
MEASURES = ("perplexity", "convergence_epoch", "training_days", "inference_ms")
(EPOCHS,), (DAYS,) = T6("convergence_epoch", "baseline"), T6("training_days", "baseline")
BILLIONS = T2.column("train_billions")
TRAINED = (EPOCHS, BILLIONS)

WIDTH_OF_5_4 = Cause(
    "open",
    "§5.4 gives twice the width that Table 6's counts (GPT-2 medium's) and its days of training are possible with.",
)
WORDS_AGAINST_TABLE_6 = Cause("result", "What §5.4 says about time is not what its Table 6 says.")
COUNTS_OF_TABLE_6 = Cause(
    "result",
    "Table 6's counts follow from no architecture of §3: halving the components saves the same 827,392 "
    "parameters in all three. What the paper says about size in its largest experiment rests on them.",
)
RANDOM_SAMPLE = Cause(
    "open",
    "The training text is called a random sample of SlimPajama, but Table 2's shares of the sources are others than "
    "the whole's.",
)
FOLDED = (
    "with the PCA layer multiplied into W^O (headdiv.fold) it is plain attention at inference, which takes the "
    "baseline's time"
)
MORE_THAN_SAVED = "more than the operations of matrix products that are saved, and the Hebbian iterations come on top"

# ---- functions

DAY = 86400  # seconds
PEAK = 8 * 989e12  # operations a second that eight H100 do at most in bfloat16
ATTENTION = 12 * 24 * 1024 * 1024  # operations a token of attention: 24 layers, 1,024 tokens, d = 1024


def least_days(parameters: float, epochs: float, billions: Sequence[float]) -> float:
    """Six operations a parameter and token, over the epochs of the billions of tokens, at eight H100's peak rate."""
    return 6 * parameters * epochs * sum(billions) * 1e9 / PEAK / DAY


def tokens_a_second(epochs: float, billions: Sequence[float], days: float) -> float:
    """The epochs times the billions of tokens, divided by the seconds of the days of training."""
    return epochs * sum(billions) * 1e9 / (days * DAY)


def teraflops(parameters: float, epochs: float, billions: Sequence[float], days: float) -> float:
    """Six operations a parameter and token, divided by the seconds of the days of training and by eight GPUs."""
    return 6 * parameters * epochs * sum(billions) * 1e9 / (days * DAY) / 8 / 1e12


def share_of_peak(parameters: float, epochs: float, billions: Sequence[float], days: Sequence[float]) -> float:
    """The operations, those of attention included, in percent of the peak rate over the fewest days of training."""
    return 100 * epochs * sum(billions) * 1e9 * (6 * parameters + ATTENTION) / (PEAK * DAY) / min(days)


def operations_saved(baseline: float, parameters: float) -> float:
    """By how many percent fewer parameters make fewer operations a token, those of attention included."""
    return 100 * 6 * (baseline - parameters) / (6 * baseline + ATTENTION)


def of_a_layer(number: float, baseline: float) -> float:
    """The first number minus the second, divided by 24 layers."""
    return (number - baseline) / 24


def lowest_in_each_column(row: Sequence[float], *columns: Sequence[float]) -> Margins:
    """Each of the first numbers is the lowest of its column."""
    return [-abs(number - min(column)) for number, column in zip(row, columns, strict=True)]


# ---- how numbers of the tables are computed


def of_all_tokens(row: str) -> Computation:
    """A source's share of the training tokens."""
    return how(percent_of_total, *T2("train_billions", row), T2.column("train_billions"))


def count_of_table_6(row: str) -> Computation:
    """The architecture's parameters, beside what a layer adds in the paper and here."""
    if row == "baseline":
        return how(itself, *T6.counted(row))
    also = {
        "the paper's difference to its baseline, a layer": how(of_a_layer, *T6("parameters", row, "baseline")),
        "ours": how(of_a_layer, *T6.counted(row, "baseline")),
    }
    return how(itself, *T6.counted(row), also=also, cause=COUNTS_OF_TABLE_6)


def fewer_operations(row: str) -> dict[str, Computation]:
    """How many operations a row saves, by two counts of its parameters."""
    return {
        "fewer operations, by the architecture's parameters, in %": how(operations_saved, *T6.counted("baseline", row)),
        "fewer operations, by Table 6's parameters, in %": how(operations_saved, *T6("parameters", "baseline", row)),
    }


# ---- what the text states

DATA: dict[str, list[Claim]] = {
    "§4, SlimPajama": [
        stated("tokens of the whole set", "627 billion tokens"),
        stated("CommonCrawl's share of it", "52.20 %"),
        stated("C4's share of it", "26.70 %"),
        stated("GitHub's share of it", "5.20 %"),
        stated("Books' share of it", "4.20 %"),
        stated("ArXiv's share of it", "4.60 %"),
        stated("Wikipedia's share of it", "3.80 %"),
        stated("StackExchange's share of it", "3.30 %"),
        claim("the seven shares make a whole", "100 %", total, (52.2, 26.7, 5.2, 4.2, 4.6, 3.8, 3.3)),
        claim("a random sample has CommonCrawl's share", "52.20 %", itself, *T2("share", "CommonCrawl"),
            cause=RANDOM_SAMPLE),
        claim("a random sample has C4's share", "26.70 %", itself, *T2("share", "C4"), cause=RANDOM_SAMPLE),
        claim("training tokens", "300 billion tokens", total, T2.column("train_billions"), sign="about"),
        claim("validation tokens", "320 million tokens", total, T2.column("validation_millions"), sign="about"),
    ],
    "Table 2, Total": [
        claim("sampling", "100.0 %", total, T2.column("sampling")),
        claim("training tokens", "299.78 billion tokens", total, T2.column("train_billions")),
        claim("validation tokens", "320.42 million tokens", total, T2.column("validation_millions")),
        claim("share of training tokens", "100.00 %", total, T2.column("share")),
    ],
}  # fmt: skip

SENTENCES: dict[str, list[Claim]] = {
    "§5.4, settings": [
        stated("heads h", "16 heads", T6.setting("model.heads")),
        stated("layers", "24 layers", T6.setting("model.layers")),
        stated("d, at Table 6's count", "2048 values", T6.setting("model.d_model")),
        claim("d_k = d / h", "128 values", ratio, 2048, 16),
        stated("inner width of the feed-forward layers", "8192 values", T6.setting("model.d_ff")),
        claim("parameters of these sizes", "354 million parameters", in_millions, Counted("section_5_4"), sign="about",
            also={
                "with 24 layers in each of encoder and decoder": how(in_millions, Counted("section_5_4_two_stacks")),
                "with d = 1024 and an inner width of 4096": how(in_millions, *T6.counted("baseline")),
            }, cause=WIDTH_OF_5_4, kind="parameter count"),
        stated("GPUs", "8 H100"),
    ],
    "§5.4, time of training": [
        # No run can be faster than this.
        claim("days at the least, Table 6's count of parameters", "8.5 days", least_days, *T6.counted("baseline"),
            *TRAINED, sign="<=",
            also={
                "tokens a second": how(tokens_a_second, *TRAINED, DAYS),
                "the same, had it been one epoch": how(tokens_a_second, 1, BILLIONS, DAYS),
                "TFLOP/s of each GPU": how(teraflops, *T6.counted("baseline"), *TRAINED, DAYS),
                "share of the peak rate, three epochs, attention over 1,024 tokens included, in %": how(share_of_peak,
                    *T6.counted("baseline"), 3, BILLIONS, (DAYS,)),
                "that share, had it been one epoch": how(share_of_peak, *T6.counted("baseline"), 1, BILLIONS, (DAYS,)),
                "that share in the row with the fewest days, three epochs": how(share_of_peak, *T6.counted("average-8"),
                    3, BILLIONS, T6.column("training_days")),
            },
            note="eight H100 at their peak, up to the epoch of convergence; about 40 % of the peak is usual, so that "
            "the days of Table 6 are possible"),
        claim("days at the least, the sizes of the text", "8.5 days", least_days, Counted("section_5_4"), *TRAINED,
            sign="<=", also={"TFLOP/s of each GPU": how(teraflops, Counted("section_5_4"), *TRAINED, DAYS)},
            note="eight H100 at their peak, up to the epoch of convergence", cause=WIDTH_OF_5_4),
    ],
    "§5.4, Direct-16": [
        claim("more parameters than the baseline", "0.009 %", percent_above,
            *T6("parameters", "direct-16", "baseline")),
        claim("perplexity below the baseline's", "4.6 %", percent_below, *T6("perplexity", "direct-16", "baseline")),
        claim("convergence before the baseline's", "14.8 %", percent_below,
            *T6("convergence_epoch", "direct-16", "baseline")),
        claim("training time above the baseline's", "3.5 %", percent_above,
            *T6("training_days", "direct-16", "baseline")),
        claim("inference time above the baseline's", "2.4 %", percent_above,
            *T6("inference_ms", "direct-16", "baseline"), note=FOLDED),
        relation("superior in all four measures of Table 6", lowest_in_each_column, T6.row("direct-16", *MEASURES),
            *(T6.column(name) for name in MEASURES), note="all key metrics; the same paragraph has it slower",
            cause=WORDS_AGAINST_TABLE_6),
        claim("the lowest perplexity", "9.41 perplexity", lowest, T6.column("perplexity")),
        measured("a lower perplexity than the baseline's", lower, *T6.runs("perplexity", "direct-16", "baseline")),
        measured("converges before the baseline", lower, *T6.runs("convergence_epoch", "direct-16", "baseline")),
        relation("trains for longer than the baseline, measured", higher,
            *T6.runs("training_days", "direct-16", "baseline"), kind="cost"),
    ],
    "§5.4, Direct-8": [
        claim("fewer parameters than the baseline", "0.22 %", percent_below, *T6("parameters", "direct-8", "baseline")),
        claim("perplexity above Direct-16's", "1.7 %", percent_above, *T6("perplexity", "direct-8", "direct-16")),
        claim("perplexity below the baseline's", "2.9 %", percent_below, *T6("perplexity", "direct-8", "baseline")),
        claim("training time below the baseline's", "5.9 %", percent_below,
            *T6("training_days", "direct-8", "baseline"), also=fewer_operations("direct-8"), note=MORE_THAN_SAVED),
        claim("inference time below the baseline's", "9.8 %", percent_below,
            *T6("inference_ms", "direct-8", "baseline"), note=FOLDED),
        measured("a lower perplexity than the baseline's", lower, *T6.runs("perplexity", "direct-8", "baseline")),
        relation("shorter inference than the baseline's, measured", lower,
            *T6.runs("inference_ms", "direct-8", "baseline"), kind="cost"),
    ],
    "§5.4, Average-16 and Average-8": [
        claim("Average-16 has fewer parameters than the baseline", "0.06 %", percent_below,
            *T6("parameters", "average-16", "baseline")),
        claim("Average-8 has fewer parameters than the baseline", "0.30 %", percent_below,
            *T6("parameters", "average-8", "baseline")),
        claim("Average-8 has the shortest training", "7.8 days", lowest, T6.column("training_days")),
        claim("Average-8 has the shortest inference", "36 ms", lowest, T6.column("inference_ms")),
        claim("Average-8's training time below the baseline's", "8.2 %", percent_below,
            *T6("training_days", "average-8", "baseline"), also=fewer_operations("average-8"), note=MORE_THAN_SAVED),
        claim("Average-8's inference time below the baseline's", "12.2 %", percent_below,
            *T6("inference_ms", "average-8", "baseline"), note=FOLDED),
        claim("Average-8's perplexity above the baseline's", "1.2 %", percent_above,
            *T6("perplexity", "average-8", "baseline")),
        measured("Average-8 has a higher perplexity than the baseline", higher,
            *T6.runs("perplexity", "average-8", "baseline")),
    ],
    "§5.4, Non-Linear-16 and Non-Linear-8": [
        claim("Non-Linear-16 has more parameters than the baseline", "0.023 %", percent_above,
            *T6("parameters", "nonlinear-16", "baseline")),
        claim("Non-Linear-16's perplexity below the baseline's", "3.4 %", percent_below,
            *T6("perplexity", "nonlinear-16", "baseline")),
        claim("Non-Linear-16's training time above the baseline's", "5.9 %", percent_above,
            *T6("training_days", "nonlinear-16", "baseline")),
        claim("Non-Linear-16's inference time above the baseline's", "7.3 %", percent_above,
            *T6("inference_ms", "nonlinear-16", "baseline")),
        claim("Non-Linear-8 has fewer parameters than the baseline", "0.21 %", percent_below,
            *T6("parameters", "nonlinear-8", "baseline")),
        claim("Non-Linear-8's perplexity below the baseline's", "2.5 %", percent_below,
            *T6("perplexity", "nonlinear-8", "baseline")),
        relation("Non-Linear-8 trains and infers faster than Non-Linear-16", each_higher,
            T6.row("nonlinear-16", "training_days", "inference_ms"),
            T6.row("nonlinear-8", "training_days", "inference_ms")),
        relation("Non-Linear-8 remains slower than the baseline", each_higher,
            T6.row("nonlinear-8", "training_days", "inference_ms"), T6.row("baseline", "training_days", "inference_ms"),
            cause=WORDS_AGAINST_TABLE_6),
    ],
}  # fmt: skip

# ---- sizes

OF_THE_TEXT = {"d_model": 2048, "d_ff": 8192}
MODELS = {
    "section_5_4": Model("the sizes of §5.4", "lm", (50254,), OF_THE_TEXT),
    # "each encoder and decoder section"
    "section_5_4_two_stacks": Model(
        "the sizes of §5.4, an encoder and a decoder",
        "lm",
        (50254, 50254),
        {**OF_THE_TEXT, "heads": 16, "encoder_layers": 24, "decoder_layers": 24, "tied_output": True},
        kind="translation",
    ),
}

"""What the poster on determinantal point processes claims beside its table's numbers."""

from headdiv.companion.experiments.claims.functions import all_higher, higher, in_thousands, lower, ratio
from headdiv.companion.experiments.claims.records import (
    Cause,
    Claim,
    Examples,
    NumbersOf,
    PaperClaims,
    Scale,
    claim,
    measured,
    relation,
    stated,
)

RESULTS = NumbersOf("translation")
NOT_SAID = "no sentence of the poster gives it"
CUT_OF_IWSLT14 = Cause(
    "open", "The usual cut leaves 160 thousand training pairs, not 153; the poster describes no other."
)
SENTENCES: dict[str, list[Claim]] = {
    "Dataset": [
        claim("training pairs", "153 thousand pairs", in_thousands, Examples("iwslt14", "train"),
            note="by the cut that is usual with this data; the poster does not describe another one",
            cause=CUT_OF_IWSLT14, kind="setting"),
        claim("development pairs", "7 thousand pairs", in_thousands, Examples("iwslt14", "valid"), kind="setting"),
        claim("test pairs", "7 thousand pairs", in_thousands, Examples("iwslt14", "test"), kind="setting"),
        stated("tokens of a batch", "4096 tokens", RESULTS.setting("train.tokens_per_batch")),
        stated("longest sentence", "200 tokens", RESULTS.setting("data.max_words")),
    ],
    "Hyper-parameters": [
        stated("epochs", "300 epochs", RESULTS.setting("train.epochs")),
        stated("embedding", "512 values", RESULTS.setting("model.d_model")),
        stated("inner width of the feed-forward layers", "1024 values", RESULTS.setting("model.d_ff")),
        stated("heads", "4 heads", RESULTS.setting("model.heads")),
        stated("layers of the encoder", "6 layers", RESULTS.setting("model.encoder_layers")),
        stated("layers of the decoder", "6 layers", RESULTS.setting("model.decoder_layers")),
    ],
    "Results, between the columns": [
        # The row of hours says these ratios, and runs on any one machine can check them.
        claim("time of DPP (A) against vanilla", "2.02 times", ratio, *RESULTS("training_hours", "dpp-a", "baseline"),
            note=NOT_SAID),
        claim("time of DPP (V) against vanilla", "2.06 times", ratio, *RESULTS("training_hours", "dpp-v", "baseline"),
            note=NOT_SAID),
        claim("time of DPP (O) against vanilla", "2.07 times", ratio, *RESULTS("training_hours", "dpp-o", "baseline"),
            note=NOT_SAID),
        claim("time of DPP (A) against vanilla, measured", "2.02 times", ratio,
            *RESULTS.runs("training_hours", "dpp-a", "baseline"), kind="cost"),
        claim("time of DPP (V) against vanilla, measured", "2.06 times", ratio,
            *RESULTS.runs("training_hours", "dpp-v", "baseline"), kind="cost"),
        claim("time of DPP (O) against vanilla, measured", "2.07 times", ratio,
            *RESULTS.runs("training_hours", "dpp-o", "baseline"), kind="cost"),
        relation("DPP (V) and DPP (O) are better than vanilla", all_higher, RESULTS("bleu", "dpp-v", "dpp-o"),
            RESULTS("bleu", "baseline")),
        relation("DPP (A) is worse than vanilla", lower, *RESULTS("bleu", "dpp-a", "baseline")),
        measured("DPP (A) is worse than vanilla", lower, *RESULTS.runs("bleu", "dpp-a", "baseline")),
        measured("DPP (V) is better than vanilla", higher, *RESULTS.runs("bleu", "dpp-v", "baseline")),
        measured("DPP (O) is better than vanilla", higher, *RESULTS.runs("bleu", "dpp-o", "baseline")),
    ],
}  # fmt: skip

CLAIMS = PaperClaims(
    sentences=SENTENCES,
    scale={
        # The poster does not name its GPU: times can be compared with each other, not with ours.
        "translation": Scale(
            data={"name": "iwslt14", "source": "de", "target": "en"},
            examples=160239,
            model={"d_model": 512, "heads": 4, "d_ff": 1024, "encoder_layers": 6, "decoder_layers": 6},
            epochs=300,
        )
    },
)

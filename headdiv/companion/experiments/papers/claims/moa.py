"""What the first pages of Mixture of Attention Heads claim; the pages with their tables are not used here.

WMT14 at the paper's sizes is described nowhere in them, so that no run decides its translation.
"""

from headdiv.companion.experiments.claims.functions import higher, lower
from headdiv.companion.experiments.claims.records import Cause, Claim, NumbersOf, PaperClaims, relation, stated

TRANSLATION, MLM = NumbersOf("translation"), NumbersOf("mlm")

K_OF_K_EXPERTS = Cause("slip", "The README's script chooses 8 of 8 experts, so that nothing is routed.")
SENTENCES: dict[str, list[Claim]] = {
    "Abstract": [
        relation("MoA is better than the Transformer in translation", higher,
            *TRANSLATION.runs("bleu", "moa-8-8", "baseline"), kind="score"),
        relation("MoA is better than the Transformer in masked language modelling", lower,
            *MLM.runs("perplexity", "moa-8-8", "baseline"), kind="score"),
    ],
    "§1": [
        stated("tasks", "2 tasks"),
        stated("cost at results like those of larger models", "0.5 times", kind="cost"),
    ],
    "§2": [
        stated("parameters that GShard goes beyond (Lepikhin et al.)", "600 billion parameters"),
        stated("layers that DeepNet reaches (Wang et al.)", "1000 layers"),
        stated("functions of heads (Voita et al.)", "3 functions"),
    ],
    "The code's README, its script": [
        # Eq. 8 keeps the k likeliest of N experts.
        relation("k is below the number of experts", lower, 8, 8, note="8 experts, k = 8: nothing is selected",
            cause=K_OF_K_EXPERTS),
    ],
}  # fmt: skip

CLAIMS = PaperClaims(sentences=SENTENCES)

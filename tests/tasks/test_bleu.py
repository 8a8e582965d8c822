"""BLEU and chrF of translations with unknown words, counts of sentences, and the paired bootstrap over sentences."""

import math

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import BLEU, CHRF, corpus_bleu
from sacrebleu.significance import PairedTest
from torchtext.data.metrics import bleu_score

from headdiv.companion.tasks.bleu import (
    SAMPLES,
    SEED,
    UNKNOWN_MARK,
    bleu_of,
    paired_bootstrap,
    sentence_counts,
    text_scores,
    token_bleu,
)
from headdiv.companion.tasks.rouge import rouge
from headdiv.core.errors import DataError

# Of eight tokens seven match; of seven pairs five (…), of six triples three, of five quadruples one.
OUTPUT, REFERENCE = "a b c d <unk> f g h", "a b c d e f g h"
COUNTS = [7, 5, 3, 1, 8, 7, 6, 5, 8, 8]
BY_HAND = 100 * (7 / 8 * 5 / 7 * 3 / 6 * 1 / 5) ** (1 / 4)


def values(lines, references, **options):
    return {name: one["value"] for name, one in text_scores(lines, references, **options).items()}


def test_a_sentence_whose_n_grams_are_counted_by_hand():
    """An unknown word split in three would make up for words that are missing, and hide the brevity penalty."""
    assert sentence_counts([OUTPUT], [REFERENCE]).tolist() == [COUNTS]
    found = values([OUTPUT], [REFERENCE])
    assert found["bleu"] == pytest.approx(BY_HAND, abs=1e-9)
    assert (found["length_ratio"], found["brevity_penalty"]) == (1, 1)
    assert (found["unknown_words"], found["unknown_share"]) == (1, 12.5)
    short = values(["a b <unk>"], ["a b c d e"])
    assert (short["length_ratio"], short["brevity_penalty"]) == (3 / 5, pytest.approx(math.exp(1 - 5 / 3)))


def test_an_unknown_word_is_one_token_of_every_score():
    marked = [OUTPUT.replace("<unk>", UNKNOWN_MARK)]
    found = values([OUTPUT], [REFERENCE])
    assert found["bleu"] == BLEU().corpus_score(marked, [[REFERENCE]]).score
    assert found["chrf"] == CHRF().corpus_score(marked, [[REFERENCE]]).score
    split = BLEU().corpus_score([OUTPUT], [[REFERENCE]])  # what sacrebleu makes of it as it stands
    assert split.sys_len == 10
    assert split.score < found["bleu"]


@pytest.mark.parametrize("output", ["wie <unk>, so <unk>.", "<unk>", "ein <unk>-Mann", "<unk><unk>"])
def test_a_reference_never_matches_an_unknown_word(output):
    reference = output.replace("<unk>", UNKNOWN_MARK)
    matching = sentence_counts([output], [reference])[0, 0]
    assert matching == sentence_counts([output.replace("<unk>", "qqq")], [reference])[0, 0]


def test_both_conventions_of_the_papers():
    """Rare words of references as they stand, which nothing matches, or as <unk>, which an unknown word does."""
    output, reference = OUTPUT.split(), REFERENCE.split()
    assert token_bleu([output], [reference]) == pytest.approx(BY_HAND, abs=1e-4)
    assert token_bleu([output], [["<unk>" if word == "e" else word for word in reference]]) == pytest.approx(100)


def test_a_space_is_a_token_like_any_other():
    """Of two spaces one is a word to spaCy; torchtext takes n-grams apart at spaces."""
    spaced, plain = (
        [["the", "man", space, "runs", word, "now", "again"] for word in ("fast", "slowly")] for space in (" ", "–")
    )
    assert token_bleu(spaced[:1], spaced[1:]) == token_bleu(plain[:1], plain[1:])


def test_rouge_reads_an_unknown_word_as_one_word_that_no_reference_has():
    found = rouge(["a b <unk> d"], ["a b c d"])
    precision = recall = 3 / 4
    assert found["rouge1"]["value"] == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    dropped = RougeScorer(["rouge1"]).score("a b c d", f"a b {UNKNOWN_MARK} d")["rouge1"]
    assert dropped.precision == 1  # as the symbol it would not count


def test_outputs_and_references_must_be_as_many():
    with pytest.raises(DataError, match="1 translations and 2 references"):
        text_scores(["a"], ["a", "b"])
    with pytest.raises(DataError, match="2 predictions and 3 references"):
        rouge(["a", "b"], ["a", "b", "c"])


TEXTS = {
    "ordinary sentences": (["The cats were running home.", "2 dogs sat"], ["A cat runs to its home.", "2 dogs sat on"]),
    "no reference has a token": (["a"], ["<skipped>"]),  # which BLEU takes out of every text
    "a reference without a token": (["a", "b c d e"], ["<skipped>", "b c d e"]),
    "an empty output": (["", "a b c d e"], ["x y", "a b c d e"]),
    "no output": ([""], ["a b c d e"]),
    "neither": ([""], [" "]),
    "one word": (["a"], ["a"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_have_the_scores_that_the_libraries_give(name):
    lines, references = TEXTS[name]
    bleu, found = BLEU().corpus_score(lines, [references]), values(lines, references)
    assert (found["bleu"], found["brevity_penalty"], found["length_ratio"]) == (bleu.score, bleu.bp, bleu.ratio)
    assert found["chrf"] == CHRF().corpus_score(lines, [references]).score
    assert (found["unknown_words"], found["unknown_share"]) == (0, 0)
    counts = sentence_counts(lines, references)
    assert bleu_of(counts.sum(axis=0)) == pytest.approx(bleu.score)
    result = paired_bootstrap(counts, {"same": counts})
    assert (result.baseline, result.p_values) == (pytest.approx(bleu.score), {"same": 1})
    words = [[line.split() for line in side] for side in (lines, references)]
    assert token_bleu(*words) == pytest.approx(100 * bleu_score(words[0], [[line] for line in words[1]]))
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    twins = [scorer.score(*pair) for pair in zip(references, lines, strict=True)]
    for key, score in rouge(lines, references).items():
        assert score["value"] == pytest.approx(100 * np.mean([one[key].fmeasure for one in twins]))


# ---- bootstrap


def sentences(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefgh"), 8)) for _ in range(n)]


def worse(lines, share, seed):
    rng = np.random.default_rng(seed)
    return [" ".join("z" if rng.random() < share else word for word in line.split()) for line in lines]


def bootstrap(base, systems, references, lowercase=False):
    """Of translations as text."""
    counts = {name: sentence_counts(lines, references, lowercase) for name, lines in {"": base, **systems}.items()}
    return paired_bootstrap(counts.pop(""), counts, lowercase)


def test_the_bootstrap_draws_scores_and_signs_the_samples_as_sacrebleu_does():
    """A literal twin: the whole test set drawn and scored anew for each sample.

    Sacrebleu's own p-value, which takes the size of a difference before the mean, follows from the same samples.
    """
    references = sentences(8)
    base, system = worse(references, 0.3, 1), worse(references, 0.2, 2)
    found = bootstrap(base, {"x": system}, references)
    scores = [corpus_bleu(lines, [references]).score for lines in (base, system)]
    assert (found.baseline, found.scores["x"]) == pytest.approx(tuple(scores))
    whole, differences = abs(scores[1] - scores[0]), []
    for draw in np.random.default_rng(SEED).choice(len(references), size=(SAMPLES, len(references)), replace=True):
        drawn = [[lines[i] for i in draw] for lines in (base, system, references)]
        one, other = (BLEU().corpus_score(lines, [drawn[2]]).score for lines in drawn[:2])
        differences.append(other - one)
    differences = np.array(differences)
    as_large = np.abs(differences - differences.mean()) >= whole
    assert found.p_values["x"] == pytest.approx((as_large.sum() + 1) / (SAMPLES + 1))
    assert 1 / (SAMPLES + 1) < found.p_values["x"] < 1
    systems, sizes = [("base", base), ("x", system)], np.abs(differences)
    signatures, results = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=SAMPLES)()
    assert found.signature == str(signatures["BLEU"])
    assert results["BLEU"][1].p_value == pytest.approx(((sizes - sizes.mean() > whole).sum() + 1) / (SAMPLES + 1))


def test_bleu_of_counts_is_sacrebleus_for_each():
    """With orders of which nothing matches or for which all are too short; translations too short, and empty ones."""
    rng = np.random.default_rng(0)
    every = np.maximum(rng.integers(1, 60, (500, 1)) - np.arange(4), 0)
    matching = rng.integers(0, every + 1) * (rng.random((500, 4)) < 0.7)
    lengths = np.stack([every[:, 0], rng.integers(1, 60, 500)], axis=1)
    counts = np.concatenate([matching, every, lengths], axis=1)
    counts[0, :9] = 0
    twin = [BLEU.compute_bleu(one[:4], one[4:8], one[8], one[9], smooth_method="exp").score for one in counts.tolist()]
    assert min(twin) == 0 < max(twin)
    np.testing.assert_allclose(bleu_of(counts), twin, rtol=1e-12, atol=0)


def test_of_equally_good_systems_one_in_twenty_differs():
    found = []
    for trial in range(100):
        references = sentences(40, trial)
        pair = [worse(references, 0.25, 2 * trial + side) for side in (0, 1)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("headdiv.companion.tasks.bleu.SAMPLES", 100)
            found.append(bootstrap(pair[0], {"x": pair[1]}, references).p_values["x"])
    assert 0.01 <= np.mean(np.array(found) < 0.05) <= 0.09
    assert 0.4 < np.median(found) < 0.6
    assert max(found) > 0.9


def test_number_of_samples_and_seed_are_fixed_and_named_and_equal_translations_do_not_differ(monkeypatch):
    references = sentences()
    base = worse(references, 0.3, 1)
    systems = {"same": list(base), "much": references}
    found = bootstrap(base, systems, references)
    assert found.p_values["same"] == 1
    assert found.p_values["much"] < 0.01
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert bootstrap(base, systems, references) == found
    assert found.signature.startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "case:lc" in bootstrap(base, systems, references, lowercase=True).signature
    assert [sentence_counts(["A B c"], ["a b c"], lowercase)[0, 0] for lowercase in (False, True)] == [1, 3]

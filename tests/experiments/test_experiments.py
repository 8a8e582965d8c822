"""Profiles expanded into runs; every mistake in one is a sentence with file, line and key."""

import pytest

from headdiv.companion.experiments.profiles import Runs, run_config
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import ConfigError
from headdiv.core.settings import check, nearest

EXPERIMENT = "deacon/translation"
SEVEN = ["baseline", "direct-8", "direct-3", "average-8", "average-3", "nonlinear-8", "nonlinear-3"]
PROFILE = """\
title: test
seeds: [1, 2]
experiments:
  deacon/translation:
    data: {name: toy}
"""


def runs(home, more="", profile=PROFILE):
    (home / "p.yaml").write_text(profile + more)
    return Runs(str(home / "p.yaml"))


def refusal(call, *arguments):
    with pytest.raises(ConfigError) as refused:
        call(*arguments)
    return str(refused.value)


def test_the_seven_rows_come_in_the_papers_order_seed_by_seed(home):
    profile_runs = runs(home)
    assert [(c.variant, c.seed) for c in profile_runs.configs()] == [
        (variant, seed) for variant in SEVEN for seed in (1, 2)
    ]
    assert profile_runs.experiments() == [EXPERIMENT]
    assert profile_runs.configs(EXPERIMENT) == profile_runs.configs()
    config = profile_runs.config(EXPERIMENT, "direct-8", 2)
    assert config == run_config(str(home / "p.yaml"), EXPERIMENT, "direct-8", 2)
    assert (config.paper, config.task) == ("deacon", "translation")
    options = {"delta_p": 0.2, "delta_p_schedule": "constant", "xi": 0.8, "gha_steps": 500, "direction": "gha"}
    assert config.method == {"name": "deacon", "architecture": "direct", "m": 8} | options


def test_variants_are_chosen_and_defined(home):
    more = """\
    define:
      direct-5: {name: deacon, architecture: direct, m: 5, xi: 0.5}
      wide: {name: deacon, architecture: nonlinear, m: 44}
    methods:
      deacon: {xi: 0.6, delta_p: 0.05}
"""
    chosen = runs(home, f"{more}    variants: [direct-5, baseline, average-3, wide]\n").configs()
    assert [c.variant for c in chosen[::2]] == ["direct-5", "baseline", "average-3", "wide"]
    methods = {c.variant: c.method for c in chosen}
    assert methods["baseline"] == {"name": "baseline"}
    options = {variant: tuple(method.get(key) for key in ("m", "xi", "delta_p")) for variant, method in methods.items()}
    assert options["direct-5"] == (5, 0.5, 0.05)  # a definition's own options win
    assert options["average-3"] == (3, 0.6, 0.05)
    assert options["wide"] == (44, 0.6, 0.05)  # more components than heads: products of them
    assert [c.variant for c in runs(home, more).configs()[::2]] == [*SEVEN, "direct-5", "wide"]


ROW = """\
    variants: [baseline, direct-8]
    methods: {deacon: {m: 5, xi: 0.6}}
    model: {dropout: 0.5}
"""


def test_a_value_for_all_variants_never_replaces_what_a_row_of_the_paper_is(home):
    message = refusal(runs, home, ROW)
    assert (
        ", line 7: experiments.deacon/translation.methods.deacon.m: found 5 for all variants, but 'direct-8'" in message
    )
    assert message.endswith("expected the one that is meant in settings: {direct-8: {method.m: …}}")
    regulariser = PROFILE.replace(EXPERIMENT, "deacon/regulariser") + "    variants: [baseline-d2]\n"
    message = refusal(runs, home, "    model: {dropout: 0.5}\n", regulariser)
    assert "model.dropout: found 0.5 for all variants, but 'baseline-d2' has 0.2" in message
    assert runs(home, "    model: {dropout: 0.2}\n", regulariser).configs()[0].model.dropout == 0.2


def test_levels_are_default_paper_profile_variant(home):
    settings = "    settings: {direct-8: {method.m: 5, model.dropout: 0.3, train.share: 0.5, train.epochs: 7}}\n"
    profile_runs = runs(home, ROW + settings)
    baseline, direct = (profile_runs.config(EXPERIMENT, variant, 1) for variant in ("baseline", "direct-8"))
    assert (baseline.model.dropout, direct.model.dropout, direct.model.heads) == (0.5, 0.3, 8)
    assert (direct.method["architecture"], direct.method["m"], direct.method["xi"]) == ("direct", 5, 0.6)
    assert direct.method["delta_p"] == 0.2
    assert (direct.train.share, direct.train.epochs) == (0.5, 7)
    assert direct.train.learning_rate == baseline.train.learning_rate
    assert profile_runs.free_keys(EXPERIMENT) == {"method.m", "model.dropout", "train.share", "train.epochs"}


def test_a_profile_reaches_the_parts_of_a_combination(home):
    """``methods`` speaks of every variant of a method; what a definition says itself still wins."""
    more = """\
    variants: [both, alone]
    define:
      both:
        name: combined
        methods:
          - {name: deacon, architecture: direct, m: 8, xi: 0.9}
          - {name: disagreement, term: output}
      alone: {name: deacon, architecture: direct, m: 8, xi: 0.9}
    methods: {deacon: {xi: 0.5, delta_p: 0.05}, disagreement: {weight: 2.0}}
"""
    profile_runs = runs(home, more)
    combined, alone = (profile_runs.config(EXPERIMENT, variant, 1).method for variant in ("both", "alone"))
    assert combined["methods"][0] == alone
    assert (alone["xi"], alone["delta_p"], combined["methods"][1]["weight"]) == (0.9, 0.05, 2.0)
    message = refusal(runs, home, more.replace("name: disagreement, term: output", "name: mixing"))
    assert ", line 12: " in message
    assert "define.both.methods.1: 'mixing' and 'deacon' both build" in message


def test_a_variant_that_failed_with_all_seeds_is_known_and_can_be_trained_again(home):
    chosen = runs(home, "    variants: [baseline, direct-8]\n    failed: {direct-8: [1, 2]}\n")
    assert {(config.variant, config.seed) for config in chosen.configs()} == {("baseline", 1), ("baseline", 2)}
    assert chosen.config(EXPERIMENT, "direct-8", 2).seed == 2
    message = f"profile p: 'failed' lists every run of {EXPERIMENT} direct-8 that is asked for"
    assert refusal(chosen.planned, EXPERIMENT, "direct-8") == message


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ("    settings:\n      direct-8: {model.dropuot: 0.3}\n", 7, "settings.direct-8.model.dropuot: unknown key"),
        ("    settings:\n      direct-8: {data.name: x}\n", 7,
         "settings.direct-8.data.name: unknown key; expected one of"),
        ("    variants: [direct-9]\n", 6, "variants.0: unknown variant 'direct-9'; did you mean 'direct-8'?"),
        ("    unlearned: [direct-9]\n", 6, "unlearned.0: unknown variant 'direct-9'; did you mean 'direct-8'?"),
        ("    define:\n      direct-9:\n        {name: deacon, architecture: direct,\n         m: 9}\n", 9,
         "define.direct-9.m: 9 is more than the k = 8 inputs of the PCA layer"),
        ("    model: {heads: 4}\n", 4, "variants.direct-8.m: 8 is more than the k = 4 inputs"),
        ("    methods: {deacon: {deltap: 1}}\n", 6, "methods.deacon.deltap: unknown key; did you mean 'delta_p'?"),
        ("    methods: {deacon: {name: mixing}}\n", 6, "methods.deacon.name: cannot be set, since"),
        ("    methods: {moa: {mm: 5}}\n", 6, "methods.moa: no variant has this method"),
        ("    define: {a_b: {name: baseline}}\n", 6, "define.a_b: a variant's name is made of letters"),
        ("    define: {direct-8: {name: baseline}}\n", 6, "define.direct-8: is a variant of the paper's"),
        ("    variants: [baseline]\n    define: {mine: {name: mixing}}\n", 7, "define.mine: is not listed"),
    ],
)  # fmt: skip
def test_a_wrong_variant_or_method_is_named_with_its_line(home, more, line, message):
    assert refusal(runs, home, more).startswith(f"{home}/p.yaml, line {line}: experiments.{EXPERIMENT}.{message}")


WHOLE = """\
title: test
seeds: [1]
experiments:
  deacon/translation:
    data: {name: multi30k, test: test_2016_flickr}
    model:
      d_model: 16
      heads: 8
    train:
      epochs: 2
      learning_rate: 0.01
  deacon/qa:
    data: {name: toy}
    decode: {max_answer_words: 5}
  deacon/lm:
    data:
      name: toy
      epoch_tokens: 100
    model: {layers: 3, d_model: 32}
"""
HERE, QA, LM = "experiments.deacon/translation", "experiments.deacon/qa", "experiments.deacon/lm"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        # keys and values
        ("title: test\n", "", "line 1: title: is missing"),
        ("seeds: [1]", "seed: 1", "line 2: seed: unknown key; did you mean 'seeds'?"),
        ("[1]", "[1, 2, 1]", "line 2: seeds: input should name nothing twice, and 1 is, found [1, 2, 1]"),
        ("d_model: 16", "zzz: 16", f"line 7: {HERE}.model.zzz: unknown key; known here: activation, attention_bias, "),
        ("heads: 8", "heads: 8\n      d_model: 8", "line 9: the key 'd_model' is given twice"),
        ("epochs", "epoch", f"line 10: {HERE}.train.epoch: unknown key; did you mean 'epochs'?"),
        ("0.01", ".nan", f"line 11: {HERE}.train.learning_rate: input should be a finite number, found nan"),
        (WHOLE, "a: 1\nb: [1\nc: 2\n", "line 3: not valid YAML ("),
        # what a task has
        ("  deacon/translation:", "  deacon:", "line 4: experiments.deacon: found 'deacon', expected <paper>/<task>"),
        ("{name: multi30k,", "{name: multi40k,",
         f"line 5: {HERE}.data.name: 'multi40k' is not known; did you mean 'multi30k'?"),
        ("{name: multi30k,", "{name: toy,",
         f"line 5: {HERE}.data.test: found 'test_2016_flickr', expected the default, 'test'"),
        ("{name: toy}", "{name: toy, files: {train: a.json}}",
         f"line 13: {QA}.data.name: 'toy' is generated; with 'files' give another name"),
        ("max_answer_words", "beam", f"line 14: {QA}.decode.beam: unknown key; known here: max_answer_words"),
        ("      epoch_tokens: 100\n", "", f"line 16: {LM}.data.epoch_tokens: is missing"),
        ("d_model: 32", "d_model: 30", f"line 19: {LM}.model.heads: 16 does not divide d_model = 30"),
        ("layers: 3, d_model: 32}", "layers: 3}\n    train: {share: 0.5}",
         f"line 20: {LM}.train.share: found 0.5, expected the default, 1.0"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_line_and_key(home, old, new, message):
    assert WHOLE.count(old) == 1
    assert len(runs(home, "", WHOLE).experiments()) == 3
    refused = refusal(runs, home, "", WHOLE.replace(old, new))
    assert refused.startswith(f"{home}/p.yaml, {message}")
    assert "\n" not in refused


def test_a_file_that_cannot_be_read_is_named(home):
    (home / "config").mkdir()
    (home / "config" / "tiny.yaml").write_text(PROFILE)
    (home / "config" / "latin.yaml").write_bytes(PROFILE.encode().replace(b"test", b"t\xe4st"))
    assert refusal(Runs, "tniy") == f"{home}/config/tniy.yaml: no such file; did you mean 'tiny'?"
    (home / "empty").mkdir()
    assert refusal(Runs, f"{home}/empty/mine.yaml") == f"{home}/empty/mine.yaml: no such file"
    assert refusal(Runs, "latin") == f"{home}/config/latin.yaml: not UTF-8 text (byte offset 8)"


def test_without_a_file_only_the_key_is_named():
    message = refusal(check, TrainConfig, {"epochs": 0}, ("train",))
    assert message == "train.epochs: input should be greater than or equal to 1, found 0"
    assert nearest("adamw", ["Adam", "AdamW"]) == "; did you mean 'AdamW'?"


def test_a_run_that_is_not_there_is_named(home):
    profile_runs = runs(home)
    message = refusal(profile_runs.config, "deacon/translatoin", "baseline", 1)
    assert message == "profile p: no experiment 'deacon/translatoin'; did you mean 'deacon/translation'?"
    message = refusal(profile_runs.config, EXPERIMENT, "x", 1)
    assert message == f"profile p: no variant 'x'; known here: {', '.join(sorted(SEVEN))}"
    assert profile_runs.planned(EXPERIMENT, "baseline", "1") == profile_runs.planned(EXPERIMENT, "baseline", 1)
    assert refusal(profile_runs.planned, EXPERIMENT, "baseline", "9").startswith("profile p: no seed '9'")

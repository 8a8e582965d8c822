"""Profiles expanded into runs."""

import pytest
from tracked import ROOT, git_files

from headdiv.companion.experiments.profiles import Runs, run_config
from headdiv.companion.tasks import TASKS
from headdiv.core.errors import ConfigError

EXPERIMENT = "deacon/translation"
SEVEN = ["baseline", "direct-8", "direct-3", "average-8", "average-3", "nonlinear-8", "nonlinear-3"]
HERE = "experiments.deacon/translation"


def refusal(call):
    with pytest.raises(ConfigError) as found:
        call()
    return str(found.value)


def place(project, line):
    return f"{project.home}/config/p.yaml, line {line}: {HERE}."


PROFILE = """\
title: test
seeds: [1, 2]
experiments:
  deacon/translation:
    data: {name: toy}
"""


def runs(project, more=""):
    project.write_config("p", PROFILE + more)
    return Runs("p")


def test_every_profile_of_the_project_loads(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))
    profiles = [path.stem for path in git_files("config/*.yaml")]
    assert {"multi30k", "quick"} <= set(profiles)
    for profile in profiles:
        found = Runs(profile)
        assert found.name == profile
        for experiment in found.experiments():
            of_one = found.planned(experiment)
            assert len({config.hash for config in of_one}) == len(of_one)
    assert [config.variant for config in Runs("multi30k").of(EXPERIMENT)] == SEVEN
    assert {config.kind for config in Runs("quick").all()} == set(TASKS)


def test_the_seven_rows_come_in_the_papers_order_seed_by_seed(project):
    found = runs(project)
    assert [(c.variant, c.seed) for c in found.all()] == [(variant, seed) for variant in SEVEN for seed in (1, 2)]
    assert found.experiments() == [EXPERIMENT]
    assert found.of(EXPERIMENT) == found.all()
    assert {(c.paper, c.task) for c in found.all()} == {("deacon", "translation")}
    one = found.one(EXPERIMENT, "direct-8", 2)
    assert one == run_config("p", EXPERIMENT, "direct-8", 2)
    options = {"delta_p": 0.2, "delta_p_schedule": "constant", "xi": 0.8, "gha_steps": 500, "direction": "gha"}
    assert one.method == {"name": "deacon", "architecture": "direct", "m": 8} | options


def test_variants_are_chosen_and_defined(project):
    more = """\
    define:
      direct-5: {name: deacon, architecture: direct, m: 5, xi: 0.5}
    methods:
      deacon: {xi: 0.6, delta_p: 0.05}
"""
    chosen = runs(project, f"{more}    variants: [direct-5, baseline, average-3]\n").all()
    assert [c.variant for c in chosen[::2]] == ["direct-5", "baseline", "average-3"]
    methods = {c.variant: c.method for c in chosen}
    options = {variant: (method["xi"], method["delta_p"]) for variant, method in methods.items() if len(method) > 1}
    assert options == {"direct-5": (0.5, 0.05), "average-3": (0.6, 0.05)}  # a definition's own options win
    assert methods["direct-5"]["m"] == 5
    assert methods["baseline"] == {"name": "baseline"}
    assert [c.variant for c in runs(project, more).all()[::2]] == [*SEVEN, "direct-5"]


ROW = """\
    variants: [baseline, direct-8]
    methods: {deacon: {m: 5, xi: 0.6}}
    model: {dropout: 0.5}
"""


def test_a_value_for_all_variants_never_replaces_what_a_row_of_the_paper_is(project):
    said = refusal(lambda: runs(project, ROW))
    assert said.startswith(
        place(project, 7) + "methods.deacon.m: found 5 for all variants, but 'direct-8' has 8 in the"
    )
    assert said.endswith("expected the one that is meant in settings: {direct-8: {method.m: …}}")
    dropout = "    variants: [baseline-d2]\n    model: {dropout: 0.5}\n"
    regulariser = PROFILE.replace(EXPERIMENT, "deacon/regulariser") + dropout
    project.write_config("p", regulariser)
    assert "model.dropout: found 0.5 for all variants, but 'baseline-d2' has 0.2" in refusal(lambda: Runs("p"))
    project.write_config("p", regulariser.replace("0.5", "0.2"))
    assert Runs("p").all()[0].model.dropout == 0.2


def test_levels_are_default_paper_profile_variant(project):
    chosen = runs(project, ROW + "    settings: {direct-8: {method.m: 5, model.dropout: 0.3}}\n")
    baseline, direct = (chosen.one(EXPERIMENT, variant, 1) for variant in ("baseline", "direct-8"))
    assert (baseline.model.dropout, direct.model.dropout, direct.model.heads) == (0.5, 0.3, 8)
    assert (direct.method["architecture"], direct.method["m"], direct.method["xi"]) == ("direct", 5, 0.6)
    assert direct.method["delta_p"] == 0.2


def test_a_variant_may_have_settings_of_its_own(project):
    more = """\
    variants: [baseline, direct-8]
    settings:
      direct-8: {model.dropout: 0.3, train.share: 0.5, train.epochs: 7, method.xi: 0.6}
"""
    chosen = runs(project, more)
    plain, own = (chosen.one(EXPERIMENT, variant, 1) for variant in ("baseline", "direct-8"))
    assert (own.model.dropout, own.train.share, own.train.epochs, own.method["xi"]) == (0.3, 0.5, 7, 0.6)
    assert plain == runs(project, "    variants: [baseline]\n").one(EXPERIMENT, "baseline", 1)
    assert own.train.learning_rate == plain.train.learning_rate
    assert chosen.free_keys(EXPERIMENT) == {"model.dropout", "train.share", "train.epochs", "method.xi"}


def test_a_variant_that_failed_with_all_seeds_is_known_and_can_be_trained_again(project):
    chosen = runs(project, "    variants: [baseline, direct-8]\n    failed: {direct-8: [1, 2]}\n")
    assert {(config.variant, config.seed) for config in chosen.all()} == {("baseline", 1), ("baseline", 2)}
    assert chosen.one(EXPERIMENT, "direct-8", 2).seed == 2
    said = f"profile p: 'failed' lists every run of {EXPERIMENT} direct-8 that is asked for"
    assert refusal(lambda: chosen.planned(EXPERIMENT, "direct-8")) == said


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ("    settings:\n      direct-9: {model.dropout: 0.3}\n", 7,
         "settings.direct-9: is no variant of the experiment"),
        ("    settings:\n      direct-8: {model.dropuot: 0.3}\n", 7, "settings.direct-8.model.dropuot: unknown key"),
        ("    settings:\n      direct-8: {data.name: x}\n", 7,
         "settings.direct-8.data.name: unknown key; expected one of"),
        ("    settings:\n      direct-8: {train.share: 0}\n", 7, "settings.direct-8.train.share: "),
        ("    variants: [direct-9]\n", 6, "variants.0: unknown variant 'direct-9'; did you mean 'direct-8'?"),
        ("    define:\n      direct-9:\n        {name: deacon, architecture: direct,\n         m: 9}\n", 9,
         "define.direct-9.m: 9 is more than the k = 8 inputs of the PCA layer"),
        ("    model: {heads: 4}\n", 4,
         "variants.direct-8.m: 8 is more than the k = 4 inputs"),
        ("    methods: {deacon: {deltap: 1}}\n", 6, "methods.deacon.deltap: unknown key; did you mean 'delta_p'?"),
        ("    variants: [a]\n    define: {a: {name: deacon}}\n", 7, "define.a.m: is missing"),
        ("    train: {epochs: 0}\n", 6, "train.epochs: "),
        ("    train: {}\n    model: {d_modle: 8}\n", 7, "model.d_modle: unknown key; did you mean 'd_model'?"),
        ("    methods: {decon: {xi: 0.5}}\n", 6, "methods.decon: unknown method; did you mean 'deacon'?"),
        ("    define: {a_b: {name: baseline}}\n", 6, "define.a_b: a variant's name is made of letters"),
        ("    define: {direct-8: {name: baseline}}\n", 6, "define.direct-8: is a variant of the paper's"),
    ],
)  # fmt: skip
def test_a_wrong_variant_or_method_is_named_with_its_line(project, more, line, message):
    assert refusal(lambda: runs(project, more)).startswith(place(project, line) + message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{name: multi40k}", "name: 'multi40k' is not known; did you mean 'multi30k'?"),
        ("{name: multi30k, test: test_2016_flickr, target: xx}", "target: 'xx' is not known; there are: "),
        ("{name: toy, test: test_2016_flickr}", "test: found 'test_2016_flickr', expected the default, 'test'"),
        ("{name: multi30k, held_out: 8}", "held_out: found 8, expected the default, 500"),
    ],
)
def test_data_that_is_not_there_is_named_with_its_line(project, data, message):
    project.write_config("p", PROFILE.replace("{name: toy}", data))
    found = refusal(lambda: Runs("p"))
    assert found.startswith(place(project, 5) + f"data.{message}")
    assert "\n" not in found


OTHERS = """\
title: test
seeds: [1]
experiments:
  deacon/summarisation:
    data: {name: toy, document_words: 50}
  deacon/qa:
    data: {name: toy}
    decode: {max_answer_words: 5}
  deacon/lm:
    data:
      name: toy
      epoch_tokens: 100
    model: {layers: 3, d_model: 32}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_answer_words", "beam", "line 8: experiments.deacon/qa.decode.beam: unknown key; known here: "
         "max_answer_words"),
        ("layers: 3", "encoder_layers: 3", "line 13: experiments.deacon/lm.model.encoder_layers: unknown key; "
         "did you mean 'layers'?"),
        ("epoch_tokens: 100", "epoch_tokens: 100\n      document_start: (",
         "line 13: experiments.deacon/lm.data.document_start: '(' is not a regular expression (missing )"),
        ("      epoch_tokens: 100\n", "", "line 10: experiments.deacon/lm.data.epoch_tokens: is missing"),
        ("d_model: 32", "d_model: 30", "line 13: experiments.deacon/lm.model.heads: 16 does not divide d_model = 30"),
        ("{name: toy}", "{name: mine, files: {train: a.json}}",
         "line 7: experiments.deacon/qa.data.valid: 'valid' is not known; there are: train"),
        ("{name: toy}", "{name: toy, files: {train: a.json}}",
         "line 7: experiments.deacon/qa.data.name: 'toy' is generated; with 'files' give another name"),
        ("{name: toy}", "{name: multi30k, test: valid}",
         "line 7: experiments.deacon/qa.data.name: 'multi30k' has no file for 'examples' in split 'train'; "
         "there are: de, en"),
    ],
)  # fmt: skip
def test_a_mistake_in_another_tasks_keys_is_named_with_its_line(project, old, new, message):
    assert OTHERS.count(old) == 1
    project.write_config("p", OTHERS.replace(old, new))
    assert refusal(lambda: Runs("p")).startswith(f"{project.home}/config/p.yaml, {message}")


def test_more_components_than_heads_are_possible_in_the_nonlinear_architecture_only(project):
    found = runs(project, "    define: {n: {name: deacon, architecture: nonlinear, m: 44}}\n")
    assert found.one(EXPERIMENT, "n", 1).method["m"] == 44


@pytest.mark.parametrize(
    ("experiment", "variant", "seed", "message"),
    [
        ("deacon/translatoin", "baseline", 1, "no experiment 'deacon/translatoin'; did you mean 'deacon/translation'?"),
        (EXPERIMENT, "x", 1, f"no variant 'x'; known here: {', '.join(sorted(SEVEN))}"),
    ],
)
def test_a_run_that_is_not_there_is_named(project, experiment, variant, seed, message):
    found = runs(project)
    assert refusal(lambda: found.one(experiment, variant, seed)) == f"profile p: {message}"


@pytest.mark.parametrize("seed", ["1", 1.0, None, 2**63])
def test_a_seed_that_is_none_is_named(project, seed):
    expected = f"seed: expected a whole number from 0 to 2^63 - 1, found {seed!r}"
    assert refusal(lambda: runs(project).one(EXPERIMENT, "baseline", seed)) == expected

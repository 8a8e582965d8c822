"""Any variants of an experiment against any one of them."""

import numpy as np
import pytest
import yaml
from reported import PLAIN, headed, put, worked_out, write_profile

from headdiv.companion.report.compare import ONE_SEED, as_text, compare
from headdiv.core.errors import NotStoredError

EXPERIMENT = "deacon/dissection"
LOSSES = {"baseline": (2.0, 2.1, 2.2), "direct-8": (2.5, 2.65, 2.7), "own": (1.5, 1.61, 1.69)}


def store(project, seeds):
    write_profile(project, "p", EXPERIMENT, variants=[*LOSSES], seeds=range(1, seeds + 1))
    for variant, losses in LOSSES.items():
        for seed, loss in enumerate(losses[:seeds], 1):
            put(headed(variant, seed, experiment=EXPERIMENT, validation_nll_best=loss, bleu=30 - 10 * loss))


@pytest.mark.parametrize("baseline", ["baseline", "own"])
def test_every_variant_is_compared_with_the_one_asked_for(project, baseline):
    store(project, 3)
    frame = compare("p", EXPERIMENT, baseline).set_index(["measure", "variant"])
    scores = {variant: dict(enumerate(losses, 1)) for variant, losses in LOSSES.items()}
    pairs = [(variant, baseline) for variant in LOSSES if variant != baseline]
    for (variant, _), (mean, half, _) in worked_out(scores, *pairs).items():
        row = frame.loc["lowest validation loss", variant]
        assert (row["difference"], row["high"] - row["difference"]) == pytest.approx((mean, half), rel=2e-3)
        assert row["verdict"] == ("better" if mean < 0 else "worse")
        assert frame.loc["BLEU", variant]["difference"] == pytest.approx(-10 * mean)
    assert np.isnan(frame.loc["BLEU", baseline]["difference"])
    assert compare("p", baseline=baseline).equals(compare("p", EXPERIMENT, baseline))  # the profile's only experiment
    text = as_text("p", baseline)
    assert ONE_SEED not in text


def test_one_seed_decides_nothing_and_one_line_says_so(project):
    store(project, 1)
    assert set(compare("p", EXPERIMENT)["verdict"].dropna()) == {"one seed, not judged"}
    assert as_text("p").count(ONE_SEED) == 1


def test_an_experiment_whose_arms_are_not_tuned_yet_is_left_out(project):
    store(project, 3)
    expected = as_text("p")
    path = project.home / "config" / "p.yaml"
    profile = yaml.safe_load(path.read_text())
    tune = {"seeds": [11], "rungs": [1], "keep": [1], "arms": {"baseline": [{"model.dropout": 0.2}]}}
    profile["experiments"]["headtohead/tuned"] = {**PLAIN, "variants": ["baseline"], "tune": tune}
    path.write_text(yaml.safe_dump(profile, sort_keys=False))
    assert as_text("p") == expected
    with pytest.raises(NotStoredError, match="not tuned yet"):
        compare("p", "headtohead/tuned")


def test_a_baseline_that_is_not_stored_is_named_with_what_is(project):
    store(project, 1)
    with pytest.raises(NotStoredError, match="no run of frozen is stored; there are: baseline, direct-8, own"):
        compare("p", EXPERIMENT, "frozen")
    with pytest.raises(NotStoredError, match="profile p: no experiment has stored runs of frozn"):
        compare("p", baseline="frozn")

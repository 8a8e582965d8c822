"""Every stored run is found under its name: recomputed from its profile, its hash is the stored one.

Run names need the checksums of the data's files. Of public sets the registry has them; those of the files that
`config/samples.yaml`, `tables.yaml` and `rows.yaml` read from $HEADDIV_MIRROR are pinned in ``mirror.json``, so that
nothing is skipped where the files are not. `test_the_pinned_checksums_name_the_mirrors_files` holds the two together
where they are.
"""

import contextlib

import pytest
from pins import in_lines, pinned
from tracked import ROOT, git_files

from headdiv.companion.data.cache import PREPARATION, content_key
from headdiv.companion.experiments.checking import changed_content, outdated, outdated_among
from headdiv.companion.experiments.importance import ImportanceResult
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import read_outputs
from headdiv.companion.tasks.run_config import RECIPE, run_name
from headdiv.companion.tasks.train_config import TrainConfig
from headdiv.core.errors import NotStoredError
from headdiv.core.files import checksum, read_json, short_hash

STORED = 270  # runs under results/; there may be more, but not fewer
PROFILES = [path.stem for path in git_files("config/*.yaml")]
EVERYTHING = git_files("results/*/metrics.json")
RESULTS = sorted({path.relative_to(ROOT).parts[1] for path in EVERYTHING})
MIRROR = "$HEADDIV_MIRROR/"

# These 14 runs were stored before a field that is added could leave stored hashes alone (`hash_neutral`). Their
# hashes are of a configuration without the keys below and with the task's kind under "task". Today's `run_name` gives
# them another name; the profile's own values, written as they were then, give the stored one.
EARLY = tuple(ROOT / "results" / "samples" / "deacon" / task for task in ("lm", "qa"))
NOT_YET = {
    "data": ("split_dashes", "max_words", "max_ratio", "valid_every", "merges"),
    "model": ("tied_output",),
    "train": ("epoch_scores", *TrainConfig.of_no_effect),
}


@pytest.fixture(autouse=True)
def _this_repository(monkeypatch):
    monkeypatch.setenv("HEADDIV_HOME", str(ROOT))


def files_of(profile):
    """The metrics of a profile's stored runs."""
    return [path for path in EVERYTHING if path.is_relative_to(ROOT / "results" / profile)]


def listed_files(config):
    """The data's files by split and role as the profile lists them, of those splits that are read."""
    splits = {}
    for key, name in config.read_splits.items():
        files = config.files[name]
        roles = files if isinstance(files, dict) else {"examples": files}
        splits[key] = {role: [one] if isinstance(one, str) else one for role, one in roles.items()}
    return splits


def literal_content_key(config):
    """`content_key` of files that need not be there: of their pinned checksums."""
    known = read_json(ROOT / "tests" / "net" / "mirror.json")["sha256"]
    content = {
        split: {role: [known[path.removeprefix(MIRROR)] for path in paths] for role, paths in roles.items()}
        for split, roles in listed_files(config).items()
    }
    return short_hash({"preparation": PREPARATION, "content": content})


def early_hash(config):
    """`RunConfig.hash` as it was when the first runs were stored."""
    settings = config.model_dump(mode="json", exclude={"paper", "task", "variant", "decode", "kind"})
    for section, keys in NOT_YET.items():
        settings[section] = {key: value for key, value in settings[section].items() if key not in keys}
    return short_hash({"recipe": RECIPE, "task": config.kind, **settings})


def name_of(config, early):
    """`run_name` of a profile's run, in a clone without data."""
    if config.data.files is None and not early:
        return run_name(config)
    return short_hash([early_hash(config) if early else config.hash, literal_content_key(config.data)])


@pytest.mark.parametrize("profile", RESULTS)
def test_every_stored_run_has_the_name_that_its_profile_gives(profile, monkeypatch):
    monkeypatch.delenv("HEADDIV_MIRROR", raising=False)
    runs, wrong = Runs(profile), {}
    for file in files_of(profile):
        run = read_json(file)
        config = runs.config(f"{run['paper']}/{run['task']}", run["variant"], run["seed"])
        early = any(file.is_relative_to(folder) for folder in EARLY)
        if run["hash"] != (found := name_of(config, early)):
            wrong[str(file.relative_to(ROOT))] = (run["hash"], found)
    assert not wrong


@pytest.mark.parametrize("profile", RESULTS)
def test_no_stored_run_is_outdated(profile):
    assert [*outdated(profile), *changed_content(profile)] == []


def test_none_is_left_out():
    """Every run is tested above, and those whose hash is of the early form are the known ones."""
    assert len(EVERYTHING) >= STORED
    assert sum(file.is_relative_to(folder) for file in EVERYTHING for folder in EARLY) == 14


def test_what_is_stored_of_a_run_beside_its_metrics_has_its_name():
    for file in git_files("results/*/importance.json"):
        run = ImportanceResult.read(file)
        assert outdated_among(file.relative_to(ROOT).parts[1], [run]) == {}
        assert run.hash == read_json(file.with_name("metrics.json"))["hash"], file
    for file in EVERYTHING:
        read_outputs(file)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_configurations_of_every_profile_have_their_hashes(profile):
    """Those that nobody has run too, by experiment and variant, of the first seed."""
    runs, found = Runs(profile), {}
    with contextlib.suppress(NotStoredError):  # none of the profile's arms is tuned yet
        for config in runs.configs():
            found.setdefault(config.experiment, {}).setdefault(config.variant, config.hash)
    assert in_lines(found) == in_lines(pinned("profiles.json", profile, found))


def test_the_pinned_checksums_name_the_mirrors_files(mirror):
    runs = (config for profile in ("samples", "tables", "rows") for config in Runs(profile).configs())
    data = {config.data.model_dump_json(): config.data for config in runs if config.data.files}
    paths = [
        path for one in data.values() for r in listed_files(one).values() for listed in r.values() for path in listed
    ]
    names = sorted({path.removeprefix(MIRROR) for path in paths})
    found = {name: checksum(mirror / name) for name in names}
    assert in_lines(found) == in_lines(pinned("mirror.json", "sha256", found))
    for config in data.values():
        assert content_key(config) == literal_content_key(config)


@pytest.mark.parametrize("variant", Runs("shares").profile.experiments["headtohead/shares"].variants)
def test_less_data_is_trained_with_the_settings_that_tuning_chose(variant):
    ours = Runs("shares").config("headtohead/shares", variant, 1)
    tuned = Runs("contest").config("headtohead/tuned", variant.removesuffix("-30").removesuffix("-10"), 1)
    assert (ours.model, ours.method, ours.decode) == (tuned.model, tuned.method, tuned.decode)
    less = {"share", "epochs", "patience"}
    assert ours.train.model_dump(exclude=less) == tuned.train.model_dump(exclude=less)
    assert ours.data.model_dump(exclude={"more_tests"}) == tuned.data.model_dump(exclude={"more_tests"})
    assert ours.train.epochs * (ours.train.share or 1) == pytest.approx(tuned.train.epochs, rel=0.01)
    assert ours.train.patience * (ours.train.share or 1) == pytest.approx(tuned.train.patience, rel=0.01)

"""Translation data as the field prepares it: cleaned, split, in pieces; from loose files or an archive."""

import numpy as np
import pytest
from faulty import exactly, fails, pack, put_pairs, talks, xml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion.data import public_sets as data_sets
from headdiv.companion.data.cache import content_key, locate, prepared_folder
from headdiv.companion.data.corpora.seq2seq import load_translation
from headdiv.companion.data.readers.parallel import SETS
from headdiv.companion.models.batching import SPECIALS, UNKNOWN
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.translation import TranslationData
from headdiv.core.errors import ConfigError
from headdiv.core.files import checksum

TASK = TASKS["translation"]
PAIRS = [(f"w{n} is here.", f"w{n} ist hier.") for n in range(10)]


@pytest.fixture
def mine(folder):
    """Makes a configuration of one's own training and test pairs, in plain files."""

    def config(train=PAIRS, test=PAIRS[:2], **options):
        files = put_pairs(folder, {"train": train, "test": test})
        return TranslationData(**{"name": "mine", "files": files, "min_frequency": 1, "valid_every": 4} | options)

    return config


def sources_of(corpus, split):
    return [" ".join(corpus.source.decode(words)) for words in getattr(corpus, split).pairs.source]


# ---- what is kept, and what is taken for validation


def test_no_split_for_validation_is_needed_or_read(mine):
    config = mine()
    TASK.check_data(config)
    assert list(locate(config)) == ["train", "test"]
    nowhere = config.model_copy(update={"files": config.files | {"valid": {"en": "nowhere", "de": "nowhere"}}})
    assert content_key(nowhere) == content_key(config)
    with pytest.raises(ConfigError, match=r"^data\.valid: 'valid' is not known; there are: test, train$"):
        TASK.check_data(config.model_copy(update={"valid_every": None}))
    with pytest.raises(ConfigError, match=r"^data\.valid: found 'dev', .* valid_every takes validation from"):
        TASK.check_data(mine(valid="dev"))


def test_cleaning_is_of_training_pairs_alone(mine):
    test = [("one two three four five six", "eins")]
    corpus = load_translation(mine([("", "nichts"), ("nothing", " "), *PAIRS], test, max_words=5, max_ratio=1.5))
    assert corpus.statistics["train"]["cleaned_away"] == 2
    assert corpus.statistics["refused"] == {}
    assert corpus.test.text == test


def literal_clean(lengths, most, ratio):
    """Moses' rules, pair by pair."""
    kept = []
    for number, (source, target) in enumerate(lengths):
        if source < 1 or target < 1 or source > most or target > most:
            continue
        if source / target > ratio or target / source > ratio:
            continue
        kept.append(number)
    return kept


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
    most=st.integers(3, 8),
    ratio=st.sampled_from([1.1, 1.5, 2.0]),
    every=st.integers(2, 4),
)
def test_what_is_kept_is_the_literal_choice(mine, lengths, most, ratio, every):
    lengths = [*lengths, *[(3, 3)] * 4]
    pairs = [(" ".join([f"x{n}"] * a), " ".join([f"y{n}"] * b)) for n, (a, b) in enumerate(lengths)]
    corpus = load_translation(mine(pairs, max_words=most, max_ratio=ratio, valid_every=every))
    kept = literal_clean(lengths, most, ratio)
    assert corpus.statistics["train"]["cleaned_away"] == len(lengths) - len(kept)
    assert corpus.valid.text == [pairs[n] for i, n in enumerate(kept, start=1) if i % every == 0]
    assert sources_of(corpus, "train") == [pairs[n][0] for i, n in enumerate(kept, start=1) if i % every]


# ---- several files, and forms by name


def test_several_files_follow_each_other(mine, folder):
    config = mine()
    for language in ("en", "de"):
        (folder / f"a.{language}.xml").write_text(xml(("1", [f"It’s {language}."])), encoding="utf-8")
        (folder / f"train.tags.de-en.{language}").write_text("<url>u</url>\n<title>T</title>\n")
    names = {"en": ["test.en", "a.en.xml", "train.tags.de-en.en"], "de": ["test.de", "a.de.xml", "train.tags.de-en.de"]}
    config = config.model_copy(update={"files": config.files | {"test": names}})
    TASK.check_data(config)
    assert load_translation(config).test.text == [*PAIRS[:2], ("It's en.", "It's de."), ("T", "T")]
    swapped = {language: [listed[1], listed[0], listed[2]] for language, listed in names.items()}
    assert content_key(config.model_copy(update={"files": config.files | {"test": swapped}})) != content_key(config)
    repeated = {language: [*listed, f"test.{language}"] for language, listed in names.items()}
    twice = config.model_copy(update={"files": config.files | {"test": repeated}})
    assert load_translation(twice).test.text == load_translation(config).test.text
    uneven = config.model_copy(update={"files": config.files | {"test": names | {"de": "test.de"}}})
    with exactly("data.files.test: found 3 files of 'en' but 1 of 'de', expected equally many"):
        load_translation(uneven)


# ---- pieces


def test_words_become_pieces_of_one_encoding(mine):
    config = mine(merges=12)
    corpus = load_translation(config)
    assert corpus.statistics["merges"] == 12 == len(corpus.subwords.merges)
    assert (prepared_folder(config) / "subwords.json").is_file()
    for name, at in (("source", 0), ("target", 1)):
        vocabulary = getattr(corpus, name)
        seen = {w for words in getattr(corpus.train.pairs, name) for w in vocabulary.decode(words)}
        assert set(vocabulary.words) == seen | set(SPECIALS)
        assert corpus.statistics["train"][f"{name}_unknown_share"] == 0
        words = sum(len(pair[at].split()) + 1 for n, pair in enumerate(PAIRS) if n not in (3, 7))
        assert corpus.statistics["train"][f"{name}_whole_words"] == words
        assert corpus.statistics["train"][f"{name}_words"] > words
    assert corpus.decode(corpus.test.pairs.target[0]) == ["w0", "ist", "hier", "."]
    assert corpus.encode(["w0", "is", "here", "."], "source").tolist() == corpus.test.pairs.source[0].tolist()


def test_the_share_of_words_with_an_unknown_piece_is_recorded(mine):
    corpus = load_translation(mine(test=[("w0 is Ωhere here.", "w0 ist Ω."), ("is Ω.", "ist.")], merges=12))
    statistics = corpus.statistics["test"]
    assert statistics["source_unknown_word_share"] == pytest.approx(2 / 8)
    assert statistics["target_unknown_word_share"] == pytest.approx(1 / 6)
    found = np.concatenate(corpus.test.pairs.source)
    assert statistics["source_unknown_share"] == pytest.approx((found == UNKNOWN).mean())


def test_text_that_was_tokenised_is_as_it_was_written(mine):
    written = [*PAIRS, ('We\'re "born" & raised.', 'Wir sind „geboren" & hier.')]
    parted = [
        *((one.replace(".", " ."), other.replace(".", " .")) for one, other in PAIRS),
        ("We &apos;re &quot; born &quot; &amp; raised .", "Wir sind „ geboren &quot; &amp; hier ."),
    ]
    expected, found = load_translation(mine(written)), load_translation(mine(parted, parted[:2], tokenized=True))
    assert found.train.pairs.source[-1].tolist() == expected.train.pairs.source[-1].tolist()
    assert found.source.words == expected.source.words
    assert found.test.text == expected.test.text


def test_case_is_folded_after_the_rules_with_pieces_and_before_them_without(mine):
    pairs = [*PAIRS, ("It Sat. Then it ran.", "Es Sass. Dann lief es.")]
    last = {}
    for merges in (None, 20):
        corpus = load_translation(mine(pairs, lowercase=True, merges=merges))
        words = corpus.source.decode(corpus.train.pairs.source[-1])
        last[merges] = " ".join(words).replace("@@ ", "")
    assert last == {None: "it sat. then it ran .", 20: "it sat . then it ran ."}


# ---- an archive


def archive(folder):
    contents = talks(SETS)
    for language in ("en", "de"):
        lines = "".join(f"{language} {n}\n" for n in range(6))
        contents[f"de-en/train.tags.de-en.{language}"] = f"<url>u</url>\n{lines}".encode()
    return pack(folder / "de-en.tgz", contents.items())


def archived(**options):
    files = {"train": {"archive": "de-en.tgz"}, "test": {"archive": "de-en.tgz"}}
    options = {"name": "mine", "files": files, "min_frequency": 1, "valid_every": 3} | options
    return TranslationData(**options)


def test_an_archive_holds_training_and_test_text(folder):
    path = archive(folder)
    config = archived(source="de", target="en")
    TASK.check_data(config)
    corpus = load_translation(config)
    assert sources_of(corpus, "train") == [f"de {n}" for n in (0, 1, 3, 4)]
    assert corpus.valid.text == [(f"de {n}", f"en {n}") for n in (2, 5)]
    assert corpus.test.text[0] == ("TED.dev2010 de", "TED.dev2010 en")
    assert len(corpus.test.text) == 15
    assert corpus.statistics["archives"] == {"de-en.tgz": checksum(path)}


def test_validation_is_taken_from_an_archives_training_pairs(folder):
    config = archived(valid_every=None, files={key: {"archive": "de-en.tgz"} for key in ("train", "valid", "test")})
    what = "the archive holds no validation set; expected a number (23, as published, takes every 23rd)"
    with exactly(f"data.valid_every: is missing: {what}", ConfigError):
        TASK.check_data(config)


@pytest.fixture
def registered(folder, monkeypatch):
    """A data set of the registry without a published checksum, in a mirror; its entry, to be changed."""
    (folder / "mirror" / "talks").mkdir(parents=True)
    archive(folder / "mirror" / "talks")
    entry = data_sets.load_registry()["iwslt14"].model_dump()
    entry["files"]["de-en.tgz"]["url"] = "https://127.0.0.1:9/de-en.tgz"
    for split, count in (("train", 4), ("valid", 2), ("test", 15)):
        entry["splits"][split]["count"] = count
    monkeypatch.setattr(data_sets, "load_registry", lambda: {"talks": data_sets.DataSet.model_validate(entry)})
    monkeypatch.setenv("HEADDIV_MIRROR", str(folder / "mirror"))
    return entry


TALKS = {"name": "talks", "files": None, "max_words": 175, "max_ratio": 1.5}


def test_a_registered_archive_is_fetched_and_its_counts_are_held(registered, folder):
    config = archived(**TALKS)
    TASK.check_data(config)
    before = prepared_folder(config)  # asked for before anything is fetched
    corpus = load_translation(config)
    assert before == prepared_folder(config)
    assert (folder / "data" / "raw" / "talks" / "de-en.tgz").is_file()
    assert [corpus.statistics[split]["examples"] for split in ("train", "valid", "test")] == [4, 2, 15]
    assert load_translation(archived(**TALKS, examples=1)).statistics["train"]["examples"] == 1
    for split, found in (("test", 15), ("valid", 2), ("train", 4)):
        registered["splits"][split]["count"] += 1
        with fails(f"data.{split}: found {found} pairs of talks, expected {found + 1} as published"):
            load_translation(archived(**TALKS, min_frequency=1 + len(split)))

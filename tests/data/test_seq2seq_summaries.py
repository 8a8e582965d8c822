"""Documents and their summaries from files to word indices: one vocabulary, texts cut, articles refused."""

import json

import numpy as np
import pytest
from faulty import data_set, pack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headdiv.companion import paths
from headdiv.companion.data import public_sets as data_sets
from headdiv.companion.data.corpora.seq2seq import load_summarisation
from headdiv.companion.data.tokenization.words import tokenize
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.summarisation import SummarisationData
from headdiv.core.files import checksum

SPLITS = ("train", "valid", "test")
ARTICLES = {
    "train": [
        ("a", "The old dog runs to the river. It is wet.", "A dog runs."),
        ("b", "A cat sits in the well-known tower, and a dog sits there too.", "A cat sits."),
    ],
    "valid": [("c", "The cat\nruns.\n\nIt never sits.", "The cat runs.")],
    "test": [("d", "Two dogs sit.", "Two dogs sit by the river."), ("e", "It runs.", "It runs.")],
}


def put(path, articles):
    lines = (json.dumps({"id": i, "document": d, "summary": s}) for i, d, s in articles)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path.name


@pytest.fixture
def mine(folder):
    """Makes the configuration of one's own JSON lines."""

    def config(articles=ARTICLES, **options):
        files = {split: put(folder / f"{split}.jsonl", some) for split, some in articles.items()}
        return SummarisationData(**{"name": "mine", "files": files, "min_frequency": 1} | options)

    return config


def read(vocabulary, sentences):
    """Indices as words."""
    return [vocabulary.decode(indices) for indices in sentences]


# ---- one's own files


def test_the_share_of_texts_that_were_cut_is_recorded(mine):
    corpus = load_summarisation(mine(document_words=5, summary_words=3))
    for name, articles in ARTICLES.items():
        pairs, statistics = getattr(corpus, name).pairs, corpus.statistics[name]
        for side, at, limit in (("source", 1, 5), ("target", 2, 3)):
            whole = [tokenize(article[at], "en") for article in articles]
            assert statistics[f"{side}_truncated_share"] == np.mean([len(line) > limit for line in whole])
            assert [len(words) for words in getattr(pairs, side)] == [min(len(line), limit) for line in whole]
            assert statistics[f"{side}_words"] == sum(min(len(line), limit) for line in whole)


pieces = st.sampled_from(
    ["dog", "Dr.", "3.50", "e.g.", "well-known", "(a", "b)", "isn't", "man's", "U.S.", "...", "?", "--", "“so”", "a/b",
     "No.", "$5", "x.", "Y.", "'", '"', "\n", "\t", "\u00a0", "&amp;", "<b>", "100%", "a.b.c", "über-alles"]
)  # fmt: skip


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(pieces, max_size=12), limit=st.integers(1, 12))
def test_what_is_cut_before_it_is_tokenised_is_what_would_be_cut_after(mine, words, limit):
    """Documents are long and Moses rules are slow: no more is tokenised than is read."""
    document = " ".join(["Here", *words])
    articles = {split: [(split, document, "A summary."), ("b", document, "Another.")] for split in SPLITS}
    corpus = load_summarisation(mine(articles, document_words=limit))
    whole = tokenize(document, "en")
    assert read(corpus.source, corpus.train.pairs.source) == [whole[:limit]] * 2
    assert corpus.statistics["train"]["source_truncated_share"] == float(len(whole) > limit)


# ---- the public archive


@pytest.fixture
def archived(mine, tmp_path, monkeypatch):
    """The same articles in the form of XSum's archive, as a data set of the registry; out of order."""
    folder = tmp_path / "mirror" / "news"
    folder.mkdir(parents=True)
    form = "[SN]URL[SN]\nx\n\n[SN]FIRST-SENTENCE[SN]\n{}\n\n[SN]RESTBODY[SN]\n{}\n"
    articles = [article for split in SPLITS for article in ARTICLES[split]]
    members = [(f"bbc/{id_}.summary", form.format(summary, text).encode()) for id_, text, summary in reversed(articles)]
    pack(folder / "news.tar.gz", members)
    names = {"train": "train", "validation": "valid", "test": "test"}
    ids = {name: [article[0] for article in ARTICLES[split]] for name, split in names.items()}
    (folder / "splits.json").write_text(json.dumps(ids))
    roles = {"archive": "news.tar.gz", "splits": "splits.json"}
    files = {n: {"url": f"http://127.0.0.1:9/{n}", "sha256": checksum(folder / n)} for n in roles.values()}
    entry = data_set(files, {name: (len(some), roles) for name, some in ids.items()})
    monkeypatch.setattr(data_sets, "load_registry", lambda: {"news": data_sets.DataSet.model_validate(entry)})
    monkeypatch.setenv("HEADDIV_MIRROR", str(folder.parent))
    return SummarisationData(name="news", valid="validation", min_frequency=1)


def test_the_public_archive_holds_the_same_as_json_lines(archived, mine):
    TASKS["summarisation"].check_data(archived)
    corpus, own = load_summarisation(archived), load_summarisation(mine())
    assert own.source is own.target
    assert sorted(path.name for path in (paths.raw() / "news").iterdir()) == ["news.tar.gz", "splits.json"]
    assert corpus.source.words == own.source.words
    assert corpus.statistics == own.statistics
    assert corpus.test.text == own.test.text  # in the order of their ids, whatever the archive's
    for name in SPLITS:
        for side in ("source", "target"):
            found, expected = (read(c.source, getattr(getattr(c, name).pairs, side)) for c in (corpus, own))
            assert found == expected

"""The toy corpora: German by hand, the same for a seed, answers and summaries that follow from the text."""

import json
import re

import pytest

from headdiv.companion.data.readers.lines import read_lines
from headdiv.companion.data.toy.corpora import (
    SHARES,
    articles,
    askable,
    questions,
    summarise,
    translation,
    write_shards,
)
from headdiv.companion.data.toy.grammar import Clause, NounPhrase, Sentence, english, german, lexicon
from headdiv.core.errors import ConfigError

NOUNS = {noun.english[0]: noun for nouns in lexicon()["nouns"].values() for noun in nouns}
NOUNS |= {noun.english[0]: noun for noun in lexicon()["pronouns"]}
VERBS = {verb.english[0]: verb for verb in [*lexicon()["verbs"], lexicon()["copula"]]}


def noun(text, **rest):
    *determiner, word = text.split()
    return NounPhrase(NOUNS[word], *(determiner or ["bare"]), **rest)


def clause(subject, verb, object=None, **rest):
    subject, object = (noun(one) if isinstance(one, str) else one for one in (subject, object))
    return Clause(subject, VERBS[verb], object, **rest)


GIRL_SEES = clause("the girl", "see", "a dog")
SENTENCES = [
    (Sentence(clause("a queen", "open", "the door", time="today", front=True)), "Today a queen opens the door.",
     "Heute macht eine Königin die Tür auf."),
    (Sentence(clause("he", "eat", "a apple", modal="must", time="every day")),
     "He must eat an apple every day.", "Er muss jeden Tag einen Apfel essen."),
    (Sentence(clause("the horse", "arrive", past=True, place=("to", noun("the house")))),
     "The horse arrived to the house.", "Das Pferd kam zum Haus an."),
    (Sentence(GIRL_SEES, "while", clause("they", "laugh"), first=True), "While they laugh, the girl sees a dog.",
     "Während sie lachen, sieht das Mädchen einen Hund."),
    (Sentence(clause("the doctor", "believe", that=GIRL_SEES)), "The doctor believes that the girl sees a dog.",
     "Der Arzt glaubt, dass das Mädchen einen Hund sieht."),
    (Sentence(clause("we", "find", noun("the dog", plural=True, relative=clause("she", "thank", past=True)))),
     "We find the dogs that she thanked.", "Wir finden die Hunde, denen sie dankte."),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "en", "de"), SENTENCES, ids=[row[1] for row in SENTENCES])
def test_sentences_in_both_languages(tree, en, de):
    assert (english(tree), german(tree)) == (en, de)


@pytest.mark.parametrize("make", [translation, articles, questions])
def test_a_seed_decides_and_held_out_text_does_not_depend_on_the_training_text(make):
    found = make(40, 10, 10, 1)
    assert found == make(40, 10, 10, 1) != make(40, 10, 10, 2)
    assert {name: make(80, 10, 10, 1)[name] for name in ("valid", "test")} == {n: found[n] for n in ("valid", "test")}


def test_sentence_pairs_are_distinct_and_german_is_a_function_of_english():
    pairs = [pair for part in translation(1500, 100, 100, 3).values() for pair in part]
    assert len({en for en, _ in pairs}) == len(pairs) == 1700
    known = dict(pairs)
    assert all(known.get(en, de) == de for en, de in translation(1500, 0, 0, 4)["train"])
    for text in (text for pair in pairs for text in pair):
        assert re.fullmatch(r"[A-ZÄÖÜ][\w, ]*\w\.", text), text
        assert not re.search(r"  | ,|,,|,\S", text), text


def test_a_summary_follows_from_the_first_sentence():
    for article in articles(200, 0, 0, 1)["train"]:
        lead, words = iter(article.document.split("\n")[0].lower().split()), article.summary.strip(".").lower().split()
        rest = " ".join(lead)
        for word in words:
            assert word in rest or word in ("a", "an", "do", "does", "did", "not"), article
    bare = clause(noun("the man", adjective="old"), "see", "a cat", time="today", front=True)
    assert summarise(Sentence(bare, "and", GIRL_SEES)) == "The man sees a cat."


def test_gold_answers_are_exact_and_unique():
    for split, made in questions(300, 60, 60, 2).items():
        assert len({question.id for question in made}) == len(made) == {"train": 300, "valid": 60, "test": 60}[split]
        for question in made:
            assert question.question.endswith("?")
            for text, start in question.answers:
                assert question.context[start : start + len(text)] == text


def test_only_questions_with_one_answer_are_asked():
    main = clause("the uncle", "wash", "a dog", time="today")
    assert [text for text, _ in askable([Sentence(main)])] == ["Who washes a dog?", "What does the uncle wash?"]
    assert askable([Sentence(main), Sentence(clause("the queen", "wash", "a car"))]) == []
    assert askable([Sentence(clause("the uncle", "wash", "they")), Sentence(clause("the uncle", "sleep"))]) == []
    assert askable([Sentence(clause("the uncle", "wash", "the dog", negative=True))]) == []


def test_shards_have_every_source(tmp_path):
    write_shards(tmp_path, 100, 1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"{name}.jsonl.zst" for name in ("test-0", "train-0", "train-1", "train-2", "valid-0")]
    texts = set()
    for name in names:
        records = [json.loads(line) for line in read_lines(tmp_path / name)]
        assert {record["meta"]["redpajama_set_name"] for record in records} == set(SHARES)
        texts |= {record["text"] for record in records}
    assert len(texts) == 100
    with pytest.raises(
        ConfigError, match=r"^data\.examples: found 69 documents of generated text, expected at least 70"
    ):
        write_shards(tmp_path, 69, 1)

"""The toy corpora of summarisation and question answering: the tasks are functions of text of the promised form."""

import hashlib
import json
import random
import re
from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headdiv.core.errors import ConfigError
from headdiv.data.toy import VERSION
from headdiv.data.toy import documents as toy_documents
from headdiv.data.toy.documents import articles, askable, questions, summary
from headdiv.data.toy.grammar import Clause, NounPhrase, Phrase, Sentence, english, english_question, lexicon

SIZES = 400, 40, 50  # training, validation, test


def noun(name, determiner="the", **rest):
    return NounPhrase(lexicon().nouns[name], determiner, **rest)


def clause(subject, verb, *objects, **rest):
    return Clause(subject, lexicon().verbs[verb], objects=objects, **rest)


def digest(value):
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()[:16]


# --- summaries ---

OLD_DOG = noun("dog", adjective="old", very=True)
SLEEPS = clause(noun("boy"), "schlafen")
STUDENT = noun("student", "this", adjective="young")


@pytest.mark.parametrize(
    ("sentence", "long", "short"),
    [
        (
            Sentence(clause(OLD_DOG, "sehen", noun("cat", "a"), time="today", front="time")),
            "Today the very old dog sees a cat.",
            "The dog sees a cat.",
        ),
        (
            Sentence(clause(noun("man", "a", adjective="honest"), "suchen", noun("cat"), manner="quietly")),
            "An honest man looks for the cat quietly.",
            "A man looks for the cat.",
        ),
        (
            Sentence(clause(noun("dog", relative=clause(noun("man"), "sehen", None)), "sein", predicate="old")),
            "The dog that the man sees is old.",
            "The dog is old.",
        ),
        (
            Sentence(clause(noun("dog", owner=STUDENT, adjective="small"), "gehen", phrases=(Phrase("to", OLD_DOG),))),
            "This young student's small dog goes to the very old dog.",
            "This student's dog goes.",
        ),
        (
            Sentence(clause(noun("we"), "geben", noun("child", attribute="now"), noun("key", "a"), modal=3)),
            "We want to give the child now a key.",
            "We want to give the child a key.",
        ),
        (
            Sentence(clause(OLD_DOG, "sehen", noun("man"), frequency="never"), "because", SLEEPS, True),
            "Because the boy sleeps, the very old dog never sees the man.",
            "The dog never sees the man.",
        ),
        (
            Sentence(clause(noun("man"), "helfen", noun("she"), frequency="often", tense="past"), "and", SLEEPS),
            "The man often helped her and the boy sleeps.",
            "The man helped her.",
        ),
        (
            Sentence(clause(noun("man"), "sagen", complement=clause(OLD_DOG, "singen", negative=True, time="now"))),
            "The man says that the very old dog does not sing now.",
            "The man says that the dog does not sing.",
        ),
    ],
)
def test_summary_is_the_bare_main_clause(sentence, long, short):
    assert english(sentence) == long
    assert summary(sentence) == short


@pytest.fixture(scope="module")
def news():
    return articles(*SIZES, seed=7)


def test_articles_have_the_promised_form(news):
    assert list(news) == ["train", "valid", "test"]
    assert [len(part) for part in news.values()] == [*SIZES]
    for name, part in news.items():
        assert [article.id for article in part] == [f"toy-{name}-{n}" for n in range(len(part))]
        for _, document, short in part:
            lines = document.split("\n")
            assert 3 <= len(set(lines)) == len(lines) <= 4
            assert 20 <= len(document.split()) <= 60
            assert 4 <= len(short.split()) <= 10
            assert all(re.fullmatch(r"[A-Z][\w', ]*\w\.", line) for line in [*lines, short]), document


def words(text):
    return ["a" if word == "an" else word for word in re.findall(r"[\w']+", text.lower())]


def test_the_words_of_a_summary_stand_in_the_first_line_in_that_order(news):
    for article in news["train"]:
        rest = iter(words(article.document.split("\n")[0]))
        assert all(word in rest for word in words(article.summary)), article


def test_no_first_line_occurs_twice(news):
    leads = [article.document.split("\n")[0] for part in news.values() for article in part]
    assert len(set(leads)) == sum(SIZES)


def test_vocabulary_is_small(news):
    """Of the nouns of a kind only the first four of the lexicon are drawn."""
    found = {word for article in news["train"] for word in words(article.document)}
    assert 230 <= len(found) <= 300
    assert found >= {"man", "women", "children", "boy", "dog", "birds", "picture", "gardens", "concert"}
    assert not found & {"girl", "teacher", "bear", "mice", "bag", "keys", "village"}


# --- questions ---


@pytest.mark.parametrize(
    ("said", "who", "what"),
    [
        (
            clause(noun("man"), "sehen", noun("cat", adjective="old")),
            "Who sees the old cat?",
            "What does the man see?",
        ),
        (clause(noun("dog", "two", plural=True), "sehen", noun("man")), "What sees the man?", "Who do two dogs see?"),
        (
            clause(noun("man", plural=True), "anrufen", noun("queen"), tense="past"),
            "Who called the queen?",
            "Who did the men call?",
        ),
        (
            clause(noun("car"), "gehören", noun("boy")),
            "What belongs to the boy?",
            "Who does the car belong to?",
        ),
        (
            clause(noun("woman", "a"), "geben", noun("dog"), noun("apple", "a"), modal=1),
            "Who must give the dog an apple?",
            "What must a woman give the dog?",
        ),
        (
            clause(noun("girl"), "aufmachen", noun("door"), modal=3),
            "Who wants to open the door?",
            "What does the girl want to open?",
        ),
        (
            clause(noun("girl", plural=True), "aufmachen", noun("door"), modal=3),
            "Who wants to open the door?",
            "What do the girls want to open?",
        ),
        (
            clause(noun("man"), "haben", noun("dog"), negative=True, tense="past"),
            "Who did not have the dog?",
            "What did the man not have?",
        ),
        (
            clause(noun("he"), "suchen", noun("she"), frequency="often"),
            "Who often looks for her?",
            "Who does he often look for?",
        ),
    ],
)
def test_forms_of_questions(said, who, what):
    assert english_question(said, "subject") == who
    assert english_question(said, "object") == what


SEES = clause(noun("man", relative=clause(None, "lachen")), "sehen", noun("cat", "a", adjective="small"), time="now")
BOTH = ["Who sees a small cat?", "What does the man see?"]
WHO, WHAT = BOTH[:1], BOTH[1:]


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], BOTH),
        ([SLEEPS], BOTH),
        ([clause(noun("boy"), "sehen", noun("dog"))], [*BOTH, "Who sees the dog?", "What does the boy see?"]),
        ([clause(noun("boy"), "finden", noun("cat"))], [*BOTH, "Who finds the cat?", "What does the boy find?"]),
        # The same cat may be meant, in another tense, number or kind of clause too.
        ([clause(noun("boy"), "sehen", noun("cat"))], [*WHAT, "What does the boy see?"]),
        ([clause(noun("boy"), "sehen", noun("cat", "two", plural=True), negative=True)], WHAT),
        ([clause(noun("he"), "sehen", noun("cat"), tense="past")], []),
        ([clause(noun("boy"), "wissen", complement=clause(noun("dog"), "sehen", noun("cat")))], WHAT),
        ([clause(noun("cat", relative=clause(noun("boy"), "sehen", None)), "schlafen")], WHAT),
        ([clause(noun("dog", relative=clause(None, "sehen", noun("cat"))), "schlafen")], WHAT),
        ([clause(noun("dog", relative=clause(noun("man"), "sehen", None)), "schlafen")], WHO),
        # "He" may be the man; no pronoun stands for a cat.
        ([clause(noun("he"), "sehen", noun("dog", "no"))], WHO),
        ([clause(noun("dog"), "sehen", noun("she"))], BOTH),
    ],
)
def test_only_questions_with_one_answer_are_asked(others, left):
    alone = [Sentence(SEES), *map(Sentence, others)]
    assert [text for text, _ in askable(alone)] == left
    if others:  # a joined clause can answer as well as a sentence of its own, but is not asked about
        joined = askable([Sentence(SEES, "because", others[0])])
        assert [text for text, _ in joined] == [text for text in left if text in BOTH]


@pytest.mark.parametrize(
    "said",
    [
        SLEEPS,
        clause(noun("boy"), "sein", predicate="old"),
        clause(noun("boy"), "wissen", complement=SLEEPS),
        clause(noun("boy"), "sehen", noun("cat"), negative=True),
        clause(noun("boy"), "sehen", noun("cat"), frequency="never"),
        clause(noun("boy", "no"), "sehen", noun("cat")),
        clause(noun("boy"), "geben", noun("she"), noun("key")),
        clause(noun("he"), "sehen", noun("cat")),
    ],
)
def test_clauses_without_a_question(said):
    assert askable([Sentence(said)]) == []


def test_knowing_somebody_and_knowing_that_are_one_verb_in_a_question():
    knows, says = clause(noun("man"), "kennen", noun("city")), clause(noun("man"), "wissen", complement=SLEEPS)
    assert [text for text, _ in askable([Sentence(knows), Sentence(says)])] == ["Who knows the city?"]


def test_whom_somebody_meets_meets_them():
    meets, back = clause(noun("man"), "treffen", noun("dog")), clause(noun("dog"), "treffen", noun("boy"))
    found = [text for text, _ in askable([Sentence(meets), Sentence(back)])]
    assert found == ["What does the man meet?", "What meets the boy?"]


@pytest.fixture(scope="module")
def asked():
    return questions(*SIZES, seed=7)


def paragraphs(part):
    return [paragraph for article in part["data"] for paragraph in article["paragraphs"]]


def test_questions_have_the_form_of_squad(asked):
    assert list(asked) == ["train", "valid", "test"]
    contexts = []
    for (name, part), size in zip(asked.items(), SIZES, strict=True):
        assert list(part) == ["version", "data"]
        assert part["version"] == "1.1"
        assert [article["title"] for article in part["data"]] == [f"Toy {name} {n}" for n in range(len(part["data"]))]
        assert all(len(article["paragraphs"]) == 5 for article in part["data"][:-1])
        found = [question for paragraph in paragraphs(part) for question in paragraph["qas"]]
        assert [question["id"] for question in found] == [f"toy-{name}-{n}" for n in range(size)]
        assert all(len(paragraph["qas"]) in (2, 3) for paragraph in paragraphs(part))
        contexts += [paragraph["context"] for paragraph in paragraphs(part)]
    assert len(set(contexts)) == len(contexts)
    for context in contexts:
        assert 3 <= context.count(".") <= 4
        assert 20 <= len(context.split()) <= 30


def test_gold_answers_are_exact(asked):
    numbers = {}
    for name, part in asked.items():
        for paragraph in paragraphs(part):
            context = paragraph["context"]
            for question in paragraph["qas"]:
                whole, *shorter = question["answers"]
                numbers.setdefault(name, set()).add(1 + len(shorter))
                assert len(re.findall(rf"\b{re.escape(whole['text'])}\b", context, re.IGNORECASE)) == 1
                assert len({gold["text"] for gold in question["answers"]}) == 1 + len(shorter)
                for gold in question["answers"]:
                    start, end = gold["answer_start"], gold["answer_start"] + len(gold["text"])
                    assert context[start:end] == gold["text"]
                    assert not context[start - 1 : start].isalpha()
                    assert not context[end].isalpha()
                    assert whole["answer_start"] <= start < end <= whole["answer_start"] + len(whole["text"])
    assert numbers == {"train": {1}, "valid": {1, 2, 3}, "test": {1, 2, 3}}


def gold_texts(phrase):
    """The gold answers of a phrase in "The cat sees …" as the corpus gives them to test questions."""
    said = Sentence(clause(noun("cat"), "sehen", phrase))
    return [gold["text"] for gold in toy_documents._gold(english(said), phrase)]


def test_shorter_gold_answers():
    assert gold_texts(OLD_DOG) == ["the very old dog", "very old dog", "dog"]
    assert gold_texts(noun("mouse", plural=True)) == ["the mice", "mice"]
    assert gold_texts(noun("man", "a", adjective="honest")) == ["an honest man", "honest man", "man"]
    assert gold_texts(noun("dog", "every", adjective="old")) == ["every old dog"]
    assert gold_texts(noun("dog", "bare", adjective="old", plural=True)) == ["old dogs"]
    assert gold_texts(noun("dog", owner=STUDENT, adjective="big")) == ["this young student's big dog", "big dog", "dog"]
    long = noun("man", relative=clause(noun("dog"), "sehen", None), adjective="old")
    assert gold_texts(long) == ["the old man that the dog sees", "the old man", "old man"]
    assert gold_texts(noun("cat", "my", attribute=Phrase("from", noun("city")))) == [
        "my cat from the city",
        "my cat",
        "cat",
    ]
    assert gold_texts(noun("cat")) == []  # "the cat" stands there twice


def forms(word):
    """A pattern for any form of a noun or verb of which one form is given."""
    rows = [noun.english for noun in lexicon().nouns.values() if not noun.pronoun]
    rows += [verb.english for verb in lexicon().verbs.values()]
    return "|".join({form for row in rows if word in row for form in row})


def test_no_other_words_of_the_context_answer_a_question(asked):
    """Read from the text alone: a verb and its object's noun, or its subject's, stand together only once."""
    data = lexicon().data
    between = "|".join({form for row in data["determiners"].values() for form in row["en"] if form})
    between += "|very|" + "|".join(lexicon().adjectives)
    helpers = "|".join({form for row in data["modals"] for form in row["en"]}) + "|does not|do not|did not"
    helpers += "|" + "|".join(data["frequencies"])
    verbs = {form for verb in lexicon().verbs.values() if verb.objects for form in verb.english}
    checked = 0
    for paragraph in [paragraph for part in asked.values() for paragraph in paragraphs(part)]:
        for question in paragraph["qas"]:
            text = question["question"].removesuffix("?")
            verb = max((v for v in verbs if re.search(rf"\b{v}\b", text)), key=len)
            if found := re.search(rf"(\w+) (?:want to )?{verb}$", text):  # about the object of one subject
                told = forms(found[1])
                pattern = rf"\b({told})( ({helpers}))? ({forms(verb)})\b"
            else:  # about the subject of one object
                told = forms(text.split()[-1])
                pattern = rf"\b({forms(verb)})( ({between}))* ({told})\b(?!')"
            places = re.findall(pattern, paragraph["context"], re.IGNORECASE)
            assert len(places) <= 1, (paragraph["context"], text, places)
            checked += len(places)
    assert checked > 0.7 * sum(SIZES)  # the pattern finds most of the clauses asked about


# --- splits and seeds of both ---


@pytest.mark.parametrize("make", [articles, questions])
def test_same_seed_same_text(make):
    assert make(20, 4, 5, 3) == make(20, 4, 5, 3)
    assert make(20, 4, 5, 3) != make(20, 4, 5, 4)


@pytest.mark.parametrize(("make", "expected"), [(articles, "a43449a5c29b01ba"), (questions, "b6bd3fcd38402fe6")])
def test_generated_text_belongs_to_the_version(make, expected):
    """Where this fails on purpose, raise VERSION and write the new digest here."""
    assert (VERSION, digest(make(100, 20, 20, 1))) == (1, expected)


def size_of(part):
    return len(part) if isinstance(part, list) else sum(len(paragraph["qas"]) for paragraph in paragraphs(part))


@given(st.tuples(*[st.integers(0, 9)] * 3), st.integers(0, 9), st.sampled_from([articles, questions]))
def test_sizes_are_exact_and_small_sets_stay(sizes, more, make):
    parts, longer = make(*sizes, seed=2), make(sizes[0] + more, *sizes[1:], seed=2)
    assert tuple(map(size_of, parts.values())) == sizes
    assert (parts["valid"], parts["test"]) == (longer["valid"], longer["test"])


def test_repeated_draws_are_left_out(monkeypatch):
    """A stream of a few sentences, over and over, gives many a lead and context again."""
    few = list(islice(toy_documents.sentences(random.Random(1)), 40))
    monkeypatch.setattr(toy_documents, "sentences", lambda *_: cycle(few))
    leads = [article.document.split("\n")[0] for part in articles(6, 3, 3, 0).values() for article in part]
    assert len(set(leads)) == 12
    contexts = [paragraph["context"] for part in questions(20, 10, 10, 0).values() for paragraph in paragraphs(part)]
    assert len(set(contexts)) == len(contexts)


def test_a_longer_list_of_articles_begins_with_the_shorter_one():
    assert articles(30, 2, 2, 1)["train"][:10] == articles(10, 2, 2, 1)["train"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: articles(-1, 0, 0, 0), "toy articles: the number of train articles is -1, expected 0 or more"),
        (lambda: questions(3, -2, 1, 0), "toy questions: the number of valid questions is -2, expected 0 or more"),
        (lambda: questions(3, 2, -7, 0), "toy questions: the number of test questions is -7, expected 0 or more"),
    ],
)
def test_negative_numbers_are_refused(call, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        call()

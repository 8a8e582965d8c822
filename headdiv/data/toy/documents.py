"""Seeded toy corpora for summarisation and question answering, from the English half of the toy grammar.

Both tasks are functions of the text: an article's summary is the main clause of its first sentence, laid
bare, and a question has exactly one answer in its context. Of the nouns of each kind only `NOUNS_PER_KIND`
are used.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from typing import Any, TypeVar

from headdiv.core.errors import ConfigError
from headdiv.data.readers.xsum import Article
from headdiv.data.toy.grammar import (
    PERSON,
    Clause,
    Noun,
    NounPhrase,
    Sentence,
    english,
    english_phrase,
    english_question,
    is_definite,
)
from headdiv.data.toy.translation import sentences

DOCUMENT_WORDS = 20, 60  # fewest and most words of an article, all its lines together
SUMMARY_WORDS = 4, 10
CONTEXT_WORDS = 20, 30
MOST_GOLD_ANSWERS = 3  # of a validation or test question
PARAGRAPHS_PER_TITLE = 5
# Short sentences and few words: a small model only learns to look up where an answer stands, instead of
# learning the training set by heart, if it meets every word often.
NOUNS_PER_KIND = 4
_LONGEST_IN_DOCUMENT, _LONGEST_IN_CONTEXT = 14, 9  # words of a sentence
_T = TypeVar("_T")


def pick(source: random.Random, choices: Sequence[_T]) -> _T:
    """One of the choices, all equally likely. Only `random()` is called: its sequence alone never changes."""
    return choices[int(source.random() * len(choices))]


def articles(train: int, valid: int, test: int, seed: int) -> dict[str, list[Article]]:
    r"""Articles with one-sentence summaries, in the splits "train", "valid" and "test".

    A document is three or four sentences with ``\n`` between them, `DOCUMENT_WORDS` long; its summary is
    `summary` of the first. No first sentence occurs twice, so no document does. The test set is drawn
    first and the training set last: the smaller sets do not change with the number of training articles,
    and a longer training set begins with the shorter one.

    Args:
        train: number of training articles.
        valid: number of validation articles.
        test: number of test articles.
        seed: seed of the draws.

    Raises:
        ConfigError: a number is negative.
    """
    sizes = _sizes("articles", train, valid, test)
    source = random.Random(seed)
    stream = sentences(source, NOUNS_PER_KIND)
    leads: set[str] = set()

    def draw(identifier: str) -> Article:
        while True:
            drawn = _paragraph(source, stream, DOCUMENT_WORDS, _LONGEST_IN_DOCUMENT)
            lead, tree = drawn[0]
            short = summary(tree)
            if lead not in leads and _fits(short, SUMMARY_WORDS):
                leads.add(lead)
                return Article(identifier, "\n".join(text for text, _ in drawn), short)

    drawn = {name: [draw(f"toy-{name}-{number}") for number in range(size)] for name, size in sizes.items()}
    return {name: drawn[name] for name in ("train", "valid", "test")}


def summary(sentence: Sentence) -> str:
    """The main clause of a sentence laid bare: subject, verb, objects or predicate, or that-clause.

    Adverbials, adjectives, attributes and relative clauses are left out. What the statement would be
    false without stays: modals, "not" and "never".
    """
    return english(Sentence(_bare(sentence.main)))


def questions(train: int, valid: int, test: int, seed: int) -> dict[str, dict[str, Any]]:
    """Questions about short contexts as JSON objects of SQuAD v1.1, in the splits "train", "valid", "test".

    A context is three or four sentences with a space between them, `CONTEXT_WORDS` long, and has two or
    three questions (`askable`); a split of a single question has one. A training question has one gold
    answer, the whole noun phrase; the others have up to `MOST_GOLD_ANSWERS`, the whole one first. No
    context occurs twice. The test set is drawn first and the training set last: the smaller sets do not
    change with the number of training questions.

    Args:
        train: number of training questions.
        valid: number of validation questions.
        test: number of test questions.
        seed: seed of the draws.

    Raises:
        ConfigError: a number is negative.
    """
    sizes = _sizes("questions", train, valid, test)
    source = random.Random(seed)
    stream = sentences(source, NOUNS_PER_KIND)
    contexts: set[str] = set()

    def draw(number: int) -> tuple[str, list[tuple[str, list[dict[str, Any]]]]]:
        """A new context with `number` of its questions and their answers."""
        while True:
            drawn = _paragraph(source, stream, CONTEXT_WORDS, _LONGEST_IN_CONTEXT)
            context = " ".join(text for text, _ in drawn)
            asked = [(text, _gold(context, answer)) for text, answer in askable([tree for _, tree in drawn])]
            asked = [(text, answers) for text, answers in asked if answers]
            if context not in contexts and len(asked) >= number:
                contexts.add(context)
                while len(asked) > number:
                    asked.remove(pick(source, asked))
                return context, asked

    def split(name: str, size: int) -> dict[str, Any]:
        most = 1 if name == "train" else MOST_GOLD_ANSWERS
        identifiers = (f"toy-{name}-{number}" for number in count())
        paragraphs, left = [], size
        while left:
            # No context is left with a single question: four are two and two.
            number = left if left <= 3 else 2 if left == 4 else pick(source, (2, 3))
            context, asked = draw(number)
            qas = [{"id": next(identifiers), "question": text, "answers": gold[:most]} for text, gold in asked]
            paragraphs.append({"context": context, "qas": qas})
            left -= number
        starts = range(0, len(paragraphs), PARAGRAPHS_PER_TITLE)
        data = [
            {"title": f"Toy {name} {number}", "paragraphs": paragraphs[start : start + PARAGRAPHS_PER_TITLE]}
            for number, start in enumerate(starts)
        ]
        return {"version": "1.1", "data": data}

    drawn = {name: split(name, size) for name, size in sizes.items()}
    return {name: drawn[name] for name in ("train", "valid", "test")}


def askable(context: Sequence[Sentence]) -> list[tuple[str, NounPhrase]]:
    """The questions that have exactly one right answer in a context, each with the phrase that answers it.

    Asked is for the subject and the last object of each sentence's main clause, in the order of the
    sentences. A clause is passed over that denies something ("not", "never", "no") or has a pronoun, and
    so is a question that another clause, whatever its tense, could answer as well: one with the same verb
    and, where this question names a noun, the same noun or a pronoun that may stand for it.
    """
    every = [clause for sentence in context for clause in _clauses(sentence)]
    found = []
    for sentence in context:
        main = sentence.main
        roles = _roles(main)
        if not main.objects or main.negative or main.frequency == "never":
            continue
        if any(phrase.noun.pronoun or phrase.determiner == "no" for phrase in roles.values()):
            continue
        for asked in ("subject", "object"):
            told = {role: phrase.noun for role, phrase in roles.items() if role != asked}
            if sum(_may_answer(clause, main, told) for clause in every) == 1:  # the main clause itself
                bare = replace(_bare(main), subject=_core(main.subject), objects=tuple(map(_core, main.objects)))
                found.append((english_question(bare, asked), roles[asked]))
    return found


def _sizes(what: str, train: int, valid: int, test: int) -> dict[str, int]:
    """The sizes of the splits in the order of drawing."""
    sizes = {"test": test, "valid": valid, "train": train}
    for name, size in reversed(sizes.items()):
        if size < 0:
            raise ConfigError(f"toy {what}: the number of {name} {what} is {size}, expected 0 or more")
    return sizes


def _fits(text: str, words: tuple[int, int]) -> bool:
    return words[0] <= len(text.split()) <= words[1]


def _paragraph(
    source: random.Random, stream: Iterator[tuple[str, Sentence]], words: tuple[int, int], longest: int
) -> list[tuple[str, Sentence]]:
    """Three or four distinct sentences of at most `longest` words, with so many words together."""
    short = ((text, tree) for text, tree in stream if _fits(text, (1, longest)))
    while True:
        number = pick(source, (3, 4))
        drawn = dict(islice(short, number))
        if len(drawn) == number and _fits(" ".join(drawn), words):
            return list(drawn.items())


def _core(phrase: NounPhrase) -> NounPhrase:
    """The phrase without what follows its noun."""
    return replace(phrase, attribute="", relative=None)


def _unadorned(phrase: NounPhrase) -> NounPhrase:
    """Determiner or possessor and noun alone."""
    owner = None if phrase.owner is None else _unadorned(phrase.owner)
    return NounPhrase(phrase.noun, phrase.determiner, phrase.plural, owner=owner)


def _bare(clause: Clause) -> Clause:
    """The clause as `summary` has it; it has no gap."""
    return Clause(
        _unadorned(clause.subject),
        clause.verb,
        clause.tense,
        tuple(map(_unadorned, clause.objects)),
        modal=clause.modal,
        negative=clause.negative,
        predicate=clause.predicate,
        frequency="never" if clause.frequency == "never" else "",
        complement=None if clause.complement is None else _bare(clause.complement),
    )


def _clauses(sentence: Sentence) -> Iterator[Clause]:
    """All clauses of a sentence; in a relative one the noun that it belongs to stands in the gap."""
    waiting = [sentence.main] if sentence.other is None else [sentence.main, sentence.other]
    while waiting:
        clause = waiting.pop()
        yield clause
        if clause.complement is not None:
            waiting.append(clause.complement)
        for phrase in _roles(clause).values():
            if (inner := phrase.relative) is not None:
                head = _core(phrase)
                objects = tuple(head if one is None else one for one in inner.objects)
                waiting.append(replace(inner, subject=inner.subject or head, objects=objects))


def _roles(clause: Clause) -> dict[str, NounPhrase]:
    """The phrases of a clause without gaps: "subject", "object" (the last), "recipient" (the first of two)."""
    return {"subject": clause.subject, **dict(zip(("object", "recipient"), reversed(clause.objects), strict=False))}


def _may_answer(clause: Clause, asked: Clause, told: dict[str, Noun]) -> bool:
    """Whether a clause says something about what the question about `asked` tells."""
    # "know" is two verbs in German, with an object or a that-clause, but one in the question.
    if clause.verb.english != asked.verb.english:
        return False
    mutual = clause.verb.english[0] == "meet"  # whom a man meets meets him
    return all(
        any(_may_be(phrase.noun, noun) for found, phrase in _roles(clause).items() if mutual or found == role)
        for role, noun in told.items()
    )


def _may_be(one: Noun, noun: Noun) -> bool:
    return one == noun or (one.pronoun and noun.kind == PERSON)


def _gold(context: str, answer: NounPhrase) -> list[dict[str, Any]]:
    """The answer as it stands in the context, then shorter forms of it; none if it stands there twice.

    The shorter forms are without what follows the noun, then without the determiner, then the noun alone.
    Words that say how many stay, since "dog" is no answer where "every dog" is.
    """
    whole, core = english_phrase(answer), english_phrase(_core(answer))
    places = [match.start() for match in re.finditer(rf"\b{re.escape(whole)}\b", context, re.IGNORECASE)]
    if len(places) != 1:
        return []
    spans = [(0, len(whole)), (0, len(core))]
    if is_definite(answer) or answer.determiner == "a":
        alone = replace(_core(answer), determiner="bare", owner=None)
        for short in (english_phrase(alone), english_phrase(_unadorned(alone))):
            spans.append((len(core) - len(short), len(core)))
    gold = []
    for start, end in list(dict.fromkeys(spans))[:MOST_GOLD_ANSWERS]:
        gold.append({"text": context[places[0] + start : places[0] + end], "answer_start": places[0] + start})
    return gold

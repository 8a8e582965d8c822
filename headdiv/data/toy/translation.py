"""A seeded toy corpus of English-German sentence pairs with agreement, case and German word order.

Each sentence is drawn once as a small tree and then written in both languages (toy_grammar.py). The
German is a function of the English sentence: what could be translated in two ways is never drawn.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from headdiv.core.errors import ConfigError, DataError
from headdiv.data.toy.grammar import (
    PERSON,
    Clause,
    Noun,
    NounPhrase,
    Phrase,
    Sentence,
    Verb,
    english,
    german,
    is_definite,
    lexicon,
)

SHORTEST, LONGEST = 4, 22  # words of the English sentence
_PATIENCE = 2000  # draws in a row without a new sentence after which the grammar counts as used up
_QUANTIFIERS = ("no", "every", "all", "many")  # not after prepositions: "without all mice" is odd
_T = TypeVar("_T")


def generate(pairs: int, seed: int, *, exclude: Collection[str] = ()) -> list[tuple[str, str]]:
    """Distinct (English, German) sentence pairs, the same for the same arguments on every platform.

    A longer list for the same seed begins with the shorter one.

    Args:
        pairs: how many.
        seed: seed of the draws.
        exclude: English sentences that must not occur.

    Raises:
        ConfigError: `pairs` is negative.
        DataError: the grammar has not that many distinct sentences.
    """
    if pairs < 0:
        raise ConfigError(f"toy corpus: the number of pairs is {pairs}, expected 0 or more")
    draw = _Draw(random.Random(seed))
    used = set(exclude)
    found: list[tuple[str, str]] = []
    failures = 0
    while len(found) < pairs:
        sentence = draw.sentence()
        text = english(sentence)
        if text in used or not SHORTEST <= text.count(" ") + 1 <= LONGEST:
            failures += 1
            if failures == _PATIENCE:
                raise DataError(
                    f"toy corpus: {pairs} distinct sentence pairs were asked for, "
                    f"but the grammar gave only {len(found)}"
                )
            continue
        failures = 0
        used.add(text)
        found.append((text, german(sentence)))
    return found


def splits(train: int, valid: int, test: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """Training, validation and test pairs without a common English sentence.

    The test set is drawn first and the training set last, so that neither of the two smaller sets
    changes with the number of training pairs.

    Raises:
        ConfigError: a number is negative.
        DataError: the grammar has not that many distinct sentences.
    """
    for name, size in (("train", train), ("valid", valid), ("test", test)):
        if size < 0:
            raise ConfigError(f"toy corpus: the number of {name} pairs is {size}, expected 0 or more")
    pairs = generate(train + valid + test, seed)
    return {"train": pairs[test + valid :], "valid": pairs[test : test + valid], "test": pairs[:test]}


def sentences(source: random.Random, nouns: int | None = None) -> Iterator[tuple[str, Sentence]]:
    """Endless English sentences of the corpus's lengths, each as its text and its tree; some occur again.

    Args:
        source: only its `random()` is called, and only while a sentence is being drawn, so that a caller
            may draw from it in between.
        nouns: how many of the nouns of each kind to use, the first ones of the lexicon; None uses all.
    """
    draw = _Draw(source, nouns)
    while True:
        sentence = draw.sentence()
        text = english(sentence)
        if SHORTEST <= text.count(" ") + 1 <= LONGEST:
            yield text, sentence


@functools.cache
def _verbs(gap: str, kind: str, nested: bool) -> list[Verb]:
    """The verbs of a clause, as often as their weight says.

    Args:
        gap: what a relative pronoun replaces ("subject", "object" or "").
        kind: kind of the noun that the relative clause belongs to.
        nested: whether verbs with a that-clause are among them.
    """
    found: list[Verb] = []
    for row, verb in zip(lexicon().data["verbs"], lexicon().verbs.values(), strict=True):
        fits = {
            "": True,
            "subject": kind in verb.subject,
            "object": len(verb.objects) == 1 and kind in verb.objects[0][1],
        }[gap]
        if fits and (nested or not verb.that):
            found += [verb] * row.get("weight", 1)
    return found


@functools.cache
def _nouns(kinds: tuple[str, ...], most: int | None = None) -> list[Noun]:
    """The nouns of the kinds, in the order of the lexicon, at most so many of each."""
    every = [noun for noun in lexicon().nouns.values() if not noun.pronoun]
    few = {kind: [noun for noun in every if noun.kind == kind][:most] for kind in kinds}
    return [noun for noun in every if noun in few.get(noun.kind, ())]


@functools.cache
def _pronouns() -> list[Noun]:
    return [noun for noun in lexicon().nouns.values() if noun.pronoun]


@functools.cache
def _adjectives(kind: str) -> list[str]:
    groups = lexicon().data["adjectives"]
    return [word for group in groups if kind in group["kinds"] for word in group["words"]]


@functools.cache
def _determiners(without: tuple[str, ...]) -> list[tuple[str, bool, bool]]:
    """Name, whether it has a singular, whether it has a plural; as often as the weight says."""
    found: list[tuple[str, bool, bool]] = []
    for name, row in lexicon().data["determiners"].items():
        if name not in without:
            one, many = (form is not None for form in row["en"])
            found += [(name, one and name != "bare", many)] * row["weight"]
    return found


@functools.cache
def _prepositions(use: str) -> list[tuple[str, tuple[str, ...]]]:
    """English preposition and kinds of noun after it."""
    rows: list[dict[str, Any]] = lexicon().data["prepositions"]
    return [(row["en"], tuple(row[use])) for row in rows if use in row]


@functools.cache
def _times(tense: str) -> list[str]:
    return [name for name, row in lexicon().times.items() if row.get("tense", tense) == tense]


class _Draw:
    """Draws trees. Only `random()` is called: its sequence alone is promised never to change."""

    def __init__(self, source: random.Random, nouns: int | None = None) -> None:
        self.random = source.random
        self.nouns = nouns  # how many of each kind; None: all

    def pick(self, choices: Sequence[_T]) -> _T:
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def sentence(self) -> Sentence:
        tense = "past" if self.chance(0.4) else "present"
        shape = self.random()
        if shape < 0.68:
            return Sentence(self.clause(tense, nested=True, front=True))
        data = lexicon().data
        if shape < 0.78:
            link = self.pick(list(data["coordinators"]))
            return Sentence(self.clause(tense, front=True), link, self.clause(tense, front=True))
        first = shape > 0.9
        rows = data["subordinators"].items()
        link = self.pick([name for name, row in rows if not first or row.get("first", True)])
        main = self.clause(tense, nested=not first, front=not first)
        return Sentence(main, link, self.clause(tense, nested=first), first)

    def noun_phrase(
        self,
        kinds: tuple[str, ...],
        *,
        without: tuple[str, ...] = (),
        pronoun: float = 0,
        plain: bool = False,
    ) -> NounPhrase:
        """A noun of one of the kinds.

        Args:
            kinds: the kinds of noun.
            without: the determiners that are left out.
            pronoun: probability of a pronoun where a person may stand.
            plain: without a possessor.
        """
        if PERSON in kinds and self.chance(pronoun):
            return NounPhrase(self.pick(_pronouns()))
        noun = self.pick(_nouns(kinds, self.nouns))
        phrase = NounPhrase(noun)
        if noun.kind == "drink":
            phrase.determiner = self.pick(["bare", "bare", "the"])
        else:
            phrase.determiner, one, many = self.pick(_determiners(without))
            phrase.plural = many and (not one or self.chance(0.35))
            if not plain and self.chance(0.07):
                phrase.determiner = "the"
                phrase.owner = self.noun_phrase((PERSON,), plain=True)
                phrase.owner.determiner = self.pick(["the", "the", "my", "our", "this"])
                phrase.owner.plural = False
        if self.chance(0.25):
            phrase.adjective = self.pick(_adjectives(noun.kind))
            phrase.very = self.chance(0.15)
        return phrase

    def phrase(self, use: str) -> Phrase:
        name, kinds = self.pick(_prepositions(use))
        return Phrase(name, self.noun_phrase(kinds, without=_QUANTIFIERS))

    def relative(self, phrase: NounPhrase, tense: str) -> None:
        """Give a noun phrase a relative clause, if it has nothing that makes one ambiguous."""
        kind = phrase.noun.kind
        if phrase.noun.pronoun or phrase.owner is not None or phrase.attribute or kind == "drink":
            return
        gap = "subject" if self.chance(0.5) else "object"
        if _verbs(gap, kind, False):
            phrase.relative = self.clause(tense, gap=gap, kind=kind)

    def clause(self, tense: str, *, nested: bool = False, front: bool = False, gap: str = "", kind: str = "") -> Clause:
        """A clause; `front`: an adverbial may stand first; the other arguments are those of `_verbs`."""
        verb = self.pick(_verbs(gap, kind, nested))
        clause = Clause(None, verb, tense)
        if gap != "subject":
            clause.subject = self.noun_phrase(verb.subject, pronoun=0.15)
            if not gap and not clause.subject.noun.pronoun:
                self.extend_subject(clause.subject, tense)
        self.objects(clause, gap)
        negated = any(phrase.determiner == "no" for phrase in self.known(clause))
        closed = any(phrase.relative for phrase in clause.objects if phrase is not None)
        if tense == "present" and not verb.copula and self.chance(0.2):
            clause.modal = int(self.random() * len(lexicon().data["modals"]))
        elif negated or closed:
            pass
        elif all(is_definite(phrase) for phrase in self.known(clause)) and self.chance(0.15):
            clause.negative = True
        elif self.chance(0.15):
            clause.frequency = self.pick(list(lexicon().data["frequencies"]))
        if verb.copula:
            kind = kind or clause.subject.noun.kind
            clause.predicate = self.pick(_adjectives(kind))
            clause.very = self.chance(0.15)
        elif verb.that:
            clause.complement = self.clause(tense)
        elif not closed:
            self.phrases(clause)
            if not verb.state and not negated and self.chance(0.15):
                clause.manner = self.pick(list(lexicon().data["manners"]))
        self.time(clause, front=front, last=not closed and not verb.that)
        return clause

    def extend_subject(self, phrase: NounPhrase, tense: str) -> None:
        """Sometimes give a subject a phrase ("the man with the dog") or a relative clause."""
        living = phrase.noun.kind in lexicon().data["kinds"]["living"]
        if living and phrase.owner is None and self.chance(0.08):
            phrase.attribute = self.phrase("attribute")
        if self.chance(0.1):
            self.relative(phrase, tense)

    def objects(self, clause: Clause, gap: str) -> None:
        if gap == "object":
            clause.objects = (None,)
            return
        subject = clause.subject
        # "he sees him" is left out, and so is a second "no".
        pronoun = 0.15 if subject is None or not subject.noun.pronoun else 0
        without = ("no",) if subject is not None and subject.determiner == "no" else ()
        kinds = [kinds for _, kinds in clause.verb.objects]
        objects = [self.noun_phrase(kind, without=without, pronoun=pronoun) for kind in kinds[-1:]]
        if len(kinds) == 2:
            objects.insert(0, self.recipient(kinds[0], pronoun))
        elif objects and not gap and self.chance(0.15):
            self.relative(objects[0], clause.tense)
        clause.objects = tuple(objects)

    def recipient(self, kinds: tuple[str, ...], pronoun: float) -> NounPhrase:
        """The dative of two objects: definite, so that it stands before the other one in any case."""
        while True:
            phrase = self.noun_phrase(kinds, pronoun=pronoun, plain=True)
            if is_definite(phrase):
                return phrase

    @staticmethod
    def known(clause: Clause) -> list[NounPhrase]:
        """The subject and the objects that are there."""
        return [phrase for phrase in (clause.subject, *clause.objects) if phrase is not None]

    def phrases(self, clause: Clause) -> None:
        if clause.verb.motion:
            uses = ["direction"] if self.chance(0.85) else []
        else:
            # "The man knows the city for the girl" would be odd.
            companion = 0 if clause.verb.state else 0.15
            uses = [use for use, share in (("companion", companion), ("place", 0.2)) if self.chance(share)]
        clause.phrases = tuple(self.phrase(use) for use in uses)

    def time(self, clause: Clause, *, front: bool, last: bool) -> None:
        """Choose an adverbial of time, and what stands before the subject.

        Args:
            clause: the clause to complete.
            front: whether the adverbial may stand before the subject.
            last: whether it may stand at the clause's end.
        """
        if (front or last) and not clause.frequency and self.chance(0.25):
            clause.time = self.phrase("time") if self.chance(0.3) else self.pick(_times(clause.tense))
            if not last or (front and self.chance(0.5)):
                clause.front = "time"
        place = clause.phrases and not clause.verb.motion and _is_place(clause.phrases[-1])
        if place and front and not clause.front and self.chance(0.3):
            clause.front = "place"


def _is_place(phrase: Phrase) -> bool:
    return "place" in lexicon().prepositions[phrase.preposition]

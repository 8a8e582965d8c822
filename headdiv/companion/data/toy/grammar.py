"""The grammar of the toy corpora: sentence trees, written in English and in German.

German has what makes translation more than a dictionary: gender, case and number of determiners, adjectives and
relative pronouns, the finite verb in second or last place, separable prefixes, and time before place. The words are in
``lexicon.yaml``. The German sentence is a function of the English one.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import yaml


@dataclass(frozen=True)
class Noun:
    """A noun (forms: singular, plural) or a pronoun (``kind`` "pronoun"; forms: by case)."""

    kind: str
    english: tuple[str, ...]
    german: tuple[str, ...]
    gender: int = 0  # column of the tables of endings: masculine, feminine, neuter
    plural: bool = False  # pronouns only


@dataclass(frozen=True)
class Verb:
    """Forms: plain, third person singular, past, plural, plural past. The German ones lack the separable ``prefix``."""

    subject: tuple[str, ...]  # kinds of noun
    object: tuple[str, ...]
    english: tuple[str, ...]
    german: tuple[str, ...]
    prefix: str = ""
    case: str = "acc"
    that: tuple[str, str] | None = None  # conjunctions of a that-clause, English and German


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjective and relative clause; a pronoun has none of them."""

    noun: Noun
    determiner: str = "bare"
    plural: bool = False
    adjective: str = ""
    relative: Clause | None = None

    @property
    def definite(self) -> bool:
        """Whether the phrase stands before adverbs in German."""
        return self.noun.kind == "pronoun" or lexicon()["determiners"][self.determiner][4]


@dataclass(frozen=True)
class Clause:
    """A clause. In a relative clause None stands for the subject or object that the pronoun replaces."""

    subject: NounPhrase | None
    verb: Verb
    object: NounPhrase | None = None
    past: bool = False
    modal: str = ""
    negative: bool = False
    predicate: str = ""  # the adjective of the copula
    place: tuple[str, NounPhrase] | None = None  # preposition and noun phrase
    time: str = ""
    front: bool = False  # the time stands first
    that: Clause | None = None


@dataclass(frozen=True)
class Sentence:
    """A main clause, alone or linked to another; ``first``: the subordinate clause stands before it."""

    main: Clause
    link: str = ""
    other: Clause | None = None
    first: bool = False


@functools.cache
def lexicon() -> dict[str, Any]:
    """The tables of ``lexicon.yaml``, nouns, pronouns and verbs as objects."""
    data = yaml.safe_load(resources.files(__package__).joinpath("lexicon.yaml").read_text(encoding="utf-8"))
    data["nouns"] = {
        kind: [
            Noun(kind, (english, english_plural), (german, german_plural), "mfn".index(gender))
            for english, english_plural, gender, german, german_plural in rows
        ]
        for kind, rows in data["nouns"].items()
    }
    data["pronouns"] = [Noun("pronoun", (*row[:2],), (*row[2:5],), plural=row[5]) for row in data["pronouns"]]
    data["verbs"] = [_verb(*row) for row in data["verbs"]]
    english, german = (tuple(forms.split()) for forms in data["copula"])
    data["copula"] = Verb(tuple(data["nouns"]), (), english, german)
    data["words"] = {word: forms for group in data["adjectives"] for word, forms in group["words"].items()}
    return data


def _verb(subject: list[str], object: list[str], english: str, german: str, mark: str = "") -> Verb:
    plain, third, past = english.split()
    infinitive, *forms = german.split()
    prefix, _, infinitive = infinitive.rpartition("|")
    plural_past = forms[1] + ("n" if forms[1].endswith("e") else "en")
    that = None if mark in ("", "dat") else tuple(mark.split())
    return Verb(
        tuple(subject), tuple(object), (plain, third, past, plain, past),
        (infinitive, *forms, infinitive, plural_past), prefix, mark if mark == "dat" else "acc", that,
    )  # fmt: skip


def _finite_form(forms: tuple[str, ...], past: bool, plural: bool) -> str:
    if past:
        return forms[4 if plural else 2]
    return forms[3 if plural else 1]


def _is_plural(phrase: NounPhrase) -> bool:
    return phrase.plural or phrase.noun.plural


def _text(words: list[str], end: str = ".") -> str:
    """Join words; a comma is written once, and only between two words."""
    text = re.sub("(?: ,)+", ",", " " + " ".join(filter(None, words))).strip(", ")
    return text[0].upper() + text[1:] + end


# ---- English


def english(sentence: Sentence) -> str:
    """Write a sentence in English."""
    main = _english_clause(sentence.main)
    if sentence.other is None:
        return _text(main)
    other = [sentence.link, *_english_clause(sentence.other)]
    if sentence.first:
        return _text([*other, ",", *main])
    comma = "," if sentence.link == "but" else ""
    return _text([*main, comma, *other])


def english_phrase(phrase: NounPhrase, subject: bool = False) -> str:
    """Write a noun phrase in English."""
    noun = phrase.noun
    if noun.kind == "pronoun":
        return noun.english[not subject]
    words = [word for word in (phrase.adjective, noun.english[phrase.plural]) if word]
    determiner = lexicon()["determiners"][phrase.determiner][phrase.plural] or ""
    if determiner == "a" and words[0][0] in "aeiou":
        determiner = "an"
    if determiner:
        words.insert(0, determiner)
    if phrase.relative is not None:
        pronoun = "who" if noun.kind == "person" and phrase.relative.subject is None else "that"
        words += [pronoun, *_english_clause(phrase.relative, phrase.plural)]
    return " ".join(word for word in words if word)


def english_question(clause: Clause, role: str) -> str:
    """Ask in English for a clause's "subject" ("Who sees the cat?") or "object" ("What does the man see?")."""
    verb, phrase = clause.verb, clause.subject if role == "subject" else clause.object
    words = ["who" if phrase.noun.kind == "person" else "what"]
    if role == "subject":  # the verb is singular whatever the answer's number
        return _text([*words, *_english_clause(replace(clause, subject=None))], "?")
    helper = clause.modal or ("did" if clause.past else "do" if _is_plural(clause.subject) else "does")
    return _text([*words, helper, english_phrase(clause.subject, subject=True), verb.english[0]], "?")


def _english_clause(clause: Clause, plural: bool = False) -> list[str]:
    """The words of a clause; ``plural`` is the number of the subject that a relative pronoun replaces."""
    words = [clause.time] if clause.front else []
    if clause.subject is not None:
        words.append(english_phrase(clause.subject, subject=True))
        plural = _is_plural(clause.subject)
    finite = _finite_form(clause.verb.english, clause.past, plural)
    if clause.modal:
        words += [clause.modal, clause.verb.english[0]]
    elif clause.negative and not clause.predicate:
        words += ["did" if clause.past else "do" if plural else "does", "not", clause.verb.english[0]]
    else:
        words += [finite, "not" if clause.negative else "", clause.predicate]
    if clause.object:
        words.append(english_phrase(clause.object))
    if clause.place:
        words += [clause.place[0], english_phrase(clause.place[1])]
    if not clause.front:
        words.append(clause.time)
    if clause.that is not None:
        words += [clause.verb.that[0], *_english_clause(clause.that)]
    return words


# ---- German


def german(sentence: Sentence) -> str:
    """Write a sentence in German."""
    data, other = lexicon(), sentence.other
    main = _german_main(sentence.main, inverted=sentence.first)
    if other is None:
        return _text(main)
    if sentence.link in data["links"]:
        comma = "," if sentence.link == "but" else ""
        return _text([*main, comma, data["links"][sentence.link], *_german_main(other)])
    words = _german_last(other, data["subordinators"][sentence.link])
    return _text([*words, *main] if sentence.first else [*main, *words])


def german_phrase(phrase: NounPhrase, case: str) -> str:
    """Write a noun phrase in German, without its relative clause.

    The adjective has a strong ending where the determiner has none, and a weak one elsewhere.
    """
    data, noun = lexicon(), phrase.noun
    if noun.kind == "pronoun":
        return noun.german[("nom", "acc", "dat").index(case)]
    column = 3 if phrase.plural else noun.gender
    _, _, determiner, declension, *_ = data["determiners"][phrase.determiner]
    strong = data["strong"][case][column]
    bare = declension == "none" or (declension == "ein" and (case, column) in (("nom", 0), ("nom", 2), ("acc", 2)))
    if declension == "article":
        determiner = data["article"][case][column]
    elif not bare:
        determiner += strong
    ending = strong if bare else data["weak"][case][column]
    adjective = data["words"][phrase.adjective][-1] + ending if phrase.adjective else ""
    form = noun.german[phrase.plural]
    if phrase.plural and case == "dat" and form[-1] not in "ns":
        form += "n"
    return " ".join(word for word in (determiner, adjective, form) if word)


def _german_relative(phrase: NounPhrase) -> list[str]:
    """The relative clause of a noun phrase, if it has one, between commas."""
    clause = phrase.relative
    if clause is None:
        return []
    case = "nom" if clause.subject is None else clause.verb.case
    column = 3 if phrase.plural else phrase.noun.gender
    pronoun = "denen" if (case, column) == ("dat", 3) else lexicon()["article"][case][column]
    return _german_last(clause, pronoun, phrase.plural)


def _german_last(clause: Clause, lead: str, plural: bool = False) -> list[str]:
    """A clause with its verbs at the end, after a conjunction or relative pronoun, between commas."""
    subject, middle, finite, infinitive, after = _german_fields(clause, plural)
    last = [infinitive, finite] if infinitive else [clause.verb.prefix + finite]
    return [",", lead, *subject, *middle, *last, *after, ","]


def _german_main(clause: Clause, inverted: bool = False) -> list[str]:
    """A clause with its finite verb second; ``inverted``: the caller writes what stands first."""
    subject, middle, finite, infinitive, after = _german_fields(clause)
    first = [lexicon()["times"][clause.time]] if clause.front else []
    start = [*first, finite, *subject] if inverted or clause.front else [*subject, finite]
    return [*start, *middle, infinitive or clause.verb.prefix, *after]


def _german_fields(clause: Clause, plural: bool = False) -> tuple[list[str], list[str], str, str, list[str]]:
    """Subject, middle field, finite verb without its prefix, infinitive, and what follows the last verb.

    The middle field: definite object, time, "nicht", indefinite object, place, predicate.
    """
    data, verb, object, subject, after = lexicon(), clause.verb, clause.object, [], []
    if clause.subject is not None:
        subject = [german_phrase(clause.subject, "nom"), *_german_relative(clause.subject)]
        plural = _is_plural(clause.subject)
    middle = ["" if clause.front else data["times"].get(clause.time, "")]
    if clause.negative:
        middle.append("nicht")
    if object is not None:
        middle.insert(0 if object.definite else len(middle), german_phrase(object, verb.case))
        after += _german_relative(object)
    if clause.place:
        preposition, case = data["prepositions"][clause.place[0]]
        place = f"{preposition} {german_phrase(clause.place[1], case)}"
        start = " ".join(place.split()[:2])
        middle.append(place.replace(start, data["contractions"].get(start, start), 1))
    if clause.predicate:
        middle.append(data["words"][clause.predicate][0])
    if clause.that is not None:
        after += _german_last(clause.that, verb.that[1])
    if clause.modal:
        return subject, middle, data["modals"][clause.modal][plural], verb.prefix + verb.german[0], after
    return subject, middle, _finite_form(verb.german, clause.past, plural), "", after

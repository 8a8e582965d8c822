"""The grammar of the toy corpus: sentence trees, and two functions that write a tree in English and German.

The words and their forms are in lexicon.yaml; headdiv/data/toy/translation.py draws the trees.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import yaml

_PLURAL = 3  # the plural's column in the tables of endings
_EIN = {("nom", 0), ("nom", 2), ("acc", 2)}  # where ein, kein, mein have no ending
PERSON = "person"  # the kind of noun that a personal pronoun stands for and that "who" refers to


@dataclass(frozen=True, slots=True)
class Noun:
    """A noun or personal pronoun; `english` and `german` are (singular, plural), or a pronoun's forms."""

    kind: str
    english: tuple[str, ...]
    german: tuple[str, ...]
    gender: int = 0  # column of the tables: masculine, feminine, neuter
    genitive: str = ""
    pronoun: bool = False
    plural: bool = False  # pronouns only


@dataclass(frozen=True, slots=True)
class Verb:
    """Forms: plain, singular, past, plural, plural past. The German ones lack a separable `prefix`."""

    english: tuple[str, ...]
    german: tuple[str, ...]
    prefix: str
    subject: tuple[str, ...]
    objects: tuple[tuple[str, tuple[str, ...]], ...]  # (case, kinds of noun)
    that: str = ""
    copula: bool = False
    motion: bool = False
    state: bool = False


@dataclass(slots=True)
class NounPhrase:
    """A noun with what belongs to it. A pronoun has nothing; an `owner` stands for the determiner."""

    noun: Noun
    determiner: str = "bare"
    plural: bool = False
    adjective: str = ""
    very: bool = False
    owner: NounPhrase | None = None
    attribute: Phrase | str = ""
    relative: Clause | None = None


@dataclass(slots=True)
class Phrase:
    """A preposition (its English name and its use) with a noun phrase."""

    preposition: str
    inner: NounPhrase


@dataclass(slots=True)
class Clause:
    """A clause. In a relative clause None stands for the subject or the object that the pronoun replaces.

    `front` ("time" or "place") is what a main clause begins with instead of its subject.
    """

    subject: NounPhrase | None
    verb: Verb
    tense: str = "present"
    objects: tuple[NounPhrase | None, ...] = ()
    modal: int | None = None
    negative: bool = False
    predicate: str = ""
    very: bool = False
    frequency: str = ""
    manner: str = ""
    phrases: tuple[Phrase, ...] = ()
    time: Phrase | str = ""
    front: str = ""
    complement: Clause | None = None


@dataclass(slots=True)
class Sentence:
    """A main clause, alone or joined to another; `first`: the subordinate clause stands before it."""

    main: Clause
    link: str = ""
    other: Clause | None = None
    first: bool = False


class Lexicon:
    """lexicon.yaml: the raw tables in `data`, and nouns (by English) and verbs (by German) as objects."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.nouns: dict[str, Noun] = {}
        for kind, rows in data["nouns"].items():
            for one, many, gender, *forms in rows:
                column, genitive = "mfn".index(gender), "".join(forms[2:])
                self.nouns[one] = Noun(kind, (one, many), tuple(forms[:2]), column, genitive)
        for name, row in data["pronouns"].items():
            pronoun = Noun(PERSON, tuple(row["en"]), tuple(row["de"]), pronoun=True, plural=row["plural"])
            self.nouns[name] = pronoun
        self.verbs = {row["de"][0].replace("|", ""): _verb(row) for row in data["verbs"]}
        self.adjectives = {en: de for group in data["adjectives"] for en, de in group["words"].items()}
        self.prepositions = {row["en"]: row for row in data["prepositions"]}
        self.times = {row["en"]: row for row in data["times"]}


def _verb(row: dict[str, Any]) -> Verb:
    english, german = list(row["en"]), list(row["de"])
    prefix, _, german[0] = german[0].rpartition("|")
    if not row.get("copula"):  # the copula lists its plurals
        english += [english[0], english[2]]
        german += [german[0], german[2] + ("n" if german[2].endswith("e") else "en")]
    objects = tuple((case, tuple(row[case])) for case in ("dat", "acc") if case in row)
    flags = {name: row[name] for name in ("that", "copula", "motion", "state") if name in row}
    return Verb(tuple(english), tuple(german), prefix, tuple(row["subject"]), objects, **flags)


@functools.cache
def lexicon() -> Lexicon:
    """The lexicon of the package, read once."""
    text = resources.files("headdiv.data.toy").joinpath("lexicon.yaml").read_text(encoding="utf-8")
    return Lexicon(yaml.safe_load(text))


def _text(words: list[str], end: str = ".") -> str:
    """Join words and `end`; a comma is written once, and only between two words."""
    out, comma = [], False
    for word in words:
        if word == ",":
            comma = bool(out)
        elif word:
            if comma:
                out[-1] += ","
            comma = False
            out.append(word)
    text = " ".join(out)
    return text[0].upper() + text[1:] + end


def english(sentence: Sentence) -> str:
    """Write a sentence in English."""
    main = _english_clause(sentence.main)
    if sentence.other is None:
        return _text(main)
    other = [sentence.link, *_english_clause(sentence.other)]
    return _text([*other, ",", *main] if sentence.first else [*main, "," * (sentence.link == "but"), *other])


def english_phrase(phrase: NounPhrase) -> str:
    """Write a noun phrase in English as it stands in the middle of a sentence; pronouns in their object form."""
    return " ".join(word for word in _english_noun_phrase(phrase) if word)


def english_question(clause: Clause, asked: str) -> str:
    """Ask in English for a phrase of a clause that has no adverbials.

    Args:
        clause: a clause with one or two objects; nothing in it is a gap.
        asked: "subject" ("Who sees the cat?") or "object", the last one ("What does the man see?").
    """
    wanted = clause.subject if asked == "subject" else clause.objects[-1]
    words = ["who" if wanted.noun.kind == PERSON else "what"]
    if asked == "subject":  # the verb is singular whatever the answer's number
        return _text([*words, *_english_clause(replace(clause, subject=None))], "?")
    plural = _is_plural(clause.subject)
    helper, plain = "did" if clause.tense == "past" else "do" if plural else "does", clause.verb.english[0]
    if clause.modal is not None:
        singular, modal = lexicon().data["modals"][clause.modal]["en"]
        if singular == modal:
            helper = modal
        else:  # "wants to" takes "does" like any other verb
            plain = f"{modal} {plain}"
    words += [helper, *_english_noun_phrase(clause.subject, subject=True), "not" * clause.negative, clause.frequency]
    words.append(plain)
    for phrase in clause.objects[:-1]:
        words += _english_noun_phrase(phrase)
    return _text(words, "?")


def _english_noun_phrase(phrase: NounPhrase, *, subject: bool = False) -> list[str]:
    noun, data = phrase.noun, lexicon().data
    if noun.pronoun:
        return [noun.english[0 if subject else 1]]
    words = ["very"] * phrase.very + [phrase.adjective] * bool(phrase.adjective) + [noun.english[phrase.plural]]
    if phrase.owner is not None:
        owner = _english_noun_phrase(phrase.owner)
        words = [*owner[:-1], owner[-1] + "'s", *words]
    elif phrase.determiner == "a":
        vowel = words[0][0] in "aeiou" and words[0] not in data["a_before"]
        words.insert(0, "an" if vowel or words[0] in data["an_before"] else "a")
    else:
        words.insert(0, data["determiners"][phrase.determiner]["en"][phrase.plural])
    words += _english_adverbial(phrase.attribute)
    if phrase.relative is not None:
        personal = phrase.relative.subject is None and noun.kind == PERSON
        words += ["who" if personal else "that", *_english_clause(phrase.relative, plural=phrase.plural)]
    return words


def _english_adverbial(adverbial: Phrase | str) -> list[str]:
    if isinstance(adverbial, str):
        return [adverbial] if adverbial else []
    return [adverbial.preposition, *_english_noun_phrase(adverbial.inner)]


def _english_clause(clause: Clause, *, plural: bool = False) -> list[str]:
    """The words of a clause; `plural` is the number of the subject that a relative pronoun replaces."""
    words, phrases = [], list(clause.phrases)
    if clause.front:
        words += _english_adverbial(clause.time if clause.front == "time" else phrases.pop())
    if clause.subject is not None:
        words += _english_noun_phrase(clause.subject, subject=True)
        plural = _is_plural(clause.subject)
    plain, singular, past, *plurals = clause.verb.english
    present = plurals[0] if plural else singular
    finite = present if clause.tense == "present" else plurals[1] if plural else past
    if clause.modal is not None:
        words += [lexicon().data["modals"][clause.modal]["en"][plural], plain]
    elif clause.negative and not clause.verb.copula:
        words += ["did" if clause.tense == "past" else "do" if plural else "does", "not", plain]
    elif clause.verb.copula:
        words += [finite, "not" * clause.negative, clause.frequency, "very" * clause.very, clause.predicate]
    else:
        words += [clause.frequency, finite]
    for phrase in clause.objects:
        words += [] if phrase is None else _english_noun_phrase(phrase)
    words.append(clause.manner)
    for adverbial in phrases:
        words += _english_adverbial(adverbial)
    words += [] if clause.front == "time" else _english_adverbial(clause.time)
    if clause.complement is not None:
        words += [clause.verb.that, *_english_clause(clause.complement)]
    return words


def _is_plural(phrase: NounPhrase) -> bool:
    return phrase.noun.plural if phrase.noun.pronoun else phrase.plural


def is_definite(phrase: NounPhrase) -> bool:
    """Whether the phrase, as an object, stands before adverbs in German and may go with "nicht"."""
    if phrase.noun.pronoun or phrase.owner is not None:
        return True
    return lexicon().data["determiners"][phrase.determiner]["definite"]


def german(sentence: Sentence) -> str:
    """Write a sentence in German."""
    data, other = lexicon().data, sentence.other
    if other is None:
        return _text(_german_main(sentence.main))
    if sentence.link in data["coordinators"]:
        joined = ["," * (sentence.link == "but"), data["coordinators"][sentence.link], *_german_main(other)]
        return _text([*_german_main(sentence.main), *joined])
    row = data["subordinators"][sentence.link]
    words = _german_subordinate(other, row.get(other.tense, row["de"]))
    main = _german_main(sentence.main, inverted=sentence.first)
    return _text([*words, *main] if sentence.first else [*main, *words])


def declension(phrase: NounPhrase, case: str) -> tuple[str, str, str]:
    """The German determiner, adjective and noun of a noun phrase ("" for what it lacks).

    The adjective has a strong ending where the determiner has none (ein, zwei, no determiner) or is
    itself like an adjective (viele), and a weak one elsewhere.
    """
    words, data, noun = lexicon(), lexicon().data, phrase.noun
    column = _PLURAL if phrase.plural else noun.gender
    determiner = data["determiners"]["the" if phrase.owner else phrase.determiner]
    strong = data["strong_endings"][case][column]
    kind, article = determiner["declines"], determiner["de"]
    bare = kind == "none" or (kind == "ein" and (case, column) in _EIN)
    if kind == "article":
        article = data["article"][case][column]
    elif not bare:
        article += strong
    adjective = ""
    if phrase.adjective:
        ending = strong if bare or kind == "viele" else data["weak_endings"][case][column]
        adjective = "sehr " * phrase.very + words.adjectives[phrase.adjective][-1] + ending
    form = noun.german[phrase.plural]
    weak = noun.gender == 0 and noun.genitive and not noun.genitive.endswith("s")
    if phrase.plural:
        form += "n" * (case == "dat" and form[-1] not in "ns")
    elif case == "gen" or (weak and case != "nom"):
        form = noun.genitive
    return article, adjective, form


def _german_noun_phrase(phrase: NounPhrase, case: str) -> list[str]:
    """The words of a noun phrase without its relative clause."""
    if phrase.noun.pronoun:
        return [phrase.noun.german[("nom", "acc", "dat").index(case)]]
    words = [*declension(phrase, case)]
    if phrase.owner is not None:
        words += _german_noun_phrase(phrase.owner, "gen")
    return words + _german_adverbial(phrase.attribute)


def _german_adverbial(adverbial: Phrase | str) -> list[str]:
    if isinstance(adverbial, str):
        return [lexicon().times[adverbial]["de"]] if adverbial else []
    row, inner = lexicon().prepositions[adverbial.preposition], adverbial.inner
    words = [row["de"], *_german_noun_phrase(inner, row["case"])]
    short = lexicon().data["contractions"].get(" ".join(words[:2]))
    return [short, *words[2:]] if short else words


def _german_relative(phrase: NounPhrase) -> list[str]:
    """The relative clause of a noun phrase, if it has one, between commas."""
    if (clause := phrase.relative) is None:
        return []
    case = "nom" if clause.subject is None else clause.verb.objects[0][0]
    column = _PLURAL if phrase.plural else phrase.noun.gender
    pronoun = lexicon().data["relative"][case][column]
    return _german_subordinate(clause, pronoun, plural=phrase.plural)


def _german_subordinate(clause: Clause, lead: str, *, plural: bool = False) -> list[str]:
    """A clause with its verbs at the end, after a conjunction or relative pronoun, between commas."""
    subject, middle, finite, infinitive, after = _german_parts(clause, plural)
    last = [infinitive, finite] if infinitive else [clause.verb.prefix + finite]
    return [",", lead, *subject, *middle, *last, *after, ","]


def _german_main(clause: Clause, *, inverted: bool = False) -> list[str]:
    """A clause with its finite verb second; `inverted`: what stands first is written by the caller."""
    subject, middle, finite, infinitive, after = _german_parts(clause)
    last = infinitive or clause.verb.prefix
    start = [finite, *subject] if inverted or clause.front else [*subject, finite]
    if clause.front:
        start = _german_adverbial(clause.time if clause.front == "time" else clause.phrases[-1]) + start
    return [*start, *middle, last, *after]


def _german_parts(clause: Clause, plural: bool = False) -> tuple[list[str], list[str], str, str, list[str]]:
    """Subject, middle field, finite verb without its prefix, infinitive, and what follows the last verb.

    The middle field: definite objects, time, frequency, "nicht", manner, other objects, phrases. An
    object's relative clause follows the last verb.
    """
    data, verb = lexicon().data, clause.verb
    subject, early, late, after = [], [], [], []
    if clause.subject is not None:
        subject = _german_noun_phrase(clause.subject, "nom") + _german_relative(clause.subject)
        plural = _is_plural(clause.subject)
    for (case, _), phrase in zip(verb.objects, clause.objects, strict=True):
        if phrase is not None:
            (early if is_definite(phrase) else late).extend(_german_noun_phrase(phrase, case))
            after += _german_relative(phrase)
    middle = early + ([] if clause.front == "time" else _german_adverbial(clause.time))
    middle += [data["frequencies"].get(clause.frequency, ""), "nicht" * clause.negative]
    middle += [data["manners"].get(clause.manner, ""), *late]
    for adverbial in clause.phrases[: -1 if clause.front == "place" else None]:
        middle += _german_adverbial(adverbial)
    if clause.predicate:
        middle.append("sehr " * clause.very + lexicon().adjectives[clause.predicate][0])
    if clause.complement is not None:
        after += _german_subordinate(clause.complement, data["complementizers"][verb.that])
    finite = verb.german[(3 if plural else 1) if clause.tense == "present" else (4 if plural else 2)]
    if clause.modal is None:
        return subject, middle, finite, "", after
    return subject, middle, data["modals"][clause.modal]["de"][plural], verb.prefix + verb.german[0], after

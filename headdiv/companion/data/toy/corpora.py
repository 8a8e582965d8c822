"""Seeded toy corpora of the five tasks. They draw with ``random()`` alone, whose sequence never changes.

Test and validation sets are drawn before the training set, so that they do not depend on its size.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import zstandard

from headdiv.companion.data.readers.squad import Answer, Question
from headdiv.companion.data.readers.xsum import Article
from headdiv.companion.data.toy import grammar
from headdiv.companion.data.toy.grammar import Clause, Noun, NounPhrase, Sentence, english, english_phrase, lexicon
from headdiv.core.errors import ConfigError
from headdiv.core.files import replacing

SEED = 1
PAIRS, DOCUMENTS = 4000, 3000  # default of `data.examples`: translation and summarisation; the other tasks
FEW = 4  # nouns of each kind for summaries and questions: small models learn to look up what they meet often
SHARES = {  # documents in a thousand, near SlimPajama's shares of tokens
    "RedPajamaCommonCrawl": 522, "RedPajamaC4": 267, "RedPajamaGithub": 52, "RedPajamaBook": 42,
    "RedPajamaArXiv": 46, "RedPajamaWikipedia": 38, "RedPajamaStackExchange": 33,
}  # fmt: skip
SHARDS = ("test-0", "valid-0", "train-0", "train-1", "train-2")
FEWEST_DOCUMENTS = 10 * len(SHARES)  # so that a tenth of them can have one document of each source
_T = TypeVar("_T")


class Draw:
    """Draws sentences with the random numbers of ``source``; ``nouns`` limits how many nouns of each kind are used."""

    def __init__(self, source: random.Random, nouns: int | None = None) -> None:
        self.random, self.nouns = source.random, nouns

    def pick(self, choices: Sequence[_T]) -> _T:
        """One of the choices, all equally likely."""
        return choices[int(self.random() * len(choices))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def noun(self, kinds: Sequence[str]) -> Noun:
        """A noun of one of the kinds."""
        return self.pick([noun for kind in kinds for noun in lexicon()["nouns"][kind][: self.nouns]])

    def phrase(self, kinds: Sequence[str], past: bool = False, pronoun: float = 0.0, nested: float = 0.0) -> NounPhrase:
        """A noun phrase; with these probabilities a pronoun, or with a relative clause."""
        if "person" in kinds and self.chance(pronoun):
            return NounPhrase(self.pick(lexicon()["pronouns"]))
        noun, determiners = self.noun(kinds), lexicon()["determiners"]
        name = self.pick([name for name, row in determiners.items() for _ in range(row[5])])
        plural = determiners[name][1] is not None and (determiners[name][0] is None or self.chance(0.3))
        adjectives = [
            word for group in lexicon()["adjectives"] if noun.kind in group["kinds"] for word in group["words"]
        ]
        adjective = self.pick(adjectives) if self.chance(0.25) else ""
        relative = None
        if self.chance(nested):
            gap = self.pick(["subject", "object"])
            verbs = [verb for verb in lexicon()["verbs"] if noun.kind in getattr(verb, gap) and not verb.that]
            relative = self.clause(past, verbs, gap) if verbs else None
        return NounPhrase(noun, name, plural, adjective, relative)

    def clause(self, past: bool, verbs: Sequence[Any] = (), gap: str = "") -> Clause:
        """A clause; in a relative one, ``gap`` is what the pronoun replaces."""
        verbs = verbs or [lexicon()["copula"]] * 4 + lexicon()["verbs"]
        verb, nested = self.pick(verbs), 0.0 if gap else 0.12
        subject = None if gap == "subject" else self.phrase(verb.subject, past, 0.15, nested)
        object = self.phrase(verb.object, past, 0.15, nested) if verb.object and gap != "object" else None
        clause = Clause(subject, verb, object, past)
        if verb is lexicon()["copula"]:
            groups = [group["words"] for group in lexicon()["adjectives"] if subject.noun.kind in group["kinds"]]
            adjectives = [word for words in groups for word in words] or ["tired", "happy", "hungry"]  # of pronouns
            return replace(clause, predicate=self.pick(adjectives), negative=self.chance(0.15))
        if not past and self.chance(0.2):
            clause = replace(clause, modal=self.pick(list(lexicon()["modals"])))
        elif (object is None or object.definite) and self.chance(0.12):
            clause = replace(clause, negative=True)
        if verb.that:
            return replace(clause, that=self.clause(past, [verb for verb in lexicon()["verbs"] if not verb.that]))
        if object is None or object.relative is None:  # nothing can be mistaken for a part of the relative clause
            preposition = self.pick(list(lexicon()["prepositions"])) if self.chance(0.2) else ""
            place = (preposition, self.phrase(["place"])) if preposition else None
            time = self.pick(list(lexicon()["times"])) if self.chance(0.15) else ""
            clause = replace(clause, place=place, time=time, front=bool(time and not gap and self.chance(0.4)))
        return clause

    def sentence(self) -> Sentence:
        """One clause, or two that are linked."""
        past, shape = self.chance(0.4), self.random()
        main = self.clause(past)
        if shape < 0.7:
            return Sentence(main)
        first = shape > 0.9
        link = self.pick(list(lexicon()["links" if shape < 0.8 else "subordinators"]))
        other = self.clause(past)
        if shape >= 0.8:  # neither the subordinate clause nor what follows it begins with a time
            main, other = replace(main, front=main.front and not first), replace(other, front=False)
        return Sentence(main, link, other, first)

    def sentences(self, longest: int = 22) -> Iterator[tuple[str, Sentence]]:
        """Endless sentences of 4 to ``longest`` words, as text and tree; some occur again."""
        while True:
            sentence = self.sentence()
            text = english(sentence)
            if 4 <= len(text.split()) <= longest:
                yield text, sentence

    def paragraph(self, words: tuple[int, int], longest: int) -> list[tuple[str, Sentence]]:
        """Three or four distinct sentences of at most ``longest`` words; ``words``: fewest and most words together."""
        while True:
            sentences = dict(islice(self.sentences(longest), self.pick((3, 4))))
            if len(sentences) > 2 and words[0] <= len(" ".join(sentences).split()) <= words[1]:
                return list(sentences.items())


def _draw_splits(sizes: dict[str, int], draw: Callable[[str, int], _T]) -> dict[str, list[_T]]:
    examples = {name: [draw(name, number) for number in range(sizes[name])] for name in ("test", "valid", "train")}
    return {name: examples[name] for name in sizes}


def translation(train: int, valid: int, test: int, seed: int) -> dict[str, list[tuple[str, str]]]:
    """Distinct (English, German) sentence pairs by split."""
    stream = Draw(random.Random(seed)).sentences()
    used: set[str] = set()

    def pair(name: str, number: int) -> tuple[str, str]:
        text, sentence = next((text, tree) for text, tree in stream if text not in used)
        used.add(text)
        return text, grammar.german(sentence)

    return _draw_splits({"train": train, "valid": valid, "test": test}, pair)


def generated_texts(count: int = 200, seed: int = 1) -> tuple[list[str], list[str]]:
    """English sentences of headdiv's toy grammar and their German translations, for use without a data set."""
    sources, targets = zip(*translation(count, 1, 1, seed)["train"], strict=True)
    return list(sources), list(targets)


def articles(train: int, valid: int, test: int, seed: int) -> dict[str, list[Article]]:
    """Articles of three or four sentences by split; the summary is the bare main clause of the first one."""
    draw = Draw(random.Random(seed), FEW)
    used: set[str] = set()

    def article(name: str, number: int) -> Article:
        while True:
            sentences = draw.paragraph((20, 60), longest=14)
            lead, tree = sentences[0]
            summary = english(Sentence(_bare(tree.main)))
            if lead not in used and 3 <= len(summary.split()) <= 10:
                used.add(lead)
                document = "\n".join(text for text, _ in sentences)
                return Article(id=f"toy-{name}-{number}", document=document, summary=summary)

    return _draw_splits({"train": train, "valid": valid, "test": test}, article)


def _bare(clause: Clause) -> Clause:
    """The clause without adverbials, adjectives and relative clauses."""

    def strip(phrase: NounPhrase | None) -> NounPhrase | None:
        return phrase and replace(phrase, adjective="", relative=None)

    that = clause.that and _bare(clause.that)
    subject, object = strip(clause.subject), strip(clause.object)
    return replace(clause, subject=subject, object=object, that=that, place=None, time="", front=False)


def questions(train: int, valid: int, test: int, seed: int) -> dict[str, list[Question]]:
    """Questions on contexts of three or four sentences, by split.

    A context has up to three questions; a training question one gold answer, the others up to three.
    """
    draw = Draw(random.Random(seed), FEW)
    used: set[str] = set()
    splits: dict[str, list[Question]] = {}
    for split, size in {"test": test, "valid": valid, "train": train}.items():
        max_answers = 1 if split == "train" else 3
        splits[split] = drawn = []
        while len(drawn) < size:
            sentences = draw.paragraph((20, 30), longest=9)
            context = " ".join(text for text, _ in sentences)
            pairs = [
                (text, _gold_answers(context, answer)) for text, answer in askable([tree for _, tree in sentences])
            ]
            pairs = [(text, golds) for text, golds in pairs if golds][: min(3, size - len(drawn))]
            if context in used or not pairs:
                continue
            used.add(context)
            for text, golds in pairs:
                drawn.append(Question(f"toy-{split}-{len(drawn)}", text, context, golds[:max_answers]))
    return {split: splits[split] for split in ("train", "valid", "test")}


def askable(context: Sequence[Sentence]) -> list[tuple[str, NounPhrase]]:
    """Questions for subject and object of main clauses, each with the phrase that answers it.

    A clause that is negative or has a pronoun or a relative clause is passed over, and so is one whose verb occurs in
    another clause of the context: every question has one answer.
    """
    mains = [sentence.main for sentence in context]
    others = [clause for sentence in context for clause in (sentence.other, sentence.main.that)]
    others += [phrase.relative for main in mains for phrase in (main.subject, main.object) if phrase]
    verbs = [clause.verb for clause in [*mains, *others] if clause]
    pairs = []
    for main in mains:
        phrases = [phrase for phrase in (main.subject, main.object) if phrase]
        unfit = main.negative or any(phrase.noun.kind == "pronoun" or phrase.relative for phrase in phrases)
        if not unfit and (main.object or main.predicate) and verbs.count(main.verb) == 1:
            bare = replace(main, time="", front=False, place=None)
            roles = ("subject", "object")[: len(phrases)]
            pairs += [(grammar.english_question(bare, role), getattr(main, role)) for role in roles]
    return pairs


def _gold_answers(context: str, answer: NounPhrase) -> tuple[Answer, ...]:
    """The answer, and the same without its determiner; none if it occurs twice."""
    phrase = english_phrase(answer)
    short = phrase.split(" ", 1)[-1] if answer.determiner in ("the", "a", "my", "this") else phrase
    matches = list(re.finditer(rf"\b{re.escape(phrase)}\b", context, re.IGNORECASE))
    if len(matches) != 1:
        return ()
    end = matches[0].end()
    starts = dict.fromkeys(end - len(text) for text in (phrase, short))  # without repetition, in order
    return tuple(Answer(context[start:end], start) for start in starts)


def write_shards(folder: Path | str, documents: int, seed: int) -> None:
    """Write `SHARDS` of JSON lines in SlimPajama's form; test and validation have a tenth of the documents each.

    Every shard has all seven sources, in the proportions of `SHARES`; each source has a style of its own. Fewer
    documents than `FEWEST_DOCUMENTS` are a ConfigError.
    """
    if documents < FEWEST_DOCUMENTS:
        raise ConfigError(
            f"data.examples: found {documents} documents of generated text, expected at least {FEWEST_DOCUMENTS}"
        )
    draw = Draw(random.Random(seed))
    used: set[str] = set()
    train = documents - 2 * (documents // 10)
    for shard in SHARDS:
        split, _, number = shard.partition("-")
        size = (train + int(number)) // 3 if split == "train" else documents // 10
        counts = {kind: max(1, size * share // 1000) for kind, share in SHARES.items()}
        counts["RedPajamaCommonCrawl"] += size - sum(counts.values())
        kinds = sorted((kind for kind in counts for _ in range(counts[kind])), key=lambda _: draw.random())
        lines = []
        for kind in kinds:
            text = _draw_document(kind, draw)
            while text in used:
                text = _draw_document(kind, draw)
            used.add(text)
            lines.append(json.dumps({"text": text, "meta": {"redpajama_set_name": kind}}) + "\n")
        with replacing(Path(folder) / f"{shard}.jsonl.zst") as temporary:
            packer = zstandard.ZstdCompressor(level=3, write_checksum=True, threads=0)
            temporary.write_bytes(packer.compress("".join(lines).encode()))


def _draw_document(kind: str, draw: Draw) -> str:
    stream = draw.sentences()

    def sentences(*counts: int) -> str:
        return " ".join(text for text, _ in islice(stream, draw.pick(counts)))

    nouns = [draw.noun(list(lexicon()["nouns"])) for _ in range(3)]
    match kind:
        case "RedPajamaCommonCrawl":
            return " | ".join(["Home", *(noun.english[1].capitalize() for noun in nouns)]) + f"\n{sentences(3, 4, 5)}"
        case "RedPajamaBook":
            return f"Chapter {draw.pick(range(1, 21))}\n\n{sentences(3, 4, 5)}\n\n{sentences(3, 4, 5)}"
        case "RedPajamaWikipedia":  # every sentence is about the title
            topic = draw.noun(["person", "animal"])
            trees = (tree for _, tree in stream if tree.main.subject.noun.kind == topic.kind)
            subjects = [(tree, replace(tree.main.subject, noun=topic)) for tree in islice(trees, draw.pick((3, 4, 5)))]
            texts = [english(replace(tree, main=replace(tree.main, subject=subject))) for tree, subject in subjects]
            return f"= {topic.english[0].capitalize()} =\n\n{' '.join(texts)}"
        case "RedPajamaGithub":  # functions named after verbs, with nouns as arguments
            functions = []
            for _ in range(draw.pick((2, 3, 4))):
                verb = draw.pick([verb for verb in lexicon()["verbs"] if verb.object])
                subject, object = draw.noun(verb.subject).english[0], draw.noun(verb.object).english[0]
                test = f"if {object}.{draw.pick(('old', 'big', 'small'))}:"
                call = f"{subject}.{verb.english[0]}({object})"
                functions.append(f"def {verb.english[0]}({subject}, {object}):\n    {test}\n        return {call}\n")
            return "\n\n".join(functions)
        case "RedPajamaArXiv":  # true sums
            parts = [rf"\section{{{nouns[0].english[1].capitalize()}}}"]
            for number in range(1, draw.pick((2, 3)) + 1):
                a, b = draw.pick(range(1, 10)), draw.pick(range(1, 10))
                parts.append(f"{sentences(2)}\nLemma {number}. Let $a = {a}$ and $b = {b}$. Then $a + b = {a + b}$.")
            return "\n".join(parts)
        case "RedPajamaStackExchange":  # each question is answered by the sentence that it is about
            count, parts = draw.pick((2, 3, 4)), []
            while len(parts) < count:
                text, tree = next(stream)
                if candidates := askable([tree]):
                    question, _ = draw.pick(candidates)
                    parts.append(f"Q: {question}\nA: {text}")
            return "\n\n".join(parts)
    return sentences(3, 4, 5, 6)

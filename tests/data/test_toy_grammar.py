"""The toy grammar: hand-built sentence trees against hand-written sentences and tables."""

import pytest

from headdiv.data.toy.grammar import Clause, NounPhrase, Phrase, Sentence, declension, english, german, lexicon


def noun(name, determiner="the", **rest):
    return NounPhrase(lexicon().nouns[name], determiner, **rest)


def clause(subject, verb, *objects, **rest):
    return Clause(subject, lexicon().verbs[verb], objects=objects, **rest)


def both(main, *rest):
    sentence = Sentence(main if isinstance(main, Clause) else clause(*main), *rest)
    return english(sentence), german(sentence)


# rows: nominative, accusative, dative; columns: Hund (m), Katze (f), Pferd (n), plural of Hund
TABLES = {
    "the": """
        der alte Hund      | die alte Katze   | das alte Pferd    | die alten Hunde
        den alten Hund     | die alte Katze   | das alte Pferd    | die alten Hunde
        dem alten Hund     | der alten Katze  | dem alten Pferd   | den alten Hunden""",
    "this": """
        dieser alte Hund   | diese alte Katze | dieses alte Pferd | diese alten Hunde
        diesen alten Hund  | diese alte Katze | dieses alte Pferd | diese alten Hunde
        diesem alten Hund  | dieser alten Katze | diesem alten Pferd | diesen alten Hunden""",
    "no": """
        kein alter Hund    | keine alte Katze | kein altes Pferd  | keine alten Hunde
        keinen alten Hund  | keine alte Katze | kein altes Pferd  | keine alten Hunde
        keinem alten Hund  | keiner alten Katze | keinem alten Pferd | keinen alten Hunden""",
    "our": """
        unser alter Hund   | unsere alte Katze | unser altes Pferd | unsere alten Hunde
        unseren alten Hund | unsere alte Katze | unser altes Pferd | unsere alten Hunde
        unserem alten Hund | unserer alten Katze | unserem alten Pferd | unseren alten Hunden""",
    "bare": """
        alter Hund         | alte Katze       | altes Pferd       | alte Hunde
        alten Hund         | alte Katze       | altes Pferd       | alte Hunde
        altem Hund         | alter Katze      | altem Pferd       | alten Hunden""",
}
PLURAL_TABLES = {
    "two": ["zwei alte Hunde", "zwei alte Hunde", "zwei alten Hunden"],
    "many": ["viele alte Hunde", "viele alte Hunde", "vielen alten Hunden"],
    "all": ["alle alten Hunde", "alle alten Hunde", "allen alten Hunden"],
    "my": ["meine alten Hunde", "meine alten Hunde", "meinen alten Hunden"],
}
SINGULAR_TABLES = {
    "a": ["ein alter Hund", "einen alten Hund", "einem alten Hund"],
    "every": ["jeder alte Hund", "jeden alten Hund", "jedem alten Hund"],
}


def declined(name, determiner, case, plural):
    phrase = noun(name, determiner, adjective="old", plural=plural)
    return " ".join(word for word in declension(phrase, case) if word)


@pytest.mark.parametrize("determiner", TABLES)
def test_articles_adjectives_and_nouns_agree(determiner):
    rows = [[cell.strip() for cell in row.split("|")] for row in TABLES[determiner].strip().splitlines()]
    columns = [("dog", False), ("cat", False), ("horse", False), ("dog", True)]
    for case, row in zip(("nom", "acc", "dat"), rows, strict=True):
        assert [declined(name, determiner, case, plural) for name, plural in columns] == row


@pytest.mark.parametrize(
    ("determiner", "row", "plural"),
    [(name, row, True) for name, row in PLURAL_TABLES.items()]
    + [(name, row, False) for name, row in SINGULAR_TABLES.items()],
)
def test_determiners_of_one_number(determiner, row, plural):
    assert [declined("dog", determiner, case, plural) for case in ("nom", "acc", "dat")] == row


@pytest.mark.parametrize(
    ("name", "cases", "dative_plural"),
    [
        ("boy", ["Junge", "Jungen", "Jungen", "Jungen"], "Jungen"),
        ("bear", ["Bär", "Bären", "Bären", "Bären"], "Bären"),
        ("teacher", ["Lehrer", "Lehrer", "Lehrer", "Lehrers"], "Lehrern"),
        ("child", ["Kind", "Kind", "Kind", "Kindes"], "Kindern"),
        ("girl", ["Mädchen", "Mädchen", "Mädchen", "Mädchens"], "Mädchen"),
        ("car", ["Auto", "Auto", "Auto", None], "Autos"),
        ("house", ["Haus", "Haus", "Haus", None], "Häusern"),
        ("mother", ["Mutter", "Mutter", "Mutter", "Mutter"], "Müttern"),
    ],
)
def test_noun_forms(name, cases, dative_plural):
    found = [declension(noun(name), case)[2] for case in ("nom", "acc", "dat", "gen")]
    assert [form for form, wanted in zip(found, cases, strict=True) if wanted] == [c for c in cases if c]
    assert declension(noun(name, plural=True), "dat")[2] == dative_plural


def test_owners_stand_in_the_genitive_after_their_noun():
    owner = noun("student", "this", adjective="young")
    subject = noun("dog", owner=owner, adjective="small")
    assert both((subject, "schlafen")) == (
        "This young student's small dog sleeps.",
        "Der kleine Hund dieses jungen Studenten schläft.",
    )


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (noun("man", "a", adjective="honest"), "An honest man"),
        (noun("book", "a", adjective="useful"), "A useful book"),
        (noun("book", "a", adjective="useful", very=True), "A very useful book"),
        (noun("man", "a", adjective="old"), "An old man"),
        (noun("uncle", "a"), "An uncle"),
        (noun("uncle", "a", adjective="tired"), "A tired uncle"),
    ],
)
def test_a_and_an(subject, words):
    assert both((subject, "sein"))[0].startswith(words + " is")


BOY_SLEEPS = clause(noun("boy"), "schlafen")
SEES = clause(noun("dog", adjective="old"), "sehen", noun("cat", "a", adjective="small"))
CALLS = clause(noun("man"), "anrufen", noun("teacher"), time="today")


def test_joined_clauses():
    assert both(SEES, "because", BOY_SLEEPS) == (
        "The old dog sees a small cat because the boy sleeps.",
        "Der alte Hund sieht eine kleine Katze, weil der Junge schläft.",
    )
    assert both(SEES, "because", BOY_SLEEPS, True) == (
        "Because the boy sleeps, the old dog sees a small cat.",
        "Weil der Junge schläft, sieht der alte Hund eine kleine Katze.",
    )
    assert both(BOY_SLEEPS, "but", SEES) == (
        "The boy sleeps, but the old dog sees a small cat.",
        "Der Junge schläft, aber der alte Hund sieht eine kleine Katze.",
    )
    assert both(BOY_SLEEPS, "and", CALLS) == (
        "The boy sleeps and the man calls the teacher today.",
        "Der Junge schläft und der Mann ruft den Lehrer heute an.",
    )
    assert both(BOY_SLEEPS, "although", CALLS) == (
        "The boy sleeps although the man calls the teacher today.",
        "Der Junge schläft, obwohl der Mann den Lehrer heute anruft.",
    )


def test_when_is_translated_by_its_tense():
    past = clause(noun("boy"), "ankommen", tense="past")
    assert both(clause(noun("girl"), "lachen", tense="past"), "when", past)[1] == (
        "Das Mädchen lachte, als der Junge ankam."
    )
    assert both(clause(noun("girl"), "lachen"), "when", BOY_SLEEPS)[1] == ("Das Mädchen lacht, wenn der Junge schläft.")


def test_inversion_after_a_fronted_adverbial():
    fronted = clause(noun("man"), "anrufen", noun("teacher", "no"), time="today", front="time")
    assert both(fronted) == ("Today the man calls no teacher.", "Heute ruft der Mann keinen Lehrer an.")
    garden = Phrase("in", noun("garden", adjective="dark"))
    place = clause(noun("he"), "suchen", noun("she"), phrases=(garden,), front="place", tense="past")
    assert both(place) == ("In the dark garden he looked for her.", "Im dunklen Garten suchte er sie.")
    party = clause(noun("we"), "sein", time=Phrase("after", noun("party")), front="time", predicate="tired")
    assert both(party) == ("After the party we are tired.", "Nach der Feier sind wir müde.")


def test_order_of_the_middle_field():
    table = Phrase("on", noun("table"))
    rest = {"phrases": (table,), "time": "now", "manner": "quietly"}
    assert both((noun("girl"), "essen", noun("apple", "a"))) == (
        "The girl eats an apple.",
        "Das Mädchen isst einen Apfel.",
    )
    assert both(clause(noun("girl"), "essen", noun("apple", "a"), **rest)) == (
        "The girl eats an apple quietly on the table now.",
        "Das Mädchen isst jetzt leise einen Apfel auf dem Tisch.",
    )
    assert both(clause(noun("girl"), "essen", noun("apple"), negative=True, **rest)) == (
        "The girl does not eat the apple quietly on the table now.",
        "Das Mädchen isst den Apfel jetzt nicht leise auf dem Tisch.",
    )


def test_dative_objects_and_two_objects():
    mice = noun("mouse", "all", plural=True)
    assert both((noun("they"), "helfen", mice)) == ("They help all mice.", "Sie helfen allen Mäusen.")
    gives = clause(noun("queen"), "geben", noun("he"), noun("key", "a"), frequency="often", tense="past")
    assert both(gives) == ("The queen often gave him a key.", "Die Königin gab ihm oft einen Schlüssel.")


def test_prepositions_govern_cases_and_contract():
    def german_of(verb, name, inner):
        return both(clause(noun("cat"), verb, phrases=(Phrase(name, inner),)))[1]

    assert german_of("schlafen", "in", noun("house")) == "Die Katze schläft im Haus."
    assert german_of("gehen", "into", noun("house")) == "Die Katze geht ins Haus."
    assert german_of("gehen", "into", noun("garden")) == "Die Katze geht in den Garten."
    assert german_of("gehen", "to", noun("school")) == "Die Katze geht zur Schule."
    assert german_of("gehen", "to", noun("school", "a")) == "Die Katze geht zu einer Schule."
    assert german_of("gehen", "through", noun("forest", "this")) == "Die Katze geht durch diesen Wald."
    assert german_of("lachen", "with", noun("boy")) == "Die Katze lacht mit dem Jungen."
    assert german_of("lachen", "without", noun("boy")) == "Die Katze lacht ohne den Jungen."
    coffee = noun("woman", attribute=Phrase("with", noun("coffee", "bare", adjective="cold")))
    assert both((coffee, "lachen")) == (
        "The woman with cold coffee laughs.",
        "Die Frau mit kaltem Kaffee lacht.",
    )


def test_modals_send_the_infinitive_to_the_end():
    wants = clause(noun("girl"), "aufmachen", noun("door"), modal=3)
    assert both(wants) == ("The girl wants to open the door.", "Das Mädchen will die Tür aufmachen.")
    assert both(BOY_SLEEPS, "because", wants)[1] == ("Der Junge schläft, weil das Mädchen die Tür aufmachen will.")


def test_that_clauses():
    knows = clause(noun("student", plural=True), "wissen", complement=CALLS, negative=True)
    assert both(knows) == (
        "The students do not know that the man calls the teacher today.",
        "Die Studenten wissen nicht, dass der Mann den Lehrer heute anruft.",
    )
    asks = clause(noun("she"), "fragen", complement=BOY_SLEEPS)
    assert both(asks) == ("She asks whether the boy sleeps.", "Sie fragt, ob der Junge schläft.")


def relative(name, determiner, verb, *objects, subject=None, plural=False):
    """Both sentences "... is old." with a relative clause."""
    subject = noun(name, determiner, plural=plural, relative=clause(subject, verb, *objects))
    return both(clause(subject, "sein", predicate="old"))


def test_relative_clauses_of_subjects():
    assert relative("man", "the", "sehen", noun("dog")) == (
        "The man who sees the dog is old.",
        "Der Mann, der den Hund sieht, ist alt.",
    )
    assert relative("dog", "the", "sehen", None, subject=noun("man")) == (
        "The dog that the man sees is old.",
        "Der Hund, den der Mann sieht, ist alt.",
    )
    assert relative("girl", "the", "helfen", None, subject=noun("we")) == (
        "The girl that we help is old.",
        "Das Mädchen, dem wir helfen, ist alt.",
    )
    assert relative("woman", "the", "gehören", None, subject=noun("car", "a"), plural=True) == (
        "The women that a car belongs to are old.",
        "Die Frauen, denen ein Auto gehört, sind alt.",
    )
    assert relative("cat", "two", "einschlafen", plural=True) == (
        "Two cats that fall asleep are old.",
        "Zwei Katzen, die einschlafen, sind alt.",
    )


def test_relative_clauses_of_objects_follow_the_last_verb():
    child = noun("child", "a", relative=clause(None, "lachen"))
    calls = clause(noun("man"), "anrufen", child)
    de = "Der Mann ruft ein Kind an, das lacht, und der Junge schläft."
    assert both(calls, "and", BOY_SLEEPS) == ("The man calls a child who laughs and the boy sleeps.", de)
    de = "Der Junge schläft, während der Mann ein Kind anruft, das lacht."
    assert both(BOY_SLEEPS, "while", calls)[1] == de


def test_verb_forms_of_the_lexicon():
    verbs = lexicon().verbs
    assert verbs["sein"].german == ("sein", "ist", "war", "sind", "waren")
    assert verbs["anrufen"].german == ("rufen", "ruft", "rief", "rufen", "riefen")
    assert verbs["hören"].german[-1] == "hörten"
    assert verbs["sehen"].english == ("see", "sees", "saw", "see", "saw")


def test_lexicon_names_only_known_kinds_and_translates_one_to_one():
    data = lexicon().data
    kinds = set(data["nouns"])
    for verb in lexicon().verbs.values():
        assert kinds >= {*verb.subject, *(kind for _, wanted in verb.objects for kind in wanted)}
    for group in data["adjectives"]:
        assert kinds >= set(group["kinds"])
    german_nouns = [word.german[0] for word in lexicon().nouns.values() if not word.pronoun]
    assert len(set(german_nouns)) == len(german_nouns) >= 50
    assert len(lexicon().verbs) == len(data["verbs"])

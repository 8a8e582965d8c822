"""The readers of TED talks: tagged text, XML test sets, and the archive of both."""

from pathlib import Path

import pytest
from faulty import exactly, fails, pack, put

from headdiv.companion.data.readers.parallel import pair_sides
from headdiv.companion.data.readers.records import BadRecords
from headdiv.companion.data.readers.ted import SETS, languages_of, read_archive, read_side


def xml(*docs):
    """A test set; a document is (its id, the texts of its segments)."""
    documents = []
    for id, sentences in docs:
        segments = "\n".join(f'<seg id="{n}"> {text} </seg>' for n, text in enumerate(sentences, start=1))
        documents.append(f'<doc docid="{id}" genre="lectures">\n<title>Not &amp; read</title>\n{segments}\n</doc>')
    body = "\n".join(documents)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset>\n{body}\n</srcset>\n</mteval>\n'


# ---- forms

TAGGED = """<doc docid="1" genre="lectures">
<url>http://example.org/a</url>
<keywords>talks, a < b</keywords>
<speaker>Ada</speaker>
<talkid>1</talkid>
<title>Ada: On engines</title>
<description>A talk, and <its> text.</description>
<reviewer href="http://example.org">Bo</reviewer>
<translator href="http://example.org">Cy</translator>
 It’s the first. \r
He writes <url> here.

 R&D &amp; more
</doc>
"""


def test_lines_about_the_talk_are_left_out_and_tags_taken_off(tmp_path):
    path = put(tmp_path / "train.tags.de-en.en", TAGGED)
    side = read_side(path)
    assert dict(zip(side.places, side.sentences, strict=True)) == {
        "line 6": "Ada: On engines",
        "line 7": "A talk, and <its> text.",
        "line 10": "It’s the first.",
        "line 11": "He writes <url> here.",
        "line 12": "",
        "line 13": "R&D &amp; more",
    }
    assert side.name == str(path)


def test_segments_are_read_with_a_plain_apostrophe(tmp_path):
    path = put(tmp_path / "a.xml", xml(("7", ["It’s R&amp;D.", "a\nb &#8364;"]), ("D01", ["<i>So</i> it is."])))
    side = read_side(path)
    assert side.sentences == ["It's R&D.", "a b €", "So it is."]
    assert side.places == ["doc 7, seg 1", "doc 7, seg 2", "doc D01, seg 1"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (xml(("1", ["R&D"])), ": not valid XML (not well-formed (invalid token): line 6, column 16)"),
        ("<mteval></mteval>", ": there is no <seg>, expected one for each sentence"),
    ],
)
def test_what_is_no_test_set_is_named(tmp_path, content, message):
    path = put(tmp_path / "a.xml", content)
    with exactly(f"{path}{message}"):
        read_side(path)


# ---- the archive


def members(pair="de-en", sets=SETS):
    """Names and contents of a small archive in the public layout, out of order and among others."""
    contents, languages = {f"{pair}/README": b"read me"}, pair.split("-")
    for number, name in enumerate(reversed(sets)):
        for language in languages:
            text = xml((str(number), [f"{name} {language}"] * (number + 1)))
            contents[f"{pair}/IWSLT14.{name}.{pair}.{language}.xml"] = text.encode()
    for language in languages:
        contents[f"{pair}/train.tags.{pair}.{language}"] = f"<url>u</url>\n<title>{language}</title>\n".encode()
    return contents


def texts(sides):
    return [sentence for source, target in sides for sentence in pair_sides(source, target, BadRecords())]


@pytest.mark.parametrize("prefix", ["", "./"])
def test_an_archive_serves_both_directions(tmp_path, prefix):
    release = {"": "IWSLT14", "./": "IWSLT16"}[prefix]
    contents = {f"{prefix}{name.replace('IWSLT14', release)}": content for name, content in members().items()}
    path = pack(tmp_path / "any.tgz", contents.items())
    assert texts(read_archive(path, "de", "en", "train")) == [("de", "en")]
    assert texts(read_archive(path, "en", "de", "train")) == [("en", "de")]
    expected = [
        (f"{name} de", f"{name} en") for name, count in zip(SETS, range(len(SETS), 0, -1), strict=True)
        for _ in range(count)
    ]  # fmt: skip
    assert texts(read_archive(path, "de", "en", "test")) == expected
    assert texts(read_archive(path, "en", "de", "test")) == [(en, de) for de, en in expected]


def test_a_missing_member_is_named(tmp_path):
    lost = "IWSLT14.TED.tst2010.de-en.en.xml"
    path = pack(tmp_path / "a.tgz", [(name, c) for name, c in members().items() if name != f"de-en/{lost}"])
    with fails(f"{path}: there is no member de-en/{lost}, expected it in each language"):
        read_archive(path, "de", "en", "test")


def test_one_set_is_of_german_and_english_only(tmp_path):
    path = pack(tmp_path / "es-en.tgz", members("es-en", [name for name in SETS if "TEDX" not in name]).items())
    assert len(read_archive(path, "es", "en", "test")) == len(SETS) - 1
    with fails(f"{path}: there is no member fr-en/train.tags.fr-en.fr, expected it"):
        read_archive(path, "fr", "en", "train")


@pytest.mark.parametrize("where", ["../", "/", "x/", "de-en/../"])
def test_members_elsewhere_are_passed_over(tmp_path, where):
    contents = [(f"{where}de-en/train.tags.de-en.{language}", b"bad\n") for language in ("de", "en")]
    path = pack(tmp_path / "a.tgz", [*contents, *members().items()])
    assert texts(read_archive(path, "de", "en", "train")) == [("de", "en")]
    assert not (tmp_path.parent / "de-en").exists()


def test_languages_are_those_of_the_archives_name():
    assert languages_of("/data/de-en.tgz") == {"de", "en"}
    assert languages_of(Path("es-en.tar.gz")) == {"es", "en"}
    assert languages_of("talks.tgz") is languages_of("a-b-c.tgz") is None


# ---- the real files

MORE = ("TED.tst2013", "TED.tst2014", "TEDX.tst2013", "TEDX.tst2014")


@pytest.mark.parametrize(("names", "count"), [(SETS, 6750), (MORE, 5075)])
def test_real_test_sets_are_read_whole(mirror, names, count):
    files = [[mirror / "ted" / f"IWSLT16.{name}.de-en.{language}.xml" for language in ("de", "en")] for name in names]
    pairs = texts(map(read_side, both) for both in files)
    assert len(pairs) == count
    assert not any("’" in sentence or "\n" in sentence for pair in pairs for sentence in pair)

"""Parallel text: pairs of lines, and TED talks as tagged text, XML test sets, and the archive of both."""

import pytest
from faulty import exactly, fails, pack, put, talks, xml

from headdiv.companion.data.readers.lines import BadRecords
from headdiv.companion.data.readers.parallel import SETS, pair_sides, read_archive, read_side


def sides(folder, source, target):
    return [read_side(put(folder / name, text)) for name, text in (("a.en", source), ("a.de.gz", target))]


def test_pairs_and_empty_sentences(tmp_path):
    assert pair_sides(*sides(tmp_path, "one\ntwo\n", "eins\nzwei\n"), BadRecords()) == [
        ("one", "eins"),
        ("two", "zwei"),
    ]
    holed = sides(tmp_path, "one\n\nthree\n", "eins\nzwei\n \n")
    bad_records = BadRecords(strict=False)
    assert pair_sides(*holed, bad_records) == [("one", "eins")]
    assert bad_records.counts == {"the sentence is empty": 2}
    assert bad_records.places == {f"{tmp_path}/a.en, line 2", f"{tmp_path}/a.de.gz, line 3"}
    assert len(pair_sides(*holed, bad_records, keep_empty=True)) == 3


def test_unequal_line_counts_are_an_error_however_lenient(tmp_path):
    """Left-out lines would shift all that follow."""
    with fails(
        f"{tmp_path}/a.en, line 3: has no partner, {tmp_path}/a.de.gz ends at sentence 2; expected equally many"
    ):
        pair_sides(*sides(tmp_path, "1\n2\n3\n", "1\n2\n"), BadRecords(strict=False))


TAGGED = """<doc docid="1" genre="lectures">
<url>http://example.org/a</url>
<keywords>talks, a < b</keywords>
<speaker>Ada</speaker>
<title>Ada: On engines</title>
<description>A talk, and <its> text.</description>
<translator href="http://example.org">Cy</translator>
 It’s the first. \r
He writes <url> here.

 R&D &amp; more
</doc>
"""


def test_lines_about_the_talk_are_left_out_and_tags_taken_off(tmp_path):
    side = read_side(put(tmp_path / "train.tags.de-en.en", TAGGED))
    assert dict(zip(side.places, side.sentences, strict=True)) == {
        "line 5": "Ada: On engines",
        "line 6": "A talk, and <its> text.",
        "line 8": "It’s the first.",
        "line 9": "He writes <url> here.",
        "line 10": "",
        "line 11": "R&D &amp; more",
    }


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


def texts(sides):
    return [pair for source, target in sides for pair in pair_sides(source, target, BadRecords())]


def test_an_archive_serves_both_directions(tmp_path):
    elsewhere = {f"{folder}de-en/train.tags.de-en.de": b"bad\n" for folder in ("../", "/", "x/")}
    path = pack(tmp_path / "any.tgz", (elsewhere | talks(SETS)).items())
    assert texts(read_archive(path, "de", "en", "train")) == [("de", "en")]
    assert texts(read_archive(path, "en", "de", "train")) == [("en", "de")]
    expected = [(f"{name} de", f"{name} en") for number, name in enumerate(SETS) for _ in SETS[number:]]
    assert texts(read_archive(path, "de", "en", "test")) == expected
    assert texts(read_archive(path, "en", "de", "test")) == [(en, de) for de, en in expected]


def test_a_missing_member_is_named_and_one_set_is_of_german_and_english_only(tmp_path):
    lost = "de-en/IWSLT14.TED.tst2010.de-en.en.xml"
    path = pack(tmp_path / "a.tgz", [(name, content) for name, content in talks(SETS).items() if name != lost])
    with fails(f"{path}: there is no member {lost}, expected it in each language"):
        read_archive(path, "de", "en", "test")
    path = pack(tmp_path / "es-en.tgz", talks([name for name in SETS if "TEDX" not in name], "es-en").items())
    assert len(read_archive(path, "es", "en", "test")) == len(SETS) - 1
    with fails(f"{path}: there is no member fr-en/train.tags.fr-en.fr, expected it"):
        read_archive(path, "fr", "en", "train")

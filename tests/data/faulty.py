"""Files for the tests of readers, and the errors that they give."""

import gzip
import io
import json
import re
import tarfile
from itertools import pairwise

import pytest
import zstandard

from headdiv.core.errors import DataError

PACKINGS = ["", ".gz", ".zst"]


def fails(message, error=DataError):
    return pytest.raises(error, match=re.escape(message))


def exactly(message, error=DataError):
    return pytest.raises(error, match=rf"\A{re.escape(message)}\Z")


def packed(content, packing, parts=1):
    """The content in so many frames or members."""
    pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor(write_checksum=True).compress}.get(packing, bytes)
    cuts = [len(content) * part // parts for part in range(parts + 1)]
    return b"".join(pack(content[a:b]) for a, b in pairwise(cuts))


def put(path, content, parts=1):
    """Write text, bytes or a JSON value, packed as the file's name says."""
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(packed(content, path.suffix, parts))
    return path


def put_pairs(folder, splits):
    """Write pairs of sentences, English and German, by split; returns the files by split and language."""
    for split, pairs in splits.items():
        for at, language in enumerate(("en", "de")):
            put(folder / f"{split}.{language}", "".join(f"{pair[at]}\n" for pair in pairs))
    return {split: {language: str(folder / f"{split}.{language}") for language in ("en", "de")} for split in splits}


def pack(path, members):
    """A tgz of (name, content); a content is bytes, or (type, name that is linked to)."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content
                tar.addfile(info)
    return path


def data_set(files, splits):
    """An entry of the registry of data sets: its files by name, and by split their number of examples and roles."""
    entry = dict.fromkeys(("title", "licence", "citation"), "toy")
    entry |= dict.fromkeys(("licence_source", "homepage"), "https://example.org")
    entry["splits"] = {name: {"count": count, "files": roles} for name, (count, roles) in splits.items()}
    return entry | {"files": files}


def xml(*docs):
    """A TED test set; a document is (its id, the texts of its segments)."""
    documents = []
    for id, sentences in docs:
        segments = "\n".join(f'<seg id="{n}"> {text} </seg>' for n, text in enumerate(sentences, start=1))
        documents.append(f'<doc docid="{id}" genre="lectures">\n<title>Not &amp; read</title>\n{segments}\n</doc>')
    body = "\n".join(documents)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset>\n{body}\n</srcset>\n</mteval>\n'


def talks(sets, pair="de-en"):
    """Names and contents of a small archive in TED's public layout, out of order and among others."""
    contents, languages = {f"{pair}/README": b"read me"}, pair.split("-")
    for number, name in enumerate(reversed(sets)):
        for language in languages:
            text = xml((str(number), [f"{name} {language}"] * (number + 1)))
            contents[f"{pair}/IWSLT14.{name}.{pair}.{language}.xml"] = text.encode()
    for language in languages:
        contents[f"{pair}/train.tags.{pair}.{language}"] = f"<url>u</url>\n<title>{language}</title>\n".encode()
    return contents


def news(id, document, summary, folder="bbc-summary-data"):
    """Name and content of an article of XSum's archive."""
    text = (
        f"[SN]URL[SN]\nhttp://example.org/{id}\n\n[SN]TITLE[SN]\nA title\n\n"
        f"[SN]FIRST-SENTENCE[SN]\n{summary}\n\n[SN]RESTBODY[SN]\n{document}\n"
    )
    return f"{folder}/{id}.summary", text.encode()

"""HTML and MyST of the pages: text of a profile, a result or a data set passes `html` or `myst` on its way into them.

Both give `Markup`, which the templates take as it is. Whatever else a template is given passes `myst`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from headdiv.companion.report.formats import plural

TEMPLATES = Path(__file__).parent / "templates"
_NO_WORD = re.compile("[^ A-Za-z0-9\u0080-\U0010ffff]")  # what may have a meaning in MyST: all of ASCII's punctuation

html = escape  # text as HTML


def myst(text: object) -> Markup:
    """Text as MyST, in one line: each sign of ASCII as a character reference, which never is structure (CommonMark)."""
    if hasattr(text, "__html__"):
        return Markup(text)
    return Markup(_NO_WORD.sub(_reference, " ".join(str(text).split())))


def _reference(sign: re.Match[str]) -> str:
    return f"&#{ord(sign[0])};" if sign[0].isprintable() else "\ufffd"


def menu(text: str) -> Markup:
    """Text as an entry of a menu: Sphinx takes it as text but for <, which begins an address, and backticks."""
    return Markup(" ".join(re.sub("[<>`]", " ", text).split()).lstrip(":"))


def fenced(content: Markup) -> Markup:
    """HTML as a block of MyST; the fence is longer than any row of backticks in it."""
    fence = "`" * (2 + max([1, *(len(row) for row in re.findall("`+", content))]))
    return Markup(f"{fence}{{raw}} html\n{html(content)}\n{fence}")


def marked(text: str) -> Markup:
    """Text with **bold** and `code` as MyST with tags of HTML; everything else in it is text."""
    parts = re.split(r"(\*\*.+?\*\*|`.+?`)", text)
    tags = {"*": "<strong>{}</strong>", "`": "<code>{}</code>"}
    return Markup().join(
        Markup(tags[part[0]]).format(myst(part.strip(part[0]))) if odd else _spaced(part)
        for odd, part in ((number % 2, part) for number, part in enumerate(parts))
    )


def _spaced(text: str) -> Markup:
    """`myst`, with the space at either end."""
    words = text.strip()
    before, _, after = text.partition(words) if words else (text, "", "")
    return Markup(" " * bool(before)) + myst(words) + Markup(" " * bool(after))


def link(address: str, text: object) -> Markup:
    """A link."""
    return Markup('<a href="{}">{}</a>').format(address, text)


def plain(frame: pd.DataFrame) -> Markup:
    """A small table, which scrolls by itself where it is wider than the page."""
    return plain_rows(frame.columns, frame.itertuples(index=False))


def plain_rows(columns: Iterable[object], rows: Iterable[Iterable[object]]) -> Markup:
    """`plain` of rows as they are: a hundred times as fast, which thousands of pages need."""
    return Markup('<div class="wide">{}</div>').format(_table(columns, rows, 'class="small"'))


def interactive(
    frame: pd.DataFrame,
    name: str,
    choices: Iterable[str] = (),
    length: int | None = None,
    opens: Iterable[str] = (),
) -> Markup:
    """A table that ``headdiv.js`` makes sortable; with ``choices`` searchable, and filtered by these columns' values.

    The rows stand in the page itself, so that they are there without scripts and for the site's search.

    Args:
        frame: cells are text, or HTML as `Markup`.
        name: the table's id.
        choices: columns.
        length: rows of a page; all on one where left out.
        opens: values of these columns that the table opens on.
    """
    lists = json.dumps([list(frame.columns).index(choice) for choice in choices])
    attributes = Markup('id="{}" class="display compact" style="width:100%" data-choices="{}" data-length="{}"{}')
    opening = Markup(' data-opens="{}"').format("&".join(opens)) if opens else ""
    rows = frame.itertuples(index=False)
    table = _table(frame.columns, rows, attributes.format(name, lists, length or -1, opening))
    return Markup('<div class="wide">{}</div>').format(table)


def _table(columns: Iterable[object], rows: Iterable[Iterable[object]], attributes: str) -> Markup:
    """The attributes are HTML; everything in the table passes `html`."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    head = _cells("th", columns)
    return Markup(f"<table {attributes}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _cells(tag: str, values: Iterable[object]) -> str:
    return "".join(f"<{tag}>{html(value)}</{tag}>" for value in values)


def picture(address: str, alternative: str, caption: str = "") -> Markup:
    """A figure that leads to its drawing."""
    image = Markup('<a href="{0}"><img src="{0}" alt="{1}"></a>').format(address, alternative)
    return Markup("<figure>{}{}</figure>").format(
        image, Markup("<figcaption>{}</figcaption>").format(caption) if caption else ""
    )


def templates() -> jinja2.Environment:
    """The templates of pages, in MyST."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, finalize=myst, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    found.filters |= {"marked": marked, "menu": menu, "plural": plural}
    found.globals |= {"plain": plain, "html": fenced, "picture": picture, "link": link}
    return found

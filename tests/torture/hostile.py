"""Texts that are code to somebody (hostile.yaml): in every text of a profile, a result and data, in every output."""

from __future__ import annotations

import ast
import copy
import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from processes import forked, make_home

LIST = Path(__file__).with_name("hostile.yaml")
TAGS = re.compile(r"<script>window|<img src=x|<svg onload|<b id=hostile>|<iframe|<style>\*|<a href=.?javascript")
CODE = re.compile(f"{TAGS.pattern}|onerror='window")  # what writes pages escapes quotes too
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FIGURES = ("deacon_figure6", "deacon_translation_curves")


def texts() -> list[str]:
    """All of them."""
    return yaml.safe_load(LIST.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Project:
    """What `reported.write_profile` writes to."""

    home: Path

    def write_config(self, name: str, text: str) -> str:
        """config/<name>.yaml."""
        (self.home / "config").mkdir(parents=True, exist_ok=True)
        (self.home / "config" / f"{name}.yaml").write_text(text, encoding="utf-8")
        return name


def put(home: Path, text: str) -> None:
    """A profile and results that say this wherever they may say anything."""
    import reported

    from headdiv.companion.experiments.run_result import metrics_path

    reported.write_profile(Project(home), "p", "translation", variants=["baseline", "direct-8"], title=text)
    for variant in ("baseline", "direct-8"):
        for seed in (1, 2):
            run = copy.deepcopy(reported.metrics(variant, seed) | {"hash": text})
            run["heads"] |= reported.measures(seed)
            run["config"]["data"]["name"] = run["config"]["train"]["remark"] = text
            for score in run["scores"].values():
                score |= {"unit": text, "signature": text}
            run["provenance"] |= dict.fromkeys(("commit", "device", "cpu", "system", "python", "instruction_set"), text)
            run["provenance"]["packages"] = {text: text}
            run["data"] |= {"refused": {text: 3}, text: text}
            reported.put(run)
            shown: dict[str, Any] = {"rows": [[text, text]], "columns": [text, "output"]}
            for name, content in (("outputs", [text]), ("examples", shown)):
                path = metrics_path("p", "deacon/translation", variant, seed).with_name(f"{name}.json")
                reported.renew(path, content)


def wrong(home: Path, text: str) -> Iterator[str]:
    """What a text does to an output of the project at ``home`` that it should not."""
    put(home, text)
    yield from _in_tables(home, text)
    yield from _in_figures(home)
    yield from _in_notebooks(text)
    yield from _in_pages(home, text)


def _in_tables(home: Path, text: str) -> Iterator[str]:
    from markdown_it import MarkdownIt

    from headdiv.companion.options import printable
    from headdiv.companion.report.table_files import as_latex, as_text
    from headdiv.companion.report.tables import table_data

    data = table_data("p", "deacon/translation")
    found = list(csv.reader(io.StringIO(data.numbers.to_csv(index=False))))
    if len({len(row) for row in found}) != 1 or len(found) != 1 + len(data.numbers):
        yield "csv: rows of different lengths"
    tokens = MarkdownIt("commonmark").enable("table").parse(data.markdown())
    inner = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in [*tokens, *inner]}
    if kinds & {"html_block", "html_inline", "link_open", "image", "fence", "blockquote_open", "hr"}:
        yield f"markdown: {sorted(kinds)}"
    if sum(token.type == "table_open" for token in tokens) != len(data.tables):
        yield "markdown: tables"
    latex = re.sub("^%.*$", "", as_latex(data), flags=re.MULTILINE)  # comments are any text
    if latex.count(r"\begin{table}") != len(data.tables) or latex.count(r"\end{table}") != len(data.tables):
        yield "latex: tables"
    if re.search(r"(?<!\\)\\(?:input|write18|frac)\b", latex):
        yield "latex: a command"
    for name, written in (("text", printable(as_text(data, 80))), ("markdown", data.markdown()), ("latex", latex)):
        if CONTROL.search(written):
            yield f"{name}: control characters"


def _in_figures(home: Path) -> Iterator[str]:
    from headdiv.companion.report.figures import write_figure

    for name in FIGURES:
        path = home / f"{name}.svg"
        write_figure(name, "p", path)
        try:
            xml.etree.ElementTree.parse(path)
        except xml.etree.ElementTree.ParseError as error:
            yield f"{name}: {error}"


def _in_notebooks(text: str) -> Iterator[str]:
    from papermill.translators import PythonTranslator

    tree = ast.parse(PythonTranslator.codify({"x": text, "y": [text, {text: text}]}))
    values = [ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)]
    if values != [text, [text, {text: text}]] or len(tree.body) != 2:
        yield "notebook: the parameter is another"


def _in_pages(home: Path, text: str) -> Iterator[str]:
    from markdown_it import MarkdownIt

    from headdiv.companion.report.site.markup import html, menu, myst
    from headdiv.companion.report.site.pages import Site

    tokens = MarkdownIt("commonmark").parse(f"before {myst(text)} after")
    inside = {child.type for child in tokens[1].children or ()}
    if [token.type for token in tokens] != ["paragraph_open", "inline", "paragraph_close"] or inside - {
        "text",
        "text_special",
    }:
        yield "myst: markup"
    if "<" in html(text) or re.search("[<>`\n]", menu(text)):
        yield "html: markup"
    site = Site("p")
    site.write(home / "source")
    pages = {path.name: path.read_text(encoding="utf-8") for path in (home / "source").glob("*.md")}
    parts = {page.name: " ".join(site._parts(page).values()) for page in site.all_pages.values()}
    for name, page in (pages | parts).items():
        if CODE.search(page):
            yield f"page {name}: code"


def attempt(torture: Any, row: Any) -> None:
    """Each of them, or three in a slice, in a project of its own."""
    every = texts()
    for number, text in enumerate(torture.chance.sample(every, len(every) if torture.share == 1 else 3)):
        home, found = make_home(torture.folder / f"hostile{number}"), torture.folder / f"hostile{number}.json"

        def act(home: Path = home, text: str = text, found: Path = found) -> None:
            found.write_text(json.dumps(list(wrong(home, text))))

        outcome = row.see(forked(act, home, 120))
        said = json.loads(found.read_text()) if found.is_file() else ["an error"]
        row.fail(f"{text!r}: {', '.join(said)}", outcome) if said else row.count("text everywhere")
        shutil.rmtree(home)

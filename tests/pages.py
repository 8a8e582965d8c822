"""A report written for a test, and its pages as parsed: what they ask for, lead to and say."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from headdiv.experiments import catalogue
from headdiv.experiments import results as store
from headdiv.experiments.profiles import Runs
from headdiv.report import figures, page

INLINE = {"a", "b", "code", "em", "span", "strong"}
VOID = {"meta", "link", "img", "br", "hr", "input"}
LOADS = {("link", "href"), ("script", "src"), ("img", "src")}


def write_site(project, profile):
    """Draw what a profile's report needs and write it: its folder."""
    folder = project.home / "results" / profile
    stored = [run for run in Runs(profile).all() if store.metrics_path(profile, *of(run)).is_file()]
    for name in catalogue.figures_of((f"{run.paper}/{run.task}", run.variant) for run in stored):
        figures.write_figure(name, profile, folder / "figures" / f"{name}.svg")
    page.write_report(profile, folder / "report")
    return folder / "report"


def of(run):
    return f"{run.paper}/{run.task}", run.variant, run.seed


class Page(HTMLParser):
    """A page: what it loads, what it links to, the ids in it, its tables as lists of rows, and all text."""

    def __init__(self, path):
        super().__init__()
        self.path, self.loads, self.links, self.ids, self.tables, self.words, self.open = path, [], [], [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        assert self.open == [], f"{path}: never closed: {self.open}"
        assert len(self.ids) == len(set(self.ids)), f"{path}: an id stands twice"
        assert not re.search(r"@import|url\(", self.source)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.loads += [value for key, value in values.items() if (tag, key) in LOADS and not value.startswith("data:")]
        self.links += [values["href"]] if tag == "a" else []
        self.ids += [values["id"]] if "id" in values else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{self.path}: </{tag}>"
        self.words += [] if tag in INLINE else [" "]

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


def site(folder):
    """Every page of a report by its name in the folder; companions are not its own and left out."""
    paths = [path for path in folder.rglob("*.html") if path.parent.name != "companions"]
    return {path.relative_to(folder).as_posix(): Page(path) for path in sorted(paths)}


def leads_to(page, address):
    """The file and the anchor of a relative address; None for one that leads out."""
    parts = urlsplit(address)
    if parts.scheme:
        return None
    return (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve(), parts.fragment

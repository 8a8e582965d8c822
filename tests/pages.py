"""A report written for a test, and its pages as parsed: what they ask for, lead to and say."""

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from headdiv.companion.experiments import catalogue
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.run_result import metrics_path
from headdiv.companion.report.site.build import write_report
from headdiv.core.files import write_text

DRAWING = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'
LOADS = {("link", "href"), ("script", "src"), ("img", "src")}


def write_site(project, profile):
    """Write the report of a profile: its folder."""
    draw_figures(project, profile)
    return write_report(profile, project.home / "results" / profile / "report").parent


def draw_figures(project, profile):
    """Each figure that the report needs, as an empty drawing."""
    stored = [run for run in Runs(profile).all() if metrics_path(profile, *of(run)).is_file()]
    for name in catalogue.figures_of((f"{run.paper}/{run.task}", run.variant) for run in stored):
        write_text(project.home / "results" / profile / "figures" / f"{name}.svg", DRAWING)


def of(run):
    return f"{run.paper}/{run.task}", run.variant, run.seed


class Page(HTMLParser):
    """A page: what it loads, what it links to, the ids in it, and all text."""

    def __init__(self, path):
        super().__init__()
        self.path, self.loads, self.links, self.ids, self.words, self.silent = path, [], [], set(), [], 0
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        loads = tag != "link" or values.get("rel") in ("stylesheet", "icon")
        self.loads += [value for key, value in values.items() if (tag, key) in LOADS and loads and value]
        self.links += [values["href"]] if tag in ("a", "link") and "href" in values else []
        self.ids |= {values["id"]} if "id" in values else set()
        self.silent += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.silent -= tag in ("script", "style")
        self.words += [" "] if tag in ("p", "td", "th", "li", "h1", "h2", "option") else []

    def handle_data(self, data):
        self.words += [] if self.silent else [data]

    def leads_to(self, address):
        """The file and the anchor of a relative address; None for one that leads out."""
        parts = urlsplit(address)
        if parts.scheme:
            return None
        return (self.path.parent / unquote(parts.path)).resolve() if parts.path else self.path, parts.fragment


def site(folder):
    """Every page of a report by its name in the folder."""
    return {path.relative_to(folder).as_posix(): Page(path) for path in sorted(folder.resolve().rglob("*.html"))}


def asks_elsewhere(source):
    """What a style sheet or page would load from a network."""
    return re.findall(r"""(?:@import|url\(|\bsrc=|fetch\()\s*["']?(?:https?:)?//[^\s"')]*""", source)

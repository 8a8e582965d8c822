"""The explorer's controls in JupyterLab: a run, a text, a module, a head, and the panels that follow them."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import ipywidgets
from IPython.display import HTML, Markdown, display
from markupsafe import escape
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler

from headdiv.analysis.masking import heads_of
from headdiv.companion.experiments.running import load_run
from headdiv.companion.report.explorer_panels import (
    Shown,
    look_at,
    show_attention,
    show_components,
    show_likeness,
    show_maps,
    show_masking,
)
from headdiv.companion.report.explorer_view import MEASURES, View, trained_runs, view_of
from headdiv.companion.report.groups import place_name
from headdiv.companion.tasks import TASKS
from headdiv.companion.tasks.base import Run
from headdiv.core import progress
from headdiv.core.errors import DataError, HeaddivError

PANELS: dict[str, Callable[[View, View | None, str], Shown]] = {  # of a view, one beside it, a measure of similarity
    "heads": lambda view, beside, measure: show_maps(view, beside),
    "attention": lambda view, beside, measure: show_attention(view),
    "similarity": lambda view, beside, measure: show_likeness(view, measure),
    "masking": lambda view, beside, measure: show_masking(view),
    "components": lambda view, beside, measure: show_components(view),
}
DPI = 90  # of figures in a panel
STILL = "headdiv-still"  # the class of the panels without controls, which the controls hide where they are shown
ASIDE = "*The controls need a running notebook (`make lab`); above is what they show for these parameters.*"


def explore(profile: str, view: View | Markdown | None = None, measure: str = "cosine") -> Explorer | Markdown:
    """The explorer, for a running notebook.

    Args:
        profile: name, or path of a YAML file; the runs to choose from are those that are trained on this machine.
        view: where it begins; `headdiv.companion.look_at` of the profile where left out.
        measure: of similarity, at first.

    Returns:
        The controls with their panels; a page that cannot show controls has the panels as they are at first. A line of
        text where no run is trained, and where a notebook is executed as a step of the pipeline: nobody could use
        controls there, and the panels are displayed as they are.

    Raises:
        ConfigError: no such profile.
    """
    view = look_at(profile) if view is None else view
    if isinstance(view, Markdown):
        return view
    if progress.interactive():
        explorer = Explorer(profile, view, measure)
        display(HTML(explorer.as_html()))
        return explorer
    for show in PANELS.values():
        display(show(view, None, measure))
    return Markdown(ASIDE)


class Explorer(ipywidgets.VBox):
    """Controls above, panels below. Setting ``.value`` of a control is what choosing there does.

    Args:
        profile: name, or path of a YAML file.
        view: where it begins.
        measure: of similarity, at first.

    Attributes:
        run: dropdown of the trained runs.
        beside: the same of a second one, whose heads stand below the first one's.
        text: what the model reads.
        other: question answering: the question. Translation and summarisation: the output that the decoder is given;
            empty: the model's own. Hidden for language models, which have none.
        place: dropdown of the attention modules.
        head: dropdown of the heads.
        measure: dropdown of the measures of similarity.
        panels: `ipywidgets.Output` by name, that of `PANELS`.
    """

    def __init__(self, profile: str, view: View, measure: str = "cosine") -> None:
        self._configs = {config.label: config for config in trained_runs(profile)}
        self._loaded: dict[str, Run] = {view.name: view.run}
        self._busy = False  # while one choice brings others along
        self._refused = False  # every panel says why there is no run
        wide = ipywidgets.Layout(width="98%")
        self.run = ipywidgets.Dropdown(
            options=list(dict.fromkeys([*self._configs, view.name])), value=view.name, description="run", layout=wide
        )
        self.beside = ipywidgets.Dropdown(options=["", *self._configs], value="", description="beside", layout=wide)
        # Lines, not areas: Enter ends the typing, and the panels follow.
        self.text = ipywidgets.Text(continuous_update=False, layout=wide)
        self.other = ipywidgets.Text(continuous_update=False, layout=wide)
        self.place = ipywidgets.Dropdown(description="layer")
        self.head = ipywidgets.Dropdown(description="head")
        self.measure = ipywidgets.Dropdown(
            options=[(measure.label, name) for name, measure in MEASURES.items()],
            value=measure,
            description="similarity",
        )
        self.panels = {name: ipywidgets.Output() for name in PANELS}
        self._begin(view)
        for control in (self.run, self.beside, self.text, self.other, self.place, self.head, self.measure):
            control.observe(self._changed, "value")
        choices = ipywidgets.HBox([self.place, self.head, self.measure], layout={"flex_flow": "row wrap"})
        panels = ipywidgets.HBox(list(self.panels.values()), layout={"flex_flow": "row wrap"})
        hide = ipywidgets.HTML(f"<style>.{STILL} {{ display: none }}</style>")
        super().__init__([hide, self.run, self.beside, self.text, self.other, choices, panels])
        self._show(list(self.panels))

    def _begin(self, view: View) -> None:
        """Every control at a view."""
        task = TASKS[view.run.config.kind]
        self.text.description, self.other.description = (*task.texts, "")[:2]
        self.other.placeholder = "" if task.second_is_input else "the model's own, where this is empty"
        self.other.layout.display = "none" if len(task.texts) == 1 else None
        self.text.value, self.other.value = view.text, view.other or ""
        self._follow(view.run, view.place, view.head)

    def _follow(self, run: Run, place: str | None, head: int | None) -> None:
        """Modules and heads to choose from are the run's; the choice stays where it can."""
        there = heads_of(run.model)
        self.place.options = [(place_name(name), name) for name in there]
        self.place.value = place if place in there else list(there)[-1]
        self.head.options = list(range(1, there[self.place.value] + 1))
        self.head.value = head if head in self.head.options else 1

    def _changed(self, change: dict[str, Any]) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            if change["owner"] is self.run:
                self._change_run(change["old"])
            elif change["owner"] is self.place:
                self._follow(self._run(), self.place.value, self.head.value)
        except HeaddivError as error:
            self._refuse(error)
        else:
            self._show(self._follows(change["owner"]))
        finally:
            self._busy = False

    def _follows(self, control: ipywidgets.Widget) -> list[str]:
        """The panels that depend on a control."""
        if self._refused or control in (self.run, self.place):
            return list(self.panels)
        own = {self.measure: ["similarity"], self.beside: ["heads"]}
        return own.get(control, ["heads", "attention", "similarity", "masking"])

    def _change_run(self, old: str) -> None:
        """The text stays if the new run's task reads the same kind of text, and was not the old one's example."""
        before, run = self._loaded.get(old), self._run()
        typed = before is not None and (self.text.value, self._other()) != before.task.example_text(before)
        if not typed or before.config.kind != run.config.kind:
            self._begin(view_of(run, place=self.place.value if self.place.value in heads_of(run.model) else None))
        else:
            self._follow(run, self.place.value, self.head.value)

    def _run(self, label: str | None = None) -> Run:
        """The chosen run, or that of this name, loaded when it is chosen first."""
        label = label or self.run.value
        if label not in self._loaded:
            self._loaded[label] = load_run(self._configs[label])
        return self._loaded[label]

    # ---- panels

    def as_html(self) -> str:
        """The panels as they are, which need neither a running notebook nor JavaScript."""
        contents = (_as_html(name, panel.outputs[0]["data"]) for name, panel in self.panels.items())
        return f'<div class="{STILL}">{"".join(contents)}</div>'

    def _show(self, names: list[str]) -> None:
        """Fill these panels; one that has nothing to show says why."""
        try:
            view = View(self._run(), self.text.value, self._other(), self.place.value, self.head.value)
        except HeaddivError as error:
            self._refuse(error)
            return
        self._refused = False
        for name in names:
            try:
                beside = self._beside(view) if name == "heads" else None
                self._put(name, PANELS[name](view, beside, self.measure.value))
            except HeaddivError as error:
                self._put(name, Markdown(str(error)))

    def _beside(self, view: View) -> View | None:
        """The second run's view of the same text and module; None where none is chosen."""
        if not self.beside.value:
            return None
        run = self._run(self.beside.value)
        if run.config.kind != view.run.config.kind:
            raise DataError(f"{self.beside.value} reads another kind of text than {view.name}")
        return view_of(run, view.text, view.other, view.place if view.place in heads_of(run.model) else None, view.head)

    def _other(self) -> str | None:
        return self.other.value or None

    def _refuse(self, error: HeaddivError) -> None:
        self._refused = True
        for name in self.panels:
            self._put(name, Markdown(str(error)))

    def _put(self, name: str, shown: Shown) -> None:
        # Not within `with panel:`, which needs a front end, and shows for a moment what was there before.
        self.panels[name].outputs = ({"output_type": "display_data", "data": displayed(shown), "metadata": {}},)


def displayed(shown: Shown) -> dict[str, str]:
    """What stands in a panel, by MIME type: a figure as PNG, a table as HTML, a line as Markdown."""
    if isinstance(shown, Figure):
        picture = io.BytesIO()
        shown.savefig(picture, format="png", dpi=DPI, facecolor="white", bbox_inches="tight")
        return {"image/png": base64.b64encode(picture.getvalue()).decode("ascii")}
    if isinstance(shown, Styler):
        return {"text/html": shown.to_html()}
    return {"text/html" if isinstance(shown, HTML) else "text/markdown": shown.data}


def _as_html(name: str, data: dict[str, str]) -> str:
    ((kind, content),) = data.items()
    if kind == "image/png":
        return f'<img src="data:image/png;base64,{content}" alt="{name}">'
    return content if kind == "text/html" else f"<p>{escape(content)}</p>"

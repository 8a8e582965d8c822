"""The explorer: what one head of a model, or of two, does with a text that is typed in, on one screen."""

from __future__ import annotations

import base64
import functools
import html
import io
from collections.abc import Sequence

from IPython.display import Image, Markdown, display
from matplotlib.figure import Figure
from matplotlib.image import imsave

from headdiv.analysis.masking import heads_of
from headdiv.companion.commands import run_command
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.shipped import PROFILE
from headdiv.companion.report.explorer_panels import SIZE, WEIGHTS, draw_views
from headdiv.companion.report.explorer_view import MEASURES, View, available_runs, load, view_of
from headdiv.companion.report.formats import shortened
from headdiv.companion.report.groups import place_name
from headdiv.companion.report.plotting import ORANGE
from headdiv.companion.tasks.base import Run
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import progress
from headdiv.core.errors import DataError, HeaddivError
from headdiv.core.settings import nearest
from headdiv.methods.deacon import Deacon
from headdiv.methods.registry import method_classes

EXAMPLES = 20  # of the test set, in the menu


def explore(
    profile: str = PROFILE,
    experiment: str | None = None,
    variant: str | None = None,
    seed: int | None = None,
    text: str | None = None,
    other: str | None = None,
    place: str | None = None,
    head: int = 1,
    measure: str = "cosine",
    beside: str | None = None,
) -> Figure | Markdown | None:
    """Controls with four panels beside them; where a notebook is executed as a step of the pipeline, the panels alone.

    Args:
        profile: name, or path of a YAML file; the runs to choose from are those that are trained on this machine, and
            the two models that come with the project, the profile "explorer"'s.
        experiment: ``<paper>/<task>``. Like all that follows, what the controls begin with.
        variant: of the experiment.
        seed: of the run. What is left out is that of the first trained run, of DEACON if there is one, since only
            DEACON has PCA layers.
        text: what the model reads, in question answering the passage; the test set's first where left out.
        other: question answering: the question. Translation and summarisation: the output that the decoder is given,
            the model's own where left out.
        place: the attention module ("encoder 1", "decoder 2", "cross 1"); the last one where left out.
        head: counted from 1.
        measure: of similarity: "cosine", "correlation", "cka", "js".
        beside: another variant of the experiment, which every panel shows as well.

    Returns:
        The panels where there are no controls; a line of text where none of these runs, or not the one beside it, is
        trained on this machine.

    Raises:
        ConfigError: no such profile, or it has no such run.
        DataError: no such measure, or the model has no such place or head.
    """
    if measure not in MEASURES:
        raise DataError(f"measure {measure!r} is not known{nearest(measure, list(MEASURES))}")
    configs = available_runs(profile, experiment, variant, seed)
    if not configs:
        return _not_trained(profile, experiment, variant, seed)
    config = min(configs, key=lambda config: not any(issubclass(cls, Deacon) for cls in method_classes(config.method)))
    chosen = [config]
    if beside:
        second = available_runs(profile, config.experiment, beside, config.seed)
        if not second:
            return _not_trained(profile, config.experiment, beside, config.seed)
        chosen += second
    views = [view_of(load(config), text, other, place, head) for config in chosen]
    if not progress.interactive():
        return draw_views(views, measure)
    _show_controls(available_runs(profile), views, measure)
    return None


def _not_trained(profile: str, experiment: str | None, variant: str | None, seed: int | None) -> Markdown:
    """A line with the command that trains the first of these runs."""
    first = Runs(profile).configs(experiment, variant, seed)[0]
    command = run_command("train", first.experiment, first.variant, first.seed, profile)
    return Markdown(f"*Profile {profile} has no such trained run on this machine; `{command}` trains one.*")


def _show_controls(configs: Sequence[RunConfig], views: Sequence[View], measure: str) -> None:
    """The controls on the left; on the right a map of each head, of which a click chooses one, above the panels."""
    import ipywidgets as widgets

    view = views[0]
    # A training that two experiments share is listed under the first alone, and may be shown as the second's.
    by_label = {config.label: config for config in (*configs, *(view.run.config for view in views))}
    loaded = functools.cache(lambda label: load(by_label[label]))

    def control(kind: type[widgets.Widget], name: str, **options: object) -> widgets.Widget:
        layout = widgets.Layout(width="98%")
        return kind(description=name, layout=layout, style={"description_width": "66px"}, **options)

    second_name = views[1].name if len(views) > 1 else ""
    run = control(widgets.Dropdown, "run", options=list(by_label), value=view.name)
    beside = control(widgets.Dropdown, "beside it", options=["", *by_label], value=second_name)
    example = control(widgets.Dropdown, "example")
    text = control(widgets.Textarea, "text", value=view.text, rows=3, continuous_update=False)
    hint = "a question, or the decoder's text"
    second = control(widgets.Text, "second", value=view.other or "", placeholder=hint, continuous_update=False)
    place = control(widgets.Dropdown, "attention", options=[view.place], value=view.place)
    measures = [(kind.label, name) for name, kind in MEASURES.items()]
    similarity = control(widgets.Dropdown, "similarity", options=measures, value=measure)
    notes, style = widgets.HTML(), widgets.HTML()
    panels = widgets.Output(layout=widgets.Layout(max_width=f"{SIZE[0]}in"))
    heads = widgets.ToggleButtons(options=range(1, view.head + 1), value=view.head)
    heads.add_class("headdiv-heads")

    def update_choices(_: object = None) -> None:
        """Offer the modules, heads and examples of the run; keep module and head where it has them."""
        model = loaded(run.value)
        counts, previous, head = heads_of(model.model), place.value, heads.value
        place.options = [(place_name(name), name) for name in counts]
        place.value = previous if previous in counts else list(counts)[-1]
        heads.options = range(1, max(counts.values()) + 1)
        heads.value = min(head, len(heads.options))
        texts = model.task.example_texts(model.corpus, "test", EXAMPLES)
        example.options = [("of your own", None), *((shortened(choice[0]), choice) for choice in texts)]
        example.value = next((choice for choice in texts if choice[0] == text.value), None)

    def fill_in(change: dict[str, object]) -> None:
        if change["new"]:
            text.value, second.value = change["new"][0], change["new"][1] or ""

    def draw(_: object = None) -> None:
        panels.clear_output(wait=True)
        with panels, progress.hidden():
            try:
                choices = text.value, second.value, place.value, heads.value
                labels = dict.fromkeys(label for label in (run.value, beside.value) if label)
                shown = [_nearest_view(loaded(label), *choices) for label in labels]
                display(_picture(draw_views(shown, similarity.value)))
            except HeaddivError as error:
                display(Markdown(str(error)))
                return
        style.value = thumbnails(shown[0])
        reference = example.value[2] if example.value and example.value[0] == text.value else None
        unknown = shown[0].run.task.unknown_words(shown[0].run, text.value)
        lines = {"Reference": reference, "Not in the vocabulary": ", ".join(unknown)}
        notes.value = "".join(f"<p><b>{name}:</b> {html.escape(line)}</p>" for name, line in lines.items() if line)

    update_choices()
    run.observe(update_choices, "value")
    example.observe(fill_in, "value")
    for widget in (run, beside, text, second, place, heads, similarity):
        widget.observe(draw, "value")
    column = [run, beside, example, text, second, place, similarity, notes, style]
    left = widgets.VBox(column, layout=widgets.Layout(width="260px", min_width="260px"))
    right = widgets.VBox([heads, panels], layout=widgets.Layout(flex="1 1 300px", min_width="0"))
    # Where there is no room beside the controls, as on a telephone, the panels stand below them.
    display(widgets.HBox([left, right], layout=widgets.Layout(flex_flow="row wrap")))
    draw()


def _picture(figure: Figure) -> Image:
    """The figure with twice its resolution, so that it stays legible where a narrow window shrinks it."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * figure.dpi, facecolor="white")
    return Image(file.getvalue(), format="png", alt="the four panels")


def _nearest_view(run: Run, text: str, other: str, place: str, head: int) -> View:
    """The view of a module and head, or of the last ones where the run does not have them."""
    counts = heads_of(run.model)
    place = place if place in counts else list(counts)[-1]
    return View(run, text, other or None, place, min(head, counts[place]))


def thumbnails(view: View) -> str:
    """The style of the heads' buttons: each shows its head's attention map, the chosen one in a frame."""
    weights = view.attention.weights  # (H, N, S)
    rules = [
        ".headdiv-heads button {width: 58px !important; height: 58px !important; padding: 0; line-height: 12px; "
        "display: inline-flex !important; align-items: flex-start; justify-content: flex-start; color: black; "
        "border: 1px solid #bbb; image-rendering: pixelated; background-size: 100% 100% !important}",
        f".headdiv-heads button:nth-of-type({view.head}) {{border: 3px solid {ORANGE}}}",
        f".headdiv-heads button:nth-of-type(n + {len(weights) + 1}) {{display: none !important}}",
    ]
    for number, cells in enumerate(weights, start=1):
        file = io.BytesIO()
        imsave(file, cells, cmap=WEIGHTS, vmin=0, vmax=weights.max(), format="png")
        picture = f"url(data:image/png;base64,{base64.b64encode(file.getvalue()).decode()})"
        rules.append(f".headdiv-heads button:nth-of-type({number}) {{background-image: {picture} !important}}")
    return f"<style>{' '.join(rules)}</style>"

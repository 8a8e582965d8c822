"""The explorer: what one head of a model, or of two, does with a text that is typed in, on one screen."""

from __future__ import annotations

import base64
import functools
import html
import io
from collections.abc import Sequence

from IPython.display import Markdown, display
from matplotlib.figure import Figure
from matplotlib.image import imsave

from headdiv.analysis.masking import heads_of
from headdiv.companion.commands import run_command
from headdiv.companion.experiments.profiles import Runs
from headdiv.companion.experiments.shipped import PROFILE
from headdiv.companion.report.explorer_panels import WEIGHTS, draw_views
from headdiv.companion.report.explorer_view import MEASURES, View, available_runs, load, view_of
from headdiv.companion.report.formats import shortened
from headdiv.companion.report.groups import place_name
from headdiv.companion.report.plotting import ORANGE
from headdiv.companion.tasks.run_config import RunConfig
from headdiv.core import progress
from headdiv.core.errors import HeaddivError
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
        experiment: ``<paper>/<task>``. It, variant, seed and all that follows are what the controls begin with.
        variant: of the experiment.
        seed: of the run. Of what is left out the first trained run is taken, DEACON's before all others, since they
            alone have PCA layers.
        text: what the model reads, in question answering the passage; the test set's first where left out.
        other: question answering: the question. Translation and summarisation: the output that the decoder is given,
            the model's own where left out.
        place: the attention module ("encoder 1", "decoder 2", "cross 1"); the last one where left out.
        head: counted from 1.
        measure: of similarity: "cosine", "correlation", "cka", "js".
        beside: another variant of the experiment, which every panel shows as well.

    Returns:
        The panels where there are no controls; a line of text where none of these runs is trained on this machine.

    Raises:
        ConfigError: no such profile, or it has no such run.
        DataError: the model has no such place or head.
    """
    configs = available_runs(profile, experiment, variant, seed)
    if not configs:
        first = Runs(profile).of(experiment, variant, seed)[0]
        command = run_command("train", first.experiment, first.variant, first.seed, profile)
        return Markdown(f"*Profile {profile} has no such trained run on this machine; `{command}` trains one.*")
    config = min(configs, key=lambda config: not any(issubclass(cls, Deacon) for cls in method_classes(config.method)))
    shown = [config, *(available_runs(profile, config.experiment, beside, config.seed)[:1] if beside else [])]
    views = [view_of(load(config), text, other, place, head) for config in shown]
    if not progress.interactive():
        return draw_views(views, measure)
    _show_controls(available_runs(profile), shown, views[0], text, other or "", measure)
    return None


def _show_controls(
    configs: Sequence[RunConfig], shown: Sequence[RunConfig], view: View, text: str | None, other: str, measure: str
) -> None:
    """Left the controls, right a map of each head, of which a click chooses one, and the panels below."""
    import ipywidgets as widgets

    by_label = {config.label: config for config in configs}
    loaded = functools.cache(lambda label: load(by_label[label]))
    wide = widgets.Layout(width="98%")

    def control(kind: type[widgets.Widget], name: str, **options: object) -> widgets.Widget:
        looks = {"description_width": "66px"}
        return kind(description=name, layout=wide, style=looks, **options)

    labels = list(by_label)
    run = control(widgets.Dropdown, "run", options=labels, value=shown[0].label)
    beside = control(widgets.Dropdown, "beside it", options=["", *labels], value=shown[1].label if shown[1:] else "")
    example = control(widgets.Dropdown, "example")
    typed = control(widgets.Textarea, "text", value=text or view.text, rows=3, continuous_update=False)
    second = control(
        widgets.Text, "second", value=other, placeholder="a question, or the decoder's text", continuous_update=False
    )
    place = control(widgets.Dropdown, "attention")
    measures = [(kind.label, name) for name, kind in MEASURES.items()]
    chosen = control(widgets.Dropdown, "similarity", options=measures, value=measure)
    notes, style, panels = widgets.HTML(), widgets.HTML(), widgets.Output()
    strip = widgets.HBox()
    state = {"head": view.head}

    def follow(_: object = None) -> None:
        """Modules, heads and examples to choose from are the run's; the module stays where it can."""
        model = loaded(run.value)
        strip.children = [button(number) for number in range(1, max(heads_of(model.model).values()) + 1)]
        places, before = list(heads_of(model.model)), place.value or view.place
        place.options = [(place_name(name), name) for name in places]
        place.value = before if before in places else places[-1]
        texts = model.task.example_texts(model, EXAMPLES)
        example.options = [("of your own", None), *((shortened(found[0]), found) for found in texts)]

    def take(change: dict[str, object]) -> None:
        if change["new"]:
            typed.value, second.value = change["new"][0], change["new"][1] or ""

    def draw(_: object = None) -> None:
        views, reference = [], example.value[2] if example.value and example.value[0] == typed.value else None
        names = dict.fromkeys(name for name in (run.value, beside.value) if name)
        panels.clear_output(wait=True)
        with panels, progress.hidden():
            try:
                for name in names:
                    there = heads_of(loaded(name).model)
                    here = place.value if place.value in there else list(there)[-1]
                    views.append(
                        view_of(loaded(name), typed.value, second.value or None, here, min(state["head"], there[here]))
                    )
                figure = draw_views(views, chosen.value)
                style.value = thumbnails(views[0])
                unknown = views[0].run.task.unknown_words(views[0].run, typed.value)
                lines = {"Reference": reference, "Not in the vocabulary": ", ".join(unknown)}
                notes.value = "".join(
                    f"<p><b>{name}:</b> {html.escape(line)}</p>" for name, line in lines.items() if line
                )
                display(figure)
            except HeaddivError as error:
                display(Markdown(str(error)))

    def choose(button: widgets.Button) -> None:
        state["head"] = int(button.description)
        draw()

    def button(number: int) -> widgets.Button:
        made = widgets.Button(description=str(number), layout=widgets.Layout(width="58px", height="58px"))
        made.add_class(f"headdiv-head-{number}")
        made.on_click(choose)
        return made

    follow()
    run.observe(follow, "value")
    example.observe(take, "value")
    for widget in (run, beside, typed, second, place, chosen):
        widget.observe(draw, "value")
    column = [run, beside, example, typed, second, place, chosen, notes, style]
    left = widgets.VBox(column, layout=widgets.Layout(width="260px", min_width="260px"))
    right = widgets.VBox([strip, panels])
    display(widgets.HBox([left, right]))
    draw()


def thumbnails(view: View) -> str:
    """The style of the heads' buttons: each shows its head's attention map, the chosen one in a frame."""
    weights = view.attention().weights  # (H, N, S)
    rules = []
    for number, cells in enumerate(weights, start=1):
        file = io.BytesIO()
        imsave(file, cells, cmap=WEIGHTS, vmin=0, vmax=weights.max(), format="png")
        picture = base64.b64encode(file.getvalue()).decode()
        frame = f"3px solid {ORANGE}" if number == view.head else "1px solid #bbb"
        rules.append(
            f".headdiv-head-{number} {{background: url(data:image/png;base64,{picture}) 0 0 / 100% 100%; "
            f"image-rendering: pixelated; border: {frame}; padding: 0; line-height: 12px; "
            "display: flex !important; align-items: flex-start; justify-content: flex-start}"
        )
    rest = f'[class*="headdiv-head-"]:nth-child(n + {len(weights) + 1}) {{display: none !important}}'
    return f"<style>{' '.join([*rules, rest])}</style>"

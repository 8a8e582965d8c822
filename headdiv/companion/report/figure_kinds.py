"""What a figure is, and the kinds that papers' files name: each one record with the function that draws it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from headdiv.companion.experiments.profiles import Runs
from headdiv.core.settings import Settings


@dataclass(frozen=True)
class FigureEntry:
    """A figure: its kind, the experiment whose runs it needs, and what it shows."""

    name: str
    kind: FigureKind
    experiment: str
    caption: str
    label: str = ""  # what its title and errors call it: "Figure 6"
    variants: tuple[str, ...] = ()  # one of these must be in the profile; none named: any will do
    against: tuple[str, ...] = ()  # and all of these
    beside: tuple[str, ...] = ()  # further experiments: their runs are shown as well where the profile has them
    options: dict[str, Any] = field(default_factory=dict)  # what its kind asks for besides

    @property
    def paper(self) -> str:
        """The paper that the figure belongs to."""
        return self.experiment.partition("/")[0]

    def planned_in(self, runs: Runs) -> bool:
        """Whether a profile's runs allow it."""
        if self.experiment not in runs.experiments():
            return False
        variants = {config.variant for config in runs.planned(self.experiment)}
        shown = not self.variants or bool(variants & set(self.variants))
        return shown and variants.issuperset(self.against) and self.kind.planned(runs, self.experiment)

    def experiments_in(self, experiments: Iterable[str]) -> list[str]:
        """The experiments whose runs it shows, of a profile's; what importance it draws is that of all of its paper."""
        known = list(experiments)
        if self.kind.of_importance:
            return [name for name in known if name.startswith(f"{self.paper}/")]
        return [name for name in (self.experiment, *self.beside) if name in known]


DrawFigure = Callable[[str, FigureEntry], Figure]  # of a profile


class NoOptions(Settings):
    """Nothing."""


@dataclass(frozen=True)
class FigureKind:
    """A way to draw.

    Attributes:
        draw: the function; it raises `NotStoredError` where what it draws is not stored.
        caption: of figures without their own; braces are filled from label and options. "": each needs its own.
        Options: the keys of the figure's ``options``.
        planned: what a profile's experiment must have besides runs.
        of_importance: it is drawn from what `headdiv importance` stores.
        compares: it is about what it sets side by side, and says what of it is not stored.
    """

    draw: DrawFigure
    caption: str = ""
    Options: type[Settings] = NoOptions
    planned: Callable[[Runs, str], bool] = lambda runs, experiment: True
    of_importance: bool = False
    compares: bool = False


KINDS: dict[str, FigureKind] = {}  # by what papers' files call them


def figure_kind(name: str, **about: Any) -> Callable[[DrawFigure], DrawFigure]:
    """Make a function a kind of figure; ``about`` are `FigureKind`'s other attributes."""

    def added(draw: DrawFigure) -> DrawFigure:
        KINDS[name] = FigureKind(draw, **about)
        return draw

    return added

"""What a figure is, and the kinds that papers' files name: figures of which a paper says what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from headdiv.companion.experiments.papers import BASELINE
from headdiv.companion.experiments.profiles import Runs

DrawFigure = Callable[..., Figure]  # of a profile's name, a `FigureEntry`, and its options as keyword arguments


@dataclass(frozen=True)
class FigureEntry:
    """A figure, with the function that draws it from the stored results of a profile."""

    name: str
    draw: DrawFigure  # which raises `NotStoredError` where what it draws is not stored
    experiment: str = ""  # whose runs it needs
    caption: str = ""  # that of its kind, or its own
    label: str = ""  # what its title and errors call it: "Figure 6"
    variants: tuple[str, ...] = ()  # one of these must be there; none named: any will do
    beside: tuple[str, ...] = ()  # further experiments: their runs are shown as well where the profile has them
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of `draw`
    against_baseline: bool = False  # it compares the others with the baseline, which must be there as well
    setting: str = ""  # of train, without which nothing of it is measured
    pruning: bool = False  # it shows heads being masked, which is measured where the experiment asks for it
    compares: bool = False  # it sets variants side by side, and says which of them are not stored

    @property
    def names(self) -> tuple[str, ...]:
        """The variants that it names, the baseline first where it compares with it; () for all that there are."""
        return (BASELINE, *self.variants) if self.against_baseline and self.variants else self.variants

    @property
    def paper(self) -> str:
        """The paper that the figure belongs to."""
        return self.experiment.partition("/")[0]

    def lacks(self, variants: Iterable[str]) -> str:
        """What it needs of its experiment's variants besides these, "baseline and alphas or cosine"; "" for nothing."""
        available = set(variants)
        needed = [BASELINE] if self.against_baseline and BASELINE not in available else []
        if self.variants and not available.intersection(self.variants):
            needed.append(" or ".join(self.variants))
        return " and ".join(needed)

    def planned_in(self, runs: Runs) -> bool:
        """Whether a profile's runs allow it."""
        if self.experiment not in runs.experiments():
            return False
        if self.pruning and self.experiment not in runs.pruned():
            return False
        planned = runs.planned(self.experiment)
        measured = not self.setting or any(getattr(config.train, self.setting) for config in planned)
        return measured and not self.lacks(config.variant for config in planned)

    def experiments_in(self, runs: Runs) -> list[str]:
        """The experiments of a profile that it shows."""
        return [name for name in (self.experiment, *self.beside) if name in runs.experiments()]


KINDS: dict[str, FigureEntry] = {}  # by what papers' files call them


def figure_kind(name: str, **attributes: Any) -> Callable[[DrawFigure], DrawFigure]:
    """Make a function a kind of figure; ``attributes`` of `FigureEntry` are those that all its figures share."""

    def register(draw: DrawFigure) -> DrawFigure:
        KINDS[name] = FigureEntry(name, draw, **attributes)
        return draw

    return register

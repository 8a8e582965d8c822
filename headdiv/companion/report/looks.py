"""How methods look: one colour and marker for each, the same in every figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from matplotlib.colors import to_hex, to_rgb

from headdiv.companion.experiments.papers import task_of
from headdiv.companion.report.groups import Groups

Look = dict[str, Any]  # of lines: color, marker, ls

# Paul Tol's "muted" scheme, which colour-blind readers tell apart, and two darker ones. Related methods share a colour.
# None of them is the blue or the orange of a verdict.
OF_METHODS = {
    "baseline": ("#222222", "o"),
    "deacon": ("#332288", "s"),
    "deacon average": ("#6699CC", "s"),
    "deacon nonlinear": ("#661100", "s"),
    "head-scale": ("#44AA99", "^"),
    "mixing": ("#CC6677", "v"),
    "rotation": ("#882255", "<"),
    "dynamic-rotation": ("#882255", ">"),
    "disagreement": ("#AA4499", "P"),
    "orthogonality": ("#AA4499", "^"),
    "hsic": ("#AA4499", "h"),
    "dpp": ("#88CCEE", "X"),
    "homeostasis": ("#117733", "D"),  # and by what it does to the heads
    "homeostasis none": ("#7F8F7F", "d"),  # dropout alone
    "homeostasis dropout": ("#7F8F7F", "d"),
    "homeostasis kwta": ("#6FBF73", "D"),
    "homeostasis rfb-kwta": ("#117733", "D"),
    "homeostasis smart": ("#0B3D1B", "D"),
    "moa": ("#999933", "p"),
    "drop-head": ("#DDCC77", "D"),
    "combined": ("#777777", "*"),
}
OTHER = ("#777777", "o")  # a method from outside the project
DASHES = ("-", "--", ":", "-.")
SHADES = (0.0, 0.35, 0.6)  # how far towards white


def look_of(method: Mapping[str, Any]) -> tuple[str, str]:
    """Colour and marker of a method by its options."""
    name = method.get("name", "")
    specific = f"{name} {method.get('attention', method.get('architecture'))}"
    return OF_METHODS.get(specific) or OF_METHODS.get(name, OTHER)


def looks(methods: Mapping[str, Mapping[str, Any]]) -> dict[str, Look]:
    """The look of each row by its method's options: those of one method differ in shade and dashes, in this order."""
    seen: Counter[tuple[str, str]] = Counter()
    styles = {}
    for row, method in methods.items():
        colour, marker = look = look_of(method)
        number = seen[look]
        seen[look] += 1
        shade, dashes = SHADES[number % len(SHADES)], DASHES[number % len(DASHES)]
        styles[row] = {"color": _lighter(colour, shade), "marker": marker, "ls": dashes}
    return styles


def looks_of(experiment: str, groups: Groups) -> dict[str, Look]:
    """The look of each variant: the same in all figures of an experiment, by its place in the paper's table.

    The profile's own follow, in their order.
    """
    methods = {name: row.method for name, row in task_of(experiment).variants.items()}
    styles = looks(methods | {variant: runs[0].config.method for variant, runs in groups.items()})
    return {variant: styles[variant] for variant in groups}


def _lighter(colour: str, shade: float) -> str:
    return to_hex([channel + shade * (1 - channel) for channel in to_rgb(colour)])

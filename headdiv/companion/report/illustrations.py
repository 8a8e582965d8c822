"""Small figures that explain a method, computed when they are drawn; they report no result."""

from __future__ import annotations

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from headdiv.companion.report.plotting import BLUE, GREEN, MEDIUM, ORANGE, SMALL, STYLE, new_figure
from headdiv.gha import deacon_update, gha_inner_loop, principal_components
from headdiv.methods.kwta import boost, keep_probabilities, survivors


@matplotlib.rc_context(STYLE)
def gha_convergence(k: int = 8, m: int = 8, seed: int = 1) -> Figure:
    """How near each column of w comes to its principal component as the inner loop runs.

    C has the eigenvalues 1, 0.8, 0.8², …; w starts from random orthonormal columns.
    """
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(k, k, generator=generator, dtype=torch.float64))[0]
    C = basis @ torch.diag(0.8 ** torch.arange(k, dtype=torch.float64)) @ basis.T
    start = torch.linalg.qr(torch.randn(k, m, generator=generator, dtype=torch.float64))[0]
    target = principal_components(C, m)
    steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
    found = torch.stack([gha_inner_loop(C, start, i) for i in steps])  # (points, k, m)
    cosines = ((found * target).sum(dim=1) / found.norm(dim=1)).abs()
    figure, ((ax,),) = new_figure(5.6, 3.2)
    for component, colour in enumerate(matplotlib.colormaps["viridis"](np.linspace(0, 1, m + 2)[1:-1])):
        ax.plot(steps, cosines[:, component], color=colour, marker="o", ms=3, label=f"{component + 1}")
    ax.axvline(500, color="0.5", lw=1, ls="--")
    ax.annotate("the paper's i = 500", (500, 0.04), xytext=(4, 0), textcoords="offset points", fontsize=SMALL)
    limits = {"xscale": "log", "ylim": (0, 1.03), "xlim": (0.9, 1e4)}
    ax.set(**limits, xlabel="iterations of Sanger's rule", ylabel="|cosine| with the component")
    side = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    ax.legend(title="component", frameon=False, fontsize=SMALL, title_fontsize=SMALL, **side)
    return figure


@matplotlib.rc_context(STYLE)
def deacon_geometry(xi: float = 0.8, delta_p: float = 0.2) -> Figure:
    """DEACON's step in the plane of G and F: always on the circle of radius δP, always the demanded descent."""
    G = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    directions = {"F across G": (0.0, 1.0), "F with −G": (-1.0, 0.3), "F against −G": (1.0, -0.6)}
    figure, axes = new_figure(7.6, 2.9, 1, 3, sharey=True)
    for ax, (title, F) in zip(axes[0], directions.items(), strict=True):
        F = torch.tensor([F], dtype=torch.float64)
        F = delta_p * F / F.norm()
        dw = deacon_update(G, F, delta_p, xi)
        angles = torch.linspace(0, 2 * torch.pi, 200)
        ax.plot(delta_p * angles.cos(), delta_p * angles.sin(), color="0.8", lw=1)
        ax.axvline(-xi * delta_p, color="0.6", lw=1, ls=":")
        arrows = (("−G", -delta_p * G, "#0072B2"), ("F", F, "#E69F00"), ("dw", dw, "#000000"))
        for label, vector, colour in arrows:
            x, y = vector[0].tolist()
            ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "lw": 1.6})
            ax.annotate(label, (1.18 * x, 1.18 * y), color=colour, ha="center", va="center", fontsize=MEDIUM)
        limit = 1.45 * delta_p
        ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="along G")
        ax.set_title(title)
    axes[0][0].set_ylabel("across G")
    return figure


INTERPRETATIONS = {  # of Eq. 7 of the homeostasis paper
    "inhibition": ("inhibition: 1 − P is kept", BLUE, "-"),
    "inverted": ("inverted: P of max − t is kept", GREEN, "-."),
    "printed": ("printed: P is kept", ORANGE, "--"),
}
SPARSITIES = ((0.2, ":"), (0.5, "--"), (0.8, "-"))


@matplotlib.rc_context(STYLE)
def inhibition_readings(s: float = 0.9, units: int = 64) -> Figure:
    """Effect of a unit's activity: "smart" inhibition under three interpretations of its formula, and RFB's boost.

    Of units whose activity is spread evenly from never to always. Left: the probability of being kept (Eqs. 7 and 8),
    with s its median. Right: what values are multiplied by (Eq. 6) for three shares of winners.
    """
    shares = torch.linspace(0, 1, units, dtype=torch.float64)
    counts = (10_000 * shares).round().long()
    figure, ((left, right),) = new_figure(8.4, 3.2, 1, 2)
    for name, (label, colour, line) in INTERPRETATIONS.items():
        left.plot(shares, keep_probabilities(counts, s, name), color=colour, ls=line, lw=1.6, label=label)
    left.axhline(s, color="0.6", lw=1, zorder=0)
    left.annotate("s", (1.02, s), xycoords=("axes fraction", "data"), va="center")
    left.set(ylim=(0, 1.03), ylabel="probability of being kept")
    left.legend(frameon=False, fontsize=SMALL, loc="lower center")
    for share, line in SPARSITIES:
        boosts = boost(counts, survivors(units, share))
        right.plot(shares, boosts, color=BLUE, ls=line, lw=1.6, label=f"s = {share}")
    right.axhline(1, color="0.6", lw=1, zorder=0)
    right.set(ylim=(0, None), ylabel="factor of the unit's value")
    right.legend(frameon=False, fontsize=SMALL)
    for ax in (left, right):
        ax.set_xlabel("share of rows in which the unit was active")
    return figure

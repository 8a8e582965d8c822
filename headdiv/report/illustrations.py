"""Small figures that explain a method, computed on the spot; they report no result."""

from __future__ import annotations

import matplotlib
import seaborn as sns
import torch
from matplotlib.figure import Figure

from headdiv.gha import deacon_update, gha_inner_loop, principal_components
from headdiv.report.figures import STYLE


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
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        ax = figure.subplots()
        for component, colour in enumerate(sns.color_palette("viridis", m)):
            ax.plot(steps, cosines[:, component], color=colour, marker="o", ms=3, label=f"{component + 1}")
        ax.axvline(500, color="0.5", lw=1, ls="--")
        ax.annotate("the paper's i = 500", (500, 0.3), xytext=(4, 0), textcoords="offset points", fontsize=8)
        ax.set(xscale="log", ylim=(0, 1.03), xlabel="iterations of Sanger's rule", ylabel="|cosine| with the component")
        ax.legend(
            title="component", frameon=False, fontsize=8, title_fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5)
        )
    return figure


def deacon_geometry(xi: float = 0.8, delta_p: float = 0.2) -> Figure:
    """DEACON's step in the plane of G and F: always on the circle of radius δP, always the demanded descent."""
    G = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    directions = {"F across G": (0.0, 1.0), "F with −G": (-1.0, 0.3), "F against −G": (1.0, -0.6)}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.9), layout="constrained")
        for ax, (title, F) in zip(figure.subplots(1, 3, sharey=True), directions.items(), strict=True):
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
                ax.annotate(label, (1.18 * x, 1.18 * y), color=colour, ha="center", va="center", fontsize=9)
            limit = 1.45 * delta_p
            ax.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal", xlabel="along G")
            ax.set_title(title)
        figure.axes[0].set_ylabel("across G")
    return figure

"""Small figures that explain a method, computed when they are drawn; they report no result."""

from __future__ import annotations

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from headdiv.companion.report.heads import skew_share
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


MIXTURES = {  # of two heads, beside the identity
    "each takes b of the other, with opposite signs": ([[0, 1], [-1, 0]], BLUE, "-"),
    "one takes b of the other": ([[0, 1], [0, 0]], GREEN, "-."),
    "each takes b of the other, with the same sign": ([[0, 1], [1, 0]], ORANGE, "--"),
}


@matplotlib.rc_context(STYLE)
def nuclear_growth(heads: int = 8, starts: int = 10) -> Figure:
    """Which mixtures of heads a growing nuclear norm asks for: those in which two heads take opposite shares.

    Left: ‖I + b E‖_* of two heads for three ways E of mixing them. Right: the share of the skew-symmetric part while
    A follows the gradient of its nuclear norm, U Vᵀ for A = U S Vᵀ, from the identity and a little noise.
    """
    generator = torch.Generator().manual_seed(1)
    noise = 0.01 * torch.randn(starts, heads, heads, generator=generator, dtype=torch.float64)
    A, steps, shares, norms = torch.eye(heads, dtype=torch.float64) + noise, 100, [], []
    for _ in range(steps):
        U, S, V = torch.linalg.svd(A)
        shares.append([skew_share(one.numpy()) for one in A])
        norms.append(S.sum(-1).tolist())
        A = A + 3 / steps * (U @ V)
    b = torch.linspace(0, 1, 50, dtype=torch.float64)
    figure, ((left, right),) = new_figure(8.4, 3.2, 1, 2)
    for label, (mixture, colour, line) in MIXTURES.items():
        mixed = torch.eye(2, dtype=torch.float64) + b[:, None, None] * torch.tensor(mixture)  # (50, 2, 2)
        left.plot(b, torch.linalg.svdvals(mixed).sum(-1), color=colour, ls=line, label=label)
    left.set(xlabel="b", ylabel="nuclear norm of two heads' A")
    left.legend(frameon=False, fontsize=SMALL, loc="upper left")
    left.set_ylim(1.95, 3.2)
    right.plot(norms, shares, color=BLUE, lw=1, alpha=0.6)
    right.axhline(0.5, color="0.5", lw=1, ls="--")
    right.annotate("chance", (norms[-1][0], 0.5), xytext=(0, 4), textcoords="offset points", ha="right", fontsize=SMALL)
    right.set(ylim=(0, 1.03), xlabel=f"nuclear norm of {heads} heads' A, growing", ylabel="skew share off the diagonal")
    return figure


@matplotlib.rc_context(STYLE)
def determinant_volume() -> Figure:
    """det L of two heads as the squared area that they span, by the angle between them and their entropy.

    A head is a vector of length q = 1 / (1 + entropy) in the direction φ. Disagreement has its best value where two
    heads are opposite, the determinant where they are orthogonal.
    """
    heads = {"sharp and different": (75, 0.2), "sharp and alike": (20, 0.2), "diffuse and different": (75, 1.2)}
    degrees = np.linspace(0, 180, 181)
    figure, ((*examples, curves),) = new_figure(10, 2.9, 1, 4, width_ratios=(1.1, 1.1, 1.1, 1.9))
    for ax, (label, (angle, entropy)) in zip(examples, heads.items(), strict=True):
        B = _two_heads(np.array([angle]), entropy)[0]  # (2, 2), a column for each head
        (x, y), (u, v) = B.T
        ax.fill([0, x, x + u, u], [0, y, y + v, v], color=BLUE, alpha=0.2, lw=0)
        for tip in B.T:
            ax.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "->", "color": BLUE, "lw": 1.6})
        ax.set(xlim=(-0.05, 1.7), ylim=(-0.05, 0.9), aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_title(f"{label}\n{angle}°, {entropy} nats\ndet L = {np.linalg.det(B.T @ B):.2f}", fontsize=SMALL)
    for entropy, colour in zip((0, 0.5, 1), matplotlib.colormaps["viridis"]((0.25, 0.5, 0.75)), strict=True):
        B = _two_heads(degrees, entropy)  # (181, 2, 2)
        curves.plot(degrees, np.linalg.det(B.transpose(0, 2, 1) @ B), color=colour, label=f"det L, {entropy} nats")
    disagreement = -(1 + np.cos(np.radians(degrees))) / 2
    curves.plot(degrees, 1 + disagreement, color="0.4", ls="--", label="1 + disagreement")
    curves.set(xlabel="angle between the two heads (degrees)", xticks=range(0, 181, 45), ylim=(0, 1.03))
    curves.legend(frameon=False, fontsize=SMALL, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _two_heads(degrees: np.ndarray, entropy: float) -> np.ndarray:
    """q φ of two heads at these angles, one in each column: (N,) -> (N, 2, 2)."""
    angles, q = np.radians(degrees), 1 / (1 + entropy)
    first = np.stack([np.ones_like(angles), np.zeros_like(angles)], axis=1)  # (N, 2)
    second = np.stack([np.cos(angles), np.sin(angles)], axis=1)  # (N, 2)
    return q * np.stack([first, second], axis=2)


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

"""Generalized Hebbian Algorithm and DEACON's update (Ampazis & Sakketou 2024, sections 2.1 and 2.2).

Row form throughout: rows x of X (N, k) are centred samples, y = x w, w (k, m) holds one component per
column in the order of decreasing eigenvalue, C = XᵀX / N (k, k). Averaged over the rows, Sanger's rule
needs C only, so the inner loop never touches the N rows again. Every function but `joined_moments` takes
any leading dimensions and works on them as one batch, which is how the modules of a model are updated
together.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from headdiv.core import distributed
from headdiv.core.precision import at_least_float32

__all__ = [
    "covariance",
    "deacon_update",
    "gha_inner_loop",
    "hebbian_direction",
    "joined_moments",
    "moments",
    "pooled_covariance",
    "principal_components",
    "sanger_rule",
    "stable_learning_rate",
]

Direction = Literal["gha", "sanger", "eigenvectors"]
SMALL = 2**18  # multiplications of C w in all modules up to which the CPU's loop is faster than a GPU's launches


def moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of rows (..., N, k) -> (..., k), (..., k, k); sums of half precision are in float32."""
    wide = at_least_float32(rows)
    mean = wide.mean(dim=-2, keepdim=True)
    centred = wide - mean
    C = centred.transpose(-2, -1) @ centred / rows.shape[-2]
    return mean.squeeze(-2).to(rows.dtype), C.to(rows.dtype)


def covariance(rows: Tensor) -> Tensor:
    """C = XᵀX / N of the centred rows (..., N, k) -> (..., k, k)."""
    return moments(rows)[1]


Moments = tuple[int, Tensor, Tensor]  # of rows: their number, mean (k,) and covariance (k, k)


def joined_moments(moments: Moments, other: Moments) -> Moments:
    """Moments of the rows of both together (Chan et al. 1983); of no rows mean and C may be anything finite."""
    (n, mean, C), (n_other, mean_other, C_other) = moments, other
    total = max(n + n_other, 1)
    share = n_other / total
    difference = mean_other - mean
    joined = (1 - share) * C + share * C_other + share * (1 - share) * torch.outer(difference, difference)
    return n + n_other, mean + share * difference, joined


def pooled_covariance(rows: Tensor, mean: Tensor, C: Tensor) -> Tensor:
    """C over the rows of all ranks, from the number, mean and C of each rank's own rows.

    Args:
        rows: their number (...,).
        mean: (..., k).
        C: (..., k, k).
    """
    n = distributed.total(rows)[..., None]
    offset = mean - distributed.total(mean * rows[..., None]) / n
    scatter = C + offset[..., :, None] * offset[..., None, :]
    return distributed.total(scatter * rows[..., None, None]) / n[..., None]


def sanger_rule(C: Tensor, w: Tensor) -> Tensor:
    """F(w) = C w − w triu(wᵀ C w): Eq. 14 (in Eq. 12 with a learning rate) averaged over the rows.

    The paper writes y yᵀ with the elements above the diagonal set to zero; for w with components in
    columns that is the upper triangle with the diagonal.

    Args:
        C: covariances (..., k, k).
        w: weights (..., k, m).

    Returns:
        The direction (..., k, m) in which one step of the rule moves w.
    """
    dtype = w.dtype
    C, w = at_least_float32(C), at_least_float32(w)
    Cw = C @ w
    return (Cw - w @ (w.transpose(-2, -1) @ Cw).triu()).to(dtype)


def stable_learning_rate(C: Tensor, w: Tensor) -> Tensor:
    """A rate at which Sanger's rule does not overshoot: 1 / (2 ‖C‖_∞ max(1, ‖wᵀw‖_∞)), one for each leading index.

    ‖·‖_∞ (largest absolute row sum) bounds the largest eigenvalue, so a step shortens or lengthens no
    component by more than half. The paper does not state its rate. C = 0, or one too small to
    divide by, gives 0: nothing moves.
    """
    dtype = w.dtype
    C, w = at_least_float32(C), at_least_float32(w)
    bound = _row_sum_norm(C) * _row_sum_norm(w.transpose(-2, -1) @ w).clamp(min=1)
    rate = 0.5 / bound  # infinite for C = 0, and for one too small to divide by
    return torch.where(rate.isfinite(), rate, torch.zeros_like(rate)).to(dtype)


def gha_inner_loop(C: Tensor, w: Tensor, steps: int, lr: float | Tensor | None = None) -> Tensor:
    """Apply Sanger's rule ``steps`` times to a copy of w, with C held fixed.

    On the CPU the loop runs in NumPy: its calls cost a third of torch's on matrices this small
    (six modules, k = m = 8, 500 steps: 2.8 ms against 9.5 ms). From a GPU small matrices are moved to the CPU: there
    500 steps are 3,000 launches, 33 ms whatever the size.

    Args:
        C: covariances (..., k, k).
        w: weights (..., k, m) to start from; left as they are.
        steps: number of iterations, the paper's i (it uses 500).
        lr: learning rate η, a number or one per leading index; by default `stable_learning_rate`,
            computed anew after 10, 30, 70, … steps, since it grows as w shrinks to unit columns.

    Returns:
        The weights (..., k, m) after the last step. They converge to `principal_components` (up to
        the sign of each column) as steps grows. The displacement from w is DEACON's F.
    """
    dtype, device = w.dtype, w.device
    C, w = at_least_float32(C.detach()), at_least_float32(w.detach())
    w = w.expand(torch.broadcast_shapes(C.shape[:-2], w.shape[:-2]) + w.shape[-2:]).clone()
    if device.type == "cuda" and w.numel() * w.shape[-2] <= SMALL:
        C, w = C.cpu(), w.cpu()
    upper = torch.ones(w.shape[-1], w.shape[-1], dtype=w.dtype, device=w.device).triu()
    done, block = 0, steps if lr is not None else 10
    while done < steps:
        rate = stable_learning_rate(C, w) if lr is None else torch.as_tensor(lr, dtype=w.dtype, device=w.device)
        scaled = rate[..., None, None] * C  # η C
        block = min(block, steps - done)
        if w.device.type == "cpu":
            _iterate(np, scaled.numpy(), w.numpy(), upper.numpy(), block)  # writes to w's own memory
        else:
            _iterate(torch, scaled, w, upper, block)
        done, block = done + block, 2 * block
    return w.to(device, dtype)


def _iterate(xp: Any, C: Any, w: Any, upper: Any, steps: int) -> None:
    """w ← w + C w − w triu(wᵀ C w), in place; xp is the module (numpy or torch) of the arrays."""
    w_transposed = w.swapaxes(-2, -1)
    Cw, correction = xp.empty_like(w), xp.empty_like(w)
    yy = xp.matmul(w_transposed, w)  # (..., m, m), here for its shape only
    for _ in range(steps):
        xp.matmul(C, w, out=Cw)
        xp.matmul(w_transposed, Cw, out=yy)
        xp.multiply(yy, upper, out=yy)
        xp.matmul(w, yy, out=correction)
        Cw -= correction
        w += Cw


def principal_components(C: Tensor, m: int) -> Tensor:
    """The limit of `gha_inner_loop`: C's m leading eigenvectors as unit columns (..., k, m).

    The sign of an eigenvector is free; here its element of largest magnitude is positive.

    Raises:
        ValueError: m is not between 1 and k.
    """
    k = C.shape[-1]
    if not 1 <= m <= k:
        raise ValueError(f"m must be between 1 and k = {k}, found {m}")
    _, vectors = torch.linalg.eigh(at_least_float32(C))  # ascending
    leading = vectors.flip(-1)[..., :m]
    largest = leading.gather(-2, leading.abs().argmax(dim=-2, keepdim=True))
    return (leading * largest.sign()).to(C.dtype)


def hebbian_direction(C: Tensor, w: Tensor, direction: Direction = "gha", steps: int = 500) -> Tensor:
    """F, the direction in which the Hebbian rule moves w.

    Args:
        C: covariances (..., k, k).
        w: weights (..., k, m).
        direction: gha: how far ``steps`` iterations of Eq. 14 move a copy of w; sanger: one step of it; eigenvectors:
            the way to the exact components.
        steps: the paper's i.

    Returns:
        F (..., k, m).
    """
    if direction == "gha":
        return gha_inner_loop(C, w, steps) - w
    if direction == "sanger":
        return sanger_rule(C, w)
    exact = principal_components(C, w.shape[-1])
    sign = (exact * w).sum(dim=-2, keepdim=True).sign()  # that of an eigenvector is arbitrary: take the nearer
    return exact * torch.where(sign == 0, 1.0, sign) - w


def deacon_update(G: Tensor, F: Tensor, delta_p: float, xi: float) -> Tensor:
    """DEACON's step, Eqs. 13 and 15 to 19:

        dw = −λ₁/(2 λ₂) G + 1/(2 λ₂) F                                                 (13)
        λ₁ = (I_GF − 2 λ₂ δQ) / I_GG               I_GG = ‖G‖²    I_GF = ⟨G, F⟩         (15, 16)
        λ₂ = ½ √((I_FF I_GG − I_GF²) / (I_GG δP² − δQ²))          I_FF = ⟨F, F⟩         (17, 18)
        δQ = −ξ δP √I_GG                                                               (19)

    in closed form: with g = G/‖G‖ and F⊥ = F − ⟨F, g⟩ g,

        dw = −ξ δP g + √(1 − ξ²) δP F⊥/‖F⊥‖,

    the dw of length δP with ⟨G, dw⟩ = −ξ δP ‖G‖ for which ⟨F, dw⟩ is largest. Norms and products run
    over the last two dimensions; each leading index is a problem of its own.

    Where the equations give no answer:

    - G = 0: nothing is demanded of the loss, dw = δP F/‖F‖.
    - F = 0 or F ∥ G: no direction is preferred besides g, dw = −ξ δP g. The loss falls by what is
      demanded and nothing moves arbitrarily; the length is then ξ δP.
    - both zero: dw = 0.
    - NaN or an infinity in G or F: dw of that leading index is NaN throughout, the others are
      unaffected. (A run stops at a loss that is not finite before it gets here.)

    Args:
        G: gradient of the loss at w (..., k, m).
        F: direction of the Hebbian rule (..., k, m).
        delta_p: δP > 0, the length of the step.
        xi: ξ in (0, 1), the share of the steepest possible descent that is demanded.

    Raises:
        ValueError: delta_p or xi is out of its range, or G and F have two shapes, which torch would broadcast.
    """
    if G.shape != F.shape:
        raise ValueError(f"G and F: found the shapes {tuple(G.shape)} and {tuple(F.shape)}, expected one shape")
    if not (delta_p > 0 and 0 < xi < 1):
        raise ValueError(f"found delta_p = {delta_p} and xi = {xi}, expected delta_p > 0 and 0 < xi < 1")
    dtype = G.dtype
    g, has_g = _unit(at_least_float32(G))
    f, has_f = _unit(at_least_float32(F))
    perpendicular = f - _inner(f, g) * g
    perpendicular = perpendicular - _inner(perpendicular, g) * g  # again, for rounding
    size = _inner(perpendicular, perpendicular).sqrt()
    rounding = 4 * torch.finfo(f.dtype).eps * (f.shape[-2] * f.shape[-1]) ** 0.5
    direction = torch.where(size <= rounding, torch.zeros_like(f), perpendicular / size)
    step = -xi * g + (1 - xi * xi) ** 0.5 * direction
    step = torch.where(has_g, step, torch.where(has_f, f, torch.zeros_like(f)))
    return (delta_p * step).to(dtype)


def _inner(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ over the last two dimensions, which stay with size 1."""
    return (a * b).sum(dim=(-2, -1), keepdim=True)


def _unit(x: Tensor) -> tuple[Tensor, Tensor]:
    """x/‖x‖ (0 for x = 0) and whether x ≠ 0. Scaled first, so that no square over- or underflows."""
    largest = x.abs().amax(dim=(-2, -1), keepdim=True)
    nonzero = largest != 0
    scaled = x / torch.where(nonzero, largest, torch.ones_like(largest))
    length = _inner(scaled, scaled).sqrt()
    return scaled / torch.where(nonzero, length, torch.ones_like(length)), nonzero


def _row_sum_norm(x: Tensor) -> Tensor:
    return x.abs().sum(dim=-1).amax(dim=-1)

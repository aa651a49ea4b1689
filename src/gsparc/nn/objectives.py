"""The losses that turn a network into eigenfunctions. Free functions on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = [
    "Average",
    "contrastive_loss",
    "contrastive_loss_reference",
    "generalisation_score",
    "info_nce_loss",
    "nesting_masks",
    "rayleigh_loss",
]


Average = Callable[[Tensor], Tensor]
"""The mean of a tensor over several processes; each has a share of one large batch."""


def nesting_masks(k: int, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Masks ``[k]`` and ``[k, k]`` of joint nesting: the mean over all prefixes of the components.

    Component ``l`` takes part in the ``k - l`` prefixes that contain it, a pair in those that
    contain both; minimising the mean of the prefix losses orders the components
    (nested low-rank approximation, Ryu et al., arXiv 2402.03655).
    """
    share = torch.arange(k, 0, -1, device=like.device, dtype=like.dtype) / k
    return share, torch.minimum(share[:, None], share[None, :])


def contrastive_loss(source: Tensor, target: Tensor, *, nested: bool = False, average: Average | None = None) -> Tensor:
    """Low-rank loss whose minimiser spans the leading eigenspace of the edge operator.

    ``-2 E_edges[f_i . f_j] + 2 |E f|^2 + E_{i,j ~ pi}[(f_i . f_j)^2]`` (HaoChen et al., arXiv
    2106.04156). The middle term holds the constant eigenfunction, which is fixed and
    not learned. Both expectations under ``pi`` use two independent halves of the batch,
    which keeps the estimate unbiased, and Gram matrices, which keep it ``O(B k^2)``.

    Parameters
    ----------
    source, target
        ``[B, k]`` function values at the two ends of ``B`` edges drawn with probability
        proportional to their weight; each end is then distributed as ``pi``.
    nested
        Weigh the components by :func:`nesting_masks`, so that they come out in order.
    average
        Where the edges are a share of a batch: makes the means and Gram matrices those of the whole batch. The loss is
        a polynomial in them, not a mean over edges, so that averaging the losses of the shares would be another loss.
    """
    if average is None and len(source) % 2 == 0:
        loss = _Contrastive.apply(source, target, nested)
        assert isinstance(loss, Tensor)
        return loss
    return contrastive_loss_reference(source, target, nested=nested, average=average)


def contrastive_loss_reference(
    source: Tensor, target: Tensor, *, nested: bool = False, average: Average | None = None
) -> Tensor:
    """:func:`contrastive_loss` as it is written, for any number of edges and of processes."""
    half = source.shape[0] // 2
    halves = zip(*(ends.split([half, len(ends) - half]) for ends in (source, target)), strict=True)
    first, second = (torch.cat(both) for both in halves)  # [B, k] each
    gram_1 = first.T @ first / len(first)
    gram_2 = second.T @ second / len(second)
    attraction = (source * target).mean(dim=0)
    mean_1, mean_2 = first.mean(dim=0), second.mean(dim=0)
    if average is not None:
        moments = torch.stack([mean_1, mean_2, attraction])  # [3, k]: one message with the Gram matrices below it
        moments, gram_1, gram_2 = average(torch.cat([moments, gram_1, gram_2])).split([3, len(gram_1), len(gram_2)])
        mean_1, mean_2, attraction = moments
    means = mean_1 * mean_2
    if nested:
        single, pair = nesting_masks(source.shape[1], like=source)
        return (single * (2 * means - 2 * attraction)).sum() + (pair * gram_1 * gram_2).sum()
    return (2 * means - 2 * attraction).sum() + (gram_1 * gram_2).sum()


class _Contrastive(torch.autograd.Function):
    """:func:`contrastive_loss_reference` of an even number of edges, its gradient written by hand.

    Function values of a batch are small, and starting a kernel takes a GPU longer than running it: this needs half as
    many.
    """

    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, nested: bool) -> Tensor:
        (count, k), half = source.shape, len(source) // 2
        # [2, B, k]: in each half of the batch both ends of its edges
        ends = torch.cat([source[:half], target[:half], source[half:], target[half:]]).view(2, count, k)
        grams, sums = torch.bmm(ends.transpose(1, 2), ends), ends.sum(dim=1)  # [2, k, k], [2, k]
        masks = nesting_masks(k, like=source) if nested else None
        ctx.save_for_backward(ends, grams, sums, *(masks or ()))
        first, second = sums
        gram = grams[0]
        if masks is not None:
            first, source, gram = masks[0] * first, masks[0] * source, masks[1] * gram
        spread = (first * second).sum() * 2 + (gram * grams[1]).sum()
        return spread / count**2 - (source * target).sum() * (2 / count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        ends, grams, sums, *masks = ctx.saved_tensors
        _, count, k = ends.shape
        grams, sums = grams.flip(0), sums.flip(0)  # each half meets those of the other
        partners = ends.view(2, 2, -1, k).flip(1).view(2, count, k)
        if masks:
            grams, sums, partners = masks[1] * grams, masks[0] * sums, masks[0] * partners
        scale = 2 / count**2
        slope = torch.baddbmm(sums[:, None, :], ends, grams, beta=scale, alpha=scale)
        slope = (slope.add_(partners, alpha=-2 / count) * grads[0]).view(2, 2, -1, k)
        return slope[:, 0].reshape(count, k), slope[:, 1].reshape(count, k), None


def rayleigh_loss(source: Tensor, target: Tensor, *, floor: float = 0.05, average: Average | None = None) -> Tensor:
    """Value of ``trace(Y^T L Y) / m`` over sampled edges, gradient of its constrained, balanced form.

    With the energies ``E = E[(y_i - y_j)(y_i - y_j)^T] / 2`` the value is ``trace(E)``: for orthonormal ``Y``
    the sum of ``1 - mu``. Its plain gradient has two faults in a mini-batch. It shrinks every
    function to a constant between two orthogonalisation steps; and it spends itself on the rough
    components, whose energies are hundreds of times those of the smooth ones. So the gradient is
    that of ``log det E - log det(Y^T Y)`` at orthonormal ``Y``, which has the same minimiser: the leading
    eigenspace. ``floor`` is added to the energies that are divided by, so that sampling noise is not.
    ``average`` is that of :func:`contrastive_loss`.
    """
    difference = source - target
    energy = difference.T @ difference / (2 * len(source))  # [k, k]
    ends = torch.cat([source, target])
    mean = ends.mean(dim=0)
    if average is not None:
        energy, mean = average(torch.cat([energy, mean[None, :]])).split([len(energy), 1])
    ends = ends - mean
    norms = ends.square().sum() / len(ends)
    if average is not None:
        norms = average(norms)
    with torch.no_grad():
        eye = torch.eye(len(energy), device=energy.device, dtype=energy.dtype)
        balance = torch.linalg.inv(energy + floor * eye)
    direction = (balance * energy).sum() - norms
    return direction - direction.detach() + energy.detach().trace()


def info_nce_loss(source: Tensor, target: Tensor, temperature: float | Tensor, mask: Tensor | None = None):
    """Symmetric InfoNCE over a batch of edges; ``mask [B, B]`` marks false negatives to ignore."""
    source, target = F.normalize(torch.cat([source, target]), dim=1).split(len(source))
    logits = source @ target.T / temperature  # [B, B]
    if mask is not None:
        logits = logits.masked_fill(mask, float("-inf"))
    labels = torch.arange(len(logits), device=logits.device)
    return 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels))


def generalisation_score(
    attraction: Tensor, mean: Tensor, gram: Tensor, mean_held: Tensor, gram_held: Tensor
) -> Tensor:
    """How much of held-out nodes' edges the functions explain; higher is better.

    The negated :func:`contrastive_loss` with one end of every edge in the held-out nodes, after
    the functions were made centred and orthonormal on the seen nodes.

    Parameters
    ----------
    attraction
        Mean over the held-out edges of the product of the values at their two ends.
    mean, gram
        ``[k]`` mean and ``[k, k]`` second moments of the functions over the seen nodes.
    mean_held, gram_held
        The same over the held-out nodes, each by its share of the held-out edges.
    """
    return 2 * attraction - 2 * (mean * mean_held).sum() - (gram * gram_held).sum()

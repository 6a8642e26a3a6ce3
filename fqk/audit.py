"""The causality audit: does a prediction change when a token after it does?

A causal language model's logits at position i are a function of tokens 0 … i. The audit replaces one
token at a time and looks at all logits: T forward passes, in batches, give the whole map of which token
moves which prediction. Nothing is estimated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Audit:
    """What :func:`audit` found.

    ``influence[i, j]``, shape (T, T), is the largest change of a logit at position i when token j is
    replaced; above the diagonal (j > i) it is what position i reads of its future. ``noise`` is the same
    when nothing is replaced, 0 for a deterministic model.
    """

    influence: NDArray[np.float64]
    noise: float

    @property
    def leaks(self) -> NDArray[np.bool_]:
        """Where a later token moves a prediction by more than the noise, shape (T, T)."""
        moved = ~(self.influence <= self.noise)  # NaN counts as moved
        return np.triu(moved, 1)

    @property
    def causal(self) -> bool:
        return not self.leaks.any()

    @property
    def first_leak(self) -> tuple[int, int] | None:
        """The first pair (i, j), j > i, in reading order: prediction i depends on token j."""
        pairs = np.argwhere(self.leaks)
        return (int(pairs[0, 0]), int(pairs[0, 1])) if len(pairs) else None

    @property
    def lag_profile(self) -> NDArray[np.float64]:
        """The largest influence of the token h positions ahead, for h = 1 … T−1, shape (T−1,)."""
        length = len(self.influence)
        return np.array([np.diagonal(self.influence, h).max() for h in range(1, length)])


@torch.no_grad()
def audit(
    model: Callable[[Tensor], Tensor],
    *,
    vocab_size: int,
    seq_len: int,
    tokens: Tensor | None = None,
    batch_size: int = 32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Audit:
    """Replace each token of a window in turn and compare all logits with those of the window itself.

    Args:
        model: token ids (B, T) → logits (B, T, V), in the mode in which it is to be judged.
        vocab_size: ids are 0 … vocab_size − 1.
        seq_len: T.
        tokens: the window, shape (T,); random ids by default.
        batch_size: windows a forward pass.
        device: where the token ids are put.
        seed: of the window, of the replacements, and of torch's generator before each pass, so that a
            model that draws (dropout, random phases) draws the same each time.

    Every replaced window is compared with the unreplaced one *in the same row of a batch of the same
    size*, so that on one machine a causal model's logits agree to the bit.
    """
    generator = torch.Generator().manual_seed(seed)
    if tokens is None:
        tokens = torch.randint(vocab_size, (seq_len,), generator=generator)
    shift = torch.randint(1, vocab_size, (seq_len,), generator=generator)
    replaced = tokens.repeat(seq_len, 1)
    replaced.diagonal().copy_((tokens + shift) % vocab_size)

    def logits(batch: Tensor) -> Tensor:
        torch.manual_seed(seed)
        return model(batch.to(device))

    def change(batch: Tensor) -> Tensor:
        found = logits(batch)
        return (found - base).abs().masked_fill(found == base, 0).amax(-1)  # −∞ − −∞ is no change

    base = logits(tokens.repeat(batch_size, 1))
    noise = change(tokens.repeat(batch_size, 1)).amax().item()
    columns = []
    for start in range(0, seq_len, batch_size):
        batch = replaced[start : start + batch_size]
        filled = torch.cat([batch, tokens.repeat(batch_size - len(batch), 1)])
        columns.append(change(filled)[: len(batch)])
    return Audit(torch.cat(columns).T.cpu().double().numpy(), noise)

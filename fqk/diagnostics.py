"""What a trained model is asked: losses in order, shuffled and from prefixes; the floor; a sample.

All losses are cross-entropies in nats a token, one value a window, so that a mean comes with its error.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fqk.corpus import Corpus

BATCH = 64


@torch.no_grad()
def window_losses(model: nn.Module, windows: Tensor) -> Tensor:
    """The ordered loss of each window of shape (N, T+1): mean over its T targets, shape (N,)."""
    return torch.cat(
        [
            F.cross_entropy(
                model(batch[:, :-1]).float().transpose(1, 2), batch[:, 1:], reduction="none"
            ).mean(1)
            for batch in windows.to(_device(model)).split(BATCH)
        ]
    ).cpu()


def shuffled_losses(model: nn.Module, windows: Tensor, seed: int = 0) -> Tensor:
    """The paper's diagnostic: the loss on the same windows, each in an order of its own, shape (N,)."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(windows.shape, generator=generator).argsort(1)
    return window_losses(model, windows.gather(1, order))


def permutation_floors(windows: Tensor) -> Tensor:
    """What a uniformly shuffled window costs a causal predictor at least, on average; shape (N,).

    All (T+1)!/Π n_c! distinct orders of a window with counts n_c are equally likely, so that its T+1
    tokens together cost ln (T+1)! − Σ ln n_c! nats; less H₁, the entropy of the first, which is given:
    (ln (T+1)! − Σ ln n_c! − H₁)/T a target. This grants the predictor the counts. A shuffled loss below
    it proves that the model reads ahead; one above it proves nothing.
    """
    counts = F.one_hot(windows).sum(1).double()
    length = windows.shape[1]
    orders = torch.lgamma(torch.tensor(length + 1.0).double()) - torch.lgamma(counts + 1).sum(1)
    first = torch.special.entr(counts / length).sum(1)
    return (orders - first) / (length - 1)


def guess_losses(corpus: Corpus) -> dict[str, float]:
    """What three predictors without a network cost on the validation text, in nats a token.

    All symbols equally likely; each as often as in the training text; each as often as it follows the
    last symbol there. Counts start at 1.
    """
    size, train, val = corpus.vocab_size, corpus.train, corpus.val
    single = 1.0 + torch.bincount(train, minlength=size)
    pairs = (1.0 + torch.bincount(train[:-1] * size + train[1:], minlength=size**2)).view(size, size)
    after = pairs / pairs.sum(1, keepdim=True)
    return {
        "uniform": math.log(size),
        "by frequency": -(single / single.sum()).log()[val].mean().item(),
        "by the last character": -after.log()[val[:-1], val[1:]].mean().item(),
    }


def prefix_losses(model: nn.Module, windows: Tensor, positions: Tensor) -> Tensor:
    """The loss when the input is cut off after the position predicted from, as generation does; (N,).

    The mean over ``positions`` only, shape (P,).
    """
    return _losses_at(model, windows, positions, [windows[:, : t + 1] for t in positions.tolist()])


def horizon_losses(
    model: nn.Module, windows: Tensor, positions: Tensor, vocab_size: int, horizon: int = 0
) -> Tensor:
    """The loss when the model at position t may see tokens ≤ t + ``horizon``, random ones beyond; (N,).

    At 0 it is the prefix loss with the input kept at length T. A causal model's does not depend on the
    horizon, up to rounding. The mean over ``positions`` only, shape (P,).
    """
    inputs = windows[:, :-1]
    noise = torch.randint(vocab_size, inputs.shape, generator=torch.Generator().manual_seed(0))
    index = torch.arange(inputs.shape[1])
    seen = [torch.where(index <= t + horizon, inputs, noise) for t in positions.tolist()]
    return _losses_at(model, windows, positions, seen)


@torch.no_grad()
def _losses_at(model: nn.Module, windows: Tensor, positions: Tensor, inputs: Sequence[Tensor]) -> Tensor:
    """The loss of windows (N, T+1) at each position t, from an input (N, ≥ t+1) of its own."""
    device = _device(model)
    total = torch.zeros(len(windows))
    for t, given in zip(positions.tolist(), inputs, strict=True):
        logits = torch.cat([model(batch)[:, t].float().cpu() for batch in given.to(device).split(BATCH)])
        total += F.cross_entropy(logits, windows[:, t + 1], reduction="none")
    return total / len(positions)


@torch.no_grad()
def sample(model: nn.Module, corpus: Corpus, prompt: str, length: int, context: int) -> str:
    """``prompt`` and ``length`` symbols drawn one by one from the model at temperature 1, seeded."""
    torch.manual_seed(0)
    tokens = corpus.encode(prompt).to(_device(model))
    for _ in range(length):
        logits = model(tokens[None, -context:])[0, -1].float()
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(0), 1)])
    return corpus.decode(tokens)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device

"""What a trained model is asked: losses in order, shuffled and from prefixes; the floor; a sample.

All losses are cross-entropies in nats a token, one value a window, so that a mean comes with its error.
"""

import math

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


@torch.no_grad()
def prefix_losses(
    model: nn.Module, windows: Tensor, positions: Tensor, vocab_size: int | None = None
) -> Tensor:
    """The loss when the prediction for position t is made from tokens ≤ t alone, shape (N,).

    The input is cut off after t, which is what generation does; or, given ``vocab_size``, it is kept
    at length T with random tokens from t+1 on. The mean over ``positions`` only, shape (P,).
    """
    generator = torch.Generator().manual_seed(0)
    windows = windows.to(_device(model))
    total = torch.zeros(len(windows), device=windows.device)
    for t in positions.tolist():
        prefix, target = windows[:, : t + 1], windows[:, t + 1]
        if vocab_size is not None:
            shape = (len(windows), windows.shape[1] - 2 - t)
            noise = torch.randint(vocab_size, shape, generator=generator)
            prefix = torch.cat([prefix, noise.to(prefix)], dim=1)
        logits = torch.cat([model(batch)[:, t] for batch in prefix.split(BATCH)]).float()
        total += F.cross_entropy(logits, target, reduction="none")
    return total.cpu() / len(positions)


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

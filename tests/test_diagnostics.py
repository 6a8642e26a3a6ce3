"""What a model is asked: losses by hand, the floor by brute force, prefixes, samples."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fqk import diagnostics
from fqk.corpus import Corpus
from fqk.diagnostics import guess_losses
from fqk.model import build_model
from fqk.records import load_model
from fqk.variants import VARIANTS

POSITIONS = torch.arange(7, 64, 8)
PADDED = partial(diagnostics.horizon_losses, vocab_size=65)


class ReadsAhead(nn.Embedding):
    """Puts nearly all probability on the token after the current one, which it looks up."""

    def forward(self, tokens):
        return 9 * F.one_hot(tokens.roll(-1, dims=1), self.num_embeddings).float()


def test_window_losses_are_the_mean_negative_log_probabilities_of_the_targets():
    torch.manual_seed(0)
    bigram = nn.Embedding(5, 5)  # logits of the next token, by the current one
    windows = torch.randint(5, (70, 9))  # more than a batch
    table = bigram.weight.detach().double().numpy()
    log_p = table - np.log(np.exp(table).sum(1, keepdims=True))
    expected = [-np.mean([log_p[a, b] for a, b in itertools.pairwise(w)]) for w in windows.tolist()]
    losses = diagnostics.window_losses(bigram, windows)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_shuffled_losses_are_those_of_the_same_tokens_in_random_orders():
    """The mean over many orders is that of two tokens drawn one after the other, none put back."""
    torch.manual_seed(0)
    bigram = nn.Embedding(5, 5)
    windows = torch.arange(5).repeat(300, 4)  # 0 1 2 3 4 0 1 …
    shuffled = diagnostics.shuffled_losses(bigram, windows)
    log_p = bigram.weight.detach().log_softmax(1)
    pairs = 4 / 20 * (4 - torch.eye(5)) / 19  # 4 of 20 tokens are a; of the 19 left, 4 or 3 are b
    assert shuffled.mean().item() == pytest.approx(-(pairs * log_p).sum().item(), abs=0.02)
    assert len(shuffled.unique()) > 250
    assert diagnostics.shuffled_losses(bigram, windows).equal(shuffled)
    assert not diagnostics.shuffled_losses(bigram, windows, seed=1).equal(shuffled)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=7))
def test_permutation_floor_is_the_ideal_predictors_loss_over_all_orders(window):
    """The ideal predictor knows the counts: p(next) is its share among the tokens that remain."""
    orders = sorted(set(itertools.permutations(window)))
    total = 0.0
    for order in orders:
        for t in range(1, len(order)):
            total -= math.log(order[t:].count(order[t]) / len(order[t:]))
    expected = total / len(orders) / (len(window) - 1)
    (floor,) = diagnostics.permutation_floors(torch.tensor([window])).tolist()
    assert floor == pytest.approx(expected, abs=1e-9)


def test_no_order_costs_nothing_where_all_tokens_are_alike():
    windows = torch.tensor([[3, 3, 3, 3], [0, 1, 2, 3]])
    same, distinct = diagnostics.permutation_floors(windows).tolist()
    assert same == 0
    assert distinct == pytest.approx(math.log(math.factorial(3)) / 3)


@pytest.mark.parametrize("trained", [False, True])
def test_causal_model_does_not_beat_the_floor_on_shuffled_windows(trained, results, corpus):
    model = load_model(results, "smoke", "base-dot")
    model = model if trained else build_model("base-dot", "smoke")
    windows = corpus.windows(64, 300)
    excess = diagnostics.shuffled_losses(model, windows) - diagnostics.permutation_floors(windows)
    assert excess.mean() > -3 * excess.std() / len(excess) ** 0.5


def test_model_that_reads_ahead_beats_the_floor_on_shuffled_windows(corpus):
    windows = corpus.windows(64, 50)
    losses = diagnostics.shuffled_losses(ReadsAhead(65, 1), windows)
    assert (losses < diagnostics.permutation_floors(windows) / 2).all()


@pytest.mark.parametrize("prefix_losses", [diagnostics.prefix_losses, PADDED], ids=["truncated", "padded"])
@pytest.mark.parametrize("name", VARIANTS)
def test_prefix_loss_is_the_ordered_loss_if_and_only_if_the_model_is_causal(
    name, prefix_losses, sharp_model, causal_names, corpus
):
    model, windows = sharp_model(VARIANTS[name]), corpus.windows(64, 5)
    with torch.no_grad():
        log_p = model(windows[:, :-1]).log_softmax(-1)
    ordered = -log_p.gather(2, windows[:, 1:, None])[:, POSITIONS, 0].mean(1)
    prefix = prefix_losses(model, windows, POSITIONS)
    change = (prefix - ordered).abs().max()
    assert change < 1e-5 if name in causal_names else change > 1e-4


def test_prefix_loss_hides_the_future_from_a_trained_model(results, excerpt):
    """Both ways, the loss of the leaking variant rises and that of base-dot stays."""
    windows = excerpt.windows(64)
    for name, leaks in (("base-dot", False), ("multifourier-qk", True)):
        model = load_model(results, "smoke", name)
        ordered = diagnostics.window_losses(model, windows)
        every = torch.arange(64)
        for prefix_losses in (diagnostics.prefix_losses, PADDED):
            change = (prefix_losses(model, windows, every) - ordered).abs().max()
            assert change > 1e-3 if leaks else change < 1e-5, (name, prefix_losses)


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_model_that_reads_one_ahead_needs_a_horizon_of_one(ahead, corpus):
    """It knows the next token as soon as it may see it, and guesses before."""
    windows, positions = corpus.windows(64, 20), torch.arange(0, 60, 7)
    losses = diagnostics.horizon_losses(ReadsAhead(65, 1), windows, positions, 65, ahead)
    known = torch.full((20,), math.log1p(64 * math.exp(-9)))
    assert losses.allclose(known, atol=1e-6) if ahead else (losses > 4).all()


def test_a_horizon_of_the_whole_window_hides_nothing(sharp_model, corpus):
    model, windows = sharp_model(VARIANTS["fourier-qk"]), corpus.windows(64, 5)
    every = torch.arange(64)
    whole = diagnostics.horizon_losses(model, windows, every, 65, 64)
    assert whole.allclose(diagnostics.window_losses(model, windows), atol=1e-5)


def test_what_lies_beyond_the_horizon_is_random_tokens_of_the_vocabulary():
    class Spy(nn.Embedding):
        def forward(self, tokens):
            seen.append(tokens)
            return super().forward(tokens)

    seen, windows = [], torch.full((40, 33), 2)
    diagnostics.horizon_losses(Spy(4, 4), windows, torch.tensor([0, 10, 29]), vocab_size=4, horizon=2)
    for tokens, t in zip(seen, (0, 10, 29), strict=True):
        assert tokens.shape == (40, 32)
        assert (tokens[:, : t + 3] == 2).all()
        rest = tokens[:, t + 3 :].flatten()
        assert t == 29 or rest.bincount(minlength=4).min() > 0.2 * len(rest)


def test_sample_repeats_and_starts_with_its_prompt(results, excerpt):
    model = load_model(results, "smoke", "base-dot")
    texts = []
    for seed in (1, 2):  # the caller's generator does not matter
        torch.manual_seed(seed)
        texts.append(diagnostics.sample(model, excerpt, "First ", 100, context=64))
    assert texts[0] == texts[1]
    assert texts[0].startswith("First ")
    assert len(texts[0]) == 106
    assert len(set(texts[0])) > 10


def test_sample_follows_the_models_probabilities(excerpt):
    """A model that is sure of the next symbol gives the alphabet, past its context too."""
    successor = nn.Embedding.from_pretrained(100 * torch.eye(65).roll(1, dims=1))
    text = diagnostics.sample(successor, excerpt, "abc", 10, context=4)
    assert text == "abcdefghijklm"


def test_guesses_cost_what_counting_by_hand_says() -> None:
    """Ten "ab" pairs: 18 symbols train and 2 validate, as "ab"."""
    costs = guess_losses(Corpus("pairs", "ab" * 10, "ab"))
    assert costs["uniform"] == pytest.approx(math.log(2))
    assert costs["by frequency"] == pytest.approx(math.log(2))  # nine of each
    assert costs["by the last character"] == pytest.approx(-math.log(10 / 11))  # "b" followed nine "a"s

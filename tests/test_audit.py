"""The audit: exact on models whose influence is known, and on every variant of the registry."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fqk.audit import audit
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.variants import VARIANTS

VOCAB = 11


def reads_ahead_by(lag):
    """A model whose logits at i are the one-hot lookup of token i + lag; none at the end."""

    def model(tokens: Tensor) -> Tensor:
        return F.pad(F.one_hot(tokens[:, lag:], VOCAB), (0, 0, 0, lag)).float()

    return model


def sums_the_past(tokens: Tensor) -> Tensor:
    """A causal model: how often each token has occurred so far."""
    return F.one_hot(tokens, VOCAB).cumsum(1).float()


@pytest.mark.parametrize("name", VARIANTS)
def test_variant_is_causal_to_the_bit_or_leaks_at_many_lags(name, sharp_model, causal_names):
    found = audit(sharp_model(VARIANTS[name]), vocab_size=65, seq_len=64)
    assert found.noise == 0
    assert (np.diagonal(found.influence) > 0).all()
    assert found.causal == (name in causal_names)
    if found.causal:
        assert not np.triu(found.influence, 1).any()
        assert found.first_leak is None
    else:
        # the first position has one key to attend to, so that only FNet's can read ahead
        assert found.first_leak == ((1, 2) if VARIANTS[name].attends else (0, 1))
        assert (found.lag_profile[:40] > 1e-3).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_verdict_needs_no_training(name, causal_names):
    found = audit(build_model(name, "smoke").eval(), vocab_size=65, seq_len=64)
    assert found.causal == (name in causal_names)


@pytest.mark.parametrize("lag", [1, 3, 9])
def test_lookahead_is_found_at_exactly_its_lag(lag):
    found = audit(reads_ahead_by(lag), vocab_size=VOCAB, seq_len=10)
    assert (found.influence == np.eye(10, k=lag)).all()
    assert (found.leaks == np.eye(10, k=lag, dtype=bool)).all()
    assert found.lag_profile.tolist() == [float(h == lag) for h in range(1, 10)]
    assert found.first_leak == (0, lag)
    assert not found.causal


def test_model_of_the_past_is_causal_with_all_its_influence_on_and_below_the_diagonal():
    found = audit(sums_the_past, vocab_size=VOCAB, seq_len=10)
    assert found.causal
    assert (found.influence == np.tri(10)).all()
    assert found.first_leak is None


def test_influence_is_the_largest_change_of_a_logit():
    def model(tokens: Tensor) -> Tensor:
        return torch.stack([tokens, -5 * tokens], dim=-1).float()  # vocabulary of 2: a flip is ±1

    assert (audit(model, vocab_size=2, seq_len=6).influence == 5 * np.eye(6)).all()


@pytest.mark.parametrize("batch_size", [1, 3, 4, 7, 10, 64])
def test_batch_size_changes_neither_map_nor_the_number_of_windows_beyond_filling(batch_size):
    rows = []

    def model(tokens: Tensor) -> Tensor:
        rows.append(len(tokens))
        return sums_the_past(tokens) + reads_ahead_by(2)(tokens)

    found = audit(model, vocab_size=VOCAB, seq_len=10, batch_size=batch_size)
    assert (found.influence == np.tri(10) + np.eye(10, k=2)).all()
    passes = 2 + -(-10 // batch_size)  # the window itself twice, then every token once
    assert rows == [batch_size] * passes


def test_no_more_than_twice_a_batch_is_added_to_one_window_a_token():
    windows = []

    def model(tokens: Tensor) -> Tensor:
        windows.extend(tokens.tolist())
        return sums_the_past(tokens)

    audit(model, vocab_size=VOCAB, seq_len=64, batch_size=16)
    assert len(windows) == 64 + 2 * 16
    itself = windows[0]
    changed = [[j for j in range(64) if w[j] != itself[j]] for w in windows]
    assert changed == [[]] * 32 + [[j] for j in range(64)]


@pytest.mark.parametrize("name", ["multifourier-qk", "causal-morlet"])
def test_batch_that_does_not_divide_the_window_gives_the_same_verdict(name, sharp_model):
    model = sharp_model(VARIANTS[name])
    even, odd = (audit(model, vocab_size=65, seq_len=64, batch_size=size, seed=1) for size in (32, 13))
    np.testing.assert_allclose(odd.influence, even.influence, atol=1e-4)
    assert (odd.causal, odd.first_leak) == (even.causal, even.first_leak)


def test_given_window_is_the_one_that_is_audited():
    seen = []

    def model(tokens: Tensor) -> Tensor:
        seen.append(tokens)
        return sums_the_past(tokens)

    window = torch.arange(10)
    audit(model, vocab_size=VOCAB, seq_len=10, tokens=window, batch_size=5)
    assert (seen[0] == window).all()
    assert window.equal(torch.arange(10))


def test_dropout_in_training_mode_is_drawn_alike_and_is_no_leak():
    profile = PROFILES["smoke"].model_copy(update={"name": "smoke-dropout", "dropout": 0.3})
    found = audit(build_model("base-dot", profile).train(), vocab_size=65, seq_len=64)
    assert found.noise == 0
    assert found.causal


def test_model_with_a_draw_of_its_own_has_noise_and_a_leak_above_it_is_still_found():
    generator = torch.Generator().manual_seed(0)

    def model(tokens: Tensor) -> Tensor:
        logits = reads_ahead_by(3)(tokens)
        return logits + 0.01 * torch.rand(logits.shape, generator=generator)

    found = audit(model, vocab_size=VOCAB, seq_len=10)
    assert 0 < found.noise < 0.02
    assert np.diagonal(found.leaks, 3).all()


def test_model_that_answers_nan_is_not_passed_as_causal():
    def model(tokens: Tensor) -> Tensor:
        return torch.full((*tokens.shape, VOCAB), torch.nan)

    found = audit(model, vocab_size=VOCAB, seq_len=10)
    assert not found.causal
    assert found.first_leak == (0, 1)
    assert (found.leaks == np.triu(np.ones((10, 10), bool), 1)).all()


def test_nan_of_a_later_token_alone_is_a_leak():
    def model(tokens: Tensor) -> Tensor:
        logits = sums_the_past(tokens)
        logits[(tokens != window).any(1), 0] = torch.nan  # whichever token is replaced
        return logits

    window = torch.arange(10)
    found = audit(model, vocab_size=VOCAB, seq_len=10, tokens=window)
    assert found.first_leak == (0, 1)
    assert not found.causal


def test_symbol_that_a_causal_model_rules_out_is_no_leak():
    """A logit of −∞ that stays −∞ has not changed."""

    def model(tokens: Tensor) -> Tensor:
        logits = sums_the_past(tokens)
        logits[..., 0] = -torch.inf
        return logits

    found = audit(model, vocab_size=VOCAB, seq_len=10)
    assert found.noise == 0
    assert found.causal

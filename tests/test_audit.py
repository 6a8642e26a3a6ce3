"""The audit: exact where influence is known, right about planted leaks and about what only looks like one."""

import copy
import itertools
import json
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fqk.audit import assert_causal, audit
from fqk.audit_report import page
from fqk.errors import InputError
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
def test_batch_size_bounds_every_pass_and_does_not_change_the_map(batch_size):
    rows = []

    def model(tokens: Tensor) -> Tensor:
        rows.append(len(tokens))
        return sums_the_past(tokens) + reads_ahead_by(2)(tokens)

    found = audit(model, vocab_size=VOCAB, seq_len=10, batch_size=batch_size)
    assert (found.influence == np.tri(10) + np.eye(10, k=2)).all()
    assert max(rows) == batch_size


def test_exact_costs_at_most_a_quarter_more_windows_than_the_map_and_the_noise_floor():
    windows = []
    for mix in (lambda x: x.cumsum(1), lambda x: x.mean(1, keepdim=True)):
        windows.clear()
        model = lm(mix)
        model.register_forward_pre_hook(lambda _, inputs: windows.extend(inputs[0].tolist()))
        audit(model, vocab_size=VOCAB, seq_len=256)
        must = 256 + 2 * 32
        assert len(windows) <= 1.25 * must
        itself = windows[0]
        changed = [[j for j in range(256) if w[j] != itself[j]] for w in windows if len(w) == 256]
        assert changed[:64] == [[]] * 64
        assert [[j] for j in range(256)] == [c for c in changed if len(c) == 1][:256]


@pytest.mark.parametrize("batch_size", [1, 2, 5, 32])
@pytest.mark.parametrize("name", ["mean over the window", "bilateral tap", "no mask", "cross-example"])
def test_screen_takes_at_most_twelve_passes_whatever_the_batch(name, batch_size):
    model, passes = lm(LEAKS[name][0]), []
    model.register_forward_hook(lambda *_: passes.append(1))
    for seed in range(3):
        passes.clear()
        options = {"vocab_size": VOCAB, "seq_len": 256, "depth": "screen", "seed": seed}
        found = audit(model, batch_size=batch_size, **options)
        assert len(passes) <= 12
        assert found.causal == (name == "cross-example" and batch_size == 1)  # which has no other example


def test_screen_takes_at_most_twelve_passes_even_for_a_leak_that_only_float64_tells_from_rounding():
    passes = []
    for model in (
        lm(lambda x: torch.ones(len(x[0]), len(x[0])) @ x / 1e4),
        lm(lambda x: circulant(x) / 1e4),
        lm(padded_fft(two_sided=False)),
    ):
        model.register_forward_hook(lambda *_: passes.append(1))
        found = audit(model, vocab_size=VOCAB, seq_len=256, depth="screen")
        assert len(passes) <= 12
        assert found.verdict == ("causal" if "rounding" in str(found) else "leaks")
        assert np.isfinite(found.influence).sum() == (not found.causal)
        passes.clear()


@pytest.mark.parametrize("name", ["multifourier-qk", "causal-morlet"])
def test_batch_that_does_not_divide_the_window_gives_the_same_verdict(name, sharp_model):
    model = sharp_model(VARIANTS[name])
    even, odd = (audit(model, vocab_size=65, seq_len=64, batch_size=size, seed=1) for size in (32, 13))
    np.testing.assert_allclose(odd.influence, even.influence, atol=1e-4)
    assert (odd.causal, odd.first_leak) == (even.causal, even.first_leak)


def test_given_windows_are_the_ones_that_are_audited():
    seen = []

    def model(tokens: Tensor) -> Tensor:
        seen.extend(tokens.tolist())
        return sums_the_past(tokens)

    windows = torch.stack([torch.arange(10), torch.arange(10).flip(0)])
    audit(model, vocab_size=VOCAB, seq_len=10, tokens=windows, batch_size=5)
    assert seen[:5] == [list(range(10))] * 5
    assert windows[1].tolist() in seen
    assert windows[0].equal(torch.arange(10))


def test_chosen_positions_are_the_only_columns():
    found = audit(reads_ahead_by(2), vocab_size=VOCAB, seq_len=10, positions=torch.tensor([3, 7]))
    assert np.isnan(np.delete(found.influence, [3, 7], axis=1)).all()
    assert found.leaks.sum() == 2
    assert found.first_leak == (1, 3)


# Planted leaks and their causal look-alikes: a residual mixer between an embedding and a head.


class LM(nn.Module):
    def __init__(self, mix, width=8):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.batch_norm, self.dropout = nn.BatchNorm1d(width), nn.Dropout(0.5)
        self.mix = mix

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        mixed = self.mix(self, x, tokens) if self.mix.__code__.co_argcount == 3 else self.mix(x)
        return self.head(x + mixed)


def lm(mix):
    return LM(mix).eval()


def attention(masked, scale=1.0, bias=0.0, value=-torch.inf):
    """Attention whose scores are ``value`` where ``masked(i, j)``, plus ``bias(i, j)``."""

    def mix(self, x, tokens):
        i, j = torch.arange(x.shape[1])[:, None], torch.arange(x.shape[1])
        scores = scale * self.query(x) @ self.key(x).transpose(1, 2)
        scores = scores + (bias(i, j) if callable(bias) else bias)
        hidden = masked(i, j)
        scores = scores + torch.where(hidden, value, 0.0)
        return scores.softmax(-1).nan_to_num() @ x

    return mix


def rotary(self, x, tokens):
    def rotated(z):
        angle = torch.arange(z.shape[1], dtype=z.dtype)[:, None] / 10.0 ** torch.arange(4)
        even, odd = z[..., ::2], z[..., 1::2]
        return torch.cat([even * angle.cos() - odd * angle.sin(), odd * angle.cos() + even * angle.sin()], -1)

    return F.scaled_dot_product_attention(
        rotated(self.query(x))[:, None], rotated(self.key(x))[:, None], x[:, None], is_causal=True
    )[:, 0]


def block_means(x, size=8):
    padded = F.pad(x, (0, 0, 0, -x.shape[1] % size))
    means = padded.unflatten(1, (-1, size)).mean(2, keepdim=True).expand(-1, -1, size, -1)
    return means.flatten(1, 2)[:, : x.shape[1]]


def circulant(x):
    """A one-sided kernel by FFT without padding: its tail wraps round to the first positions."""
    kernel = torch.exp(-torch.arange(x.shape[1], dtype=x.dtype) / 8)
    return torch.fft.irfft(torch.fft.rfft(kernel)[:, None] * torch.fft.rfft(x, dim=1), n=x.shape[1], dim=1)


def padded_fft(two_sided):
    def mix(x):
        length = x.shape[1]
        lag = torch.arange(2 * length, dtype=x.dtype)
        future = torch.exp(-(2 * length - lag) / 3) if two_sided else torch.zeros(())
        kernel = torch.where(lag < length, torch.exp(-lag / 8), future)
        spectrum = torch.fft.rfft(kernel)[:, None] * torch.fft.rfft(x, n=2 * length, dim=1)
        return torch.fft.irfft(spectrum, n=2 * length, dim=1)[:, :length]

    return mix


def one_pair(x):
    return F.pad(x[:, 20:21], (0, 0, 5, x.shape[1] - 6)) if x.shape[1] > 20 else 0 * x


def one_token_id(self, x, tokens):
    return x.cumsum(1) + (tokens == 7).any(1)[:, None, None]


def only_training(self, x, tokens):
    return x.flip(1) if self.training else x.cumsum(1)


def position_by_length(x):
    return (torch.arange(x.shape[1]) / x.shape[1])[:, None] + x.cumsum(1)


def unless_a_multiple_of_16(x):
    return x.cumsum(1) + (x.mean(1, keepdim=True) if x.shape[1] % 16 else 0)


def linear_attention(self, x, tokens):
    q, k = F.elu(self.query(x)) + 1, F.elu(self.key(x)) + 1
    state = (k[..., None] * x[..., None, :]).cumsum(1)
    return (q[..., None, :] @ state)[..., 0, :] / (q * k.cumsum(1)).sum(-1, keepdim=True)


def one_sided(x):
    return F.conv1d(F.pad(x.mT, (3, 0)), torch.ones(8, 1, 4, dtype=x.dtype), groups=8).mT


LEAKS = {
    "mask off by one": (attention(lambda i, j: j > i + 1), "every pair", (0, 1)),
    "no mask": (attention(lambda i, j: j > i + 99), "every pair", (0, 1)),
    "inverted mask": (attention(lambda i, j: j <= i), "every pair", (0, 1)),
    "-1e4 and large weights": (attention(lambda i, j: j > i, 1e5, value=-1e4), "several tokens", None),
    "mean over the window": (lambda x: x.mean(1, keepdim=True), "every pair", (0, 1)),
    "block means": (block_means, "every pair", (0, 1)),
    "norm over time": (
        lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
        "every pair",
        (0, 1),
    ),
    "batch norm in training": (lambda self, x, tokens: self.batch_norm(x.mT).mT, "training mode", None),
    "bilateral tap": (lambda x: F.pad(x[:, 1:], (0, 0, 0, 1)), "every pair", (0, 1)),
    "circular FFT": (circulant, "every pair", (0, 1)),
    "two-sided kernel": (padded_fft(two_sided=True), "every pair", (0, 1)),
    "one pair only": (one_pair, "every pair", (5, 20)),
    "not a multiple of 16": (unless_a_multiple_of_16, "shorter inputs", None),
    "only in training mode": (only_training, "training mode", None),
    "one token id": (one_token_id, "every pair", None),
    "position by length": (position_by_length, "shorter inputs", None),
    "cross-example": (lambda x: x.cumsum(1) + x.mean(0), "batch neighbours", None),
}
LOOK_ALIKES = {
    "one-sided convolution": one_sided,
    "padded FFT": padded_fft(two_sided=False),
    "linear attention": linear_attention,
    "RMS norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "RoPE": rotary,
    "ALiBi": attention(lambda i, j: j > i, bias=lambda i, j: 0.5 * (j - i)),
    "finite mask": attention(lambda i, j: j > i, value=torch.finfo(torch.float32).min),
    "sliding window": attention(lambda i, j: (j > i) | (j < i - 4)),
    "dropout in evaluation mode": lambda self, x, tokens: self.dropout(x.cumsum(1)),
}


@pytest.mark.parametrize("dtype", [None, torch.float64], ids=["its own precision", "float64"])
@pytest.mark.parametrize("name", LEAKS)
def test_planted_leak_is_found_and_named(name, dtype):
    mix, probe, pair = LEAKS[name]
    found = audit(lm(mix), vocab_size=VOCAB, seq_len=32, dtype=dtype)
    assert found.verdict == "leaks"
    first = next(f for f in found.findings if f.verdict == "leaks")
    assert first.probe == probe, str(found)
    assert pair is None or found.first_leak == pair
    if found.first_leak:
        i, j = found.first_leak
        assert f"token {j} moves the prediction at {i}" in str(found)
    with pytest.raises(AssertionError, match=re.escape(found.reason)):
        assert_causal(lm(mix), vocab_size=VOCAB, seq_len=32, dtype=dtype)


@pytest.mark.parametrize(
    "name", [name for name, (_, probe, _) in LEAKS.items() if probe in ("every pair", "several tokens")]
)
def test_screen_finds_it_too_and_one_pair_of_it(name):
    mix, _, _ = LEAKS[name]
    quick = audit(lm(mix), vocab_size=VOCAB, seq_len=32, depth="screen")
    exact = audit(lm(mix), vocab_size=VOCAB, seq_len=32)
    assert quick.verdict == "leaks"
    i, j = quick.first_leak
    assert j > i
    if name not in ("one token id", "-1e4 and large weights"):  # which depend on the other tokens
        assert exact.leaks[i, j]


@pytest.mark.parametrize("depth", ["exact", "screen"])
@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_look_alike_is_not_accused(name, depth):
    found = audit(lm(LOOK_ALIKES[name]), vocab_size=VOCAB, seq_len=37, depth=depth)
    assert found.causal, str(found)
    assert found.first_leak is None
    assert_causal(lm(LOOK_ALIKES[name]), vocab_size=VOCAB, seq_len=37, depth=depth)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_noise_of_half_precision_is_no_leak_and_a_leak_in_it_is(dtype):
    def half(mix):
        return lambda x: mix(x.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype)

    honest, leaking = (lm(half(padded_fft(two_sided))).to(dtype) for two_sided in (False, True))
    found = audit(honest, vocab_size=VOCAB, seq_len=32)
    assert found.causal
    if dtype == torch.float16:  # whose grain is finer, so that the FFT's error shows
        assert np.triu(found.influence, 1).any()
        assert "rounding" in str(found)
    assert audit(leaking, vocab_size=VOCAB, seq_len=32).verdict == "leaks"
    for model, verdict in ((honest, "causal"), (leaking, "leaks")):  # with logits of single precision
        model.register_forward_hook(lambda _, given, logits: logits.float())
        assert audit(model, vocab_size=VOCAB, seq_len=32).verdict == verdict


def test_rounding_of_a_function_cannot_be_told_from_a_leak_until_a_tolerance_is_given():
    model = lm(padded_fft(two_sided=False))
    doubtful = audit(lambda tokens: model(tokens), vocab_size=VOCAB, seq_len=32)
    assert doubtful.verdict == "cannot tell"
    assert "rounding explains" in doubtful.reason
    assert audit(lambda tokens: model(tokens), vocab_size=VOCAB, seq_len=32, tolerance=1e-4).causal
    assert audit(model, vocab_size=VOCAB, seq_len=32, dtype=torch.float64).causal


@pytest.mark.parametrize("depth", ["exact", "screen"])
def test_what_a_module_computes_in_float32_whatever_its_precision_is_not_accused(depth):
    """As state-space models do with their FFT, and nearly all with their softmax."""
    options = {"vocab_size": VOCAB, "seq_len": 37, "depth": depth}
    for narrow in (lambda x: x.float(), lambda x: x.to(torch.float32), lambda x: x.to(dtype=torch.float32)):

        def inside(mix, narrow=narrow):
            return lm(lambda x: mix(narrow(x)).to(x.dtype))

        found = audit(inside(padded_fft(two_sided=False)), **options)
        assert found.causal, str(found)
        assert "rounding, gone in float64" in str(found)
        faint = inside(lambda x: padded_fft(two_sided=False)(x) + 1e-6 * x.mean(1, keepdim=True))
        assert audit(faint, **options).verdict == "leaks"
        assert audit(inside(padded_fft(two_sided=True)), **options).verdict == "leaks"
    stubborn = lm(lambda x: padded_fft(two_sided=False)(x.type_as(torch.zeros(1))).to(x.dtype))
    found = audit(stubborn, **options)
    assert found.verdict == "cannot tell"
    assert "float64 cannot be tried in all of the model" in found.reason
    assert audit(stubborn, **options, tolerance=1e-4).causal


def test_one_faint_pair_is_found_in_a_map_that_rounding_blurs_everywhere():
    def mix(x):
        mixed = padded_fft(two_sided=False)(x)
        mixed[:, 5] += 1e-7 * x[:, 60]
        return mixed

    found = audit(lm(mix), vocab_size=VOCAB, seq_len=64, batch_size=8)
    every_pair = next(f for f in found.findings if f.probe == "every pair")
    assert (every_pair.verdict, every_pair.pair) == ("leaks", (5, 60))
    assert np.argwhere(found.leaks).tolist() == [[5, 60]]


@pytest.mark.parametrize("size", [1e-6, 1e-7])
def test_leak_the_size_of_rounding_is_a_leak(size):
    model = lm(lambda x: x.cumsum(1) + size * x.mean(1, keepdim=True))
    assert audit(model, vocab_size=VOCAB, seq_len=32).verdict == "leaks"
    assert audit(model.double(), vocab_size=VOCAB, seq_len=32).verdict == "leaks"


def mixes_by(matrix):
    """A float64 model whose logits at i are Σ_j matrix[i, j] · one-hot(token j)."""
    matrix = torch.as_tensor(matrix)
    return lambda tokens: matrix[: tokens.shape[1], : tokens.shape[1]] @ F.one_hot(tokens, VOCAB).double()


@st.composite
def matrices(draw):
    length = draw(st.integers(2, 12))
    entries = st.sampled_from([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e-6, 1.0, -2.0])
    rows = st.lists(entries, min_size=length, max_size=length)
    matrix = np.array(draw(st.lists(rows, min_size=length, max_size=length)))
    return np.tril(matrix) if draw(st.booleans()) else matrix


@given(matrices(), st.integers(1, 16))
def test_verdict_on_a_linear_mixer_is_that_its_upper_triangle_is_zero(matrix, batch_size):
    length = len(matrix)
    found = audit(mixes_by(matrix), vocab_size=VOCAB, seq_len=length, batch_size=batch_size)
    assert found.causal == (not np.triu(matrix, 1).any())
    assert (found.leaks == (np.triu(matrix, 1) != 0)).all()
    np.testing.assert_allclose(found.influence, np.abs(matrix), rtol=1e-9, atol=1e-15)


@given(matrices(), st.integers(1, 16))
def test_screen_names_a_pair_of_the_upper_triangle(matrix, batch_size):
    found = audit(
        mixes_by(matrix), vocab_size=VOCAB, seq_len=len(matrix), batch_size=batch_size, depth="screen"
    )
    if found.first_leak:
        assert np.triu(matrix, 1)[found.first_leak] != 0
        i, j = found.first_leak
        assert found.influence[i, j] == pytest.approx(abs(matrix[i, j]))
    elif batch_size * 2 >= len(matrix) - 1:  # then every cut has been tried
        assert found.causal
        assert not np.triu(matrix, 1).any()


def test_leak_that_needs_two_tokens_at_once_is_found_by_several():
    def model(tokens: Tensor) -> Tensor:
        both = (tokens[:, 8] != window[8]) & (tokens[:, 9] != window[9])
        return sums_the_past(tokens) + both[:, None, None]

    window = torch.arange(10)
    found = audit(model, vocab_size=VOCAB, tokens=window)
    assert not found.leaks.any()
    assert found.verdict == "leaks"
    assert next(f for f in found.findings if f.verdict == "leaks").probe == "several tokens"


# Numbers that are not, draws, noise.


def test_dropout_in_training_mode_is_drawn_alike_and_is_no_leak():
    profile = PROFILES["smoke"].model_copy(update={"name": "smoke-dropout", "dropout": 0.3})
    found = audit(build_model("base-dot", profile).train(), vocab_size=65, seq_len=64)
    assert found.noise == 0
    assert found.causal
    assert "draws at random" in str(found)


def test_phases_drawn_at_each_pass_leak_with_the_draw_held_fixed():
    found = audit(build_model("phase-random", "smoke").eval(), vocab_size=65, seq_len=64)
    assert found.noise == 0
    assert found.verdict == "leaks"
    assert "draws at random" in str(found)


def test_model_with_a_draw_of_its_own_has_noise_and_a_leak_above_it_is_still_found():
    generator = torch.Generator().manual_seed(0)

    def model(tokens: Tensor) -> Tensor:
        logits = reads_ahead_by(3)(tokens)
        return logits + 0.01 * torch.rand(logits.shape, generator=generator)

    found = audit(model, vocab_size=VOCAB, seq_len=10)
    assert 0 < found.noise < 0.02
    assert np.diagonal(found.leaks, 3).all()
    assert found.verdict == "leaks"


@pytest.mark.parametrize("depth", ["exact", "screen"])
def test_noise_without_a_leak_above_it_cannot_be_told(depth):
    generator = torch.Generator().manual_seed(0)

    def model(tokens: Tensor) -> Tensor:
        logits = sums_the_past(tokens)
        return logits + 0.01 * torch.randn(logits.shape, generator=generator)

    found = audit(model, vocab_size=VOCAB, seq_len=10, depth=depth)
    assert found.verdict == "cannot tell"
    assert str(found).startswith("cannot tell (non-deterministic: the same input twice moves a logit by 0.0")
    with pytest.raises(AssertionError, match="non-deterministic"):
        assert_causal(model, vocab_size=VOCAB, seq_len=10, depth=depth)


def every(number, model):
    """The model, but each so many passes all logits are off by a half."""
    count = itertools.count(1)
    return lambda tokens: model(tokens) + 0.5 * (next(count) % number == 0)


@pytest.mark.parametrize("depth", ["exact", "screen"])
@pytest.mark.parametrize("number", [3, 4, 5, 7])
def test_what_does_not_come_again_is_no_leak(number, depth):
    options = {"vocab_size": VOCAB, "seq_len": 128, "batch_size": 16, "depth": depth}
    found = audit(every(number, sums_the_past), **options)
    assert found.verdict != "leaks", str(found)
    if depth == "exact":  # a screen of so few passes may not meet it
        assert "non-deterministic: the same input twice moves a logit by 0.5" in found.reason
        leaking = audit(every(number, lambda tokens: 5 * reads_ahead_by(2)(tokens)), **options)
        assert (leaking.verdict, leaking.first_leak) == ("leaks", (0, 2))


@pytest.mark.parametrize("place", [lambda x: len(x), lambda x: torch.arange(len(x))[:, None, None]])
def test_answer_that_depends_on_the_batch_or_the_row_cannot_be_told(place):
    model = lm(lambda x: x * place(x))
    for called in (model, lambda tokens: model(tokens)):
        found = audit(called, vocab_size=VOCAB, seq_len=32)
        assert found.verdict == "cannot tell"
        assert re.fullmatch("non-deterministic: a logit .* in another row or size of the batch", found.reason)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_model_that_answers_no_numbers_is_not_passed_as_causal(value):
    def model(tokens: Tensor) -> Tensor:
        return torch.full((*tokens.shape, VOCAB), value)

    for depth in ("exact", "screen"):
        found = audit(model, vocab_size=VOCAB, seq_len=10, depth=depth)
        assert not found.causal
        assert str(found).startswith("cannot tell (some logits are NaN or infinite)")
        json.dumps(found.as_dict(), allow_nan=False)


def test_nan_at_one_position_is_not_passed():
    def model(tokens: Tensor) -> Tensor:
        logits = sums_the_past(tokens)
        logits[:, 4, 2] = torch.nan
        return logits

    assert audit(model, vocab_size=VOCAB, seq_len=10).verdict == "cannot tell"


def test_nan_of_a_later_token_alone_is_a_leak():
    def model(tokens: Tensor) -> Tensor:
        logits = sums_the_past(tokens)
        logits[(tokens != window[: tokens.shape[1]]).any(1), 0] = torch.nan  # whichever token is replaced
        return logits

    window = torch.arange(10)
    found = audit(model, vocab_size=VOCAB, seq_len=10, tokens=window)
    assert found.first_leak == (0, 1)
    assert found.verdict == "leaks"
    json.dumps(found.as_dict(), allow_nan=False)


def test_change_to_infinity_is_infinite_and_null_in_json():
    def model(tokens: Tensor) -> Tensor:
        return sums_the_past(tokens) + torch.where(tokens[:, 9:] != 9, torch.inf, 0.0)[..., None]

    found = audit(model, vocab_size=VOCAB, seq_len=10, tokens=torch.arange(10))
    assert (found.influence[:, 9] == np.inf).all()
    assert found.reason == "replacing token 9 moves the prediction at 0 by inf, and 8 more such pairs"
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["lag_profile"][8] is None


def test_symbol_that_a_causal_model_rules_out_is_no_leak():
    """A logit of −∞ that stays −∞ has not changed."""

    def model(tokens: Tensor) -> Tensor:
        logits = sums_the_past(tokens)
        logits[..., 0] = -torch.inf
        return logits

    found = audit(model, vocab_size=VOCAB, seq_len=10)
    assert found.noise == 0
    assert found.causal


@pytest.mark.parametrize("depth", ["exact", "screen"])
@pytest.mark.parametrize(
    "mix", [LEAKS["cross-example"][0], lambda x: x.flatten(0, 1).cumsum(0).view_as(x)], ids=["mean", "carry"]
)
def test_rows_that_see_each_other_are_judged_one_by_one(mix, depth):
    """Causal in time, mixed over the batch, be it from each row to the next: no pair of one window leaks."""
    for batch_size in (2, 32):
        found = audit(lm(mix), vocab_size=VOCAB, seq_len=32, depth=depth, batch_size=batch_size)
        assert not found.leaks.any()
        assert found.first_leak is None
        assert "cross-example leakage" in found.reason


def test_nothing_is_said_of_other_examples_where_there_are_none():
    alone, together = (audit(sums_the_past, vocab_size=VOCAB, seq_len=10, batch_size=n) for n in (1, 2))
    assert alone.reason == "no later token moves a prediction"
    assert together.reason == "no later token and no other example moves a prediction"


# The model is left as it was; what goes in; what comes out.


def test_the_model_and_all_generators_are_left_as_they_were():
    model = LM(lambda self, x, tokens: self.dropout(self.batch_norm(x.mT).mT)).train()
    model.dropout.eval()
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    model(torch.zeros(2, 5, dtype=torch.int64)).sum().backward()
    torch.manual_seed(5)
    state, grads = copy.deepcopy(model.state_dict()), [copy.deepcopy(p.grad) for p in model.parameters()]
    buffers, hooks = [id(b) for b in model.buffers()], list(model._forward_hooks.values())
    generators = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    audit(model, vocab_size=VOCAB, seq_len=16)
    assert calls
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values(), strict=True))
    for p, grad in zip(model.parameters(), grads, strict=True):
        assert (p.grad is None) if grad is None else torch.equal(p.grad, grad)
    assert (model.training, model.batch_norm.training, model.dropout.training) == (True, True, False)
    assert ([id(b) for b in model.buffers()], list(model._forward_hooks.values())) == (buffers, hooks)
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert np.random.get_state()[1].tolist() == generators[1]
    assert random.getstate() == generators[2]


def hugging_face(**config):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    settings = {"vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    settings |= {"num_attention_heads": 2, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    return transformers, settings | config


def test_hugging_face_model_tells_all_that_is_needed():
    transformers, settings = hugging_face(max_position_embeddings=24)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).eval()
    found = audit(model)
    assert len(found.influence) == 24
    assert found.causal
    seen = {f.probe: f.verdict for f in found.findings}
    assert seen["left padding"] == seen["right padding"] == seen["cached generation"] == "causal"
    assert audit(model, inputs={"attention_mask": torch.ones(1, 24, dtype=torch.int64)}).causal


def test_hugging_face_encoder_that_is_not_told_to_decode_leaks():
    transformers, settings = hugging_face(max_position_embeddings=24)
    for decodes in (False, True):
        config = transformers.BertConfig(**settings, is_decoder=decodes, initializer_range=0.2)
        assert audit(transformers.BertLMHeadModel(config).eval()).causal == decodes


@pytest.mark.parametrize("side", ["left", "right"])
def test_leak_under_padding_alone_is_found_and_narrowed_down(side):
    """Where a mask hides tokens, this model forgets to hide the later ones."""

    def model(tokens, attention_mask=None):
        logits = sums_the_past(tokens)
        if attention_mask is not None and not attention_mask[:, 0 if side == "left" else -1].any():
            logits[:, 5] += F.one_hot(tokens[:, 6], VOCAB) * attention_mask[:, 6:7]
        return logits

    found = audit(model, vocab_size=VOCAB, seq_len=12)
    assert {f.probe: f.verdict for f in found.findings}[f"{side} padding"] == "leaks", str(found)
    assert (found.verdict, found.first_leak) == ("leaks", (5, 6))


def test_cached_steps_that_differ_are_said_but_are_no_leak():
    class Answer:
        def __init__(self, logits, cache):
            self.logits, self.past_key_values = logits, cache

    def model(tokens, past_key_values=None, use_cache=False):
        return Answer(sums_the_past(tokens), len(tokens))  # forgets the past

    found = audit(model, vocab_size=VOCAB, seq_len=10)
    assert found.causal
    assert {f.probe: f.verdict for f in found.findings}["cached generation"] == "differs"


def test_losses_say_what_the_leak_is_worth():
    text = torch.randint(VOCAB, (6, 33), generator=torch.Generator().manual_seed(0))

    def model(tokens: Tensor) -> Tensor:
        return 20 * reads_ahead_by(1)(tokens)

    found = audit(model, vocab_size=VOCAB, seq_len=10, text=text)
    ahead = 7 / 8  # of the eight targets, all but the last position's
    assert found.losses.ordered == pytest.approx((1 - ahead) * np.log(VOCAB), rel=1e-3)
    assert found.losses.prefix == pytest.approx(np.log(VOCAB), rel=1e-3)
    assert found.losses.windows == 6
    assert "nats" in str(found)
    honest = audit(sums_the_past, vocab_size=VOCAB, seq_len=10, text=text).losses
    assert honest.prefix == pytest.approx(honest.ordered)


def test_losses_of_one_window_have_no_error():
    found = audit(sums_the_past, vocab_size=VOCAB, seq_len=10, text=torch.arange(11)[None])
    assert str(found).endswith("a difference of 0.000 nats")
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["losses"]["error"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"vocab_size": None}, "vocab_size is None"),
        ({"vocab_size": 1}, "vocab_size is 1"),
        ({"seq_len": 1}, "seq_len is 1"),
        ({"depth": "deep"}, "there is no depth 'deep'"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"tokens": torch.tensor([1, 99]), "seq_len": None}, "tokens holds some outside 0 … 10"),
        ({"tokens": torch.tensor([1, 2])}, "seq_len is 10, but tokens has windows of 2"),
        ({"positions": torch.tensor([10])}, "positions holds some outside 0 … 9"),
        ({"positions": torch.tensor([])}, "positions is empty"),
        ({"text": torch.tensor([1, 2, 3])}, "text has shape (3,), not (N, T' + 1)"),
        ({"text": torch.tensor([[1, 11]])}, "text holds some outside 0 … 10"),
        ({"dtype": torch.float64}, "dtype needs a torch.nn.Module"),
        ({"inputs": {"colour": 1}}, "the model fails on ids of shape (32, 10): TypeError"),
    ],
)
def test_bad_input_is_one_sentence(options, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        audit(sums_the_past, **{"vocab_size": VOCAB, "seq_len": 10} | options)


def test_answer_that_is_not_logits_is_named():
    with pytest.raises(InputError, match=re.escape("answers (32, 10) to ids of shape (32, 10)")):
        audit(lambda tokens: tokens, vocab_size=VOCAB, seq_len=10)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "compiled", [torch.jit.script, lambda m: torch.jit.trace(m, torch.zeros(2, 9).long())]
)
def test_module_that_is_not_python_any_more_is_audited(compiled):
    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(VOCAB, VOCAB)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.embed(tokens).cumsum(1)

    assert audit(compiled(Sums()).eval(), vocab_size=VOCAB, seq_len=16).causal


def test_model_that_needs_targets_to_answer_for_all_positions_is_given_some():
    """As nanoGPT's, which views them as one row."""

    def model(tokens, targets=None):
        logits = reads_ahead_by(2)(tokens)
        if targets is None:
            return logits[:, -1:], None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.view(-1))

    with pytest.raises(InputError, match=re.escape("answers (32, 1, 11) to ids of shape (32, 10)")):
        audit(model, vocab_size=VOCAB, seq_len=10)
    targets = torch.zeros((1, 10), dtype=torch.int64)
    assert audit(model, vocab_size=VOCAB, seq_len=10, inputs={"targets": targets}).first_leak == (0, 2)


def test_probe_that_the_model_does_not_take_is_not_run():
    class Fixed(nn.Module):
        def forward(self, tokens):
            return sums_the_past(tokens) + torch.zeros(10, VOCAB)

    found = audit(Fixed(), vocab_size=VOCAB, seq_len=10)
    assert found.causal
    assert {f.probe: f.verdict for f in found.findings}["shorter inputs"] == "not run"


@pytest.mark.parametrize("depth", ["exact", "screen"])
def test_page_holds_the_report_and_loads_nothing(depth):
    found = audit(reads_ahead_by(3), vocab_size=VOCAB, seq_len=10, depth=depth)
    html = page(found, "a <model>")
    assert "a &lt;model&gt;: leaks" in html
    assert all(f.detail in html for f in found.findings)
    assert not re.search(r"https?:|src=|href=|@import|url\(", html)
    data = json.loads(re.search(r'id="data">(.+?)</script>', html)[1])
    assert (data["size"], data["verdict"]) == (10, "leaks")


def test_the_audit_brings_torch_and_numpy_and_nothing_else():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import fqk.audit; "
        "print(*{name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) <= {"fqk", "torch", "numpy"}

"""Each mixer against its slow, direct form; every length; what it keeps and what it draws."""

import math

import pytest
import torch
from transformers import FNetConfig
from transformers.models.fnet.modeling_fnet import (
    FNetBasicFourierTransform,
    FNetFourierTransform,
)

from fqk import filters, mixers
from fqk.model import build_model
from fqk.variants import VARIANTS

HEADS, HEAD_DIM = 3, 4
CONTEXTS = (64, 67)  # even and odd
ATTENDING = [name for name, variant in VARIANTS.items() if variant.attends]


def mixer_of(name, context, seed=0):
    """The mixer of a variant, its own draws made from the seed."""
    torch.manual_seed(seed)
    return VARIANTS[name].mixer(heads=HEADS, head_dim=HEAD_DIM, context=context)


def queries_and_keys(context):
    """Both at once, shape (B, T, 2, H, d)."""
    return torch.randn(2, context, 2, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(1))


def mixed(mixer, qk):
    """Queries and keys as the mixer leaves them, stacked as they came."""
    return torch.stack(mixer(*qk.unbind(2)), dim=2)


def product(matrix, qk):
    return torch.einsum("hij,bjnhd->binhd", matrix, qk)


def scores(qk):
    """q_i·k_j, shape (B, H, T, T)."""
    return torch.einsum("bihd,bjhd->bhij", *qk.unbind(2))


def lags(context):
    """i − j, shape (T, T)."""
    return torch.arange(context)[:, None] - torch.arange(context)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["random-qk", "fourier-qk", "multifourier-qk"])
def test_spectral_mixer_is_the_circulant_product(name, context):
    mixer, qk = mixer_of(name, context), queries_and_keys(context)
    kernel = filters.kernel_of(mixer.bumps(context), context)
    expected = product(kernel[:, lags(context) % context], qk)
    torch.testing.assert_close(mixed(mixer, qk), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["causal-random-qk", "causal-fourier-qk", "causal-multifourier-qk"])
def test_causal_spectral_mixer_is_the_product_with_the_kernel_at_past_lags(name, context):
    """κ is irfft(φ) on a line of 2T, so that no past lag wraps."""
    mixer, qk = mixer_of(name, context), queries_and_keys(context)
    kernel = filters.kernel_of(mixer.bumps(2 * context), 2 * context)
    matrix = torch.where(lags(context) >= 0, kernel[:, lags(context).clamp(min=0)], 0)
    torch.testing.assert_close(mixed(mixer, qk), product(matrix, qk), atol=1e-5, rtol=0)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["causal-gaussian", "causal-mexhat", "causal-morlet"])
def test_causal_convolution_is_the_direct_sum_over_half_a_window_of_lags(name, context):
    mixer, qk = mixer_of(name, context), queries_and_keys(context)
    tau = torch.arange(context // 2)
    squared = (tau / mixer.scales()["width"]) ** 2
    shape = {
        "causal-gaussian": lambda: 1.0,
        "causal-mexhat": lambda: 1 - squared,
        "causal-morlet": lambda: torch.cos(2 * math.pi * tau / mixer.scales()["period"]),
    }[name]()
    kernel = torch.exp(-squared / 2) * shape
    kernel = kernel / kernel.abs().sum(1, keepdim=True)
    expected = torch.zeros_like(qk)
    for lag in range(context // 2):
        expected[:, lag:] += kernel[:, lag, None] * qk[:, : context - lag]
    torch.testing.assert_close(mixed(mixer, qk), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("context", CONTEXTS)
def test_morlet_cross_correlation_scores_are_the_direct_sum_over_lags(context):
    """e_ij = Σ_τ κ(τ) q_i·k_{j−τ}, τ once round the window."""
    mixer, qk = mixer_of("morlet-xcorr", context), queries_and_keys(context)
    width, period = mixer.scales()["width"][:, 0], mixer.scales()["period"][:, 0]
    plain, expected = scores(qk), torch.zeros(2, HEADS, context, context)
    for tau in range(-(context // 2), (context + 1) // 2):
        kernel = torch.exp(-(tau**2) / (2 * width**2)) * torch.cos(2 * math.pi * tau / period)
        expected += kernel[:, None, None] * plain.roll(tau, dims=-1)  # j − τ stands at j
    torch.testing.assert_close(scores(mixed(mixer, qk)), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("periods", [mixers.LADDER[:1], mixers.LADDER])
def test_collapsed_gain_is_the_ratio_of_root_mean_squares_over_time(context, periods):
    """Parseval: the gain from the frequency axis alone is that of the filtered series."""
    qk = queries_and_keys(context)
    collapsed = mixers.Collapsed(HEADS, HEAD_DIM, context, periods)
    filtered = mixed(mixers.Spectral(HEADS, HEAD_DIM, context, periods), qk)
    gain = (filtered**2).mean(1, keepdim=True).sqrt() / (qk**2).mean(1, keepdim=True).sqrt()
    torch.testing.assert_close(mixed(collapsed, qk), gain * qk, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["fourier", "multifourier"])
def test_causal_collapsed_gain_is_that_of_the_window_cut_at_each_position(kind):
    mixer, qk = mixer_of(f"{kind}-qk-collapsed-causal", 16), queries_and_keys(16)
    out = mixed(mixer, qk)
    for t in range(16):
        cut = qk[:, : t + 1]
        filtered = product(mixer.matrix(t + 1), cut)
        gain = (filtered**2).sum(1).sqrt() / (cut**2).sum(1).sqrt()
        torch.testing.assert_close(out[:, t], gain * qk[:, t], atol=1e-5, rtol=0)


def test_silent_channel_stays_silent_with_finite_gradients():
    for name in ("fourier-qk-collapsed", "fourier-qk-collapsed-causal"):
        mixer, qk = mixer_of(name, 16), torch.zeros(1, 16, 2, HEADS, HEAD_DIM, requires_grad=True)
        out = mixed(mixer, qk)
        out.sum().backward()
        assert out.count_nonzero() == 0, name
        assert qk.grad.isfinite().all(), name


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["phase-random", "phase-fixed"])
def test_phase_mixers_keep_every_amplitude_and_move_every_series(name, context):
    mixer, qk = mixer_of(name, context), queries_and_keys(context)
    before, after = (torch.fft.rfft(x, dim=1).abs() for x in (qk, mixed(mixer, qk)))
    torch.testing.assert_close(after, before, atol=1e-5, rtol=1e-5)
    assert ((mixed(mixer, qk) - qk).abs().amax(1) > 0.1).all()


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ["phase-random", "phase-fixed"])
def test_phase_mixers_leave_the_real_bins_as_they_are(name, context):
    qk = queries_and_keys(context)
    before, after = (torch.fft.rfft(x, dim=1) for x in (qk, mixed(mixer_of(name, context), qk)))
    real = filters.parseval_weights(context) == 1
    torch.testing.assert_close(after[:, real], before[:, real], atol=1e-5, rtol=1e-5)


def test_random_phases_are_drawn_afresh_and_fixed_ones_are_not():
    qk = queries_and_keys(64)
    random, fixed = mixer_of("phase-random", 64), mixer_of("phase-fixed", 64)
    assert (mixed(random, qk) - mixed(random, qk)).abs().max() > 1
    assert mixed(fixed, qk).equal(mixed(fixed, qk))


def test_fixed_phases_of_a_shorter_window_are_those_of_the_same_frequencies():
    mixer, qk = mixer_of("phase-fixed", 64), queries_and_keys(16)
    angle = torch.fft.rfft(mixed(mixer, qk), dim=1) / torch.fft.rfft(qk, dim=1)
    expected = torch.polar(torch.ones(HEADS, 7), mixer.theta[:, 4:32:4])  # f = 1/16 … 7/16
    torch.testing.assert_close(angle[0, 1:8, 0, :, 0].T, expected, atol=1e-4, rtol=0)


def test_shared_rotation_keeps_scores_and_separate_rotations_do_not():
    qk = queries_and_keys(64)
    shared = mixed(mixer_of("rotation-shared", 64), qk)
    separate = mixed(mixer_of("rotation-separate", 64), qk)
    torch.testing.assert_close(scores(shared), scores(qk), atol=1e-5, rtol=1e-5)
    assert (scores(separate) - scores(qk)).abs().max() > 1
    torch.testing.assert_close(separate.norm(dim=-1), qk.norm(dim=-1))  # rotations all the same


def test_projection_has_condition_number_ten_and_unit_determinant():
    unit = torch.eye(HEAD_DIM)[None, :, None, None].expand(1, -1, 2, HEADS, -1)
    images = mixed(mixer_of("projection", 64), unit)[0]  # those of the unit vectors
    assert images[:, 0].equal(images[:, 1])
    matrix = images[:, 0].transpose(0, 1)
    condition = torch.linalg.cond(matrix)
    torch.testing.assert_close(condition, torch.full_like(condition, 10), atol=0, rtol=0.01)
    volume = torch.linalg.det(matrix).abs()
    torch.testing.assert_close(volume, torch.ones_like(volume), atol=1e-4, rtol=0)


@pytest.mark.parametrize("context", CONTEXTS)
def test_fnet_is_hugging_faces_fourier_sublayer(context):
    config = FNetConfig(hidden_size=32, use_tpu_fourier_optimizations=False)
    sublayer, x = FNetFourierTransform(config).eval(), torch.randn(2, context, 32)
    out = mixers.FourierMixing()(x)
    (expected,) = FNetBasicFourierTransform(config)(x)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sublayer.output(out, x), sublayer(x)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", ATTENDING)
def test_every_window_up_to_the_context_keeps_its_shape_and_stays_finite(name, context):
    mixer = mixer_of(name, context)
    for length in range(1, context + 1):
        qk = queries_and_keys(length)
        out = mixed(mixer, qk)
        assert out.shape == qk.shape, length
        assert out.isfinite().all(), length


@pytest.mark.parametrize("name", ATTENDING)
def test_mixer_is_the_same_on_a_prefix_if_and_only_if_it_is_causal(name, causal_names):
    mixer, qk = mixer_of(name, 64), queries_and_keys(64)
    whole = mixed(mixer, qk)
    change = max((mixed(mixer, qk[:, :t]) - whole[:, :t]).abs().max() for t in (1, 10, 33, 63))
    assert change < 1e-5 if name in causal_names else change > 1e-2


@pytest.mark.parametrize("name", ATTENDING)
def test_mixer_treats_windows_and_heads_one_by_one(name):
    """What another window holds, or another head, changes nothing."""
    mixer, qk = mixer_of(name, 64), queries_and_keys(64)
    other = qk.clone()
    other[1], other[:, :, :, 1:] = 7.0, 7.0
    torch.manual_seed(0)
    before = mixed(mixer, qk)[0, :, :, 0]
    torch.manual_seed(0)
    torch.testing.assert_close(mixed(mixer, other)[0, :, :, 0], before, atol=1e-6, rtol=0)


def test_random_filter_is_drawn_from_the_seed_once_and_within_its_range():
    drawn = [build_model("random-qk", "cpu", seed=seed).scales() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    periods = [p for layer in drawn[0] + drawn[2] for (p,) in layer["period"]]
    assert len(set(periods)) == len(periods) == 16  # layers × heads × seeds, all different
    assert all(4 <= period <= 256 for period in periods)
    assert not list(mixer_of("random-qk", 64).parameters())


@pytest.mark.parametrize("periods", [mixers.LADDER[:1], mixers.LADDER, (100.0, 50.0)])
def test_bumps_start_at_their_periods_with_a_quarter_of_the_frequency_as_bandwidth(periods):
    bumps = mixers.Bumps.starting_at(periods, HEADS)
    start, expected = bumps.scales(), torch.tensor(periods).expand(HEADS, -1)
    torch.testing.assert_close(start["period"], expected)
    torch.testing.assert_close(start["bandwidth"], 1 / (4 * expected))
    assert (start["amplitude"] == 1).all()


def test_bumps_add_up_and_peak_at_their_frequencies():
    bumps = mixers.Bumps.starting_at((64.0, 4.0), 1)
    f = torch.fft.rfftfreq(256)
    expected = sum(torch.exp(-0.5 * ((f - 1 / p) * 4 * p) ** 2) for p in (64, 4))
    torch.testing.assert_close(bumps(256)[0], expected)
    assert bumps(256)[0, [4, 64]].tolist() == pytest.approx([1, 1], abs=2e-3)


def test_single_bump_has_no_learned_amplitude_and_several_have():
    learned = [{name for name, _ in mixers.Bumps.starting_at(p, 2).named_parameters()} for p in
               (mixers.LADDER[:1], mixers.LADDER)]  # fmt: skip
    assert learned[0] == {"log_frequency", "log_bandwidth"}
    assert learned[1] == {"log_frequency", "log_bandwidth", "amplitude"}

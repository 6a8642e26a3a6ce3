"""The filters against closed forms, written-out sums and each other."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fqk import filters

LENGTHS = (2, 3, 16, 17)


def series(context, dtype=torch.float64, heads=3):
    """A random series of the shape that filters take, (B, T, H, d)."""
    return torch.randn(2, context, heads, 4, dtype=dtype)


def spectrum(context, dtype=torch.float64, heads=3):
    """A random φ, (H, ⌊T/2⌋+1), real at DC and Nyquist as the spectrum of a real kernel is."""
    phi = torch.randn(heads, context // 2 + 1, dtype=dtype)
    if dtype.is_complex:
        phi = torch.where(filters.parseval_weights(context) == 1, phi.real, phi)
    return phi


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("context", LENGTHS)
def test_spectrum_and_kernel_are_a_fourier_pair(context):
    phi = spectrum(context)
    torch.testing.assert_close(torch.fft.rfft(filters.kernel_of(phi, context)), phi.to(torch.complex128))


@pytest.mark.parametrize("context", LENGTHS)
def test_kernel_is_the_written_out_cosine_sum(context):
    phi, tau, m = spectrum(context), torch.arange(context), torch.arange(context // 2 + 1)
    cosines = torch.cos(2 * torch.pi * torch.outer(m, tau).double() / context)
    expected = (filters.parseval_weights(context) * phi) @ cosines / context
    torch.testing.assert_close(filters.kernel_of(phi, context), expected)


def test_real_spectrum_has_an_even_kernel():
    kernel = filters.kernel_of(spectrum(16), 16)
    torch.testing.assert_close(kernel[:, 1:], kernel[:, 1:].flip(-1))


@pytest.mark.parametrize("context", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_fft_filter_is_circulant_product_and_synthesis(context, dtype):
    """Three forms of one filter: FFT, T×T matrix, and the sum over frequencies written out."""
    x, phi = series(context), spectrum(context, dtype)
    matrix = filters.circulant(filters.kernel_of(phi, context))
    out = filters.spectral(x, phi)
    torch.testing.assert_close(out, filters.convolve(matrix, x), atol=1e-12, rtol=0)
    torch.testing.assert_close(out, filters.synthesis(x, phi), atol=1e-12, rtol=0)


@pytest.mark.parametrize("context", LENGTHS)
def test_fft_filter_is_circulant_product_in_single_precision(context):
    x, phi = series(context, torch.float32), spectrum(context, torch.float32) / context
    matrix = filters.circulant(filters.kernel_of(phi, context))
    expected = filters.convolve(matrix, x)
    torch.testing.assert_close(filters.spectral(x, phi), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("context", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_handwritten_adjoint_is_autograds_through_the_other_forms(context, dtype):
    x, phi = series(context).requires_grad_(), spectrum(context, dtype)
    wanted = [x, phi.requires_grad_()] if dtype == torch.float64 else [x]
    upstream = torch.randn_like(x)
    forms = (
        filters.spectral(x, phi),
        filters.synthesis(x, phi),
        filters.convolve(filters.circulant(filters.kernel_of(phi, context)), x),
    )
    fast, *slow = [torch.autograd.grad(form, wanted, upstream) for form in forms]
    for gradients in slow:
        torch.testing.assert_close(fast, gradients, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("context", [5, 6])
def test_handwritten_adjoint_agrees_with_finite_differences(context):
    x, phi = series(context, heads=2)[:1, ..., :2], spectrum(context, heads=2)
    assert torch.autograd.gradcheck(filters.spectral, (x.requires_grad_(), phi.requires_grad_()))


def test_layout_of_series_and_gradient_in_memory_does_not_matter():
    """With dropout, attention's backward pass hands over gradients whose channels are strided."""
    x, phi, upstream = series(16), spectrum(16), series(16)
    expected = torch.autograd.grad(filters.spectral(x.requires_grad_(), phi), x, upstream)
    strided_x, strided = (t.detach().mT.contiguous().mT for t in (x, upstream))
    assert strided_x.stride(-1) != 1
    out = filters.spectral(strided_x.requires_grad_(), phi)
    torch.testing.assert_close(out, filters.spectral(x, phi))
    torch.testing.assert_close(torch.autograd.grad(out, strided_x, strided), expected)


def test_half_precision_is_filtered_in_single_precision():
    x, phi = series(16, torch.bfloat16), spectrum(16, torch.float32)
    expected = filters.spectral(x.float(), phi).bfloat16()
    torch.testing.assert_close(filters.spectral(x, phi), expected, atol=0, rtol=0)


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40))
def test_parseval(values):
    x = torch.tensor(values, dtype=torch.float64)
    power = torch.fft.rfft(x).abs() ** 2
    energy = (filters.parseval_weights(len(x)) * power).sum() / len(x)
    torch.testing.assert_close(energy, (x**2).sum(), atol=1e-9, rtol=1e-9)


@given(st.integers(1, 200))
def test_circular_lags_are_the_dft_frequencies_in_order(context):
    expected = (torch.fft.fftfreq(context) * context).round().long()
    assert filters.circular_lags(context).tolist() == expected.tolist()


@given(st.integers(1, 9))
def test_toeplitz_matrix_holds_the_kernel_at_row_minus_column(context):
    kernel = torch.randn(2, 2 * context - 1)
    matrix = filters.toeplitz(kernel)
    for i in range(context):
        for j in range(context):
            assert matrix[:, i, j].equal(kernel[:, i - j + context - 1])


@given(st.integers(1, 9))
def test_circulant_matrix_holds_the_kernel_at_row_minus_column_modulo_length(context):
    kernel = torch.randn(2, context)
    matrix = filters.circulant(kernel)
    for i in range(context):
        for j in range(context):
            assert matrix[:, i, j].equal(kernel[:, (i - j) % context])


@given(st.integers(1, 9), st.integers(1, 12))
def test_one_sided_matrix_is_the_direct_double_loop_and_zero_above(context, taps):
    kernel = torch.randn(2, taps)
    matrix = filters.one_sided(kernel, context)
    for i in range(context):
        for j in range(context):
            inside = 0 <= i - j < taps
            assert matrix[:, i, j].equal(kernel[:, i - j] if inside else torch.zeros(2))


def test_one_sided_product_is_the_direct_double_loop():
    x, kernel = series(7), torch.randn(3, 4, dtype=torch.float64)
    expected = torch.zeros_like(x)
    for t in range(7):
        for tau in range(min(4, t + 1)):
            expected[:, t] += kernel[:, tau, None] * x[:, t - tau]
    torch.testing.assert_close(filters.convolve(filters.one_sided(kernel, 7), x), expected)


@given(st.floats(-50, 50), st.floats(0.1, 50), st.floats(0, 0.5))
def test_kernels_are_even_and_have_their_closed_forms(tau, width, frequency):
    gauss = math.exp(-(tau**2) / (2 * width**2))
    lag, s, f = (torch.tensor(v, dtype=torch.float64) for v in (tau, width, frequency))
    expected = {
        filters.gaussian_kernel: gauss,
        filters.mexican_hat_kernel: (1 - tau**2 / width**2) * gauss,
        filters.morlet_kernel: gauss * math.cos(2 * math.pi * frequency * tau),
    }
    for kernel, value in expected.items():
        scales = (s, f) if kernel is filters.morlet_kernel else (s,)
        assert kernel(lag, *scales).item() == pytest.approx(value, abs=1e-12)
        assert kernel(-lag, *scales).equal(kernel(lag, *scales))


@given(st.floats(0.1, 50))
def test_kernels_peak_at_one_and_the_mexican_hat_vanishes_at_its_width(width):
    tau = torch.linspace(-100, 100, 401, dtype=torch.float64)
    s, f = torch.tensor(width, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    for kernel in (
        filters.gaussian_kernel(tau, s),
        filters.mexican_hat_kernel(tau, s),
        filters.morlet_kernel(tau, s, f),
    ):
        assert kernel.argmax() == 200
        assert kernel.max() == 1
    assert filters.mexican_hat_kernel(s, s) == 0


def test_mexican_hat_has_no_mean_and_the_gaussian_has_its_integral():
    tau, s = torch.arange(-100.0, 101).double(), torch.tensor(7.0).double()
    assert filters.mexican_hat_kernel(tau, s).sum().abs() < 1e-9
    assert filters.gaussian_kernel(tau, s).sum().item() == pytest.approx(7 * math.sqrt(2 * math.pi))


def test_gaussian_kernel_transforms_into_a_bump_of_bandwidth_one_over_two_pi_widths():
    context, s = 256, torch.tensor(5.0).double()
    phi = torch.fft.rfft(filters.gaussian_kernel(filters.circular_lags(context).double(), s))
    f, centre = torch.fft.rfftfreq(context, dtype=torch.float64), torch.tensor(0.0)
    bump = filters.gaussian_bump(f, centre, 1 / (2 * torch.pi * s))
    torch.testing.assert_close((phi / phi[0]).real, bump, atol=1e-12, rtol=0)


def test_morlet_kernel_transforms_into_a_bump_at_its_frequency():
    context, s, frequency = 256, torch.tensor(12.0).double(), torch.tensor(0.125).double()
    lags = filters.circular_lags(context).double()
    phi = torch.fft.rfft(filters.morlet_kernel(lags, s, frequency)).real
    f = torch.fft.rfftfreq(context, dtype=torch.float64)
    bump = filters.gaussian_bump(f, frequency, 1 / (2 * torch.pi * s))
    torch.testing.assert_close(phi / phi.max(), bump, atol=1e-9, rtol=0)


def test_bump_peaks_at_its_centre_and_falls_by_root_e_at_its_bandwidth():
    centre, bandwidth = torch.tensor(0.2), torch.tensor(0.05)
    f = torch.tensor([0.15, 0.2, 0.25])
    bump = filters.gaussian_bump(f, centre, bandwidth)
    torch.testing.assert_close(bump, torch.tensor([math.exp(-0.5), 1.0, math.exp(-0.5)]))

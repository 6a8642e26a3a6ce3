"""Filters along time: their spectra φ(f), their kernels κ(τ), and the matrices that they are.

Frequencies are in cycles per token, f_m = m/T for m = 0 … ⌊T/2⌋ (``torch.fft.rfftfreq``); lags and
periods are in tokens. A filter that is linear and time-invariant on a window of T tokens *is* a T×T
matrix G, q̃ = G q: circulant if it is applied by FFT, G_ij = κ((i−j) mod T), lower-triangular if it is
causal. What stands above G's diagonal is what a position reads of its own future.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def gaussian_bump(f: Tensor, centre: Tensor, bandwidth: Tensor) -> Tensor:
    """φ(f) = exp(−½((f − f*)/σ)²), the soft selector of one frequency; all in cycles per token."""
    return torch.exp(-0.5 * ((f - centre) / bandwidth) ** 2)


def gaussian_kernel(tau: Tensor, width: Tensor) -> Tensor:
    """κ(τ) = exp(−τ²/2s²); τ and s in tokens."""
    return torch.exp(-0.5 * (tau / width) ** 2)


def mexican_hat_kernel(tau: Tensor, width: Tensor) -> Tensor:
    """κ(τ) = (1 − τ²/s²)·exp(−τ²/2s²), the Ricker wavelet; τ and s in tokens."""
    return (1 - (tau / width) ** 2) * gaussian_kernel(tau, width)


def morlet_kernel(tau: Tensor, width: Tensor, frequency: Tensor) -> Tensor:
    """κ(τ) = exp(−τ²/2s²)·cos(2πfτ), the real Morlet wavelet; τ and s in tokens."""
    return gaussian_kernel(tau, width) * torch.cos(2 * torch.pi * frequency * tau)


def kernel_of(phi: Tensor, context: int) -> Tensor:
    """κ = irfft(φ): the circular kernel, shape (…, T), of a spectrum of shape (…, ⌊T/2⌋+1)."""
    return torch.fft.irfft(phi, n=context)


def circular_lags(context: int, device: torch.device | None = None) -> Tensor:
    """The signed lag that each index of a circular kernel stands for: 0, 1, … −2, −1; shape (T,)."""
    half = context // 2
    return (torch.arange(context, device=device) + half) % context - half


def toeplitz(kernel: Tensor) -> Tensor:
    """G_ij = κ(i−j), shape (…, T, T), of a kernel at the lags −(T−1) … T−1, shape (…, 2T−1)."""
    return kernel.unfold(-1, (kernel.shape[-1] + 1) // 2, 1).flip(-1)


def circulant(kernel: Tensor) -> Tensor:
    """G_ij = κ((i−j) mod T), shape (…, T, T), of a circular kernel of shape (…, T)."""
    return toeplitz(torch.cat([kernel[..., 1:], kernel], dim=-1))


def one_sided(kernel: Tensor, context: int) -> Tensor:
    """G_ij = κ(i−j) for i ≥ j and exactly 0 above the diagonal, of a kernel at the lags 0 … K−1.

    Shape (…, K) → (…, T, T). The product with it is causal to the bit, which a zero-padded FFT,
    whose rounding errors spread over the whole window, is not.
    """
    taps = kernel[..., :context]
    return toeplitz(F.pad(taps, (context - 1, context - taps.shape[-1])))


def convolve(matrix: Tensor, x: Tensor) -> Tensor:
    """x̃ = G x for each head: (H, T, T) and (B, T, H, d) → (B, T, H, d)."""
    return torch.einsum("hts,bshd->bthd", matrix, x)


def parseval_weights(context: int) -> Tensor:
    """How often each rfft bin occurs in the full transform: 1 at DC and Nyquist, else 2; (⌊T/2⌋+1,).

    Parseval: Σ_t x_t² = (1/T) Σ_m w_m |x̂_m|².
    """
    weights = torch.full((context // 2 + 1,), 2.0)
    weights[0] = 1
    if context % 2 == 0:
        weights[-1] = 1
    return weights


def synthesis(x: Tensor, phi: Tensor) -> Tensor:
    """The filter written out: x̃_t = (1/T) Σ_m w_m φ_m Re[x̂_m e^{2πimt/T}], w of :func:`parseval_weights`.

    "A weighted scalar a position", collapsed over the frequency axis, in O(T²): the inverse transform
    under another name, and the reference for :func:`spectral`. Shapes as there.
    """
    context = x.shape[1]
    t, m = torch.arange(context), torch.arange(phi.shape[-1])
    wave = torch.exp(2j * torch.pi * (torch.outer(t, m) % context).to(x.dtype) / context)
    spectrum = torch.einsum("tm,bthd->bmhd", wave.conj(), x.to(wave.dtype))
    weighted = spectrum * (parseval_weights(context).to(x) * phi).T[:, :, None]
    return torch.einsum("tm,bmhd->bthd", wave, weighted).real / context


def spectral(x: Tensor, phi: Tensor) -> Tensor:
    """x̃ = irfft(rfft(x)·φ) along time: x (B, T, H, d), d even; φ (H, ⌊T/2⌋+1), real or complex.

    A real kernel filters the real and the imaginary part of a complex series each by itself, so that
    neighbouring channels make one complex series: half as many transforms, and full complex ones, whose
    gradient, unlike the real ones', costs no more than they do.
    """
    B, T, H, d = x.shape
    mirrored = phi[:, 1 : (T + 1) // 2].flip(-1).conj()
    full = torch.cat([phi, mirrored], dim=-1)[:, None]
    series = (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x).contiguous()
    pairs = torch.view_as_complex(series.view(B * T, H * d // 2, 2))
    # As one matrix, there and back: torch transposes a matrix faster than a stack of them.
    spectrum = torch.fft.fft(pairs.T.contiguous().view(H, -1, T))
    filtered = torch.fft.ifft(spectrum * full).view(-1, B * T).T.contiguous()
    return torch.view_as_real(filtered).view(B, T, H, d).to(x.dtype)

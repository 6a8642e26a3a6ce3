"""What each variant does to queries and keys before the dot product, or instead of it.

A mixer maps queries and keys, each of shape (B, T, H, d), to queries and keys; causal mask, softmax
and values are the attention's and stay as they are. Spectra and kernels are one a head, the same for its
queries and keys. Every size not named by the paper's summaries is a reading of ours, said where it is
taken.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fqk import filters

QueriesKeys = tuple[Tensor, Tensor]

LADDER = (60.0, 25.0, 10.0, 5.0)  # the four starting periods, paragraph to word, in tokens


class Mixer(nn.Module):
    """Ordinary dot-product attention: queries and keys as they are (``base-dot``)."""

    def __init__(self, heads: int, head_dim: int, context: int) -> None:
        super().__init__()
        self.heads, self.head_dim, self.context = heads, head_dim, context

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        return q, k

    def scales(self) -> dict[str, Tensor]:
        """The time scales that this mixer has, in tokens or cycles per token, each of shape (H, P)."""
        return {}


class Bumps(nn.Module):
    """φ_h(f) = Σ_p a_hp·exp(−½((f − f_hp)/σ_hp)²), P Gaussian bumps a head.

    f and σ are learned through their logarithms, σ starts at f/4 (our reading), a at 1. The amplitude of
    a single bump is not learned, as W_q and W_k absorb it.
    """

    log_frequency: Tensor
    log_bandwidth: Tensor
    amplitude: Tensor

    def __init__(self, frequency: Tensor, learned: bool = True) -> None:
        super().__init__()
        values = {
            "log_frequency": frequency.log(),
            "log_bandwidth": (frequency / 4).log(),
            "amplitude": torch.ones_like(frequency),
        }
        for name, value in values.items():
            if learned and not (name == "amplitude" and frequency.shape[1] == 1):
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    @classmethod
    def starting_at(cls, periods: Sequence[float], heads: int) -> "Bumps":
        """Learned bumps that start at these periods, in tokens, in every head.

        Bumps that start at one period start 1 % apart at random: equal ones have equal gradients and would
        never part.
        """
        period = torch.tensor(periods).expand(heads, -1)
        if len(set(periods)) < len(periods):
            period = period * torch.exp(0.01 * torch.randn(period.shape))
        return cls(1 / period)

    @classmethod
    def random(cls, heads: int, context: int) -> "Bumps":
        """One fixed bump a head, f log-uniform between 1/T and 1/4, drawn once."""
        low, high = math.log(1 / context), math.log(1 / 4)
        return cls(torch.exp(low + (high - low) * torch.rand(heads, 1)), learned=False)

    def forward(self, context: int) -> Tensor:
        """φ at the frequencies of a window of ``context`` tokens, shape (H, ⌊T/2⌋+1)."""
        f = torch.fft.rfftfreq(context, device=self.log_frequency.device)
        bump = filters.gaussian_bump(
            f, self.log_frequency.exp()[..., None], self.log_bandwidth.exp()[..., None]
        )
        return (self.amplitude[..., None] * bump).sum(1)

    def scales(self) -> dict[str, Tensor]:
        return {
            "period": (-self.log_frequency).exp(),
            "bandwidth": self.log_bandwidth.exp(),
            "amplitude": self.amplitude,
        }


class Spectral(Mixer):
    """q̃ = F⁻¹[q̂·φ], k̃ = F⁻¹[k̂·φ] over the window: bilateral, so that every position reads all others.

    Without ``periods`` the filter is one fixed random bump a head (``random-qk``).
    """

    def __init__(
        self, heads: int, head_dim: int, context: int, periods: Sequence[float] | None = None
    ) -> None:
        super().__init__(heads, head_dim, context)
        self.bumps = Bumps.starting_at(periods, heads) if periods else Bumps.random(heads, context)

    def scales(self) -> dict[str, Tensor]:
        return self.bumps.scales()

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        phi = self.bumps(q.shape[1])
        return filters.spectral(q, phi), filters.spectral(k, phi)


class CausalSpectral(Spectral):
    """The one-sided twin: κ zeroed for τ < 0, up to T taps, so that the range stays and the future goes.

    κ is sampled on a line of twice the model's context, whatever the window's length: past lags never
    wrap, and a shorter window sees the same filter.
    """

    def matrix(self, context: int) -> Tensor:
        """G of shape (H, T, T), zero above the diagonal."""
        line = 2 * self.context
        return filters.one_sided(filters.kernel_of(self.bumps(line), line), context)

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        matrix = self.matrix(q.shape[1])
        return filters.convolve(matrix, q), filters.convolve(matrix, k)


class Collapsed(Spectral):
    """Frequency collapsed to one scalar a channel: the share of the window's amplitude that φ passes.

    gain = √(Σ_m w_m|φ_m q̂_m|² / Σ_m w_m|q̂_m|²), q̃_t = gain·q_t at all t (and k likewise). By Parseval
    it is the ratio of the root mean squares of filtered and unfiltered series. No series is reconstructed,
    yet the gain still knows the whole window, the future included.
    """

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        phi = self.bumps(q.shape[1])
        return self.scaled(q, phi), self.scaled(k, phi)

    def scaled(self, x: Tensor, phi: Tensor) -> Tensor:
        """Each channel of x (B, T, H, d) times its gain."""
        power = torch.fft.rfft(x.float(), dim=1).abs() ** 2
        weighted = filters.parseval_weights(x.shape[1]).to(power)[:, None, None] * power
        passed = phi.T[:, :, None] ** 2 * weighted
        return x * _amplitude(passed.sum(1, True), weighted.sum(1, True)).to(x.dtype)


class CausalCollapsed(CausalSpectral):
    """The same scalar from positions ≤ t only: running root mean squares, the one-sided filter.

    gain_t = √(Σ_{s≤t} (κ₊∗q)_s² / Σ_{s≤t} q_s²), q̃_t = gain_t·q_t.
    """

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        filtered_q, filtered_k = super().forward(q, k)
        return self.scaled(q, filtered_q), self.scaled(k, filtered_k)

    def scaled(self, x: Tensor, filtered: Tensor) -> Tensor:
        """Each channel and position of x (B, T, H, d) times its gain."""
        passed, whole = (filtered.float() ** 2).cumsum(1), (x.float() ** 2).cumsum(1)
        return x * _amplitude(passed, whole).to(x.dtype)


def _amplitude(passed: Tensor, whole: Tensor) -> Tensor:
    tiny = 1e-12  # a silent channel passes nothing, with a finite gradient
    return torch.sqrt((passed + tiny) / (whole + tiny))


class Gaussian(nn.Module):
    """κ_h(τ) = exp(−τ²/2s_h²), one width a head; spread from 2 tokens to T/8 at the start (our reading)."""

    def __init__(self, heads: int, context: int, learned: bool = True) -> None:
        super().__init__()
        self.log_width = nn.Parameter(_spread(2, context / 8, heads).log(), requires_grad=learned)

    def forward(self, tau: Tensor) -> Tensor:
        """κ at the lags ``tau`` of shape (K,), shape (H, K)."""
        return filters.gaussian_kernel(tau, self.log_width.exp())

    def scales(self) -> dict[str, Tensor]:
        return {"width": self.log_width.exp()}


class MexicanHat(Gaussian):
    """κ_h(τ) = (1 − τ²/s_h²)·exp(−τ²/2s_h²), the same otherwise."""

    def forward(self, tau: Tensor) -> Tensor:
        return filters.mexican_hat_kernel(tau, self.log_width.exp())


class Morlet(nn.Module):
    """κ_h(τ) = exp(−τ²/2s_h²)·cos(2πf_hτ), a width and a frequency a head.

    Heads start at periods spread over the ladder, with s at half a period (our reading).
    """

    def __init__(self, heads: int, context: int, learned: bool = True) -> None:
        super().__init__()
        period = _spread(LADDER[0], LADDER[-1], heads)
        self.log_frequency = nn.Parameter(-period.log(), requires_grad=learned)
        self.log_width = nn.Parameter((period / 2).log(), requires_grad=learned)

    def forward(self, tau: Tensor) -> Tensor:
        """κ at the lags ``tau`` of shape (K,), shape (H, K)."""
        return filters.morlet_kernel(tau, self.log_width.exp(), self.log_frequency.exp())

    def scales(self) -> dict[str, Tensor]:
        return {"period": (-self.log_frequency).exp(), "width": self.log_width.exp()}


def _spread(first: float, last: float, heads: int) -> Tensor:
    """One scale a head, geometrically from first to last, shape (H, 1)."""
    return torch.logspace(math.log10(first), math.log10(last), heads)[:, None]


class MorletCrossCorrelation(Mixer):
    """e_ij = Σ_τ κ(τ) q_i·k_{j−τ}, τ in −T/2 … T/2: the keys alone convolved with an even kernel, by FFT."""

    def __init__(self, heads: int, head_dim: int, context: int) -> None:
        super().__init__(heads, head_dim, context)
        self.kernel = Morlet(heads, context)

    def scales(self) -> dict[str, Tensor]:
        return self.kernel.scales()

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        kernel = self.kernel(filters.circular_lags(k.shape[1], k.device))
        return q, filters.spectral(k, torch.fft.rfft(kernel).real)


class CausalConvolution(Mixer):
    """q̃_t = Σ_{0≤τ<K} κ(τ) q_{t−τ} with K = T/2 taps of a kernel, learned or fixed, scaled to Σ|κ| = 1."""

    def __init__(
        self,
        heads: int,
        head_dim: int,
        context: int,
        kernel: type[Gaussian] | type[Morlet],
        learned: bool = True,
    ) -> None:
        super().__init__(heads, head_dim, context)
        self.kernel = kernel(heads, context, learned)

    def scales(self) -> dict[str, Tensor]:
        return self.kernel.scales()

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        kernel = self.kernel(torch.arange(self.context // 2, device=q.device))
        kernel = kernel / kernel.abs().sum(-1, keepdim=True)
        matrix = filters.one_sided(kernel, q.shape[1])
        return filters.convolve(matrix, q), filters.convolve(matrix, k)


class PhaseRandom(Mixer):
    """q̂ → |q̂|·e^{iθ}, θ uniform for each frequency and channel, drawn afresh at each forward pass.

    One draw serves all windows of the batch. DC and Nyquist, which are real, stay as they are.
    """

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        return self.scrambled(q), self.scrambled(k)

    def scrambled(self, x: Tensor) -> Tensor:
        """x (B, T, H, d) with other phases."""
        context = x.shape[1]
        spectrum = torch.fft.rfft(x.float(), dim=1)
        theta = 2 * torch.pi * torch.rand(spectrum.shape[1:], device=x.device)
        turned = torch.polar(spectrum.abs(), theta.expand(spectrum.shape))
        real = (filters.parseval_weights(context) == 1).to(x.device)[:, None, None]
        return torch.fft.irfft(torch.where(real, spectrum, turned), n=context, dim=1).to(x.dtype)


class PhaseFixed(Mixer):
    """q̂ → q̂·e^{iθ(f)}, one θ(f) a head drawn once: an all-pass filter, bilateral like the others.

    A window of another length takes θ at the nearest frequency of the full one.
    """

    theta: Tensor

    def __init__(self, heads: int, head_dim: int, context: int) -> None:
        super().__init__(heads, head_dim, context)
        self.register_buffer("theta", 2 * torch.pi * torch.rand(heads, context // 2 + 1))

    def phi(self, context: int) -> Tensor:
        """e^{iθ(f)} at the frequencies of a window of ``context`` tokens, shape (H, ⌊T/2⌋+1)."""
        f = torch.fft.rfftfreq(context, device=self.theta.device)
        nearest = (f * self.context).round().long().clamp(max=self.context // 2)
        theta = self.theta[:, nearest]
        theta = theta * (filters.parseval_weights(context) != 1).to(theta)  # DC, Nyquist: real
        return torch.polar(torch.ones_like(theta), theta)

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        phi = self.phi(q.shape[1])
        return filters.spectral(q, phi), filters.spectral(k, phi)


class CausalPhaseFixed(PhaseFixed):
    """The same made one-sided: κ at the lags 0 … T/2 of the model's context, whatever the window's."""

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        kernel = filters.kernel_of(self.phi(self.context), self.context)[:, : self.context // 2 + 1]
        matrix = filters.one_sided(kernel, q.shape[1])
        return filters.convolve(matrix, q), filters.convolve(matrix, k)


class Rotation(Mixer):
    """Fixed random orthogonal matrices on the head dimension, shared by queries and keys or not."""

    matrix: Tensor

    def __init__(self, heads: int, head_dim: int, context: int, shared: bool) -> None:
        super().__init__(heads, head_dim, context)
        query = _orthogonal(heads, head_dim)
        key = query if shared else _orthogonal(heads, head_dim)
        self.register_buffer("matrix", torch.stack([query, key]))

    def forward(self, q: Tensor, k: Tensor) -> QueriesKeys:
        for_q, for_k = self.matrix
        turn = "hde,bthe->bthd"
        return torch.einsum(turn, for_q, q), torch.einsum(turn, for_k, k)


class Projection(Rotation):
    """A fixed random matrix U·S·Vᵀ, not orthogonal: condition number 10, |determinant| 1, shared."""

    def __init__(self, heads: int, head_dim: int, context: int) -> None:
        super().__init__(heads, head_dim, context, shared=True)
        stretch = torch.logspace(0.5, -0.5, head_dim)[:, None]
        self.matrix = self.matrix @ (stretch * _orthogonal(heads, head_dim))


def _orthogonal(heads: int, head_dim: int) -> Tensor:
    """Haar-distributed orthogonal matrices, shape (H, d, d)."""
    return torch.stack([nn.init.orthogonal_(torch.empty(head_dim, head_dim)) for _ in range(heads)])


class FourierMixing(nn.Module):
    """FNet's sublayer, Re(F_seq F_hidden x) (Lee-Thorp et al. 2021): no queries, keys or scores.

    (B, T, C) → (B, T, C), in place of the whole attention.
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fftn(x.float(), dim=(-2, -1)).real.to(x.dtype)

"""The filter explorer: a spectrum, its kernel and its matrix, and how much of them is the future's."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import traitlets
from torch import Tensor

from fqk import filters
from fqk.explorers.base import Explorer, module
from fqk.mixers import LADDER
from fqk.records import Record
from fqk.variants import VARIANTS

# Each family's name for a reader, and the variant that it is: bilateral, one-sided.
FAMILIES = {
    "bump": ("one bump", "fourier-qk", "causal-fourier-qk"),
    "bumps": ("four bumps", "multifourier-qk", "causal-multifourier-qk"),
    "random": ("a random bump", "random-qk", "causal-random-qk"),
    "morlet": ("Morlet wavelet", "morlet-xcorr", "causal-morlet"),
    "mexican hat": ("Mexican hat", None, "causal-mexhat"),
    "gaussian": ("Gaussian", None, "causal-gaussian"),
}
CONTEXTS = (32, 64, 128, 256)


class FilterExplorer(Explorer):
    """φ(f), κ(τ) and G of a filter that the reader sets, or of a trained head.

    ``period``, in tokens, is that of one bump, of the longest of four, or of the Morlet wavelet;
    ``bandwidth`` is σ/f of each bump; ``width`` is the s of Morlet, Mexican hat and Gaussian, in tokens;
    ``draw`` is the number of the random bump. With ``one_sided`` the kernel is the causal twin's. ``head``
    is the place in ``data["heads"]`` of the filter that family ``trained`` shows.
    """

    _esm = module("filter")
    family = traitlets.Enum([*FAMILIES, "trained"], "bumps").tag(sync=True)
    period = traitlets.Float(60.0, min=2, max=256).tag(sync=True)
    bandwidth = traitlets.Float(0.25, min=0.02, max=1).tag(sync=True)
    width = traitlets.Float(12.5, min=1, max=64).tag(sync=True)
    draw = traitlets.Int(0, min=0, max=15).tag(sync=True)
    context = traitlets.Enum(CONTEXTS, 128).tag(sync=True)
    one_sided = traitlets.Bool(False).tag(sync=True)
    head = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, records: Iterable[Record] = (), **values: Any) -> None:
        """With the learned filters of ``records``, and controls set to ``values``."""
        draws = torch.rand(16, generator=torch.Generator().manual_seed(0)).tolist()
        heads = [head for record in records for head in learned_filters(record)]
        data = {
            "families": [[name, *texts] for name, texts in FAMILIES.items()],
            "contexts": CONTEXTS,
            "ladder": LADDER,
            "draws": draws,
            "heads": heads,
        }
        super().__init__(data=data, **values)

    def parameters(self) -> dict[str, Any]:
        """Of bumps their periods (tokens), bandwidths (cycles per token) and amplitudes; else a width."""
        if self.family == "trained":
            return self.data["heads"][self.head]
        if self.family in ("bump", "bumps", "random"):
            if self.family == "random":
                low, high = math.log(1 / self.context), math.log(1 / 4)
                periods = [math.exp(-low - (high - low) * self.data["draws"][self.draw])]
            else:
                ladder = LADDER if self.family == "bumps" else LADDER[:1]
                periods = [self.period * start / LADDER[0] for start in ladder]
            return {
                "kind": "bumps",
                "period": periods,
                "bandwidth": [self.bandwidth / period for period in periods],
                "amplitude": [1.0] * len(periods),
            }
        return {"kind": self.family, "period": [self.period], "width": [self.width]}

    def kernel(self) -> Tensor:
        """κ in double precision: at the circular lags, shape (T,), or one-sided at 0 … K−1, shape (K,)."""
        values = self.parameters()
        T = self.context
        if values["kind"] == "bumps":
            line = 2 * T if self.one_sided else T
            f = torch.fft.rfftfreq(line, dtype=torch.float64)
            period, bandwidth, amplitude = (
                torch.tensor(values[name]).double()[:, None] for name in ("period", "bandwidth", "amplitude")
            )
            phi = (amplitude * filters.gaussian_bump(f, 1 / period, bandwidth)).sum(0)
            return filters.kernel_of(phi, line)[:T]
        tau = (torch.arange(T // 2) if self.one_sided else filters.circular_lags(T)).double()
        width = torch.tensor(values["width"]).double()
        if values["kind"] == "morlet":
            kernel = filters.morlet_kernel(tau, width, 1 / torch.tensor(values["period"]).double())
        elif values["kind"] == "mexican hat":
            kernel = filters.mexican_hat_kernel(tau, width)
        else:
            kernel = filters.gaussian_kernel(tau, width)
        return kernel / kernel.abs().sum() if self.one_sided else kernel

    def spectrum(self) -> Tensor:
        """|φ| at the frequencies m/T, shape (⌊T/2⌋+1,)."""
        return torch.fft.rfft(self.kernel(), n=self.context).abs()

    def matrix(self) -> Tensor:
        """G of q̃ = G q, shape (T, T)."""
        kernel = self.kernel()
        return filters.one_sided(kernel, self.context) if self.one_sided else filters.circulant(kernel)

    def future_share(self) -> float:
        """The share of κ's energy that lies at τ < 0."""
        if self.one_sided:
            return 0.0
        energy = self.kernel() ** 2
        return (energy[filters.circular_lags(self.context) < 0].sum() / energy.sum()).item()


def learned_filters(record: Record) -> list[dict[str, Any]]:
    """The filter of each head at the end of training; none of a variant that filters no series."""
    variant = VARIANTS[record.identity.variant]
    if not record.scales or variant.family == "collapsed":
        return []
    heads = []
    for layer, scales in enumerate(record.scales[-1].layers):
        if "bandwidth" in scales:
            kind = "bumps"
        elif "period" in scales:
            kind = "morlet"
        else:
            kind = "mexican hat" if "mexhat" in variant.name else "gaussian"
        for head in range(len(next(iter(scales.values())))):
            heads.append(
                {
                    "label": f"{variant.name}, seed {record.identity.seed}, layer {layer}, head {head}",
                    "kind": kind,
                    "one_sided": variant.family == "causal",
                    "context": record.identity.profile.context,
                    **{name: [float(f"{v:.4g}") for v in values[head]] for name, values in scales.items()},
                }
            )
    return heads

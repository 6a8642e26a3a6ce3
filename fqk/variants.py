"""The registry: every variant of the paper, the figure it reports and the claim it tests.

Adding a variant is one small class in ``mixers.py`` and one entry here; training, reports, figures and
the book take it from the registry.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from torch import nn

from fqk import mixers
from fqk.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Variant:
    """One row of the paper's comparison.

    ``mixer`` is called with ``heads``, ``head_dim`` and ``context``; a variant that does not attend has a
    whole sublayer in its place, called with nothing. ``paper`` is the validation loss that the paper
    prints, in nats a character. ``revision`` is raised whenever the mixer's results change.
    """

    name: str
    mixer: Callable[..., nn.Module]
    family: str
    claim: str
    chapter: str
    summary: str
    paper: float | None = None
    attends: bool = True
    revision: int = 1


TRAINED, CONTROLS, CAUSAL, HONEST, LADDER = (
    "every-variant-trained",
    "controls",
    "causal-filters",
    "honest-spectral-attention",
    "frequency-ladder",
)

VARIANTS = {
    variant.name: variant
    for variant in (
        Variant(
            "base-dot", mixers.Mixer, "baseline", "C0", TRAINED,
            "ordinary dot-product attention", paper=1.474,
        ),
        Variant(
            "random-qk", mixers.Spectral, "bilateral", "C1", TRAINED,
            "one fixed random bump a head", paper=1.031,
        ),
        Variant(
            "fourier-qk", partial(mixers.Spectral, periods=mixers.LADDER[:1]),
            "bilateral", "C2", TRAINED, "one learned frequency a head", paper=0.608,
        ),
        Variant(
            "multifourier-qk", partial(mixers.Spectral, periods=mixers.LADDER),
            "bilateral", "C3", TRAINED, "four learned frequencies a head", paper=0.309,
        ),
        Variant(
            "morlet-xcorr", mixers.MorletCrossCorrelation, "bilateral", "C10", TRAINED,
            "keys correlated with an even Morlet wavelet", paper=0.018,
        ),
        Variant(
            "fourier-qk-collapsed", partial(mixers.Collapsed, periods=mixers.LADDER[:1]),
            "collapsed", "C11", TRAINED, "one gain a channel from the whole window",
        ),
        Variant(
            "multifourier-qk-collapsed", partial(mixers.Collapsed, periods=mixers.LADDER),
            "collapsed", "C11", TRAINED, "the same with four frequencies",
        ),
        Variant(
            "fourier-qk-collapsed-causal",
            partial(mixers.CausalCollapsed, periods=mixers.LADDER[:1]),
            "collapsed", "C11", TRAINED, "one gain a channel and position, from the past",
        ),
        Variant(
            "multifourier-qk-collapsed-causal",
            partial(mixers.CausalCollapsed, periods=mixers.LADDER),
            "collapsed", "C11", TRAINED, "the same with four frequencies",
        ),
        Variant(
            "phase-random", mixers.PhaseRandom, "phase", "C5", CONTROLS,
            "amplitudes kept, phases drawn afresh",
        ),
        Variant(
            "phase-fixed", mixers.PhaseFixed, "phase", "C5", CONTROLS,
            "a fixed random all-pass filter",
        ),
        Variant(
            "causal-phase-fixed", mixers.CausalPhaseFixed, "phase", "C5", CONTROLS,
            "the same made one-sided, K = T/2 + 1",
        ),
        Variant(
            "rotation-shared", partial(mixers.Rotation, shared=True), "metric", "C7", CONTROLS,
            "one random rotation on queries and keys",
        ),
        Variant(
            "rotation-separate", partial(mixers.Rotation, shared=False), "metric", "C7", CONTROLS,
            "different random rotations on queries and keys",
        ),
        Variant(
            "projection", mixers.Projection, "metric", "C7", CONTROLS,
            "a random matrix of condition number 10",
        ),
        Variant(
            "fnet", mixers.FourierMixing, "bilateral", "C13", CONTROLS,
            "FNet's Fourier mixing in place of attention", attends=False,
        ),
        Variant(
            "causal-gaussian", partial(mixers.CausalConvolution, kernel=mixers.Gaussian),
            "causal", "C6", CAUSAL, "one-sided Gaussian, K = T/2",
        ),
        Variant(
            "causal-mexhat", partial(mixers.CausalConvolution, kernel=mixers.MexicanHat),
            "causal", "C6", CAUSAL, "one-sided Mexican hat, K = T/2",
        ),
        Variant(
            "causal-morlet", partial(mixers.CausalConvolution, kernel=mixers.Morlet),
            "causal", "C6", CAUSAL, "one-sided Morlet wavelet, K = T/2",
        ),
        Variant(
            "causal-gaussian-fixed",
            partial(mixers.CausalConvolution, kernel=mixers.Gaussian, learned=False),
            "causal", "C6", CAUSAL, "the same, not learned",
        ),
        Variant(
            "causal-mexhat-fixed",
            partial(mixers.CausalConvolution, kernel=mixers.MexicanHat, learned=False),
            "causal", "C6", CAUSAL, "the same, not learned",
        ),
        Variant(
            "causal-morlet-fixed",
            partial(mixers.CausalConvolution, kernel=mixers.Morlet, learned=False),
            "causal", "C6", CAUSAL, "the same, not learned",
        ),
        Variant(
            "causal-random-qk", mixers.CausalSpectral, "causal", "C14", HONEST,
            "random-qk made one-sided, K = T",
        ),
        Variant(
            "causal-fourier-qk", partial(mixers.CausalSpectral, periods=mixers.LADDER[:1]),
            "causal", "C14", HONEST, "fourier-qk made one-sided, K = T",
        ),
        Variant(
            "causal-multifourier-qk", partial(mixers.CausalSpectral, periods=mixers.LADDER),
            "causal", "C14", HONEST, "multifourier-qk made one-sided, K = T",
        ),
        Variant(
            "multifourier-qk-from-20", partial(mixers.Spectral, periods=(20.0,) * 4),
            "bilateral", "C8", LADDER, "multifourier-qk, all four periods started at 20",
        ),
        Variant(
            "multifourier-qk-from-linear", partial(mixers.Spectral, periods=(100.0, 83.0, 67.0, 50.0)),
            "bilateral", "C8", LADDER, "multifourier-qk started at 100, 83, 67 and 50",
        ),
        Variant(
            "multifourier-qk-from-log", partial(mixers.Spectral, periods=(128.0, 32.0, 8.0, 2.0)),
            "bilateral", "C8", LADDER, "multifourier-qk started at 128, 32, 8 and 2",
        ),
    )
}  # fmt: skip


def get_variant(name: str) -> Variant:
    """The variant of that name.

    Raises:
        InputError: there is none; the sentence names the nearest.
    """
    return choose(name, VARIANTS, "variant")


def choose(name: str, among: dict[str, T], kind: str) -> T:
    """``among[name]``, or an :class:`InputError` that names the nearest matches."""
    if name in among:
        return among[name]
    near = difflib.get_close_matches(name, among, n=3, cutoff=0.4) or list(among)
    raise InputError(f"there is no {kind} {name!r}; did you mean {' or '.join(near)}?")

"""The EMD explorer: what empirical mode decomposition makes of a head's series, and of white noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import traitlets
from numpy.typing import ArrayLike

from fqk.explorers.base import Explorer, module, packed


@dataclass(frozen=True)
class Modes:
    """A series over tokens, shape (N,), and its intrinsic mode functions from the fastest, shape (K, N).

    ``periods`` are the IMFs' mean periods, shape (K,), not finite where one has none; ``learned`` are the
    periods of the head's filter. All in tokens.
    """

    label: str
    series: ArrayLike
    imfs: ArrayLike
    periods: Sequence[float]
    learned: Sequence[float] = ()


class EMDExplorer(Explorer):
    """The IMFs of head ``head``, a place in ``data["heads"]``, beside white noise's; IMF ``imf`` is read."""

    _esm = module("emd")
    head = traitlets.Int(0, min=0).tag(sync=True)
    imf = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, heads: Sequence[Modes], noise: Modes, **values: Any) -> None:
        super().__init__(data={"heads": [_plain(head) for head in heads], "noise": _plain(noise)}, **values)


def _plain(given: Modes) -> dict[str, Any]:
    """Each curve in 127ths of its largest value, as bytes: as fine as it is drawn."""
    curves = np.concatenate([np.atleast_2d(given.series), np.atleast_2d(given.imfs)]).astype(float)
    top = np.abs(curves).max(axis=1, keepdims=True)
    periods = np.asarray(given.periods, dtype=float)
    finite = [float(f"{period:.4g}") if np.isfinite(period) else None for period in periods]
    steps = [slow / fast for fast, slow in pairwise(finite) if fast and slow]
    return {
        "label": given.label,
        "length": curves.shape[1],
        "curves": packed(np.round(127 * curves / np.where(top > 0, top, 1)), "i1"),
        "periods": finite,
        "learned": [float(f"{period:.4g}") for period in given.learned],
        "growth": float(np.exp(np.mean(np.log(steps)))) if steps else None,
    }

"""Does EMD find the learned periods in queries and keys, or the ladder that it makes of anything?

Empirical mode decomposition is a dyadic filter bank on white noise (Flandrin, Rilling & Gonçalvès 2004;
Wu & Huang 2004): its intrinsic mode functions (IMFs) have periods a factor of about two apart, whatever
it is given. How near they lie to the learned periods is therefore measured, in octaves, and compared with
five nulls. Series are the projections *before* the mixer, as a filter's output has the filter's periods
by construction. Arrays of series have the shape (L, H, W, 2, T): layers, heads, windows, query and key,
tokens; periods are in tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from PyEMD import EEMD, EMD
from torch import Tensor

from fqk import records
from fqk.corpus import Corpus
from fqk.errors import InputError
from fqk.mixers import Mixer
from fqk.model import GPT, build_model
from fqk.profiles import Profile
from fqk.records import Identity
from fqk.training import numerics
from fqk.variants import VARIANTS

REVISION = 1
"""Raised whenever a decomposition changes its results."""

FOUR_PERIODS = tuple(
    name for name, v in VARIANTS.items() if "multifourier-qk" in name and v.family != "collapsed"
)
"""The variants that filter queries and keys at four learned periods a head."""

WINDOWS = 4  # with 1 + DRAWS series to exchange in each, p can be as low as 5⁻⁴
DRAWS = 4  # of white noise and of surrogates
LADDERS = 99
TRIALS = 4  # of EEMD; most of the cost, and linear in it
EXCHANGED = {
    "white noise": (1, 2),
    "surrogates": (1, 2),
    "untrained": (3,),
    "base-dot": (3,),
    "random ladders": (1, 2, 3),
}
"""The nulls, and what a block of :func:`exchange` is a mean over: layers (1), heads (2), windows (3)."""
NULLS = tuple(EXCHANGED)

Array = NDArray[np.float64]
Decomposer = Callable[[Array], Array]  # a series (T,) to its IMFs (K, T)


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Comparison(_Frozen):
    """What one form of EMD finds in a run, beside its nulls.

    ``periods``: ``trained`` and the nulls that are series → layers → heads → the geometric mean of each
    IMF order that at least half of the series reach, in tokens. ``misfits``: ``trained`` and every null →
    layers → heads, the mean of :func:`misfit` in octaves. ``blocks`` and ``p``: null → what
    :func:`exchange` was given, and its p-value.
    """

    periods: dict[str, list[list[list[float]]]]
    misfits: dict[str, list[list[float]]]
    blocks: dict[str, list[list[float]]]
    p: dict[str, float]


class Decomposition(_Frozen):
    """A run's ``emd.json``: its learned periods (layers → heads), and a comparison a form of EMD."""

    schema_version: Literal[1] = 1
    revision: int
    identity: Identity
    learned: list[list[list[float]]]
    comparisons: dict[str, Comparison]


def decomposers(seed: int) -> dict[str, Decomposer]:
    """Plain EMD, and EEMD (Wu & Huang 2009), the mean over a few trials with white noise added.

    CEEMDAN costs twice as much a trial, and its far weaker noise leaves most orders as plain EMD's.
    """
    ensemble = EEMD(trials=TRIALS, parallel=False)
    ensemble.noise_seed(seed)
    return {"EMD": EMD(), "EEMD": ensemble}


@torch.no_grad()
def queries_keys(model: GPT, windows: Tensor) -> Tensor:
    """What each layer's mixer is given over windows (W, T+1), shape (L, 2, W, T, H, d)."""
    given: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, pair: given.append(torch.stack(pair)))
        for module in model.modules()
        if isinstance(module, Mixer)
    ]
    try:
        model(windows[:, :-1])
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(given)


def sample(model: GPT, windows: Tensor, seed: int) -> Array:
    """One channel drawn for each head's queries and one for its keys, standardised; (L, H, W, 2, T)."""
    pairs = queries_keys(model, windows).permute(0, 4, 2, 1, 3, 5).double().numpy()
    layers, heads, *_, size = pairs.shape
    channels = np.random.default_rng(seed).integers(size, size=(layers, heads, 1, 2, 1, 1))
    return standardise(np.take_along_axis(pairs, channels, axis=-1)[..., 0])


def standardise(series: Array) -> Array:
    """Mean 0 and deviation 1 along time; a constant series becomes 0."""
    centred = series - series.mean(-1, keepdims=True)
    return centred / (centred.std(-1, keepdims=True) + 1e-9)


def surrogates(series: Array, rng: np.random.Generator) -> Array:
    """The same amplitude spectra with other phases (Theiler et al. 1992), shape (…, W, 2, T) kept.

    All series of one window are turned by the same phases, which keeps their cross-spectra too (Prichard
    & Theiler 1994). Spectral peaks stay: only what the spectrum does not say can beat this null.
    """
    spectrum = np.fft.rfft(series)
    theta = rng.uniform(0, 2 * np.pi, (series.shape[-3], 1, spectrum.shape[-1]))
    theta[..., 0] = 0
    if series.shape[-1] % 2 == 0:
        theta[..., -1] = 0  # DC and Nyquist are real
    return np.fft.irfft(spectrum * np.exp(1j * theta), series.shape[-1])


def random_ladders(shape: tuple[int, ...], context: int, rng: np.random.Generator) -> Array:
    """Periods, shape (…, P): one log-uniform in each of the P equal parts of the octaves from 2 to T.

    Periods drawn independently would cluster, and EMD's, which are spread out, would miss them for that.
    """
    part = np.log2(context / 2) / shape[-1]
    return 2 ** (1 + part * (np.arange(shape[-1]) + rng.random(shape)))


def mean_periods(imfs: Array) -> Array:
    """The mean period 2T/n of each IMF of (K, T), from its n zero crossings; shape (≤ K,).

    Flandrin, Rilling & Gonçalvès (2004) count crossings, Wu & Huang (2004) peaks; an IMF has one peak to
    two crossings, but the mean of EEMD's trials has ripples too, which are peaks and cross nothing. With
    fewer than 2 crossings it is the trend.
    """
    crossings = np.diff(np.signbit(imfs), axis=-1).sum(-1)
    return 2 * imfs.shape[-1] / crossings[crossings >= 2]


def decomposed(series: Array, decomposer: Decomposer) -> Array:
    """The mean periods of each series of (…, T), shape (…, K), NaN after a series' last."""
    found = [mean_periods(decomposer(x)) for x in series.reshape(-1, series.shape[-1])]
    most = max(map(len, found))
    rows = [np.pad(periods, (0, most - len(periods)), constant_values=np.nan) for periods in found]
    return np.array(rows).reshape(*series.shape[:-1], most)


def misfit(periods: Array, learned: Array, context: int) -> float:
    """Mean |log₂ learned − log₂ found| over the learned periods, in octaves, each IMF used at most once.

    The best assignment on a line keeps the order, so that it is one over choices of IMFs. Where there are
    fewer IMFs than learned periods the trend, T, stands in for the others.
    """
    found = periods[~np.isnan(periods)]
    found = np.sort(np.pad(found, (0, max(0, len(learned) - len(found))), constant_values=context))
    choices = np.array(list(combinations(np.log2(found), len(learned))))
    return float(np.abs(np.log2(np.sort(learned)) - choices).mean(-1).min())


def misfits(periods: Array, learned: Array, context: int) -> Array:
    """The mean misfit over query and key: (L, H, W, 2, K) and the heads' own (L, H, P) to (L, H, W)."""
    values = np.empty(periods.shape[:-1])
    for index in np.ndindex(values.shape):
        values[index] = misfit(periods[index], learned[index[:2]], context)
    return values.mean(-1)


def exchange(blocks: Array, draws: int = 9999) -> float:
    """p = (1 + #{null ≤ observed})/(1 + n), one-sided, of a random-exchange test; blocks (B, 1 + R).

    A block holds an observed misfit and its R counterparts under the null. If the null is true any of
    them could have been the observed one, independently in each block; the statistic is the blocks' mean.
    With R = 1 it is the paired permutation test of signs. Observed values take part in the draws, which
    makes the test exact (Phipson & Smyth 2010).
    """
    count, width = blocks.shape
    picks = np.random.default_rng(0).integers(width, size=(draws, count))
    null = blocks[np.arange(count), picks].mean(1)
    return float(1 + (null <= blocks[:, 0].mean() + 1e-12).sum()) / (1 + draws)


def compare(models: dict[str, Array], learned: Array, decomposer: Decomposer, seed: int) -> Comparison:
    """What a form of EMD finds in ``trained`` and the nulls, beside the learned periods (L, H, P).

    ``models``: ``trained``, ``untrained`` and ``base-dot``, series of shape (L, H, W, 2, T). What is
    exchanged at once shares a draw of chance: white noise and surrogates go by window, all heads of which
    read one text; models by head; a random ladder is all heads', as these learn nearly the same.
    """
    rng, trained = np.random.default_rng(seed), models["trained"]
    context = trained.shape[-1]
    series = {kind: x[None] for kind, x in models.items()} | {
        "white noise": standardise(rng.standard_normal((DRAWS, *trained.shape))),
        "surrogates": np.array([surrogates(trained, rng) for _ in range(DRAWS)]),
    }
    found = {kind: decomposed(x, decomposer) for kind, x in series.items()}
    values = {
        kind: np.array([misfits(draw, learned, context) for draw in periods])
        for kind, periods in found.items()
    }
    ladders = random_ladders((LADDERS, learned.shape[-1]), context, np.random.default_rng(0))
    values["random ladders"] = np.array(
        [misfits(found["trained"][0], np.broadcast_to(x, learned.shape), context) for x in ladders]
    )
    blocks = {}
    for null, together in EXCHANGED.items():
        both = np.concatenate([values["trained"], values[null]])  # (1 + R, L, H, W)
        blocks[null] = both.mean(together).reshape(len(both), -1).T.round(4)
    layers, heads = map(range, learned.shape[:2])
    return Comparison(
        periods={
            kind: [[_orders(periods[:, layer, head]) for head in heads] for layer in layers]
            for kind, periods in found.items()
        },
        misfits={kind: value.mean((0, 3)).round(4).tolist() for kind, value in values.items()},
        blocks={null: block.tolist() for null, block in blocks.items()},
        p={null: exchange(block) for null, block in blocks.items()},
    )


def _orders(periods: Array) -> list[float]:
    """The geometric mean of each IMF order that half of the series of (…, K) or more reach."""
    rows = periods.reshape(-1, periods.shape[-1])
    reached = (~np.isnan(rows)).mean(0) >= 0.5
    return np.exp(np.nanmean(np.log(rows[:, reached]), 0)).round(2).tolist()


def decompose(results: Path, profile: str, variant: str, seed: int, corpus: Corpus) -> Decomposition:
    """Compare a recorded run with its nulls and leave ``emd.json`` beside its record.

    One that was made of the same run, at this revision, is read back instead. The weights of base-dot's
    run of the same seed must be there too.

    Raises:
        InputError: a record, weights or the variant's four periods are missing, or it is of another text.
    """
    folder = records.run_folder(results, profile, variant, seed)
    path = folder / "emd.json"
    record = records.read_record(folder / "record.json")
    if path.exists():
        earlier = read_decomposition(path)
        if earlier.revision == REVISION and earlier.identity == record.identity:
            return earlier
    if variant not in FOUR_PERIODS:
        raise InputError(f"{variant} does not learn four periods; {', '.join(FOUR_PERIODS)} do")
    setting = record.identity.profile
    if setting.vocabulary:
        corpus = corpus.in_words(setting.vocabulary)
    baseline = records.read_record(records.run_folder(results, profile, "base-dot", seed) / "record.json")
    for run in (record, baseline):
        name = f"{run.identity.variant} at {profile}, seed {seed},"
        if run.diverged_at is not None:
            raise InputError(f"{name} diverged: there is nothing to decompose")
        if run.identity.corpus.sha256 != corpus.sha256:
            raise InputError(f"{name} was trained on {run.identity.corpus.name}, not {corpus.name}")
    models = {
        "trained": records.load_model(results, profile, variant, seed),
        "untrained": build_model(variant, setting, corpus.vocab_size, seed).eval(),
        "base-dot": records.load_model(results, profile, "base-dot", seed),
    }
    windows = corpus.windows(setting.context, WINDOWS)
    with numerics(torch.device("cpu"), setting, threads=1):
        series = {kind: sample(model, windows, seed) for kind, model in models.items()}
    learned = np.array([layer["period"] for layer in record.scales[-1].layers])
    decomposition = Decomposition(
        revision=REVISION,
        identity=record.identity,
        learned=learned.round(4).tolist(),
        comparisons={
            form: compare(series, learned, decomposer, seed) for form, decomposer in decomposers(seed).items()
        },
    )
    text = decomposition.model_dump_json() + "\n"
    records.write_atomically(path, lambda part: part.write_text(text))
    return decomposition


def read_decomposition(path: Path) -> Decomposition:
    """The decomposition in a file.

    Raises:
        InputError: it is truncated, or of another schema.
    """
    try:
        return Decomposition.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"decomposition {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(
            f"decomposition {path} is truncated or not of schema 1: {where}: {first['msg']}"
        ) from None


def read_decompositions(results: Path, profile: str) -> Iterator[Decomposition]:
    """All decompositions of a profile, by variant and seed."""
    for path in sorted((results / profile).glob("*/seed*/emd.json")):
        yield read_decomposition(path)


def decompose_all(results: Path, profile: Profile, corpus: Corpus) -> Iterator[str]:
    """:func:`decompose` every run of multifourier-qk that has its weights; says so line by line.

    Raises:
        InputError: there are no such runs.
    """
    runs = [run.identity for run in records.read_records(results, profile.name) if run.diverged_at is None]
    runs = [run for run in runs if run.variant == "multifourier-qk"]
    if not runs:
        raise InputError(
            f"there are no runs of multifourier-qk at {profile.name} in {results}; run fqk sweep"
        )
    for run in runs:
        name = f"{run.variant} seed {run.seed}"
        folders = [records.run_folder(results, profile.name, v, run.seed) for v in (run.variant, "base-dot")]
        missing = [path for f in folders if not (path := f / "weights.safetensors").exists()]
        if missing:
            yield f"{name}: skipped, {missing[0]} is not there"
            continue
        found = decompose(results, profile.name, run.variant, run.seed, corpus)
        for form, comparison in found.comparisons.items():
            octaves = np.mean(comparison.misfits["trained"])
            against = ", ".join(f"{null} {p:.3f}" for null, p in comparison.p.items())
            yield f"{name}: {form} {octaves:.2f} octaves off; p against {against}"


def verdict(decompositions: Iterable[Decomposition]) -> pd.DataFrame:
    """Each variant against each null, all its seeds together; indexed by variant, form of EMD and null.

    Columns: seeds, misfit and null_misfit in octaves, blocks, p (:func:`exchange`).
    """
    pooled: dict[tuple[str, str, str], list[list[list[float]]]] = {}
    for decomposition in decompositions:
        for form, comparison in decomposition.comparisons.items():
            for null, blocks in comparison.blocks.items():
                pooled.setdefault((decomposition.identity.variant, form, null), []).append(blocks)
    rows = []
    for (*_, null), seeds in pooled.items():
        # One ladder is learned, more or less, by all seeds too: it is one draw, not one a seed.
        values = np.mean(seeds, axis=0) if null == "random ladders" else np.concatenate(seeds)
        rows.append(
            {
                "seeds": len(seeds),
                "misfit": values[:, 0].mean(),
                "null_misfit": values[:, 1:].mean(),
                "blocks": len(values),
                "p": exchange(values),
            }
        )
    index = pd.MultiIndex.from_tuples(list(pooled), names=["variant", "form", "null"])
    return pd.DataFrame(rows, index=index)

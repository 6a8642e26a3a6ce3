"""The paper's fifteen claims, the rule that decides each, and what the records say by that rule.

The rules were fixed when the first few runs of seed 0 were in, and earlier runs at another length of
training had been seen; no claim had the seeds that its rule asks for. A *gain* is a lower loss than
``base-dot``'s, paired by seed: the same seed starts from the same weights and sees the same batches. It
counts when its whole interval (:func:`fqk.report.interval`) lies on one side of zero. A verdict takes three
seeds at least.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import pandas as pd

from fqk.experiments import FILTERS, SPECTRAL, STARTS
from fqk.profiles import Profile
from fqk.records import Record, read_records
from fqk.report import Interval, interval, scales
from fqk.scales import Decomposition, read_decompositions
from fqk.scales import verdict as pooled
from fqk.variants import VARIANTS

SEEDS = 3
PAPER_LADDER = (49.0, 27.0, 10.0, 6.0)


class Outcome(StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    BY_LEAKAGE = "reproduced, by leakage"
    NOT = "not reproduced"
    UNDECIDED = "cannot be decided here"


Figure = Interval | float | int | str
Finding = tuple[Outcome, dict[str, Figure]]


class MissingError(LookupError):
    """The runs that a rule needs and that are not recorded."""


@dataclass(frozen=True)
class Evidence:
    """The records of a profile and of its words, and the decompositions."""

    profile: Profile
    records: Sequence[Record]
    words: Sequence[Record] = ()
    decompositions: Sequence[Decomposition] = ()
    least: int = 1
    """How many seeds of a variant are enough to speak of it."""

    @classmethod
    def of(cls, results: Path, profile: Profile) -> "Evidence":
        """All that lies under ``results``."""
        return cls(
            profile,
            list(read_records(results, profile.name)),
            list(read_records(results, profile.in_words().name)),
            list(read_decompositions(results, profile.name)),
        )

    def runs(self, variant: str, words: bool = False, least: int = 1) -> dict[int, Record]:
        """The finished runs of a variant by seed.

        Raises:
            MissingError: there are not enough.
        """
        found = {
            r.identity.seed: r
            for r in (self.words if words else self.records)
            if r.identity.variant == variant and r.losses
        }
        if len(found) < (least := max(least, self.least)):
            profile = self.profile.in_words() if words else self.profile
            absent = ", ".join(str(seed) for seed in range(least) if seed not in found)
            raise MissingError(f"{variant} at {profile.name}, seed {absent}")
        return found

    def losses(self, variant: str, kind: str = "ordered", words: bool = False) -> dict[int, float]:
        """One of a variant's final losses by seed, in nats a token."""
        return {seed: getattr(r.losses, kind).mean for seed, r in self.runs(variant, words).items()}

    def gain(
        self,
        variant: str,
        kind: str = "ordered",
        words: bool = False,
        comparisons: int = 1,
        over: str = "base-dot",
    ) -> Interval:
        """The loss of ``over`` less the variant's, seed by seed; positive where the variant is better.

        Raises:
            MissingError: they have not enough seeds in common.
        """
        reference, other = self.losses(over, kind, words), self.losses(variant, kind, words)
        both = sorted(reference.keys() & other.keys())
        if len(both) < self.least:
            raise MissingError(f"{self.least} common seeds of {over} and {variant}")
        return interval([reference[seed] - other[seed] for seed in both], comparisons)

    def causal(self, variant: str) -> bool:
        """Whether the audit of every seed finds no later token that moves a prediction."""
        return all(run.audit and run.audit.causal for run in self.runs(variant).values())

    def ladder(self, variant: str) -> pd.DataFrame:
        """Learned periods at the end, longest first: a row a seed, layer and head, in tokens."""
        table = scales(self.runs(variant).values())
        last = table[table.step == table.step.max()]
        rows = last.groupby(["seed", "layer", "head"]).period
        return rows.apply(lambda periods: pd.Series(sorted(periods, reverse=True))).unstack()


@dataclass(frozen=True)
class Claim:
    """One claim in our words, the figure that the paper prints for it, and the rule that decides it."""

    id: str
    statement: str
    paper: str
    rule: str
    decide: Callable[[Evidence], Finding]


@dataclass(frozen=True)
class Verdict:
    """What a claim's rule says of the evidence, and the figures behind it."""

    claim: Claim
    outcome: Outcome
    figures: dict[str, Figure] = field(default_factory=dict)
    missing: str = ""

    def shown(self) -> dict[str, str]:
        """The figures as text; what is missing, where something is."""
        texts = {name: f"{x:.3f}" if isinstance(x, float) else str(x) for name, x in self.figures.items()}
        return texts | ({"missing": self.missing} if self.missing else {})

    def as_dict(self) -> dict[str, object]:
        """All of it as plain values, for JSON."""
        figures = {name: asdict(x) if isinstance(x, Interval) else x for name, x in self.figures.items()}
        claim = {key: getattr(self.claim, key) for key in ("id", "statement", "paper", "rule")}
        return {**claim, "outcome": self.outcome, "figures": figures, "missing": self.missing}


def verdicts(evidence: Evidence) -> list[Verdict]:
    """All claims, judged. A claim whose runs are missing cannot be decided, and says which are."""
    evidence = replace(evidence, least=SEEDS)
    found = []
    for claim in CLAIMS:
        try:
            found.append(Verdict(claim, *claim.decide(evidence)))
        except MissingError as missing:
            found.append(Verdict(claim, Outcome.UNDECIDED, missing=str(missing)))
    return found


def _baseline(evidence: Evidence) -> Finding:
    loss = interval(list(evidence.losses("base-dot").values()))
    figures: dict[str, Figure] = {"base-dot": loss}
    if not evidence.profile.name.startswith("paper"):
        return Outcome.UNDECIDED, figures | {"profile": evidence.profile.name}
    return _whether(abs(loss.mean - 1.474) <= 0.05), figures


def _helps(variant: str) -> Callable[[Evidence], Finding]:
    def decide(evidence: Evidence) -> Finding:
        gain, prefix = evidence.gain(variant), evidence.gain(variant, "prefix_truncated")
        figures: dict[str, Figure] = {
            variant: interval(list(evidence.losses(variant).values())),
            "gain in order": gain,
            "gain from the past alone": prefix,
            "audit": _audit(evidence, variant),
        }
        if gain.low <= 0:
            return Outcome.NOT, figures
        honest = evidence.causal(variant) or prefix.low > 0
        return Outcome.REPRODUCED if honest else Outcome.BY_LEAKAGE, figures

    return decide


def _steady(evidence: Evidence) -> Finding:
    figures: dict[str, Figure] = {}
    steady, honest = True, True
    for variant in ("fourier-qk", "multifourier-qk"):
        evidence.runs("base-dot", least=5)
        evidence.runs(variant, least=5)
        losses = list(evidence.losses(variant).values())
        gain = evidence.gain(variant)
        figures |= {variant: interval(losses), f"deviation of {variant}": float(np.std(losses, ddof=1))}
        steady = steady and gain.low > 0 and bool(np.std(losses, ddof=1) <= 0.1 * gain.mean)
        honest = honest and evidence.causal(variant)
    if not steady:
        return Outcome.NOT, figures
    return Outcome.REPRODUCED if honest else Outcome.BY_LEAKAGE, figures


def _phase(evidence: Evidence) -> Finding:
    gains = {name: evidence.gain(name) for name in ("phase-random", "phase-fixed", "causal-phase-fixed")}
    figures: dict[str, Figure] = {f"gain of {name}": gain for name, gain in gains.items()}
    return _whether(gains["phase-random"].high < 0), figures


def _none_gains(variants: Sequence[str]) -> Callable[[Evidence], Finding]:
    def decide(evidence: Evidence) -> Finding:
        gains = {name: evidence.gain(name, comparisons=len(variants)) for name in variants}
        return _whether(all(gain.low <= 0 for gain in gains.values())), {
            f"gain of {name}": gain for name, gain in gains.items()
        }

    return decide


def _ladder(evidence: Evidence) -> Finding:
    medians = {name: evidence.ladder(name).median() for name in STARTS}
    ratios = evidence.ladder("multifourier-qk").apply(
        lambda periods: (periods.iloc[0] / periods.iloc[-1]) ** (1 / (len(periods) - 1)), axis=1
    )
    figures: dict[str, Figure] = {
        name: ", ".join(f"{period:.1f}" for period in median) for name, median in medians.items()
    }
    figures["ratio of successive rungs"] = interval(list(ratios.groupby("seed").mean()))
    off = [np.abs(np.log2(median.to_numpy() / PAPER_LADDER)).max() for median in medians.values()]
    return _whether(max(off) <= 0.5), figures


def _decomposition(evidence: Evidence) -> Finding:
    found = [d for d in evidence.decompositions if d.identity.variant == "multifourier-qk"]
    if len(found) < SEEDS:
        raise MissingError(f"{SEEDS} decompositions of multifourier-qk at {evidence.profile.name}")
    figures: dict[str, Figure] = {}
    table = pooled(found).loc["multifourier-qk"]
    for row in table.reset_index().itertuples():
        texts = f"{row.misfit:.3f} octaves, {row.null_misfit:.3f} for {row.null}, p = {row.p:.4f}"
        figures[f"{row.form} against {row.null}"] = texts
    return _whether(bool((table.loc["EMD"].p < 0.05).all())), figures


def _morlet(evidence: Evidence) -> Finding:
    outcome, figures = _helps("morlet-xcorr")(evidence)
    return _whether(outcome is Outcome.BY_LEAKAGE), figures


def _collapsed(evidence: Evidence) -> Finding:
    figures: dict[str, Figure] = {}
    holds = False
    for name in (
        f"{filters}-qk-collapsed{causal}"
        for filters in ("fourier", "multifourier")
        for causal in ("", "-causal")
    ):
        gain = evidence.gain(name, comparisons=4)
        holds = holds or (gain.low > 0 and evidence.causal(name))
        figures[f"gain of {name}"] = gain
        figures[f"audit of {name}"] = _audit(evidence, name)
    figures["audit of the reconstructed reading"] = _audit(evidence, "multifourier-qk")
    return _whether(holds), figures


def _gap(evidence: Evidence) -> Finding:
    gaps = {}
    for name in VARIANTS:
        shuffled, ordered = evidence.losses(name, "shuffled"), evidence.losses(name)
        gaps[name] = float(np.mean([shuffled[seed] - ordered[seed] for seed in ordered]))
    causal = {name: gap for name, gap in gaps.items() if evidence.causal(name)}
    leaking = {name: gap for name, gap in gaps.items() if name not in causal}
    if not causal or not leaking:
        raise MissingError("variants of both verdicts of the audit")
    smallest, largest = min(causal, key=gaps.__getitem__), max(leaking, key=gaps.__getitem__)
    return _whether(gaps[smallest] > gaps[largest]), {
        f"smallest gap of a causal variant, {smallest}": gaps[smallest],
        f"largest gap of a leaking one, {largest}": gaps[largest],
        f"smallest gap of a leaking one, {min(leaking, key=gaps.__getitem__)}": min(leaking.values()),
    }


def _not_fnet(evidence: Evidence) -> Finding:
    in_order, alone = (
        evidence.gain("multifourier-qk", kind, comparisons=2, over="fnet")
        for kind in ("ordered", "prefix_truncated")
    )
    return _whether(any(abs(gap.mean) > gap.half_width for gap in (in_order, alone))), {
        "fnet less multifourier-qk, in order": in_order,
        "the same from the past alone": alone,
        "audit of fnet": _audit(evidence, "fnet"),
        "audit of multifourier-qk": _audit(evidence, "multifourier-qk"),
    }


def _words(evidence: Evidence) -> Finding:
    figures: dict[str, Figure] = {}
    gains = {}
    for words, scale in ((False, "characters"), (True, "words")):
        gains[words] = [evidence.gain(name, words=words, comparisons=len(SPECTRAL)) for name in SPECTRAL]
        figures |= {f"gain of {n}, {scale}": g for n, g in zip(SPECTRAL, gains[words], strict=True)}
    fails = all(gain.low <= 0 for gain in gains[False])
    works = any(gain.low > 0 for gain in gains[True])
    return _whether(fails and works), figures


def _whether(holds: bool) -> Outcome:
    return Outcome.REPRODUCED if holds else Outcome.NOT


def _audit(evidence: Evidence, variant: str) -> str:
    return "causal" if evidence.causal(variant) else "leaks"


_GAIN = (
    "Reproduced if the gain over base-dot in order is above zero and the variant is causal, or its gain from "
    "the past alone is above zero too; by leakage if only the gain in order is."
)

CLAIMS = (
    Claim(
        "C0", "Ordinary dot-product attention, BASE-DOT.", "1.474",
        "At the paper profile: reproduced if the mean is within 0.05 of the paper's. Elsewhere the model is "
        "smaller or trained for less, and the figure cannot be decided.",
        _baseline,
    ),
    Claim("C1", "A fixed random spectral filter helps.", "1.031, Δ 0.443", _GAIN, _helps("random-qk")),
    Claim("C2", "One learned frequency a head helps.", "0.608, Δ 0.867", _GAIN, _helps("fourier-qk")),
    Claim("C3", "Four learned frequencies help.", "0.309, Δ 1.166", _GAIN, _helps("multifourier-qk")),
    Claim(
        "C4", "The gain holds over random seeds.", "mean 0.236, deviation 0.019",
        "Five seeds of fourier-qk and of multifourier-qk: steady if the gain is above zero and the deviation "
        "over seeds at most a tenth of it, for both; then reproduced if both are causal, else by leakage.",
        _steady,
    ),
    Claim(
        "C5", "Amplitudes kept and phases drawn at random is worse than BASE-DOT.", "no number",
        "Reproduced if the gain of phase-random is below zero.",
        _phase,
    ),
    Claim(
        "C6", "Causal filters in time do not beat BASE-DOT at character scale.", "no number",
        "Reproduced if none of the six, learned and fixed, has a gain above zero, by Bonferroni's intervals.",
        _none_gains([*FILTERS, *(f"{name}-fixed" for name in FILTERS)]),
    ),
    Claim(
        "C7", "Random rotations and projections, with no filter, give no gain.", "no number",
        "Reproduced if none of the three has a gain above zero, by Bonferroni's intervals.",
        _none_gains(["rotation-shared", "rotation-separate", "projection"]),
    ),
    Claim(
        "C8", "The learned frequencies come to a near-geometric ladder.", "49, 27, 10, 6 tokens",
        "Reproduced if from each of the four starts the median of each rung, over heads and seeds, ends "
        "within half an octave of the paper's.",
        _ladder,
    ),
    Claim(
        "C9", "EMD of the trained model finds the learned scales independently.", "the same four",
        "Reproduced if the IMF periods of trained queries and keys lie nearer to the learned periods than "
        "under every null: white noise, surrogates, the untrained model, base-dot, random ladders; each at "
        "p < 0.05, all seeds together, by plain EMD. EEMD is shown beside it.",
        _decomposition,
    ),
    Claim(
        "C10", "Morlet cross-correlation by inverse FFT leaks.", "0.018",
        "Reproduced if the gain over base-dot in order is above zero, the audit finds a leak, and no gain is "
        "left from the past alone.",
        _morlet,
    ),
    Claim(
        "C11", "FourierQK does not leak, as it collapses frequency to one scalar a position.", "–",
        "Reproduced if a collapsed reading is causal and has a gain above zero, by Bonferroni's intervals.",
        _collapsed,
    ),
    Claim(
        "C12", "A large gap from ordered to shuffled loss is genuine, a small one is leakage.", "–",
        "Reproduced if every causal variant has a larger gap than every leaking one.",
        _gap,
    ),
    Claim(
        "C13", "It is not FNet, which has no queries, keys or scores.", "–",
        "That is so by definition; reproduced if the losses, in order or from the past alone, tell fnet and "
        "multifourier-qk apart.",
        _not_fnet,
    ),
    Claim(
        "C14", "Causal spectral attention fails at character scale but may work at word scale.", "not tried",
        "Reproduced if no one-sided spectral variant has a gain above zero on characters and some has on "
        "words, by Bonferroni's intervals.",
        _words,
    ),
)  # fmt: skip

"""The records of a profile as tables: losses, horizons, scales, what is there, how two folders compare.

Intervals are at 95 %: Student's t over seeds. A run's seed sets its weights, its batches and its random
filters, so that seeds are independent repetitions, and windows of one run are not.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from fqk.errors import InputError
from fqk.experiments import Experiment
from fqk.records import Losses, Record, read_record, run_folder
from fqk.training import REVISION
from fqk.variants import VARIANTS

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and the half-width of its interval; NaN where there is one seed."""

    mean: float
    half_width: float
    seeds: int

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    def __str__(self) -> str:
        return (
            f"{self.mean:.3f} (one seed)" if self.seeds == 1 else f"{self.mean:.3f} ± {self.half_width:.3f}"
        )


def interval(values: Sequence[float], comparisons: int = 1) -> Interval:
    """Student's t interval of a mean; at ``comparisons`` > 1, Bonferroni's, all of which hold together."""
    count = len(values)
    if count < 2:
        return Interval(float(np.mean(values)), np.nan, count)
    quantile = stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, count - 1)
    return Interval(float(np.mean(values)), float(quantile * stats.sem(values)), count)


def summary(records: Iterable[Record]) -> pd.DataFrame:
    """One row a variant of the registry that has records, in its order, indexed by name.

    Losses are means over seeds, in nats a token; ``±`` is the half-width of the interval of the ordered
    loss, over seeds where there are two or more and over windows where there is one. ``first_leak`` is the
    pair (i, j) of the first seed whose audit finds one. Runs that diverged count in ``diverged`` alone.

    Raises:
        InputError: the records are of different texts, whose numbers do not compare.

    Columns: claim, paper, seeds, diverged, ordered, ±, shuffled, permutation_floor, prefix_truncated,
    prefix_padded, causal, first_leak.
    """
    by_variant = _by_variant(records)
    rows = {}
    for name, variant in VARIANTS.items():
        if name not in by_variant:
            continue
        runs = [(r.losses, r.audit) for r in by_variant[name] if r.losses and r.audit]
        row: dict[str, object] = {
            "claim": variant.claim,
            "paper": variant.paper,
            "seeds": len(runs),
            "diverged": len(by_variant[name]) - len(runs),
        }
        if runs:
            losses, audits = zip(*runs, strict=True)
            ordered = interval([loss.ordered.mean for loss in losses])
            one = losses[0].ordered
            within = stats.t.ppf((1 + LEVEL) / 2, one.windows - 1) * one.standard_error
            row |= {"ordered": ordered.mean, "±": within if len(runs) == 1 else ordered.half_width}
            for kind in [kind for kind in Losses.model_fields if kind != "ordered"]:
                row[kind] = np.mean([getattr(loss, kind).mean for loss in losses])
            row["causal"] = all(found.causal for found in audits)
            row["first_leak"] = next((found.first_leak for found in audits if not found.causal), None)
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def horizons(records: Iterable[Record]) -> pd.DataFrame:
    """The loss of each variant by how many tokens ahead it may see: mean over seeds, nats a token.

    A row a variant, a column a horizon; see :func:`fqk.diagnostics.horizon_losses`.
    """
    points = pd.DataFrame(
        [
            {"variant": record.identity.variant, "ahead": point.ahead, "loss": point.loss.mean}
            for record in records
            for point in record.horizons
        ],
        columns=["variant", "ahead", "loss"],
    )
    table = points.pivot_table(index="variant", columns="ahead", values="loss")
    return table.reindex([name for name in VARIANTS if name in table.index])


def scales(records: Iterable[Record]) -> pd.DataFrame:
    """Every time scale at every logged step: one row a variant, seed, step, layer, head and rung.

    Further columns, where the mixer has them: period and width in tokens, bandwidth in cycles per token,
    amplitude. Rung 0 is the one that started with the longest period.
    """
    return pd.DataFrame(
        [
            {
                "variant": record.identity.variant,
                "seed": record.identity.seed,
                "step": logged.step,
                "layer": layer,
                "head": head,
                "rung": rung,
                **{name: heads[head][rung] for name, heads in values.items()},
            }
            for record in records
            for logged in record.scales
            for layer, values in enumerate(logged.layers)
            for head, rungs in enumerate(next(iter(values.values())))
            for rung in range(len(rungs))
        ]
    )


def periods(records: Iterable[Record]) -> pd.DataFrame:
    """The learned periods at the end of training, in tokens: the median over layers, heads and seeds.

    A row a variant that learns periods, a column a rung.
    """
    table = scales(records)
    if "period" not in table:
        return pd.DataFrame()
    last = table[table.step == table.groupby(["variant", "seed"]).step.transform("max")]
    return last.pivot_table(index="variant", columns="rung", values="period", aggfunc="median")


def compare(records: Iterable[Record], others: Iterable[Record]) -> pd.DataFrame:
    """The ordered loss of each run that is in both, in nats a token: ``here``, ``there``, ``difference``.

    Indexed by run, ``<variant> seed <k>``. Runs count as the same when their identities are equal: variant,
    hyper-parameters, text, seed and revisions.

    Raises:
        InputError: there is no such run.
    """
    there = {record.identity: record.losses for record in others}
    rows = {
        f"{identity.variant} seed {identity.seed}": {"here": losses.ordered.mean, "there": other.ordered.mean}
        for record in records
        for identity, losses in [(record.identity, record.losses)]
        if losses and (other := there.get(identity))
    }
    if not rows:
        raise InputError("no run is in both folders under one identity: variant, profile, text, seed")
    table = pd.DataFrame.from_dict(rows, orient="index")
    return table.assign(difference=table.here - table.there)


def inventory(results: Path, experiments: Iterable[Experiment]) -> pd.DataFrame:
    """Every run that the experiments ask for, and what is recorded of it: a row an experiment and run.

    A run that two of them ask for has two rows. ``recorded`` and ``current`` say whether there is a record
    and whether it is of the hyper-parameters and revisions of this code; ``weights``, whether weights lie
    beside it. The other columns are the record's, missing without one.

    Columns: question, profile, variant, seed, recorded, current, weights, mixer_revision, trainer_revision,
    corpus, characters, text_sha256, record_sha256, and those of :class:`fqk.records.Machine`.
    """
    rows = []
    for experiment in experiments:
        for variant in experiment.variants:
            for seed in range(experiment.seeds):
                folder = run_folder(results, experiment.profile.name, variant, seed)
                path = folder / "record.json"
                row: dict[str, object] = {
                    "question": experiment.question,
                    "profile": experiment.profile.name,
                    "variant": variant,
                    "seed": seed,
                    "recorded": path.exists(),
                    "current": False,
                    "weights": (folder / "weights.safetensors").exists(),
                }
                if path.exists():
                    record = read_record(path)
                    identity = record.identity
                    revisions = (identity.mixer_revision, identity.trainer_revision)
                    same = (VARIANTS[variant].revision, REVISION) == revisions
                    row |= {
                        "current": same and identity.profile == experiment.profile,
                        "mixer_revision": identity.mixer_revision,
                        "trainer_revision": identity.trainer_revision,
                        "corpus": identity.corpus.name,
                        "characters": identity.corpus.characters,
                        "text_sha256": identity.corpus.sha256,
                        "record_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                        **record.machine.model_dump(),
                    }
                rows.append(row)
    return pd.DataFrame(rows)


def digest(folder: Path) -> str:
    """SHA-256 over all JSON files below a folder: of their hashes and paths, in the order of the paths.

    The same as ``find . -name '*.json' | LC_ALL=C sort | xargs sha256sum | sha256sum`` in that folder.
    """
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.json"))
    lines = [f"{hashlib.sha256((folder / path).read_bytes()).hexdigest()}  ./{path}\n" for path in paths]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _by_variant(records: Iterable[Record]) -> dict[str, list[Record]]:
    by_variant, corpora = defaultdict(list), set()
    for record in records:
        by_variant[record.identity.variant].append(record)
        corpora.add(f"{record.identity.corpus.name} ({record.identity.corpus.sha256[:8]})")
    if len(corpora) > 1:
        raise InputError(
            f"these records are of different texts, {' and '.join(sorted(corpora))}, which do not compare; "
            "keep each text's results in a folder of its own"
        )
    return by_variant

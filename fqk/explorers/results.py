"""The results explorer: loss curves and final losses, and the record behind each."""

import math
from collections.abc import Iterable
from typing import Any

import traitlets
from scipy import stats

from fqk.explorers.base import Explorer, module
from fqk.records import RESULTS, Record, run_folder
from fqk.report import LEVEL
from fqk.variants import VARIANTS


class ResultsExplorer(Explorer):
    """Loss ``curve`` ("train" or "val") and final losses of ``variants`` and ``seeds``.

    ``run`` is the place in ``records`` of the one that is read, ``point`` the place on its curve.
    """

    _esm = module("results")
    variants = traitlets.List(traitlets.Unicode()).tag(sync=True)
    seeds = traitlets.List(traitlets.Int()).tag(sync=True)
    curve = traitlets.Enum(["val", "train"], "val").tag(sync=True)
    run = traitlets.Int(0, min=0).tag(sync=True)
    point = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, records: Iterable[Record], **values: Any) -> None:
        """With records of one profile and text; the registry's first four variants are chosen."""
        order = list(VARIANTS)
        self.records = sorted(records, key=lambda r: (order.index(r.identity.variant), r.identity.seed))
        names = list(dict.fromkeys(record.identity.variant for record in self.records))
        seeds = sorted({record.identity.seed for record in self.records})
        characters = all(record.identity.corpus.characters_per_token == 1 for record in self.records)
        data = {
            "unit": "nats a character" if characters else "nats a token",
            "variants": [[name, VARIANTS[name].family, _sibling(name)] for name in names],
            "seeds": seeds,
            "quantiles": [float(stats.t.ppf((1 + LEVEL) / 2, n - 1)) for n in range(2, len(seeds) + 1)],
            "runs": [_run(record) for record in self.records],
        }
        chosen = {"variants": names[:4], "seeds": seeds, "point": len(self.records[0].curve) - 1}
        super().__init__(data=data, **chosen | values)

    @property
    def record(self) -> Record:
        """The record that is read."""
        return self.records[self.run]


def _sibling(name: str) -> int:
    """The variant's place in its family, which tells its lines from the others'."""
    return [other for other in VARIANTS if VARIANTS[other].family == VARIANTS[name].family].index(name)


def _finite(value: float) -> float | None:
    """To eight digits after the point; JSON has no NaN."""
    return round(value, 8) if math.isfinite(value) else None


def _run(record: Record) -> dict[str, Any]:
    identity, machine = record.identity, record.machine
    folder = run_folder(RESULTS, identity.profile.name, identity.variant, identity.seed)
    losses = {} if record.losses is None else record.losses.model_dump()
    return {
        "variant": identity.variant,
        "seed": identity.seed,
        "file": str(folder / "record.json"),
        "made": f"{machine.processor}, {machine.wall_seconds:.0f} s",
        "diverged_at": record.diverged_at,
        "causal": record.audit and record.audit.causal,
        "curve": [
            {"step": p.step, "train": _finite(p.train), "val": _finite(p.val)}
            for p in record.curve
            if math.isfinite(p.train + p.val)
        ],
        "losses": {
            name: [_finite(loss["mean"]), _finite(loss["standard_error"]), loss["windows"]]
            for name, loss in losses.items()
        },
    }

"""The frequency explorer: a ruler of a period over a passage, and the periods that heads have learned."""

import re
from collections.abc import Iterable
from typing import Any

import traitlets

from fqk.explorers.base import Explorer, module
from fqk.records import Record
from fqk.variants import VARIANTS

# Where a unit of the text begins. A phrase ends at a punctuation mark or a line's end.
UNITS = {
    "words": re.compile(r"(?<![A-Za-z'-])[A-Za-z]"),
    "phrases": re.compile(r"[A-Za-z](?:[^,.;:!?\n]*)"),
    "lines": re.compile(r"^.", re.MULTILINE),
}


class FrequencyExplorer(Explorer):
    """A ruler of ``period`` characters over a passage, from character ``start``; cycle ``cycle`` of it read.

    ``run`` is the place in ``data["runs"]`` of a record that learned periods; ``layer``, ``head``,
    ``number`` and ``point`` say which of them, and after which point of training. Choosing one there sets
    ``period`` to it.
    """

    _esm = module("frequency")
    period = traitlets.Float(25.0, min=2, max=256).tag(sync=True)
    start = traitlets.Int(0, min=0).tag(sync=True)
    cycle = traitlets.Int(0, min=0).tag(sync=True)
    run = traitlets.Int(0, min=0).tag(sync=True)
    layer = traitlets.Int(0, min=0).tag(sync=True)
    head = traitlets.Int(0, min=0).tag(sync=True)
    number = traitlets.Int(0, min=0).tag(sync=True)
    point = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, records: Iterable[Record], passage: str, **values: Any) -> None:
        """With a passage of some hundred characters, and every record whose heads have periods, in tokens."""
        runs: list[dict[str, Any]] = [
            {
                "variant": record.identity.variant,
                "seed": record.identity.seed,
                "family": VARIANTS[record.identity.variant].family,
                "steps": [scales.step for scales in record.scales],
                # points of training × layers × heads × periods
                "periods": [
                    [
                        [[float(f"{period:.4g}") for period in head] for head in layer["period"]]
                        for layer in scales.layers
                    ]
                    for scales in record.scales
                ],
            }
            for record in records
            if record.scales and "period" in record.scales[0].layers[0]
        ]
        begins = {name: [m.start() for m in unit.finditer(passage)] for name, unit in UNITS.items()}
        last = {"point": len(runs[0]["periods"]) - 1} if runs else {}
        super().__init__(data={"passage": passage, "begins": begins, "runs": runs}, **last | values)

    def learned(self) -> float:
        """The period chosen among the learned ones, in tokens."""
        periods = self.data["runs"][self.run]["periods"][self.point]
        return periods[self.layer][self.head][self.number]

    def cover(self) -> tuple[str, dict[str, int]]:
        """What the chosen cycle covers: its characters, and how many words, phrases and lines begin in it."""
        low, high = (round(self.start + n * self.period) for n in (self.cycle, self.cycle + 1))
        counts = {
            name: sum(low <= begin < high for begin in begins) for name, begins in self.data["begins"].items()
        }
        return self.data["passage"][low:high], counts

    def per_cycle(self) -> dict[str, float]:
        """How many words, phrases and lines begin in a cycle on average over the passage."""
        length = len(self.data["passage"])
        return {name: len(begins) * self.period / length for name, begins in self.data["begins"].items()}

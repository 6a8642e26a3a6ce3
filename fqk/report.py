"""The records of a profile as one table: a row a variant, the paper's figure beside ours."""

from collections.abc import Iterable

import pandas as pd

from fqk.errors import InputError
from fqk.records import Losses, Record
from fqk.variants import VARIANTS


def summary(records: Iterable[Record]) -> pd.DataFrame:
    """One row a variant of the registry that has records, in its order, indexed by name.

    Losses are means over seeds, in nats a token; ``±`` is the standard error of the ordered loss, over
    seeds where there are two or more and over windows where there is one. ``first_leak`` is the pair
    (i, j) of the first seed's audit. Runs that diverged count in ``diverged`` and nowhere else.

    Raises:
        InputError: the records are of different texts, whose numbers do not compare.

    Columns: claim, paper, seeds, diverged, ordered, ±, shuffled, permutation_floor, prefix_truncated,
    prefix_padded, causal, first_leak.
    """
    rows = {}
    by_variant: dict[str, list[Record]] = {}
    corpora = set()
    for record in records:
        by_variant.setdefault(record.identity.variant, []).append(record)
        corpora.add(f"{record.identity.corpus.name} ({record.identity.corpus.sha256[:8]})")
    if len(corpora) > 1:
        raise InputError(
            f"these records are of different texts, {' and '.join(sorted(corpora))}, which do not compare; "
            "keep each text's results in a folder of its own"
        )
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
            ordered = pd.Series([loss.ordered.mean for loss in losses])
            error = ordered.sem() if len(runs) > 1 else losses[0].ordered.standard_error
            row |= {"ordered": ordered.mean(), "±": error}
            for kind in [kind for kind in Losses.model_fields if kind != "ordered"]:
                row[kind] = pd.Series([getattr(loss, kind).mean for loss in losses]).mean()
            row["causal"] = all(found.causal for found in audits)
            row["first_leak"] = audits[0].first_leak
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")

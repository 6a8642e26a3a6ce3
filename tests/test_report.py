"""The tables: intervals against closed forms and known coverage, pairs of folders, what is refused."""

import math
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

from fqk.errors import InputError
from fqk.experiments import Experiment
from fqk.profiles import get_profile
from fqk.records import read_records
from fqk.report import compare, digest, horizons, interval, inventory, periods, scales, summary


@pytest.fixture(scope="module")
def records(results):
    return list(read_records(results, "smoke"))


def seeds(record, *shifts):
    """The same record once a seed, its ordered loss shifted."""
    runs = []
    for seed, shift in enumerate(shifts):
        ordered = record.losses.ordered
        moved = ordered.model_copy(update={"mean": ordered.mean + shift})
        identity = record.identity.model_copy(update={"seed": seed})
        losses = record.losses.model_copy(update={"ordered": moved})
        runs.append(record.model_copy(update={"identity": identity, "losses": losses}))
    return runs


def test_interval_is_students():
    """Of two values a ± d: t at one degree of freedom is tan(0.475π), and the standard error is d."""
    found = interval([1.0, 1.2])
    assert found.mean == pytest.approx(1.1)
    assert found.half_width == pytest.approx(0.1 * math.tan(0.475 * math.pi))
    assert (found.low, found.high) == (found.mean - found.half_width, found.mean + found.half_width)
    assert math.isnan(interval([1.0]).half_width)


@pytest.mark.parametrize("comparisons", [1, 6])
def test_intervals_hold_together_in_95_of_100_cases(comparisons):
    random = np.random.default_rng(0)
    draws = random.standard_normal((2000, comparisons, 3))
    missed = [
        any(abs(found.mean) > found.half_width for found in (interval(d, comparisons) for d in draw))
        for draw in draws
    ]
    assert 0.03 < np.mean(missed) < 0.065


def test_summary_is_over_seeds_where_there_are_two_and_over_windows_where_there_is_one(records):
    base, one = records[0], summary(records[:1]).loc["base-dot"]
    windows = base.losses.ordered
    assert one["±"] == pytest.approx(1.96 * windows.standard_error, rel=0.03)
    two = summary(seeds(base, 0.0, 0.2)).loc["base-dot"]
    assert two.seeds == 2
    assert two.ordered == pytest.approx(windows.mean + 0.1)
    assert two["±"] == pytest.approx(interval([0, 0.2]).half_width)


def test_records_of_two_texts_are_refused(records):
    corpus = records[0].identity.corpus.model_copy(update={"name": "another", "sha256": "1" * 64})
    other = records[1].model_copy(
        update={"identity": records[1].identity.model_copy(update={"corpus": corpus})}
    )
    with pytest.raises(InputError, match=r"different texts, another .* and excerpt"):
        summary([records[0], other])


def test_horizons_are_means_over_seeds_from_nothing_to_the_whole_window(records):
    table = horizons(records)
    assert list(table.index) == ["base-dot", "multifourier-qk"]
    assert list(table.columns) == [0, 1, 2, 4, 8, 16, 32, 64]
    base = table.loc["base-dot"]
    assert base.max() - base.min() < 1e-5  # a causal model does not see what is shown to it
    for point in records[1].horizons:
        assert table.loc["multifourier-qk", point.ahead] == point.loss.mean


def test_scales_hold_every_head_at_every_logged_step(records):
    table = scales(records)
    leaking = records[1]
    assert set(table.variant) == {"multifourier-qk"}
    assert len(table) == 6 * 2 * 2 * 4  # steps, layers, heads, rungs
    row = table[(table.step == 50) & (table.layer == 1) & (table["head"] == 0) & (table.rung == 2)].iloc[0]
    last = leaking.scales[-1].layers[1]
    assert (row.period, row.bandwidth) == (last["period"][0][2], last["bandwidth"][0][2])
    medians = periods(records)
    assert medians.shape == (1, 4)
    assert medians.iloc[0, 2] == table[(table.step == 50) & (table.rung == 2)].period.median()
    assert periods(records[:1]).empty


def test_runs_of_one_identity_are_compared(records):
    base = records[0]
    table = compare(records, seeds(base, 0.03, 0.0))
    assert list(table.index) == ["base-dot seed 0"]
    pd.testing.assert_series_equal(
        table.difference, pd.Series([-0.03], ["base-dot seed 0"]), check_names=False
    )


def test_runs_of_other_hyper_parameters_are_not_compared(records):
    base = records[0]
    profile = base.identity.profile.model_copy(update={"learning_rate": 0.5})
    other = base.model_copy(update={"identity": base.identity.model_copy(update={"profile": profile})})
    with pytest.raises(InputError, match="no run is in both"):
        compare(records, [other])


def test_the_inventory_says_what_is_recorded_and_what_is_stale(results, records):
    smoke, variants = get_profile("smoke"), ("base-dot", "fnet")
    other = smoke.model_copy(update={"learning_rate": 0.5})
    asked = [Experiment("One?", smoke, variants, 2), Experiment("Another?", other, variants[:1], 1)]
    table = inventory(results, asked).set_index(["question", "variant", "seed"])
    assert list(table.index[table.recorded]) == [("One?", "base-dot", 0), ("Another?", "base-dot", 0)]
    assert len(table) == 5
    row, stale = table.loc["One?", "base-dot", 0], table.loc["Another?", "base-dot", 0]
    assert row.current
    assert row.weights
    assert not stale.current  # of other hyper-parameters than the experiment's
    assert row.text_sha256 == records[0].identity.corpus.sha256
    assert row.cpu_seconds == records[0].machine.cpu_seconds
    assert pd.isna(table.loc["One?", "fnet", 1].cpu_seconds)


def test_the_digest_is_the_shells(results, tmp_path):
    folder = tmp_path / "smoke"
    shutil.copytree(results / "smoke", folder)
    shutil.copytree(folder / "base-dot", folder / "base")  # '-' sorts before '/'
    (folder / "base/seed0/notes.txt").write_text("not a record")
    command = "find . -name '*.json' | LC_ALL=C sort | xargs sha256sum | sha256sum"
    printed = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True).stdout
    assert printed.split()[0] == digest(folder)
    before = digest(folder)
    (folder / "base/seed0/record.json").write_text("{}")
    assert digest(folder) != before

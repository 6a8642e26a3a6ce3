"""EMD and its nulls: on signals whose periods are known, on noise, and on trained queries and keys."""

import itertools
import re
import shutil

import numpy as np
import pytest
import torch
from PyEMD import EMD

from fqk import records, scales
from fqk.cli import app
from fqk.errors import InputError
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.records import load_model
from fqk.variants import VARIANTS

LADDER = np.array([60.0, 25.0, 10.0, 5.0])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def decomposed(results, excerpt, tmp_path_factory):
    """The results folder, multifourier-qk's run decomposed; and what was said. EEMD by one trial."""
    folder = tmp_path_factory.mktemp("decomposed") / "results"
    shutil.copytree(results, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scales, "TRIALS", 1)
        return folder, list(scales.decompose_all(folder, PROFILES["smoke"], excerpt))


def waves(periods, length, rng, noise=0.1, shape=()):
    """Tones of equal strength, each swelling slowly and in a phase of its own, and a little noise."""
    t = np.arange(length)
    phase, slow = rng.uniform(0, 2 * np.pi, (2, *shape, len(periods), 1))
    swell = 1 + 0.5 * np.sin(2 * np.pi * t / length + slow)
    tones = swell * np.sin(2 * np.pi * t / np.array(periods)[:, None] + phase)
    return scales.standardise(tones.sum(-2) + noise * rng.standard_normal((*shape, length)))


# Periods


@pytest.mark.parametrize("periods", [(8, 40), (5, 16)])
@pytest.mark.parametrize(("form", "tolerance"), [("EMD", 0.05), ("EEMD", 0.1)])
def test_two_tones_are_found_at_their_periods(periods, form, tolerance):
    t = np.arange(800)
    signal = sum(np.sin(2 * np.pi * t / period + 1) for period in periods)
    found = scales.mean_periods(scales.decomposers(0)[form](signal))
    for period in periods:
        assert np.abs(found / period - 1).min() < tolerance


def test_white_noise_is_given_a_dyadic_ladder(rng):
    """Flandrin, Rilling & Gonçalvès (2004): each order's mean period is about twice the last's."""
    found = scales.decomposed(rng.standard_normal((30, 512)), EMD())
    orders = np.exp(np.nanmean(np.log(found[:, :6]), 0))
    ratios = orders[1:] / orders[:-1]
    assert ((ratios > 1.6) & (ratios < 2.6)).all()


def test_mean_period_is_counted_by_zero_crossings_and_the_trend_is_dropped():
    t = np.arange(240)
    imfs = np.array([np.sin(2 * np.pi * t / 20 + 1), np.sin(2 * np.pi * t / 60 + 1), t - 100.0, 0 * t + 1])
    assert scales.mean_periods(imfs).tolist() == [20, 60]
    assert scales.mean_periods(np.empty((0, 64))).shape == (0,)


@pytest.mark.parametrize("form", ["EMD", "EEMD"])
@pytest.mark.parametrize(
    "series",
    [np.full(64, 0.1), np.zeros(64), np.arange(64.0), np.eye(64)[7], np.sign(np.sin(np.arange(64) / 3))],
    ids=["constant", "zero", "line", "spike", "square"],
)
def test_series_with_little_in_them_are_decomposed_without_a_word(series, form, recwarn, capfd):
    standard = scales.standardise(series)
    assert np.isfinite(standard).all()
    found = scales.decomposed(standard[None], scales.decomposers(0)[form])
    assert np.isfinite(scales.misfit(found[0], LADDER, 64))
    assert [*recwarn, *capfd.readouterr()] == ["", ""]


def test_a_constant_series_has_no_period():
    standard = scales.standardise(np.full((1, 64), 0.1))
    assert np.abs(standard).max() < 1e-6
    assert scales.decomposed(standard, EMD()).shape == (1, 0)


# Series


@pytest.mark.parametrize("variant", ["base-dot", "multifourier-qk"])
def test_series_are_the_projections_before_the_mixer(results, excerpt, variant):
    model = load_model(results, "smoke", variant)
    windows = excerpt.windows(64, 3)
    pairs = scales.queries_keys(model, windows)
    assert pairs.shape == (2, 2, 3, 64, 2, 16)  # layers, query and key, windows, tokens, heads, channels
    tokens, block = windows[:, :-1], model.blocks[0]
    with torch.no_grad():
        x = block.norm_mix(model.token(tokens) + model.position(torch.arange(64)))
        q, k, _ = (x @ block.mix.qkv.weight.T).split(32, dim=-1)
    torch.testing.assert_close(pairs[0, 0].flatten(2), q)
    torch.testing.assert_close(pairs[0, 1].flatten(2), k)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_sampled_series_are_standardised_channels_of_their_own_head(results, excerpt):
    model, windows = load_model(results, "smoke", "multifourier-qk"), excerpt.windows(64, 3)
    pairs = scales.queries_keys(model, windows).double().numpy()
    series = scales.sample(model, windows, seed=1)
    assert series.shape == (2, 2, 3, 2, 64)
    np.testing.assert_allclose(series.mean(-1), 0, atol=1e-9)
    np.testing.assert_allclose(series.std(-1), 1, rtol=1e-6)
    for layer, head, window, which in np.ndindex(series.shape[:-1]):
        channels = scales.standardise(pairs[layer, which, window, :, head].T)
        assert np.abs(channels - series[layer, head, window, which]).max(-1).min() < 1e-9
    np.testing.assert_array_equal(series, scales.sample(model, windows, seed=1))
    assert not np.array_equal(series, scales.sample(model, windows, seed=2))


# Nulls


@pytest.mark.parametrize("length", [64, 65])
def test_surrogates_keep_amplitudes_and_cross_spectra_and_nothing_else(rng, length):
    series = rng.standard_normal((2, 3, 4, 2, length))
    turned = scales.surrogates(series, rng)
    assert turned.dtype == np.float64
    before, after = np.fft.rfft(series), np.fft.rfft(turned)
    np.testing.assert_allclose(np.abs(after), np.abs(before), atol=1e-9)
    np.testing.assert_allclose(
        after[0, 0, :, 0].conj() * after[1, 2, :, 1],
        before[0, 0, :, 0].conj() * before[1, 2, :, 1],
        atol=1e-9,
    )
    assert np.abs(turned - series).mean() > 0.5
    ratio = after / before  # the windows' phases are their own
    assert np.abs(ratio[0, 0, 0, 0] - ratio[0, 0, 1, 0])[1:-1].min() > 1e-6


def test_random_ladders_have_a_rung_in_each_part_of_the_octaves(rng):
    ladders = scales.random_ladders((500, 4), 128, rng)
    edges = 2 ** np.array([1, 2.5, 4, 5.5, 7])
    assert (ladders >= edges[:-1]).all()
    assert (ladders <= edges[1:]).all()
    np.testing.assert_allclose(np.log2(ladders).mean(0), [1.75, 3.25, 4.75, 6.25], atol=0.1)


def test_misfit_is_zero_for_equal_ladders_in_any_order(rng):
    found = np.array([2.7, 5, 10, np.nan, 25, 60, 120])
    assert scales.misfit(found, LADDER, 256) == 0
    assert scales.misfit(rng.permutation(found), rng.permutation(LADDER), 256) == 0


def test_misfit_is_the_best_of_all_assignments_in_octaves(rng):
    for _ in range(20):
        found, learned = 2 ** rng.uniform(1, 8, 6), 2 ** rng.uniform(1, 8, 4)
        best = min(np.abs(np.log2(p) - np.log2(learned)).mean() for p in itertools.permutations(found, 4))
        assert scales.misfit(found, learned, 256) == pytest.approx(best)
    assert scales.misfit(np.array([5, 10, 25, 120]), LADDER, 256) == pytest.approx(1 / 4)
    # One IMF near two periods serves one of them; what is not there at all is the trend, 256.
    assert scales.misfit(np.array([20, 300, 300]), np.array([20, 20, 300]), 256) == pytest.approx(
        np.log2(300 / 20) / 3
    )
    assert scales.misfit(np.array([5.0]), np.array([5, 64]), 256) == pytest.approx(2 / 2)


def test_exchange_is_exact_where_all_arrangements_can_be_counted(rng):
    blocks = rng.standard_normal((3, 4))
    means = [sum(values) / 3 for values in itertools.product(*blocks)]
    assert scales.exchange(blocks) == pytest.approx(
        np.mean(np.array(means) <= blocks[:, 0].mean()), abs=0.015
    )
    least = np.tile([0.0, 1, 1], (6, 1))
    assert scales.exchange(least) == pytest.approx(3**-6, abs=1e-3)
    assert scales.exchange(np.ones((5, 3))) == 1


def test_exchange_rejects_a_true_null_as_often_as_it_says(rng):
    p = np.array([scales.exchange(rng.standard_normal((8, 2)), 199) for _ in range(400)])
    assert np.mean(p <= 0.1) == pytest.approx(0.1, abs=0.04)


def test_tones_at_the_learned_periods_beat_the_nulls_and_noise_does_not(rng):
    shape = (1, 5, scales.WINDOWS, 1)
    learned = np.broadcast_to(LADDER, (1, 5, 4))
    tones = waves(LADDER, 256, rng, shape=shape)
    noise = {
        kind: scales.standardise(rng.standard_normal((*shape, 256))) for kind in ("untrained", "base-dot")
    }
    found = scales.compare({"trained": tones, **noise}, learned, EMD(), 0)
    assert set(found.p) == set(scales.NULLS)
    assert np.mean(found.misfits["trained"]) < 0.2
    for null in ("white noise", "untrained", "base-dot", "random ladders"):
        assert found.p[null] < 0.05, null
    another = scales.standardise(rng.standard_normal((*shape, 256)))
    found = scales.compare({"trained": another, **noise}, learned, EMD(), 0)
    for null in scales.NULLS:
        assert found.p[null] > 0.05, null


# The file


def test_a_run_is_decomposed_and_its_file_read_back(decomposed, results, excerpt):
    folder, lines = decomposed
    (found,) = scales.read_decompositions(folder, "smoke")
    record = records.read_record(folder / "smoke/multifourier-qk/seed0/record.json")
    assert found.identity == record.identity
    np.testing.assert_allclose(found.learned, [s["period"] for s in record.scales[-1].layers], atol=1e-4)
    assert list(found.comparisons) == ["EMD", "EEMD"]
    for comparison in found.comparisons.values():
        assert set(comparison.periods) == {"trained", *scales.NULLS} - {"random ladders"}
        assert set(comparison.misfits) == {"trained", *scales.NULLS}
        assert np.shape(comparison.misfits["base-dot"]) == (2, 2)
        widths = {null: np.shape(blocks) for null, blocks in comparison.blocks.items()}
        assert widths == {
            "white noise": (4, 5),
            "surrogates": (4, 5),
            "untrained": (4, 2),
            "base-dot": (4, 2),
            "random ladders": (1, 100),
        }
        for null, blocks in comparison.blocks.items():
            assert np.mean(blocks, 0)[0] == pytest.approx(np.mean(comparison.misfits["trained"]), abs=1e-4)
            assert np.mean(np.array(blocks)[:, 1:]) == pytest.approx(
                np.mean(comparison.misfits[null]), abs=1e-4
            )
            assert 0 < comparison.p[null] <= 1
    assert [re.sub(r"[01]\.\d+", "·", line) for line in lines] == [
        f"multifourier-qk seed 0: {form} · octaves off; p against white noise ·, surrogates ·, untrained ·, "
        "base-dot ·, random ladders ·"
        for form in ("EMD", "EEMD")
    ]


def test_the_same_run_gives_the_same_file_and_is_not_decomposed_twice(
    decomposed, results, excerpt, tmp_path, monkeypatch
):
    path = decomposed[0] / "smoke/multifourier-qk/seed0/emd.json"
    shutil.copytree(results, tmp_path / "results")
    monkeypatch.setattr(scales, "TRIALS", 1)
    found = scales.decompose(tmp_path / "results", "smoke", "multifourier-qk", 0, excerpt)
    assert (tmp_path / "results/smoke/multifourier-qk/seed0/emd.json").read_bytes() == path.read_bytes()
    monkeypatch.setattr(scales, "compare", None)
    assert scales.decompose(tmp_path / "results", "smoke", "multifourier-qk", 0, excerpt) == found
    monkeypatch.setattr(scales, "REVISION", scales.REVISION + 1)
    with pytest.raises(TypeError):
        scales.decompose(tmp_path / "results", "smoke", "multifourier-qk", 0, excerpt)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: text.replace('"schema_version":1', '"schema_version":3'),
        lambda text: text.replace('"revision":1', '"revision":"one"'),
    ],
    ids=["truncated", "empty", "schema", "type"],
)
def test_a_spoilt_file_is_refused_in_one_sentence_that_names_it(decomposed, tmp_path, spoil):
    text = (decomposed[0] / "smoke/multifourier-qk/seed0/emd.json").read_text()
    path = tmp_path / "emd.json"
    path.write_text(spoil(text))
    assert path.read_text() != text
    with pytest.raises(InputError) as refusal:
        scales.read_decomposition(path)
    assert str(refusal.value).startswith(f"decomposition {path} is truncated or not of schema 1: ")
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="none cannot be read"):
        scales.read_decomposition(tmp_path / "none")


def test_runs_without_weights_are_skipped_and_said_to_be(results, excerpt, tmp_path):
    shutil.copytree(results, tmp_path / "results")
    for variant in ("multifourier-qk", "base-dot"):  # one more each time
        missing = tmp_path / f"results/smoke/{variant}/seed0/weights.safetensors"
        missing.rename(missing.with_suffix(".away"))
        lines = list(scales.decompose_all(tmp_path / "results", PROFILES["smoke"], excerpt))
        assert lines == [f"multifourier-qk seed 0: skipped, {missing} is not there"]
        missing.with_suffix(".away").rename(missing)
    assert list(scales.read_decompositions(tmp_path / "results", "smoke")) == []


def test_what_cannot_be_decomposed_is_refused(results, corpus, excerpt, tmp_path):
    with pytest.raises(InputError, match="base-dot does not learn four periods"):
        scales.decompose(results, "smoke", "base-dot", 0, excerpt)
    with pytest.raises(InputError, match="was trained on excerpt, not "):
        scales.decompose(results, "smoke", "multifourier-qk", 0, corpus)
    with pytest.raises(InputError, match="there are no runs of multifourier-qk at smoke"):
        list(scales.decompose_all(tmp_path, PROFILES["smoke"], corpus))
    assert "Example: fqk emd" in app.commands["emd"].help


def test_every_variant_named_learns_four_periods():
    for name in scales.FOUR_PERIODS:
        assert all(np.shape(s["period"]) == (2, 4) for s in build_model(name, "smoke").scales())
    assert {"multifourier-qk", "causal-multifourier-qk", "multifourier-qk-from-20"} <= set(
        scales.FOUR_PERIODS
    )
    assert not any(VARIANTS[name].family == "collapsed" for name in scales.FOUR_PERIODS)


def test_verdict_takes_the_blocks_of_all_seeds_together(decomposed):
    (found,) = scales.read_decompositions(decomposed[0], "smoke")
    one, three = scales.verdict([found]), scales.verdict([found] * 3)
    row = ("multifourier-qk", "EMD", "untrained")
    assert one.loc[row, "p"] == found.comparisons["EMD"].p["untrained"]
    assert (one.loc[row, "blocks"], three.loc[row, "blocks"]) == (4, 12)
    assert (one.loc[row, "seeds"], three.loc[row, "seeds"]) == (1, 3)
    assert three.loc[row, "misfit"] == pytest.approx(one.loc[row, "misfit"])
    assert three.loc[row, "p"] == scales.exchange(np.array(found.comparisons["EMD"].blocks["untrained"] * 3))
    assert len(one) == 10
    ladders = ("multifourier-qk", "EMD", "random ladders")
    assert three.loc[ladders, "blocks"] == 1
    assert three.loc[ladders, "p"] == pytest.approx(one.loc[ladders, "p"])
    assert scales.verdict([]).empty

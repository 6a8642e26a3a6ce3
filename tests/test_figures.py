"""Every figure holds the numbers that it was given, and needs nothing but the page's own script."""

import numpy as np
import plotly.io as pio
import pytest
import torch
from bs4 import BeautifulSoup

from fqk import figures, filters
from fqk.audit import audit
from fqk.claims import CLAIMS, Outcome, Verdict
from fqk.mixers import LADDER, Bumps, CausalSpectral
from fqk.model import build_model
from fqk.records import Losses, read_records
from fqk.report import Interval, horizons, interval, scales, summary
from fqk.scales import Comparison, Decomposition
from fqk.variants import VARIANTS


@pytest.fixture(scope="module")
def records(results):
    return list(read_records(results, "smoke"))


@pytest.fixture(scope="module")
def rows(records):
    return summary(records)


@pytest.fixture(scope="module")
def phi():
    return Bumps.starting_at(LADDER, heads=1)(64)[0].detach()


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def cells(html):
    """The rows of a table, header first, as lists of text."""
    table = BeautifulSoup(html.data, "html.parser").table
    return [[cell.text for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]


def test_loss_curves_hold_the_validation_losses(records):
    drawn = traces(figures.loss_curves(records))
    assert list(drawn) == ["base-dot", "multifourier-qk"]
    for record in records:
        line = drawn[record.identity.variant]
        assert list(line.x) == [point.step for point in record.curve]
        assert list(line.y) == [point.val for point in record.curve]
        assert line.line.color == figures.COLOURS[VARIANTS[line.name].family]


def worse_by(more, record):
    """The record of another seed whose losses are all higher by ``more``."""

    def higher(loss):
        return loss.model_copy(update={"mean": loss.mean + more})

    return record.model_copy(
        update={
            "identity": record.identity.model_copy(update={"seed": 1}),
            "curve": [point.model_copy(update={"val": point.val + more}) for point in record.curve],
            "horizons": [p.model_copy(update={"loss": higher(p.loss)}) for p in record.horizons],
            "losses": record.losses.model_copy(
                update={kind: higher(getattr(record.losses, kind)) for kind in Losses.model_fields}
            ),
        }
    )


def test_seeds_become_a_mean_with_its_interval(records):
    first = records[0]
    both = [first, worse_by(0.2, first)]
    half = interval([0, 0.2]).half_width
    (curve,) = figures.loss_curves(both).data
    np.testing.assert_allclose(curve.y, [point.val + 0.1 for point in first.curve])
    np.testing.assert_allclose(curve.error_y.array, half)
    (horizon,) = figures.horizons(both).data
    np.testing.assert_allclose(horizon.y, [point.loss.mean + 0.1 for point in first.horizons])
    np.testing.assert_allclose(horizon.error_y.array, half)
    drawn = traces(figures.losses(both))
    for kind in Losses.model_fields:
        points = drawn[figures.MARKERS[kind][0]]
        np.testing.assert_allclose(points.x, getattr(first.losses, kind).mean + 0.1)
        np.testing.assert_allclose(points.error_x.array, [half])


def test_the_paper_is_a_reference_on_its_own_text_only(records):
    def texts(records):
        return [note.text for note in figures.loss_curves(records).layout.annotations]

    corpus = records[0].identity.corpus
    renamed = [
        record.model_copy(
            update={
                "identity": record.identity.model_copy(
                    update={"corpus": corpus.model_copy(update={"name": "tinyshakespeare"})}
                )
            }
        )
        for record in records
    ]
    assert texts(records) == [f"a uniform guess, ln {corpus.symbols}"]
    assert texts(renamed) == [*texts(records), "the paper's base-dot, 1.474"]


def test_losses_hold_the_summary(records, rows):
    drawn = traces(figures.losses(records))
    for column, (name, _) in figures.MARKERS.items():
        assert list(drawn[name].y) == list(rows.index)
        np.testing.assert_allclose(list(drawn[name].x), rows[column].astype(float))
    np.testing.assert_allclose(list(drawn["ordered"].error_x.array), rows["±"])
    assert all(half is None or np.isnan(half) for half in drawn["prefix, cut off"].error_x.array)
    (one,) = traces(figures.losses(records, ["fnet", "multifourier-qk"]))["ordered"].x
    assert one == rows.ordered["multifourier-qk"]


def test_losses_on_words_are_ours_alone(records):
    profile = records[0].identity.profile.model_copy(update={"vocabulary": 100})
    words = [
        record.model_copy(update={"identity": record.identity.model_copy(update={"profile": profile})})
        for record in records
    ]
    ours = figures.losses(words)
    assert set(traces(figures.losses(records))) - set(traces(ours)) == {"the paper"}
    assert ours.layout.xaxis.title.text == "loss, nats a word"


def test_horizons_hold_the_table(records):
    table = horizons(records)
    drawn = traces(figures.horizons(records))
    for name in table.index:
        assert list(drawn[name].x) == list(table.columns)
        np.testing.assert_allclose(drawn[name].y, table.loc[name])
    assert list(traces(figures.horizons(records, ["base-dot", "fnet"]))) == ["base-dot"]


def test_gains_hold_their_intervals():
    found = {"causal-gaussian": Interval(0.1, 0.05, 3), "projection": Interval(-0.2, 0.01, 3)}
    (points,) = figures.gains(found, "Gains").data
    assert list(points.y) == list(found)
    assert list(points.x) == [0.1, -0.2]
    assert list(points.error_x.array) == [0.05, 0.01]


def test_gaps_are_split_by_the_audit(rows):
    drawn = traces(figures.gaps(rows))
    for verdict, name in (("causal", "base-dot"), ("leaks", "multifourier-qk")):
        assert list(drawn[verdict].text) == [name]
        np.testing.assert_allclose(list(drawn[verdict].x), [rows.shuffled[name] - rows.ordered[name]])
        assert list(drawn[verdict].marker.color) == [figures.COLOURS[VARIANTS[name].family]]


def test_periods_hold_every_head_at_every_step(records):
    figure = figures.periods(scales(records), ["base-dot", "multifourier-qk"], paper=[49])
    last = records[1].scales[-1].layers
    assert len(figure.data) == 4
    for rung, lines in enumerate(figure.data):
        ends = [y for x, y in zip(lines.x, lines.y, strict=True) if x == 50]
        assert ends == [heads[rung] for layer in last for heads in layer["period"]]


def test_imf_periods_are_means_over_heads_then_seeds(records):
    def made(seed, factor):
        """Two layers of one head; only one of them reaches a third and only one in four a fourth order."""
        ladder = [[[3 * factor, 6 * factor, 12 * factor]], [[3 * factor, 24 * factor]]]
        identity = records[1].identity.model_copy(update={"seed": seed})
        found = Comparison(periods=dict.fromkeys(figures.NULLS, ladder), misfits={}, blocks={}, p={})
        learned = [[[5, 60, 25, 10]], [[60, 25, 10, 5]]]
        return Decomposition(revision=1, identity=identity, learned=learned, comparisons={"EMD": found})

    figure = figures.imf_periods([made(0, 1), made(1, 4)])
    drawn = traces(figure)
    assert list(drawn) == [*figures.NULLS, "learned, every head"]
    for kind in figures.NULLS:
        assert list(drawn[kind].x) == [1, 2, 3]
        np.testing.assert_allclose(drawn[kind].y, [6, 24, 24])
        half = interval([0, 2]).half_width
        np.testing.assert_allclose(drawn[kind].error_y.array[0], 6 * (2**half - 1))
        np.testing.assert_allclose(drawn[kind].error_y.arrayminus[0], 6 * (1 - 2**-half))
    assert sorted(drawn["learned, every head"].y) == sorted([5, 10, 25, 60] * 4)
    assert [shape.y0 for shape in figure.layout.shapes] == [5, 10, 25, 60]
    alone = traces(figures.imf_periods([made(0, 1)]))
    assert np.isnan(alone["trained"].error_y.array).all()


def test_outcomes_hold_every_claim_once():
    reached = [list(Outcome)[number % 3] for number in range(len(CLAIMS))]
    found = [Verdict(claim, outcome) for claim, outcome in zip(CLAIMS, reached, strict=True)]
    drawn = traces(figures.outcomes(found))
    assert list(drawn) == list(Outcome)
    for outcome in Outcome:
        assert list(drawn[outcome].text) == [v.claim.id for v in found if v.outcome is outcome]
    notes = [note.text for note in figures.outcomes(found).layout.annotations]
    assert notes == [f"{outcome}: {reached.count(outcome)}" for outcome in Outcome]


def test_losses_of_no_finished_run_are_an_empty_figure(records):
    diverged = records[0].model_copy(update={"losses": None, "audit": None, "diverged_at": 10})
    assert all(len(trace.x) == 0 for trace in figures.losses([diverged]).data)


def test_results_table_holds_the_summary(rows):
    head, base, multi = cells(figures.results_table(rows))
    assert head[:5] == ["variant", "claim", "paper", "seeds", "ours"]
    loss = rows.loc["multifourier-qk"]
    assert multi[:5] == [
        "multifourier-qk",
        "C3",
        "0.309",
        "1",
        f"{loss.ordered:.3f} ± {loss['±']:.3f}",
    ]
    assert multi[-1] == "leaks: {} reads {}".format(*loss.first_leak)
    assert base[-1] == "causal"
    assert f"{loss.prefix_truncated:.3f}" in multi
    assert f"{loss.permutation_floor:.3f}" in multi


def test_results_table_names_a_run_that_diverged(records):
    diverged = records[0].model_copy(update={"losses": None, "audit": None, "diverged_at": 10})
    _, row = cells(figures.results_table(summary([diverged])))
    assert row[:5] == ["base-dot", "C0", "1.474", "0", "diverged"]
    assert set(row[5:]) == {"–"}
    _, row, _ = cells(figures.results_table(summary([diverged, records[1]])))
    assert row[4] == "diverged"


def test_tables_say_what_heads_what(rows):
    html = BeautifulSoup(figures.results_table(rows, "A & B").data, "html.parser")
    assert html.table.caption.text.startswith("A & B")
    assert html.div["aria-label"] == html.table.caption.text
    assert {th["scope"] for th in html.thead.find_all("th")} == {"col"}
    assert [th["scope"] for th in html.tbody.find_all("th")] == ["row", "row"]


@pytest.mark.parametrize("context", [64, 63])
def test_spectrum_and_kernel_hold_both(context):
    phi = Bumps.starting_at(LADDER, heads=1)(context)[0].detach()
    figure = figures.spectrum_and_kernel(phi, context)
    drawn = traces(figure)
    np.testing.assert_allclose(drawn["φ"].y, phi)
    np.testing.assert_allclose(drawn["φ"].customdata, torch.fft.rfftfreq(context))
    future, past = drawn["future, τ < 0"], drawn["present and past, τ ≥ 0"]
    assert max(future.x) == -1
    assert min(past.x) == 0
    kernel = torch.fft.irfft(phi, n=context)
    for half in (future, past):
        np.testing.assert_allclose(half.y, kernel[torch.tensor(half.x) % context])
    share = np.sum(future.y**2) / (kernel**2).sum().item()
    assert f"{share:.1%}" in figure.layout.title.subtitle.text


def test_a_complex_spectrum_is_drawn_by_its_modulus(phi):
    turned = phi * torch.exp(1j * torch.rand(len(phi)))
    np.testing.assert_allclose(figures.spectrum_and_kernel(turned, 64).data[0].y, phi, rtol=1e-6)


def test_mixing_matrix_holds_g_in_two_halves(phi):
    matrix = filters.circulant(filters.kernel_of(phi, 64)).numpy()
    figure = figures.mixing_matrix(torch.from_numpy(matrix))
    past, future = figure.data
    np.testing.assert_array_equal(np.tril(matrix), np.nan_to_num(past.z))
    np.testing.assert_array_equal(np.triu(matrix, 1), np.nan_to_num(future.z))
    assert np.isnan(past.z[0, 1])
    assert np.isnan(future.z[1, 1])
    share = (np.triu(matrix, 1) ** 2).sum() / (matrix**2).sum()
    assert f"{share:.1%}" in figure.layout.title.subtitle.text


def test_a_one_sided_matrix_has_no_future():
    twin = CausalSpectral(heads=1, head_dim=8, context=64, periods=LADDER).matrix(64)[0]
    figure = figures.mixing_matrix(twin)
    assert "0.0%" in figure.layout.title.subtitle.text
    assert not np.nan_to_num(figure.data[1].z).any()


@pytest.mark.parametrize("variant", ["base-dot", "multifourier-qk"])
def test_influence_holds_the_audit(variant):
    model = build_model(variant, "smoke").eval()
    found = audit(model, vocab_size=65, seq_len=16)
    figure = figures.influence(found)
    past, future, back, ahead = figure.data
    both = np.where(np.isnan(past.z), future.z, past.z)
    np.testing.assert_allclose(10.0 ** np.where(np.isnan(both), -np.inf, both), found.influence, rtol=1e-5)
    assert np.isnan(future.z).all() == found.causal
    np.testing.assert_array_equal([*back.x, *ahead.x], np.arange(-15, 16))
    np.testing.assert_array_equal(ahead.y, found.lag_profile)
    np.testing.assert_array_equal(back.y, [found.influence.diagonal(lag).max() for lag in back.x])
    assert min(back.y) > 0
    assert (max(ahead.y) > 0) != found.causal
    verdict = "causal" if found.causal else f"{found.leaks.sum()} pairs"
    assert verdict in figure.layout.title.subtitle.text


def test_a_figure_is_html_without_a_network_and_plotly_json(records):
    assert pio.renderers.default == "fqk"
    figure = figures.loss_curves(records)
    bundle = pio.renderers["fqk"].to_mimebundle(figure.to_dict())
    assert set(bundle) == {"text/html", "application/vnd.plotly.v1+json"}
    assert [trace["name"] for trace in bundle["application/vnd.plotly.v1+json"]["data"]] == [
        "base-dot",
        "multifourier-qk",
    ]
    assert "Plotly.newPlot" in bundle["text/html"]
    assert "http" not in bundle["text/html"]
    assert "src=" not in bundle["text/html"]

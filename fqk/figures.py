"""Plotly figures and tables from records, filters and audits.

Importing this module makes its renderer Plotly's default, so that one figure shows in JupyterLab
and on a static page that carries one local ``plotly.min.js``. Text and lines are mid-grey on a
clear ground, which reads in light and dark; the book's style sheet gives text the theme's colour.
"""

import textwrap
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
import torch
from IPython.display import HTML
from numpy.typing import NDArray
from plotly.io.base_renderers import PlotlyRenderer
from plotly.subplots import make_subplots
from torch import Tensor

from fqk import filters
from fqk.audit import Audit
from fqk.claims import Outcome, Verdict
from fqk.records import Losses, Record
from fqk.report import Interval, interval, summary
from fqk.scales import Decomposition
from fqk.variants import VARIANTS

# Okabe & Ito's palette, which colour-blind readers can tell apart, with its grey in place of black.
PAST, FUTURE, GREY, TEXT = "#0072B2", "#D55E00", "#8C8C8C", "#777777"
COLOURS = {
    "baseline": GREY,
    "bilateral": FUTURE,
    "collapsed": "#E69F00",
    "phase": "#CC79A7",
    "metric": "#56B4E9",
    "causal": "#009E73",
}
PAST_SCALE = ["rgba(0,114,178,0)", PAST]
FUTURE_SCALE = ["rgba(213,94,0,0)", FUTURE]
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKERS = {
    "paper": ("the paper", "diamond-open"),
    "ordered": ("ordered", "circle"),
    "shuffled": ("shuffled", "x-thin-open"),
    "permutation_floor": ("permutation floor", "line-ns-open"),
    "prefix_truncated": ("prefix, cut off", "triangle-up-open"),
    "prefix_padded": ("prefix, padded", "triangle-down-open"),
}
REPORTED = {
    "claim": "claim",
    "paper": "paper",
    "seeds": "seeds",
    "ordered": "ours",
    "shuffled": "shuffled",
    "permutation_floor": "floor",
    "prefix_truncated": "prefix, cut off",
    "prefix_padded": "prefix, padded",
}
NATS = "nats a character"
PERIODS = (2, 5, 10, 20, 50, 100, 200, 500)  # ticks, in tokens
NULLS = {
    "trained": FUTURE,
    "untrained": "#E69F00",
    "surrogates": "#CC79A7",
    "white noise": "#56B4E9",
    "base-dot": GREY,
}
OUTCOMES = {
    Outcome.REPRODUCED: PAST,
    Outcome.BY_LEAKAGE: FUTURE,
    Outcome.NOT: "#CC79A7",
    Outcome.UNDECIDED: GREY,
}


class BookRenderer(PlotlyRenderer):  # type: ignore[misc]
    """Plotly's MIME type for JupyterLab, and HTML that counts on the page's ``plotly.min.js``."""

    def to_mimebundle(self, fig_dict: dict[str, Any]) -> dict[str, Any]:
        html = pio.to_html(fig_dict, self.config, include_plotlyjs=False, full_html=False, validate=False)
        bundle: dict[str, Any] = super().to_mimebundle(fig_dict)
        # Plotly escapes < and > too, so that no / ends the script; a masked matrix is a fifth lighter so.
        return bundle | {"text/html": html.replace("\\u002f", "/")}


pio.renderers["fqk"] = BookRenderer({"displaylogo": False, "responsive": True})
pio.renderers.default = "fqk"


def loss_curves(records: Iterable[Record], reference: bool = True) -> go.Figure:
    """Validation loss over steps, a line a variant: the mean over seeds with its interval.

    ``reference`` draws a uniform guess and, for TinyShakespeare, the paper's base-dot.
    """
    records = list(records)
    figure = _lines((r.identity.variant, point.step, point.val) for r in records for point in r.curve)
    figure.update_traces(mode="lines", hovertemplate="step %{x}: %{y:.3f} nats")
    if reference:
        corpora = {(r.identity.corpus.name, r.identity.corpus.symbols) for r in records}
        for _, symbols in corpora:
            _reference(figure, np.log(symbols), f"a uniform guess, ln {symbols}", "bottom")
        if {name for name, _ in corpora} == {"tinyshakespeare"}:
            paper = VARIANTS["base-dot"].paper
            assert paper is not None
            _reference(figure, paper, f"the paper's base-dot, {paper}", "top")
    figure.update_layout(legend={"maxheight": 230})
    figure.update_xaxes(title="training step", rangemode="tozero")
    figure.update_yaxes(title=f"validation loss, {_nats(records)}")
    return _styled(figure, "Validation loss over training", height=400 + 10 * len(figure.data))


def horizons(records: Iterable[Record], variants: Iterable[str] = VARIANTS) -> go.Figure:
    """The loss by how many tokens ahead each prediction may see: means over seeds with their intervals."""
    chosen = set(variants)
    figure = _lines(
        (record.identity.variant, point.ahead, point.loss.mean)
        for record in records
        if record.identity.variant in chosen
        for point in record.horizons
    )
    figure.update_traces(mode="lines+markers", hovertemplate="%{x} tokens ahead: %{y:.3f} nats")
    figure.update_xaxes(title="tokens ahead that the model may see", type="category")
    figure.update_yaxes(title=f"loss, {NATS}", rangemode="tozero")
    return _styled(figure, "The loss by how much future is shown", height=400 + 10 * len(figure.data))


def _lines(points: Iterable[tuple[str, int, float]]) -> go.Figure:
    """A line a variant from its (name, x, loss) in every seed: the mean over seeds with its interval."""
    table = pd.DataFrame(points, columns=["variant", "x", "loss"])
    drawn = [name for name in VARIANTS if name in set(table.variant)]
    figure = go.Figure()
    for name in drawn:
        family = VARIANTS[name].family
        siblings = [other for other in drawn if VARIANTS[other].family == family]
        seeds = table[table.variant == name].groupby("x").loss
        figure.add_scatter(
            name=name,
            x=seeds.mean().index,
            y=seeds.mean(),
            error_y={"array": seeds.agg(_half_width), "thickness": 1, "width": 2},
            line={
                "color": COLOURS[family],
                "dash": DASHES[siblings.index(name) % len(DASHES)],
                "width": 2,
            },
        )
    return figure


def _half_width(values: "pd.Series[float]") -> float:
    return interval(list(values)).half_width


def _nats(records: Iterable[Record]) -> str:
    return "nats a word" if any(record.identity.profile.vocabulary for record in records) else NATS


def _reference(figure: go.Figure, loss: float, text: str, side: str) -> None:
    figure.add_hline(
        loss,
        line={"color": GREY, "dash": "dot", "width": 1},
        annotation={"text": text, "font": {"size": 11, "color": GREY}},
        annotation_position=f"{side} right",
    )


def losses(records: Iterable[Record], variants: Iterable[str] = VARIANTS) -> go.Figure:
    """All losses of the variants on one axis, a row a variant: means over seeds with their intervals.

    The interval of one seed is over windows, and the ordered loss alone has one. The paper's losses are
    in nats a character.
    """
    records = list(records)
    found = summary(records)
    rows = found.loc[[name for name in variants if name in found.index]]
    rows = rows.reindex(columns=[*MARKERS, "±"]).dropna(subset="ordered")
    seeds = pd.DataFrame(
        [
            (record.identity.variant, kind, getattr(record.losses, kind).mean)
            for record in records
            if record.losses
            for kind in Losses.model_fields
        ],
        columns=["variant", "kind", "loss"],
    ).groupby(["kind", "variant"])
    half = seeds.loss.agg(_half_width)
    colours = [COLOURS[VARIANTS[name].family] for name in rows.index]
    figure = go.Figure()
    for column, (name, symbol) in MARKERS.items():
        if column == "paper" and _nats(records) != NATS:
            continue
        error = rows["±"] if column == "ordered" else [half.get((column, row)) for row in rows.index]
        figure.add_scatter(
            name=name,
            x=rows[column].astype(float),
            y=rows.index,
            error_x={"array": error, "color": GREY, "thickness": 1, "width": 2},
            mode="markers",
            marker={
                "symbol": symbol,
                "color": colours,
                "size": 9,
                "line": {"color": colours, "width": 2},
            },
            cliponaxis=False,
            hovertemplate="%{y}: %{x:.3f} nats",
        )
    figure.update_xaxes(title=f"loss, {_nats(records)}", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showticklabels=False)
    for name in rows.index:  # names above their rows, so that a narrow screen has room for the losses
        figure.add_annotation(
            text=name, x=0, xref="paper", xanchor="left", y=name, yshift=13, showarrow=False
        )
    return _styled(figure, "Losses by variant", height=190 + 38 * len(rows))


def gains(found: Mapping[str, Interval], title: str, unit: str = NATS) -> go.Figure:
    """Gains over base-dot with their intervals, a row a variant: right of zero is better than base-dot."""
    names = list(found)
    colours = [COLOURS[VARIANTS[name].family] for name in names]
    figure = go.Figure()
    figure.add_scatter(
        x=[gain.mean for gain in found.values()],
        y=names,
        error_x={"array": [gain.half_width for gain in found.values()], "color": GREY, "thickness": 2},
        mode="markers",
        marker={"color": colours, "size": 10},
        hovertemplate="%{y}: %{x:.3f} nats",
        showlegend=False,
    )
    figure.add_vline(0, line={"color": GREY, "dash": "dot", "width": 1})
    figure.update_xaxes(title=f"gain over base-dot,<br>{unit}")
    figure.update_yaxes(autorange="reversed")
    return _styled(figure, title, height=170 + 34 * len(names))


def gaps(summary: pd.DataFrame) -> go.Figure:
    """The paper's diagnostic against the audit: shuffled less ordered loss, a row a verdict."""
    rows = summary.dropna(subset="ordered")
    figure = go.Figure()
    for verdict, causal in (("causal", True), ("leaks", False)):
        chosen = rows[rows.causal.eq(causal)]
        colours = [COLOURS[VARIANTS[name].family] for name in chosen.index]
        figure.add_scatter(
            name=verdict,
            x=chosen.shuffled - chosen.ordered,
            y=[verdict] * len(chosen),
            text=chosen.index,
            mode="markers",
            marker={"color": colours, "size": 11, "opacity": 0.6},
            hovertemplate="%{text}: %{x:.2f} nats",
            showlegend=False,
        )
    figure.update_xaxes(title=f"gap, {NATS}", rangemode="tozero")
    figure.update_yaxes(title="the audit")
    return _styled(figure, "The gap, by what the audit says", height=280)


def periods(scales: pd.DataFrame, variants: Iterable[str], paper: Iterable[float] = ()) -> go.Figure:
    """Learned periods over training, of :func:`fqk.report.scales`: a panel a variant, a line a head.

    ``paper`` are the periods that the paper reports, as dotted lines.
    """
    names = [name for name in variants if name in set(scales.variant)]
    rungs = [FUTURE, PAST, "#009E73", "#CC79A7"]
    figure = make_subplots(
        rows=max(1, len(names)), cols=1, subplot_titles=names, vertical_spacing=0.3 / max(1, len(names))
    )
    for row, name in enumerate(names, start=1):
        of_variant = scales[scales.variant == name]
        for rung in sorted(of_variant.rung.unique()):
            lines = of_variant[of_variant.rung == rung]
            paths = [path for _, path in lines.groupby(["seed", "layer", "head"])]
            figure.add_scatter(
                name=f"rung {rung + 1}",
                x=[step for path in paths for step in (*path.step, None)],
                y=[period for path in paths for period in (*path.period, None)],
                mode="lines",
                line={"color": rungs[rung % len(rungs)], "width": 1},
                opacity=0.7,
                showlegend=row == 1,
                hovertemplate="step %{x}: %{y:.1f} tokens",
                row=row,
                col=1,
            )
        for period in paper:
            figure.add_hline(period, line={"color": GREY, "dash": "dot", "width": 1}, row=row, col=1)
        figure.update_yaxes(title="period, tokens", type="log", tickvals=PERIODS, row=row, col=1)
    figure.update_xaxes(title="training step", row=len(names) or 1, col=1)
    return _styled(figure, "Learned periods over training", height=160 + 260 * max(1, len(names)))


def imf_periods(found: Iterable[Decomposition], form: str = "EMD") -> go.Figure:
    """Mean period of each IMF order, trained and under the nulls, a line each; at the left what was learned.

    Geometric means over heads, then over seeds with their interval, of each order that at least half of the
    heads have. Dotted lines are the median learned periods, longest to shortest.
    """
    found = list(found)
    points = pd.DataFrame(
        [
            {"kind": kind, "seed": one.identity.seed, "order": order, "octave": np.log2(period)}
            for one in found
            for kind, layers in one.comparisons[form].periods.items()
            for heads in layers
            for orders in heads
            for order, period in enumerate(orders, start=1)
        ]
    )
    learned = np.array([sorted(head) for one in found for heads in one.learned for head in heads])
    figure = go.Figure()
    for kind, colour in NULLS.items():
        rows = points[points.kind == kind]
        counts = rows.groupby("order").octave.size()
        rows = rows[rows.order.isin(counts.index[counts >= len(learned) / 2])]
        seeds = rows.groupby(["order", "seed"]).octave.mean().groupby("order")
        mean, half = seeds.mean(), seeds.agg(_half_width)
        figure.add_scatter(
            name=kind,
            x=mean.index,
            y=2**mean,
            error_y={
                "array": 2 ** (mean + half) - 2**mean,
                "arrayminus": 2**mean - 2 ** (mean - half),
                "thickness": 1,
            },
            mode="lines+markers",
            line={"color": colour, "width": 3 if kind == "trained" else 1.5},
            hovertemplate="IMF %{x}: %{y:.1f} tokens",
        )
    figure.add_scatter(
        name="learned, every head",
        x=[0] * learned.size,
        y=learned.ravel(),
        mode="markers",
        marker={"symbol": "line-ew-open", "color": FUTURE, "size": 14, "line": {"width": 1}},
        hovertemplate="%{y:.1f} tokens",
    )
    for period in np.median(learned, axis=0):
        figure.add_hline(period, line={"color": GREY, "dash": "dot", "width": 1})
    orders = range(1, int(points.order.max()) + 1)
    figure.update_xaxes(
        title="order of the IMF", tickvals=[0, *orders], ticktext=["learned", *map(str, orders)]
    )
    figure.update_yaxes(title="mean period, tokens", type="log", tickvals=PERIODS)
    return _styled(figure, f"Periods that {form} finds, by order", height=520)


def spectrum_and_kernel(phi: Tensor, context: int) -> go.Figure:
    """|φ| by period, and κ(τ) with its future half, τ < 0, in the warning colour.

    φ is one head's spectrum at ``torch.fft.rfftfreq(context)``, shape (⌊T/2⌋+1,), real or complex.
    """
    phi = phi.detach().cpu()
    tau = filters.circular_lags(context)
    kernel = filters.kernel_of(phi, context)[tau.argsort()].numpy()
    lags = tau.sort().values.numpy()
    energy = kernel**2
    share = energy[lags < 0].sum() / energy.sum()
    f = torch.fft.rfftfreq(context).numpy()
    place = np.concatenate([f[1:2] / 2, f[1:]])  # f = 0 has no place on a logarithmic axis
    figure = make_subplots(rows=2, cols=1, vertical_spacing=0.22)
    figure.add_scatter(
        name="φ",
        x=place,
        y=phi.abs().numpy(),
        customdata=f,
        mode="lines+markers",
        line={"color": GREY},
        marker={"size": 5},
        hovertemplate="f = %{customdata:.4f} cycles a token: %{y:.3f}",
        showlegend=False,
        row=1,
        col=1,
    )
    for name, half, colour in (
        ("future, τ < 0", lags < 0, FUTURE),
        ("present and past, τ ≥ 0", lags >= 0, PAST),
    ):
        figure.add_bar(
            name=name,
            x=lags[half],
            y=kernel[half],
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="τ = %{x}: %{y:.4f}",
            row=2,
            col=1,
        )
    periods = [period for period in (256, 128, 64, 32, 16, 8, 4, 2) if period <= context]
    figure.update_xaxes(
        title={"text": "period 1/f, tokens a cycle", "standoff": 5},
        type="log",
        tickvals=[place[0], *(1 / period for period in periods)],
        ticktext=["∞", *(str(period) for period in periods)],
        row=1,
        col=1,
    )
    figure.update_yaxes(title="|φ(f)|", rangemode="tozero", row=1, col=1)
    figure.update_xaxes(title="lag τ, tokens", zeroline=False, row=2, col=1)
    figure.update_yaxes(title="κ(τ)", row=2, col=1)
    figure.update_layout(bargap=0)
    caption = f"{share:.1%} of the kernel's energy lies at τ < 0."
    return _styled(figure, "A spectrum and its kernel", caption, height=560)


def mixing_matrix(matrix: Tensor) -> go.Figure:
    """G of q̃ = G q, shape (T, T): row i is what position i reads, its future above the diagonal."""
    g = matrix.detach().cpu().numpy().astype(np.float32)
    energy = g.astype(float) ** 2
    share = np.triu(energy, 1).sum() / energy.sum()
    top = float(np.abs(g).max())
    figure = make_subplots()
    _halves(figure, g, -top, top, [-top, 0, top], [f"{-top:.2g}", "0", f"{top:.2g}"], signed=True)
    figure.update_traces(hovertemplate="position %{y} reads token %{x}: %{z:.4f}<extra></extra>")
    caption = f"{share:.1%} of its energy lies above the diagonal."
    return _styled(figure, "The filter as a matrix G", caption, height=560)


def influence(audit: Audit) -> go.Figure:
    """The audit's T×T map on a logarithmic colour scale, and the most that a token at each lag moves."""
    found = audit.influence
    z = np.log10(np.where(found > 0, found, np.nan)).astype(np.float32)
    finite = z[np.isfinite(z)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (-1.0, 0.0)
    ticks = np.arange(np.ceil(low), high + 1e-9, max(1.0, np.ceil((high - low) / 3)))
    figure = make_subplots(rows=2, cols=1, row_heights=[0.78, 0.22], vertical_spacing=0.22)
    labels = [f"10<sup>{tick:.0f}</sup>" for tick in ticks]
    _halves(figure, z, low, high, ticks, labels)
    figure.update_traces(hovertemplate="token %{x} moves prediction %{y} by 10^%{z:.2f}<extra></extra>")
    lags = np.arange(1 - len(found), len(found))
    most = np.array([np.diagonal(np.nan_to_num(found), lag).max() for lag in lags])
    for half, colour in ((lags <= 0, PAST), (lags > 0, FUTURE)):
        figure.add_bar(
            x=lags[half],
            y=most[half],
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate="j − i = %{x}: %{y:.2g}<extra></extra>",
            showlegend=False,
            row=2,
            col=1,
        )
    figure.update_layout(bargap=0)
    figure.update_xaxes(title="token j less position i", range=[-len(found), len(found)], row=2, col=1)
    figure.update_yaxes(
        title="change of a logit", type="log", tickvals=10.0**ticks, ticktext=labels, row=2, col=1
    )
    if audit.causal:
        caption = "No later token moves a prediction: causal."
    else:
        caption = f"In {audit.leaks.sum()} pairs a later token moves a prediction: it leaks."
    return _styled(figure, "What moves which prediction", caption, height=680)


def _halves(
    figure: go.Figure,
    z: NDArray[np.float32],
    low: float,
    high: float,
    ticks: Iterable[float],
    labels: list[str],
    signed: bool = False,
) -> None:
    """A T×T map whose past, up to the diagonal, and whose future each have a colour scale."""
    future = np.triu(np.ones(z.shape, dtype=bool), 1)
    size = len(z)
    for name, half, scale, negative, x in (
        ("past and present", ~future, PAST_SCALE, "#56B4E9", 0.25),
        ("future", future, FUTURE_SCALE, "#F0E442", 0.75),
    ):
        figure.add_heatmap(
            name=name,
            z=np.where(half, z, np.nan),
            zmin=low,
            zmax=high,
            colorscale=[negative, *scale] if signed else scale,
            hoverongaps=False,
            colorbar={
                "orientation": "h",
                "x": x,
                "len": 0.4,
                "y": 0,
                "yref": "container",
                "yanchor": "bottom",
                "thickness": 10,
                "tickvals": list(ticks),
                "ticktext": labels,
            },
        )
        figure.add_annotation(
            text=name, x=x * (size - 1), y=(1 - x) * (size - 1), showarrow=False, font={"size": 13}
        )
    ends = {"x0": -0.5, "y0": -0.5, "x1": size - 0.5, "y1": size - 0.5}
    figure.add_shape(type="line", **ends, line={"color": GREY, "width": 1})
    figure.update_xaxes(title="token j", zeroline=False, constrain="domain", showgrid=False, row=1, col=1)
    figure.update_yaxes(
        title="position i",
        zeroline=False,
        autorange="reversed",
        scaleanchor="x",
        constrain="domain",
        showgrid=False,
        row=1,
        col=1,
    )


def _styled(figure: go.Figure, title: str, caption: str = "", height: int = 420) -> go.Figure:
    """Clear ground, grey lines, the legend below, a title that a narrow screen holds."""
    lines = "<br>".join(textwrap.wrap(caption, 52))
    line = {"gridcolor": "rgba(128,128,128,0.2)", "zerolinecolor": "rgba(128,128,128,0.4)"}
    figure.update_xaxes(**line, automargin=True)
    figure.update_yaxes(**line, automargin=True)
    return figure.update_layout(
        template="none",
        title={
            "text": f"<b>{title}</b>",
            "subtitle": {"text": lines, "font": {"size": 13}},
            "font": {"size": 15},
            "x": 0,
            "xref": "container",
            "pad": {"l": 10},
            "automargin": True,
            "yref": "container",
        },
        height=height,
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        font={"color": TEXT, "size": 12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom"},
        hovermode="closest",
    )


def outcomes(found: Iterable[Verdict]) -> go.Figure:
    """The claims by what became of them: a row an outcome, a square a claim."""
    found = list(found)
    figure = go.Figure()
    for outcome, colour in OUTCOMES.items():
        claims = [verdict.claim for verdict in found if verdict.outcome is outcome]
        figure.add_scatter(
            name=str(outcome),
            x=list(range(1, len(claims) + 1)),
            y=[str(outcome)] * len(claims),
            text=[claim.id for claim in claims],
            customdata=[claim.statement for claim in claims],
            mode="markers+text",
            marker={"symbol": "square", "color": colour, "size": 22, "opacity": 0.35},
            textfont={"size": 10},
            hovertemplate="%{text}: %{customdata}<extra></extra>",
            showlegend=False,
        )
        figure.add_annotation(
            text=f"{outcome}: {len(claims)}",
            x=0,
            xref="paper",
            xanchor="left",
            y=str(outcome),
            yshift=22,
            showarrow=False,
        )
    figure.update_xaxes(visible=False, range=[0.4, max(len(scatter.x) for scatter in figure.data) + 0.6])
    figure.update_yaxes(
        visible=False,
        range=[len(OUTCOMES) - 0.5, -0.8],
        categoryorder="array",
        categoryarray=[str(outcome) for outcome in OUTCOMES],
    )
    return _styled(figure, f"What became of {len(found)} claims", height=290)


def verdict_table(found: Iterable[Verdict]) -> HTML:
    """The claims with the paper's figures, the verdicts and the figures behind them, a row a claim."""
    rows = [
        {
            "claim": verdict.claim.id,
            "in our words": verdict.claim.statement,
            "the paper": verdict.claim.paper,
            "verdict": str(verdict.outcome),
            "the figures behind it": "; ".join(f"{name} {text}" for name, text in verdict.shown().items()),
        }
        for verdict in found
    ]
    return table(pd.DataFrame(rows).set_index("claim"), "The verdicts", wrap=True)


def table(frame: pd.DataFrame, caption: str, wrap: bool = False) -> HTML:
    """An HTML table with a caption and scoped headers, which scrolls on a narrow screen.

    ``wrap`` is for cells that hold sentences.
    """
    name, caption = str(frame.index.name or ""), escape(caption)
    styler = frame.rename_axis(index=None, columns=name).style.set_caption(caption)
    html = styler.format(precision=3, na_rep="–", escape="html").to_html(exclude_styles=True)
    head, body = html.split("<tbody>")
    head = head.replace("<th ", '<th scope="col" ')
    body = body.replace("<th ", '<th scope="row" ')
    style = "fqk-table fqk-sentences" if wrap else "fqk-table"
    opening = f'<div class="{style}" role="region" tabindex="0" aria-label="{caption}">'
    return HTML(f"{opening}{head}<tbody>{body}</div>")


def results_table(summary: pd.DataFrame, caption: str = "Every variant recorded") -> HTML:
    """:func:`fqk.report.summary` for a reader: the paper's figure beside ours, and the verdict."""
    rows = summary.reindex(columns=[*REPORTED, "±", "causal", "first_leak"])
    shown = rows[list(REPORTED)].rename(columns=REPORTED)
    shown["ours"] = [
        "diverged" if pd.isna(ours) else f"{ours:.3f} ± {error:.3f}"
        for ours, error in zip(rows["ordered"], rows["±"], strict=True)
    ]
    shown["audit"] = [
        "–" if pd.isna(causal) else "causal" if causal else "leaks: {} reads {}".format(*leak)
        for causal, leak in zip(rows.causal, rows.first_leak, strict=True)
    ]
    return table(shown.rename_axis("variant"), f"{caption}; losses in {NATS}")

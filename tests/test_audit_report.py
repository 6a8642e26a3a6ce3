"""The page of an audit, opened from disk in a browser without a network."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from browsing import CHROMIUM, chromium, new_page, serious
from torch import Tensor

from fqk.audit import audit
from fqk.audit_report import page

VOCAB, LENGTH = 11, 24
HOSTILE = "</script><b id=broken>a&b $title ${x} \u2028" + "long" * 60
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


def block_sums(tokens: Tensor) -> Tensor:
    """Each prediction reads all of its block of 6, the later tokens with the weight of the past."""
    blocks = F.one_hot(tokens, VOCAB).double().unflatten(1, (-1, 6))
    return (blocks.cumsum(2) + 0.01 * blocks.sum(2, keepdim=True)).flatten(1, 2)


def causal(tokens: Tensor) -> Tensor:
    return F.one_hot(tokens, VOCAB).double().cumsum(1)


def noisy(tokens: Tensor, generator=torch.Generator().manual_seed(0)) -> Tensor:  # noqa: B008
    return causal(tokens) + torch.rand(1, generator=generator)


def infinite(tokens: Tensor) -> Tensor:
    return causal(tokens) + torch.where(tokens[:, -1:, None] == 3, torch.inf, 0.0)


AUDITS = {
    "leaks": (block_sums, {}),
    "screened": (block_sums, {"depth": "screen"}),
    "causal": (causal, {"text": torch.arange(50).reshape(2, 25) % VOCAB}),
    "cannot tell": (noisy, {}),
    "infinite": (infinite, {"seed": 3}),
}


@pytest.fixture(scope="module")
def audits():
    return {
        name: audit(model, vocab_size=VOCAB, seq_len=LENGTH, **options)
        for name, (model, options) in AUDITS.items()
    }


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of an audit and, at the end, holds that nothing went wrong or was asked for."""
    seen = []

    def open_page(found, title="a model", **options):
        path = tmp_path / "report.html"
        path.write_text(page(found, title), encoding="utf-8")
        shown, problems = new_page(browser, **options)
        seen.append((shown, problems))
        shown.on("request", lambda r: r.url != path.as_uri() and problems.append(r.url))
        shown.goto(path.as_uri())
        return shown

    yield open_page
    for shown, problems in seen:
        assert problems == []
        shown.context.close()


def told(shown):
    """The pair that the page speaks of and its influence, None where it was not measured."""
    said = shown.locator("#said").text_content()
    j, i = re.match(r"The influence of token (\d+) on the prediction at (\d+), ", said).groups()
    value = re.search(r", is (\S+)\.$", said)
    assert value or said.endswith(", was not measured.")
    where = f"{int(j) - int(i)} ahead of it" if int(j) > int(i) else f"{int(i) - int(j)} before it"
    assert f", {where}, " in said
    return (int(i), int(j)), float(value[1]) if value else None


def point_at(shown, i, j):
    box = shown.locator("#map").bounding_box()
    shown.mouse.move(
        box["x"] + (j + 0.5) / LENGTH * box["width"], box["y"] + (i + 0.5) / LENGTH * box["height"]
    )


@pytest.mark.parametrize("name", AUDITS)
def test_the_verdict_is_the_audits_and_every_finding_is_there(audits, opened, name):
    found, shown = audits[name], opened(audits[name])
    assert shown.locator("h1").text_content() == f"a model: {found.verdict}" == shown.title()
    assert shown.locator("body > p").first.text_content() == f"{found.reason}."
    rows = [row.locator("th, td").all_text_contents() for row in shown.locator("tbody tr").all()]
    assert rows == [[f.probe, f.verdict, f.detail] for f in found.findings]
    losses = shown.locator("body > p:nth-of-type(2)")
    assert losses.all_text_contents() == ([f"Loss: {found.losses}."] if found.losses else [])
    pair = found.first_leak or (LENGTH - 1, 0)
    assert told(shown)[0] == pair


@pytest.mark.parametrize("name", AUDITS)
def test_a_cell_that_is_pointed_at_is_told_as_python_has_it(audits, opened, name):
    shown, influence = opened(audits[name], viewport={"width": 1000, "height": 1400}), audits[name].influence
    for i, j in [(0, 0), (0, LENGTH - 1), (1, 2), (7, 3), (8, 11), (LENGTH - 1, 5)]:
        point_at(shown, i, j)
        value = None if np.isnan(influence[i, j]) else pytest.approx(influence[i, j], rel=6e-3)
        assert told(shown) == ((i, j), value)


def test_arrow_keys_walk_the_map_and_stop_at_its_edges(audits, opened):
    shown, influence = opened(audits["leaks"]), audits["leaks"].influence
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.id") == "map"
    i, j = audits["leaks"].first_leak
    for key, (down, right) in {
        "ArrowDown": (1, 0),
        "ArrowRight": (0, 1),
        "ArrowUp": (-1, 0),
        "ArrowLeft": (0, -1),
    }.items():
        for _ in range(3 if key != "ArrowUp" else LENGTH):
            shown.keyboard.press(key)
            i, j = (min(max(x, 0), LENGTH - 1) for x in (i + down, j + right))
            assert told(shown) == ((i, j), pytest.approx(influence[i, j], rel=6e-3))
    assert i == 0


def test_a_tap_tells_a_cell(audits, opened):
    shown = opened(audits["leaks"], viewport={"width": 380, "height": 800}, has_touch=True)
    box = shown.locator("#map").bounding_box()
    shown.touchscreen.tap(box["x"] + 4.5 / LENGTH * box["width"], box["y"] + 3.5 / LENGTH * box["height"])
    assert told(shown)[0] == (3, 4)


@pytest.mark.parametrize("name", AUDITS)
def test_the_map_is_drawn_cell_for_cell(audits, opened, name):
    """Blue past and orange future, deeper for more, clear for none, grey where nothing was measured."""
    shown, influence = opened(audits[name]), audits[name].influence
    pixels = shown.evaluate(
        "[...document.getElementById('map').getContext('2d').getImageData(0, 0, 24, 24).data]"
    )
    pixels = np.array(pixels).reshape(LENGTH, LENGTH, 4)
    row, column = audits[name].first_leak or (LENGTH - 1, 0)  # under the cross-hair
    rows, columns = np.arange(LENGTH) != row, np.arange(LENGTH) != column
    seen = np.ix_(rows, columns)
    red, _, blue, alpha = np.moveaxis(pixels[seen], -1, 0)
    there, future = influence[seen], np.triu(np.ones_like(influence), 1)[seen] > 0
    unknown = np.isnan(there)
    assert ((alpha > 0) == (unknown | (there > 0))).all()
    assert (alpha[unknown] == 60).all()
    known = there > 0
    assert ((red > blue)[known] == future[known]).all()
    order = np.argsort(there[known], kind="stable")
    assert (np.diff(alpha[known][order]) >= 0).all()


def test_the_lags_are_drawn_where_the_profile_is_not_zero(audits, opened):
    shown, profile = opened(audits["leaks"]), audits["leaks"].lag_profile
    bottom = shown.evaluate(
        "[...document.getElementById('lags').getContext('2d').getImageData(0, 199, 920, 1).data]"
    )
    drawn = np.array(bottom).reshape(920, 4)[:, 3] > 0
    width = 920 / (LENGTH - 1)
    middles = ((np.arange(LENGTH - 1) + 0.4) * width).astype(int)
    assert drawn[middles].tolist() == (profile > 0).tolist()
    assert 0 < (profile > 0).sum() < LENGTH - 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", AUDITS)
def test_a_phone_shows_it_accessibly(audits, opened, name, scheme):
    options = {"color_scheme": scheme, "viewport": {"width": 380, "height": 800}}
    shown = opened(audits[name], HOSTILE, **options)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 380
    ground = shown.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", ground)[:3])) < 60) == (scheme == "dark")
    assert serious(shown) == []


def test_a_hostile_name_is_only_a_name(audits, opened):
    shown = opened(audits["leaks"], HOSTILE)
    assert shown.locator("h1").text_content() == f"{HOSTILE}: leaks"
    assert shown.locator("#broken, b:not(.past, .future)").count() == 0
    assert told(shown)[0] == audits["leaks"].first_leak

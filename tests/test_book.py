"""The book that a reader opens: built once, read as HTML, opened in a browser without a network."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest
import yaml
from browsing import CHROMIUM, chromium, draw_figures, new_page, open_page, serious
from conftest import NOTEBOOKS, ROOT, copy_sources

from fqk import book
from fqk.book import BookError, build, check_figures
from fqk.errors import InputError
from fqk.profiles import PROFILES
from fqk.records import read_record, read_records, write_record
from fqk.report import summary

PLOTLY = "application/vnd.plotly.v1+json"
SCHEMES = {"light": 1280, "dark": 380}  # either in a window of its own width, the narrow one a phone's
HEAVIEST = 1_500_000  # bytes, without the plotly.min.js that all pages share
SLOWEST = 2.0  # seconds
UNDRAWN = """[...document.querySelectorAll(".plotly-graph-div, div[id^=fqk-]")].filter(
    (div) => !div.querySelector(".main-svg .trace, .main-svg .hm image, .drawn > *")
).map((div) => div.id)"""


def test_every_source_has_its_page(pages):
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    files = [toc["root"]] + [c["file"] for part in toc["parts"] for c in part["chapters"]]
    assert {f"{file}.html" for file in files} | {"index.html"} == set(pages)
    assert {f"notebooks/{path.stem}" for path in NOTEBOOKS} <= set(files)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_is_on_its_page_with_its_data(html, pages, notebook):
    executed = nbformat.read(html.parent / "stage/notebooks" / notebook.name, as_version=4)
    shown = [
        output["data"][PLOTLY]
        for cell in executed.cells
        for output in cell.get("outputs", [])
        if PLOTLY in output.get("data", {})
    ]
    page = pages[f"notebooks/{notebook.stem}.html"]
    assert len(page.find_all(class_="plotly-graph-div")) == len(shown) > 0
    drawn = book.figures_on(str(page))
    assert [title for title, _ in drawn] == [f["layout"]["title"]["text"] for f in shown]
    for (title, on_page), figure in zip(drawn, shown, strict=True):
        assert on_page == figure["data"], title
        assert any(book.has_data(trace) for trace in on_page), title


def test_no_page_asks_for_anything_outside_its_files(html, pages):
    for name, page in pages.items():
        for tag in page.find_all(["script", "link", "img", "iframe", "source", "video", "audio"]):
            for link in (tag.get("src"), tag.get("href")):
                assert not re.match(r"(https?:)?//", link or ""), f"{name}: {tag}"
                if link and not link.startswith(("data:", "#")):
                    target = (html / name).parent / link.split("?")[0].split("#")[0]
                    assert target.exists(), f"{name}: {link}"
        assert "MathJax" not in page.text
        scripts = [tag["src"] for tag in page.find_all("script", src=re.compile("plotly"))]
        assert len(scripts) == bool(page.select(".plotly-graph-div")), name
    for sheet in html.glob("_static/**/*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_equations_are_mathml_with_their_numbers(pages):
    sources = {path.stem: nbformat.read(path, as_version=4) for path in NOTEBOOKS}
    for stem, source in sources.items():
        text = "\n".join(cell.source for cell in source.cells if cell.cell_type == "markdown")
        page = pages[f"notebooks/{stem}.html"]
        blocks = page.select("div.math > math[display=block]")
        assert len(blocks) == len(re.findall(r"^\$\$ \(", text, flags=re.M)), stem
        assert all(block.find_previous_sibling(class_="eqno") for block in blocks), stem
        links = page.select('a[href*="#equation-"]:not(.headerlink)')
        assert all(re.fullmatch(r"\(\d+\.\d+\)", link.text) for link in links), stem
        assert len(links) == len(re.findall(r"\{eq\}`", text)), stem


def test_nothing_is_left_unrendered(pages):
    for name, page in pages.items():
        text = page.get_text()
        for leftover in ("{cite", "{doc}", "{eq}", "$$", "\\frac", "```", ":::", "Traceback"):
            assert leftover not in text, f"{name}: {leftover}"
        assert not page.select(".problematic, .system-message, .stderr"), name
        prose = " ".join(tag.text for tag in page.select("article p, article li, article td"))
        if name.startswith("notebooks/"):  # what a cell computed; a page may speak of NaN
            assert not re.search(r"\b(nan|None|NaN)\b", prose), name


def test_pages_hold_what_was_measured(pages):
    loss = f"{summary(read_records(ROOT / 'results', 'smoke')).ordered['base-dot']:.3f}"
    for page in ("index", "01-text-and-baseline", "03-every-variant-trained"):
        assert loss in pages[f"notebooks/{page}.html"].text


def test_no_page_names_the_machine_it_was_built_on(html, pages):
    for name, page in pages.items():
        assert str(html.parents[1]) not in str(page), name
        assert str(ROOT) not in str(page), name


@dataclass
class Opening:
    """What there was to see when a page had opened; ``seconds`` is its main thread's CPU time until then."""

    problems: list[str]
    requested: set[str]
    undrawn: list[str]
    width: int
    seconds: float
    serious: list[str]


def opening(browser, path, scheme):
    page, problems = new_page(
        browser, color_scheme=scheme, viewport={"width": SCHEMES[scheme], "height": 800}
    )
    requested = set()
    page.on("request", lambda request: requested.add(request.url))
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    open_page(page, path.as_uri())
    metrics = {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}
    draw_figures(page)
    undrawn = page.evaluate(UNDRAWN)
    width = page.evaluate("document.documentElement.scrollWidth")
    seen = Opening(problems, requested, undrawn, width, metrics["TaskDuration"], serious(page))
    page.context.close()
    return seen


@pytest.fixture(scope="module")
def openings(html, pages):
    """Each page, and that of the search, opened from disk without a network in either scheme."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    names = [name for name in [*pages, "search.html"] if name != "index.html"]  # it leads to notebooks/index
    with chromium() as browser:
        return {(name, scheme): opening(browser, html / name, scheme) for name in names for scheme in SCHEMES}


def test_every_page_opens_from_disk_without_a_network(openings):
    for at, seen in openings.items():
        assert seen.problems == [], at
        assert [url for url in seen.requested if not url.startswith(("file:", "data:", "blob:"))] == [], at
        assert seen.undrawn == [], at


def test_no_page_is_wider_than_its_window(openings):
    for (name, scheme), seen in openings.items():
        assert seen.width <= SCHEMES[scheme], name


def test_no_page_shuts_anybody_out(openings):
    """axe-core finds no serious or critical violation."""
    assert {at: seen.serious for at, seen in openings.items() if seen.serious} == {}


def test_no_page_is_heavy(openings):
    """All files that a page asks for, with its fonts, as they lie on the disk."""
    for at, seen in openings.items():
        files = [Path(urlsplit(url).path) for url in seen.requested if url.startswith("file:")]
        sizes = {file.name: file.stat().st_size for file in set(files) if file.name != "plotly.min.js"}
        assert len(sizes) > 10, at
        assert sum(sizes.values()) <= HEAVIEST, f"{at}: {sizes}"


def test_every_page_is_soon_interactive(openings):
    """From the start until all is loaded, what is in view is drawn and the main thread is idle.

    In that thread's CPU time, which does not count waiting for other processes; of two openings the shorter.
    """
    for name in {name for name, _ in openings}:
        assert 0 < min(openings[name, scheme].seconds for scheme in SCHEMES) < SLOWEST, name


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_the_front_door_opens_and_search_finds_a_term(html):
    with chromium() as browser:
        page, problems = new_page(browser)
        page.goto((html / "index.html").as_uri())
        page.wait_for_url("**/notebooks/index.html")
        assert problems == []
        page.goto((html / "search.html").as_uri() + "?q=circulant")
        page.wait_for_selector("#search-results li a")
        found = [link.get_attribute("href") for link in page.locator("#search-results li a").all()]
        assert any("02-filtering-queries-and-keys" in link for link in found)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_a_printed_page_has_the_figures_that_nobody_came_near(html):
    with chromium() as browser:
        page, problems = new_page(browser)
        open_page(page, (html / "notebooks/02-filtering-queries-and-keys.html").as_uri())
        assert len(page.evaluate(UNDRAWN)) > 2
        page.pdf()
        assert page.evaluate(UNDRAWN) == []
        assert problems == []


def page_with(traces):
    layout = {"title": {"text": "<b>A</b>"}}
    return f'Plotly.newPlot( "id", {json.dumps(traces)}, {json.dumps(layout)}, {{}})'


def notebook_with(titles, *tags):
    output = [{"data": {PLOTLY: {"layout": {"title": {"text": title}}}}} for title in titles]
    return {"cells": [{"metadata": {"tags": list(tags)}, "outputs": output}]}


def test_a_lost_or_empty_figure_is_named(tmp_path):
    page = tmp_path / "page.html"
    with pytest.raises(BookError, match=r"page\.html was not rendered"):
        check_figures(notebook_with([]), page)
    page.write_text(page_with([{"y": [1, 2]}]))
    check_figures(notebook_with(["<b>A</b>"]), page)
    check_figures(notebook_with(["<b>B</b>"], "remove-output"), page)
    with pytest.raises(BookError, match=r"page\.html lost its figure '<b>B</b>'"):
        check_figures(notebook_with(["<b>A</b>", "<b>B</b>"]), page)
    with pytest.raises(BookError, match=r"page\.html lost its figure '<b>A</b>'"):
        check_figures(notebook_with(["<b>A</b>", "<b>A</b>"]), page)
    page.write_text(page_with([{"y": []}, {"z": {"bdata": "", "dtype": "f4"}}]))
    with pytest.raises(BookError, match=r"page\.html shows figure '<b>A</b>' without data"):
        check_figures(notebook_with(["<b>A</b>"]), page)


def test_the_book_is_built_from_the_project_and_its_records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="project's root"):
        build("smoke", 0, "cpu")
    copy_sources(tmp_path)
    with pytest.raises(InputError, match="no records of profile smoke"):
        build("smoke", 0, "cpu")
    assert not Path("_build").exists()


@pytest.mark.parametrize(
    "change", [{"trainer_revision": 0}, {"mixer_revision": 0}, {"profile": PROFILES["cpu"]}]
)
def test_a_stale_record_is_named(tmp_path, monkeypatch, results, change):
    monkeypatch.chdir(tmp_path)
    record = read_record(results / "smoke/base-dot/seed0/record.json")
    write_record(record, Path("results/smoke/base-dot/seed0"))
    book.check_records("smoke")
    stale = record.model_copy(update={"identity": record.identity.model_copy(update=change)})
    write_record(stale, Path("results/smoke/base-dot/seed0"))
    with pytest.raises(BookError, match=r"base-dot seed 0 at .* is stale"):
        book.check_records("smoke")


def test_a_notebook_that_raises_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("_build/stage/notebooks").mkdir(parents=True)
    Path("notebooks").mkdir()
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("x = 1"), nbformat.v4.new_code_cell("x / 0")]
    )
    nbformat.write(notebook, "notebooks/bad.ipynb")
    with pytest.raises(BookError, match=r"bad\.ipynb raised ZeroDivisionError in cell \d: division"):
        book.execute(Path("notebooks/bad.ipynb"), {})


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stripped_and_take_parameters(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "parameters" in code[0].metadata.tags
    assert code[0].source.splitlines() == [
        'profile = "cpu"',
        "seed = 0",
        'device = "cpu"',
        'results = "../results"',
    ]
    assert all(re.fullmatch(r"[a-z-]+", cell.id) for cell in notebook.cells)

"""What a page adds to a notebook: numbers and captions of figures, tables that sort and filter, intervals."""

import ast
import inspect
import re
import shutil
from contextlib import chdir
from pathlib import Path

import nbformat
import plotly
import plotly.graph_objects as go
import pytest
from browsing import CHROMIUM, chromium, new_page, serious
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import expect
from test_book import NOTEBOOKS, ROOT

from fqk import book, explorers, figures
from fqk.records import Losses, read_records
from fqk.report import interval, summary

CHAPTERS = [path for path in NOTEBOOKS if path.stem[0].isdigit()]
CHOSEN = ("base-dot", "multifourier-qk")
SETUP = f"""
from pathlib import Path

from fqk import figures
from fqk.explorers import ResultsExplorer
from fqk.records import read_records
from fqk.report import summary

records = list(read_records(Path({str(ROOT / "results")!r}), "smoke"))
"""
TOC = """
format: jb-book
root: index
parts:
  - numbered: true
    chapters:
      - file: notebooks/chapter
"""
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


def shown(name, source):
    caption = f"The caption of {name}, beside {{numref}}`losses`."
    return new_code_cell(source, metadata={"mystnb": {"figure": {"name": name, "caption": caption}}})


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    """A book of one chapter, over the committed smoke records, with what the real ones are made of."""
    cells = [
        new_markdown_cell("# A chapter\n\n{numref}`losses` comes before {numref}`runs`."),
        new_code_cell(SETUP),
        shown("losses", "figures.losses(records)"),
        new_code_cell("figures.results_table(summary(records))"),
        new_code_cell("figures.results_table(summary(records).iloc[:3], 'Three')"),
        shown("runs", f"ResultsExplorer(r for r in records if r.identity.variant in {CHOSEN})"),
    ]
    folder = tmp_path_factory.mktemp("chapter")
    with chdir(folder):
        shutil.copytree(ROOT / "book/_static", book.STAGE / "book/_static")
        script = Path(plotly.__file__).with_name("package_data") / "plotly.min.js"
        for source in (script, ROOT / "book/references.bib"):
            shutil.copy(source, book.STAGE / "book" / ("_static" if source == script else ""))
        shutil.copy(ROOT / "_config.yml", book.STAGE)
        (book.STAGE / "_toc.yml").write_text(TOC)
        (book.STAGE / "index.md").write_text("# A book")
        (book.STAGE / "notebooks").mkdir()
        Path("notebooks").mkdir()
        nbformat.write(new_notebook(cells=cells), "notebooks/chapter.ipynb")
        book.execute(Path("notebooks/chapter.ipynb"), {})
        return folder / book.render() / "notebooks/chapter.html"


@pytest.fixture(scope="module")
def pages(chapter):
    return {"notebooks/chapter.html": BeautifulSoup(chapter.read_text(), "html.parser")}


@pytest.fixture
def page(chapter):
    with chromium() as browser:
        page, _ = new_page(browser)
        page.goto(chapter.as_uri())
        yield page


def shows_a_figure(cell):
    """Whether a code cell ends with a call of a function that makes a figure, or of an explorer."""
    drawing = {n for n, f in vars(figures).items() if inspect.isfunction(f) and returns_figure(f)}
    calls = [node.func for node in ast.walk(ast.parse(cell.source).body[-1]) if isinstance(node, ast.Call)]
    return any(
        call.value.id == "figures" and call.attr in drawing
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name)
        else isinstance(call, ast.Name) and call.id in explorers.__all__
        for call in calls
    )


def returns_figure(function):
    return inspect.signature(function).return_annotation is go.Figure


def test_every_figure_of_a_chapter_has_a_caption_and_is_spoken_of():
    named = []
    for path in CHAPTERS:
        notebook = nbformat.read(path, as_version=4)
        prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        drawn = [c for c in notebook.cells if c.cell_type == "code" and shows_a_figure(c)]
        assert drawn, path
        for cell in drawn:
            figure = cell.metadata["mystnb"]["figure"]
            assert re.fullmatch(r"[A-Z].*[^.]\.", figure["caption"]), (path, cell.id)
            assert f"{{numref}}`{figure['name']}`" in prose, (path, cell.id)
            named.append(figure["name"])
    assert len(named) == len(set(named))
    everywhere = "".join(path.read_text() for path in [*NOTEBOOKS, *(ROOT / "book").glob("*.md")])
    assert set(re.findall(r"\{numref\}`([^`]+)`", everywhere)) <= set(named)


def test_figures_are_numbered_and_captioned_and_references_lead_to_them(pages):
    for name, page in pages.items():
        drawn = page.select(".bd-article .plotly-graph-div, .bd-article [id^=fqk-]")
        numbers = {}
        for element in drawn:
            figure = element.find_parent("figure")
            number = figure.select_one("figcaption .caption-number").text.strip()
            assert re.fullmatch(r"Figure \d+\.\d+", number), (name, figure["id"])
            assert figure.select_one("figcaption .caption-text").text.endswith("."), (name, figure["id"])
            numbers[figure["id"]] = number
        assert len(numbers) == len(drawn) == len(set(numbers.values())) > 0
        for link in page.select("a.reference.internal:has(> .std-numref)"):
            target = link["href"].partition("#")[2]
            assert numbers.get(target, link.text) == link.text, (name, link)
            assert link["href"].split("#")[0] or page.find(id=target), (name, link)


def test_numbers_count_within_the_chapter(pages):
    (page,) = pages.values()
    captions = [caption.text for caption in page.select("figcaption .caption-number")]
    assert captions == ["Figure 1.1 ", "Figure 1.2 "]
    text = page.select_one("h1").find_next("p").text
    assert text == "Figure 1.1 comes before Figure 1.2."


def rows_of(table):
    """The names of the rows that are shown, from top to bottom."""
    return [head.inner_text() for head in table.locator("tbody tr:visible th").all()]


@in_browser
def test_a_long_table_sorts_by_value_and_back(page):
    table = page.locator(".fqk-table table").first
    ours = summary(read_records(ROOT / "results", "smoke")).ordered.round(3)
    header = table.get_by_role("columnheader", name="ours")
    button = header.get_by_role("button")
    assert header.get_attribute("aria-sort") is None
    button.focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert [ours[name] for name in rows_of(table)] == sorted(ours)
    page.keyboard.press("Space")
    expect(header).to_have_attribute("aria-sort", "descending")
    assert [ours[name] for name in rows_of(table)] == sorted(ours, reverse=True)
    paper = table.get_by_role("columnheader", name="paper")
    paper.get_by_role("button").click()  # most have none, which come last
    assert header.get_attribute("aria-sort") is None
    assert [figures.VARIANTS[name].paper for name in rows_of(table)[:3]] == [0.018, 0.309, 0.608]
    paper.get_by_role("button").click()
    assert [figures.VARIANTS[name].paper for name in rows_of(table)[:2]] == [1.474, 1.031]
    paper.get_by_role("button").click()
    assert rows_of(table) == list(ours.index)


@in_browser
def test_a_long_table_is_filtered_by_what_its_rows_say(page):
    table = page.locator(".fqk-table table").first
    found = summary(read_records(ROOT / "results", "smoke"))
    field = page.get_by_role("searchbox")
    expect(field).to_have_count(1)  # a table of three rows has none
    expect(page.locator(".fqk-table table").nth(1).get_by_role("button")).to_have_count(0)
    field.fill("Causal")
    expected = [name for name in found.index if "causal" in name or found.causal[name]]
    assert rows_of(table) == expected
    assert 0 < len(expected) < len(found)
    expect(page.locator(".fqk-filter output")).to_have_text(f"{len(expected)} of {len(found)} rows")
    field.fill("")
    assert rows_of(table) == list(found.index)


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_and_captions_are_accessible_and_fit_a_phone(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 380, "height": 800})
    page.reload()
    expect(page.get_by_role("searchbox")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert serious(page, ".bd-article") == []


@in_browser
def test_the_results_explorer_has_intervals_over_the_chosen_seeds(page):
    records = [r for r in read_records(ROOT / "results", "smoke") if r.identity.variant in CHOSEN]
    there = page.get_by_role("region", name="Training and results explorer")
    seeds = sorted({record.identity.seed for record in records})
    assert len(seeds) > 2

    def agrees(seeds):
        texts = []
        for name in CHOSEN:
            runs = [r for r in records if r.identity.variant == name and r.identity.seed in seeds]
            for kind, label in zip(Losses.model_fields, ALL_LOSSES, strict=True):
                found = interval([getattr(run.losses, kind).mean for run in runs])
                one = getattr(runs[0].losses, kind).standard_error
                error = found.half_width if len(runs) > 1 else one
                texts.append(f"{name}, {label}: {found.mean:.3f} ± {error:.3f}")
        expect(there.locator("g:has(path.error) title")).to_have_text(texts)

    agrees(seeds)
    expect(there).to_contain_text("the 95 % interval over the chosen seeds")
    expect(there).to_contain_text("loss ± 95 % over seeds, nats a character")
    for seed in seeds[2:]:
        there.get_by_label(str(seed), exact=True).uncheck()
    agrees(seeds[:2])
    there.get_by_label(str(seeds[1]), exact=True).uncheck()
    agrees(seeds[:1])
    expect(there).to_contain_text("Bars: the standard error over windows where one seed is chosen.")


ALL_LOSSES = [figures.MARKERS[kind][0] for kind in Losses.model_fields]

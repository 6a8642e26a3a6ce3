"""The explorers on a page of the book without a network, and in JupyterLab with a kernel."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from contextlib import chdir
from pathlib import Path
from zipfile import ZipFile

import nbformat
import numpy as np
import pytest
import torch
from browsing import CHROMIUM, chromium, new_page, open_page, serious
from conftest import ROOT
from jupyter_client import BlockingKernelClient
from nbformat.sign import NotebookNotary
from playwright.sync_api import expect

from fqk import book
from fqk.errors import InputError
from fqk.explorers import FilterExplorer, LeakMicroscope, ResultsExplorer
from fqk.explorers.base import FOLDER, packed
from fqk.records import read_records

# What a reader's notebook does, over smoke records in the folder ``results``; the tests do the same.
SETUP = """
import numpy as np
from pathlib import Path
from fqk.corpus import load_corpus
from fqk.explorers import (
    EMDExplorer, FilterExplorer, FrequencyExplorer, LeakMicroscope, Modes, ResultsExplorer
)
from fqk.records import load_model, read_records

corpus = load_corpus()
records = list(read_records(Path(results), "smoke"))
models = {name: load_model(Path(results), "smoke", name) for name in ("base-dot", "multifourier-qk")}

def modes(label, seed, learned=()):  # sines in place of IMFs
    random, t = np.random.default_rng(seed), np.arange(128)
    periods = [3.5 * (1.7 + 0.2 * seed) ** k for k in range(4)]
    imfs = np.stack([random.normal() * np.sin(2 * np.pi * t / p) for p in periods] + [t / 100])
    return Modes(label, imfs.sum(0), imfs, [*periods, np.inf], learned)

heads = [modes("layer 0, head 0", 1, (60.0, 25.0, 10.0, 5.0)), modes("layer 0, head 1", 2)]
shown = {
    "filter": FilterExplorer(records),
    "frequency": FrequencyExplorer(records, corpus.decode(corpus.val[:500])),
    "leak": LeakMicroscope(models, corpus),
    "results": ResultsExplorer(records),
    "emd": EMDExplorer(heads, modes("white noise", 0)),
}
"""
NAMES = ("filter", "frequency", "leak", "results", "emd")
TITLES = {
    "filter": "Filter explorer",
    "frequency": "Frequency explorer",
    "leak": "Leak microscope",
    "results": "Training and results explorer",
    "emd": "EMD explorer",
}
expect.set_options(timeout=30_000)  # a machine that is busy elsewhere is not a failure
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def built(results):
    """The same explorers as on the page."""
    names = {"results": str(results)}
    exec(SETUP, names)
    return names["shown"]


@pytest.fixture
def shown(built):
    """They, to hold the page against; their state is put back."""
    before = {name: widget.state() for name, widget in built.items()}
    yield built
    for name, widget in built.items():
        for trait, value in before[name].items():
            setattr(widget, trait, value)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory, results):
    """A notebook of all five, executed by papermill and trusted."""
    folder = tmp_path_factory.mktemp("demonstration")
    cells = [nbformat.v4.new_markdown_cell("# Explorers")]
    cells += [nbformat.v4.new_code_cell(f"results = {str(results)!r}\n{SETUP}")]
    cells += [nbformat.v4.new_code_cell(f"shown[{name!r}]") for name in NAMES]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "demo.ipynb")
    # In a process of its own: Playwright's event loop runs in this one.
    command = [sys.executable, "-m", "papermill", "demo.ipynb", "executed.ipynb", "--no-progress-bar"]
    subprocess.run(
        [*command, "--kernel", "python3"], cwd=folder, check=True, capture_output=True, timeout=120
    )
    return folder / "executed.ipynb"


@pytest.fixture(scope="module")
def address(tmp_path_factory, notebook):
    """The page of the book that the notebook becomes."""
    project = tmp_path_factory.mktemp("book")
    shutil.copytree(ROOT / "book", project / "_build/stage/book")
    shutil.copy(ROOT / "_config.yml", project / "_build/stage")
    (project / "_build/stage/_toc.yml").write_text("format: jb-book\nroot: demo\n")
    executed = nbformat.read(notebook, as_version=4)
    del executed.metadata["widgets"]  # as fqk.book does
    nbformat.write(executed, project / "_build/stage/demo.ipynb")
    with chdir(project):
        return (project / book.render() / "demo.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, address):
    page, problems = new_page(browser, viewport={"width": 1000, "height": 900})
    open_page(page, address)
    yield page
    assert problems == []
    page.context.close()


def explorer(page, name):
    return page.get_by_role("region", name=TITLES[name])


def control(there, label):
    return there.get_by_label(label, exact=True)


def percent(share):
    """As it is shown; Playwright takes any space for a no-break one."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    return "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def press(slider, *keys):
    slider.focus()
    for key in keys:
        slider.press(key)


SETTINGS = [
    {"family": "bump", "period": 60.0, "context": 64},
    {"family": "bump", "period": 3.3, "bandwidth": 0.9, "one_sided": True},
    {"family": "bumps"},
    {"family": "bumps", "period": 20.0, "bandwidth": 0.05, "context": 256, "one_sided": True},
    {"family": "random", "draw": 7, "context": 32},
    {"family": "random", "draw": 15, "context": 256, "one_sided": True},
    {"family": "morlet", "period": 25.0},
    {"family": "morlet", "period": 5.0, "width": 3.0, "one_sided": True},
    {"family": "mexican hat", "width": 6.0},
    {"family": "mexican hat", "width": 30.0, "context": 256, "one_sided": True},
    {"family": "gaussian", "width": 1.5, "context": 64},
    {"family": "gaussian", "width": 64.0, "one_sided": True},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: " ".join(map(str, s.values())))
def test_the_filter_mathematics_is_that_of_python(browser, setting):
    """Kernel, spectrum and shares of the module's own functions, to 1e-6."""
    widget = FilterExplorer(**setting)
    context = browser.new_context(offline=True)
    kernel, spectrum, shares = context.new_page().evaluate(
        """async ([source, state]) => {
            const exported = source + "\\nexport { kernelOf, amplitudes, futureShares };";
            const module = await import("data:text/javascript," + encodeURIComponent(exported));
            const kernel = module.kernelOf((name) => state[name]);
            const shares = module.futureShares(kernel, state.context, state.one_sided);
            return [kernel, module.amplitudes(kernel, state.context), shares];
        }""",
        [widget._esm, json.loads(json.dumps(widget.state()))],
    )
    context.close()
    assert kernel == pytest.approx(widget.kernel().tolist(), abs=1e-6)
    assert spectrum == pytest.approx(widget.spectrum().tolist(), abs=1e-6)
    energy = widget.matrix() ** 2
    above = (energy.triu(1).sum() / energy.sum()).item()
    assert shares == pytest.approx([widget.future_share(), above], abs=1e-6)
    assert (above == 0) == widget.one_sided


def test_the_filter_explorer_follows_every_control(page, shown):
    there, widget = explorer(page, "filter"), shown["filter"]
    share, variant = there.locator(".share"), there.locator(".variant")

    def agrees():
        expect(share).to_have_text(percent(widget.future_share()))

    agrees()
    press(control(there, "period"), "End")
    widget.period = 256.0
    agrees()
    press(control(there, "bandwidth σ/f"), "Home", "ArrowRight")
    widget.bandwidth = 0.03
    agrees()
    control(there, "window T").select_option("32 tokens")
    widget.context = 32
    agrees()
    expect(there.locator("canvas")).to_have_js_property("width", 32)
    control(there, "family").select_option("a random bump")
    press(control(there, "draw"), "ArrowRight", "ArrowRight")
    widget.family, widget.draw = "random", 2
    agrees()
    assert control(there, "width s").is_hidden()
    control(there, "family").select_option("Mexican hat")
    press(control(there, "width s"), "Home", "ArrowRight")
    widget.family, widget.width = "mexican hat", 1.5
    agrees()
    expect(variant).to_have_text("no variant of the book")
    control(there, "one-sided").press("Space")
    widget.one_sided = True
    agrees()
    expect(share).to_have_text("0.0 %")
    expect(variant).to_have_text("causal-mexhat")
    control(there, "family").select_option("a trained head")
    control(there, "head").select_option("multifourier-qk, seed 0, layer 1, head 0")
    head = widget.data["heads"][2]
    assert head["label"] == "multifourier-qk, seed 0, layer 1, head 0"
    widget.family, widget.head, widget.one_sided, widget.context = "trained", 2, False, head["context"]
    agrees()
    assert widget.future_share() > 0.1


def test_the_picture_of_the_matrix_has_its_future_in_the_warning_colour(page, shown):
    there, widget = explorer(page, "filter"), shown["filter"]
    look = """canvas => {
        const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return [0, 3, width - 5].map((at) => [...data.slice(4 * (2 * width + at), 4 * (2 * width + at) + 4)]);
    }"""
    matrix = widget.matrix()
    size = widget.context
    _, future, far = there.locator("canvas").evaluate(look)
    expected = {True: (213, 94, 0), False: (240, 228, 66)}
    for pixel, column in ((future, 3), (far, size - 5)):
        value = matrix[2, column].item()
        assert pixel[3] == pytest.approx(255 * (abs(value) / matrix.abs().max().item()) ** 0.5, abs=1)
        assert pixel[:3] == pytest.approx(expected[value > 0], abs=12)  # premultiplied by a low opacity
    control(there, "one-sided").check()
    past, future, far = there.locator("canvas").evaluate(look)
    assert past[3] > 0
    assert future[3] == far[3] == 0


def test_the_frequency_explorer_follows_every_control(page, shown):
    there, widget = explorer(page, "frequency"), shown["frequency"]

    def agrees():
        text, counts = widget.cover()
        expect(there.get_by_role("status")).to_contain_text(
            f"Cycle {widget.cycle} covers “{text.replace(chr(10), '↵')}”"
        )
        read, mean = (there.locator("tr").nth(n).locator("td").all_inner_texts() for n in (1, 2))
        assert read == [str(count) for count in counts.values()]
        assert mean == [f"{value:.2f}" for value in widget.per_cycle().values()]
        marked = there.locator(".cycle.read")
        assert marked.evaluate("span => span.textContent") == text

    agrees()
    press(control(there, "cycle"), "ArrowRight", "ArrowRight")
    widget.cycle = 2
    agrees()
    press(control(there, "first character"), "ArrowRight")
    widget.start = 1
    agrees()
    press(control(there, "ruler's period"), "Home")
    widget.period = 2.0
    agrees()
    there.locator(".cycle").nth(4).click()
    widget.cycle = 4
    agrees()
    last = widget.point
    for label, option, trait in (
        ("layer", "1", "layer"),
        ("head", "1", "head"),
        ("which period", "3 of 4", "number"),
    ):
        control(there, label).select_option(option)
        setattr(widget, trait, 2 if trait == "number" else 1)
        widget.period = widget.learned()
        agrees()
    press(control(there, "after step"), "Home")
    widget.point = 0
    widget.period = widget.learned()
    assert widget.period == 10
    agrees()
    assert last == 5
    control(there, "learned by").select_option("multifourier-qk, seed 0")
    agrees()


def test_the_leak_microscope_follows_every_control(page, shown):
    """The shares shown are the model's own, at a few settings, stored to better than a tenth of a percent."""
    there, widget = explorer(page, "leak"), shown["leak"]

    def agrees():
        found = widget.change()
        symbols = {"\n": "line end", " ": "space"}
        expect(there.locator(".moved")).to_have_text(percent(found["moved"]))
        rows = [there.locator("tr").nth(n).locator("td").all_inner_texts() for n in (0, 1)]
        for cells, wanted in zip(rows, (found["before"], found["after"]), strict=True):
            assert len(cells) == 4
            for cell, (symbol, p) in zip(cells, wanted[:-1], strict=True):
                name, share = re.fullmatch(r"(.+?) ([\d.]+)\s%", cell).groups()
                assert name == symbols.get(symbol, symbol)
                assert float(share) == pytest.approx(100 * p, abs=0.052)
        return found["moved"]

    assert agrees() == 0  # base-dot, one letter ahead
    control(there, "variant").select_option("multifourier-qk")
    widget.variant = "multifourier-qk"
    assert agrees() > 0
    control(there, "into").select_option("z")
    widget.letter = "z"
    agrees()
    press(control(there, "change letter"), "ArrowRight", "ArrowRight")
    widget.lag = 3
    agrees()
    press(control(there, "position i"), "ArrowLeft", "ArrowLeft")
    widget.place -= 2
    agrees()
    press(control(there, "change letter"), "Home")
    widget.lag = -2
    agrees()
    control(there, "variant").select_option("base-dot")
    widget.variant = "base-dot"
    assert agrees() > 0  # an earlier letter moves it
    press(control(there, "position i"), "End")
    expect(control(there, "change letter")).to_have_value("-2")
    there.locator(".token").nth(10).click()
    widget.place = 10
    agrees()


def test_the_text_is_coloured_by_what_moves_the_prediction(page, shown):
    there, widget = explorer(page, "leak"), shown["leak"]
    opacities = """spans => spans.map((span) => {
        const [, , , alpha] = getComputedStyle(span).backgroundColor.match(/[\\d.]+/g).map(Number);
        return alpha ?? 1;
    })"""

    def influence(variant):
        letters = torch.tensor(widget.data["letters"])
        everywhere = torch.arange(widget.length).repeat_interleave(len(letters))
        *_, moved = widget.moved(widget.models[variant], everywhere, letters.repeat(widget.length))
        return moved.view(widget.length, len(letters), -1).amax(1)[:, widget.place].sqrt().tolist()

    for variant in ("base-dot", "multifourier-qk"):
        control(there, "variant").select_option(variant)
        drawn = [alpha * 255 / 140 for alpha in there.locator(".token").evaluate_all(opacities)]
        assert drawn == pytest.approx(influence(variant), abs=0.07)
        assert any(drawn[: widget.place + 1])
        assert any(drawn[widget.place + 1 :]) == (variant == "multifourier-qk")


def test_the_results_explorer_follows_every_control(page, shown):
    there, widget = explorer(page, "results"), shown["results"]

    def agrees():
        record = widget.record
        point = record.curve[widget.point]
        expect(there.get_by_role("status")).to_contain_text(
            f"{record.identity.variant}, seed 0, {'causal' if record.audit.causal else 'leaks'}. At step "
            f"{point.step}: training {point.train:.3f}, validation {point.val:.3f}"
        )
        cells = [row.locator("td").all_inner_texts() for row in there.locator("tr").all()[1:]]
        losses = [getattr(record.losses, name) for name in type(record.losses).model_fields]
        assert cells == [[f"{e.mean:.3f}", f"{e.standard_error:.3f}", str(e.windows)] for e in losses]

    agrees()
    finals = [record.losses.ordered for record in widget.records]
    expect(there.locator("g:has(path.error) title").filter(has_text="ordered")).to_have_text(
        [
            f"{name}, ordered: {loss.mean:.3f} ± {loss.standard_error:.3f}"
            for name, loss in zip(widget.variants, finals, strict=True)
        ]
    )
    expect(there).to_contain_text("Bars: the standard error over windows")
    curves = there.locator("path.curve")
    before = curves.first.get_attribute("d")
    control(there, "curve").select_option("training loss")
    assert curves.first.get_attribute("d") != before
    control(there, "record").select_option("multifourier-qk, seed 0")
    widget.run = 1
    agrees()
    press(control(there, "point"), "Home")
    widget.point = 0
    agrees()
    expect(curves).to_have_count(2)
    control(there, "multifourier-qk").press("Space")
    widget.run = 0
    agrees()
    expect(curves).to_have_count(1)
    box = there.locator("svg:has(path.curve)").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 12, box["y"] + 60)
    widget.point = len(widget.record.curve) - 1
    agrees()
    control(there, "0").uncheck()
    expect(there.get_by_role("status")).to_have_text("Choose a variant and a seed.")


def test_the_emd_explorer_follows_every_control(page, shown):
    there, widget = explorer(page, "emd"), shown["emd"]
    status = there.get_by_role("status")
    expect(status).to_contain_text(
        "IMF 1: 3.5 tokens; in white noise 3.5 tokens. The nearest learned period is 5"
    )
    expect(status).to_contain_text("by a factor of 1.90, in white noise of 1.70")
    expect(there.locator("line.learned")).to_have_count(4)
    press(control(there, "IMF"), "ArrowRight", "ArrowRight")
    periods = widget.data["heads"][0]["periods"]
    expect(status).to_contain_text(f"IMF 3: {periods[2]:.3g} tokens")
    expect(status).to_contain_text("The nearest learned period is 10 tokens")
    control(there, "series").select_option("layer 0, head 1")
    expect(status).to_contain_text("by a factor of 2.10, in white noise of 1.70")
    expect(there.locator("line.learned")).to_have_count(0)
    press(control(there, "IMF"), "End")
    expect(status).to_contain_text("IMF 5: no period; in white noise no period.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_them_all_accessibly(browser, address, scheme):
    """No sideways scroll at 380 px, and nothing serious that axe-core finds, the text's contrast included."""
    size = {"width": 380, "height": 800}
    page, problems = new_page(browser, viewport=size, color_scheme=scheme)
    open_page(page, address)
    expect(page.locator(f"html[data-theme={scheme}]")).to_be_attached()
    for name in NAMES:
        there = explorer(page, name)
        expect(there.locator("svg").first).to_be_visible() if name != "leak" else None
        assert there.evaluate("section => section.scrollWidth <= section.clientWidth"), name
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    control(explorer(page, "leak"), "variant").select_option("multifourier-qk")
    assert serious(page, ".fqk-explorer") == []
    assert problems == []
    page.context.close()


def test_every_control_is_reached_by_keyboard(page):
    controls = page.locator(".fqk-explorer :is(input, select):visible")
    controls.first.focus()
    reached = [page.evaluate("document.activeElement.id")]
    for _ in range(controls.count() - 1):
        page.keyboard.press("Tab")
        while not page.evaluate("document.activeElement.matches('.fqk-explorer :is(input, select)')"):
            page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    assert reached == controls.evaluate_all("inputs => inputs.map((input) => input.id)")


def test_a_page_weighs_little(address):
    text = Path(address.removeprefix("file://")).read_text()
    assert len(text.encode()) < 500_000
    assert "widget-state+json" not in text


def test_the_state_cannot_end_its_script():
    widget = FilterExplorer()
    widget.data = widget.data | {"text": "</script><!--"}
    html = widget.html()
    assert html.count("</script") == 1
    assert "<!--" not in html
    assert '<div id="fqk-' in html


def test_numbers_are_packed_little_endian():
    assert packed([1, 258], "u2") == "AQACAQ=="
    assert packed(np.array([-1], dtype=">i2"), "i1") == "/w=="


def test_a_word_corpus_is_refused(corpus):
    with pytest.raises(InputError, match="reads characters"):
        LeakMicroscope({}, corpus.in_words(300))


def test_a_diverged_run_is_shown_as_such(results):
    record = next(read_records(results, "smoke"))
    point = record.curve[-1].model_copy(update={"train": float("nan")})
    diverged = record.model_copy(
        update={"curve": [*record.curve[:1], point], "losses": None, "audit": None, "diverged_at": 20}
    )
    (run,) = ResultsExplorer([diverged]).state()["data"]["runs"]
    assert run["diverged_at"] == 20
    assert [at["step"] for at in run["curve"]] == [10]
    assert run["losses"] == {}
    ResultsExplorer([diverged]).html()


def test_an_installation_holds_the_modules(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "fqk", source / "fqk", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    names = ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    files = {path.name for path in FOLDER.iterdir() if path.suffix in (".js", ".css")}
    assert len(files) == 7
    assert {f"fqk/explorers/{name}" for name in files} <= set(names)


class Lab:
    """JupyterLab with a notebook open, and a second client to its kernel."""

    def __init__(self, page, runtime, kernel):
        self.page = page
        self.client = BlockingKernelClient(connection_file=str(runtime / f"kernel-{kernel}.json"))
        self.client.load_connection_file()
        self.client.start_channels()

    def asked(self, expression):
        """What Python says an expression is."""
        reply = self.client.execute("", user_expressions={"it": expression}, reply=True, timeout=60)
        return eval(reply["content"]["user_expressions"]["it"]["data"]["text/plain"])

    def told(self, code):
        assert self.client.execute(code, reply=True, timeout=60)["content"]["status"] == "ok"

    def expects(self, expression, value):
        """Python comes to see it, soon."""
        for _ in range(50):
            if self.asked(expression) == value:
                return
            time.sleep(0.1)
        assert self.asked(expression) == value


@pytest.fixture(scope="module")
def server(notebook):
    """The address of a JupyterLab over the notebook's folder, which trusts it, and its runtime folder."""
    folder = notebook.parent
    (folder / "data").mkdir()
    with NotebookNotary(data_dir=str(folder / "data")) as notary:
        notary.sign(nbformat.read(notebook, as_version=4))
    # All cells are in the page, also those that are out of sight.
    tracker = folder / "settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text('{"windowingMode": "none"}')
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = ("CONFIG", "DATA", "RUNTIME")
    places = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in names}
    places |= {f"JUPYTERLAB_{name}_DIR": str(folder / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    command = [Path(sysconfig.get_path("scripts")) / "jupyter-lab", "--allow-root", "--no-browser"]
    command += [f"--port={port}", "--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    log = (folder / "lab.log").open("w")
    process = subprocess.Popen(command, cwd=folder, env=os.environ | places, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/api/status")
                break
            except OSError:
                time.sleep(0.2)
        yield address, folder / "runtime"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def lab(browser, server):
    """The executed notebook, opened later: nothing is run yet."""
    address, runtime = server
    page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{address}/lab/tree/executed.ipynb")
    explorer(page, "filter").wait_for()
    page.wait_for_function(
        "window.jupyterapp?.shell.currentWidget.sessionContext.session.kernel.status == 'idle'"
    )
    (session,) = json.load(urllib.request.urlopen(f"{address}/api/sessions"))
    yield Lab(page, runtime, session["kernel"]["id"])
    page.context.close()


def test_a_notebook_opened_after_papermill_shows_them_all(lab, shown):
    for name in NAMES:
        explorer(lab.page, name).wait_for()
    there, widget = explorer(lab.page, "filter"), shown["filter"]
    press(control(there, "period"), "End")
    widget.period = 256.0
    expect(there.locator(".share")).to_have_text(percent(widget.future_share()))
    there = explorer(lab.page, "leak")
    control(there, "into").select_option("q")
    expect(there.get_by_role("status")).to_contain_text("it takes a kernel to answer")


def test_in_jupyterlab_python_and_reader_set_the_same_state(lab):
    """After this notebook's cells have run in its kernel."""
    page = lab.page
    for command in ("clear-all-cell-outputs", "run-all-cells"):
        page.evaluate(f"window.jupyterapp.commands.execute('notebook:{command}')")
    explorer(page, "emd").wait_for()
    for name, label, keys, trait, value in (
        ("filter", "period", ["End"], "period", 256.0),
        ("frequency", "ruler's period", ["Home"], "period", 2.0),
        ("leak", "position i", ["Home"], "place", 0),
        ("results", "point", ["Home"], "point", 0),
        ("emd", "IMF", ["ArrowRight"], "imf", 1),
    ):
        slider = control(explorer(page, name), label)
        press(slider, *keys)
        lab.expects(f"shown[{name!r}].{trait}", value)
    for name, label, code, value in (
        ("filter", "period", "period = 32", "5"),  # log₂ tokens
        ("frequency", "ruler's period", "period = 16", "4"),
        ("leak", "position i", "place = 30", "30"),
        ("results", "point", "point = 3", "3"),
        ("emd", "IMF", "imf = 4", "4"),
    ):
        lab.told(f"shown[{name!r}].{code}")
        expect(control(explorer(page, name), label)).to_have_value(value)
    control(explorer(page, "results"), "multifourier-qk").uncheck()
    lab.expects("shown['results'].variants", ["base-dot"])
    lab.told("shown['filter'].one_sided = True")
    expect(control(explorer(page, "filter"), "one-sided")).to_be_checked()


def test_in_jupyterlab_the_model_answers_what_is_not_stored(lab, shown):
    there, widget = explorer(lab.page, "leak"), shown["leak"]
    lab.told("shown['leak'].place = 30")
    control(there, "variant").select_option("multifourier-qk")
    control(there, "into").select_option("q")
    press(control(there, "change letter"), "End")
    widget.variant, widget.letter, widget.place = "multifourier-qk", "q", 30
    widget.lag = widget.length - 1 - widget.place
    expect(there.get_by_role("status")).to_contain_text("moves " + percent(widget.change()["moved"]))
    assert lab.asked("shown['leak'].answer['moved']") == pytest.approx(widget.change()["moved"], abs=1e-6)

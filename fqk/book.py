"""From notebooks to a rendered book: papermill, then Jupyter Book, then a look at what came out."""

import json
import re
import shutil
import subprocess
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import plotly
from papermill.exceptions import PapermillExecutionError

from fqk.errors import InputError
from fqk.experiments import experiments
from fqk.profiles import get_profile
from fqk.records import RESULTS, read_records
from fqk.training import REVISION
from fqk.variants import VARIANTS

SOURCES = ("_config.yml", "_toc.yml", "book", "notebooks")
STAGE = Path("_build/stage")
PLOTLY_MIME = "application/vnd.plotly.v1+json"


class BookError(RuntimeError):
    """The book is not whole: one sentence that names the page, and the figure where it is one."""


def build(profile: str, seed: int, device: str) -> Path:
    """Execute every notebook of the project in the current folder and render the book.

    Notebooks run in their own folder, so that they find ``../results``, and are written to
    ``_build/stage/notebooks``; the sources stay as they are.

    Returns:
        The path of the first page, below ``_build/html``.

    Raises:
        InputError: the current folder is not the project's, or holds no record of the profile.
        BookError: a record is stale, a notebook raised, Jupyter Book warned, or a page lost a figure.
    """
    if missing := [name for name in SOURCES if not Path(name).exists()]:
        raise InputError(f"{missing[0]} is not here; the book is built from the project's root")
    check_records(profile)
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree("book", STAGE / "book")
    (STAGE / "notebooks").mkdir()
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(name, STAGE)
    script = Path(plotly.__file__).with_name("package_data") / "plotly.min.js"
    shutil.copy(script, STAGE / "book/_static")
    parameters = {"profile": profile, "seed": seed, "device": device}
    notebooks = sorted(Path("notebooks").glob("*.ipynb"))
    executed = [execute(notebook, parameters) for notebook in notebooks]
    html = render()
    for source, notebook in zip(notebooks, executed, strict=True):
        check_figures(notebook, html / source.with_suffix(".html"))
    return html / "index.html"


def check_records(profile: str) -> None:
    """Every record that the book reads was made by the mixers, the trainer and the profiles as they are.

    Raises:
        InputError: there is none of the profile.
        BookError: one is stale; its run says which.
    """
    if not any(read_records(RESULTS, profile)):
        raise InputError(
            f"there are no records of profile {profile} in {RESULTS}; "
            f"fqk reproduce --profile {profile} --out {RESULTS} makes them"
        )
    for experiment in experiments(get_profile(profile)):
        for record in read_records(RESULTS, experiment.profile.name):
            made = record.identity
            now = (VARIANTS[made.variant].revision, REVISION, experiment.profile)
            if (made.mixer_revision, made.trainer_revision, made.profile) != now:
                raise BookError(
                    f"the record of {made.variant} seed {made.seed} at {made.profile.name} is stale: the "
                    "code's revisions or its profile have changed since; train it again"
                )


def execute(notebook: Path, parameters: dict[str, Any]) -> nbformat.NotebookNode:
    """Run one notebook with papermill into the stage; the executed notebook.

    The cell that papermill adds, its parameters, is not shown: each page ends by stating them.
    """
    print(f"executing {notebook} …", end=" ", flush=True)
    target = STAGE / "notebooks" / notebook.name
    start = time.perf_counter()
    try:
        executed = papermill.execute_notebook(
            notebook,
            target,
            parameters,
            kernel_name="python3",
            progress_bar=False,
            cwd=notebook.parent,
            extra_arguments=["--log-level=CRITICAL"],
        )
    except PapermillExecutionError as error:
        print()
        raise BookError(
            f"{notebook} raised {error.ename} in cell {error.cell_index}: {error.evalue}"
        ) from None
    for cell in executed.cells:
        if "injected-parameters" in cell.metadata.tags:
            cell.metadata.tags.append("remove-cell")
    executed.metadata.pop("widgets", None)  # each explorer's HTML holds its state already
    nbformat.write(executed, target)
    print(f"{time.perf_counter() - start:.0f} s", flush=True)
    return executed


def render() -> Path:
    """Jupyter Book over the stage, from nothing, each warning an error; the folder of the pages."""
    print("rendering …", end=" ", flush=True)
    start = time.perf_counter()
    for old in ("html", ".doctrees"):
        shutil.rmtree(STAGE.parent / old, ignore_errors=True)
    jupyter_book = Path(sysconfig.get_path("scripts")) / "jupyter-book"
    command = [str(jupyter_book), "build", str(STAGE), "--path-output", "."]
    command += ["-W", "--keep-going", "-q"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print()
        raise BookError(f"Jupyter Book could not render the book:\n{done.stderr or done.stdout}")
    print(f"{time.perf_counter() - start:.0f} s", flush=True)
    return STAGE.parent / "html"


def check_figures(notebook: nbformat.NotebookNode, page: Path) -> None:
    """Every figure that an executed notebook shows is on its page, with its data.

    Raises:
        BookError: one is not; its title says which.
    """
    if not page.exists():
        raise BookError(f"page {page} was not rendered; is it in _toc.yml?")
    drawn = figures_on(page.read_text())
    if lost := Counter(figures_in(notebook)) - Counter(title for title, _ in drawn):
        raise BookError(f"page {page} lost its figure {min(lost)!r}")
    for title, traces in drawn:
        if not any(has_data(trace) for trace in traces):
            raise BookError(f"page {page} shows figure {title!r} without data")


def figures_in(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """The titles of the Plotly figures that an executed notebook means to show."""
    for cell in notebook["cells"]:
        if {"remove-output", "remove-cell"} & set(cell["metadata"].get("tags", [])):
            continue
        for output in cell.get("outputs", []):
            if PLOTLY_MIME in output.get("data", {}):
                yield output["data"][PLOTLY_MIME]["layout"]["title"]["text"]


def figures_on(html: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Title and traces of each Plotly figure that a page draws, from its inline scripts."""
    decoder = json.JSONDecoder()
    figures = []
    for call in re.finditer(r'Plotly\.newPlot\(\s*"[^"]+",\s*', html):
        traces, end = decoder.raw_decode(html, call.end())
        layout, _ = decoder.raw_decode(html, html.index("{", end))
        figures.append((layout["title"]["text"], traces))
    return figures


def has_data(trace: dict[str, Any]) -> bool:
    """Whether a trace holds values: a list, or Plotly's base64 of an array."""
    values = [trace.get(axis) for axis in ("x", "y", "z")]
    return any(value.get("bdata") if isinstance(value, dict) else value for value in values)

"""What several test files need: a corpus, an excerpt of it, trained and untrained models, the book."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from bs4 import BeautifulSoup
from hypothesis import settings
from torch import nn

from fqk import book
from fqk.corpus import Corpus, load_corpus
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.training import train
from fqk.variants import VARIANTS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

torch.set_num_threads(1)
settings.register_profile("fqk", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("fqk")


@pytest.fixture(scope="session")
def corpus():
    """TinyShakespeare, or what stands in for it where it cannot be reached."""
    return load_corpus()


@pytest.fixture(scope="session")
def excerpt(corpus):
    """Its first 40,000 characters: enough for a smoke run, and quick to measure."""
    return Corpus("excerpt", corpus.text[:40_000], corpus.symbols)


@pytest.fixture(scope="session")
def results(tmp_path_factory, excerpt):
    """A results folder with smoke runs of an honest and of a leaking variant, seed 0."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("base-dot", "multifourier-qk"):
        train(VARIANTS[name], PROFILES["smoke"], excerpt, 0, folder, "cpu", progress=False)
    return folder


@pytest.fixture(scope="session")
def causal_names():
    """The variants whose predictions must not depend on later tokens, spelt out."""
    return {
        "base-dot",
        "fourier-qk-collapsed-causal",
        "multifourier-qk-collapsed-causal",
        "rotation-shared",
        "rotation-separate",
        "projection",
        "causal-gaussian",
        "causal-mexhat",
        "causal-morlet",
        "causal-gaussian-fixed",
        "causal-mexhat-fixed",
        "causal-morlet-fixed",
        "causal-phase-fixed",
        "causal-random-qk",
        "causal-fourier-qk",
        "causal-multifourier-qk",
    }


@pytest.fixture
def sharp_model():
    """Builds an untrained smoke model whose tenfold weights make its attention far from even."""

    @torch.no_grad()
    def build(variant):
        model = build_model(variant, "smoke").eval()
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight *= 10
        return model

    return build


def copy_sources(folder):
    """What the book is made of, without its records."""
    for name in book.SOURCES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)


@pytest.fixture(scope="session")
def html(tmp_path_factory):
    """The folder of the book's pages, built from the committed smoke records, which take no long reading."""
    project = tmp_path_factory.mktemp("project")
    copy_sources(project)
    shutil.copytree(ROOT / "results", project / "results")
    with chdir(project):
        index = book.build("smoke", 0, "auto")
    assert index == Path("_build/html/index.html")
    return project / index.parent


@pytest.fixture(scope="session")
def pages(html):
    """Every page that the table of contents leads to, and the front door, parsed."""
    found = [html / "index.html", *html.glob("notebooks/*.html"), *html.glob("book/*.html")]
    return {
        str(page.relative_to(html)): BeautifulSoup(page.read_text(), "html.parser") for page in sorted(found)
    }

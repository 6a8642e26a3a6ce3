"""What several test files need: a corpus, an excerpt of it, trained and untrained models."""

import pytest
import torch
from hypothesis import settings
from torch import nn

from fqk.corpus import Corpus, load_corpus
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.training import train
from fqk.variants import VARIANTS

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

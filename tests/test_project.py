"""The files around the package agree with each other, and with the records."""

import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import fqk
from fqk.claims import Evidence
from fqk.corpus import TINYSHAKESPEARE_SHA256, load_corpus
from fqk.diagnostics import window_losses
from fqk.experiments import FILTERS, LONGER, LONGER_WORDS, SPECTRAL, Experiment, experiments
from fqk.profiles import PROFILES
from fqk.records import Identity, load_model, read_record, read_records
from fqk.report import summary
from fqk.training import REVISION
from fqk.variants import VARIANTS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_conda_environment_installs_the_project_as_pyproject_says() -> None:
    environment = (ROOT / "environment.yml").read_text()
    assert f"python{PROJECT['requires-python']}\n" in environment
    extras = re.search(r"-e \.\[(.+)\]", environment)
    assert extras
    assert set(extras[1].split(",")) == set(PROJECT["optional-dependencies"])
    assert "-c constraints.txt" in environment


@pytest.mark.parametrize(
    "requirement",
    [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)],
)
def test_every_requirement_is_pinned_as_tested(requirement: str) -> None:
    name = re.match(r"[\w.-]+", requirement)
    assert name
    pinned = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    assert re.search(rf"^{name[0].lower()}==", pinned, re.MULTILINE)


def test_versions_agree() -> None:
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_quotes_the_records() -> None:
    table = summary(read_records(ROOT / "results", "cpu"))
    quoted = re.findall(
        r"^\| `([\w-]+)` \| (–|[\d.]+) \| ([\d.]+) \| ([\d.]+) \| (causal|leaks) \|$",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    assert len(quoted) > 5
    for name, paper, ordered, prefix, verdict in quoted:
        row = table.loc[name]
        assert paper == ("–" if np.isnan(row.paper) else f"{row.paper:.3f}")
        assert (ordered, prefix) == (f"{row.ordered:.3f}", f"{row.prefix_truncated:.3f}")
        assert (verdict == "causal") == row.causal


def test_the_readme_quotes_what_is_left_of_the_gains() -> None:
    prose = " ".join((ROOT / "README.md").read_text().split())
    cpu = PROFILES["cpu"]
    long = summary(read_records(ROOT / "results", cpu.longer().name)).ordered
    usual, filtered = LONGER
    assert f"behind `{usual}` ({long[filtered]:.3f} to {long[usual]:.3f}, one run of each)" in prose
    words = Evidence.of(ROOT / "results", cpu)
    gains = [words.gain(name, words=True, comparisons=6) for name in (*FILTERS, *SPECTRAL)]
    assert all(gain.low > 0 for gain in gains)
    means = [gain.mean for gain in gains]
    base = summary(words.words).ordered["base-dot"]
    assert f"gain at first, {min(means):.2f} to {max(means):.2f} of {base:.2f} nats a word" in prose
    lasting = Evidence.of(ROOT / "results", cpu.in_words().longer())
    assert f"after four times the steps {lasting.gain(LONGER_WORDS[1])} is left" in prose


def committed(profile: str) -> Iterator[tuple[Experiment, dict[tuple[str, int], Identity]]]:
    """Each experiment with the runs of its profile that are recorded, by variant and seed."""
    for experiment in experiments(PROFILES[profile]):
        records = read_records(ROOT / "results", experiment.profile.name)
        yield experiment, {(r.identity.variant, r.identity.seed): r.identity for r in records}


@pytest.mark.parametrize("profile", ["cpu", "smoke"])
def test_every_run_that_the_book_rests_on_is_there(profile: str) -> None:
    for experiment, found in committed(profile):
        assert set(itertools.product(experiment.variants, range(experiment.seeds))) <= set(found)


@pytest.mark.parametrize("profile", ["cpu", "smoke"])
def test_every_record_is_of_the_same_text_and_of_the_revisions_and_profiles_as_they_are(profile: str) -> None:
    for experiment, found in committed(profile):
        for identity in found.values():
            assert identity.corpus.sha256 == TINYSHAKESPEARE_SHA256
            assert identity.profile == experiment.profile
            assert identity.mixer_revision == VARIANTS[identity.variant].revision
            assert identity.trainer_revision == REVISION


def test_the_committed_weights_are_the_recorded_models() -> None:
    """Half precision and a few windows: their mean lies within four standard errors and 0.01."""
    corpus = load_corpus()
    for path in sorted((ROOT / "results").glob("*/*/seed*/weights.safetensors")):
        record = read_record(path.with_name("record.json"))
        if record.identity.corpus.sha256 != corpus.sha256:
            pytest.skip(f"the records are of another text than {corpus.name}")
        profile, variant, seed = path.parts[-4], path.parts[-3], record.identity.seed
        model = load_model(ROOT / "results", profile, variant, seed)
        made = record.identity.profile
        text = corpus.in_words(made.vocabulary) if made.vocabulary else corpus
        losses = window_losses(model, text.windows(made.context, 24))
        assert record.losses
        tolerance = 4 * losses.std().item() / len(losses) ** 0.5 + 0.01
        assert losses.mean().item() == pytest.approx(record.losses.ordered.mean, abs=tolerance)


def test_the_audit_alone_brings_torch_and_numpy_only() -> None:
    """Anybody's model can be audited without pandas, Plotly, Dask or Pydantic."""
    code = "import sys, fqk.audit; print(*{'pandas', 'plotly', 'dask', 'pydantic'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "\n"


def test_a_model_is_built_by_name() -> None:
    logits = fqk.build_model("causal-morlet", "smoke")(torch.zeros(2, 5, dtype=torch.int64))
    assert logits.shape == (2, 5, 65)

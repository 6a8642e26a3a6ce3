"""The files around the package agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

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

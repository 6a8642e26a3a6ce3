"""Each variant's mathematics and a tiny run of the trainer, against numbers kept beside this file.

When they change, these tests fail until the revision is raised and ``python tests/test_golden.py`` has
written the new numbers. A reformatted file changes nothing.
"""

import itertools
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fqk.corpus import Corpus
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.training import REVISION, train
from fqk.variants import VARIANTS

GOLDEN = Path(__file__).with_name("golden.json")
TINY = PROFILES["smoke"].model_copy(update={"name": "golden", "steps": 20})


def small_corpus() -> Corpus:
    """Random words of a made-up language: structure to learn, and no file to find."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefgh"), 4)) for _ in range(20)]
    return Corpus("made-up", " ".join(random.choice(words, 800)), " abcdefgh")


def mixer_results(name: str) -> dict[str, float]:
    """Loss and gradient norm of a model whose scores are large enough for the mixer to matter."""
    corpus = small_corpus()
    model = build_model(name, TINY, corpus.vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2 and parameter.shape[1] >= TINY.width:
                parameter *= 30
    windows = corpus.windows(TINY.context, 8)
    loss = F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
    loss.backward()
    gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
    return {"loss": loss.item(), "gradient": torch.stack(gradients).norm().item()}


def trainer_results() -> dict[str, float]:
    """The losses of a tiny run."""
    with tempfile.TemporaryDirectory() as folder:
        record = train(VARIANTS["multifourier-qk"], TINY, small_corpus(), 0, Path(folder), "cpu", False)
    assert record.losses
    return {name: getattr(record.losses, name).mean for name in type(record.losses).model_fields}


def current() -> dict[str, tuple[int, dict[str, float]]]:
    results = {name: (variant.revision, mixer_results(name)) for name, variant in VARIANTS.items()}
    return results | {"trainer": (REVISION, trainer_results())}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_mixer_changes_only_with_its_revision(name: str) -> None:
    revision, results = json.loads(GOLDEN.read_text())[name]
    assert revision == VARIANTS[name].revision
    assert mixer_results(name) == pytest.approx(results, rel=1e-5)


def test_training_changes_only_with_its_revision() -> None:
    revision, results = json.loads(GOLDEN.read_text())["trainer"]
    assert revision == REVISION
    assert trainer_results() == pytest.approx(results, rel=1e-4)


def test_the_numbers_tell_all_variants_apart() -> None:
    """Else a mixer could become another one unseen; shared rotations are base-dot by design.

    A fixed kernel has the loss of the learned one that starts there, and another gradient.
    """
    golden = json.loads(GOLDEN.read_text())
    numbers = [list(golden[name][1].values()) for name in VARIANTS if name != "rotation-shared"]
    for one, other in itertools.combinations(numbers, 2):
        assert np.abs(np.subtract(one, other)).max() > 1e-4


def main() -> None:
    """Write the numbers anew; refuse those that changed under the same revision."""
    old = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    new = current()
    for name, (revision, results) in new.items():
        same = name in old and old[name][0] == revision
        if same and results != pytest.approx(old[name][1], rel=1e-4):
            sys.exit(f"{name} gives other results at the same revision: raise it first")
    GOLDEN.write_text(json.dumps(new, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What a run leaves on disk, its schema, and reading it back.

``results/<profile>/<variant>/seed<k>/record.json``, and ``weights.safetensors`` (fp16) beside it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fqk.errors import InputError
from fqk.model import GPT, build_model
from fqk.profiles import Profile

RESULTS = Path("results")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Estimate(_Frozen):
    """A mean over windows with its standard error, in nats a token unless said otherwise."""

    mean: float
    standard_error: float
    windows: int

    @classmethod
    def of(cls, values: Sequence[float] | Tensor) -> "Estimate":
        """From one value a window; the error of a single window is not known (NaN)."""
        array = np.asarray(values, dtype=float)
        error = array.std(ddof=1) / len(array) ** 0.5 if len(array) > 1 else np.nan
        return cls(mean=float(array.mean()), standard_error=float(error), windows=len(array))


class CorpusIdentity(_Frozen):
    """Which text: numbers of different texts are never compared."""

    name: str
    sha256: str
    characters: int
    symbols: int
    characters_per_token: float


class Identity(_Frozen):
    """All that determines a run's result; two runs of one identity are the same run."""

    schema_version: Literal[2] = 2
    variant: str
    mixer_revision: int
    trainer_revision: int
    profile: Profile
    corpus: CorpusIdentity
    seed: int


class Machine(_Frozen):
    """Where a run was made and what it cost."""

    package_version: str
    torch_version: str
    device: str
    processor: str
    wall_seconds: float
    cpu_seconds: float
    tokens_per_second: float


class Point(_Frozen):
    """One point of the loss curve: the mean training loss since the last point, and validation."""

    step: int
    train: float
    val: float


class Scales(_Frozen):
    """The mixers' time scales at one step: per layer, name → heads → values."""

    step: int
    layers: list[dict[str, list[list[float]]]]


class Losses(_Frozen):
    """The final losses, each with its windows and error; see :mod:`fqk.diagnostics`."""

    ordered: Estimate
    shuffled: Estimate
    permutation_floor: Estimate
    prefix_truncated: Estimate
    prefix_padded: Estimate


class Horizon(_Frozen):
    """The loss of a model that may see so many tokens ahead of each position; random ones follow."""

    ahead: int
    loss: Estimate


class AuditSummary(_Frozen):
    """Does a prediction change when a later token does? See :mod:`fqk.audit`."""

    causal: bool
    first_leak: tuple[int, int] | None
    lag_profile: list[float]


class Record(_Frozen):
    """One run. A run that diverged has no losses, audit or sample, and says at which step."""

    identity: Identity
    machine: Machine
    curve: list[Point]
    scales: list[Scales]
    diverged_at: int | None = None
    losses: Losses | None = None
    horizons: list[Horizon] = []
    audit: AuditSummary | None = None
    sample: str | None = None


def run_folder(results: Path, profile: str, variant: str, seed: int) -> Path:
    """Where a run's record and weights lie."""
    return results / profile / variant / f"seed{seed}"


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """``write`` a neighbour, then rename it: the file is there whole or not at all.

    Raises:
        InputError: the folder cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(part)
        os.replace(part, path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path.parent} cannot be written: {reason}") from None


def write_record(record: Record, folder: Path) -> None:
    """``record.json`` into ``folder``, atomically."""
    text = record.model_dump_json() + "\n"
    write_atomically(folder / "record.json", lambda path: path.write_text(text))


def read_record(path: Path) -> Record:
    """The record in a file.

    Raises:
        InputError: it is truncated, or of another schema.
    """
    try:
        return Record.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"record {path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InputError(f"record {path} is truncated or not of schema 2: {where}: {first['msg']}") from None


def read_records(results: Path, profile: str) -> Iterator[Record]:
    """All records of a profile, by variant and seed."""
    for path in sorted((results / profile).glob("*/seed*/record.json")):
        yield read_record(path)


def write_weights(model: GPT, folder: Path) -> None:
    """The state in half precision, as ``weights.safetensors``."""
    state = {
        name: value.half() if value.is_floating_point() else value
        for name, value in model.state_dict().items()
    }
    write_atomically(folder / "weights.safetensors", lambda path: save_file(state, path))


def load_model(results: Path, profile: str, variant: str, seed: int = 0) -> GPT:
    """The trained model of a committed run, in evaluation mode.

    Raises:
        InputError: no weights lie there, or they do not fit the variant and its profile.
    """
    folder = run_folder(results, profile, variant, seed)
    identity = read_record(folder / "record.json").identity
    model = build_model(variant, identity.profile, identity.corpus.symbols, seed)
    path = folder / "weights.safetensors"
    try:
        model.load_state_dict(load_file(path))
    except FileNotFoundError:
        raise InputError(f"{path} is not there; fqk train {variant} writes it") from None
    except (SafetensorError, RuntimeError):
        raise InputError(f"{path} does not hold the weights of {variant} at {profile}") from None
    return model.eval()

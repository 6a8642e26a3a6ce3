"""What a run leaves on disk: whole, exact, and refused in one sentence when it is not."""

import json
import math

import numpy as np
import pytest
import torch

from fqk import records
from fqk.errors import InputError
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.records import Estimate, Record, read_record, write_atomically, write_record


@pytest.fixture
def record():
    """A record with everything in it: NaN, an infinity and a long decimal fraction too."""
    estimate = Estimate(mean=0.1 + 0.2, standard_error=math.nan, windows=1)
    return Record(
        identity=records.Identity(
            variant="base-dot",
            mixer_revision=1,
            trainer_revision=1,
            profile=PROFILES["smoke"],
            corpus=records.CorpusIdentity(
                name="été", sha256="0" * 64, characters=1000, symbols=65, characters_per_token=1.0
            ),
            seed=7,
        ),
        machine=records.Machine(
            package_version="0",
            torch_version="0",
            device="cpu",
            processor="none",
            wall_seconds=1 / 3,
            cpu_seconds=1,
            tokens_per_second=1e9,
        ),
        curve=[records.Point(step=10, train=math.inf, val=math.nan)],
        scales=[records.Scales(step=0, layers=[{"period": [[60.0, 25.0]]}])],
        losses=records.Losses(**dict.fromkeys(records.Losses.model_fields, estimate)),
        horizons=[records.Horizon(ahead=1, loss=estimate)],
        audit=records.AuditSummary(causal=False, first_leak=(1, 2), lag_profile=[0.0, math.nan]),
        sample="thou\n",
    )


@pytest.mark.parametrize("values", [[1.0, 2.0, 4.0], np.arange(5.0), torch.tensor([0.1, -0.3])])
def test_estimate_is_numpys_mean_and_its_standard_error(values):
    estimate, array = Estimate.of(values), np.asarray(values, dtype=float)
    assert estimate.mean == pytest.approx(np.mean(array))
    assert estimate.standard_error == pytest.approx(np.std(array, ddof=1) / np.sqrt(len(array)))
    assert estimate.windows == len(array)


def test_error_of_a_single_window_is_not_known():
    estimate = Estimate.of([2.5])
    assert (estimate.mean, estimate.windows) == (2.5, 1)
    assert math.isnan(estimate.standard_error)


def test_record_comes_back_as_it_was_written(record, tmp_path):
    write_record(record, tmp_path)
    again = read_record(tmp_path / "record.json")
    assert again.model_dump_json() == record.model_dump_json()
    assert again.identity == record.identity
    assert again.losses.ordered.mean == 0.1 + 0.2
    assert math.isnan(again.losses.ordered.standard_error)
    assert again.curve[0].train == math.inf
    assert again.audit.first_leak == (1, 2)


def test_record_is_json_that_any_reader_takes(record, tmp_path):
    """NaN and infinities, which JSON does not have, are strings."""

    def refuse(constant):
        raise AssertionError(constant)

    write_record(record, tmp_path)
    plain = json.loads((tmp_path / "record.json").read_bytes(), parse_constant=refuse)
    assert plain["identity"]["profile"]["width"] == 32
    assert plain["losses"]["ordered"]["standard_error"] == "NaN"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"schema_version":2', '"schema_version":1'),
        lambda text: text.replace('"seed":7', '"seed":"seven"'),
        lambda text: text.replace('"seed":7', '"seed":7,"unheard_of":1'),
        lambda text: text.replace('"width":32', '"width":-32'),
    ],
    ids=["truncated", "empty", "list", "schema", "type", "extra", "negative"],
)
def test_file_that_is_no_record_is_refused_in_one_sentence_that_names_it(record, tmp_path, spoil):
    path = tmp_path / "record.json"
    write_record(record, tmp_path)
    spoilt = spoil(path.read_text())
    assert spoilt != path.read_text()
    path.write_text(spoilt)
    with pytest.raises(InputError) as refusal:
        read_record(path)
    assert str(refusal.value).startswith(f"record {path} is truncated or not of schema 2: ")
    assert "\n" not in str(refusal.value)


def test_missing_record_is_refused_by_path(tmp_path):
    with pytest.raises(InputError, match=r"none/record\.json cannot be read"):
        read_record(tmp_path / "none/record.json")


def test_records_of_a_profile_are_read_by_variant_and_seed(record, tmp_path):
    wanted = [("base-dot", 0), ("base-dot", 1), ("fnet", 0)]
    for variant, seed in reversed(wanted):
        identity = record.identity.model_copy(update={"variant": variant, "seed": seed})
        folder = records.run_folder(tmp_path, "smoke", variant, seed)
        write_record(record.model_copy(update={"identity": identity}), folder)
    write_record(record, records.run_folder(tmp_path, "cpu", "base-dot", 0))
    found = [(r.identity.variant, r.identity.seed) for r in records.read_records(tmp_path, "smoke")]
    assert found == wanted
    assert list(records.read_records(tmp_path, "paper")) == []


def test_old_file_stays_whole_when_the_writer_fails(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("old")

    def fail_halfway(part):
        part.write_text("ne")
        raise RuntimeError("the lights went out")

    with pytest.raises(RuntimeError, match="lights"):
        write_atomically(path, fail_halfway)
    assert path.read_text() == "old"
    write_atomically(path, lambda part: part.write_text("new"))
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("record.json", "new")]


def test_old_file_is_never_seen_half_written(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("old")

    def look_while_writing(part):
        part.write_text("new")
        assert path.read_text() == "old"

    write_atomically(path, look_while_writing)
    assert path.read_text() == "new"


def test_folder_below_a_file_is_refused_for_records_and_weights(record, tmp_path):
    (tmp_path / "file").write_text("")
    model = build_model("base-dot", "smoke")
    for write, what in ((write_record, record), (records.write_weights, model)):
        with pytest.raises(InputError, match="file/below cannot be written"):
            write(what, tmp_path / "file/below")


def test_weights_that_cannot_be_written_are_refused_too(tmp_path):
    """The folder is there and the write fails, as on a full disk; here a folder is in its way."""
    (tmp_path / "weights.safetensors.part").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        records.write_weights(build_model("base-dot", "smoke"), tmp_path)


@pytest.mark.parametrize("name", ["base-dot", "multifourier-qk", "phase-fixed", "projection"])
def test_weights_come_back_to_half_precision(name, record, tmp_path):
    identity = record.identity.model_copy(update={"variant": name})
    folder = records.run_folder(tmp_path, "smoke", name, 7)
    write_record(record.model_copy(update={"identity": identity}), folder)
    model = build_model(name, "smoke", seed=12)  # its fixed draws are not those of seed 7
    records.write_weights(model, folder)
    loaded = records.load_model(tmp_path, "smoke", name, 7)
    assert not loaded.training
    for key, value in loaded.state_dict().items():
        assert value.dtype == torch.float32, key
        assert value.equal(model.state_dict()[key].half().float()), key


@pytest.mark.parametrize(
    ("variant", "profile"), [("multifourier-qk", "smoke"), ("base-dot", "cpu"), ("fnet", "smoke")]
)
def test_weights_of_another_variant_or_profile_are_refused(variant, profile, record, tmp_path):
    folder = records.run_folder(tmp_path, "smoke", "base-dot", 7)
    write_record(record, folder)
    records.write_weights(build_model(variant, profile), folder)
    with pytest.raises(InputError, match="does not hold the weights of base-dot at smoke"):
        records.load_model(tmp_path, "smoke", "base-dot", 7)


def test_missing_or_broken_weights_are_refused(record, tmp_path):
    folder = records.run_folder(tmp_path, "smoke", "base-dot", 7)
    with pytest.raises(InputError, match=r"seed7/record\.json cannot be read"):
        records.load_model(tmp_path, "smoke", "base-dot", 7)
    write_record(record, folder)
    with pytest.raises(InputError, match="is not there; fqk train base-dot writes it"):
        records.load_model(tmp_path, "smoke", "base-dot", 7)
    (folder / "weights.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(InputError, match="does not hold the weights"):
        records.load_model(tmp_path, "smoke", "base-dot", 7)

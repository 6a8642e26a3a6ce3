"""A run: it learns, repeats, resumes to the bit, is made once, and fails in one sentence."""

import json
import math
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open
from torch import nn

from fqk import records
from fqk.corpus import Corpus, load_corpus
from fqk.errors import InputError
from fqk.model import build_model
from fqk.profiles import PROFILES
from fqk.records import read_record
from fqk.training import DivergedError, choose_device, optimizer_of, train, train_step
from fqk.variants import VARIANTS

SMOKE = PROFILES["smoke"]
SHORT = SMOKE.model_copy(update={"name": "short", "steps": 6, "warmup": 2, "eval_every": 3, "dropout": 0.1})
TWO_STEPS = SHORT.model_copy(update={"name": "two-steps", "steps": 2, "eval_every": 1})
HOT = SHORT.model_copy(update={"name": "hot", "steps": 12, "learning_rate": 1e6})
KILLED = SHORT.model_copy(update={"name": "killed", "steps": 80, "eval_every": 2})

TRAIN = """
import sys
from pathlib import Path
from fqk.corpus import load_corpus
from fqk.profiles import Profile
from fqk.training import train
from fqk.variants import get_variant
profile = Profile.model_validate_json(sys.argv[1])
text, results = sys.argv[2:]
variant = get_variant("multifourier-qk")
train(variant, profile, load_corpus(text), 1, Path(results), "cpu", progress=False)
"""


def run(variant, profile, corpus, results, seed=0):
    return train(VARIANTS[variant], profile, corpus, seed, results, "cpu", progress=False)


def run_and_stop_before_the_record(variant, profile, corpus, results):
    """Stopped when its steps are made and only its checkpoint is there."""

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "write_weights", stop)
        with pytest.raises(KeyboardInterrupt):
            run(variant, profile, corpus, results)


def result_of(record):
    """All of a record but the machine and its times, as text, in which NaN equals NaN."""
    return record.model_dump_json(exclude={"machine"})


def test_base_dot_learns_in_a_smoke_run(results):
    record = read_record(results / "smoke/base-dot/seed0/record.json")
    assert [point.step for point in record.curve] == [10, 20, 30, 40, 50]
    assert record.curve[-1].val < math.log(65) - 0.8
    assert record.curve[-1].val < record.curve[0].val
    assert record.losses.ordered.mean < record.losses.shuffled.mean
    assert record.losses.permutation_floor.mean < record.losses.shuffled.mean


def test_record_says_which_variant_leaks(results, excerpt):
    honest, leaking = (
        read_record(results / f"smoke/{name}/seed0/record.json") for name in ("base-dot", "multifourier-qk")
    )
    assert honest.audit.causal
    assert honest.audit.first_leak is None
    assert honest.scales == []
    assert not leaking.audit.causal
    assert leaking.audit.first_leak == (1, 2)
    assert [scales.step for scales in leaking.scales] == [0, 10, 20, 30, 40, 50]
    assert leaking.scales[0].layers[0]["period"][0] == pytest.approx([60, 25, 10, 5])
    assert leaking.scales[-1] != leaking.scales[0]
    assert leaking.identity.corpus.sha256 == excerpt.sha256


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_trains_resumes_and_is_judged(name, excerpt, tmp_path, causal_names):
    """Stopped before its record, it goes on from its checkpoint; its weights can be read back."""
    start = build_model(name, TWO_STEPS).state_dict()
    text = Corpus("few", excerpt.text[:10_000], excerpt.symbols)
    run_and_stop_before_the_record(name, TWO_STEPS, text, tmp_path)
    record = run(name, TWO_STEPS, text, tmp_path)
    assert [point.step for point in record.curve] == [1, 2]
    assert record.audit.causal == (name in causal_names)
    end = records.load_model(tmp_path, "two-steps", name).state_dict()
    assert (end["token.weight"] - start["token.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["multifourier-qk", "phase-random"])
def test_same_seed_gives_the_same_record_whatever_the_callers_threads(name, excerpt, tmp_path):
    first = run(name, SHORT, excerpt, tmp_path / "first")
    torch.set_num_threads(2)
    try:
        second = run(name, SHORT, excerpt, tmp_path / "second")
        assert torch.get_num_threads() == 2  # a run gives back what it took
    finally:
        torch.set_num_threads(1)
    assert result_of(first) == result_of(second)
    weights, others = tmp_path.glob(f"*/short/{name}/seed0/weights.safetensors")
    assert weights.read_bytes() == others.read_bytes()


def test_every_step_of_every_seed_draws_a_batch_of_its_own(excerpt, tmp_path):
    class Remembering(Corpus):
        def batch(self, size, context):
            drawn = super().batch(size, context)
            batches.append(tuple(drawn.flatten().tolist()))
            return drawn

    batches, text = [], Remembering(excerpt.name, excerpt.text, excerpt.symbols)
    for seed in (0, 1):
        run("base-dot", SHORT, text, tmp_path, seed)
    assert len(set(batches)) == len(batches) == 2 * SHORT.steps


def test_recorded_run_is_not_made_again_and_another_seed_is(excerpt, tmp_path):
    first = run("base-dot", SHORT, excerpt, tmp_path)
    path = tmp_path / "short/base-dot/seed0/record.json"
    written = path.stat().st_mtime_ns
    again = run("base-dot", SHORT, excerpt, tmp_path)
    assert again == first  # its wall time too
    assert path.stat().st_mtime_ns == written
    other = run("base-dot", SHORT, excerpt, tmp_path, seed=1)
    assert other.curve != first.curve
    assert path.stat().st_mtime_ns == written
    assert sorted(p.name for p in path.parent.iterdir()) == ["record.json", "weights.safetensors"]


def test_record_of_another_profile_or_text_is_replaced(excerpt, tmp_path):
    path = tmp_path / "short/base-dot/seed0/record.json"
    longer = SHORT.model_copy(update={"steps": 9})
    upper = Corpus(excerpt.name, excerpt.text.upper(), excerpt.symbols)
    for profile, text in ((SHORT, excerpt), (longer, excerpt), (longer, upper)):
        record = run("base-dot", profile, text, tmp_path)
        assert record.curve[-1].step == profile.steps
        assert record.identity.corpus.sha256 == text.sha256
        assert read_record(path) == record


def test_run_that_is_killed_three_times_ends_as_if_it_had_not_been(excerpt, tmp_path):
    """kill -9 at random steps, in a process of its own; the record and weights agree to the bit."""
    text, folder = tmp_path / "text.txt", tmp_path / "killed/killed/multifourier-qk/seed1"
    text.write_text(excerpt.text)
    checkpoint = folder / "checkpoint.safetensors"
    command = [sys.executable, "-c", TRAIN, KILLED.model_dump_json(), text, tmp_path / "killed"]

    def step_reached():
        if not checkpoint.exists():
            return -1
        with safe_open(checkpoint, "pt") as file:
            return json.loads(file.metadata()["log"])["step"]

    for target in sorted(random.Random(0).sample(range(2, 60), 3)):
        process = subprocess.Popen(command)
        while step_reached() < target and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"
        assert target <= step_reached() < KILLED.steps
    assert not (folder / "record.json").exists()

    corpus = load_corpus(text)
    resumed = run("multifourier-qk", KILLED, corpus, tmp_path / "killed", seed=1)
    whole = run("multifourier-qk", KILLED, corpus, tmp_path / "whole", seed=1)
    assert result_of(resumed) == result_of(whole)
    other = tmp_path / "whole/killed/multifourier-qk/seed1/weights.safetensors"
    assert (folder / "weights.safetensors").read_bytes() == other.read_bytes()
    assert not checkpoint.exists()


def test_checkpoint_of_another_run_is_not_resumed(excerpt, tmp_path):
    run_and_stop_before_the_record("base-dot", SHORT, excerpt, tmp_path / "a")
    assert (tmp_path / "a/short/base-dot/seed0/checkpoint.safetensors").exists()
    slower = SHORT.model_copy(update={"learning_rate": 1e-4})
    mixed = run("base-dot", slower, excerpt, tmp_path / "a")
    assert result_of(mixed) == result_of(run("base-dot", slower, excerpt, tmp_path / "b"))


def test_absurd_learning_rate_diverges_and_the_record_says_when(excerpt, tmp_path):
    for _ in range(2):  # trained, then read back
        with pytest.raises(DivergedError, match=r"base-dot at hot, seed 0: .* at step 3"):
            run("base-dot", HOT, excerpt, tmp_path)
    record = read_record(tmp_path / "hot/base-dot/seed0/record.json")
    assert record.diverged_at == record.curve[-1].step == 3
    assert (record.losses, record.audit, record.sample) == (None, None, None)


@pytest.mark.parametrize("steps", [3, 12], ids=["last", "early"])
def test_run_that_is_stopped_once_diverged_has_diverged_at_the_same_step(steps, excerpt, tmp_path):
    profile = HOT.model_copy(update={"steps": steps})
    run_and_stop_before_the_record("base-dot", profile, excerpt, tmp_path)
    with pytest.raises(DivergedError, match="at step 3"):
        run("base-dot", profile, excerpt, tmp_path)


def test_folder_that_cannot_be_written_is_refused_before_the_first_step(excerpt, tmp_path):
    (tmp_path / "file").write_text("")
    endless = SHORT.model_copy(update={"name": "endless", "steps": 10**9, "eval_every": 10**9})
    with pytest.raises(InputError, match="cannot be written"):
        run("base-dot", endless, excerpt, tmp_path / "file/below")


def test_corpus_without_a_window_is_refused(tmp_path):
    (tmp_path / "haiku.txt").write_text("an old silent pond\n")
    with pytest.raises(InputError, match="corpus haiku is too short"):
        run("base-dot", SHORT, load_corpus(tmp_path / "haiku.txt"), tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_is_refused_where_there_is_none():
    with pytest.raises(InputError, match="there is no device 'cuda' here; auto, cpu, cuda and mps"):
        choose_device("cuda")


def test_unknown_device_is_refused_and_auto_is_one_that_is_there():
    with pytest.raises(InputError, match="there is no device 'abacus' here"):
        choose_device("abacus")
    assert choose_device("cpu").type == "cpu"
    torch.zeros(1, device=choose_device("auto"))


@pytest.mark.parametrize("name", VARIANTS)
def test_optimizer_holds_every_parameter_once_and_decays_matrices_only(name):
    model = build_model(name, "smoke")
    groups = optimizer_of(model, SMOKE).param_groups
    held = [id(p) for group in groups for p in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(p) for p in model.parameters()}
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    owner = {id(p): module for module in model.modules() for p in module.parameters(recurse=False)}
    for key, parameter in model.named_parameters():
        is_matrix = isinstance(owner[id(parameter)], nn.Linear | nn.Embedding)
        assert decay[id(parameter)] == (SMOKE.weight_decay if is_matrix else 0), key
        assert is_matrix != ("mixer" in key or "norm" in key), key


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_learning_rate_warms_up_to_its_peak_and_falls_to_a_tenth_of_it(profile):
    rates = [profile.learning_rate_at(step) for step in range(profile.steps + 1)]
    peak, warm = profile.learning_rate, profile.warmup
    assert rates[0] == pytest.approx(peak / warm)
    assert rates[: warm + 1] == sorted(rates[: warm + 1])
    assert rates[warm] == max(rates) == pytest.approx(peak)
    assert rates[warm:] == sorted(rates[warm:], reverse=True)
    assert rates[(warm + profile.steps) // 2] == pytest.approx(0.55 * peak, rel=0.05)
    assert rates[-2] == pytest.approx(peak / 10, rel=0.06)  # the last step that is made
    assert rates[-1] == pytest.approx(peak / 10)


def test_schedule_without_warm_up_starts_at_its_peak():
    profile = SMOKE.model_copy(update={"name": "cold", "warmup": 0})
    assert profile.learning_rate_at(0) == profile.learning_rate


@pytest.mark.parametrize("name", VARIANTS)
def test_a_step_in_bfloat16_is_a_step_in_float32_to_its_precision(name, excerpt):
    """What the paper profile does on CUDA, tried on the CPU: every mixer takes and gives bfloat16."""
    losses = {}
    for bf16 in (False, True):
        model = build_model(name, "smoke")
        torch.manual_seed(1)
        batch = excerpt.batch(SMOKE.batch, SMOKE.context)
        optimizer = optimizer_of(model, SMOKE)
        losses[bf16] = [train_step(model, optimizer, batch, SMOKE.clip, bf16).item() for _ in range(3)]
        assert all(p.grad is None and p.isfinite().all() for p in model.parameters())
    assert losses[True] == pytest.approx(losses[False], abs=0.05)
    assert losses[True] != losses[False]

"""Many runs on Dask: what the local cluster leaves, and a cluster of separate processes."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors import safe_open

from fqk.corpus import load_corpus
from fqk.errors import InputError
from fqk.profiles import PROFILES
from fqk.records import read_record
from fqk.sweep import sweep
from fqk.training import train
from fqk.variants import VARIANTS

SMOKE = PROFILES["smoke"]
LONG = SMOKE.model_copy(update={"name": "long", "steps": 1500, "eval_every": 25})


def test_a_local_sweep_leaves_the_records_that_single_runs_leave(tmp_path: Path) -> None:
    variants = [VARIANTS["base-dot"], VARIANTS["phase-random"]]
    swept = sweep(variants, SMOKE, [3], None, tmp_path / "swept", "cpu", workers=2)
    assert {record.identity.variant for record in swept} == {"base-dot", "phase-random"}
    for record in swept:
        name = record.identity.variant
        alone = train(VARIANTS[name], SMOKE, load_corpus(), 3, tmp_path / "alone", "cpu", False)
        assert record.model_dump(exclude={"machine"}) == alone.model_dump(exclude={"machine"})
        assert read_record(tmp_path / "swept/smoke" / name / "seed3/record.json") == record


def test_a_recorded_run_is_not_repeated(tmp_path: Path) -> None:
    variants = [VARIANTS["base-dot"]]
    first = sweep(variants, SMOKE, [0], None, tmp_path, "cpu", workers=1)
    assert sweep(variants, SMOKE, [0], None, tmp_path, "cpu", workers=1) == first  # its times too


def test_a_diverged_run_does_not_stop_the_others(tmp_path: Path) -> None:
    profile = SMOKE.model_copy(update={"name": "wild", "learning_rate": 1e6, "warmup": 0})
    assert sweep([VARIANTS["base-dot"]], profile, [0], None, tmp_path, "cpu", workers=1) == []
    assert read_record(tmp_path / "wild/base-dot/seed0/record.json").diverged_at


def test_a_scheduler_that_does_not_answer_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        sweep([VARIANTS["base-dot"]], SMOKE, [0], None, tmp_path, scheduler="tcp://127.0.0.1:9")


class Cluster:
    """A scheduler and two workers, each a process of its own, on the loopback interface."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0")
        self.workers = [
            self.start("worker", "--nthreads", "1", "--no-nanny", "--local-directory", folder / str(number))
            for number in range(2)
        ]

    def start(self, kind: str, *options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", kind, "--no-dashboard", "--scheduler-file", self.file]
        return subprocess.Popen([str(part) for part in (*command, *options)])

    @property
    def address(self) -> str:
        while not self.file.exists():
            time.sleep(0.1)
        return str(json.loads(self.file.read_text())["address"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    for process in (started.scheduler, *started.workers):
        process.kill()
        process.wait()


def under_way(run: Path) -> bool:
    """Whether a run has a checkpoint beyond its start, and no record yet."""
    try:
        with safe_open(run / "checkpoint.safetensors", "pt") as file:
            return bool(json.loads(file.metadata()["log"])["step"])
    except FileNotFoundError:
        return False


def test_a_sweep_survives_a_killed_worker_of_a_separate_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    variants = [VARIANTS["base-dot"], VARIANTS["multifourier-qk"]]
    runs = [tmp_path / "long" / variant.name / "seed0" for variant in variants]
    were_under_way = []

    def kill_a_worker() -> None:
        while not all(map(under_way, runs)):
            time.sleep(0.02)
        cluster.workers[0].kill()
        were_under_way.extend(not (run / "record.json").exists() for run in runs)

    killer = threading.Thread(target=kill_a_worker, daemon=True)
    killer.start()
    records = sweep(variants, LONG, [0], None, tmp_path, "cpu", scheduler=cluster.address)
    killer.join(timeout=1)
    assert were_under_way == [True, True]
    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert {record.identity.variant for record in records} == {"base-dot", "multifourier-qk"}
    for record in records:
        variant = VARIANTS[record.identity.variant]
        whole = train(variant, LONG, load_corpus(), 0, tmp_path / "whole", "cpu", False)
        assert record.model_dump(exclude={"machine"}) == whole.model_dump(exclude={"machine"})

"""One run: (variant, profile, seed) → a record and weights. Killed and started again, it resumes."""

import ctypes
import math
import platform
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm.auto import tqdm

import fqk
from fqk import diagnostics, records
from fqk.audit import audit
from fqk.corpus import Corpus
from fqk.errors import InputError
from fqk.model import build_model
from fqk.profiles import Profile
from fqk.records import (
    AuditSummary,
    Estimate,
    Horizon,
    Identity,
    Losses,
    Machine,
    Point,
    Record,
    Scales,
)
from fqk.variants import Variant

REVISION = 2
"""Raised whenever training or the final measures change their results."""


class DivergedError(RuntimeError):
    """The loss became infinite, NaN, or ten times that of a uniform guess; the record says when."""


def choose_device(name: str) -> torch.device:
    """``auto`` is the first of cuda, mps and cpu that is there.

    Raises:
        InputError: the device is not there.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next((device for device, is_there in there.items() if is_there), "cpu"))
    if name != "cpu" and not there.get(name, False):
        raise InputError(f"there is no device {name!r} here; auto, cpu, cuda and mps are accepted")
    return torch.device(name)


def identity_of(variant: Variant, profile: Profile, corpus: Corpus, seed: int) -> Identity:
    """What determines the result of a run."""
    return Identity(
        variant=variant.name,
        mixer_revision=variant.revision,
        trainer_revision=REVISION,
        profile=profile,
        corpus=records.CorpusIdentity(
            name=corpus.name,
            sha256=corpus.sha256,
            characters=len(corpus.text),
            symbols=corpus.vocab_size,
            characters_per_token=corpus.characters_per_token,
        ),
        seed=seed,
    )


def recorded(identity: Identity, results: Path) -> Record | None:
    """The record of this very run, if it is there and whole."""
    folder = records.run_folder(results, identity.profile.name, identity.variant, identity.seed)
    if not (folder / "record.json").exists():
        return None
    record = records.read_record(folder / "record.json")
    return record if record.identity == identity else None


def optimizer_of(model: nn.Module, profile: Profile) -> torch.optim.AdamW:
    """AdamW with decay on matrices only: gains, and the mixers' scales, are left alone."""
    decayed = [m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Embedding)]
    rest = [p for p in model.parameters() if not any(p is d for d in decayed)]
    groups = [
        {"params": decayed, "weight_decay": profile.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=profile.learning_rate, betas=profile.betas, fused=True)


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor, clip: float, bf16: bool = False
) -> Tensor:
    """One step on windows of shape (B, T+1); the loss in nats, a tensor still on its device."""
    inputs, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    with torch.autocast(batch.device.type, torch.bfloat16, enabled=bf16):
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def train(
    variant: Variant,
    profile: Profile,
    corpus: Corpus,
    seed: int = 0,
    results: Path = records.RESULTS,
    device: str = "auto",
    progress: bool = True,
    threads: int = 1,
) -> Record:
    """Train a model, measure it, and leave its record and weights under ``results``.

    A run that is recorded under the same identity is read back instead. A checkpoint is left at each
    evaluation; a run that was killed goes on from the last and ends as if it had not been: every step
    seeds the generator that its batch, dropout and random phases are drawn from. On one CPU thread its
    losses repeat to the bit; the other cores are the sweep's to fill.

    Raises:
        InputError: the corpus is too short, the device is not there, or the folder cannot be written.
        DivergedError: the loss left the scale; the record is written and says so.
    """
    if profile.vocabulary:
        corpus = corpus.in_words(profile.vocabulary)
    corpus.check(profile.context)
    where = choose_device(device)
    identity = identity_of(variant, profile, corpus, seed)
    if (record := recorded(identity, results)) is None:
        with numerics(where, profile, threads):
            record = _Run(identity, variant, corpus, results, where).finish(progress)
    if record.diverged_at is not None:
        raise DivergedError(
            f"{variant.name} at {profile.name}, seed {seed}: the loss diverged at step "
            f"{record.diverged_at}; its record says so"
        )
    return record


class _Run:
    """The state of one run between its steps, and its checkpoint on disk."""

    def __init__(
        self, identity: Identity, variant: Variant, corpus: Corpus, results: Path, where: torch.device
    ) -> None:
        profile, seed = identity.profile, identity.seed
        self.identity, self.profile, self.corpus, self.where = identity, profile, corpus, where
        self.folder = records.run_folder(results, profile.name, variant.name, seed)
        self.checkpoint = self.folder / "checkpoint.safetensors"
        self.model = build_model(variant, profile, corpus.vocab_size, seed).to(where)
        self.optimizer = optimizer_of(self.model, profile)
        self.windows = corpus.windows(profile.context, profile.eval_windows)
        self.step, self.wall, self.cpu = 0, 0.0, 0.0
        self.train_loss = torch.zeros((), device=where)
        self.curve: list[Point] = []
        self.scales: list[Scales] = []
        if not self.resume():
            self.log_scales()
            self.save()  # a folder that cannot be written is found out before the first step

    def finish(self, progress: bool) -> Record:
        """The remaining steps, then the final measures."""
        accelerate = self.profile.mixed_precision and self.where.type == "cuda"
        model = cast(nn.Module, torch.compile(self.model)) if accelerate else self.model
        name = f"{self.identity.variant} seed {self.identity.seed}"
        bar = tqdm(total=self.profile.steps, initial=self.step, desc=name, disable=not progress)
        since_wall, since_cpu = time.perf_counter(), time.process_time()
        wall, cpu = self.wall, self.cpu

        def clock() -> None:
            self.wall = wall + time.perf_counter() - since_wall
            self.cpu = cpu + time.process_time() - since_cpu

        last = self.step
        while self.step < self.profile.steps and not self.diverged:
            torch.manual_seed(self.identity.seed * 1_000_003 + self.step)
            for group in self.optimizer.param_groups:
                group["lr"] = self.profile.learning_rate_at(self.step)
            batch = self.corpus.batch(self.profile.batch, self.profile.context).to(self.where)
            self.train_loss += train_step(model, self.optimizer, batch, self.profile.clip, accelerate)
            self.step += 1
            bar.update()
            if self.step % self.profile.eval_every == 0 or self.step == self.profile.steps:
                self.evaluate(since=self.step - last)
                last = self.step
                bar.set_postfix(val=f"{self.curve[-1].val:.3f}")
                clock()
                self.save()
        bar.close()
        speed = self.step * self.profile.batch * self.profile.context / self.wall
        measures = {} if self.diverged else self.measure()
        clock()
        machine = Machine(
            package_version=fqk.__version__,
            torch_version=torch.__version__,
            device=str(self.where),
            processor=_processor(self.where),
            wall_seconds=self.wall,
            cpu_seconds=self.cpu,
            tokens_per_second=speed,
        )
        record = Record(
            identity=self.identity,
            machine=machine,
            curve=self.curve,
            scales=self.scales,
            diverged_at=self.step if self.diverged else None,
            **measures,
        )
        records.write_weights(self.model, self.folder)
        records.write_record(record, self.folder)
        self.checkpoint.unlink(missing_ok=True)
        return record

    @property
    def diverged(self) -> bool:
        """Whether the loss has left the scale, by the last point of the curve; NaN has too."""
        limit = 10 * math.log(self.corpus.vocab_size)
        return any(not (p.train < limit and p.val < limit) for p in self.curve[-1:])

    def evaluate(self, since: int) -> None:
        """One more point of the curve."""
        self.model.eval()
        torch.manual_seed(0)
        val = diagnostics.window_losses(self.model, self.windows).mean().item()
        self.model.train()
        train = self.train_loss.item() / since
        self.curve.append(Point(step=self.step, train=train, val=val))
        self.log_scales()
        self.train_loss.zero_()

    def log_scales(self) -> None:
        """The mixers' time scales as they are now."""
        layers = self.model.scales()
        if any(layers):
            self.scales.append(Scales(step=self.step, layers=layers))

    def measure(self) -> dict[str, Any]:
        """The final losses on all validation windows, the audit and a sample."""
        profile, model = self.profile, self.model.eval()
        windows = self.corpus.windows(profile.context)
        few = self.corpus.windows(profile.context, profile.prefix_windows)
        positions = torch.arange(7, profile.context, 8)
        torch.manual_seed(0)
        losses = {
            "ordered": diagnostics.window_losses(model, windows),
            "shuffled": diagnostics.shuffled_losses(model, windows),
            "permutation_floor": diagnostics.permutation_floors(windows),
            "prefix_truncated": diagnostics.prefix_losses(model, few, positions),
            "prefix_padded": diagnostics.horizon_losses(model, few, positions, self.corpus.vocab_size),
        }
        apart = positions[3::4]
        horizons = [0, *(2**power for power in range(profile.context.bit_length()))]
        found = audit(
            model,
            vocab_size=self.corpus.vocab_size,
            seq_len=profile.context,
            tokens=windows[0, :-1],
            device=self.where,
        )
        prompt = self.corpus.decode(windows[0, :32])
        return {
            "losses": Losses(**{name: Estimate.of(values) for name, values in losses.items()}),
            "horizons": [
                Horizon(
                    ahead=h,
                    loss=Estimate.of(
                        diagnostics.horizon_losses(model, few, apart, self.corpus.vocab_size, h)
                    ),
                )
                for h in horizons
            ],
            "audit": AuditSummary(
                causal=found.causal,
                first_leak=found.first_leak,
                lag_profile=found.lag_profile.tolist(),
            ),
            "sample": diagnostics.sample(model, self.corpus, prompt, 256, profile.context),
        }

    def save(self) -> None:
        """Model, optimiser and log in one file, replaced whole."""
        tensors = dict(self.model.state_dict())
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        log = _Log(
            identity=self.identity,
            step=self.step,
            wall=self.wall,
            cpu=self.cpu,
            curve=self.curve,
            scales=self.scales,
        )
        metadata = {"log": log.model_dump_json()}
        records.write_atomically(self.checkpoint, lambda path: save_file(tensors, path, metadata=metadata))

    def resume(self) -> bool:
        """Go back to the checkpoint, if there is one of this very run."""
        if not self.checkpoint.exists():
            return False
        with safe_open(self.checkpoint, "pt", device=str(self.where)) as file:
            log = _Log.model_validate_json(file.metadata()["log"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if log.identity != self.identity:
            return False
        state: dict[int, dict[str, Tensor]] = {}
        for name in [name for name in tensors if name.startswith("optimizer.")]:
            _, index, field = name.split(".")
            state.setdefault(int(index), {})[field] = tensors.pop(name)
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.model.load_state_dict(tensors)
        self.step, self.wall, self.cpu = log.step, log.wall, log.cpu
        self.curve, self.scales = log.curve, log.scales
        return True


class _Log(BaseModel):
    """The part of a checkpoint that is not tensors."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    identity: Identity
    step: int
    wall: float
    cpu: float
    curve: list[Point]
    scales: list[Scales]


def _processor(where: torch.device) -> str:
    if where.type == "cuda":
        return torch.cuda.get_device_name(where)
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


@contextmanager
def numerics(where: torch.device, profile: Profile, threads: int) -> Iterator[None]:
    """So many threads on a CPU; TF32 on CUDA where the profile asks for it; both undone afterwards."""
    before, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    if where.type == "cpu":
        torch.set_num_threads(threads)
        _keep_freed_memory()
    elif where.type == "cuda" and profile.mixed_precision:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(precision)


def _keep_freed_memory() -> None:
    # glibc returns large blocks to the system when they are freed, and gets them back a page fault at a
    # time: 20,000 a step and 1.4 times as long on a Dask worker, whose default returns everything.
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, the most that it takes

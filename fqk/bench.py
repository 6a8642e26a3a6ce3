"""What a variant's step costs, what the sweep gains: ratios of medians, paired in one process."""

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from dask.system import CPU_COUNT
from torch import Tensor, nn

from fqk.audit import audit
from fqk.corpus import load_corpus
from fqk.model import build_model
from fqk.profiles import PROFILES, Profile
from fqk.sweep import sweep
from fqk.training import numerics, optimizer_of, train, train_step
from fqk.variants import VARIANTS

ROUNDS, WARM_UP = 30, 3
SWEEP_STEPS = 500  # in fewer, the seconds in which a cluster starts weigh more than in any real sweep


def ratios(nanogpt: Path | None) -> Iterator[tuple[str, float]]:
    """Each ratio with what it is of, as it is measured; some ten minutes on two cores.

    Args:
        nanogpt: a folder that holds nanoGPT's ``model.py``, to time its step too.
    """
    cpu = PROFILES["cpu"]
    long = cpu.model_copy(update={"context": 1024, "batch": cpu.batch * cpu.context // 1024})
    with numerics(torch.device("cpu"), cpu, threads=1):
        for profile in (cpu, long):
            ratio = _paired(_step("multifourier-qk", profile), _step("base-dot", profile))
            yield f"multifourier-qk / base-dot, seconds a training step at T = {profile.context}", ratio
        if nanogpt:
            ratio = _paired(_step("base-dot", cpu), _nanogpt_step(nanogpt / "model.py", cpu))
            yield "base-dot / nanoGPT, seconds a training step", ratio
        yield "exact audit / the forward passes that it must do, seconds at T = 256", _audit_cost(cpu)
    yield "local sweep / runs one by one on all cores, tokens a second", _sweep_gain(cpu)


def _paired(first: Callable[[], object], second: Callable[[], object]) -> float:
    """Median of first/second, timed in turns."""
    pairs = [(_seconds(first), _seconds(second)) for _ in range(WARM_UP + ROUNDS)]
    return statistics.median(a / b for a, b in pairs[WARM_UP:])


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _step(variant: str, profile: Profile) -> Callable[[], Tensor]:
    model = build_model(variant, profile)
    batch = torch.randint(65, (profile.batch, profile.context + 1))
    return partial(train_step, model, optimizer_of(model, profile), batch, profile.clip)


def _nanogpt_step(path: Path, profile: Profile) -> Callable[[], None]:
    spec = importlib.util.spec_from_file_location("nanogpt", path)
    assert spec
    assert spec.loader
    nanogpt = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nanogpt)
    config = nanogpt.GPTConfig(
        block_size=profile.context,
        vocab_size=65,
        n_layer=profile.layers,
        n_head=profile.heads,
        n_embd=profile.width,
        dropout=profile.dropout,
        bias=False,
    )
    model = nanogpt.GPT(config)
    settings = (profile.weight_decay, profile.learning_rate, profile.betas, "cpu")
    optimizer = model.configure_optimizers(*settings)
    batch = torch.randint(65, (profile.batch, profile.context + 1))
    inputs, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()

    def step() -> None:
        _, loss = model(inputs, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), profile.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _audit_cost(cpu: Profile) -> float:
    """At the audit's own batch of 32 windows: one a token, and the unreplaced batch twice."""
    model, batch = build_model("base-dot", cpu).eval(), torch.randint(65, (32, cpu.context))

    @torch.no_grad()
    def passes() -> None:
        for _ in range(cpu.context // len(batch) + 2):
            model(batch)

    return _paired(partial(audit, model, vocab_size=65, seq_len=cpu.context), passes)


def _sweep_gain(cpu: Profile) -> float:
    profile = cpu.model_copy(update={"steps": SWEEP_STEPS, "eval_every": SWEEP_STEPS})
    variant, seeds, corpus = VARIANTS["base-dot"], range(2 * CPU_COUNT), load_corpus()
    with tempfile.TemporaryDirectory() as folder:
        one_by_one = _seconds(
            lambda: [
                train(variant, profile, corpus, seed, Path(folder) / "one", "cpu", False, CPU_COUNT)
                for seed in seeds
            ]
        )
        at_once = _seconds(lambda: sweep([variant], profile, seeds, None, Path(folder) / "sweep", "cpu"))
    return one_by_one / at_once

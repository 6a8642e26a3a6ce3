"""A row of the census: one model audited, in a process of its own with a time-out, kept in a JSON file."""

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fqk.audit import audit
from fqk.errors import InputError

Row = dict[str, Any]

SECONDS = 300
VOCABULARY, LENGTH = 99, 37  # longer than four blocks of 8, and not a multiple of them


def audited(model: nn.Module, seq_len: int = LENGTH, inputs: dict[str, Any] | None = None) -> Row:
    """All that the page says of a model: the exact audit's verdict, first leak, lag profile and details."""
    row: Row = {"parameters": sum(p.numel() for p in model.parameters())}
    try:
        found = audit(model, vocab_size=VOCABULARY, seq_len=seq_len, inputs=inputs)
    except InputError as error:
        return row | {"verdict": "not run", "reason": str(error)[:300]}
    profile = [float(f"{h:.2g}") for h in found.lag_profile.tolist()]
    return row | {
        "verdict": found.verdict,
        "reason": found.reason,
        "first_leak": found.first_leak,
        "lag_profile": profile if any(profile) else [],
        "findings": {f.probe: f.verdict for f in found.findings},
        "details": {f.probe: f.detail for f in found.findings if f.verdict != "causal"},
    }


def not_built(error: Exception) -> Row:
    """The row of a model whose making raised ``error``."""
    return {"verdict": "not built", "reason": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def in_a_process(examine: Callable[[str], Row], name: str) -> Row:
    """``examine(name)``, from a process that is ended after SECONDS."""
    mine, its = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(examine, name, its))
    process.start()
    its.close()
    try:
        if mine.poll(SECONDS):
            return mine.recv()
        return {"verdict": "not run", "reason": f"no answer within {SECONDS} s"}
    except EOFError:
        return {"verdict": "not run", "reason": "the process died"}
    finally:
        process.kill()
        process.join()


def _answer(examine: Callable[[str], Row], name: str, pipe: Any) -> None:
    for stream in (1, 2):  # what the models have to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    torch.set_num_threads(1)
    pipe.send(examine(name))


def tabulate(file: Path, examine: Callable[[str], Row], names: Iterable[str]) -> None:
    """Put the row of each name into the JSON file, which is whole after each of them."""
    rows = json.loads(file.read_text()) if file.exists() else {}
    for name in names:
        rows[name] = in_a_process(examine, name)
        print(f"{name:60}{rows[name]['verdict']:12}{rows[name]['reason']}", flush=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n")
        part.replace(file)

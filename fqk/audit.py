"""The causality audit: does a prediction change when a token after it does?

A causal language model's logits at position i are a function of tokens 0 … i. The audit replaces tokens
and looks at all logits. *Exact* replaces one token at a time: T windows give the whole map of which token
moves which prediction. *Screen* replaces whole suffixes in at most 12 forward passes and, if it finds
something, narrows it down to one token. Nothing is estimated. Needs torch and numpy only.
"""

import copy
import functools
import inspect
import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fqk.errors import InputError

Model = Callable[..., Any]
"""Token ids (B, T) → logits (B, T, V), or an object that has them as ``.logits`` or as its first item."""

Verdict = Literal["causal", "leaks", "cannot tell"]

PROBE_ROWS = 4
"""Windows in each pass of a probe, so that all probes together cost little beside the map."""

VANISHES = 1e-3
"""A change that float64 shrinks to less than this part of itself is rounding: it has 9 digits more."""

NARROW = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64)
NARROW[torch.complex64] = torch.complex128
WIDER = dict.fromkeys((Tensor.half, Tensor.bfloat16, Tensor.float), Tensor.double)
CACHES = ("cache", "past_key_values", "cache_params", "state")
NOT_NUMBERS = "some logits are NaN or infinite"


@dataclass(frozen=True)
class Finding:
    """What one probe saw.

    ``pair`` is (i, j), j > i, where the prediction at i moves by ``change`` when token j is replaced.
    ``differs`` is said of cached generation alone, ``not run`` of what the model does not accept.
    """

    probe: str
    verdict: Verdict | Literal["differs", "not run"]
    detail: str
    change: float = 0.0
    pair: tuple[int, int] | None = None


@dataclass(frozen=True)
class Losses:
    """The same targets predicted from whole windows and from what came before them; nats a token.

    ``error`` is the standard error of their difference over ``windows`` windows; NaN of a single one.
    """

    ordered: float
    prefix: float
    error: float
    windows: int

    def __str__(self) -> str:
        gap = self.prefix - self.ordered
        return (
            f"{self.ordered:.3f} nats ({self.ordered / math.log(2):.3f} bits) a token in order, "
            f"{self.prefix:.3f} ({self.prefix / math.log(2):.3f}) from prefixes: "
            f"a difference of {gap:.3f}{'' if math.isnan(self.error) else f' ± {self.error:.3f}'} nats"
        )


@dataclass(frozen=True)
class Audit:
    """What :func:`audit` found; ``str`` of it is a report.

    ``influence[i, j]``, shape (T, T), is the largest change of a logit at position i when token j is
    replaced; above the diagonal (j > i) it is what position i reads of its future, in float64 where
    rounding could explain it. It is NaN where nothing was measured (a screen measures one pair at most)
    or the logits were NaN. ``noise`` is the same when nothing is replaced, 0 for a deterministic model; a
    change above ``tolerance`` is a leak.
    """

    influence: NDArray[np.float64]
    noise: float
    tolerance: float
    findings: tuple[Finding, ...]
    losses: Losses | None = None

    @property
    def leaks(self) -> NDArray[np.bool_]:
        """Where a later token moves a prediction by more than the tolerance, shape (T, T)."""
        return np.triu(self.influence > self.tolerance, 1)

    @property
    def verdict(self) -> Verdict:
        """``leaks`` if any probe shows a leak, else ``cannot tell`` if any is in doubt, else ``causal``."""
        seen = {finding.verdict for finding in self.findings}
        return "leaks" if "leaks" in seen else "cannot tell" if "cannot tell" in seen else "causal"

    @property
    def reason(self) -> str:
        """What the verdict rests on, in one sentence."""
        if self.causal:
            alone = not any(f.probe == "batch neighbours" and f.verdict == "causal" for f in self.findings)
            return f"no later token{'' if alone else ' and no other example'} moves a prediction"
        decisive = [finding for finding in self.findings if finding.verdict == self.verdict]
        return max(decisive, key=lambda finding: finding.pair is not None).detail

    @property
    def causal(self) -> bool:
        return self.verdict == "causal"

    @property
    def first_leak(self) -> tuple[int, int] | None:
        """The first pair (i, j), j > i, in reading order: prediction i depends on token j.

        One that a probe narrowed down if the map itself is clean; None for a leak that no single token
        of the window shows, such as one between examples.
        """
        pairs = np.argwhere(self.leaks)
        if len(pairs):
            return int(pairs[0, 0]), int(pairs[0, 1])
        return next((finding.pair for finding in self.findings if finding.pair), None)

    @property
    def lag_profile(self) -> NDArray[np.float64]:
        """The largest influence of the token h positions ahead, for h = 1 … T−1, shape (T−1,)."""
        length = len(self.influence)
        ahead = [np.diagonal(self.influence, h) for h in range(1, length)]
        return np.array([np.nan if np.isnan(d).all() else np.nanmax(d) for d in ahead])

    def as_dict(self) -> dict[str, Any]:
        """All but the map, for JSON; a change to NaN or infinity is null."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "causal": self.causal,
            "first_leak": self.first_leak,
            "noise": _finite(self.noise),
            "tolerance": self.tolerance,
            "lag_profile": [_finite(value) for value in self.lag_profile.tolist()],
            "findings": [{**vars(f), "change": _finite(f.change)} for f in self.findings],
            "losses": {k: _finite(v) for k, v in vars(self.losses).items()} if self.losses else None,
        }

    def __str__(self) -> str:
        verdict = f"{self.verdict} ({self.reason})"
        lines = [f"{f.probe:20}{f.verdict:12}{f.detail}" for f in self.findings]
        if self.losses:
            lines.append(f"{'loss':32}{self.losses}")
        return "\n  ".join([verdict, *lines])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@torch.no_grad()
def audit(
    model: Model,
    *,
    vocab_size: int | None = None,
    seq_len: int | None = None,
    depth: Literal["exact", "screen"] = "exact",
    tokens: Tensor | None = None,
    positions: Tensor | None = None,
    batch_size: int = 32,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    tolerance: float | None = None,
    inputs: Mapping[str, Any] | None = None,
    text: Tensor | None = None,
    seed: int = 0,
) -> Audit:
    """Does a prediction of ``model`` depend on a token after it, or on another example of the batch?

    Args:
        model: token ids (B, T) → logits (B, T, V), in the mode in which it is to be judged: a module, a
            Hugging Face causal LM, a function.
        vocab_size: ids are 0 … vocab_size − 1; a Hugging Face model tells.
        seq_len: T; 64 by default, or the most that a Hugging Face model takes. Choose more than two of
            the model's blocks, and not a multiple of them.
        depth: ``exact`` looks at every pair (i, j > i), then at what hides a leak: several tokens at
            once and the other of training and evaluation mode, if no pair leaks; shorter inputs; padding
            and cached generation where the model takes ``attention_mask`` and ``use_cache``. ``screen``
            replaces suffixes, in at most 12 passes up to T = 1,000: it finds any leak but one confined to
            few pairs.
        tokens: windows, shape (T,) or (N, T), which say T; random ids by default. The map is of the first.
        positions: the tokens j to replace one at a time, shape (P,); all by default.
        batch_size: windows a forward pass, which bounds the memory; a screen with few needs more passes.
        device: where token ids are put; by default where the model's parameters are.
        dtype: audit a copy of the module in this precision instead of its own.
        tolerance: the least change of a logit that is a leak; by default it is found out.
        inputs: other keyword arguments of the model; tensors of one row are repeated for each window.
        text: windows of real text, shape (N, T' + 1), to say what the leak is worth (:class:`Losses`).
        seed: of the windows, of the replacements, and of every generator (torch's, numpy's, Python's)
            before each pass, so that a model that draws (dropout, random phases) draws the same each
            time. A leak that shows with the draw held is a leak. ``cannot tell`` is left for a model
            that answers the same input differently even so, be it at once, alone or elsewhere in a batch.

    Every replaced window is compared with the unreplaced one *in the same row of a batch of the same
    size*, so that on one machine a causal model's logits agree to the bit; a change is a leak only if it
    comes again. One that rounding could explain (a convolution by FFT, experts whose batches differ) is
    looked at in a float64 copy of the module, at up to twice the cost: rounding shrinks with precision, a
    leak does not. There, what the module casts to less by itself is kept in float64, or else stays in doubt.
    The model's mode, buffers, gradients, hooks and parameters and all generators are left as they were.

    Raises:
        InputError: the model cannot be run, or the arguments do not fit it or each other.
    """
    if depth not in ("exact", "screen"):
        raise InputError(f"there is no depth {depth!r}; exact and screen are accepted")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; at least 1 is needed")
    if dtype is not None:
        if not isinstance(model, nn.Module):
            raise InputError("dtype needs a torch.nn.Module; a function computes as it does")
        model = copy.deepcopy(model).to(dtype)
    vocab_size = vocab_size or _config_value(model, "vocab_size")
    if vocab_size is None or vocab_size < 2:
        raise InputError(f"vocab_size is {vocab_size}; the model does not tell it, and at least 2 is needed")
    if tokens is not None and seq_len not in (None, tokens.shape[-1]):
        raise InputError(f"seq_len is {seq_len}, but tokens has windows of {tokens.shape[-1]}")
    seq_len = seq_len or (default_length(model) if tokens is None else tokens.shape[-1])
    if seq_len < 2:
        raise InputError(f"seq_len is {seq_len}; at least 2 is needed to have a future")
    if text is not None and (text.ndim != 2 or text.shape[1] < 2):
        raise InputError(f"text has shape {tuple(text.shape)}, not (N, T' + 1)")
    ends = (("tokens", tokens, vocab_size), ("text", text, vocab_size), ("positions", positions, seq_len))
    for name, given, end in ends:
        if given is not None and not given.numel():
            raise InputError(f"{name} is empty")
        if given is not None and not 0 <= int(given.min()) <= int(given.max()) < end:
            raise InputError(f"{name} holds some outside 0 … {end - 1}")
    generator = torch.Generator().manual_seed(seed)
    if tokens is None:
        tokens = torch.randint(vocab_size, (seq_len,), generator=generator)
    windows = tokens.cpu().reshape(-1, seq_len)
    if positions is None:
        positions = torch.arange(seq_len)
    if device is None:
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        device = parameter.device if parameter is not None else "cpu"
    with _as_it_was(model):
        subject = _Subject(model, torch.device(device), inputs or {}, seed)
        run = _Run(subject, windows, vocab_size, batch_size, tolerance, generator)
        influence = run.exact(positions) if depth == "exact" else run.screen()
        losses = None if text is None else _losses(subject, text.cpu(), batch_size)
    return Audit(influence, run.noise, run.map_tolerance, tuple(run.findings), losses)


def default_length(model: Model) -> int:
    """T where none is given: 64, or the most that a Hugging Face model takes."""
    return min(64, _config_value(model, "max_position_embeddings") or 64)


def assert_causal(model: Model, **options: Any) -> None:
    """For a test suite: fail unless :func:`audit`, with the same options, finds ``model`` causal.

    Raises:
        AssertionError: with the report, which names the first leaking pair.
        InputError: the model cannot be run.
    """
    found = audit(model, **options)
    if not found.causal:
        raise AssertionError(f"the model is not shown to be causal: {found}")


class _Subject:
    """A model with all generators held: token ids (B, T) → logits (B, T, V), at least float32."""

    def __init__(self, model: Model, device: torch.device, inputs: Mapping[str, Any], seed: int) -> None:
        self.model, self.device, self.inputs, self.seed = model, device, inputs, seed
        parameters = model.parameters() if isinstance(model, nn.Module) else ()
        self.eps = max((_rounding(p.dtype) for p in parameters if p.is_floating_point()), default=0.0)
        self.wide: _Wide | None = None

    def __call__(self, tokens: Tensor, seed: int | None = None, **inputs: Any) -> Tensor:
        return self.answer(tokens, seed, **inputs)[0]

    def answer(self, tokens: Tensor, seed: int | None = None, **inputs: Any) -> tuple[Tensor, Any]:
        """The logits, and all that the model answered."""
        _seed_all(self.seed if seed is None else seed)
        try:
            given = {k: self.expanded(v, len(tokens)) for k, v in {**self.inputs, **inputs}.items()}
            with self.wide or nullcontext():
                answer = self.model(tokens.to(self.device), **given)
        except Exception as error:
            why = next(iter(str(error).strip().splitlines()), "")
            shape = tuple(tokens.shape)
            raise InputError(
                f"the model fails on ids of shape {shape}: {type(error).__name__}: {why}"
            ) from error
        logits = getattr(answer, "logits", answer)
        logits = logits[0] if isinstance(logits, tuple | list) else logits
        if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != tokens.shape:
            found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InputError(
                f"the model answers {found} to ids of shape {tuple(tokens.shape)}, not logits (B, T, V)"
            )
        logits = logits if logits.is_floating_point() else logits.double()
        self.eps = max(self.eps, _rounding(logits.dtype))
        return (logits.float() if logits.dtype.itemsize == 2 else logits), answer

    def expanded(self, value: Any, rows: int) -> Any:
        """A tensor of one row, repeated for each window; everything else as it is."""
        if isinstance(value, Tensor):
            value = value.to(self.device)
            return value.repeat_interleave(rows, 0) if value.ndim > 1 and len(value) == 1 else value
        return value

    @cached_property
    def twin(self) -> "_Subject | None":
        """The same in float64; None where there can be none."""
        if not isinstance(self.model, nn.Module) or self.eps <= _rounding(torch.float64):
            return None
        try:
            twin = _Subject(copy.deepcopy(self.model).double(), self.device, self.inputs, self.seed)
        except Exception:  # whatever a module that cannot be copied raises
            return None
        twin.wide = _Wide()
        return twin

    def in_float64(self, logits: Callable[["_Subject"], Tensor]) -> Tensor | None:
        """What ``logits`` takes from the float64 copy in this mode; None where that cannot be run."""
        if self.twin is None:
            return None
        for copied, module in zip(_modules(self.twin.model), _modules(self.model), strict=True):
            copied.training = module.training
        try:
            return logits(self.twin)
        except InputError:
            return None


class _Wide(TorchFunctionMode):
    """What a module puts in a narrower precision by itself stays in float64; ``narrow`` if some does not."""

    narrow = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func, kwargs = WIDER.get(func, func), kwargs or {}
        if func is not Tensor.view:  # which reads the bits as another type
            args = [_wider(given) for given in args]
            kwargs = {name: _wider(given) for name, given in kwargs.items()}
        answer = func(*args, **kwargs)
        if isinstance(answer, Tensor) and answer.dtype in NARROW:
            self.narrow |= any(isinstance(given, Tensor) and given.dtype in NARROW.values() for given in args)
        return answer


def _wider(given: Any) -> Any:
    return NARROW.get(given, given) if isinstance(given, torch.dtype) else given


_Logits = Callable[[_Subject], Tensor]


@dataclass(frozen=True)
class _Judgement:
    """Whether logits that must not move do: ``change`` (B, T), and what may count as a move in ``of``."""

    verdict: Verdict
    change: Tensor
    note: str = ""
    in_float64: bool = False

    @property
    def worst(self) -> float:
        return float(self.change.max())


class _Run:
    """One audit: the passes, what is compared with what, and the findings in their order."""

    def __init__(
        self,
        subject: _Subject,
        windows: Tensor,
        vocab_size: int,
        batch_size: int,
        tolerance: float | None,
        generator: torch.Generator,
    ) -> None:
        self.subject, self.vocab_size, self.batch_size = subject, vocab_size, batch_size
        self.tolerance, self.generator = tolerance, generator
        self.windows, self.length = windows, windows.shape[1]
        self.findings: list[Finding] = []

    def exact(self, positions: Tensor) -> NDArray[np.float64]:
        """Every pair, then what hides a leak; the map (T, T)."""
        shift = torch.randint(1, self.vocab_size, (self.length,), generator=self.generator)
        repeated = self.windows[:1].repeat(self.batch_size, 1)
        window = functools.cache(_of(repeated))
        self.measure_noise(window, repeated)
        self.vary(PROBE_ROWS)
        draws = self.draws()
        if self.leaks_across_examples():
            self.batch_size = 1
            self.vary(1)
            window = functools.cache(_of(self.windows[:1]))
        elif not draws:  # it would draw others for another shape
            self.in_another_batch(window)
        influence = self.map(window, positions, shift)
        if self.findings[-1].verdict != "leaks":
            self.replace_suffixes("several tokens")
            self.in_the_other_mode()
        if not draws:
            for probe in (self.cut_short, self.pad, self.generate):
                probe()
        return influence

    def screen(self, passes: int = 2) -> NDArray[np.float64]:
        """Suffixes only; a map (T, T) of NaN but for the pair that was found."""
        self.vary(self.batch_size)
        self.measure_noise(self.before, self.batch)
        if self.leaks_across_examples():
            self.note(
                "replaced suffixes", "not run", "rows that see each other would be looked at one by one"
            )
        else:
            self.replace_suffixes("replaced suffixes", passes)
        self.map_tolerance = self.floor
        influence = np.full((self.length, self.length), np.nan)
        found = self.findings[-1]
        if found.pair:
            influence[found.pair] = found.change
        return influence

    def note(
        self, probe: str, verdict: Any, detail: str, change: float = 0.0, pair: tuple[int, int] | None = None
    ) -> None:
        self.findings.append(Finding(probe, verdict, detail, change, pair))

    def measure_noise(self, before: _Logits, batch: Tensor) -> None:
        """The same batch twice, the first time as ``before``."""
        base = before(self.subject)
        change = _change(self.subject(batch), base)
        self.noise = _most(change)
        # One more sample of a noise exceeds the most of the first, but not by a factor of four.
        self.floor = 4 * self.noise if self.tolerance is None else self.tolerance
        scale = _most(base.abs().masked_fill(base.isinf(), 0))
        self.rounding = self.subject.eps * scale if self.tolerance is None else self.tolerance
        if change.isnan().any():
            self.note("repeated input", "cannot tell", NOT_NUMBERS)
        elif self.noise > self.rounding:
            self.note("repeated input", "cannot tell", _unsteady(self.noise), self.noise)
        else:
            detail = f"moves a logit by {self.noise:.2g}" if self.noise else "the same logits to the bit"
            self.note("repeated input", "causal", detail, self.noise)

    def unsteady(self, moved: float) -> str:
        """Why a change is no leak that, in the same pass again, is another by ``moved``; else nothing."""
        if not moved > max(self.floor, self.rounding):
            return ""
        self.noise, self.floor = moved, 4 * moved
        return _unsteady(moved)

    def vary(self, rows: int) -> None:
        """Windows for the probes, the given ones first."""
        self.batch = torch.randint(
            self.vocab_size, (min(rows, self.batch_size), self.length), generator=self.generator
        )
        given = self.windows[: len(self.batch)]
        self.batch[: len(given)] = given
        self.before = functools.cache(_of(self.batch))

    def replaced(self, tokens: Tensor) -> Tensor:
        """Another id in every place."""
        shift = torch.randint(1, self.vocab_size, tokens.shape, generator=self.generator)
        return (tokens + shift) % self.vocab_size

    def draws(self) -> bool:
        """Whether the logits change with the generators' seed."""
        base = self.before(self.subject)
        moved = _most(_change(self.subject(self.batch, self.subject.seed + 1), base))
        if moved <= max(self.floor, self.rounding):
            return False
        if why := self.unsteady(_most(_change(self.subject(self.batch), base))):
            self.note("another seed", "cannot tell", why, self.noise)
            return False
        detail = f"it draws at random, as dropout does, which moves a logit by {moved:.2g}; held fixed here"
        self.note("another seed", "causal", detail, moved)
        return True

    def in_another_batch(self, window: _Logits) -> None:
        """The same window alone, and first and last of a pass."""
        ends, still = [0, -1], torch.ones((2, self.length), dtype=torch.bool)
        try:
            found = self.judge(
                lambda subject: window(subject)[ends],
                lambda subject: subject(self.windows[:1]).expand(2, -1, -1),
                still,
                reshaped=True,
            )
        except InputError as error:
            self.note("another batch", "not run", str(error))
            return
        detail = f"non-deterministic: a logit moves by {found.worst:.2g} in another row or size of the batch"
        if found.verdict == "causal":
            detail = "the same logits in another row and size of the batch" + found.note
        elif found.verdict == "cannot tell":
            detail = found.note
        verdict = "causal" if found.verdict == "causal" else "cannot tell"
        self.note("another batch", verdict, detail, found.worst)

    def leaks_across_examples(self) -> bool:
        """Whether the last row's logits, or the first's of more than two, change with the others' tokens."""
        if len(self.batch) == 1:
            self.note("batch neighbours", "not run", "a pass holds one window")
            return False
        kept = [0, -1] if len(self.batch) > 2 else [-1]
        others = self.replaced(self.batch)
        others[kept] = self.batch[kept]
        still = torch.zeros(self.batch.shape, dtype=torch.bool)
        still[kept] = True
        found = self.judge(self.before, _of(others), still)
        detail = "no row's logits depend on another row's tokens" + found.note
        if found.verdict == "leaks":
            detail = f"cross-example leakage: other rows' tokens move a logit by {found.worst:.2g}"
        elif found.verdict == "cannot tell":
            detail = found.note
        self.note("batch neighbours", found.verdict, detail, found.worst)
        return found.verdict == "leaks"

    def judge(
        self,
        before: _Logits,
        after: _Logits,
        still: Tensor,
        reshaped: bool = False,
    ) -> _Judgement:
        """Do the logits of ``after`` differ from ``before`` where they must be ``still``, (B, T)?

        Two passes of different shapes are ``reshaped``: they differ by rounding in any model.
        """
        base = before(self.subject)
        still = still.to(base.device)

        def changed() -> Tensor:
            return _change(after(self.subject), base).masked_fill(~still, 0)

        change = changed()
        unknown, change = change.isnan().any(), change.nan_to_num(0, posinf=math.inf)
        worst, at = change.flatten().max(0)
        if worst <= self.floor or (reshaped and worst <= self.rounding):
            return _Judgement("cannot tell", change, NOT_NUMBERS) if unknown else _Judgement("causal", change)
        if worst > self.rounding:
            why = self.unsteady(float((changed().flatten()[at] - worst).abs()))
            if why and worst <= self.floor:
                return _Judgement("cannot tell", change, why)
            if not reshaped:
                return _Judgement("leaks", change)
        return self.settle(change, before, after)

    def settle(self, change: Tensor, before: _Logits, after: _Logits) -> _Judgement:
        """Is a change that rounding may explain, at least in part, still there in float64?"""
        worst = float(change.max())
        exact = self.subject.in_float64(lambda twin: _change(after(twin), before(twin)))
        if exact is None and worst > self.rounding:
            return _Judgement("leaks", change)
        if exact is None and self.subject.eps <= _rounding(torch.float64):
            return _Judgement("causal", change, f"; {worst:.2g} is rounding")
        note = f"a logit moves by {worst:.2g}, which rounding explains, and float64 cannot be tried"
        if exact is None:
            return _Judgement("cannot tell", change, note)
        exact = exact.masked_fill(change <= self.floor, 0)
        if _most(exact) <= VANISHES * worst:
            return _Judgement("causal", exact, f"; {worst:.2g} is rounding, gone in float64", in_float64=True)
        wide = self.subject.twin and self.subject.twin.wide
        if wide and wide.narrow and worst <= self.rounding:
            return _Judgement("cannot tell", change, f"{note} in all of the model")
        return _Judgement("leaks", exact, in_float64=True)

    def map(self, before: _Logits, positions: Tensor, shift: Tensor) -> NDArray[np.float64]:
        """One token replaced a window, compared with the window itself."""
        size, length, window = self.batch_size, self.length, self.windows[0]
        replaced = window.repeat(length, 1)
        replaced.diagonal().copy_((window + shift) % self.vocab_size)

        def batch_of(columns: Tensor) -> Tensor:
            return torch.cat([replaced[columns], window.repeat(size - len(columns), 1)])

        def changed(columns: Tensor) -> Tensor:
            change = _change(self.subject(batch_of(columns)), before(self.subject))
            return change[: len(columns)].T.cpu().double()

        influence = torch.full((length, length), torch.nan, dtype=torch.float64)
        for columns in positions.split(size):
            influence[:, columns] = changed(columns)
        future = influence.triu(1)
        doubtful = (future > self.floor) & (future <= self.rounding)
        self.map_tolerance, doubt, why = self.floor, "", ""
        for columns in doubtful.any(0).nonzero()[:, 0].split(size) if doubtful.any() else ():
            change = torch.zeros((size, length))
            change[: len(columns)] = future.masked_fill(~doubtful, 0).T[columns].float()
            found = self.settle(change.to(before(self.subject).device), before, _of(batch_of(columns)))
            threshold = self.rounding
            if found.in_float64:
                blurred, seen = doubtful[:, columns], influence[:, columns]
                exact = found.change[: len(columns)].T.cpu().double()
                influence[:, columns] = torch.where(blurred, exact, seen)
                threshold = _most(exact.masked_fill(exact > VANISHES * seen, 0))
            self.map_tolerance = max(self.map_tolerance, threshold)
            if found.verdict == "cannot tell":
                why = found.note
            elif found.verdict == "causal":
                doubt = found.note
        future = influence.triu(1)
        while len(pairs := (future > self.map_tolerance).nonzero()):
            i, j = pairs[0].tolist()
            columns = next(columns for columns in positions.split(size) if j in columns)
            again = changed(columns)[i, columns == j]
            unsteady = self.unsteady(float((again - influence[i, j]).abs().max()))
            if not unsteady:
                break
            why, self.map_tolerance = unsteady, self.floor
        if len(pairs):
            moved = float(influence[i, j])
            self.note("every pair", "leaks", _named(i, j, moved, len(pairs) - 1), moved, (i, j))
        elif why:
            self.note("every pair", "cannot tell", why, _most(future))
        elif influence[:, positions].isnan().any():
            self.note("every pair", "cannot tell", NOT_NUMBERS)
        else:
            probe = "every pair" if len(positions) == length else "chosen tokens"
            self.note(probe, "causal", "no later token moves a prediction" + doubt)
        return influence.numpy()

    def replace_suffixes(
        self,
        probe: str,
        passes: int = 1,
        inside: tuple[int, int] | None = None,
        **inputs: Any,
    ) -> None:
        """All tokens after a cut replaced, a cut a row; no prediction up to it may move.

        ``inside``, by default (0, T), are the first position that counts and the one after the last.
        """
        rows, (first, end) = len(self.batch), inside or (0, self.length)
        cuts = first + torch.randperm(end - first - 1, generator=self.generator)
        before = functools.cache(_of(self.batch, **inputs)) if inputs else self.before
        index = torch.arange(self.length)
        for number in range(passes):
            cut = cuts[torch.arange(number * rows, (number + 1) * rows) % len(cuts)][:, None]
            other = torch.where(index > cut, self.replaced(self.batch), self.batch)
            still = (index >= first) & (index <= cut)
            found = self.judge(before, _of(other, **inputs), still)
            if found.verdict == "leaks":
                row, i = divmod(int(found.change.argmax()), self.length)
                pair = self.batch[row], other[row]
                j, moved = self.narrow(*pair, i, int(cut[row]), found, before, inputs)
                self.note(probe, "leaks", _named(i, j, moved), moved, (i, j))
                return
            if found.verdict == "cannot tell":
                self.note(probe, "cannot tell", found.note, found.worst)
                return
        self.note(probe, "causal", "no later token moves a prediction" + found.note)

    def narrow(
        self,
        window: Tensor,
        other: Tensor,
        i: int,
        cut: int,
        found: _Judgement,
        before: _Logits,
        inputs: dict[str, Any],
    ) -> tuple[int, float]:
        """One token j > cut whose replacement, with those after it replaced, moves the prediction at i.

        Of the windows that are ``window`` before s and ``other`` from s on, that of s = cut + 1 moves i
        and that of s = T does not. So there is a j such that s = j moves it and s = j + 1 does not. With
        j, by how much.
        """
        size, index = self.batch_size, torch.arange(self.length)
        subject = self.subject.twin if found.in_float64 and self.subject.twin else self.subject
        floor = VANISHES * found.worst if found.in_float64 else max(self.floor, self.rounding)
        base = before(subject) if size == 1 else subject(window.repeat(size, 1), **inputs)
        low, high, moves = cut + 1, self.length, found.worst
        while high - low > 1:
            between = min(size, high - low - 1)
            starts = torch.linspace(low, high, between + 2, dtype=torch.float64)[1:-1].long()
            batch = torch.where(index < starts[:, None], window, other)
            filled = torch.cat([batch, window.repeat(size - between, 1)])
            change = _change(subject(filled, **inputs), base)[:between, i].tolist()
            steps = [(low, moves), *zip(starts.tolist(), change, strict=True), (high, 0.0)]
            last = max(k for k, (_, by) in enumerate(steps) if k == 0 or by > floor)
            (low, moves), high = steps[last], steps[last + 1][0]
        return low, moves

    def in_the_other_mode(self) -> None:
        """A screen in training mode of a model that is in evaluation mode, and the other way round."""
        model = self.subject.model
        if not isinstance(model, nn.Module):
            return
        probe = "evaluation mode" if model.training else "training mode"
        other = copy.copy(self)
        other.batch_size, other.findings = min(PROBE_ROWS, self.batch_size), []
        with _as_it_was(model):
            model.train(not model.training)
            try:
                other.screen(passes=1)
            except InputError as error:
                self.note(probe, "not run", str(error))
                return
        for verdict in ("leaks", "cannot tell", "causal"):
            for found in reversed(other.findings):
                if found.verdict == verdict:
                    detail = found.detail if verdict == "causal" else f"in {probe}, {found.detail}"
                    self.note(probe, verdict, detail, found.change, found.pair)
                    return

    def cut_short(self) -> None:
        """The predictions of shorter inputs: one token fewer, and a multiple of 16 or half of them."""
        for end in {self.length - 1, (self.length - 2) // 16 * 16 or self.length // 2}:
            still = torch.ones((len(self.batch), end), dtype=torch.bool)
            try:
                whole, short = _part(self.before, len(self.batch), end), _of(self.batch[:, :end])
                found = self.judge(whole, short, still, reshaped=True)
            except InputError as error:
                self.note("shorter inputs", "not run", str(error))
                return
            if found.verdict != "causal":
                i = int(found.change.argmax()) % end
                detail = f"the prediction at {i} moves by {found.worst:.2g} when the input ends at {end - 1}"
                self.note("shorter inputs", found.verdict, detail, found.worst)
                return
        self.note("shorter inputs", "causal", "give the same predictions")

    def pad(self) -> None:
        """Suffixes replaced under an attention mask that pads a quarter of the window, left and right."""
        if "attention_mask" in self.subject.inputs or "attention_mask" not in _parameters(self.subject.model):
            return
        pad = max(1, self.length // 4)
        for side, first, end in (("left", pad, self.length), ("right", 0, self.length - pad)):
            mask = torch.zeros((1, self.length), dtype=torch.int64)
            mask[:, first:end] = 1
            try:
                self.replace_suffixes(f"{side} padding", inside=(first, end), attention_mask=mask)
            except InputError as error:
                self.note(f"{side} padding", "not run", str(error))

    def generate(self) -> None:
        """The predictions of a few cached steps after half the window, against those of the whole pass."""
        model = self.subject.model
        if "use_cache" not in _parameters(model) or getattr(model, "training", False) or self.length < 4:
            return
        half = self.length // 2
        end = min(half + 8, self.length)
        window = self.batch[:1]

        def stepwise(subject: _Subject) -> Tensor:
            logits, answer = subject.answer(window[:, :half], use_cache=True)
            found = [logits]
            for t in range(half, end):
                name = next((n for n in CACHES if getattr(answer, n, None) is not None), None)
                if name is None:
                    raise InputError("it keeps no cache")
                given = {name: getattr(answer, name), "use_cache": True}
                logits, answer = subject.answer(window[:, t : t + 1], **given)
                found.append(logits)
            return torch.cat(found, 1)

        still = torch.ones((1, end), dtype=torch.bool)
        try:
            found = self.judge(_part(self.before, 1, end), stepwise, still, reshaped=True)
        except InputError as error:
            self.note("cached generation", "not run", str(error))
            return
        if found.verdict == "causal":
            self.note("cached generation", "causal", "gives the same predictions")
        else:
            i = int(found.change.argmax())
            detail = f"the prediction at {i} differs by {found.worst:.2g} from that of the whole pass"
            self.note("cached generation", "differs", detail, found.worst)


def _rounding(dtype: torch.dtype) -> float:
    """What rounding may do to a logit, as a part of the largest logit."""
    # Half precisions accumulate in float32, so that their logits are off by a few units in the last place.
    return torch.finfo(dtype).eps * (4 if dtype.itemsize <= 2 else 256)


def _change(found: Tensor, base: Tensor) -> Tensor:
    """The largest change of a logit, (B, T) from twice (B, T, V).

    Infinity where a number becomes none or the other way round, NaN where both are NaN or +∞; a symbol
    that stays ruled out, at −∞, has not changed.
    """
    return torch.stack([_row_change(*pair) for pair in zip(found, base, strict=True)])


def _row_change(found: Tensor, base: Tensor) -> Tensor:
    difference = (found - base).abs_()
    change = difference.amax(-1)
    if change.isfinite().all():
        return change
    unknown = (found.isnan() & base.isnan()) | (found.isposinf() & base.isposinf())
    difference = difference.nan_to_num(math.inf, posinf=math.inf).masked_fill(found == base, 0)
    return difference.masked_fill(unknown, math.nan).amax(-1)


def _most(values: Tensor) -> float:
    """The largest, NaN left out."""
    return float(values.nan_to_num(0, posinf=math.inf).max())


def _of(tokens: Tensor, **inputs: Any) -> _Logits:
    return lambda subject: subject(tokens, **inputs)


def _part(logits: _Logits, rows: int, end: int) -> _Logits:
    return lambda subject: logits(subject)[:rows, :end]


def _unsteady(moved: float) -> str:
    return f"non-deterministic: the same input twice moves a logit by {moved:.2g}"


def _named(i: int, j: int, change: float, more: int = 0) -> str:
    text = f"replacing token {j} moves the prediction at {i} by {change:.2g}"
    return f"{text}, and {more} more such pairs" if more else text


def _losses(subject: _Subject, text: Tensor, batch_size: int) -> Losses:
    """Eight targets of each window, from a quarter of it on, with and without what follows them."""
    inputs, targets = text[:, :-1], text[:, 1:]
    length = inputs.shape[1]
    positions = torch.linspace(length // 4, length - 1, 8).long().unique()

    def losses(logits: Tensor, at: Tensor) -> Tensor:
        return F.cross_entropy(logits.cpu().double().flatten(0, 1), at.flatten(), reduction="none").view(
            at.shape
        )

    both = []
    for given, wanted in zip(inputs.split(batch_size), targets[:, positions].split(batch_size), strict=True):
        ordered = losses(subject(given)[:, positions], wanted)
        prefix = torch.cat(
            [
                losses(subject(given[:, : t + 1])[:, -1:], wanted[:, [k]])
                for k, t in enumerate(positions.tolist())
            ],
            1,
        )
        both.append(torch.stack([ordered.mean(1), prefix.mean(1)]))
    ordered, prefix = torch.cat(both, 1)
    error = float((prefix - ordered).std() / len(text) ** 0.5) if len(text) > 1 else math.nan
    return Losses(float(ordered.mean()), float(prefix.mean()), error, len(text))


def _config_value(model: Model, name: str) -> int | None:
    """What a Hugging Face model's configuration says, that of its text part if it has several."""
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "get_text_config"):
        config = config.get_text_config()
    value = getattr(config, name, None)
    return value if isinstance(value, int) else None


def _parameters(model: Model) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters
    except ValueError:  # one that is not written in Python
        return {}


def _seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _modules(model: Model) -> list[nn.Module]:
    return list(model.modules()) if isinstance(model, nn.Module) else []


@contextmanager
def _as_it_was(model: Model) -> Iterator[None]:
    """The generators' states, and a module's modes and buffers, put back at the end."""
    modules = _modules(model)
    modes = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]
    values = [[(b, b.clone()) for b in held.values() if b is not None] for held in buffers]
    numpy_state, python_state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(python_state)
        for module, mode, held, value in zip(modules, modes, buffers, values, strict=True):
            module.training = mode
            if not isinstance(module, torch.jit.ScriptModule):  # which cannot be given others
                module._buffers.clear()
                module._buffers.update(held)
            for buffer, kept in value:
                if not torch.equal(buffer, kept):
                    buffer.copy_(kept)

"""What ``fqk audit`` is pointed at: a trained variant, a Hugging Face folder, or module:attribute."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fqk.audit import Model, default_length
from fqk.corpus import load_corpus, read_text
from fqk.errors import InputError
from fqk.records import load_model, read_record, run_folder
from fqk.variants import VARIANTS, get_variant

WINDOWS = 8


@dataclass(frozen=True)
class Target:
    """A model in evaluation mode, its window, and its token ids of a text, windows (N, T + 1)."""

    model: Model
    windows: Callable[[Path, int], Tensor]
    seq_len: int
    vocab_size: int | None = None


def load(name: str, device: torch.device, results: Path, profile: str, seed: int) -> Target:
    """The model of that name on the device; ``results``, ``profile`` and ``seed`` say which of a variant's.

    Raises:
        InputError: there is none, or it cannot be loaded.
    """
    if name in VARIANTS:
        return _variant(name, device, results, profile, seed)
    if Path(name).is_dir():
        return _folder(name, device)
    if ":" in name:
        return _attribute(name, device)
    get_variant(name)  # raises, with the nearest name
    raise AssertionError


def _variant(name: str, device: torch.device, results: Path, profile: str, seed: int) -> Target:
    model = load_model(results, profile, name, seed).to(device)
    trained_on = read_record(run_folder(results, profile, name, seed) / "record.json").identity

    def windows(path: Path, seq_len: int) -> Tensor:
        corpus = load_corpus(path)
        if trained_on.profile.vocabulary:
            corpus = corpus.in_words(trained_on.profile.vocabulary)
        if corpus.sha256 != trained_on.corpus.sha256:
            raise InputError(f"{path} is not the text that {name} was trained on, {trained_on.corpus.name}")
        return corpus.windows(seq_len, WINDOWS)

    return Target(model, windows, model.profile.context, model.token.num_embeddings)


def _folder(name: str, device: torch.device) -> Target:
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        raise InputError(
            f"{name} is a folder, which transformers would load: pip install transformers"
        ) from None
    try:
        model: nn.Module = AutoModelForCausalLM.from_pretrained(
            name, local_files_only=True, use_safetensors=True
        )
    except Exception as error:  # whatever a damaged folder makes transformers or safetensors raise
        raise InputError(f"{name} holds no causal LM that transformers loads: {_first_line(error)}") from None

    def windows(path: Path, seq_len: int) -> Tensor:
        try:
            tokenizer: Any = AutoTokenizer.from_pretrained(name, local_files_only=True)
        except Exception as error:
            raise InputError(f"{name} holds no tokenizer: {_first_line(error)}") from None
        ids = torch.tensor(tokenizer(read_text(path)).input_ids)
        if len(ids) < seq_len + 1:
            raise InputError(f"{path} is too short: {len(ids)} tokens, {seq_len + 1} are needed")
        starts = torch.linspace(0, len(ids) - seq_len - 1, WINDOWS).long()
        return torch.stack([ids[start : start + seq_len + 1] for start in starts])

    return Target(model.to(device).eval(), windows, default_length(model))


def _attribute(name: str, device: torch.device) -> Target:
    module, _, path = name.partition(":")
    sys.path.insert(0, "")  # as python -m does
    try:
        found: Any = importlib.import_module(module)
        for part in path.removesuffix("()").split("."):
            found = getattr(found, part)
        model = found() if path.endswith("()") else found
    except (Exception, SystemExit) as error:  # a script that ends by itself is no verdict
        raise InputError(f"{name} cannot be loaded: {type(error).__name__}: {_first_line(error)}") from error
    finally:
        sys.path.remove("")
    if not callable(model):
        raise InputError(
            f"{name} is not a torch module or a function of token ids, but {type(model).__name__}"
        )

    def windows(path: Path, seq_len: int) -> Tensor:
        raise InputError(f"{name} has no tokenizer for --text; use fqk.audit.audit(…, text=token ids)")

    model = model.to(device).eval() if isinstance(model, nn.Module) else model
    return Target(model, windows, default_length(model))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")

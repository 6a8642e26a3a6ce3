"""Which public small language models with unusual mixers read their own future?

Builds each at a small random configuration from a folder of checkouts, audits it as the census does, at a
length that is not a multiple of its blocks and at one that is, and writes ``census/public.json``. None of
their code is in this repository.

    python census/public.py FOLDER                  # all that the file does not hold yet
    python census/public.py FOLDER nanoGPT Mega     # these, again
    python census/page.py                           # book/census.md from the files

FOLDER holds a clone of each repository of ``MODELS`` under the repository's own name (that of
github.com/karpathy/nanoGPT is FOLDER/nanoGPT), at the commit that ``census/public.json`` names. Besides
torch they need: einops, scipy, tqdm, beartype, local-attention, axial-positional-embedding, linformer,
mixture-of-experts and product-key-memory<0.2.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from rows import LENGTH, VOCABULARY, Row, audited, not_built, tabulate
from torch import Tensor, nn

FILE = Path(__file__).parent / "public.json"
BLOCK, WIDTH, HEADS, HEAD_WIDTH, LAYERS, MOST = 8, 32, 4, 8, 2, 128
WHOLE_BLOCKS = 40  # the length at which no block is cut


class Returned(nn.Module):
    """A model whose logits are one of several things that it answers, or need an argument besides the ids."""

    def __init__(self, model: nn.Module, logits: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.logits = model, logits

    def forward(self, ids: Tensor) -> Tensor:
        return self.logits(self.model, ids)


class Stacked(nn.Module):
    """A language model of a mixer that its authors publish alone: (B, T, C) → (B, T, C)."""

    def __init__(self, mixer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.mixers = nn.ModuleList(mixer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for mixer in self.mixers:
            x = x + mixer(F.layer_norm(x, (WIDTH,)))
        return self.head(x)


def nanogpt(fused: bool) -> nn.Module:
    module = importlib.import_module("model")
    config = module.GPTConfig(
        block_size=MOST, vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, dropout=0.1
    )
    functions = dict(vars(F))
    if not fused:  # it looks whether torch has the function, and keeps to its own mask if not
        del functions["scaled_dot_product_attention"]
    with mock.patch.dict(vars(F), functions, clear=True):
        model = module.GPT(config)
    return Returned(model, lambda gpt, ids: gpt(ids, ids.contiguous())[0])  # all, if given targets


def mamba() -> nn.Module:
    module = importlib.import_module("model")
    return module.Mamba(module.ModelArgs(d_model=WIDTH, n_layer=LAYERS, vocab_size=VOCABULARY, d_state=8))


def mamba2() -> nn.Module:
    module = importlib.import_module("mamba2")
    config = module.Mamba2Config(
        d_model=WIDTH, n_layer=LAYERS, d_state=8, headdim=HEAD_WIDTH, chunk_size=BLOCK, vocab_size=VOCABULARY
    )
    model = module.Mamba2LMHeadModel(config)
    for p in model.parameters():  # some are left as the memory was
        nn.init.normal_(p, std=0.2)
    return Returned(model, lambda mamba, ids: mamba(ids)[0])


def rwkv() -> nn.Module:
    module = importlib.import_module("src.model")
    config = module.GPTConfig(
        VOCABULARY,
        MOST,
        model_type="RWKV",
        n_layer=LAYERS,
        n_head=HEADS,
        n_embd=WIDTH,
        n_attn=WIDTH,
        n_ffn=WIDTH,
        rwkv_emb_scale=0.4,
    )
    return module.GPT(config)


def hyena(padded: bool) -> nn.Module:
    module = importlib.import_module("standalone_hyena")
    if not padded:
        module.fftconv = circular
    return Stacked(lambda: module.HyenaOperator(WIDTH, MOST, filter_order=16))


def circular(u: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    """Ours: the convolution by an FFT that is no longer than the input, so that its end wraps around."""
    n = u.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n) + u * bias.unsqueeze(-1)


def mega(**options: Any) -> nn.Module:
    module = importlib.import_module("mega_pytorch")
    return module.Mega(
        num_tokens=VOCABULARY,
        dim=WIDTH,
        depth=LAYERS,
        ema_heads=HEADS,
        attn_dim_qk=HEAD_WIDTH,
        attn_dim_value=WIDTH,
        **options,
    )


def gated_state_spaces() -> nn.Module:
    module = importlib.import_module("gated_state_spaces_pytorch")
    return module.GatedStateSpacesLM(
        num_tokens=VOCABULARY, dim=WIDTH, depth=LAYERS, dss_kernel_N=16, dss_kernel_H=16
    )


def megabyte() -> nn.Module:
    module = importlib.import_module("MEGABYTE_pytorch")
    return module.MEGABYTE(
        num_tokens=VOCABULARY,
        dim=(WIDTH, WIDTH),
        depth=(LAYERS, LAYERS),
        max_seq_len=(MOST // BLOCK, BLOCK),
        dim_head=HEAD_WIDTH,
        heads=HEADS,
    )


def lucidrains(package: str, name: str, **options: Any) -> nn.Module:
    """One of three libraries whose classes take the same arguments."""
    cls = getattr(importlib.import_module(package), name)
    common = {"dim": WIDTH, "depth": LAYERS, "heads": HEADS, "dim_head": HEAD_WIDTH, "max_seq_len": MOST}
    return cls(num_tokens=VOCABULARY, **common, **options)


performer = partial(lucidrains, "performer_pytorch", "PerformerLM")
linear = partial(lucidrains, "linear_attention_transformer", "LinearAttentionTransformerLM")


def routing() -> nn.Module:
    model = lucidrains(
        "routing_transformer", "RoutingTransformerLM", causal=True, window_size=BLOCK, n_local_attn_heads=0
    )
    model(torch.randint(VOCABULARY, (4, MOST)))  # the first input that it sees becomes its clusters' means
    return Returned(model, lambda routed, ids: routed(ids)[0])


# name: repository, mixer, how it is built; the options are in the name where they are not the default ones
MODELS: dict[str, tuple[str, str, Callable[[], nn.Module]]] = {
    "nanoGPT": ("karpathy/nanoGPT", "softmax attention, fused", partial(nanogpt, True)),
    "nanoGPT, its own mask": ("karpathy/nanoGPT", "softmax attention", partial(nanogpt, False)),
    "mamba-minimal": ("johnma2006/mamba-minimal", "selective state space, step by step", mamba),
    "mamba2-minimal": ("tommyip/mamba2-minimal", "state space by chunks", mamba2),
    "Gated State Spaces": ("lucidrains/gated-state-spaces-pytorch", "state space by FFT", gated_state_spaces),
    "RWKV-v1": ("BlinkDL/RWKV-LM", "linear attention with a decay", rwkv),
    "Linear Attention": ("lucidrains/linear-attention-transformer", "linear attention", linear),
    "Linear Attention, causal": (
        "lucidrains/linear-attention-transformer",
        "linear attention by cumulative sums",
        partial(linear, causal=True),
    ),
    "Linear Attention, causal, a blind spot of 8": (
        "lucidrains/linear-attention-transformer",
        "linear attention by blocks",
        partial(linear, causal=True, blindspot_size=BLOCK),
    ),
    "Performer": ("lucidrains/performer-pytorch", "linear attention by random features", performer),
    "Performer, causal": (
        "lucidrains/performer-pytorch",
        "linear attention by random features",
        partial(performer, causal=True),
    ),
    "Performer, causal, generalized": (
        "lucidrains/performer-pytorch",
        "linear attention by random features under ReLU",
        partial(performer, causal=True, generalized_attention=True),
    ),
    "Hyena": ("HazyResearch/safari", "gated long convolution by FFT", partial(hyena, True)),
    "Hyena, no padding (our change)": (
        "HazyResearch/safari",
        "gated circular convolution by FFT",
        partial(hyena, False),
    ),
    "Mega": ("lucidrains/Mega-pytorch", "moving averages by FFT, and attention", mega),
    "Mega, norm_mhesa_heads": (
        "lucidrains/Mega-pytorch",
        "moving averages by FFT, and attention",
        partial(mega, norm_mhesa_heads=True),
    ),
    "Mega, laplacian_attn_fn": (
        "lucidrains/Mega-pytorch",
        "moving averages by FFT, and attention",
        partial(mega, laplacian_attn_fn=True),
    ),
    "MEGABYTE": ("lucidrains/MEGABYTE-pytorch", "attention over patches and within them", megabyte),
    "Routing Transformer, causal": ("lucidrains/routing-transformer", "attention within clusters", routing),
}


def examine(folder: Path, name: str) -> Row:
    """The row of one model: that of LENGTH, or of WHOLE_BLOCKS if it takes or shows nothing at LENGTH."""
    repository, mixer, build = MODELS[name]
    checkout = folder / repository.split("/")[1]
    sys.path[:0] = [str(checkout), str(checkout / "RWKV-v1")]
    try:
        head = subprocess.run(
            ["git", "-C", checkout, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        )
        torch.manual_seed(0)
        model = build().eval()
        with torch.no_grad():
            for p in model.parameters():  # weights that begin at 0, or close to it, would hide what they read
                p.add_(torch.randn_like(p), alpha=0.1)
    except Exception as error:  # whatever a checkout that is missing, or not what it was, raises
        return {"repository": repository, "mixer": mixer} | not_built(error)
    cut, whole = (audited(model, length) for length in (LENGTH, WHOLE_BLOCKS))
    verdicts = {str(LENGTH): cut["verdict"], str(WHOLE_BLOCKS): whole["verdict"]}
    better = whole["verdict"] == "leaks" or cut["verdict"] == "not run"
    chosen = whole if better and cut["verdict"] != "leaks" else cut
    about = {"repository": repository, "commit": head.stdout.strip(), "mixer": mixer, "lengths": verdicts}
    return about | chosen


def main(folder: str, *chosen: str) -> None:
    held = json.loads(FILE.read_text()) if FILE.exists() else {}
    names = chosen or [name for name in MODELS if name not in held]
    tabulate(FILE, partial(examine, Path(folder)), names)


if __name__ == "__main__":
    main(*sys.argv[1:])

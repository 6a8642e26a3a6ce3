"""The book's page of the census, from the files that ``census.py`` and ``public.py`` left."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# What was looked into: why a class leaks, where it says so itself.
WHY = {
    "CpmAntForCausalLM": "by design: all of the input is a prefix that attends both ways (`context` is 1 "
    "everywhere in its `forward`)",
    "DeepseekV4ForCausalLM": "by a tie, and the input's length, not by any token: the indexer's scores pass "
    "a ReLU, many are exactly 0, and which of equal blocks `topk` returns depends on how many there are; "
    "with ties broken in order, the predictions agree",
    "ProphetNetForCausalLM": "a bug, see below",
    "ReformerModelWithLMHead": "by design: LSH attention sorts all positions into chunks, so that later "
    "tokens decide what an earlier one may attend to; with local attention alone, or one chunk, it is causal",
    "XLMWithLMHeadModel": "by a switch: `causal=False` is the default; with `causal=True` it is causal",
    "XLNetLMHeadModel": 'by design: `attn_type="bi"` is the default; with `"uni"` it is causal',
    "Hyena, no padding (our change)": "by our change: with the FFT as long as the input its end wraps around "
    "to the beginning; the authors pad to twice the length, and theirs is causal",
    "Linear Attention": "by a switch: `causal=False` is the default; with `causal=True` it is causal",
    "Mega, laplacian_attn_fn": "by a switch, off by default and on in the README's full Mega: scores are "
    "divided by the length of the input, so that a prediction changes with how many tokens follow it, but "
    "not with which",
    "Mega, norm_mhesa_heads": "a bug under a switch that is off by default, see below",
    "Performer": "by a switch: `causal=False` is the default; for `causal=True` see the next",
    "Performer, causal": "a bug, see below",
    "Routing Transformer, causal": "by design: each cluster takes the positions nearest to it from the whole "
    "input, so that later tokens decide whether an earlier one is among them; the mask orders only those "
    "that are",
}

BUG = """## A bug: ProphetNet

Each stream's bias for relative positions is computed from hidden states with axes (batch, position, stream,
head) and then read as (batch, stream, head, position), so that a prediction takes the bias of another
position, later ones included. In `get_predict_relative_pos_embeddings`, `permute(0, 2, 1, 4, 3)` should be
`permute(0, 1, 4, 2, 3)`: with that, the audit finds the model causal, and its cached steps agree with the
whole pass. We found no report of it.

```python
import torch
from fqk.audit import audit
from transformers import ProphetNetConfig, ProphetNetForCausalLM

torch.manual_seed(0)
config = ProphetNetConfig(
    vocab_size=99,
    hidden_size=32,
    num_decoder_layers=2,
    num_decoder_attention_heads=4,
    decoder_ffn_dim=64,
    init_std=0.5,
    is_decoder=True,
    add_cross_attention=False,
)
print(audit(ProphetNetForCausalLM(config).eval(), vocab_size=99, seq_len=37))
# leaks (replacing token 1 moves the prediction at 0 by 0.68, and 97 more such pairs)
```
"""

PUBLIC_BUGS = """Two are bugs. Performer's features of the keys are exp(x − m) + ε with m the largest x
over *all* positions. Without the ε of 1e-4, m would cancel; with it, a later key changes how much the ε
weighs. The leak is small; it is known from a difference between long and short inputs
([issue 82](https://github.com/lucidrains/performer-pytorch/issues/82)). With m taken out the audit finds the
model causal, and with `generalized_attention=True` there is no m.

```python
import torch
from fqk.audit import audit
from performer_pytorch import PerformerLM  # github.com/lucidrains/performer-pytorch

torch.manual_seed(0)
model = PerformerLM(num_tokens=99, max_seq_len=64, dim=32, depth=2, heads=4, dim_head=8, causal=True)
print(audit(model.eval(), vocab_size=99, seq_len=37, dtype=torch.float64))
# leaks (replacing token 1 moves the prediction at 0 by 1.6e-06, and 476 more such pairs)
```

Mega's `norm_mhesa_heads` puts the averages of each head through `GroupNorm` with the positions as its last
axis, so that mean and variance are those of the whole input. With each position normalised by itself the
audit finds the model causal. We found no report of it.

```python
import torch
from fqk.audit import audit
from mega_pytorch import Mega  # github.com/lucidrains/Mega-pytorch

torch.manual_seed(0)
model = Mega(num_tokens=99, dim=32, depth=2, ema_heads=4, norm_mhesa_heads=True)
print(audit(model.eval(), vocab_size=99, seq_len=37))
# leaks (replacing token 1 moves the prediction at 0 by 0.052, and 665 more such pairs)
```
"""


def page() -> str:
    """The book's page of the census, from the files of all versions."""
    files = {
        tuple(map(int, file.stem.removeprefix("transformers-").split("."))): json.loads(file.read_text())
        for file in HERE.glob("transformers-*.json")
    }
    public = json.loads((HERE / "public.json").read_text())
    versions = {".".join(map(str, number)): files[number] for number in sorted(files)}
    version, rows = list(versions.items())[-1]
    of: dict[str, list[str]] = {}
    for name, row in rows.items():
        of.setdefault(row["verdict"], []).append(name)
    audited = sum(len(of.get(verdict, [])) for verdict in ("causal", "leaks", "cannot tell"))
    lines = [
        "# A census of causal language models",
        "",
        f"Each class in the causal-LM mapping of transformers {version}, built small and random (vocabulary "
        f"99, blocks and windows of 8) and audited at T = 37: every pair, training mode, "
        "shorter inputs, padding, batch neighbours, cached generation. Where the configuration has a sliding "
        "window, a second time without. `census/census.py` makes this page.",
        "",
        f"Of {len(rows)} entries, {audited} were audited: {len(of.get('causal', []))} are causal, "
        f"{len(of.get('leaks', []))} leak as they are configured, of "
        f"{len(of.get('cannot tell', []))} the audit cannot tell. A small random model with one default "
        "attention backend on one CPU says nothing of other backends, configurations and lengths.",
        "",
        "## What leaks, and why",
        "",
        "| class | first leak | lags | why |",
        "|---|---|---|---|",
        *(
            f"| `{name}` | {_first(rows[name])} | {_lags(rows[name])} | {_why(name, rows[name])} |"
            for name in of.get("leaks", [])
        ),
        "",
        BUG,
        "## What was reported and mended",
        "",
        "| class | version | configuration | verdict |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {number} | {CONFIGURATIONS[key]} | {verdict} |"
        for name in sorted({name for held in list(versions.values())[:-1] for name in held})
        for key, verdicts in [
            _as_reported({number: held[name] for number, held in versions.items() if name in held})
        ]
        for number, verdict in verdicts.items()
    ]
    lines += ["", REPORTED, "", "## Cached steps that differ from the whole pass", ""]
    differ = {n: r["details"]["cached generation"] for n, r in rows.items() if _differs(r)}
    lines += [
        "No leak, but a prediction that depends on how it is computed.",
        "",
    ]
    lines += ["| class | what differs |", "|---|---|", *(f"| `{n}` | {d} |" for n, d in differ.items()), ""]
    lines += _outside(public)
    for verdict, title in (("cannot tell", "Not told"), ("not run", "Not run"), ("not built", "Not built")):
        if names := of.get(verdict):
            lines += [f"## {title}", "", "| class | why |", "|---|---|"]
            lines += [f"| `{name}` | {_cell(rows[name]['reason'])} |" for name in names] + [""]
    lines += [
        "## Causal",
        "",
        ", ".join(f"`{name.split(' ')[0]}`" for name in of.get("causal", [])) + ".",
        "",
    ]
    return "\n".join(lines)


REPORTED = (
    "The four encoders as decoders: [issue 48745](https://github.com/huggingface/transformers/issues/48745), "
    "from 5.9 on, mended by [48760](https://github.com/huggingface/transformers/pull/48760). Doge under its "
    "default attention: [issue 48748](https://github.com/huggingface/transformers/issues/48748), mended by "
    "[48821](https://github.com/huggingface/transformers/pull/48821); it hides as long as a window makes the "
    "model build its mask, which is why the census looks twice. The recurrence over chunks of Zamba2 and "
    "Nemotron-H: [issue 47475](https://github.com/huggingface/transformers/issues/47475) and "
    "[47246](https://github.com/huggingface/transformers/issues/47246). DeepSeek V4's summaries of blocks, "
    "which every position could attend to, later blocks included: "
    "[issue 45820](https://github.com/huggingface/transformers/issues/45820) and "
    "[45758](https://github.com/huggingface/transformers/issues/45758), mended by "
    "[45892](https://github.com/huggingface/transformers/pull/45892), a matter of 5.8.0 alone."
)


CONFIGURATIONS = {
    "as_decoder": "`is_decoder=True`",
    "without_window": "no sliding window",
    "verdict": "as built",
}


def _as_reported(rows: dict[str, dict[str, Any]]) -> tuple[str, dict[str, str]]:
    """The configuration in which a leak was reported in some version, and the verdict of each version."""
    key = next(k for k in CONFIGURATIONS if any(row.get(k, "").startswith("leaks") for row in rows.values()))
    return key, {number: _verdict(row, key) for number, row in rows.items()}


def _verdict(row: dict[str, Any], key: str) -> str:
    verdict = row[key].split(":")[0]
    by_length = (key, verdict) == ("verdict", "leaks") and not row["first_leak"]
    return "leaks by the input's length only, see above" if by_length else verdict


def _first(row: dict[str, Any]) -> str:
    return "{} reads {}".format(*row["first_leak"]) if row.get("first_leak") else "–"


def _lags(row: dict[str, Any]) -> str:
    lags = [h for h, change in enumerate(row["lag_profile"], 1) if change > 0 and row["first_leak"]]
    return f"{lags[0]}–{lags[-1]}" if lags else "–"


def _why(name: str, row: dict[str, Any]) -> str:
    if row.get("as_decoder"):
        return f"by a switch: an encoder unless `is_decoder=True`, then {_cell(row['as_decoder'])}"
    return WHY.get(name) or WHY.get(name.split(" ")[0], _cell(row["reason"]))


def _outside(public: dict[str, dict[str, Any]]) -> list[str]:
    """The section on models outside transformers."""
    repositories = {row["repository"]: row["commit"] for row in public.values()}
    links = ", ".join(
        f"[{repository}](https://github.com/{repository}) at {commit[:7]}"
        for repository, commit in sorted(repositories.items(), key=lambda pair: pair[0].lower())
    )
    return [
        "## Models outside transformers",
        "",
        f"{len(public)} configurations of {len(repositories)} public repositories, two layers of width 32 "
        "with noise of 0.1 on all weights (some begin at 0, where they would hide what they read), at "
        "T = 37, which cuts their blocks of 8, and at T = 40, which does not. `census/public.py` says how to "
        f"run it again, on {links}.",
        "",
        "| model | mixer | T = 37 | T = 40 | first leak | lags |",
        "|---|---|---|---|---|---|",
        *(
            f"| {' | '.join([name, row['mixer'], *row['lengths'].values(), _first(row), _lags(row)])} |"
            for name, row in public.items()
        ),
        "",
        "Not run at 37 are those that ask for whole blocks. What leaks, and why:",
        "",
        *(f"- {name}: {_why(name, row)}." for name, row in public.items() if row["verdict"] == "leaks"),
        "",
        PUBLIC_BUGS,
    ]


def _differs(row: dict[str, Any]) -> bool:
    return row.get("findings", {}).get("cached generation") == "differs"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:160]


if __name__ == "__main__":
    (HERE.parent / "book/census.md").write_text(page())

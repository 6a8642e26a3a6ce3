"""The book's page of the census, from the files that ``census.py`` left."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

# What was looked into: why a class leaks, where it says so itself.
WHY = {
    "CpmAntForCausalLM": "by design: all of the input is a prefix that attends both ways (`context` is 1 "
    "everywhere in its `forward`)",
    "ProphetNetForCausalLM": "a bug, see below",
    "ReformerModelWithLMHead": "by design: LSH attention sorts all positions into chunks, so that later "
    "tokens decide what an earlier one may attend to; with local attention alone, or one chunk, it is causal",
    "XLMWithLMHeadModel": "by a switch: `causal=False` is the default; with `causal=True` it is causal",
    "XLNetLMHeadModel": 'by design: `attn_type="bi"` is the default; with `"uni"` it is causal',
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


def page() -> str:
    """The book's page of the census, from the files of all versions."""
    files = {
        tuple(map(int, file.stem.removeprefix("transformers-").split("."))): json.loads(file.read_text())
        for file in HERE.glob("transformers-*.json")
    }
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
        f"| `{name}` | {number} | {' | '.join(_as_reported(held[name]))} |"
        for name in sorted({name for held in list(versions.values())[:-1] for name in held})
        for number, held in versions.items()
        if name in held
    ]
    lines += ["", REPORTED, "", "## Cached steps that differ from the whole pass", ""]
    differ = {n: r["details"]["cached generation"] for n, r in rows.items() if _differs(r)}
    lines += [
        "No leak, but a prediction that depends on how it is computed; a difference of 0.001 or less may be "
        "rounding in a module that keeps to float32.",
        "",
    ]
    lines += ["| class | what differs |", "|---|---|", *(f"| `{n}` | {d} |" for n, d in differ.items()), ""]
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
    "model build its mask, which is why the census looks twice. Zamba2's recurrence over chunks: "
    "[issue 47475](https://github.com/huggingface/transformers/issues/47475)."
)


def _as_reported(row: dict[str, Any]) -> tuple[str, str]:
    """The configuration in which a leak was reported, and its verdict."""
    for key, configuration in (("as_decoder", "`is_decoder=True`"), ("without_window", "no sliding window")):
        if key in row:
            return configuration, row[key].split(":")[0]
    return "as built", row["verdict"]


def _first(row: dict[str, Any]) -> str:
    return "{} reads {}".format(*row["first_leak"]) if row.get("first_leak") else "–"


def _lags(row: dict[str, Any]) -> str:
    lags = [h for h, change in enumerate(row["lag_profile"], 1) if change > 0]
    return f"{lags[0]}–{lags[-1]}" if lags else "–"


def _why(name: str, row: dict[str, Any]) -> str:
    if row.get("as_decoder"):
        return f"by a switch: an encoder unless `is_decoder=True`, then {_cell(row['as_decoder'])}"
    return WHY.get(name.split(" ")[0], _cell(row["reason"]))


def _differs(row: dict[str, Any]) -> bool:
    return row.get("findings", {}).get("cached generation") == "differs"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")[:160]


if __name__ == "__main__":
    (HERE.parent / "book/census.md").write_text(page())

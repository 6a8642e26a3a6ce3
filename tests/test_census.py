import json
import os
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

CENSUS = Path(__file__).parents[1] / "census"
sys.path.insert(0, str(CENSUS))

import page  # noqa: E402
import rows  # noqa: E402

AUDITED = ("causal", "leaks", "cannot tell")
FILES = {file.stem: json.loads(file.read_text()) for file in CENSUS.glob("*.json")}
NEWEST = max((n for n in FILES if n != "public"), key=lambda n: [int(k) for k in n.split("-")[1].split(".")])


class Mean(nn.Module):
    """A language model that adds the mean over all positions, or over those so far."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.embedding = nn.Embedding(rows.VOCABULARY, 8)
        self.head = nn.Linear(8, rows.VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        counts = torch.arange(1, ids.shape[1] + 1)[:, None]
        return self.head(x + (x.cumsum(1) / counts if self.causal else x.mean(1, keepdim=True)))


def test_a_model_is_audited_in_a_process_of_its_own():
    ours = os.getpid()

    def examine(name):
        assert os.getpid() != ours
        return rows.audited(Mean(causal=name == "causal").eval())

    row = rows.in_a_process(examine, "causal")
    assert (row["verdict"], row["first_leak"], row["lag_profile"], row["details"]) == ("causal", None, [], {})
    row = rows.in_a_process(examine, "mean")
    assert (row["verdict"], row["first_leak"]) == ("leaks", (0, 1))
    assert len(row["lag_profile"]) == rows.LENGTH - 1
    assert "shorter inputs" in row["details"]


def test_a_process_that_does_not_answer_is_ended(monkeypatch):
    monkeypatch.setattr(rows, "SECONDS", 0.5)
    start = time.perf_counter()
    row = rows.in_a_process(lambda name: time.sleep(60), "asleep")
    assert row == {"verdict": "not run", "reason": "no answer within 0.5 s"}
    assert time.perf_counter() - start < 30


@pytest.mark.parametrize("crash", [lambda name: os._exit(3), lambda name: 1 / 0])
def test_a_process_that_dies_is_a_row(crash):
    assert rows.in_a_process(crash, "dead") == {"verdict": "not run", "reason": "the process died"}


def test_a_model_that_cannot_be_run_is_a_row():
    row = rows.audited(nn.Embedding(3, 8))
    assert row["verdict"] == "not run"
    assert "index out of range" in row["reason"]


def test_rows_are_kept_in_a_file_that_goes_on(tmp_path):
    file = tmp_path / "census.json"
    rows.tabulate(file, lambda name: {"verdict": "causal", "reason": "b"}, ["b"])
    rows.tabulate(file, lambda name: {"verdict": "leaks", "reason": name}, ["c", "a"])
    held = json.loads(file.read_text())
    assert [(name, row["verdict"]) for name, row in held.items()] == [
        ("a", "leaks"),
        ("b", "causal"),
        ("c", "leaks"),
    ]


def test_classes_of_transformers_are_built_and_audited(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    import census

    monkeypatch.setattr(census, "FILE", tmp_path / "census.json")
    monkeypatch.setitem(census.SPECIAL, "gptj", {"n_head": 5})  # 32 is not a multiple of 5
    census.main(["GPT2LMHeadModel", "bert", "GPTJForCausalLM", "mamba"])
    held = json.loads(census.FILE.read_text())
    assert {name: row["verdict"] for name, row in held.items()} == {
        "BertLMHeadModel (bert)": "leaks",
        "GPT2LMHeadModel (gpt2)": "causal",
        "GPT2LMHeadModel (gpt-sw3)": "causal",
        "GPTJForCausalLM (gptj)": "not built",
        "MambaForCausalLM (mamba)": "causal",
    }
    assert held["BertLMHeadModel (bert)"]["as_decoder"] == "causal"
    assert held["GPT2LMHeadModel (gpt2)"]["findings"]["cached generation"] == "causal"
    assert held["GPTJForCausalLM (gptj)"]["reason"].startswith("ValueError")


def test_a_checkout_that_is_missing_is_a_row(tmp_path):
    import public

    row = public.examine(tmp_path, "nanoGPT")
    assert (row["repository"], row["verdict"]) == ("karpathy/nanoGPT", "not built")
    assert set(FILES["public"]) == set(public.MODELS)
    for name, (repository, mixer, _) in public.MODELS.items():
        assert (FILES["public"][name]["repository"], FILES["public"][name]["mixer"]) == (repository, mixer)


def test_the_page_is_that_of_the_files():
    assert (CENSUS.parent / "book/census.md").read_text() == page.page()


def test_the_page_counts_what_the_file_holds():
    verdicts = [row["verdict"] for row in FILES[NEWEST].values()]
    audited = sum(verdict in AUDITED for verdict in verdicts)
    assert audited >= 140
    counts = [f"Of {len(verdicts)} entries, {audited} were audited: {verdicts.count('causal')} are causal"]
    counts += [f"{verdicts.count('leaks')} leak as they are configured"]
    text = page.page()
    assert NEWEST.replace("-", " ") in text
    for count in counts:
        assert count in text
    leaking = text.split("## What leaks, and why")[1].split("##")[0]
    assert leaking.count("\n| `") == verdicts.count("leaks")


@pytest.mark.parametrize(
    ("name", "row"),
    [(n, r) for file in (NEWEST, "public") for n, r in FILES[file].items() if r["verdict"] == "leaks"],
)
def test_every_leak_is_looked_into(name, row):
    why = page._why(name, row)
    assert why.startswith(("by design", "by a switch", "a bug", "by our change", "by a tie"))
    if row.get("as_decoder"):
        assert why.endswith("then causal")


def test_the_reported_leaks_are_found_and_gone():
    for name in {name for file in FILES.values() for name in file}:
        found = {
            version: row[key].startswith("leaks")
            for version, file in FILES.items()
            if version not in ("public", NEWEST) and (row := file.get(name))
            for key in ("verdict", "as_decoder", "without_window")
            if key in row
        }
        if found:
            assert any(found.values()), name
            newest = FILES[NEWEST][name]
            assert newest.get("as_decoder") == "causal" or not newest["first_leak"]

"""The command line as a user meets it: what it prints, and one sentence for bad input."""

import json
import sys
from pathlib import Path

import pytest

from fqk.cli import app, main
from fqk.variants import VARIANTS


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("To be, or not to be, that is the question. " * 60)
    return path


class Ran:
    """What a command printed, and its exit status."""

    def __init__(self, status: object, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def fqk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["fqk", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return Ran(stop.value.code or 0, *capsys.readouterr())

    return run


def test_variants_lists_the_registry(fqk) -> None:
    rows = json.loads(fqk("variants", "--json").out)
    assert len(rows) >= 18
    assert {row["name"]: row["paper"] for row in rows}["multifourier-qk"] == 0.309
    table = fqk("variants").out.splitlines()
    assert [line.split()[0] for line in table] == list(VARIANTS)


def test_train_then_report_then_audit(fqk, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    for variant in ("base-dot", "fourier-qk"):
        ran = fqk("train", variant, "--profile", "smoke", "--corpus", text, "--out", out)
        assert ran.status == 0
        assert ran.out.startswith(f"{variant}: ")
    report = json.loads(fqk("report", "--profile", "smoke", "--out", out, "--json").out)["smoke"]["losses"]
    assert report["base-dot"]["causal"] is True
    assert report["fourier-qk"]["causal"] is False
    assert report["fourier-qk"]["paper"] == 0.608
    record = json.loads((out / "smoke/base-dot/seed0/record.json").read_text())
    assert report["base-dot"]["ordered"] == pytest.approx(record["losses"]["ordered"]["mean"])
    table = fqk("report", "--profile", "smoke", "--out", out)
    assert "fourier-qk" in table.out
    assert "not recorded: random-qk" in table.err

    same = fqk("report", "--profile", "smoke", "--out", out, "--compare", out)
    assert (same.status, "fourier-qk seed 0" in same.out) == (0, True)
    moved = tmp_path / "moved/smoke/base-dot/seed0"
    moved.mkdir(parents=True)
    record["losses"]["ordered"]["mean"] += 0.06
    (moved / "record.json").write_text(json.dumps(record))
    assert fqk("report", "--profile", "smoke", "--out", out, "--compare", tmp_path / "moved").status == 1

    claims = json.loads(fqk("claims", "--profile", "smoke", "--out", out, "--json").out)
    assert [claim["id"] for claim in claims] == [f"C{number}" for number in range(15)]
    assert {claim["outcome"] for claim in claims} == {"cannot be decided here"}
    assert "C3   CANNOT BE DECIDED HERE" in fqk("claims", "--profile", "smoke", "--out", out).out
    assert claims[1]["missing"] == "base-dot at smoke, seed 1, 2"

    causal = fqk("audit", "base-dot", "--profile", "smoke", "--out", out)
    assert (causal.status, causal.out.startswith("base-dot: causal")) == (0, True)
    page = tmp_path / "map.html"
    given = ["--profile", "smoke", "--out", out, "--text", text, "--json", "--html", page]
    leaks = fqk("audit", "fourier-qk", *given)
    assert leaks.status == 1
    found = json.loads(leaks.out)
    assert found["first_leak"] == [1, 2]
    assert found["losses"]["windows"] == 4  # the short text has no more
    assert "fourier-qk: leaks" in page.read_text()
    other = tmp_path / "other.txt"
    other.write_text(text.read_text()[::-1])
    wrong = fqk("audit", "fourier-qk", "--profile", "smoke", "--out", out, "--text", other)
    assert (wrong.status, "is not the text that fourier-qk was trained on" in wrong.err) == (2, True)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of models in the working folder."""
    (tmp_path / "models_to_audit.py").write_text(
        "import torch\n"
        "from torch.nn.functional import one_hot\n"
        "def causal(tokens): return one_hot(tokens, 9).cumsum(1).double()\n"
        "def leaks(tokens): return one_hot(tokens, 9).flip(1).double()\n"
        "def noisy(tokens): return causal(tokens) + torch.rand(1, generator=own)\n"
        "def build(): return leaks\n"
        "class Breaks(torch.nn.Module):\n"
        "    def to(self, device): raise RuntimeError('no memory')\n"
        "own = torch.Generator()\n"
        "number = 3\n"
    )
    (tmp_path / "script_that_ends.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "models_to_audit", raising=False)


@pytest.mark.parametrize(
    ("name", "status", "begins"),
    [
        ("causal", 0, "causal ("),
        ("leaks", 1, "leaks (replacing token 7 moves the prediction at 0"),
        ("build()", 1, "leaks ("),
        ("noisy", 2, "cannot tell (non-deterministic"),
    ],
)
def test_any_callable_is_audited_by_name(fqk, models: None, name: str, status: int, begins: str) -> None:
    for depth in ((), ("--screen",)):
        ran = fqk("audit", f"models_to_audit:{name}", "--vocab-size", 9, "--seq-len", 8, *depth)
        assert ran.status == status
        assert depth or ran.out.startswith(f"models_to_audit:{name}: {begins}")
        assert ran.out.startswith(f"models_to_audit:{name}: {begins.split(' (')[0]}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["models_to_audit:missing"], "cannot be loaded: AttributeError"),
        (["no_such_module:model"], "cannot be loaded: ModuleNotFoundError"),
        (["script_that_ends:model"], "cannot be loaded: SystemExit: 0"),
        (["models_to_audit:number"], "is not a torch module or a function of token ids, but int"),
        (["models_to_audit:causal"], "vocab_size is None"),
        (["models_to_audit:causal", "--vocab-size", "20", "--text", "t"], "has no tokenizer for --text"),
        (
            ["models_to_audit:causal", "--vocab-size", "9", "--html", "no/page.html"],
            "page.html cannot be written",
        ),
        (["models_to_audit:build", "--vocab-size", "20"], "the model fails on ids of shape (32, 64)"),
        (["."], "holds no causal LM that transformers loads"),
        (["multifourier"], "did you mean multifourier-qk"),
    ],
)
def test_a_model_that_cannot_be_audited_is_one_sentence(
    fqk, models: None, arguments: list[str], sentence: str
) -> None:
    ran = fqk("audit", *arguments)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert sentence in ran.err


def test_what_breaks_is_no_verdict(fqk, models: None) -> None:
    ran = fqk("audit", "models_to_audit:Breaks()", "--vocab-size", 9)
    assert (ran.status, "RuntimeError: no memory" in ran.err) == (2, True)


def test_a_hugging_face_folder_is_audited(fqk, tmp_path: Path) -> None:
    from transformers import BertConfig, BertLMHeadModel

    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    for decodes in (True, False):
        config = BertConfig(
            **shape, vocab_size=50, is_decoder=decodes, initializer_range=0.2, max_position_embeddings=20
        )
        BertLMHeadModel(config).save_pretrained(tmp_path / "model")
        ran = fqk("audit", tmp_path / "model", "--seq-len", 12)
        assert ran.status == int(not decodes)
    text = tmp_path / "text.txt"
    text.write_text("words")
    ran = fqk("audit", tmp_path / "model", "--text", text)
    assert (ran.status, "text.txt is too short: 3 tokens" in ran.err) == (2, True)
    text.write_text("words " * 50)  # in windows of 20, the most that the model takes
    ran = fqk("audit", tmp_path / "model", "--text", text, "--json")
    found = json.loads(ran.out)
    assert (ran.status, len(found["lag_profile"]), found["losses"]["windows"]) == (1, 19, 8)
    (tmp_path / "model/model.safetensors").write_bytes(b"no weights, these")
    ran = fqk("audit", tmp_path / "model")
    assert (ran.status, "model holds no causal LM that transformers loads" in ran.err) == (2, True)


def test_steps_are_recorded_apart(fqk, text: Path, tmp_path: Path) -> None:
    fqk("train", "base-dot", "--profile", "smoke", "--steps", 2, "--corpus", text, "--out", tmp_path)
    record = json.loads((tmp_path / "smoke-2-steps/base-dot/seed0/record.json").read_text())
    assert [point["step"] for point in record["curve"]] == [2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "multifourier"], "did you mean multifourier-qk"),
        (["train", "base-dot", "--profile", "papr"], "there is no profile 'papr'; did you mean paper"),
        (["report", "--profile", "cpus"], "did you mean cpu"),
        (["train", "base-dot", "--device", "cuda"], "there is no device 'cuda' here"),
        (["train", "base-dot", "--seed", "-1"], "-1 is not in the range x>=0"),
        (["train", "base-dot", "--steps", "many"], "'many' is not a valid integer range"),
        (["train", "base-dot", "--seeed", "1"], "No such option"),
        (["train"], "Missing argument 'VARIANT'"),
        (["audit", "base-dot", "--profile", "smoke", "--out", "nowhere"], "nowhere"),
        (["report", "--profile", "smoke", "--out", "nowhere"], "there are no records of profile smoke"),
        (["sweep", "base-dot", "--profile", "smoke", "--scheduler", "tcp://127.0.0.1:9"], "answers at"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(
    fqk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if torch_has_cuda() and "cuda" in arguments:
        pytest.skip("there is a CUDA device here")
    ran = fqk(*arguments)
    assert ran.status == 2
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    assert list(tmp_path.iterdir()) == []


def torch_has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\xfa", "is not UTF-8"),
        (b"too short for a window", "is too short"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_corpus_is_one_sentence_and_leaves_nothing(
    fqk, tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    ran = fqk("train", "base-dot", "--profile", "smoke", "--corpus", path, "--out", tmp_path / "out")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert sentence in ran.err
    assert not (tmp_path / "out").exists()


def test_results_that_cannot_be_written_are_found_out_before_training(
    fqk, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    ran = fqk("train", "base-dot", "--profile", "smoke", "--corpus", text, "--out", tmp_path / "file/results")
    assert (ran.status, ran.out) == (2, "")
    assert "cannot be written" in ran.err


def test_a_truncated_record_is_named(fqk, text: Path, tmp_path: Path) -> None:
    fqk("train", "base-dot", "--profile", "smoke", "--corpus", text, "--out", tmp_path)
    record = tmp_path / "smoke/base-dot/seed0/record.json"
    record.write_text(record.read_text()[:100])
    ran = fqk("report", "--profile", "smoke", "--out", tmp_path)
    assert ran.status == 2
    assert str(record) in ran.err


def test_a_diverged_run_says_so_with_exit_status_1(
    fqk, monkeypatch: pytest.MonkeyPatch, text: Path, tmp_path: Path
) -> None:
    from fqk import profiles

    wild = profiles.PROFILES["smoke"].model_copy(update={"learning_rate": 1e6, "warmup": 0})
    monkeypatch.setitem(profiles.PROFILES, "smoke", wild)
    ran = fqk("train", "base-dot", "--profile", "smoke", "--corpus", text, "--out", tmp_path)
    assert ran.status == 1
    assert "the loss diverged at step" in ran.err


def test_every_command_has_an_example() -> None:
    assert all("Example: fqk" in (command.help or "") for command in app.commands.values())


def test_every_experiment_runs_in_miniature(
    fqk, monkeypatch: pytest.MonkeyPatch, text: Path, tmp_path: Path
) -> None:
    """All runs of all experiments, two steps each; then the decompositions, and a verdict on every claim."""
    from fqk import profiles

    tiny = profiles.PROFILES["smoke"].model_copy(
        update={
            "context": 32,
            "steps": 2,
            "eval_every": 2,
            "warmup": 1,
            "eval_windows": 2,
            "prefix_windows": 2,
        }
    )
    monkeypatch.setitem(profiles.PROFILES, "smoke", tiny)
    ran = fqk("reproduce", "--profile", "smoke", "--corpus", text, "--out", tmp_path, "--workers", 2)
    assert ran.status == 0
    assert {path.name for path in tmp_path.iterdir()} >= {
        "smoke",
        "smoke-words",
        "smoke-long",
        "smoke-words-long",
    }
    claims = json.loads(fqk("claims", "--profile", "smoke", "--out", tmp_path, "--json").out)
    undecided = [claim["id"] for claim in claims if claim["outcome"] == "cannot be decided here"]
    assert undecided == ["C0"]
    again = fqk("reproduce", "--profile", "smoke", "--corpus", text, "--out", tmp_path, "--workers", 1)
    assert again.out.splitlines()[-5:] == ran.out.splitlines()[-5:]  # nothing is run twice

"""``fqk …``: the package on the command line."""

import dataclasses
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from fqk.errors import InputError
from fqk.profiles import PROFILES, Profile, get_profile
from fqk.records import RESULTS
from fqk.variants import VARIANTS, get_variant

Command = Callable[..., Any]


def _option(*names: str, **settings: Any) -> Callable[[Command], Command]:
    return click.option(*names, show_default=True, **settings)


profile_option = _option("--profile", default="cpu", help=f"One of {', '.join(PROFILES)}.")
seed_option = _option("--seed", default=0, type=click.IntRange(min=0), help="The random seed.")
corpus_option = _option(
    "--corpus", type=click.Path(path_type=Path), help="A UTF-8 text; TinyShakespeare without one."
)
device_option = _option("--device", default="auto", help="auto, cpu, cuda or mps.")
results_option = _option(
    "--out", "results", default=RESULTS, type=click.Path(path_type=Path), help="Where records lie."
)
steps_option = _option("--steps", type=click.IntRange(min=1), help="Another number of steps, recorded apart.")
scheduler_option = _option(
    "--scheduler", help="The address of a Dask scheduler; a local cluster without one."
)
workers_option = _option("--workers", type=click.IntRange(min=1), help="Of the local cluster; one a core.")
json_option = _option("--json", "as_json", is_flag=True, help="JSON instead of a table.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fqk")
def app() -> None:
    """FourierQK, reproduced: train the paper's variants, read their records, audit their causality."""


@app.command()
@json_option
def variants(as_json: bool) -> None:
    """List the registry: every variant, the claim it tests and the paper's figure.

    Example: fqk variants --json
    """
    rows = [
        {key: value for key, value in dataclasses.asdict(v).items() if key != "mixer"}
        for v in VARIANTS.values()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        paper = "" if row["paper"] is None else f"{row['paper']:.3f}"
        click.echo(f"{row['name']:33}{row['claim']:5}{paper:7}{row['summary']}")


@app.command()
@click.argument("variant")
@profile_option
@seed_option
@corpus_option
@device_option
@results_option
@steps_option
def train(
    variant: str,
    profile: str,
    seed: int,
    corpus: Path | None,
    device: str,
    results: Path,
    steps: int | None,
) -> None:
    """Train one variant and leave its record; a killed run goes on where it was.

    Example: fqk train multifourier-qk --profile smoke --seed 1
    """
    from fqk import training
    from fqk.corpus import load_corpus

    record = training.train(
        get_variant(variant), _profile(profile, steps), load_corpus(corpus), seed, results, device
    )
    assert record.losses
    assert record.audit
    click.echo(
        f"{variant}: {record.losses.ordered.mean:.4f} nats in order, "
        f"{record.losses.prefix_truncated.mean:.4f} from prefixes, "
        f"{'causal' if record.audit.causal else 'leaks'}"
    )


@app.command()
@click.argument("variants", nargs=-1)
@profile_option
@_option("--seeds", default=1, type=click.IntRange(min=1), help="Seeds 0 … N−1 of each.")
@corpus_option
@device_option
@results_option
@steps_option
@scheduler_option
@workers_option
def sweep(
    variants: tuple[str, ...],
    profile: str,
    seeds: int,
    corpus: Path | None,
    device: str,
    results: Path,
    steps: int | None,
    scheduler: str | None,
    workers: int | None,
) -> None:
    """Train many variants, all without names, one run a core or on any Dask cluster.

    Example: fqk sweep base-dot multifourier-qk --profile cpu --seeds 3
    """
    from fqk.sweep import sweep as run

    chosen = [get_variant(name) for name in variants] or list(VARIANTS.values())
    run(chosen, _profile(profile, steps), range(seeds), corpus, results, device, scheduler, workers)


@app.command()
@profile_option
@results_option
@json_option
@_option(
    "--compare",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Another folder of records: each run's loss here and there, exit status 1 if one is 0.05 nats off.",
)
def report(profile: str, results: Path, as_json: bool, compare: Path | None) -> None:
    """Print the records of a profile, of its words and longer runs, the paper's figure beside ours.

    Example: fqk report --profile cpu --json
    """
    from fqk import report as tables
    from fqk.experiments import experiments
    from fqk.records import read_records

    chosen = get_profile(profile)
    if compare:
        runs = (read_records(folder, chosen.name) for folder in (results, compare))
        table = tables.compare(*runs)
        click.echo(
            table.to_json(orient="index", indent=1) if as_json else table.to_string(float_format="%.4f")
        )
        sys.exit(int(table.difference.abs().max() > 0.05))
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(experiment.profile.name for experiment in experiments(chosen)):
        if records := list(read_records(results, name)):
            found[name] = {
                "losses": tables.summary(records),
                "loss by tokens seen ahead": tables.horizons(records),
                "learned periods": tables.periods(records),
            }
    if chosen.name not in found:
        raise InputError(f"there are no records of profile {profile} in {results}; run fqk sweep")
    if as_json:
        plain = {
            name: {
                kind: json.loads(table.to_json(orient="index", force_ascii=False))
                for kind, table in kinds.items()
            }
            for name, kinds in found.items()
        }
        click.echo(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        for name, kinds in found.items():
            for kind, table in kinds.items():
                if len(table):
                    click.echo(f"\n{name}: {kind}\n{table.to_string(float_format='%.3f', na_rep='–')}")
    if missing := [name for name in VARIANTS if name not in found[chosen.name]["losses"].index]:
        click.echo(f"not recorded: {', '.join(missing)}", err=True)


@app.command()
@profile_option
@results_option
@json_option
def claims(profile: str, results: Path, as_json: bool) -> None:
    """Print the verdict on each of the paper's fifteen claims, and the figures behind it.

    Example: fqk claims --profile cpu
    """
    from fqk.claims import Evidence, verdicts

    found = verdicts(Evidence.of(results, get_profile(profile)))
    if as_json:
        click.echo(json.dumps([verdict.as_dict() for verdict in found], indent=1, ensure_ascii=False))
        return
    for verdict in found:
        claim = verdict.claim
        click.echo(f"{claim.id:4} {verdict.outcome.upper()}: {claim.statement} The paper: {claim.paper}.")
        for name, figure in verdict.shown().items():
            click.echo(f"       {name}: {figure}")


@app.command()
@profile_option
@corpus_option
@device_option
@_option(
    "--out",
    "results",
    default=Path("_build/reproduced"),
    type=click.Path(path_type=Path),
    help="Where records go.",
)
@scheduler_option
@workers_option
def reproduce(
    profile: str, corpus: Path | None, device: str, results: Path, scheduler: str | None, workers: int | None
) -> None:
    """Make every run that the claims rest on, decompose, and print the verdicts.

    Example: fqk reproduce --profile smoke
    """
    from fqk.corpus import load_corpus
    from fqk.experiments import experiments
    from fqk.scales import decompose_all
    from fqk.sweep import sweep as run

    chosen = get_profile(profile)
    for experiment in experiments(chosen):
        click.echo(f"{experiment.question} {experiment.profile.name}, {experiment.seeds} seeds")
        variants = [get_variant(name) for name in experiment.variants]
        run(
            variants, experiment.profile, range(experiment.seeds), corpus, results, device, scheduler, workers
        )
    for name in decompose_all(results, chosen, load_corpus(corpus)):
        click.echo(name)
    context = click.get_current_context()
    context.invoke(claims, profile=profile, results=results)


@app.command()
@_option(
    "--nanogpt",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A checkout of karpathy/nanoGPT, to time its step beside base-dot's.",
)
def bench(nanogpt: Path | None) -> None:
    """Time a training step and a sweep, as ratios of medians paired in one process.

    Example: fqk bench --nanogpt ../nanoGPT
    """
    from fqk.bench import ratios

    for name, ratio in ratios(nanogpt):
        click.echo(f"{ratio:6.3f}  {name}")


@app.command()
@click.argument("target")
@_option("--screen", "depth", flag_value="screen", default="exact", help="At most 12 passes, not every pair.")
@_option("--vocab-size", type=click.IntRange(min=2), help="Token ids are below it; some models tell.")
@_option("--seq-len", type=click.IntRange(min=2), help="Tokens in a window; some models tell, else 64.")
@_option("--batch-size", default=32, type=click.IntRange(min=1), help="Windows a forward pass.")
@_option("--text", type=click.Path(path_type=Path), help="A UTF-8 text, to say what a leak is worth in nats.")
@_option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with the map there.")
@profile_option
@seed_option
@device_option
@results_option
@json_option
@click.pass_context
def audit(
    context: click.Context,
    target: str,
    depth: Literal["exact", "screen"],
    vocab_size: int | None,
    seq_len: int | None,
    batch_size: int,
    text: Path | None,
    html: Path | None,
    profile: str,
    seed: int,
    device: str,
    results: Path,
    as_json: bool,
) -> None:
    """Does a model read its own future? Exit status 0 if it is causal, 1 if it leaks, 2 if nobody can tell.

    TARGET is a variant that was trained, a folder of a Hugging Face causal LM, or module:attribute: a
    torch module or function from token ids (B, T) to logits (B, T, V), or with () what makes one.

    \b
    Example: fqk audit multifourier-qk --profile cpu --html map.html
             fqk audit 'my_package.model:build()' --vocab-size 256
             fqk audit path/to/folder --text some.txt
    """
    from fqk import audit_report, targets
    from fqk.audit import audit as run
    from fqk.training import choose_device

    found_at = targets.load(target, choose_device(device), results, get_profile(profile).name, seed)
    seq_len = seq_len or found_at.seq_len
    found = run(
        found_at.model,
        vocab_size=vocab_size or found_at.vocab_size,
        seq_len=seq_len,
        depth=depth,
        batch_size=batch_size,
        text=found_at.windows(text, seq_len) if text else None,
        seed=seed,
    )
    click.echo(json.dumps(found.as_dict()) if as_json else f"{target}: {found}")
    if html:
        try:
            html.write_text(audit_report.page(found, target), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{html} cannot be written: {error.strerror}") from None
    context.exit({"causal": 0, "leaks": 1, "cannot tell": 2}[found.verdict])


@app.command()
@profile_option
@results_option
@corpus_option
def emd(profile: str, results: Path, corpus: Path | None) -> None:
    """Compare the learned periods with those that EMD finds in queries and keys, and in five nulls.

    Example: fqk emd --profile cpu
    """
    from fqk.corpus import load_corpus
    from fqk.scales import decompose_all

    for line in decompose_all(results, get_profile(profile), load_corpus(corpus)):
        click.echo(line)


@app.command()
@profile_option
@seed_option
@device_option
def book(profile: str, seed: int, device: str) -> None:
    """Execute every chapter and render the book; prints the path of its first page.

    Example: fqk book --profile smoke
    """
    from fqk.book import BookError, build

    try:
        click.echo(build(get_profile(profile).name, seed, device))
    except BookError as error:
        raise SystemExit(f"fqk: {error}") from None


def _profile(name: str, steps: int | None) -> Profile:
    profile = get_profile(name)
    if steps is None or steps == profile.steps:
        return profile
    return profile.model_copy(update={"name": f"{name}-{steps}-steps", "steps": steps})


def main() -> None:
    """Run the command line; bad input is one sentence and exit status 2."""
    from fqk.training import DivergedError

    try:
        sys.exit(app.main(standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except (InputError, DivergedError, click.ClickException) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"fqk: {text}", err=True)
        sys.exit(1 if isinstance(error, DivergedError) else 2)
    except click.Abort:
        sys.exit(130)
    except Exception:  # 1, which Python would end with, is an answer of some commands: `leaks`
        traceback.print_exc()
        sys.exit(2)

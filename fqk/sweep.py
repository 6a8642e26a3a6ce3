"""Many runs at once, on Dask: a local cluster by default, anybody's by its scheduler's address."""

from collections.abc import Iterable
from pathlib import Path

from dask.distributed import Client, as_completed
from tqdm.auto import tqdm

from fqk.corpus import load_corpus
from fqk.errors import InputError
from fqk.profiles import Profile
from fqk.records import Record
from fqk.training import DivergedError, train
from fqk.variants import Variant, get_variant


def sweep(
    variants: Iterable[Variant],
    profile: Profile,
    seeds: Iterable[int],
    corpus: Path | None,
    results: Path,
    device: str = "auto",
    scheduler: str | None = None,
    workers: int | None = None,
) -> list[Record]:
    """Train each variant with each seed, in that order, one run a worker; the records as they come in.

    A run that is recorded already is read back. A worker that is killed loses nothing but the steps
    since its run's last checkpoint: Dask gives the run to another, which resumes. Runs that diverge are
    recorded and left out.

    Args:
        corpus: a text, or none for :func:`fqk.corpus.load_corpus`'s choice on each worker.
        results: a folder that all workers can write.
        scheduler: the address of a running Dask scheduler; by default a local cluster is started.
        workers: of the local cluster; one a core by default, each single-threaded.

    Raises:
        InputError: bad input to a run, or the scheduler does not answer.
    """
    runs = [(variant, seed) for seed in seeds for variant in variants]
    text = corpus.resolve() if corpus else None
    records = []
    with _client(scheduler, workers) as client:
        futures = [
            client.submit(
                _run, variant.name, profile, seed, text, results.resolve(), device,
                pure=False, priority=-order,
            )
            for order, (variant, seed) in enumerate(runs)
        ]  # fmt: skip
        bar = tqdm(as_completed(futures), total=len(futures), desc=f"{profile.name} runs")
        for future in bar:
            try:
                record: Record = future.result()
            except DivergedError as diverged:
                bar.write(str(diverged))
                continue
            records.append(record)
            if record.losses:
                bar.set_postfix_str(f"{record.identity.variant} {record.losses.ordered.mean:.3f}")
    return records


def _client(scheduler: str | None, workers: int | None) -> Client:
    if scheduler is None:
        return Client(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
    try:
        return Client(scheduler, timeout=10)
    except (OSError, ValueError):
        raise InputError(f"no Dask scheduler answers at {scheduler}") from None


def _run(
    variant: str, profile: Profile, seed: int, corpus: Path | None, results: Path, device: str
) -> Record:
    return train(get_variant(variant), profile, load_corpus(corpus), seed, results, device, progress=False)

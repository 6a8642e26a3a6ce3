"""What is run, and why: which variants at which profile, with how many seeds."""

from dataclasses import dataclass

from fqk.profiles import Profile
from fqk.variants import VARIANTS

HEADLINE = ("base-dot", "fourier-qk", "multifourier-qk")
STARTS = (
    "multifourier-qk",
    "multifourier-qk-from-20",
    "multifourier-qk-from-linear",
    "multifourier-qk-from-log",
)
FILTERS = ("causal-gaussian", "causal-mexhat", "causal-morlet")
SPECTRAL = ("causal-random-qk", "causal-fourier-qk", "causal-multifourier-qk")
LONGER = ("base-dot", "causal-morlet")  # the best causal filter of the shorter runs' first seed
LONGER_WORDS = ("base-dot", "causal-multifourier-qk")  # the one-sided spectral variant with most gain
WORDS = ("base-dot", "random-qk", "fourier-qk", "multifourier-qk", *FILTERS, *SPECTRAL)


@dataclass(frozen=True)
class Experiment:
    """Variants to train at ``profile``, with seeds 0 … ``seeds`` − 1."""

    question: str
    profile: Profile
    variants: tuple[str, ...]
    seeds: int


def experiments(profile: Profile) -> list[Experiment]:
    """All that the book's claims rest on, in the order in which it is best run."""
    return [
        Experiment("What does each variant reach?", profile, tuple(VARIANTS), 3),
        Experiment("Is word scale different?", profile.in_words(), WORDS, 3),
        Experiment("How steady are the headline figures?", profile, HEADLINE, 5),
        Experiment("Does an honest gain last?", profile.longer(), LONGER, 1),
        Experiment("Does one on words?", profile.in_words().longer(), LONGER_WORDS, 3),
    ]

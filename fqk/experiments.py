"""What is run, and why: which variants at which profile, with how many seeds."""

from dataclasses import dataclass

from fqk.profiles import Profile
from fqk.variants import VARIANTS

HEADLINE = ("base-dot", "fourier-qk", "multifourier-qk")


@dataclass(frozen=True)
class Experiment:
    """Variants to train at ``profile``, with seeds 0 … ``seeds`` − 1."""

    question: str
    profile: Profile
    variants: tuple[str, ...]
    seeds: int


def experiments(profile: Profile) -> list[Experiment]:
    """All that the book's claims rest on, in the order in which it is best run."""
    causal = [name for name, variant in VARIANTS.items() if variant.family == "causal"]
    return [
        Experiment("What does each variant reach?", profile, tuple(VARIANTS), 3),
        Experiment("How much do the headline figures vary?", profile, HEADLINE, 5),
        Experiment(
            "Is word scale different?",
            profile.in_words(),
            ("base-dot", "random-qk", "fourier-qk", "multifourier-qk", *causal),
            3,
        ),
        Experiment("Does an honest gain last?", profile.longer(), ("base-dot", "causal-gaussian-fixed"), 1),
    ]

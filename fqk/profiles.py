"""The hyper-parameters, one set for all variants of a profile: a variant differs in its mixer only.

Each profile has three more after it: ``…-long`` with four times the steps, ``…-words``, which reads the
text in words, of which there are four times fewer: half the window and half the steps; and both at once.
"""

import math

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from fqk.variants import choose


class Profile(BaseModel):
    """Model, schedule and evaluation of a run; names as in nanoGPT, lengths in tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    layers: PositiveInt
    heads: PositiveInt
    width: PositiveInt
    context: PositiveInt
    vocabulary: PositiveInt | None = None
    """Tokens are the text's so many most frequent words; without it, characters."""
    dropout: float
    steps: PositiveInt
    batch: PositiveInt
    learning_rate: PositiveFloat
    warmup: int
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float = 1.0
    eval_every: PositiveInt
    eval_windows: PositiveInt
    prefix_windows: PositiveInt
    mixed_precision: bool = False
    """On CUDA: bf16 autocast, TF32 and ``torch.compile``; elsewhere without effect."""

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine from the peak to a tenth of it at the last step."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))

    def longer(self) -> "Profile":
        """The same with four times the steps."""
        return self.model_copy(update={"name": f"{self.name}-long", "steps": 4 * self.steps})

    def in_words(self) -> "Profile":
        """The same on words, with half the window and half the steps."""
        half = {"context": self.context // 2, "steps": self.steps // 2}
        return self.model_copy(update={"name": f"{self.name}-words", "vocabulary": 4096, **half})


PROFILES = {
    profile.name: profile
    for base in (
        Profile(
            name="smoke", layers=2, heads=2, width=32, context=64, dropout=0.0, steps=50, batch=8,
            learning_rate=1e-2, warmup=5, eval_every=10, eval_windows=16, prefix_windows=4,
        ),
        Profile(
            name="cpu", layers=2, heads=4, width=128, context=256, dropout=0.0, steps=1100, batch=8,
            learning_rate=4e-3, warmup=100, eval_every=100, eval_windows=64, prefix_windows=16,
        ),
        Profile(
            name="paper", layers=6, heads=6, width=384, context=256, dropout=0.2, steps=5000,
            batch=64, learning_rate=1e-3, warmup=100, eval_every=250, eval_windows=256,
            prefix_windows=32, mixed_precision=True,
        ),
    )
    for profile in (base, base.longer(), base.in_words(), base.in_words().longer())
}  # fmt: skip


def get_profile(name: str) -> Profile:
    """The profile of that name.

    Raises:
        InputError: there is none; the sentence names the nearest.
    """
    return choose(name, PROFILES, "profile")

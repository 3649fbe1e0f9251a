"""Bad requests: each gets OpenAI's error object with the right status, and harms nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from api_server import MODEL, Answer, ApiServer, api_server

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TALK = [{"role": "user", "content": "hi"}]
GOLDEN = {"model": MODEL, "prompt": "A torpid hummingbird", "seed": 1, "max_tokens": 12}
WORDS_OF_OURS = ("Traceback", "pydantic", "torpor_", "site-packages", "0x", "object at", "NoneType")


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture(autouse=True)
def harmless(server: ApiServer) -> Iterator[None]:
    """After every test the server still gives the same answer, and nothing is left of the bad."""
    server.core.submitted.clear()
    yield
    [choice] = server.post(COMPLETIONS, GOLDEN).json()["choices"]
    text = choice["text"]
    assert text == server.post(COMPLETIONS, GOLDEN).json()["choices"][0]["text"]
    assert server.call(lambda: server.context.admission.unfinished) == 0


def check(answer: Answer, status: int) -> dict[str, Any]:
    assert answer.status == status, answer.body[:500]
    error = answer.error
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    assert 0 < len(error["message"]) <= 500
    assert not any(word in answer.body.decode() for word in WORDS_OF_OURS)
    return error


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", []),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", 1.1),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 10**400),
        ("max_tokens", 10**30),
        ("max_tokens", "16"),
        ("n", 0),
        ("n", 17),
        ("n", True),
        ("seed", 2**63),
        ("seed", "x"),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["a"] * 17),
        ("stop", "a" * 513),
        ("stop", 5),
        ("stop", {"a": 1}),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [5000]),
        ("stop_token_ids", list(range(65))),
        ("stop_token_ids", "1"),
        ("min_tokens", 100),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"5000": 1}),
        ("logit_bias", {str(i): 1 for i in range(301)}),
        ("logit_bias", [1]),
        ("logprobs", 21),
        ("logprobs", -1),
        ("logprobs", True),
        ("stream", "yes"),
        ("stream", 1),
        ("stream_options", {"include_usage": True}),
        ("ignore_eos", "true"),
        ("priority", 2**40),
        ("cache_salt", "s" * 257),
        ("model", 5),
    ],
)
def test_a_wrong_field_is_named(server: ApiServer, field: str, value: Any) -> None:
    body = {"model": MODEL, "prompt": "x", "max_tokens": 16, field: value}
    error = check(server.post(COMPLETIONS, body), 400)
    if value != 10**400:  # that is no number of JSON's, so the body as a whole is wrong
        assert error["param"].split(".")[0] == field
    assert server.core.submitted == []


@pytest.mark.parametrize(
    "prompt",
    [
        *("", [], [[]], [""], None, 5, {}, [-1], [1024], [10**30], [True], [None]),
        *([1, "a"], ["a", 1], ["a", [1]], [[1], "a"], [[1], [1.5]], [[[1]]]),
        *(["x"] * 65, [[1]] * 65),
    ],
)
def test_a_prompt_of_no_known_form(server: ApiServer, prompt: Any) -> None:
    error = check(server.post(COMPLETIONS, {"model": MODEL, "prompt": prompt}), 400)
    assert error["param"] == "prompt"
    assert server.core.submitted == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        None,
        "hi",
        [5],
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "nobody", "content": "x"}],
        [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
        [{"role": "user", "content": "x"}] * 2049,
    ],
)
def test_messages_of_no_known_form(server: ApiServer, messages: Any) -> None:
    error = check(server.post(CHAT, {"model": MODEL, "messages": messages}), 400)
    assert error["param"].startswith("messages")
    assert server.core.submitted == []


UNSUPPORTED = {
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "guided_choice": ["a"],
    "guided_grammar": "root ::= x",
    "structured_outputs": {"regex": "a"},
    "response_format": {"type": "json_object"},
    "best_of": 2,
    "suffix": "end",
    "prompt_embeds": "AAAA",
    "prompt_logprobs": 1,
    "bad_words": ["x"],
    "allowed_token_ids": [1],
    "truncate_prompt_tokens": 5,
    "use_beam_search": True,
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "functions": [{"name": "f"}],
    "chat_template": "{{ messages }}",
    "chat_template_kwargs": {"tokenize": True},
    "modalities": ["text", "audio"],
    "documents": [{"text": "x"}],
}


@pytest.mark.parametrize("field", UNSUPPORTED)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_what_is_not_done_is_refused(server: ApiServer, path: str, field: str) -> None:
    body = {"model": MODEL, "prompt": "x", "messages": TALK, field: UNSUPPORTED[field]}
    error = check(server.post(path, body), 400)
    assert (error["code"], error["param"]) == ("unsupported_parameter", field)


def test_log_probabilities_of_the_prompt_are_refused(server: ApiServer) -> None:
    body = {"model": MODEL, "prompt": "x", "echo": True, "logprobs": 1}
    assert check(server.post(COMPLETIONS, body), 400)["code"] == "unsupported_parameter"


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_fields_that_ask_for_nothing_are_taken(server: ApiServer, path: str) -> None:
    """Clients send nulls, empty values, labels and fields of other servers."""
    nothing = dict.fromkeys(UNSUPPORTED) | {
        "response_format": {"type": "text"},
        "best_of": 1,
        "suffix": "",
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "none",
        "user": "me",
        "metadata": {"a": "b"},
        "store": False,
        "service_tier": "auto",
        "reasoning_effort": "low",
        "parallel_tool_calls": True,
        "made_up": [1, {"deep": None}],
        "temperature": None,
        "stop": None,
        "max_tokens": 2.0,
        "stream_options": None,
        "logit_bias": None,
        "top_k": -1,
        "repetition_penalty": 1.0,
    }
    body = {**nothing, "model": MODEL, "prompt": "x", "messages": TALK}
    assert server.post(path, body).status == 200


def test_text_parts_are_one_text(server: ApiServer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    for content in (parts, "one\ntwo"):
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}]}
        assert server.post(CHAT, {**body, "max_tokens": 1}).status == 200
    first, second = server.core.submitted
    assert first.prompt == second.prompt


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": [5] * 512}),
        (COMPLETIONS, {"prompt": "word " * 600}),
        (COMPLETIONS, {"prompt": "x" * 2_000_000}),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 600}]}),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 2_000_000}]}),
    ],
)
def test_a_prompt_that_is_too_long(server: ApiServer, path: str, body: dict[str, Any]) -> None:
    error = check(server.post(path, {"model": MODEL, **body}), 400)
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 512 tokens" in error["message"]
    assert server.core.submitted == []


def test_the_context_bounds_the_answer(server: ApiServer) -> None:
    body = {"model": MODEL, "prompt": [5] * 500, "max_tokens": 400, "min_tokens": 300}
    answer = server.post(COMPLETIONS, body).json()
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{'model': 'tiny'}",
        b'{"prompt": "x", "temperature": NaN}',
        b'{"prompt": "x", "temperature": Infinity}',
        b'{"prompt": "x", "temperature": -1e999}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\xff\xfe"}',
        b'\xef\xbb\xbf{"prompt": "x"}',
        b'{"prompt": "x"} trailing',
        b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": "x", "user": ' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}",
        b'{"prompt": "x", "user": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"prompt": "x", "max_tokens": ' + b"9" * 100_000 + b"}",
        b"\x00" * 1000,
    ],
)
def test_a_body_that_is_no_object(server: ApiServer, body: bytes) -> None:
    assert check(server.post(COMPLETIONS, body), 400)["code"] == "invalid_json"


def test_repeated_keys_and_nulls_within_text(server: ApiServer) -> None:
    body = b'{"model": "nope", "model": "tiny", "prompt": "a\\u0000b", "max_tokens": 1}'
    assert server.post(COMPLETIONS, body).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": ""},
        {"content-encoding": "gzip"},
    ],
)
def test_a_body_of_another_kind(server: ApiServer, headers: dict[str, str]) -> None:
    error = check(server.post(COMPLETIONS, GOLDEN, headers), 415)
    assert error["code"] == "unsupported_media_type"


def test_a_content_type_with_its_charset_is_taken(server: ApiServer) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert server.post(COMPLETIONS, GOLDEN, headers).status == 200


def test_what_is_not_there(server: ApiServer) -> None:
    error = check(server.post(COMPLETIONS, {**GOLDEN, "model": "m" * 200}), 404)
    assert error["code"] == "model_not_found" and MODEL in error["message"]
    assert "m" * 100 not in error["message"]
    assert check(server.get("/v1/nothing"), 404)["code"] == "not_found"
    assert check(server.get(COMPLETIONS), 405)["code"] == "method_not_allowed"
    assert server.get(COMPLETIONS).headers["allow"] == "POST"
    assert check(server.get("/v1/completions/"), 404)["code"] == "not_found"
    assert check(server.get("/docs"), 404)["code"] == "not_found"


def test_a_model_left_out_is_the_first(server: ApiServer) -> None:
    for model in ({}, {"model": None}, {"model": ""}):
        assert server.post(COMPLETIONS, {"prompt": "x", **model}).json()["model"] == MODEL


def test_an_id_that_is_none_is_replaced(server: ApiServer) -> None:
    for given in ("a b", "x" * 129, "é"):
        answer = server.post(COMPLETIONS, GOLDEN, {"x-request-id": given.encode().decode("latin1")})
        assert answer.headers["x-request-id"] not in (given, "")


def test_tokenize_and_back(server: ApiServer) -> None:
    text = "The sun rises. 🙂"
    asked = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert asked["count"] == len(asked["tokens"]) == len(asked["token_strs"])
    assert asked["max_model_len"] == 512
    back = server.post("/detokenize", {"tokens": asked["tokens"]})
    assert back.json() == {"prompt": text}
    talk = server.post("/tokenize", {"messages": TALK}).json()
    assert server.post("/detokenize", {"tokens": talk["tokens"]}).json()["prompt"] == (
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": TALK}),
        ("/tokenize", {"prompt": 5}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": [1024]}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": ["1"]}),
    ],
)
def test_wrong_tokens(server: ApiServer, path: str, body: dict[str, Any]) -> None:
    check(server.post(path, body), 400)


def test_an_unexpected_failure_of_one_request_is_its_own(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours in one text ends that request with 500 and no other."""
    from torpor_engine.api.choice import Choice

    accept = Choice.accept

    def failing(choice: Choice, token: int) -> bool:
        if choice.owner.job.id == "cmpl-bad":
            raise RuntimeError("secret of ours")
        return accept(choice, token)

    monkeypatch.setattr(Choice, "accept", failing)
    error = check(server.post(COMPLETIONS, GOLDEN, {"x-request-id": "bad"}), 500)
    assert error["code"] == "internal_error" and "secret" not in json.dumps(error)
    assert server.post(COMPLETIONS, GOLDEN).status == 200

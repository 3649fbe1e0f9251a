"""The openai client, strict about every field, against the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import openai
import pytest

from api_server import MODEL, ApiServer, api_server, tiny_tokenizer
from fake_core import FakeCore, hashed, prompt_ids, says

TALK = [{"role": "user", "content": "Where does the bird sleep?"}]
ANSWER = "In the old tree by the river; it wakes when the sun rises. 🙂"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


@pytest.fixture(autouse=True)
def plain_core(server: ApiServer) -> None:
    server.core.script = hashed
    server.core.submitted.clear()
    server.core.aborted.clear()


def speak(server: ApiServer, text: str = ANSWER) -> None:
    server.core.script = says(tiny_tokenizer().encode(text))


def test_completion(server: ApiServer) -> None:
    speak(server)
    answer = server.client().completions.create(model=MODEL, prompt="Where?", max_tokens=200)
    [choice] = answer.choices
    assert (choice.text, choice.finish_reason, choice.logprobs) == (ANSWER, "stop", None)
    assert answer.object == "text_completion"
    assert answer.usage is not None
    prompt = tiny_tokenizer().encode("Where?")
    assert prompt_ids(server.core.submitted[0]) == prompt
    assert answer.usage.prompt_tokens == len(prompt)
    # The token that ended the text was computed too.
    assert answer.usage.completion_tokens == len(tiny_tokenizer().encode(ANSWER)) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_completion(server: ApiServer) -> None:
    speak(server)
    answer = server.client().chat.completions.create(model=MODEL, messages=TALK)
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert (choice.finish_reason, answer.object) == ("stop", "chat.completion")
    template = tiny_tokenizer().chat_template
    assert template is not None
    ids = tiny_tokenizer().encode(template.render(TALK), add_special_tokens=False)
    assert prompt_ids(server.core.submitted[0]) == ids
    assert server.core.submitted[0].sampling.max_tokens == 512 - len(ids)


@pytest.mark.parametrize("include_usage", [True, False])
def test_chat_stream(server: ApiServer, include_usage: bool) -> None:
    speak(server)
    chunks = list(
        server.client().chat.completions.create(
            model=MODEL,
            messages=TALK,
            stream=True,
            stream_options={"include_usage": include_usage},
        )
    )
    usage = chunks.pop() if include_usage else None
    first, *middle, last = [chunk.choices[0] for chunk in chunks]
    assert (first.delta.role, first.delta.content, first.finish_reason) == ("assistant", "", None)
    assert "".join(choice.delta.content or "" for choice in middle) == ANSWER
    assert all(choice.finish_reason is None and choice.delta.role is None for choice in middle)
    assert (last.delta.content, last.finish_reason) == (None, "stop")
    assert {(chunk.id, chunk.created, chunk.object) for chunk in chunks} == {
        (chunks[0].id, chunks[0].created, "chat.completion.chunk")
    }
    if usage is not None:
        assert usage.choices == []
        assert usage.usage is not None
        assert usage.usage.completion_tokens == len(tiny_tokenizer().encode(ANSWER)) + 1


def test_completion_stream_equals_the_whole_answer(server: ApiServer) -> None:
    client = server.client()
    whole = client.completions.create(model=MODEL, prompt="a bird", max_tokens=100, seed=3)
    stream = server.client(strict=False).completions.create(
        model=MODEL, prompt="a bird", max_tokens=100, seed=3, stream=True
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_n_and_seeds(server: ApiServer) -> None:
    client = server.client()
    answer = client.completions.create(model=MODEL, prompt="x", max_tokens=8, n=3, seed=40)
    assert [request.sampling.seed for request in server.core.submitted] == [40, 41, 42]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    texts = [choice.text for choice in answer.choices]
    assert len(set(texts)) == 3
    alone = client.completions.create(model=MODEL, prompt="x", max_tokens=8, seed=41)
    assert alone.choices[0].text == texts[1]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1, 24)


def test_every_request_without_a_seed_gets_its_own(server: ApiServer) -> None:
    for _ in range(8):
        server.client().completions.create(model=MODEL, prompt="x", max_tokens=1)
    seeds = {request.sampling.seed for request in server.core.submitted}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(
    "prompts",
    [["one", "two words", "three"], [[10, 11], [12], [13, 14, 15]], [20, 21, 22]],
)
def test_prompts_in_order(server: ApiServer, prompts: list[object]) -> None:
    answer = server.client().completions.create(
        model=MODEL,
        prompt=prompts,
        max_tokens=4,
        n=2,
        seed=9,
    )
    encode = tiny_tokenizer().encode
    each = [prompts] if isinstance(prompts[0], int) else prompts
    ids = [encode(entry) if isinstance(entry, str) else entry for entry in each]
    submitted = [prompt_ids(request) for request in server.core.submitted]
    assert submitted == [entry for entry in ids for _ in range(2)]
    assert [choice.index for choice in answer.choices] == list(range(2 * len(ids)))
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(map(len, ids))


def test_interleaved_choices_in_a_stream(server: ApiServer) -> None:
    client = server.client()
    whole = client.chat.completions.create(
        model=MODEL, messages=TALK, n=3, seed=5, max_completion_tokens=20
    )
    texts = ["", "", ""]
    ends = []
    for chunk in client.chat.completions.create(
        model=MODEL, messages=TALK, n=3, seed=5, max_completion_tokens=20, stream=True
    ):
        [choice] = chunk.choices
        texts[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            ends.append(choice.index)
    assert texts == [choice.message.content for choice in whole.choices]
    assert sorted(ends) == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("river", "In the old tree by the "),
        (["sun", "tree", "by"], "In the old "),
        (["; it wakes"], "In the old tree by the river"),
        (["nowhere"], ANSWER),
        (["rises. 🙂"], ANSWER.removesuffix("rises. 🙂")),
    ],
)
def test_stop(server: ApiServer, stop: str | list[str], text: str, stream: bool) -> None:
    speak(server)
    created = server.client().chat.completions.create(
        model=MODEL, messages=TALK, stop=stop, stream=stream
    )
    if isinstance(created, openai.Stream):
        chunks = [chunk.choices[0] for chunk in created]
        assert "".join(chunk.delta.content or "" for chunk in chunks) == text
        assert chunks[-1].finish_reason == "stop"
    else:
        assert created.choices[0].message.content == text
        assert created.choices[0].finish_reason == "stop"
    [request] = server.core.submitted
    # Only the API knows that the text is complete, so it tells the core.
    assert server.call(lambda: request.id in server.core.aborted) == (text != ANSWER)


def test_stop_string_is_told_and_can_be_kept(server: ApiServer) -> None:
    speak(server)
    answer = server.client().completions.create(
        model=MODEL,
        prompt="x",
        max_tokens=100,
        stop=["river"],
        extra_body={"include_stop_str_in_output": True},
    )
    assert answer.choices[0].text == "In the old tree by the river"
    assert (answer.choices[0].model_extra or {})["stop_reason"] == "river"


def test_stop_strings_count_after_min_tokens(server: ApiServer) -> None:
    ids = tiny_tokenizer().encode(ANSWER)
    speak(server)
    answer = server.client().completions.create(
        model=MODEL, prompt="x", max_tokens=100, stop=" ", extra_body={"min_tokens": 6}
    )
    text = answer.choices[0].text
    assert text.startswith(tiny_tokenizer().decode(ids[:6])) and text != ANSWER


def test_the_token_that_ends_the_text_can_be_kept(server: ApiServer) -> None:
    ids = tiny_tokenizer().encode(ANSWER)
    speak(server)
    answer = server.client().completions.create(
        model=MODEL,
        prompt="x",
        max_tokens=100,
        extra_body={"stop_token_ids": [ids[3]], "include_stop_str_in_output": True},
    )
    assert answer.choices[0].text == tiny_tokenizer().decode(ids[:4])


def test_special_tokens_can_be_shown(server: ApiServer) -> None:
    server.core.script = says([300, 1, 301])
    for skip, text in ((True, [300, 301]), (False, [300, 1, 301])):
        answer = server.client().completions.create(
            model=MODEL, prompt="x", extra_body={"skip_special_tokens": skip}
        )
        assert answer.choices[0].text == tiny_tokenizer().decode(text)


def test_stop_token_ids(server: ApiServer) -> None:
    ids = tiny_tokenizer().encode(ANSWER)
    speak(server)
    answer = server.client().completions.create(
        model=MODEL, prompt="x", max_tokens=100, extra_body={"stop_token_ids": [ids[3]]}
    )
    assert answer.choices[0].text == tiny_tokenizer().decode(ids[:3])
    assert (answer.choices[0].model_extra or {})["stop_reason"] == ids[3]


def test_min_tokens_and_ignore_eos_reach_the_core(server: ApiServer) -> None:
    server.core.script = says([50, 51])
    answer = server.client().completions.create(
        model=MODEL,
        prompt="x",
        max_tokens=9,
        extra_body={"ignore_eos": True, "min_tokens": 4},
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9
    assert answer.choices[0].finish_reason == "length"
    sampling = server.core.submitted[0].sampling
    assert (sampling.ignore_eos, sampling.min_tokens) == (True, 4)


@pytest.mark.parametrize("stream", [False, True])
def test_completion_logprobs(server: ApiServer, stream: bool) -> None:
    speak(server)
    created = server.client(strict=not stream).completions.create(
        model=MODEL, prompt="x", max_tokens=100, logprobs=3, stream=stream
    )
    choices = [chunk.choices[0] for chunk in created] if stream else created.choices
    parts = [choice.logprobs for choice in choices if choice.logprobs]
    tokens = [token for part in parts for token in part.tokens or []]
    values = [value for part in parts for value in part.token_logprobs or []]
    top = [entry for part in parts for entry in part.top_logprobs or []]
    offsets = [offset for part in parts for offset in part.text_offset or []]
    ids = tiny_tokenizer().encode(ANSWER)
    assert tokens == [tiny_tokenizer().token_text(token).text for token in ids]
    assert all(
        entry[token] == value for token, value, entry in zip(tokens, values, top, strict=True)
    )
    assert all(value == max(entry.values()) for value, entry in zip(values, top, strict=True))
    assert offsets[0] == 0 and offsets == sorted(offsets)
    whole = [(o, t) for o, t in zip(offsets, tokens, strict=True) if "\ufffd" not in t]
    assert all(ANSWER.startswith(token, offset) for offset, token in whole)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("top", [0, 2, None])
def test_chat_logprobs(server: ApiServer, stream: bool, top: int | None) -> None:
    speak(server)
    created = server.client().chat.completions.create(
        model=MODEL, messages=TALK, logprobs=True, top_logprobs=top, stream=stream
    )
    choices = [chunk.choices[0] for chunk in created] if stream else created.choices
    content = [e for c in choices if c.logprobs for e in c.logprobs.content or []]
    raw = b"".join(bytes(entry.bytes or []) for entry in content)
    assert raw.decode() == ANSWER
    assert all(len(entry.top_logprobs) == (top or 0) for entry in content)


def test_echo(server: ApiServer) -> None:
    speak(server, " and sleeps")
    client = server.client()
    whole = client.completions.create(model=MODEL, prompt="A bird 🙂", echo=True, n=2)
    assert [choice.text for choice in whole.choices] == ["A bird 🙂 and sleeps"] * 2
    loose = server.client(strict=False)
    stream = loose.completions.create(model=MODEL, prompt=[300, 301], echo=True, stream=True)
    text = tiny_tokenizer().decode([300, 301])
    assert "".join(chunk.choices[0].text for chunk in stream) == text + " and sleeps"


def test_models(server: ApiServer) -> None:
    models = server.client().models.list().data
    assert [model.id for model in models] == [MODEL]
    assert server.client().models.retrieve(MODEL).id == MODEL
    assert (models[0].model_extra or {})["max_model_len"] == 512
    with pytest.raises(openai.NotFoundError):
        server.client().models.retrieve("other/one")


def test_request_id_is_given_back(server: ApiServer) -> None:
    raw = server.client().completions.with_raw_response.create(
        model=MODEL, prompt="x", extra_headers={"X-Request-Id": "my-request/7"}
    )
    assert raw.headers["x-request-id"] == "my-request/7"
    assert raw.parse().id == "cmpl-my-request/7"
    other = server.client().completions.create(model=MODEL, prompt="x")
    assert other._request_id and other.id == f"cmpl-{other._request_id}"


@pytest.mark.parametrize("stream", [False, True])
def test_cancellation_reaches_the_core(server: ApiServer, stream: bool) -> None:
    server.core.step_seconds = 0.02
    client = server.client(strict=False)
    failed = threading.Event()

    def ask() -> None:
        try:
            created = client.completions.create(
                model=MODEL, prompt="x", max_tokens=500, stream=stream
            )
            list(created)
        except openai.APIError:
            failed.set()

    asking = threading.Thread(target=ask)
    try:
        asking.start()
        server.until(lambda: server.core.stats().generation_tokens > 0)
        server.until(lambda: bool(server.context.router.generations))
        for connection in list(client._client._transport._pool.connections):
            connection._connection._network_stream.get_extra_info("socket").shutdown(2)
        [request] = server.core.submitted
        server.until(lambda: request.id in server.core.aborted)
        server.until(lambda: server.context.admission.unfinished == 0)
    finally:
        server.core.step_seconds = 0.0
        asking.join(10)
    assert failed.is_set()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"model": "none"}, openai.NotFoundError),
        ({"temperature": 2.5}, openai.BadRequestError),
        ({"extra_body": {"guided_regex": "a+"}}, openai.BadRequestError),
        ({"prompt": [1] * 600}, openai.BadRequestError),
    ],
)
def test_error_classes(
    server: ApiServer, body: dict[str, object], error: type[openai.APIStatusError]
) -> None:
    with pytest.raises(error) as caught:
        server.client().completions.create(**{"model": MODEL, "prompt": "x", **body})
    assert caught.value.code and caught.value.request_id
    assert server.core.submitted == []


def test_no_core_is_asked_twice_for_an_id() -> None:
    core = FakeCore()
    with api_server(core) as server:
        for _ in range(3):
            server.client().completions.create(model=MODEL, prompt=["a", "b"], n=3, max_tokens=1)
    ids = [request.id for request in core.submitted]
    assert len(ids) == len(set(ids)) == 18

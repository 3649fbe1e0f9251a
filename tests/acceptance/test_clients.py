"""The served model as clients meet it: the openai client, thousands of bad requests, a flood."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import openai
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error, status_code_conformance

from deployments import write_manifest
from replica import Replica, running

MIB = 2**20
RUNNING, QUEUED = 16, 64
CAPACITY = RUNNING + QUEUED
GOLDEN = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def replica(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    manifest = write_manifest(
        tmp_path_factory.mktemp("clients") / "m.yaml",
        tiny_llama,
        engine={"maxNumSeqs": RUNNING, "maxQueuedRequests": QUEUED},
    )
    with running(manifest) as started:
        yield started


def openai_client(replica: Replica, strict: bool) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=replica.url + "/v1",
        api_key="none",
        max_retries=0,
        _strict_response_validation=strict,
    )


@pytest.fixture
def client(replica: Replica) -> Iterator[openai.OpenAI]:
    with openai_client(replica, strict=True) as made:
        yield made


@pytest.fixture
def lenient(replica: Replica) -> Iterator[openai.OpenAI]:
    """For streams of completions: the client's types allow no null finish_reason in a chunk, which
    the API itself sends."""
    with openai_client(replica, strict=False) as made:
        yield made


def golden(replica: Replica) -> str:
    return str(replica.complete(GOLDEN, 24, ignore_eos=True)["text"])


@pytest.fixture(scope="module")
def calm(replica: Replica) -> str:
    """The text before any bad request."""
    return golden(replica)


def unfinished(replica: Replica) -> float:
    """Requests that run or wait."""
    return replica.metric("num_requests_running", "num_requests_waiting")


def test_the_openai_client(replica: Replica, client: openai.OpenAI, lenient: openai.OpenAI) -> None:
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model
    whole = client.completions.create(
        model=model, prompt="A bird", max_tokens=12, temperature=0, logprobs=3
    )
    text = whole.choices[0].text
    assert whole.usage is not None and whole.usage.completion_tokens <= 12
    logprobs = whole.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    assert all(value <= 0 for value in logprobs.token_logprobs)
    pieces = lenient.completions.create(
        model=model, prompt="A bird", max_tokens=12, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in pieces if chunk.choices) == text
    messages: Any = [{"role": "user", "content": "Hello"}]
    chat = client.chat.completions.create(
        model=model, messages=messages, max_tokens=8, n=2, seed=3, logprobs=True, top_logprobs=2
    )
    assert [choice.index for choice in chat.choices] == [0, 1]
    again = client.chat.completions.create(
        model=model, messages=messages, max_tokens=8, n=2, seed=3
    )
    assert [c.message.content for c in again.choices] == [c.message.content for c in chat.choices]
    stream = client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    stop = text[4:7]
    stopped = client.completions.create(
        model=model, prompt="A bird", max_tokens=12, temperature=0, stop=[stop]
    )
    assert stopped.choices[0].text == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="another", prompt="x")
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model=model, prompt=[1] * 5000)
    assert refused.value.code == "context_length_exceeded"


def test_a_cancelled_stream_is_aborted_within_a_second(tiny_llama_8k: Path) -> None:
    flags = ("--dtype", "float32", "--kv-cache-memory", "16Mi")
    with running(tiny_llama_8k, *flags) as replica, openai_client(replica, strict=False) as lenient:
        stream = lenient.completions.create(
            model=replica.model(),
            prompt=GOLDEN,
            max_tokens=8000,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        next(iter(stream))
        assert unfinished(replica) == 1
        stream.close()
        deadline = time.monotonic() + 1.0
        while unfinished(replica):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def answers(replica: Replica, mode: GenerationMode, count: int) -> Counter[int]:
    """Send so many requests at least, good or bad, that are made from the server's own document,
    and check each answer."""
    schema = schemathesis.openapi.from_url(replica.url + "/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method == "post"]
    statuses: Counter[int] = Counter()

    def attack(operation: Any, number: int, salt: int) -> None:
        @seed(salt)
        @settings(
            max_examples=number,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def send(case: Any) -> None:
            response = case.call(timeout=60)
            case.validate_response(response, checks=[not_a_server_error, status_code_conformance])
            statuses[response.status_code] += 1

        send()

    # Of an operation that takes little there are fewer different requests than asked for.
    for salt in itertools.count():
        missing = count - sum(statuses.values())
        if missing <= 0:
            break
        for operation in posts:
            attack(operation, -(-missing // len(posts)), salt)
    return statuses


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("count", [96, pytest.param(10_000, marks=pytest.mark.slow)])
def test_requests_made_from_the_document(replica: Replica, calm: str, count: int) -> None:
    """So many malformed ones, and a third as many good ones."""
    pids = replica.rank_pids()
    malformed = answers(replica, GenerationMode.NEGATIVE, count)
    good = answers(replica, GenerationMode.POSITIVE, count // 3)
    print(f"\nmalformed: {dict(malformed)}, good: {dict(good)}")
    assert sum(malformed.values()) >= count
    assert 400 in malformed
    assert not [status for status in malformed + good if status >= 500]
    assert golden(replica) == calm
    assert replica.rank_pids() == pids


def raw(replica: Replica, data: bytes, pause: float = 0.0) -> bytes:
    """Send bytes as they are, in two halves with a pause, and read what comes."""
    address = urlparse(replica.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        try:
            connection.sendall(data[: len(data) // 2])
            time.sleep(pause)
            connection.sendall(data[len(data) // 2 :])
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was all sent, which is an answer
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionResetError:
            pass  # what had come before the reset counts
        return answer


def post(body: bytes, content_type: str = "application/json", path: str = "completions") -> bytes:
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nhost: x\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


HAND_MADE: dict[str, tuple[bytes, set[bytes]]] = {
    "50 MB body": (post(b'{"prompt": "' + b"a" * 50_000_000 + b'"}'), {b"413"}),
    "deep nesting": (post(b"[" * 100_000), {b"400"}),
    "NaN": (post(b'{"prompt": "x", "temperature": NaN}'), {b"400"}),
    "infinity": (post(b'{"prompt": "x", "temperature": 1e999}'), {b"400"}),
    "huge integer": (post(b'{"prompt": "x", "max_tokens": ' + b"9" * 4000 + b"}"), {b"400"}),
    "least numbers": (
        post(b'{"prompt": "x", "repetition_penalty": 5e-324, "top_p": 0.5, "min_p": 5e-324}'),
        {b"200"},
    ),
    "huge n": (post(b'{"prompt": "x", "n": 1000000}'), {b"400"}),
    "negative": (post(b'{"prompt": "x", "max_tokens": -1}'), {b"400"}),
    "wrong type": (post(b'{"prompt": {"a": 1}}'), {b"400"}),
    "no prompt": (post(b"{}"), {b"400"}),
    "not JSON": (post(b"prompt=x"), {b"400"}),
    "no type": (post(b"{}", "text/plain"), {b"415"}),
    "invalid UTF-8": (post(b'{"prompt": "\xff\xfe"}'), {b"400"}),
    "lone surrogate": (post(b'{"prompt": "\\ud800"}'), {b"400"}),
    "token out of range": (post(b'{"prompt": [99999999]}'), {b"400"}),
    "empty prompt": (post(b'{"prompt": []}'), {b"400"}),
    "unknown constraint": (post(b'{"prompt": "x", "guided_json": {"type": "object"}}'), {b"400"}),
    "not HTTP": (b"\x00\x01\x02\x03\r\n\r\n", {b"400", b""}),
    "huge header": (b"GET / HTTP/1.1\r\nx: " + b"a" * 500_000 + b"\r\n\r\n", {b"400", b"431", b""}),
    "unknown path": (b"GET /etc/passwd HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", {b"404"}),
}


@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_requests(replica: Replica, calm: str, name: str) -> None:
    data, expected = HAND_MADE[name]
    answer = raw(replica, data)
    status = answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/1.1 ") else b""
    assert status in expected, answer[:300]
    assert b"Traceback" not in answer
    assert golden(replica) == calm


@pytest.mark.slow
def test_a_slow_body_is_given_up(replica: Replica, calm: str) -> None:
    body = post(b'{"prompt": "x"}')
    answer = raw(replica, body[:-4] + b" " * 4, pause=25.0)
    assert answer.split(b" ", 2)[1:2] in ([b"408"], [b"400"]), answer[:200]
    assert golden(replica) == calm


def answered(replica: Replica, body: str) -> tuple[int, str | None, int]:
    """Status, Retry-After and tokens of one request."""
    address = urlparse(replica.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=300)
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    tokens = json.loads(answer.read()).get("usage", {}).get("completion_tokens", 0)
    connection.close()
    return answer.status, answer.headers["Retry-After"], tokens


@pytest.mark.timeout(600)
def test_a_flood_is_bounded(replica: Replica, calm: str) -> None:
    """1,000 requests at once against 16 running and 64 queued; looked at all the while."""
    processes = [replica.roles()[role] for role in ("API", "core")]
    body = json.dumps(
        {"model": replica.model(), "prompt": GOLDEN, "max_tokens": 200, "ignore_eos": True}
    )
    results: list[tuple[int, str | None, int]] = []
    threads = [
        threading.Thread(target=lambda: results.append(answered(replica, body)))
        for _ in range(1000)
    ]
    held: list[float] = []
    sizes = [sum(process.memory_info().rss for process in processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            held.append(unfinished(replica))
            sizes.append(sum(process.memory_info().rss for process in processes))
            thread.join(0.05)
    statuses = Counter(status for status, _, _ in results)
    grown = (max(sizes) - sizes[0]) / MIB
    print(f"\n{dict(statuses)}, {max(held):.0f} held in {len(held)} looks, {grown:.0f} MiB more")
    assert len(results) == len(threads)
    assert set(statuses) == {200, 429}
    assert statuses[200] >= CAPACITY
    assert RUNNING < max(held) <= CAPACITY
    assert all(int(retry or 0) >= 1 for status, retry, _ in results if status == 429)
    assert all(tokens == 200 for status, _, tokens in results if status == 200)
    assert grown < 48, sizes
    assert golden(replica) == calm

"""Thousands of bad requests: generated from the OpenAPI document, and twisted from good ones.

Statuses are those that the document names, answers have the shapes that it gives, nothing is a 500,
and the golden prompt still gives its tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from api_server import MODEL, TOKEN, ApiServer, api_server, tiny_tokenizer
from engine_builders import engine_config
from fake_core import FakeCore
from torpor_engine.api.app import create_admin_app, create_client_app
from torpor_engine.api.context import ServerContext

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def examples(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def context() -> ServerContext:
    return ServerContext(
        config=engine_config(model={"max_model_len": 64}),
        served_names=[MODEL],
        tokenizer=tiny_tokenizer(),
        core=FakeCore(),
        admin_token=TOKEN,
    )


client_schema = schemathesis.openapi.from_asgi("/openapi.json", create_client_app(context()))
# A drained server refuses everything from then on, which is right and would end the test.
admin_schema = schemathesis.openapi.from_asgi(
    "/openapi.json",
    create_admin_app(context()),
    headers={"Authorization": f"Bearer {TOKEN}"},
).exclude(path="/drain")


@client_schema.parametrize()
@examples(30)
def test_client_port_follows_its_document(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


@pytest.mark.slow
@client_schema.parametrize()
@examples(600)
def test_client_port_follows_its_document_for_long(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)


@admin_schema.parametrize()
@examples(15)
def test_admin_port_follows_its_document(case: schemathesis.Case) -> None:
    case.headers["Authorization"] = f"Bearer {TOKEN}"
    case.call_and_validate(checks=CHECKS)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with api_server() as running:
        yield running


GOOD: dict[str, dict[str, Any]] = {
    "/v1/completions": {
        "model": MODEL,
        "prompt": "x",
        "max_tokens": 2,
        "temperature": 1.0,
        "top_p": 0.9,
        "n": 1,
        "stop": ["a"],
        "logprobs": 1,
        "stream": False,
        "logit_bias": {"5": 1},
        "seed": 1,
    },
    "/v1/chat/completions": {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "max_completion_tokens": 2,
        "logprobs": True,
        "top_logprobs": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "/tokenize": {"prompt": "x", "add_special_tokens": True},
    "/detokenize": {"tokens": [1, 2]},
}
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    1e308,
    -1e-308,
    0.5,
    "",
    "x",
    "\u0000",
    "\ud7ff\ue000\uffff",
    "9" * 50,
    [],
    [[]],
    [None],
    {},
    {"": {}},
    [[[[[[1]]]]]],
    "a" * 5000,
    list(range(300)),
    {str(i): i for i in range(400)},
]
DOCUMENTED = {200, 400, 404, 413, 415, 429}


def twisted(rng: random.Random, body: Any) -> Any:
    """The body with one value replaced, removed or doubled somewhere within."""
    if isinstance(body, dict) and body and rng.random() < 0.9:
        key = rng.choice(list(body))
        changed = dict(body)
        match rng.randrange(4):
            case 0:
                del changed[key]
            case 1:
                changed[rng.choice(["x", key.upper(), "guided_json", "n"])] = rng.choice(ODD)
            case _:
                changed[key] = twisted(rng, body[key])
        return changed
    if isinstance(body, list) and body and rng.random() < 0.5:
        return [twisted(rng, body[0]), *body[1:]]
    return rng.choice(ODD)


@pytest.mark.parametrize("number", [100, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", GOOD)
def test_twisted_requests(server: ApiServer, path: str, number: int) -> None:
    rng = random.Random(path)
    golden = {"model": MODEL, "prompt": "A bird", "seed": 1, "max_tokens": 8}
    expected = server.post("/v1/completions", golden).json()["choices"]
    statuses = set()
    for _ in range(number):
        body = GOOD[path]
        for _ in range(rng.randint(1, 3)):
            body = twisted(rng, body)
        answer = server.post(path, body)
        assert answer.status in DOCUMENTED, (answer.status, answer.body[:300], body)
        if answer.status != 200:
            assert answer.error["code"]
        statuses.add(answer.status)
    assert {200, 400} <= statuses
    assert server.post("/v1/completions", golden).json()["choices"] == expected
    assert server.call(lambda: server.context.admission.unfinished) == 0

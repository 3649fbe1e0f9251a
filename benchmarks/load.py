"""The load generator: a closed loop of streams against an OpenAI-compatible server.

It runs in a process of its own and prints one JSON line. Times, in seconds:

* ttft: from the request to the first chunk with text;
* tpot: from the first to the last chunk with text, per token after the first, for each request;
* itl: between two chunks of one request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.stats import percentile
from benchmarks.stream import Answer, Stream, Target, Timing, timing

PERCENTS = (50, 90, 99)


async def one(target: Target, prompt: str | list[int]) -> Answer:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Answer] = loop.create_future()
    request = target.request(prompt)
    try:
        await loop.create_connection(lambda: Stream(request, done), target.host, target.port)
    except OSError as error:
        return Answer(0.0, [], error=repr(error))
    return await done


async def closed_loop(
    target: Target, prompts: Sequence[str | list[int]], concurrency: int
) -> tuple[list[Answer], float]:
    """Every prompt once, ``concurrency`` at a time; the answers, and the seconds it took."""
    left: Iterator[str | list[int]] = iter(prompts)
    answers: list[Answer] = []

    async def worker() -> None:
        for prompt in left:
            answers.append(await one(target, prompt))

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return answers, time.perf_counter() - started


def summary(answers: Sequence[Answer], wall: float) -> dict[str, Any]:
    """The line that is printed. Figures are over the good streams only; ``errors`` tells of others.

    ``output_tok_s``: tokens over wall time, prefill included."""
    good: list[Timing] = []
    errors: list[str] = []
    for answer in answers:
        try:
            good.append(timing(answer))
        except ValueError as error:
            errors.append(str(error))
    tokens = sum(item.tokens for item in good)
    result: dict[str, Any] = {
        "ok": len(good),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
        "wall_s": round(wall, 4),
        "output_tokens": tokens,
        "output_tok_s": round(tokens / wall, 2),
        "prompt_tokens": sum(item.prompt_tokens for item in good),
        "client_cpu_s": round(time.process_time(), 3),
    }
    kinds = {
        "ttft": [item.ttft for item in good],
        "tpot": [item.tpot for item in good if item.tpot is not None],
        "itl": [gap for item in good for gap in item.gaps],
    }
    for name, values in kinds.items():
        for percent in PERCENTS:
            value = percentile(values, percent)
            result[f"{name}_p{percent}"] = None if value is None else round(value, 6)
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", type=Path, required=True, help="JSON: a list of prompts")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--fields", type=json.loads, default={}, help="JSON for every body")
    chosen = parser.parse_args(arguments)
    prompts = json.loads(chosen.prompts.read_text())
    target = Target(chosen.host, chosen.port, chosen.model, chosen.max_tokens, chosen.fields)
    answers, wall = uvloop.run(closed_loop(target, prompts, chosen.concurrency))
    print(json.dumps(summary(answers, wall)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

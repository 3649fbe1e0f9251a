"""vLLM offline as an agent (see ``agent``). Runs in the peer's environment: standard library only.

    python -m benchmarks.agent_vllm --model FOLDER --max-num-seqs 512

Asked like ``agent_core``, it answers {"wall_s"}. Eager mode, and no text is made of the tokens, as
in our core process.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from typing import Any

ANSWER = "BENCH "
FIRST_TOKEN = 16


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--vocab", type=int, default=1024)
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--max-model-len", type=int, default=512)
    chosen = parser.parse_args()
    # Only the peer's environment has it.
    from vllm import LLM, SamplingParams  # type: ignore[import-not-found]

    engine = LLM(
        model=chosen.model,
        dtype=chosen.dtype,
        enforce_eager=True,
        max_num_seqs=chosen.max_num_seqs,
        max_model_len=chosen.max_model_len,
        kv_cache_memory_bytes=2**30,
    )
    for line in iter(sys.stdin.readline, ""):
        asked: dict[str, Any] = json.loads(line)
        rng = random.Random(asked["seed"])
        prompts = [
            {
                "prompt_token_ids": [
                    rng.randrange(FIRST_TOKEN, chosen.vocab) for _ in range(asked["prompt"])
                ]
            }
            for _ in range(asked["batch"])
        ]
        sampling = SamplingParams(
            temperature=0, max_tokens=asked["out"], ignore_eos=True, detokenize=False
        )
        started = time.perf_counter()
        outputs = engine.generate(prompts, sampling, use_tqdm=False)
        wall = time.perf_counter() - started
        made = sum(len(output.outputs[0].token_ids) for output in outputs)
        if made != asked["batch"] * asked["out"]:
            raise RuntimeError(f"{made} tokens were made")
        print(ANSWER + json.dumps({"wall_s": wall}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

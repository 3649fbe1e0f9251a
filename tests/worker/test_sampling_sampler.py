"""The sampler against its definition, feature by feature and all at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling_cases import EOS, params, request, sample, sample_rows, sampler_of
from torpor_protocol.arrays import unpack_i32
from torpor_protocol.requests import SamplingParams
from torpor_worker.sampling import reference
from torpor_worker.sampling.choices import argmax
from torpor_worker.sampling.hashing import uniform

VOCAB = 640  # two and a half chunks, so that padding is met too

FEATURES = {
    "greedy": {},
    "logit bias": {"logit_bias": {5: 90.0, 7: -3.5}},
    "min tokens": {"min_tokens": 10, "stop_token_ids": (4, 11)},
    "min tokens, eos ignored": {"min_tokens": 10, "ignore_eos": True, "stop_token_ids": (4,)},
    "repetition": {"repetition_penalty": 1.7},
    "presence": {"presence_penalty": 2.0},
    "frequency": {"frequency_penalty": -0.9},
    "temperature": {"temperature": 0.7},
    "top-k": {"temperature": 1.0, "top_k": 7},
    "top-k of all": {"temperature": 1.0, "top_k": 100_000},
    "top-p": {"temperature": 1.3, "top_p": 0.6},
    "tiny top-p": {"temperature": 1.0, "top_p": 1e-9},
    "min-p": {"temperature": 1.0, "min_p": 0.05},
    "top-k, top-p, min-p": {"temperature": 1.5, "top_k": 30, "top_p": 0.8, "min_p": 0.02},
    "everything": {
        "temperature": 1.1,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
        "logit_bias": {1: 2.0, 600: 4.0},
        "min_tokens": 3,
    },
}


def expected(
    sampling: SamplingParams, prompt: list[int], output: list[int], row: torch.Tensor
) -> int:
    return reference.sample_row(row.tolist(), sampling, prompt, output, EOS)


@pytest.mark.parametrize("feature", FEATURES)
def test_each_feature_equals_its_definition(feature: str) -> None:
    generator = torch.Generator().manual_seed(7)
    for trial in range(40):
        logits = torch.randn(1, VOCAB, generator=generator) * 3
        sampling = params(**{**FEATURES[feature], "seed": trial})
        if sampling.min_tokens == 10:  # make ends likely, so that keeping them away matters
            logits[0, [2, 4, 11]] += 20
        prompt = torch.randint(0, VOCAB, (20,), generator=generator).tolist()
        output = torch.randint(0, VOCAB, (trial % 12,), generator=generator).tolist() * 2
        chosen = sample([request(0, sampling, prompt, output)], logits)
        assert chosen == [expected(sampling, prompt, output, logits[0])]


LEAST = 5e-324  # the smallest number above zero, which float32 takes for zero
EXTREME = {
    "repetition": {"repetition_penalty": LEAST},
    "top-p": {"top_p": LEAST},
    "min-p": {"min_p": LEAST},
    "temperature": {"temperature": 1e-5, "repetition_penalty": LEAST},
    "bias": {"logit_bias": {5: 100.0, 7: -100.0}, "repetition_penalty": 10.0},
    "penalties": {"presence_penalty": -2.0, "frequency_penalty": 2.0, "repetition_penalty": LEAST},
}


@pytest.mark.parametrize("narrow", [{}, {"top_k": 5}, {"top_p": 0.5}, {"top_k": 5, "top_p": LEAST}])
@pytest.mark.parametrize("extreme", EXTREME)
def test_extreme_values_choose_as_ordinary_ones_do(extreme: str, narrow: dict[str, float]) -> None:
    """The tokens of the text are the likeliest by far, or as ever; nothing becomes infinite."""
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3)) * 3
    logits[0, 9] = 40.0
    fields = {"temperature": 1.0, **EXTREME[extreme], **narrow}
    sampled = request(0, params(**fields), [9, 10], [9])
    likely = 5 if extreme == "bias" else 9
    assert sample([sampled], logits) == [likely]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3e38])
@pytest.mark.parametrize("feature", [*FEATURES, *EXTREME])
def test_logits_that_are_no_numbers_still_give_a_token(feature: str, value: float) -> None:
    """A model that overflows may answer nonsense, to that request alone."""
    logits = torch.randn(3, VOCAB, generator=torch.Generator().manual_seed(4))
    healthy = sample([request(0, params(temperature=1.0, top_p=0.9), [5], [6])], logits[:1])
    logits[1] = value
    logits[2, :10] = value
    fields = {"temperature": 1.0, **FEATURES.get(feature, {}), **EXTREME.get(feature, {})}
    ill = params(**fields, logprobs=2)
    first = request(0, params(temperature=1.0, top_p=0.9), [5], [6])
    chosen = sample([first, request(1, ill, [5], [6]), request(2, ill, [5], [6])], logits)
    assert chosen[:1] == healthy
    assert all(0 <= token < VOCAB for token in chosen)


@settings(deadline=None, max_examples=30)
@given(
    names=st.lists(st.sampled_from(sorted(FEATURES)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_a_batch_equals_its_rows_alone(names: list[str], seed: int) -> None:
    logits = torch.randn(len(names), VOCAB, generator=torch.Generator().manual_seed(seed)) * 3
    requests = [
        request(row, params(**{**FEATURES[name], "seed": seed + row}), [3, 9, 2], [9, 9, 17, row])
        for row, name in enumerate(names)
    ]
    alone = [sample([each], logits[i : i + 1])[0] for i, each in enumerate(requests)]
    assert sample(requests, logits) == alone
    order = np.random.default_rng(seed).permutation(len(names)).tolist()
    assert sample([requests[i] for i in order], logits[order]) == [alone[i] for i in order]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_draws_are_the_hash_of_seed_and_position(seed: int) -> None:
    positions = torch.tensor([0, 1, 2, 77, 100_000])
    signed = seed - 2**64 if seed >= 2**63 else seed
    ours = uniform(torch.full_like(positions, signed), positions).tolist()
    assert ours == [reference.uniform(seed, position) for position in positions.tolist()]


def test_draws_are_uniform_over_positions_and_over_seeds() -> None:
    many = torch.arange(64_000)
    for values in (uniform(torch.zeros_like(many), many), uniform(many, torch.zeros_like(many))):
        counts = np.histogram(values.numpy(), bins=64, range=(0, 1))[0]
        assert chi_square(counts, np.full(64, 1000.0)) < 110  # 63 degrees; p < 0.0003
        neighbours = np.corrcoef(values[:-1].numpy(), values[1:].numpy())[0, 1]
        assert abs(neighbours) < 0.02


def chi_square(counts: np.ndarray, expectation: np.ndarray) -> float:
    return float(((counts - expectation) ** 2 / expectation).sum())


@pytest.mark.parametrize(
    "fields", [{}, {"top_k": 12}, {"top_p": 0.7}, {"min_p": 0.1}, {"temperature": 0.5}]
)
def test_draws_follow_the_distribution(fields: dict[str, float]) -> None:
    """20,000 positions of one request."""
    count = 20_000
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(3)) * 2.5
    sampling = params(**{"temperature": 1.0, **fields})
    each = request(0, sampling)
    sampler = sampler_of([each], VOCAB)
    rows = sample_rows([each] * count)
    rows.positions.copy_(torch.arange(count))
    tokens = sampler.sample(logits.expand(count, VOCAB).clone(), rows).tokens.numpy()
    weights = reference.filtered(logits[0].tolist(), sampling)
    assert set(tokens.tolist()) <= set(weights)
    total = sum(weights.values())
    common = [token for token, weight in weights.items() if weight / total * count >= 8]
    observed = np.array([(tokens == token).sum() for token in common] + [0.0])
    expectation = np.array([weights[token] / total * count for token in common] + [0.0])
    observed[-1] = count - observed.sum()
    expectation[-1] = max(count - expectation.sum(), 1e-9)
    degrees = len(common)
    assert degrees >= 3
    limit = degrees + 4.5 * np.sqrt(2 * degrees) + 8
    if expectation[-1] < 8:
        observed, expectation = observed[:-1], expectation[:-1]
    assert chi_square(observed, expectation) < limit


def test_greedy_rows_cost_one_argmax(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [request(row, params()) for row in range(3)]
    sampler = sampler_of(requests, VOCAB)
    for stage in (*sampler._features, sampler._top_k, sampler._temperature, sampler._top_p):
        monkeypatch.setattr(stage, "apply", None)
    logits = torch.randn(3, VOCAB)
    tokens = sampler.sample(logits, sample_rows(requests)).tokens
    assert torch.equal(tokens, logits.argmax(-1))


@pytest.mark.parametrize("size", [256, 512, 600])
def test_argmax_takes_the_first_of_equals(size: int) -> None:
    logits = torch.zeros(3, size)
    logits[1, [size - 1, 17, 255]] = 4.0
    logits[2, [size - 1, 255]] = float("inf")
    assert argmax(logits).tolist() == [0, 17, 255]


def test_penalty_counts_follow_the_output() -> None:
    """Three steps of one sampler equal three samplers that were told the output."""
    sampling = params(frequency_penalty=1.5, repetition_penalty=1.3)
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(5))
    first = request(0, sampling, [3, 4])
    sampler = sampler_of([first], VOCAB)
    output: list[int] = []
    for _ in range(4):
        now = request(0, sampling, [3, 4], output)
        token = sampler.sample(logits.clone(), sample_rows([now])).tokens.tolist()[0]
        assert token == expected(sampling, [3, 4], output, logits[0])
        output.append(token)
    assert len(set(output)) > 1


def test_a_row_forgets_the_request_before() -> None:
    used = request(0, params(**FEATURES["everything"], logprobs=2), [5, 6], [7])
    plain = request(0, params(), [5, 6])
    sampler = sampler_of([used, plain], VOCAB)
    logits = torch.randn(1, VOCAB)
    sampled = sampler.sample(logits.clone(), sample_rows([plain]))
    assert sampled.tokens.tolist() == [int(logits.argmax())]
    assert sampled.logprobs is None


def test_penalty_tables_are_made_on_demand_and_given_back() -> None:
    penalties = sampler_of([request(0, params())], VOCAB)._features[2]
    assert penalties._counts is None  # type: ignore[attr-defined]
    sampler = sampler_of([request(0, params(presence_penalty=1.0))], VOCAB)
    assert sampler._features[2]._counts is not None  # type: ignore[attr-defined]
    sampler.reset()
    assert sampler._features[2]._counts is None  # type: ignore[attr-defined]


def test_logprobs_are_of_the_raw_distribution() -> None:
    logits = torch.randn(4, VOCAB, generator=torch.Generator().manual_seed(11)) * 2
    requests = [
        request(0, params(logprobs=3, logit_bias={9: 50.0})),
        request(1, params()),
        request(2, params(logprobs=0, temperature=1.0)),
        request(3, params(logprobs=5, top_k=4, temperature=2.0)),
    ]
    sampler = sampler_of(requests, VOCAB)
    sampled = sampler.sample(logits.clone(), sample_rows(requests))
    tokens = sampled.tokens.numpy().astype(np.int32)
    assert sampled.logprobs is not None
    entries = sampled.logprobs.unpack(tokens, sampled.logprobs.pack(sampled.tokens).numpy())
    assert [(entry.row, entry.token) for entry in entries] == [(r, tokens[r]) for r in (0, 2, 3)]
    assert tokens[0] == 9
    for entry, wanted in zip(entries, (3, 0, 5), strict=True):
        naive = reference.logprobs_of(entry.row, logits[entry.row].tolist(), entry.token, wanted)
        assert entry.rank == naive.rank
        assert unpack_i32(entry.top_ids).tolist() == unpack_i32(naive.top_ids).tolist()
        assert entry.logprob == pytest.approx(naive.logprob, abs=1e-4)
        assert entry.top_logprobs == pytest.approx(naive.top_logprobs, abs=1e-4)

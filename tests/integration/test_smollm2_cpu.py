"""SmolLM2 on the CPU kernels: the same bits however it is scheduled, and what 8 bits cost."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from octavo import LLM, SamplingParams

PROMPTS = [
    "Once upon a time",
    "The sea is",
    "Name three colours:",
    "1, 2, 3, 4, 5,",
    "A recipe for bread: take flour, water, salt and yeast, and",
    "def add(a, b):",
    "In the beginning there was nothing but a quiet village by a river, where",
    "Dear Sir or Madam, I am writing to you because",
]
#: half greedy, half seeded; the logprobs show every bit of the logits that rounding would change
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=24, logprobs=2, ignore_eos=True)
    if i % 2
    else SamplingParams(seed=i, max_tokens=24, logprobs=2, ignore_eos=True)
    for i in range(len(PROMPTS))
]
CPU = {"ops": "cpu", "attention": "cpu", "max_model_len": 512}
#: prose of the repository, some 1,000 tokens each
TEXTS = sorted((Path(__file__).parents[2] / "docs/decisions").glob("00*.md"))


def written(llm: LLM, which: range = range(len(PROMPTS))) -> list[tuple[list[int], list[float]]]:
    """Token ids and the logprobs of each, bit for bit."""
    prompts, params = [PROMPTS[i] for i in which], [PARAMS[i] for i in which]
    choices = [one.outputs[0] for one in llm.generate(prompts, params, use_tqdm=False)]
    return [
        (
            list(choice.token_ids),
            [
                values[token].logprob
                for token, values in zip(choice.token_ids, choice.logprobs, strict=True)
            ],
        )
        for choice in choices
    ]


@pytest.fixture(scope="module")
def expected():
    with LLM("smollm2", **CPU) as llm:
        return written(llm)


def test_alone_is_as_all_at_once(expected):
    with LLM("smollm2", **CPU, max_num_seqs=1, enable_prefix_caching=False) as llm:
        assert written(llm) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 8, "max_num_seqs": 8},
        {"num_gpu_blocks_override": 20, "block_size": 8},
        {"depth": 1, "block_size": 1},
        {"threads": 1},
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
    ],
    ids=["chunks", "preemption", "depth", "one thread", "drafts"],
)
def test_no_bit_depends_on(expected, settings):
    with LLM("smollm2", **CPU, **settings) as llm:
        assert written(llm) == expected
        assert written(llm) == expected  # with prefix hits


EXACT = {
    "ops": {"use": "cpu", "mode": "exact"},
    "attention": {"use": "cpu", "cache_dtype": "float32"},
}


def test_exact_mode_writes_what_torch_writes():
    params = SamplingParams(temperature=0.0, max_tokens=24, logprobs=2)
    texts = {}
    for name, settings in (("torch", {"ops": "torch"}), ("cpu", EXACT)):
        with LLM("smollm2", max_model_len=512, **settings) as llm:
            texts[name] = [one.outputs[0] for one in llm.generate(PROMPTS, params, use_tqdm=False)]
    for ours, theirs in zip(texts["cpu"], texts["torch"], strict=True):
        for place, (mine, wanted) in enumerate(zip(ours.token_ids, theirs.token_ids, strict=True)):
            values = sorted(one.logprob for one in theirs.logprobs[place].values())
            if mine != wanted:
                assert values[-1] - values[-2] < 0.01, place
                break


@pytest.mark.full
def test_activations_of_8_bits_change_the_perplexity_little():
    fast = perplexity(ops="cpu", attention={"use": "cpu", "cache_dtype": "float32"})
    assert fast <= 1.005 * perplexity(ops="torch")


@pytest.fixture(scope="module")
def exact_perplexity():
    return perplexity(**EXACT)


@pytest.mark.full
@pytest.mark.parametrize(
    ("cache_dtype", "most"), [("float16", 1.001), ("int8", 1.001), ("int4", 1.01)]
)
def test_caches_of_few_bits_change_the_perplexity_little(exact_perplexity, cache_dtype, most):
    # activations of 8 bits would multiply whatever differs: 0.1 % for a last bit
    attention = {"use": "cpu", "cache_dtype": cache_dtype}
    assert perplexity(**{**EXACT, "attention": attention}) <= most * exact_perplexity


def perplexity(**settings) -> float:
    """Of 5,000 tokens and more."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    with LLM("smollm2", max_model_len=1024, **settings) as llm:
        tokenizer = llm.get_tokenizer()
        prompts = [{"prompt_token_ids": tokenizer.encode(path.read_text())[:800]} for path in TEXTS]
        outputs = llm.generate(prompts, params, use_tqdm=False)
    logprobs = [
        next(iter(values.values())).logprob
        for output in outputs
        for values in output.prompt_logprobs
        if values
    ]
    assert len(logprobs) >= 5000
    return math.exp(-sum(logprobs) / len(logprobs))

"""SmolLM2 with its real weights: the text is transformers' text, whatever the schedule.

Every variant of batching, chunking, blocks, prefix hits, preemption and depth must give the same
tokens. One run is then checked against transformers on the same dequantised weights, position by
position: a greedy sequence is transformers' own exactly if each token is its argmax there. As
greedy text hides rounding, seeded text at temperature 1 is compared by its logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from octavo import LLM, SamplingParams
from transformers_twin import load_twin

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NUM_GREEDY = 32
TOLERANCE = 1e-4
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Numbers in order: one two",
    "Water boils at",
    "The three primary colours are",
    "Q: What is 7 times 8?\nA:",
    "import numpy as np\n\nx = np.",
    "In 1969, the first people to walk on the Moon",
    "To make a good cup of tea, first",
    "El perro corre por",
    "1, 1, 2, 3, 5, 8,",
    "The opposite of hot is",
    "Dear Sir or Madam,\n\nI am writing to",
    "<html>\n<head>\n<title>",
    "A haiku about autumn:\n",
    "She opened the door and saw",
    "Photosynthesis is the process by which",
    "Breaking news: scientists have discovered",
    "The recipe calls for flour, sugar, and",
]
NUM_SHORT = 8
GREEDY = SamplingParams(temperature=0.0, max_tokens=NUM_GREEDY, ignore_eos=True)
SHORT = SamplingParams(temperature=0.0, max_tokens=NUM_SHORT, ignore_eos=True)


def tokens_of(llm: LLM, prompts: list[Any], params: Any = GREEDY) -> list[list[int]]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture(scope="module")
def greedy_tokens() -> list[list[int]]:
    """All prompts at once, with the defaults."""
    with LLM("smollm2", ops="torch") as llm:
        return tokens_of(llm, PROMPTS)


@pytest.fixture(scope="module")
def twin() -> PreTrainedModel:
    return load_twin("smollm2")


@pytest.fixture(scope="module")
def prompt_ids() -> list[list[int]]:
    with LLM("smollm2", ops="torch", max_num_seqs=1) as llm:
        return [llm.get_tokenizer().encode(prompt) for prompt in PROMPTS]


def test_greedy_text_is_transformers_text(
    greedy_tokens: list[list[int]], prompt_ids: list[list[int]], twin: PreTrainedModel
) -> None:
    for prompt, output in zip(prompt_ids, greedy_tokens, strict=True):
        with torch.inference_mode():
            logits = twin(torch.tensor([prompt + output])).logits[0]
        expected = logits[len(prompt) - 1 : -1].argmax(-1).tolist()
        assert output == expected


def test_alone_is_as_all_at_once(greedy_tokens: list[list[int]]) -> None:
    with LLM("smollm2", ops="torch") as llm:
        alone = [tokens_of(llm, [prompt], SHORT)[0] for prompt in PROMPTS]
    assert alone == [tokens[:NUM_SHORT] for tokens in greedy_tokens]


VARIANTS = {
    "chunks of 16": {"max_num_batched_tokens": 16, "max_num_seqs": 16},
    "chunks of 33": {"max_num_batched_tokens": 33},
    "chunks of 512": {"max_num_batched_tokens": 512},
    "blocks of 1": {"block_size": 1},
    "blocks of 32": {"block_size": 32},
    "no prefix cache": {"enable_prefix_caching": False},
    "depth 1": {"depth": 1},
    "contiguous": {"allocator": "contiguous", "max_model_len": 256},
    "by time": {"max_step_ms": 20},
}
#: near to others, which say about the same
IN_FULL = (
    "chunks of 33",
    "chunks of 512",
    "blocks of 1",
    "blocks of 32",
    "no prefix cache",
    "by time",
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.full] if one in IN_FULL else []) for one in VARIANTS],
)
def test_schedule_changes_no_token(name: str, greedy_tokens: list[list[int]]) -> None:
    settings: dict[str, Any] = VARIANTS[name]
    with LLM("smollm2", ops="torch", **settings) as llm:
        assert tokens_of(llm, PROMPTS) == greedy_tokens


@pytest.mark.full  # by default on a tiny model
@pytest.mark.parametrize("depth", [0, 1])
def test_B101_preemption_changes_no_token(depth: int, greedy_tokens: list[list[int]]) -> None:
    params = SamplingParams(temperature=0.0, max_tokens=NUM_GREEDY, ignore_eos=True, logprobs=1)
    with LLM("smollm2", ops="torch", num_gpu_blocks_override=60, block_size=4, depth=depth) as llm:
        outputs = llm.generate(PROMPTS, params, use_tqdm=False)
        assert llm.get_metrics().preemptions > 0
    assert [list(output.outputs[0].token_ids) for output in outputs] == greedy_tokens
    assert all(len(output.outputs[0].logprobs or []) == NUM_GREEDY for output in outputs)


@pytest.mark.full  # by default on a tiny model
def test_B95_prefix_hits_change_no_token() -> None:
    system = "You are a helpful assistant who answers in one short sentence. " * 4
    prompts = [system + tail for tail in ("What is rain?", "Who wrote Hamlet?", "What is rain?")]
    texts = []
    for is_cached in (True, False):
        with LLM("smollm2", ops="torch", enable_prefix_caching=is_cached) as llm:
            texts.append([tokens_of(llm, [prompt])[0] for prompt in prompts])
            hits = llm.get_metrics().prefix_hits_tokens
            assert (hits > 60) == is_cached
    assert texts[0] == texts[1]
    assert texts[0][0] == texts[0][2]


LONG = {
    "all at once": {"max_num_batched_tokens": 512},
    "16": {"max_num_batched_tokens": 16, "max_num_seqs": 4, "block_size": 1},
    "17": {"max_num_batched_tokens": 17, "max_num_seqs": 4, "block_size": 16},
    "33": {"max_num_batched_tokens": 33, "block_size": 32},
}


@pytest.mark.full  # by default on a tiny model
def test_B98_a_long_prompt_in_any_chunks() -> None:
    long_prompt = " ".join(PROMPTS * 3)
    results = {}
    params = [
        SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in (8, 16, 16, 16)
    ]
    for name, settings in LONG.items():
        with LLM("smollm2", ops="torch", max_step_ms=None, **settings) as llm:
            prompt = llm.get_tokenizer().encode(long_prompt)[:500]
            prompts = [{"prompt_token_ids": prompt}, *PROMPTS[:3]]
            results[name] = tokens_of(llm, prompts, params)
            assert tokens_of(llm, prompts[:1], params[:1]) == results[name][:1]
    assert all(result == results["all at once"] for result in results.values())


def capturing() -> tuple[list[torch.Tensor], Any]:
    """Return a list, and a logits processor that appends each position's logits to it."""
    captured: list[torch.Tensor] = []

    def processor(output_ids: list[int], logits: torch.Tensor) -> None:
        del output_ids
        captured.append(logits.clone())

    return captured, processor


def twin_logits(twin: PreTrainedModel, prompt: list[int], output: list[int]) -> torch.Tensor:
    """Return transformers' logits of the output's positions, in one pass: [output, vocab]."""
    with torch.inference_mode():
        return twin(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]


@pytest.mark.parametrize("num_prompts", [4, pytest.param(len(PROMPTS), marks=pytest.mark.full)])
def test_seeded_logits_are_transformers_logits(
    num_prompts: int, prompt_ids: list[list[int]], twin: PreTrainedModel
) -> None:
    """20 prompts x 256 tokens at temperature 1: logits per position within 1e-4.

    Logits reach 45, and a few positions are farther: 8 of 5,120 when measured, 1.8e-4 at most.
    Over the same sequences transformers is up to 1.65e-4 from its own float64 result.
    """
    prompts = PROMPTS[:num_prompts]
    captures = [capturing() for _ in prompts]
    params = [
        SamplingParams(
            temperature=1.0,
            seed=index,
            max_tokens=256,
            ignore_eos=True,
            logits_processors=[processor],
        )
        for index, (_, processor) in enumerate(captures)
    ]
    with LLM("smollm2", ops="torch") as llm:
        outputs = tokens_of(llm, prompts, params)
    distances = []
    for prompt, output, (captured, _) in zip(
        prompt_ids[:num_prompts], outputs, captures, strict=True
    ):
        expected = twin_logits(twin, prompt, output)
        distances.append((torch.stack(captured) - expected).abs().amax(-1))
    per_position = torch.cat(distances)
    assert per_position.numel() == num_prompts * 256
    assert (per_position > TOLERANCE).float().mean() <= 0.005
    assert per_position.max() <= 4 * TOLERANCE

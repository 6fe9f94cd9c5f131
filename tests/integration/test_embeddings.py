"""Vectors in process: transformers' own, whatever is cut, cached, preempted, batched or split."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_models
from byte_models import EOS, GEMMA3, LLAMA, MISTRAL, random_prompt, save_byte_model
from embedding_models import cosine, expected_vector, save_embedding_model, write_pooling
from octavo import LLM, AsyncLLM, LoRARequest, PoolingParams, SamplingParams
from octavo.errors import RequestError, RequestFailedError, UnsupportedError
from peft_folders import Lora, write_adapter
from transformers_twin import load_twin

MODES = ("last", "mean")
#: the op set for CPUs multiplies 4-bit weights with activations of 8 bits
LIKENESS_OF_CPU = 0.999
LENGTHS = (5, 200, 1, 31, 32, 33, 64, 150, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def llm(folder):
    with open_llm(folder) as llm:
        yield llm


def open_llm(folder, **settings):
    return LLM(folder, **{"max_num_seqs": 8, "threads": 1, **settings})


def embedded(llm, prompts, mode=None, **options):
    params = PoolingParams(pooling=mode)
    return llm.embed(prompts, pooling_params=params, use_tqdm=False, **options)


def vectors(llm, prompts, mode=None, **options):
    return [output.outputs.embedding for output in embedded(llm, prompts, mode, **options)]


def run(llm, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


@pytest.fixture(scope="module")
def prompts():
    return [random_prompt(num, num) for num in LENGTHS]


@pytest.fixture(scope="module")
def whole(llm, prompts):
    """Vectors of prompts that were computed in one piece each."""
    return {mode: vectors(llm, prompts, mode) for mode in MODES}


@pytest.mark.parametrize("variant", [LLAMA, MISTRAL, GEMMA3], ids=str)
def test_vectors_are_those_of_transformers(variant, tmp_path):
    prompts = [random_prompt(num, num) for num in (1, 5, 30, 60)]
    with open_llm(save_byte_model(variant, tmp_path)) as llm:
        for mode in MODES:
            for prompt, vector in zip(prompts, vectors(llm, prompts, mode), strict=True):
                assert cosine(vector, expected_vector(variant, prompt, mode)) > 0.9999
                assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 32},
        {"max_num_batched_tokens": 32, "depth": 1},
        {"max_num_batched_tokens": 7, "max_num_seqs": 3, "enable_prefix_caching": False},
        {"max_num_batched_tokens": 64, "num_gpu_blocks_override": 15, "block_size": 16},
        {"max_num_batched_tokens": 64, "num_gpu_blocks_override": 15, "depth": 1},
        {"allocator": "contiguous", "num_gpu_blocks_override": 1024, "depth": 1},
    ],
    ids=str,
)
def test_B163_vectors_do_not_depend_on_chunks_memory_or_depth(folder, prompts, whole, settings):
    with open_llm(folder, **settings) as llm:
        for mode in MODES:
            assert vectors(llm, prompts, mode) == whole[mode]
            # a second time, with whatever the cache holds by now
            assert vectors(llm, prompts[::-1], mode) == whole[mode][::-1]


def test_means_are_computed_anew_and_last_tokens_take_what_the_cache_has(folder):
    prompt = random_prompt(80, 3)
    with open_llm(folder) as llm:
        for mode, num_cached in (("mean", 0), ("last", 64), ("mean", 0)):
            params = PoolingParams(pooling=mode)
            (output,) = llm.embed([prompt], pooling_params=params, use_tqdm=False)
            assert output.num_cached_tokens == num_cached
            assert cosine(output.outputs.embedding, expected_vector(LLAMA, prompt, mode)) > 0.9999


def test_a_preempted_mean_begins_anew(folder):
    """A long text and long answers in a small cache: someone is preempted, and nobody differs."""
    prompts = [random_prompt(90, seed) for seed in range(3)]
    settings = {"num_gpu_blocks_override": 20, "max_num_batched_tokens": 32, "depth": 1}
    expected = [expected_vector(LLAMA, prompt, "mean") for prompt in prompts]

    async def run_all():
        async with AsyncLLM(folder, max_num_seqs=6, threads=1, **settings) as llm:
            params = SamplingParams(temperature=0, max_tokens=120, ignore_eos=True)

            async def answer(seed):
                async for _ in llm.generate(random_prompt(20, 50 + seed), params):
                    pass

            answers = [asyncio.create_task(answer(seed)) for seed in range(3)]
            for _ in range(4):
                pooling = PoolingParams(pooling="mean")
                found = await asyncio.gather(*(llm.embed(one, pooling) for one in prompts))
                for output, vector in zip(found, expected, strict=True):
                    assert cosine(output.outputs.embedding, vector) > 0.9999
            await asyncio.gather(*answers)
            return (await llm.get_metrics()).preemptions

    assert asyncio.run(run_all()) > 0


def test_vectors_and_texts_run_side_by_side(folder, llm):
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    prompt, other = random_prompt(10, 1), random_prompt(70, 2)
    text = run(llm, [prompt], params)[0].outputs[0].token_ids

    async def run_all():
        async with AsyncLLM(folder, max_num_seqs=4, threads=1) as both:

            async def answer():
                return [one async for one in both.generate(prompt, params)][-1].outputs[0].token_ids

            return await asyncio.gather(answer(), both.embed(other), both.embed(other))

    ids, one, two = asyncio.run(run_all())
    assert ids == text
    assert one.outputs.embedding == two.outputs.embedding
    assert cosine(one.outputs.embedding, expected_vector(LLAMA, other, "last")) > 0.9999


def test_two_ranks_give_the_vectors_of_one(folder, prompts, whole):
    with open_llm(folder, tensor_parallel_size=2, max_num_batched_tokens=64) as llm:
        for mode in MODES:
            for ours, theirs in zip(vectors(llm, prompts, mode), whole[mode], strict=True):
                assert cosine(ours, theirs) > 0.9999
        # one message to the ranks, two ways of pooling over the same ids
        params = [PoolingParams(pooling=mode) for mode in MODES]
        mixed = llm.embed([prompts[1]] * 2, pooling_params=params, use_tqdm=False)
        for output, mode in zip(mixed, MODES, strict=True):
            assert cosine(output.outputs.embedding, whole[mode][1]) > 0.9999


def test_an_adapter_changes_vectors_as_if_it_were_in_the_weights(llm, tmp_path):
    torch.manual_seed(0)
    weights = {
        f"model.layers.{layer}.mlp.up_proj.weight": 0.2 * torch.randn(96, 64) for layer in range(3)
    }
    adapter = LoRARequest("up", 1, str(write_adapter(tmp_path / "a", weights, Lora())))
    prompt = random_prompt(40, 9)
    base, adapted = (vectors(llm, [prompt], "mean", lora_request=one) for one in (None, adapter))
    again = vectors(llm, [prompt] * 2, "mean", lora_request=[None, adapter])
    assert cosine(base[0], adapted[0]) < 0.999
    assert again == [base[0], adapted[0]]


def test_B161_the_end_that_the_tokenizer_appends_is_the_last_token(tmp_path):
    texts = ["a", "The sea is wide.", "x" * 70]
    with open_llm(save_embedding_model(LLAMA, tmp_path)) as llm:
        together = llm.embed(texts, use_tqdm=False)
        for text, output in zip(texts, together, strict=True):
            ids = [*text.encode(), EOS]
            assert output.prompt_token_ids == ids
            assert cosine(output.outputs.embedding, expected_vector(LLAMA, ids, "last")) > 0.9999
            (alone,) = llm.embed(text, use_tqdm=False)
            assert alone.outputs.embedding == output.outputs.embedding


def test_the_models_files_say_how_to_pool_and_settings_go_before(tmp_path):
    path = save_embedding_model(LLAMA, tmp_path)
    write_pooling(Path(path), mean_tokens=True, lasttoken=False, is_normalized=False)
    ids = [*b"two words", EOS]
    with open_llm(path) as llm:
        (found,) = vectors(llm, ["two words"])
        assert cosine(found, expected_vector(LLAMA, ids, "mean")) > 0.9999
        assert math.hypot(*found) != pytest.approx(1, abs=0.01)  # no Normalize module
        params = PoolingParams(use_activation=True)
        (unit,) = llm.embed("two words", pooling_params=params, use_tqdm=False)
        assert math.hypot(*unit.outputs.embedding) == pytest.approx(1, abs=1e-6)
    with open_llm(path, pooling="last") as llm:
        assert cosine(vectors(llm, ["two words"])[0], expected_vector(LLAMA, ids, "last")) > 0.9999
    write_pooling(Path(path), cls_token=True)
    with open_llm(path) as llm:
        with pytest.raises(RequestError, match="the pooling of this model is 'cls'") as caught:
            llm.embed("a", use_tqdm=False)
        assert caught.value.param == "pooling"
        assert len(vectors(llm, ["a"], "mean")[0]) == 64


def test_B164_vectors_have_the_hidden_size_and_are_cut_where_that_was_trained(llm, tmp_path):
    prompt = random_prompt(12, 4)
    params = PoolingParams(dimensions=16)
    assert len(vectors(llm, [prompt])[0]) == 64
    with pytest.raises(RequestError, match="cannot be cut") as caught:
        llm.embed([prompt], pooling_params=params, use_tqdm=False)
    assert caught.value.param == "dimensions"
    path = save_embedding_model(LLAMA, tmp_path, matryoshka_dimensions=[16, 32])
    for dtype in ("float32", "bfloat16"):
        with open_llm(path, dtype=dtype, ops="torch") as cut:
            (output,) = cut.embed([prompt], pooling_params=params, use_tqdm=False)
            vector = output.outputs.embedding
            assert len(vector) == output.outputs.hidden_size == 16
            assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)
            least = 0.9999 if dtype == "float32" else 0.99
            assert cosine(vector, expected_vector(LLAMA, prompt, "last", 16)) > least
            assert len(vectors(cut, [prompt])[0]) == 64
            with pytest.raises(RequestError, match="valid: 16, 32"):
                cut.embed([prompt], pooling_params=PoolingParams(dimensions=8), use_tqdm=False)


def test_scores_are_cosines_of_one_with_all_or_of_pairs(llm):
    texts = ["the sea", "the see", "12345678"]
    found = llm.score("the sea", texts, use_tqdm=False)
    expected = [expected_vector(LLAMA, text.encode(), "last") for text in texts]
    for output, vector in zip(found, expected, strict=True):
        assert output.outputs.score == pytest.approx(float(expected[0] @ vector), abs=1e-4)
    assert found[1].prompt_token_ids == [*b"the sea", *b"the see"]
    pairs = llm.score(texts, texts[::-1], use_tqdm=False)
    assert pairs[0].outputs.score == pytest.approx(pairs[2].outputs.score)
    assert pairs[1].outputs.score == pytest.approx(1)
    with pytest.raises(RequestError, match="2 texts cannot be compared with 3"):
        llm.score(texts[:2], texts, use_tqdm=False)


def test_encode_gives_arrays_and_knows_one_task(llm):
    (output,) = llm.encode("abc", pooling_task="embed", use_tqdm=False)
    assert output.outputs.data.dtype == np.float32
    assert output.outputs.data.tolist() == vectors(llm, ["abc"])[0]
    with pytest.raises(UnsupportedError, match="'classify' is not done here"):
        llm.encode("abc", pooling_task="classify")


def test_long_prompts_are_refused_or_cut_and_the_longest_fits(folder):
    with open_llm(folder, max_model_len=64) as llm:
        prompt = random_prompt(65, 1)
        with pytest.raises(RequestError, match="maximum context length is 64 tokens"):
            llm.embed([prompt], use_tqdm=False)
        (fits,) = vectors(llm, [prompt[1:]])
        assert cosine(fits, expected_vector(LLAMA, prompt[1:], "last")) > 0.9999
        for num in (-1, 64):
            (cut,) = llm.embed([prompt], truncate_prompt_tokens=num, use_tqdm=False)
            assert cut.outputs.embedding == fits
            assert cut.prompt_token_ids == prompt[1:]


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"pooling": "cls"}, "pooling"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": True}, "dimensions"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"use_activation": 1}, "use_activation"),
        ({"use_activation": True, "normalize": False}, "normalize"),
    ],
)
def test_wrong_parameters_are_named(values, param):
    with pytest.raises(RequestError) as caught:
        PoolingParams(**values)
    assert caught.value.param == param


def test_a_simulated_model_makes_no_vectors(folder):
    settings = {"executor": {"use": "simulated", "fixed-ms": 1}}
    with (
        LLM(folder, **settings) as llm,
        pytest.raises(RequestFailedError, match=r"a simulated model has no logits: .*embeddings"),
    ):
        llm.embed("abc", use_tqdm=False)


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_model_that_was_saved_without_its_head_makes_vectors(is_tied, tmp_path):
    """As models of embeddings are: `LlamaModel`, no `model.` before names, no `lm_head`."""
    save_byte_model(LLAMA, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    tiny_models.reference_model(LLAMA).model.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    assert config["architectures"] == ["LlamaModel"]
    path.write_text(json.dumps(config | {"tie_word_embeddings": is_tied}))
    prompt = random_prompt(40, 1)
    params = SamplingParams(max_tokens=1)
    with open_llm(str(tmp_path)) as llm:
        assert cosine(vectors(llm, [prompt])[0], expected_vector(LLAMA, prompt, "last")) > 0.9999
        if is_tied:
            assert len(run(llm, [prompt], params)[0].outputs[0].token_ids) == 1
        else:
            with pytest.raises(RequestError, match="this model generates no text"):
                run(llm, [prompt], params)


@pytest.mark.full
def test_smollm2_gives_the_vectors_of_transformers():
    texts = ["The sea is", "A cat sat on the mat, and " * 12, "42"]
    with LLM("smollm2", max_num_batched_tokens=32) as llm:
        found = {mode: embedded(llm, texts, mode) for mode in MODES}
    twin = load_twin("smollm2")
    for mode in MODES:
        for output in found[mode]:
            with torch.no_grad():
                ids = torch.tensor([output.prompt_token_ids])
                states = twin.model(ids).last_hidden_state[0].double()
            vector = states[-1] if mode == "last" else states.mean(0)
            assert cosine(output.outputs.embedding, vector.numpy()) > LIKENESS_OF_CPU

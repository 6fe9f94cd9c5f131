"""Requests that share steps on a tiny model: each gets what it gets alone, whoever is beside it."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

import psutil
import pytest
import torch

import tiny_gguf
import tiny_models
from byte_models import (
    LLAMA,
    expected_logprobs,
    random_prompt,
    save_byte_model,
    save_tokenizer,
    values_of,
)
from checkpoints import byte_vocabulary, f32, llama_gguf
from octavo import LLM, SamplingParams
from octavo.errors import CapacityError
from octavo.frontend.preprocess import Call
from tiny_models import Variant

GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
SECOND_END = 7


@pytest.fixture(scope="module")
def llm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    path = save_byte_model(LLAMA, folder, eos_token_id=[2, SECOND_END])
    with LLM(path, max_num_seqs=8, max_num_batched_tokens=64, threads=1) as model:
        yield model


def run(llm, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


def ids_of(llm, prompts, params):
    return [output.outputs[0].token_ids for output in run(llm, prompts, params)]


# ---------------------------------------------------------------------- seeds


def test_B86_a_seeded_request_beside_unseeded_ones(llm):
    prompts = [random_prompt(9, 1), random_prompt(6, 2)]
    unseeded = SamplingParams(temperature=0.9, max_tokens=12, ignore_eos=True)
    seeded = replace(unseeded, seed=11)
    (alone,) = ids_of(llm, prompts[:1], seeded)
    others = set()
    for order in (1, -1, 1, -1):
        params = [seeded, unseeded][::order]
        one, other = ids_of(llm, prompts[::order], params)[::order]
        assert one == alone
        others.add(tuple(other))
    assert len(others) == 4


def test_B88_the_order_of_the_prompts_changes_no_text(llm):
    prompts = [random_prompt(3 + 4 * i, i) for i in range(10)]
    params = SamplingParams(temperature=0.7, seed=5, max_tokens=24, ignore_eos=True)
    in_order = ids_of(llm, prompts, params)
    assert in_order == ids_of(llm, prompts[::-1], params)[::-1]
    assert in_order == [ids_of(llm, [prompt], params)[0] for prompt in prompts]
    assert len({tuple(ids) for ids in in_order}) == 10


# ---------------------------------------------------------------------- what is in a row


def test_B39_mixed_logprobs_are_those_of_each_alone(llm):
    prompts = [random_prompt(num, num) for num in (5, 70, 19, 33)]
    params = [
        replace(GREEDY, logprobs=5),
        replace(GREEDY, prompt_logprobs=2, max_tokens=20),
        replace(GREEDY, temperature=0.8, seed=3),
        replace(GREEDY, logprobs=1, prompt_logprobs=0, max_tokens=9),
    ]
    alone = [run(llm, [prompt], one)[0] for prompt, one in zip(prompts, params, strict=True)]
    for order in (1, -1):
        llm.reset_prefix_cache()
        together = run(llm, prompts[::order], params[::order])[::order]
        for one, other in zip(alone, together, strict=True):
            assert one.outputs[0].text == other.outputs[0].text
            assert_same_scores(one.outputs[0].logprobs, other.outputs[0].logprobs)
            assert_same_scores(one.prompt_logprobs, other.prompt_logprobs)


def assert_same_scores(first, second):
    assert (first is None) == (second is None)
    for one, other in zip(first or (), second or (), strict=True):
        assert (one is None) == (other is None)
        assert {i: (v.logprob, v.rank) for i, v in (one or {}).items()} == {
            i: (pytest.approx(v.logprob, abs=1e-3), v.rank) for i, v in (other or {}).items()
        }


PLAIN = {"B": (random_prompt(11, 1), 40), "D": (random_prompt(23, 2), 12)}
PLAIN |= {"E": (random_prompt(2, 3), 12), "long": (random_prompt(300, 4), 4)}


def test_B116_rows_that_are_used_again_keep_nothing(llm):
    expected = {
        name: ids_of(llm, [prompt], replace(GREEDY, max_tokens=num))[0]
        for name, (prompt, num) in PLAIN.items()
    }
    best = expected["B"][0]
    allowed = replace(GREEDY, allowed_token_ids=[10, 11, 12], max_tokens=5)
    edited = replace(
        GREEDY, bad_words=["e"], logit_bias={best: -100, 65: 50}, min_tokens=9, max_tokens=10,
        stop_token_ids=[66], presence_penalty=2,
    )  # fmt: skip
    calls = {
        name: (prompt, replace(GREEDY, max_tokens=num)) for name, (prompt, num) in PLAIN.items()
    }
    calls |= {"A": (PLAIN["B"][0], allowed), "C": (PLAIN["B"][0], edited)}
    (expected["C"],) = ids_of(llm, [calls["C"][0]], edited)
    shuffled = random.Random(5)  # noqa: S311
    for round_ in range(20):
        llm.reset_prefix_cache()
        first = ["A", "B", "C", *(["long"] if round_ % 2 else [])]
        shuffled.shuffle(first)
        found = run_in_turn(llm, calls, first, {"A": "D", "C": "E"})
        assert set(found.pop("A")) <= {10, 11, 12}
        assert found == {name: expected[name] for name in found}
        assert {"B", "C", "D", "E"} <= set(found)


def run_in_turn(llm, calls, first, successors):
    """Run `first` at once, and each successor as soon as the one before it has ended."""
    engine, found = llm._model.engine, {}

    def start(name):
        prompt, params = calls[name]
        call = Call(request_id=name, prompt=prompt, params=params, arrival_s=0)
        (request,) = llm._model.preprocessor.prepare(call).requests
        found[name] = []
        engine.add(request)

    for name in first:
        start(name)
    while engine.has_work:
        for output in engine.step():
            name = output.request_id.partition("-")[0]
            found[name] += output.token_ids
            if output.finish_reason and name in successors:
                start(successors[name])
    return found


# ---------------------------------------------------------------------- penalties and ends


@pytest.mark.parametrize(
    "penalties",
    [
        {"frequency_penalty": 2.0},
        {"frequency_penalty": -1.0},
        {"presence_penalty": 2.0},
        {"repetition_penalty": 1.7},
        {"frequency_penalty": 1.0, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    ],
    ids=str,
)
def test_B85_penalties_are_those_of_the_logits_by_hand(llm, penalties):
    prompt = [5, 6, 7] * 4
    plain, penalised = ids_of(llm, [prompt] * 2, [GREEDY, replace(GREEDY, **penalties)])
    assert plain == by_hand(prompt)
    assert penalised == by_hand(prompt, **penalties)
    assert penalised != plain


@torch.no_grad()
def by_hand(prompt, frequency_penalty=0.0, presence_penalty=0.0, repetition_penalty=1.0):
    """Return 40 greedy tokens from transformers' logits and the penalties' definitions."""
    model = tiny_models.reference_model(LLAMA)
    output = []
    for _ in range(40):
        logits = model(torch.tensor([prompt + output])).logits[0, -1]
        seen = torch.bincount(torch.tensor(prompt + output), minlength=len(logits)) > 0
        counts = torch.bincount(torch.tensor(output, dtype=torch.int64), minlength=len(logits))
        scaled = torch.where(logits > 0, logits / repetition_penalty, logits * repetition_penalty)
        logits = torch.where(seen, scaled, logits)
        logits = logits - frequency_penalty * counts - presence_penalty * (counts > 0)
        output.append(int(logits.argmax()))
    return output


def test_B81_every_end_of_the_models_files_waits_for_min_tokens(llm):
    def force_at_step_3(output_ids, logits):
        if len(output_ids) == 2:
            logits[SECOND_END] = 1e4
        return logits

    params = SamplingParams(temperature=0, max_tokens=30, logits_processors=[force_at_step_3])
    (early,) = run(llm, [[1, 2]], params)
    assert (early.outputs[0].num_tokens, early.outputs[0].finish_reason) == (3, "stop")
    for ends in ({SECOND_END}, {2}, {SECOND_END, 2, 99}):
        likely = replace(
            GREEDY, ignore_eos=False, min_tokens=10, logit_bias=dict.fromkeys(ends, 100.0),
            stop_token_ids=[99],
        )  # fmt: skip
        (late,) = run(llm, [[1, 2]], likely)
        assert (late.outputs[0].num_tokens, late.outputs[0].finish_reason) == (11, "stop")
        assert not ends & set(late.outputs[0].token_ids[:10])


# ---------------------------------------------------------------------- files


def byte_gguf(path, *markers, **metadata):
    """Write a tiny model whose vocabulary is bytes, one merge and markers; return its path."""
    file = llama_gguf()
    file.metadata |= byte_vocabulary(*markers)
    file.metadata |= {f"tokenizer.{name}": value for name, value in metadata.items()}
    num_tokens = len(file.metadata["tokenizer.ggml.tokens"])
    file.tensors["token_embd.weight"] = f32(torch.randn(num_tokens, 32).numpy())
    return str(file.write(path))


def test_B129_markers_of_a_chat_are_one_id_each_and_end_it(tmp_path):
    template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}"
    path = byte_gguf(tmp_path / "m.gguf", "<|user|>", "<|end|>", chat_template=template)
    with LLM(path, threads=1, max_num_seqs=2) as model:
        user, end = (model.get_tokenizer().token_to_id(name) for name in ("<|user|>", "<|end|>"))
        params = replace(GREEDY, ignore_eos=False, logit_bias={end: 100.0})
        (output,) = model.chat([{"role": "user", "content": "hi"}], params, use_tqdm=False)
    assert (user, end) == (257, 258)
    assert output.prompt_token_ids == [user, *model.get_tokenizer().encode("hi"), end]
    assert output.prompt_token_ids[1:3] == [model.get_tokenizer().token_to_id(c) for c in "hi"]
    choice = output.outputs[0]
    assert (choice.token_ids, choice.text, choice.finish_reason) == ([end], "", "stop")


def test_B131_ends_outside_the_vocabulary_of_a_gguf_harm_no_decode(tmp_path, caplog):
    ids = {"ggml.eos_token_id": 257, "ggml.bos_token_id": 2**32 - 1}
    path = byte_gguf(tmp_path / "bad-ids.gguf", **ids)
    with LLM(path, threads=1, max_num_seqs=2) as model:
        (output,) = run(model, ["hi"], SamplingParams(max_tokens=8))
    assert len(output.prompt_token_ids) == 2
    assert output.outputs[0].num_tokens == 8
    assert caplog.text.count("outside the vocabulary") >= 2


def test_B133_a_gguf_serves_its_stretched_context_and_no_more(tmp_path):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    variant = Variant("Llama-stretched", "Llama", {**yarn, "rope_theta": 5e5})
    model = tiny_models.reference_model(variant)
    path = str(tiny_gguf.write_gguf(model, tmp_path / "stretched.gguf"))
    tokenizer = str(save_tokenizer(tmp_path))
    prompt = [(7 * i) % 93 + 3 for i in range(190)]
    settings = {"tokenizer": tokenizer, "threads": 1, "max_num_seqs": 2}
    with LLM(path, max_model_len=200, **settings) as stretched:
        params = replace(GREEDY, max_tokens=10, prompt_logprobs=0)
        (output,) = run(stretched, [{"prompt_token_ids": prompt}], params)
    values = values_of(output.prompt_logprobs, prompt)
    assert values == pytest.approx(expected_logprobs(variant, prompt), abs=1e-2)
    with pytest.raises(CapacityError, match="max-model-len 257 is more than the model allows"):
        LLM(path, max_model_len=257, **settings)


@pytest.mark.parametrize("is_beside_a_model", [False, True])
def test_a_folder_with_a_tokenizer_alone_is_one(tmp_path, is_beside_a_model):
    path = byte_gguf(tmp_path / "tiny.gguf", "<|end|>")
    folder = tmp_path if is_beside_a_model else tmp_path / "texts"
    folder.mkdir(exist_ok=True)
    save_tokenizer(folder)
    with LLM(path, tokenizer=str(folder), threads=1, max_num_seqs=2) as model:
        assert model.get_tokenizer().encode("<s>hi") == [256, 104, 105]


# ---------------------------------------------------------------------- memory


def test_B154_scores_of_a_long_prompt_take_little_memory(tmp_path):
    """All its logits at once would take 600 MB."""
    sizes = {"vocab_size": 50_000, "max_position_embeddings": 4096, "num_hidden_layers": 1}
    variant = Variant("Llama-wide", "Llama", options=sizes)
    path = save_byte_model(variant, tmp_path)
    process, stop, seen = psutil.Process(), threading.Event(), []

    def watch():
        while not stop.is_set():
            seen.append(process.memory_info().rss)
            time.sleep(0.005)

    with LLM(path, threads=1, max_num_seqs=2) as model:
        for bad in ({"prompt_logprobs": -1}, {"logprobs": 10**6}, {"prompt_logprobs": 21}):
            with pytest.raises(ValueError, match="at most 20 are allowed"):
                run(model, [random_prompt(3000)], SamplingParams(max_tokens=1, **bad))
        run(model, [random_prompt(3000, 1)], SamplingParams(max_tokens=1))
        before = process.memory_info().rss
        thread = threading.Thread(target=watch)
        thread.start()
        (output,) = run(
            model, [random_prompt(3000)], SamplingParams(max_tokens=1, prompt_logprobs=20)
        )
        stop.set()
        thread.join()
    assert len(output.prompt_logprobs) == 3000
    assert max(seen) - before < 150e6

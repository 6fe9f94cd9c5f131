"""The draft model: what it loads and shares, what it reads, and whom it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest

import tiny_models
from byte_models import LLAMA, MINISTRAL, random_prompt, save_byte_model, save_tokenizer
from fixed_costs import make_drafts_free
from octavo import LLM, SamplingParams
from octavo.errors import ConfigError, ModelLoadError, ModelNotFoundError
from octavo.execution.cache_layout import CacheLayout
from octavo.execution.drafts import DraftDesk
from octavo.interfaces.attention import CacheSpec
from octavo_plugins.proposers.draft_progress import DraftProgress

PARAMS = SamplingParams(temperature=1, seed=3, max_tokens=24, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(autouse=True)
def _free_drafts(monkeypatch):
    make_drafts_free(monkeypatch)


def open_llm(folder, **config):
    draft = {"method": "draft_model", "model": "target", "num_speculative_tokens": 3, **config}
    return LLM(
        folder, max_num_seqs=4, threads=1, max_model_len=64, block_size=4, speculative_config=draft
    )


def run(llm, prompts, params=PARAMS):
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def runner_of(llm):
    return llm._model.engine.executor._runner


def refused(error, folder, **config):
    with pytest.raises(error) as caught:
        open_llm(folder, **config)
    return str(caught.value)


# ---------------------------------------------------------------------- loading


@pytest.mark.parametrize("is_named", [False, True])
def test_the_first_layers_of_the_model_share_its_weights(folder, is_named):
    with open_llm(folder, num_layers=2, model=folder if is_named else "target") as llm:
        runner = runner_of(llm)
        target, draft = runner.architecture, runner.proposer._model

        assert draft.shape.num_layers == 2
        assert set(draft.weights) < set(target.weights)
        assert all(draft.weights[name] is target.weights[name] for name in draft.weights)
        assert draft.ops is not target.ops
        assert run(llm, [random_prompt(9)])


def test_lists_by_layer_are_cut_with_the_layers(tmp_path):
    folder = save_byte_model(MINISTRAL, tmp_path)  # sliding, full, sliding
    with open_llm(folder, num_layers=2) as llm:
        runner = runner_of(llm)

        assert [spec.window for spec in map(_attention, runner.proposer._model._layers)] == [
            16,
            None,
        ]
        assert [spec.reach for spec in runner.proposer.cache_specs()] == [None, None]


def _attention(layer):
    return layer.attention


def test_another_model_is_loaded_and_only_so_many_layers_of_it(folder, tmp_path, caplog):
    other = replace(LLAMA, name="Llama-other", options={**LLAMA.options, "num_hidden_layers": 5})
    draft = save_byte_model(other, tmp_path)
    with open_llm(folder, model=draft, num_layers=1) as llm:
        runner = runner_of(llm)
        weights = runner.proposer._model.weights

        assert runner.proposer._model.shape.num_layers == 1
        assert not {id(one) for one in weights.values()} & {
            id(one) for one in runner.architecture.weights.values()
        }
        assert "not used" not in caplog.text
        drafted = run(llm, [random_prompt(9)])
        assert llm.get_metrics().draft_tokens > 0
    with LLM(folder, threads=1, max_model_len=64) as llm:
        assert run(llm, [random_prompt(9)]) == drafted


def test_another_vocabulary_is_refused(folder, tmp_path):
    small = replace(LLAMA, options={**LLAMA.options, "vocab_size": 200, "bos_token_id": 1})
    tiny_models.save(small, tmp_path)

    assert refused(ModelLoadError, folder, model=str(tmp_path)) == (
        f"the draft model '{tmp_path}' has another vocabulary than the model\n"
        "  it has 200 tokens, the model has 258\n"
        "  name a draft model of the same family"
    )


def test_other_tokens_under_the_same_numbers_are_refused(folder, tmp_path):
    tiny_models.save(LLAMA, tmp_path)
    save_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["x"], vocabulary["y"] = vocabulary["y"], vocabulary["x"]
    path.write_text(json.dumps(tokenizer))

    assert refused(ModelLoadError, folder, model=str(tmp_path)) == (
        f"the draft model '{tmp_path}' has another vocabulary than the model\n"
        "  token 120 is 'y' there, and 'x' in the model\n"
        "  name a draft model of the same family"
    )


def test_a_draft_model_without_a_tokenizer_is_taken_at_its_word(folder, tmp_path, caplog):
    tiny_models.save(LLAMA, tmp_path)

    with open_llm(folder, model=str(tmp_path)) as llm:
        assert run(llm, [random_prompt(9)])
    assert f"the tokens of the draft model '{tmp_path}' cannot be compared" in caplog.text


def test_more_layers_than_there_are_are_refused(folder):
    assert refused(ConfigError, folder, num_layers=4) == (
        "the draft model 'target' does not have 4 layers\n  it has 3; lower num-layers"
    )


def test_a_model_that_is_nowhere_is_refused(folder):
    assert "nowhere" in refused(ModelNotFoundError, folder, model="nowhere")


def test_its_cache_is_counted_and_shares_no_memory_with_the_model():
    full, window = CacheSpec(2, 16), CacheSpec(2, 16, reach=7)
    alone = CacheLayout.of([window, window, full])
    both = CacheLayout.of([window, window, full], [full, full])

    assert alone.memory_of == (0, 0, 0)  # three groups, whose blocks lie in one memory
    assert both.memory_of == (0, 0, 0, 1, 2)
    assert both.group_of == (0, 1, 2, 2, 2)
    assert CacheLayout.of([window], [full]).groups != CacheLayout.of([window]).groups


# ---------------------------------------------------------------------- what it reads


class Reads:
    """Counts the tokens that the draft model of an LLM reads."""

    def __init__(self, llm):
        self.num_tokens = self.most = 0
        builder = runner_of(llm).proposer._builder
        build = builder.build

        def counting(advances):
            num_tokens = sum(advance.num_tokens for advance in advances)
            self.num_tokens += num_tokens
            self.most = max(self.most, num_tokens)
            return build(advances)

        builder.build = counting


def test_blocks_that_requests_share_are_read_once(folder):
    prompt = random_prompt(37)
    with open_llm(folder) as llm:
        reads = Reads(llm)
        first = run(llm, [prompt])
        num_first, reads.num_tokens = reads.num_tokens, 0
        assert run(llm, [prompt]) == first
        stats = llm.get_metrics()

    assert num_first >= 37 + 24 - 2
    assert reads.num_tokens <= num_first - 36
    assert stats.draft_tokens == stats.accepted_tokens  # what was not read again is right


def test_a_block_that_changed_hands_is_read_again(folder):
    """With so few blocks, other requests write over what the draft model had read."""
    prompts = [random_prompt(30, seed) for seed in range(6)]
    with LLM(folder, threads=1, max_model_len=64) as llm:
        expected = [run(llm, [prompt])[0] for prompt in prompts]
    config = {"method": "draft_model", "model": "target", "num_speculative_tokens": 3}
    with LLM(
        folder, threads=1, max_model_len=56, block_size=4, num_gpu_blocks_override=32,
        max_num_seqs=4, speculative_config=config,
    ) as llm:  # fmt: skip
        for _ in range(2):
            assert run(llm, prompts) == expected
        stats = llm.get_metrics()

    assert stats.draft_tokens == stats.accepted_tokens


def test_long_prompts_are_read_in_chunks_while_others_are_drafted(folder):
    with open_llm(folder, **{"chunk-tokens": 8}) as llm:
        reads = Reads(llm)
        prompts = [random_prompt(4), random_prompt(40, 1)]
        drafted = run(llm, prompts)
        stats = llm.get_metrics()
    with LLM(folder, threads=1, max_model_len=64) as llm:
        assert run(llm, prompts) == drafted

    assert 8 <= reads.most <= 2 * 2 + 8
    assert stats.draft_tokens == stats.accepted_tokens > 24


def test_drafts_end_where_the_context_ends(folder):
    """Whichever token of it the drafts of a last step begin at."""
    with open_llm(folder) as llm:
        for length in range(36, 44):
            (ids,) = run(llm, [random_prompt(length)], replace(PARAMS, max_tokens=None))

            assert len(ids) == 64 - length


@pytest.mark.parametrize("method", ["propose", "forget"])
def test_a_proposer_that_fails_beside_the_model_costs_drafts_only(folder, method, caplog):
    prompts = [random_prompt(9), random_prompt(5)]

    with open_llm(folder, num_layers=1) as llm:
        wanted = run(llm, prompts)
        proposer = runner_of(llm).proposer

        def fail(*_):
            raise LookupError("lost")

        setattr(proposer, method, fail)
        assert run(llm, prompts) == wanted
        assert run(llm, prompts) == wanted

    (told,) = [one.getMessage() for one in caplog.records if "failed in" in one.getMessage()]
    assert f"the proposer 'draft-model' (octavo {version('octavo')}) failed in {method}" in told
    assert "LookupError: lost; at " in told


@pytest.mark.parametrize("answer", [[[1]], [["x"], [1.5]], None, [[1], [2], [3]]])
def test_what_is_no_answer_to_a_wish_for_drafts_is_none(answer, caplog):
    proposer = SimpleNamespace(propose=lambda _: answer)

    assert DraftDesk().ask(proposer, [(0, 2), (1, 2)]) == [(), ()]
    assert "failed in propose (told once)" in caplog.text


# ---------------------------------------------------------------------- progress by rows


def progress(num_tokens, num_rows=2, block_size=4):
    rows = SimpleNamespace(
        token_ids=np.arange(40, dtype=np.int32)[None].repeat(num_rows, 0),
        num_tokens=[num_tokens] * num_rows,
    )
    tables = np.array([[1, 2, 3, 4], [1, 2, 5, 6]], dtype=np.int32)[:num_rows]
    return rows, DraftProgress(rows, tables, 8, block_size)


def test_drafts_that_were_right_need_not_be_read_again():
    rows, read = progress(6)
    assert read.start_of(0) == 0
    read.advance(0, 6, [6, 7])
    rows.num_tokens[0] = 9  # both drafts were right, and one more token came
    assert read.start_of(0) == 8
    read.advance(0, 9, [9, 99])
    rows.num_tokens[0] = 12
    assert read.start_of(0) == 10  # the second was not


def test_the_last_token_is_always_read():
    rows, read = progress(6)
    read.start_of(0)
    read.advance(0, 6, [6, 7, 8])
    rows.num_tokens[0] = 8  # all right, and cut short by somebody

    assert read.start_of(0) == 7


def test_a_row_goes_on_from_full_blocks_that_another_has_read():
    rows, read = progress(10)
    read.start_of(0)
    read.advance(0, 10, [10])

    assert read.start_of(1) == 8
    rows.token_ids[1, 5] = 0  # the second block's tokens are others
    read.forget(1)
    assert read.start_of(1) == 4


def test_blocks_with_guesses_in_them_are_nobodys():
    rows, read = progress(7)
    read.start_of(0)
    read.advance(0, 7, [7, 8])  # the second block is full, by a guess
    rows.num_tokens[1] = 8

    assert read.start_of(1) == 4


def test_a_row_that_is_forgotten_begins_anew():
    rows, read = progress(3)
    read.start_of(0)
    read.advance(0, 3, [3])
    read.forget(0)
    rows.num_tokens[0] = 5

    assert read.start_of(0) == 0

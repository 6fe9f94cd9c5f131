from __future__ import annotations

import random
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

from octavo.config.schema import ModelConfig
from octavo.engine.messages import EngineInfo, EngineOutput
from octavo.errors import EngineDeadError, QueueFullError, RequestError
from octavo.faults import name_component
from octavo.frontend.chat import ChatRenderer
from octavo.frontend.defaults import GenerationDefaults
from octavo.frontend.preprocess import Preprocessor
from octavo.frontend.request_params import DeclaredParams
from octavo.llm import LLM
from octavo.local_model import LocalModel
from octavo.sampling_params import SamplingParams
from scripted import BOS, EOS, VOCAB_SIZE, BytesTokenizer, ScriptedEngine

INFO = EngineInfo(VOCAB_SIZE, max_model_len=64, capacity_tokens=4096)


@pytest.fixture
def make_llm(monkeypatch):
    """Return an LLM around a scripted engine, which by default repeats the prompt."""

    def make(script=None, *, info=INFO, defaults=None, tokenizer=None, declared=None, **options):
        engine = ScriptedEngine(script or (lambda r: [*r.prompt_token_ids, EOS]), info, **options)
        tokenizer = tokenizer or BytesTokenizer()
        preprocessor = Preprocessor(tokenizer, info, defaults, declared=declared)
        chat = ChatRenderer(tokenizer, ModelConfig())
        model = LocalModel(None, engine, tokenizer, preprocessor, chat)
        monkeypatch.setattr("octavo.llm.resolve_settings", lambda *_: None)
        monkeypatch.setattr("octavo.llm.open_model", lambda _: model)
        return LLM(model="any"), engine

    return make


PARAMS = SamplingParams(max_tokens=20)


def test_outputs_have_the_prompts_and_the_text(make_llm):
    llm, _ = make_llm()
    outputs = llm.generate(["ab", [99], {"prompt": "d"}], PARAMS)
    assert [o.prompt for o in outputs] == ["ab", None, "d"]
    assert [o.outputs[0].text for o in outputs] == ["ab", "c", "d"]
    assert [o.outputs[0].finish_reason for o in outputs] == ["stop"] * 3
    assert len({o.request_id for o in outputs}) == 3


@pytest.mark.parametrize("prompt", ["ab", [97, 98], {"prompt": "ab"}, np.array([97, 98])])
def test_one_prompt_needs_no_list(make_llm, prompt):
    llm, _ = make_llm()
    outputs = llm.generate(prompt, PARAMS)
    assert [o.outputs[0].text for o in outputs] == ["ab"]
    assert llm.generate([], PARAMS) == []


def test_B114_outputs_are_in_the_order_of_the_prompts_however_they_end(make_llm):
    llm, _ = make_llm()
    prompts = ["x" * (17 - 2 * i) for i in range(8)]  # later ones end first
    outputs = llm.generate(prompts, replace(PARAMS, n=2))
    assert [o.prompt for o in outputs] == prompts
    assert [[c.text for c in o.outputs] for o in outputs] == [[p, p] for p in prompts]
    assert [[c.index for c in o.outputs] for o in outputs] == [[0, 1]] * 8


def test_priorities_that_nobody_reads_are_said_to_change_nothing(make_llm, caplog):
    llm, _ = make_llm(declared=DeclaredParams(unread={"priority": "nobody reads it"}))
    llm.generate(["abc", "abc"], PARAMS, priority=[0, 0])
    assert caplog.messages == []
    llm.generate(["abc", "abc"], PARAMS, priority=[0, 6])
    assert caplog.messages == ["priority changes nothing: nobody reads it"]


def test_parameters_and_priorities_one_for_each_prompt(make_llm):
    llm, engine = make_llm()
    params = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=2)]
    outputs = llm.generate(["abc", "abc"], params, priority=[5, 6])
    assert [o.outputs[0].text for o in outputs] == ["a", "ab"]
    assert [r.priority for r in engine.added] == [5, 6]
    with pytest.raises(ValueError, match="2 prompts, but 1 sampling_params"):
        llm.generate(["abc", "abc"], params[:1])
    with pytest.raises(ValueError, match="2 prompts, but 3 priority"):
        llm.generate(["abc", "abc"], PARAMS, priority=[1, 2, 3])


def test_callers_parameters_are_not_changed(make_llm):
    llm, _ = make_llm()
    params = SamplingParams(max_tokens=20, stop=["zz"])
    before = replace(params)
    llm.generate(["ab"], params)
    assert params == before


def test_B80_one_bad_prompt_is_named_before_anything_runs(make_llm):
    llm, engine = make_llm()
    with pytest.raises(RequestError, match="prompt 2: the prompt is empty") as caught:
        llm.generate(["ok", "fine", "", "ok"], PARAMS)
    assert isinstance(caught.value, ValueError)
    assert caught.value.param == "prompt"
    assert engine.added == []
    assert llm.generate(["ok"], PARAMS)[0].outputs[0].text == "ok"


@pytest.mark.parametrize("prompts", [5, None, 1.5, iter(["a"])])
def test_what_is_no_prompt_is_named_by_its_type(make_llm, prompts):
    with pytest.raises(RequestError, match=f"not {type(prompts).__name__}"):
        make_llm()[0].generate(prompts)


def test_B01_prompt_that_does_not_fit_is_a_value_error(make_llm):
    llm, _ = make_llm()
    with pytest.raises(ValueError, match=r"prompt 1: .* maximum context length is 64 tokens"):
        llm.generate(["ok", [1] * 64], PARAMS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_p", 0), ("top_p", 7), ("min_p", 2), ("top_k", -3), ("frequency_penalty", 100),
        ("presence_penalty", -9), ("repetition_penalty", 0), ("n", 0), ("max_tokens", -1),
        ("max_tokens", 0), ("logprobs", -2), ("temperature", -1), ("temperature", "0.5"),
        ("repetition_penalty", 1e-300), ("stop", ["a"] * 65), ("stop", "a" * 20_001),
        ("bad_words", ["a"] * 1025), ("bad_words", ["a" * 10_000, "b" * 10_001]),
    ],
)  # fmt: skip
def test_B79_values_out_of_range_are_refused_with_their_name(field, value):
    with pytest.raises(ValueError, match=field) as caught:
        SamplingParams(**{field: value})
    assert caught.value.param == field


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "repetition_penalty",
                                   "presence_penalty", "frequency_penalty"])  # fmt: skip
def test_B77_values_that_are_no_finite_number_are_refused(field):
    for value in (float("nan"), float("inf"), float("-inf"), 1e400):
        with pytest.raises(ValueError, match="finite") as caught:
            SamplingParams(**{field: value})
        assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 0), ("top_p", 1), ("top_k", -1), ("top_k", 0), ("top_k", 1),
     ("top_k", VOCAB_SIZE + 1)],
)  # fmt: skip
def test_B79_values_at_the_boundaries_are_good(make_llm, field, value):
    llm, _ = make_llm()
    params = SamplingParams(max_tokens=20, **{field: value})
    assert llm.generate(["ab"], params)[0].outputs[0].text == "ab"


def test_B33_stop_string_before_min_tokens_is_ignored_and_a_later_one_ends(make_llm):
    llm, engine = make_llm(lambda _: [*b"ab" * 30])
    params = SamplingParams(max_tokens=40, min_tokens=20, stop=["ab"])
    choice = llm.generate(["p"], params)[0].outputs[0]
    assert (len(choice.token_ids), choice.text) == (20, "ab" * 9)
    assert engine.aborted == ["0-0"]  # the engine does not know stop strings


def test_B81_ids_of_the_models_files_end_a_text_after_min_tokens(make_llm):
    llm, engine = make_llm(lambda _: [1, 1, 7, *[1] * 10], defaults=GenerationDefaults(
        eos_token_ids=(2, 7)))  # fmt: skip
    choice = llm.generate(["p"], PARAMS)[0].outputs[0]
    assert (choice.token_ids, choice.finish_reason) == ([1, 1, 7], "stop")
    choice = llm.generate(["p"], SamplingParams(max_tokens=12, min_tokens=10))[0].outputs[0]
    assert len(choice.token_ids) >= 10
    assert engine.added[0].eos_token_ids == (2, 7, EOS)


def test_B144_defaults_of_the_model_serve_a_caller_without_parameters(make_llm):
    defaults = GenerationDefaults({"temperature": 0.5}, max_new_tokens=8)
    llm, _ = make_llm(lambda _: [1] * 60, defaults=defaults)

    def count(params):
        return len(llm.generate(["p"], params)[0].outputs[0].token_ids)

    assert llm.get_default_sampling_params().temperature == 0.5
    assert count(None) == 8
    ignoring = {"ignore_eos": True}
    assert count(SamplingParams(max_tokens=20, **ignoring)) == 20
    assert count(SamplingParams(max_tokens=None, **ignoring)) == 8
    assert count(SamplingParams(max_tokens=4, **ignoring)) == 4
    llm, _ = make_llm(lambda _: [1] * 60, defaults=GenerationDefaults(max_new_tokens=2048))
    assert count(None) == 60  # the context of 64 is a ceiling, and no reason to refuse


def test_B90_global_generators_are_left_alone_and_unseeded_requests_differ(make_llm):
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global generator is what this test is about
    expected = random.random(), np.random.random()  # noqa: NPY002, S311
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    llm, engine = make_llm()
    llm.generate(["a", "b"], PARAMS)
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002, S311
    assert engine.added[0].seed != engine.added[1].seed


def test_more_prompts_than_may_wait_are_fed_as_room_comes(make_llm):
    llm, engine = make_llm(info=replace(INFO, max_num_queued_reqs=3))
    outputs = llm.generate([f"{i}" for i in range(20)], PARAMS)
    assert [o.outputs[0].text for o in outputs] == [f"{i}" for i in range(20)]
    assert engine.num_steps > 10


def test_engine_that_lets_nothing_wait_refuses(make_llm):
    llm, _ = make_llm(info=replace(INFO, max_num_queued_reqs=0))
    with pytest.raises(QueueFullError):
        llm.generate(["a"], PARAMS)


def test_failure_of_one_prompt_is_in_its_output(make_llm):
    llm, engine = make_llm()
    real_step = engine.step

    def step():
        outputs = real_step()
        failed = next(o for o in outputs if o.request_id == "0-0")
        engine.abort(["0-0"])
        engine.step = real_step
        bad = EngineOutput("0-0", [], finish_reason="error", error="NaN among the logits")
        return [bad if o is failed else o for o in outputs]

    engine.step = step
    bad, good = llm.generate(["ab", "cd"], PARAMS)
    assert (bad.outputs[0].finish_reason, bad.outputs[0].error) == ("error", "NaN among the logits")
    assert good.outputs[0].text == "cd"


def test_ctrl_c_aborts_the_requests_between_steps_and_leaves_the_llm_usable(make_llm):
    llm, engine = make_llm(lambda _: [1] * 60)
    steps_whole = []

    def on_step(number):
        if number == 3:
            signal.raise_signal(signal.SIGINT)
            steps_whole.append(number)  # the step goes on to its end

    engine.on_step = on_step
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["ab", "cd"], SamplingParams(max_tokens=50))
    assert steps_whole == [3]
    assert engine.num_steps == 3
    assert not engine.has_work
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    engine.script = lambda r: [*r.prompt_token_ids, EOS]
    assert llm.generate(["ef"], PARAMS)[0].outputs[0].text == "ef"


def test_second_ctrl_c_does_not_wait_for_the_step(make_llm):
    llm, engine = make_llm(lambda _: [1] * 60)

    def on_step(_):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the second one was not raised at once")

    engine.on_step = on_step
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["ab"], PARAMS)
    assert not engine.has_work


def test_error_in_a_step_frees_the_requests(make_llm):
    llm, engine = make_llm()

    def on_step(_):
        engine.on_step = lambda _: None
        raise EngineDeadError("gone")

    engine.on_step = on_step
    with pytest.raises(EngineDeadError):
        llm.generate(["ab"], PARAMS)
    assert not engine.has_work


def test_threads_take_turns(make_llm):
    llm, engine = make_llm()
    inside = threading.Semaphore(1)

    def on_step(_):
        assert inside.acquire(blocking=False)
        inside.release()

    engine.on_step = on_step
    texts = {}

    def work(name):
        texts[name] = llm.generate([name] * 3, PARAMS)[2].outputs[0].text

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {f"t{i}": f"t{i}" for i in range(4)}


HI = [{"role": "user", "content": "hi"}]


def test_chat_answers_one_conversation_or_many(make_llm):
    llm, engine = make_llm(lambda _: [*b"ok", EOS])
    outputs = llm.chat(HI, PARAMS)
    assert [o.outputs[0].text for o in outputs] == ["ok"]
    assert outputs[0].prompt == "[user] hi\n[assistant] "
    outputs = llm.chat([HI, [{"role": "user", "content": "x"}]], PARAMS)
    assert [o.prompt for o in outputs] == [
        "[user] hi\n[assistant] ", "[user] x\n[assistant] "
    ]  # fmt: skip
    assert len(engine.added) == 3


def test_chat_takes_vllms_options_of_the_template(make_llm):
    llm, _ = make_llm(lambda _: [*b"ok", EOS])
    open_turn = [*HI, {"role": "assistant", "content": "The sea"}]
    outputs = llm.chat(open_turn, PARAMS, add_generation_prompt=False, continue_final_message=True)
    assert outputs[0].prompt == "[user] hi\n[assistant] The sea"
    outputs = llm.chat(
        HI, PARAMS, chat_template="{{ messages[0].content }}, {{ mood }}",
        chat_template_kwargs={"mood": "glad"},
    )  # fmt: skip
    assert outputs[0].prompt == "hi, glad"


def test_B44_rendered_conversation_gets_no_second_bos(make_llm):
    llm, engine = make_llm(lambda _: [*b"ok", EOS], tokenizer=BytesTokenizer(adds_bos=True))
    template = "{{ bos_token }}{{ messages[0].content }}"
    llm.chat(HI, PARAMS, chat_template=template)
    llm.generate(["<s>hi", "hi"], PARAMS)
    assert [r.prompt_token_ids for r in engine.added] == [[BOS, *b"hi"]] * 3


def test_chat_names_the_conversation_at_fault(make_llm):
    llm, engine = make_llm()
    with pytest.raises(ValueError, match=r"conversation 1: messages\[0\].role must be a string"):
        llm.chat([HI, [{"content": "x"}]], PARAMS)
    with pytest.raises(ValueError, match="conversation 0: messages is empty"):
        llm.chat([], PARAMS)
    assert engine.added == []


def test_closed_llm_says_so_and_closing_twice_is_fine(make_llm):
    llm, engine = make_llm()
    with llm as same:
        assert same is llm
    assert engine.is_closed
    llm.close()
    with pytest.raises(EngineDeadError, match="this LLM is closed"):
        llm.generate(["ab"], PARAMS)


def test_other_methods_reach_the_engine(make_llm):
    llm, _ = make_llm()
    assert llm.reset_prefix_cache() is True
    assert llm.get_metrics().num_running == 0
    assert llm.get_tokenizer().decode([97]) == "a"


def test_progress_is_written_only_where_somebody_watches(make_llm, capsys, monkeypatch):
    llm, _ = make_llm()
    llm.generate(["ab"], PARAMS)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("octavo.frontend.progress.is_watched", lambda _: True)
    llm.generate(["ab", "cd"], PARAMS)
    assert "Processed prompts: 100% |########################| 2/2, 00:00, " in (
        capsys.readouterr().err
    )
    llm.generate(["ab"], PARAMS, use_tqdm=False)
    assert capsys.readouterr() == ("", "")


def test_an_allocator_that_fails_is_told_with_its_name_and_place(make_llm):
    class Wrong:
        def allocate(self, *_):
            raise LookupError("lost")

    wrong = Wrong()
    name_component(wrong, "allocator 'wrong' (octavo-wrong 1.0)")
    llm, engine = make_llm()
    engine.on_step = wrong.allocate
    engine.abort = lambda _: wrong.allocate()

    with pytest.raises(EngineDeadError) as caught:
        llm.generate("ab", PARAMS)

    assert "the allocator 'wrong' (octavo-wrong 1.0) failed in allocate" in str(caught.value)
    assert "LookupError: lost" in str(caught.value)
    assert f"at {__file__}:" in str(caught.value)

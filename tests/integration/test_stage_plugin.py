"""A sampler stage of somebody else's, from one file: its parameter is a field of requests."""

import threading

import pytest

from byte_models import LLAMA, save_byte_model
from octavo import LLM, SamplingParams
from octavo.errors import RequestError
from server_process import octavo_serve, run_to_exit

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PLUGIN = '''
from octavo.hookspecs import OctavoSpecs
from octavo.interfaces.sampler import SamplerStage
from octavo.plugin.component import Component
from octavo.plugin.options import RequestParams
from pydantic import Field


class SpellParams(RequestParams):
    """What is to be said."""

    spell: str = Field("", max_length=20, description="a text to say again and again")


class Spell(SamplerStage):
    """Lets only the next byte of a text be drawn. "!" raises."""

    position = 5  # before all that drops tokens

    def is_active(self, params):
        return bool(SpellParams.read(params).spell)

    def apply(self, logits, row):
        spell = SpellParams.read(row.params).spell.encode()
        byte = spell[len(row.output_ids) % len(spell)]
        if byte == ord("!"):
            raise ValueError("no shouting")
        kept = logits[byte].item()
        logits.fill_(float("-inf"))
        logits[byte] = kept


class Plugin(OctavoSpecs):
    def octavo_sampler_stages(self):
        yield Component(name="spell", target=Spell, params=SpellParams, summary="says a text")


plugin = Plugin()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bytes")
    (path / "spell.py").write_text(PLUGIN)
    return save_byte_model(LLAMA, path)


@pytest.fixture(scope="module")
def server(folder):
    with octavo_serve(folder, "--plugin", f"{folder}/spell.py", "--threads", "1") as process:
        yield process
        assert process.stop() == 0


def completion(server, **fields):
    return server.post(COMPLETIONS, prompt="say", max_tokens=6, ignore_eos=True, **fields)


def text_of(response):
    (choice,) = response.json()["choices"]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def error_of(response):
    assert response.status_code == 400, response.text
    return response.json()["error"]


def test_its_parameter_is_a_field_of_both_bodies(server):
    answer = completion(server, spell="abc")
    assert text_of(answer) == "abcabc"
    assert "X-Octavo-Ignored-Fields" not in answer.headers
    messages = [{"role": "user", "content": "say"}]
    assert text_of(server.post(CHAT, messages=messages, max_tokens=4, spell="xy")) == "xyxy"


def test_its_parameter_may_come_in_vllm_xargs(server):
    assert text_of(completion(server, vllm_xargs={"spell": "no"})) == "nonono"
    messages = [{"role": "user", "content": "say"}]
    fields = {"messages": messages, "max_tokens": 4, "vllm_xargs": {"spell": "xy"}}
    assert text_of(server.post(CHAT, **fields)) == "xyxy"


def test_stock_parameters_are_taken_beside_it(server):
    fields = {"dry_multiplier": 0.8, "typical_p": 0.9, "vllm_xargs": {"xtc_probability": 0.5}}
    assert text_of(completion(server, spell="abc", **fields)) == "abcabc"


def test_bad_values_are_refused_by_name(server):
    error = error_of(completion(server, spell="x" * 21))
    assert error["param"] == "spell"
    assert "spell: string should have at most 20 characters" in error["message"]
    assert error_of(completion(server, vllm_xargs={"spell": 3}))["param"] == "spell"
    assert error_of(completion(server, typical_p=1.5))["param"] == "typical_p"


def test_one_name_in_both_places_is_refused(server):
    error = error_of(completion(server, spell="a", vllm_xargs={"spell": "a"}))
    assert error["param"] == "spell"
    assert "given twice" in error["message"]


def test_unknown_names_are_refused_in_xargs_and_reported_in_a_body(server):
    error = error_of(completion(server, vllm_xargs={"spel": "a"}))
    assert error["param"] == "spel"
    assert "did you mean 'spell'?" in error["message"]
    answer = completion(server, spel="a")
    assert answer.status_code == 200
    assert answer.headers["X-Octavo-Ignored-Fields"] == "spel"
    assert "did you mean 'spell' for 'spel'?" in server.log


def test_null_is_not_given(server):
    plain = text_of(completion(server, seed=1))
    assert text_of(completion(server, seed=1, spell=None, typical_p=None)) == plain


def test_a_stage_that_raises_fails_its_request_alone(server):
    results = []
    fields = {"prompt": "say", "max_tokens": 200, "ignore_eos": True, "spell": "quiet"}
    other = threading.Thread(target=lambda: results.append(server.post(COMPLETIONS, **fields)))
    other.start()
    answer = completion(server, spell="ab!")
    other.join()
    assert answer.status_code == 500
    assert "ValueError: no shouting" in answer.json()["error"]["message"]
    assert text_of(results[0]) == "quiet" * 40


def test_a_file_that_declares_a_taken_name_stops_the_start(folder, tmp_path):
    taken = tmp_path / "taken.py"
    text = PLUGIN.replace("spell", "typical_p")
    taken.write_text(text.replace('name="typical_p"', 'name="mine"'))
    code, errors, _ = run_to_exit(folder, "--plugin", str(taken))
    assert code == 2
    assert "the parameter 'typical_p' of requests is declared by 2 components" in errors


def test_the_same_file_in_process(folder):
    with LLM(folder, plugin=[f"{folder}/spell.py"], threads=1) as model:
        params = SamplingParams(max_tokens=5, ignore_eos=True, extra_args={"spell": "hi "})
        (output,) = model.generate(["say"], params, use_tqdm=False)
        assert output.outputs[0].text == "hi hi"
        params.extra_args["spell"] = 3
        with pytest.raises(RequestError, match="prompt 0: spell: input should be a valid string"):
            model.generate(["say"], params, use_tqdm=False)

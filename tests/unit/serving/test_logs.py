"""Log lines: one line each, valid UTF-8, with the request's id and without secrets."""

import io
import json
import logging

import pytest

from octavo.engine.messages import EngineInfo
from octavo.frontend.pooling import PoolingDefaults, pooling_plan
from octavo.frontend.preprocess import Call, Preprocessor
from octavo.lora import LoRARequest
from octavo.sampling_params import SamplingParams
from octavo.serving.generation import beside_params
from octavo.serving.logs import JsonFormatter, TextFormatter, clean, request_id_var, shorten
from octavo.structured_outputs import StructuredOutputsParams
from scripted import VOCAB_SIZE, BytesTokenizer

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize("cut", range(8, 16))
def test_B22_a_prompt_is_cut_between_characters(cut):
    text = "x" * 9 + "\u4f60" * 3 + FAMILY + "\ud83d"

    shown = shorten(text, cut)

    shown.encode("utf-8")
    assert shown.startswith(clean(text)[:cut])
    assert len(text) <= cut or f"({len(text)} characters)" in shown


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_record_is_one_line_of_utf8(formatter):
    fields = {"prompt": "two\nlines \u6f22 \ud83d", "n": 2}
    record = logging.makeLogRecord({"msg": "hello\nworld", "fields": fields, "request_id": "r1"})

    line = formatter.format(record)

    line.encode("utf-8")
    assert "\n" not in line
    assert "r1" in line
    assert "\u6f22" in line


def test_json_lines_hold_fields_and_tracebacks():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("octavo.test")
    logger.addHandler(handler)
    try:
        float("odd")
    except ValueError:
        logger.exception("it failed", extra={"fields": {"status": 500, "path": "/v1"}})

    entry = json.loads(stream.getvalue())

    assert (entry["message"], entry["status"], entry["path"]) == ("it failed", 500, "/v1")
    assert "ValueError: could not convert" in entry["exception"]


def test_text_lines_quote_values_with_spaces():
    record = logging.makeLogRecord(
        {"msg": "request", "fields": {"path": "/v1", "prompt": 'a "b"'}, "request_id": "-"}
    )

    assert TextFormatter().format(record).endswith('request path=/v1 prompt="a \\"b\\""')


def test_outside_of_requests_there_is_no_id():
    assert request_id_var.get() == "-"


def asked_beside(params, max_chars=40, **others):
    info = EngineInfo(VOCAB_SIZE, 64, 4096)
    call = Call(request_id="r", prompt="hi", params=params, arrival_s=0.0, **others)
    return beside_params(Preprocessor(BytesTokenizer(), info).prepare(call), max_chars)


def test_a_request_is_logged_with_its_form_its_adapters_and_its_turn():
    form = StructuredOutputsParams(json={"type": "integer"}, disable_any_whitespace=True)
    adapters = (LoRARequest("one", 1, "/a", 0.5), LoRARequest("two", 2, "/b", -1))
    asked = asked_beside(
        SamplingParams(structured_outputs=form), 200, lora_request=adapters, priority=-2
    )

    assert asked == {
        "structured_outputs": "{'json': {'type': 'integer'}, 'disable_any_whitespace': True}",
        "adapters": {"one": 0.5, "two": -1},
        "priority": -2,
    }
    assert asked_beside(SamplingParams()) == {}
    plan = pooling_plan(None, PoolingDefaults("mean"), EngineInfo(VOCAB_SIZE, 64, 4096))
    assert asked_beside(plan.sampling, pooling=plan) == {"pooling": "mean"}


def test_a_long_form_is_cut_in_the_log_as_a_prompt_is():
    form = StructuredOutputsParams(regex="a" * 500)
    asked = asked_beside(SamplingParams(structured_outputs=form))

    assert asked["structured_outputs"] == "{'regex': '" + "a" * 29 + "... (513 characters)"

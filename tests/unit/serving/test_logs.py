"""Log lines: one line each, valid UTF-8, with the request's id and without secrets."""

import io
import json
import logging

import pytest

from octavo.serving.logs import JsonFormatter, TextFormatter, clean, request_id_var, shorten

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

"""Loads of servers: prompts, arrivals, and what their numbers mean."""

import json
from array import array

import pytest

from octavo.bench.remote.load import LoadRun
from octavo.bench.remote.outcome import Outcome
from octavo.bench.remote.prompts import Prompt, TextMaker, TokensPerWord, read_prompts
from octavo.errors import ConfigError


def outcome(sent_s, *chunk_times_s, tokens=None, error=None):
    end_s = chunk_times_s[-1] if chunk_times_s else sent_s + 1
    return Outcome(sent_s, end_s, array("d", chunk_times_s), 10, tokens, error, error or "")


RUN = LoadRun(
    [
        outcome(100.0, 100.1, 100.2, 100.4, tokens=5),
        outcome(100.0, 100.5, 100.6, tokens=2),
        outcome(101.0, 101.5, error="HTTP 503"),
        outcome(101.0, error="HTTP 503"),
        outcome(101.0, error="timeout"),
    ],
    started_s=100.0,
    elapsed_s=2.0,
    client_cpu_s=0.006,
)


def test_numbers_can_be_worked_out_by_hand():
    report = RUN.report({"ttft": 300, "itl": 250})

    assert (report["requests"], report["answered"], report["failed"]) == (5, 2, 3)
    assert report["errors"] == {"HTTP 503": 2, "timeout": 1}
    assert report["requests_per_s"] == 1
    assert report["output_tokens_per_s"] == 3.5
    assert report["total_tokens_per_s"] == 13.5
    assert report["ttft_ms"]["mean"] == 300
    assert report["ttft_ms"]["max"] == 500
    assert report["itl_ms"]["mean"] == pytest.approx(400 / 3, abs=0.01)
    assert report["tpot_ms"]["mean"] == pytest.approx((75 + 100) / 2)
    assert report["e2e_ms"]["p50"] == 500
    assert report["client_us_per_chunk"] == 1000
    assert report["client_cpu_share"] == 0.003
    assert report["most_in_flight"] == 3
    assert (report["within_slo"], report["goodput_per_s"]) == (1, 0.5)
    assert "goodput_per_s" not in RUN.report({})


def test_each_promise_counts_only_what_keeps_it():
    for slo, num in [({"ttft": 99}, 0), ({"tpot": 80}, 1), ({"itl": 199}, 1), ({"e2e": 700}, 2)]:
        assert RUN.num_within(slo) == num, slo
    assert RUN.num_within({"ttft": 700, "itl": 150}) == 1


def test_lines_over_time():
    times_s, counts = RUN.in_flight()
    at = dict(zip(times_s, counts, strict=True))
    assert len(at) == 120
    assert at[min(at)] == 2
    assert counts[30] == 1  # at 0.5 s
    assert counts[45] == 0
    assert counts[60] == 3
    _, rates = RUN.chunks_per_s()
    assert sum(rates) * 2.0 / len(rates) == pytest.approx(6)


def test_a_run_in_which_nothing_was_answered_has_a_report():
    report = LoadRun([outcome(1.0, error="timeout")], 1.0, 0.0, 0.0).report({"ttft": 1})
    assert report["ttft_ms"] == {}
    assert report["goodput_per_s"] == 0


def test_words_are_made_from_what_the_server_counts():
    seen = TokensPerWord.seen([(16, 30), (112, 150)])
    assert (seen.fixed, seen.per_word) == (10, 1.25)
    assert seen.words(260) == 200
    assert seen.words(3) == 1
    assert TokensPerWord.seen([(16, None), (112, None)]) == TokensPerWord()
    assert len(TextMaker(0).one(50).split()) == 50
    assert TextMaker(0).one(9) == TextMaker(0).one(9) != TextMaker(1).one(9)


def test_prompts_of_a_file_start_again_from_its_beginning(tmp_path):
    path = tmp_path / "prompts.jsonl"
    chat = [{"role": "user", "content": "hello"}]
    lines = [
        {"prompt": "a", "output_tokens": 3},
        {"messages": chat, "output_tokens": 4, "arrival_s": 0.5},
        {"prompt_tokens": 9, "output_tokens": 5},
    ]
    path.write_text("\n\n".join(map(json.dumps, lines)))
    asked = [Prompt("a", 3), Prompt(None, 4, chat, 0, 0.5), Prompt(None, 5, None, 9)]

    assert read_prompts(path, 4, None) == [*asked, asked[0]]
    assert [one.output_tokens for one in read_prompts(path, 3, 8)] == [8, 8, 8]


def test_sharegpts_file_is_known(tmp_path):
    path = tmp_path / "sharegpt.json"
    turns = [
        {"from": "human", "value": "hi there"},
        {"from": "gpt", "value": "a b c d e f g h i j"},
    ]
    path.write_text(json.dumps([{"conversations": turns}, {"conversations": turns[:1]}]))

    assert read_prompts(path, 1, None) == [Prompt("hi there", 13)]


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "[1]",
        '{"prompt": "a"}',
        '{"output_tokens": 3}',
        '{"prompt": "a", "output_tokens": 0}',
        '{"prompt": "a", "output_tokens": 3, "max_tokens": 3}',
        '{"prompt": "a", "output_tokens": 3, "arrival_s": -1}',
    ],
)
def test_a_wrong_line_is_named(tmp_path, line):
    path = tmp_path / "prompts.jsonl"
    path.write_text(f'{{"prompt": "a", "output_tokens": 3}}\n{line}\n')
    with pytest.raises(ConfigError):
        read_prompts(path, 1, None)

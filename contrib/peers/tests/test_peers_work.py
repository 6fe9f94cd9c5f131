"""Prompts are the same for all engines, and rates are what they are called."""

from __future__ import annotations

import json

import pytest

from octavo_peers.work import Case, Job


def job(*cases: Case, **changes) -> Job:
    return Job("octavo", "model.gguf", cases, num_threads=2, options={"ops": "cpu"}, **changes)


def test_rates_count_all_sequences():
    case = Case(num_prompt_tokens=100, num_seqs=4, num_output_tokens=11)

    assert case.prefill_rate(2.0) == 200
    assert case.decode_rate(2.0, 6.0) == 10


def test_a_shared_prefix_counts_for_each_sequence():
    assert Case(100, 4, 11, num_prefix_tokens=900).prefill_rate(2.0) == 2000


@pytest.mark.parametrize("total_s", [1.9, 2.0])
def test_no_decode_rate_where_all_tokens_took_no_longer_than_the_first(total_s):
    assert Case(100, 4, 11).decode_rate(2.0, total_s) is None


def test_prompts_are_the_same_for_a_seed_and_differ_else():
    case, other_case = Case(50, 3, 8), Case(50, 2, 8)
    prompts = job(case).prompts(case, 0)

    assert prompts == job(case).prompts(case, 0)
    assert [len(prompt) for prompt in prompts] == [50] * 3
    others = [
        *job(case).prompts(case, 1),
        *job(case, seed=1).prompts(case, 0),
        *job(case).prompts(other_case, 0),
    ]
    assert len({tuple(prompt) for prompt in prompts + others}) == 11


def test_prompts_are_the_same_in_every_python():
    case = Case(5, 1, 8)

    assert job(case).prompts(case, 0) == [[17606, 20519, 13394, 24979, 7375]]


def test_ids_stay_within_their_bounds():
    case = Case(500, 2, 8)
    ids = {token for prompt in job(case, max_id=20).prompts(case, 0) for token in prompt}

    assert ids == set(range(10, 21))


def test_only_the_prefix_is_shared_by_sequences_calls_and_numbers_of_sequences():
    case, other_case = Case(20, 2, 8, num_prefix_tokens=30), Case(20, 3, 8, num_prefix_tokens=30)
    one = job(case, other_case)
    prompts = one.prompts(case, 0) + one.prompts(case, 1) + one.prompts(other_case, 0)

    assert {tuple(prompt[:30]) for prompt in prompts} == {tuple(one.prefix(case))}
    assert len({prompt[30] for prompt in prompts}) > 1
    assert one.is_prefix_shared
    assert not job(Case(20, 2, 8)).is_prefix_shared


def test_the_warm_call_has_the_prefix_and_few_tokens_of_its_own():
    case = Case(2000, 2, 8, num_prefix_tokens=30)
    one = job(case)
    prompts = one.warm_prompts(case)

    assert [len(prompt) for prompt in prompts] == [46, 46]
    assert prompts[0][:30] == one.prefix(case)
    assert prompts[0][30:] != one.prompts(case, 0)[0][30:46]
    assert [len(prompt) for prompt in job(Case(4, 1, 8)).warm_prompts(Case(4, 1, 8))] == [4]


def test_sizes_of_a_job():
    one = job(Case(100, 4, 8), Case(20, 16, 8, num_prefix_tokens=100))

    assert (one.max_num_seqs, one.max_seq_tokens) == (16, 128)
    assert [case.total_tokens for case in one.cases] == [432, 2048]


def test_a_job_travels_as_json():
    one = job(Case(20, 2, 8), Case(20, 4, 8), seed=3, min_s=0.5)

    assert Job.from_json(json.loads(json.dumps(one.to_json()))) == one

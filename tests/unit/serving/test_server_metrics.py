"""What /metrics shows: valid text, both names, and numbers that make sense."""

from prometheus_client.parser import text_string_to_metric_families

from octavo.engine.messages import EngineStats
from octavo.serving.metrics import Histogram, ModelMetrics, ServerMetrics


def samples_of(model):
    text = ServerMetrics([model]).exposition().decode()
    return {
        (sample.name, sample.labels.get("le") or sample.labels.get("finished_reason", "")): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_metric_has_vllms_name_too():
    names = {name for name, _ in samples_of(ModelMetrics("m"))}
    ours = {name.removeprefix("octavo:") for name in names if name.startswith("octavo:")}
    theirs = {name.removeprefix("vllm:") for name in names if name.startswith("vllm:")}

    assert ours - theirs == {"engine_up"}
    assert theirs <= ours
    assert {"num_requests_running", "prompt_tokens_total", "request_success_total"} <= theirs


def test_B153_no_value_is_negative_and_counters_never_fall():
    model = ModelMetrics("m")
    model.take_stats(
        EngineStats(num_running=-1, kv_usage=-0.1, prompt_tokens=100, preemptions=2, draft_tokens=7)
    )
    model.take_stats(EngineStats(prompt_tokens=30))  # another engine, which began at zero
    model.take_stats(None)
    model.take_stats(EngineStats(prompt_tokens=31, num_waiting=-5))
    model.first_token(-1.0)
    model.next_tokens(-0.5, 2)

    samples = samples_of(model)

    assert min(samples.values()) >= 0
    assert samples["octavo:prompt_tokens_total", ""] == 131
    assert samples["octavo:num_preemptions_total", ""] == 2
    assert samples["octavo:spec_decode_num_draft_tokens_total", ""] == 7
    assert samples["vllm:spec_decode_num_draft_tokens_total", ""] == 7


def test_every_finish_reason_is_there_from_the_start():
    model = ModelMetrics("m")
    model.sequence_finished("abort", 1.0)
    samples = samples_of(model)
    reasons = {label for name, label in samples if name == "vllm:request_success_total"}

    assert reasons == {"stop", "length", "abort", "error"}
    assert samples["vllm:request_success_total", "abort"] == 1


def test_histogram_counts_cumulatively():
    histogram = Histogram((1.0, 2.0))
    histogram.observe(0.5)
    histogram.observe(1.0)  # at most 1
    histogram.observe(1.5, times=3)
    histogram.observe(9.0)

    buckets, total = histogram.cumulative()

    assert buckets == [("1.0", 2.0), ("2.0", 5.0), ("+Inf", 6.0)]
    assert total == 0.5 + 1.0 + 4.5 + 9.0


def test_the_gap_between_tokens_is_shared_by_the_tokens_of_a_step():
    model = ModelMetrics("m")
    model.next_tokens(0.4, 4)
    samples = samples_of(model)

    assert samples["octavo:inter_token_latency_seconds_count", ""] == 4
    assert samples["octavo:inter_token_latency_seconds_bucket", "0.1"] == 4


def test_a_sequence_of_one_token_has_no_time_between_tokens():
    model = ModelMetrics("m")
    model.sequence_measured(30, 5, 0.4)
    model.sequence_measured(7, 1, 0.0)
    samples = samples_of(model)

    assert samples["vllm:request_prompt_tokens_sum", ""] == 37
    assert samples["vllm:request_prompt_tokens_bucket", "10.0"] == 1
    assert samples["vllm:request_generation_tokens_sum", ""] == 6
    assert samples["vllm:request_decode_time_seconds_count", ""] == 2
    assert samples["vllm:request_time_per_output_token_seconds_count", ""] == 1
    assert samples["vllm:request_time_per_output_token_seconds_sum", ""] == 0.1

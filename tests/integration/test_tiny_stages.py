"""Sampler stages in Python through a whole engine: the tokens are those that can be told by hand.

What is expected comes from transformers' logits, the plain implementations of
`stage_references`, and the noise that a seed stands for.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import stage_references as expected
import tiny_models
from byte_models import LLAMA, random_prompt, save_byte_model
from descent_by_hand import misfit
from draft_proposers import all_right, by_turns
from fixed_costs import make_drafts_free
from octavo import LLM, SamplingParams
from octavo.errors import RequestError
from octavo.interfaces.sampler import SamplerStage
from octavo.plugin.component import Component
from octavo.plugin.options import RequestParams
from octavo_kernels.reference.noise import uniform
from octavo_plugins.samplers.truncation import XTC_PURPOSE

PROMPT = random_prompt(12, 4)
BREAKERS = tuple((byte,) for byte in b'\n:"*')
BASE = SamplingParams(temperature=1.0, max_tokens=24, ignore_eos=True)
#: extra_args, and other parameters
REQUESTS = {
    "typical-p": ({"typical_p": 0.6}, {}),
    "top-n-sigma": ({"top_n_sigma": 1.0}, {"temperature": 1.5}),
    "min-k": ({"min_k": 3.0}, {"temperature": 2.0}),
    "xtc": ({"xtc_probability": 0.5, "xtc_threshold": 0.02}, {}),
    "dry": ({"dry_multiplier": 2.0, "dry_allowed_length": 1}, {"temperature": 0.3}),
    "dynatemp": ({"dynatemp_range": 0.8, "dynatemp_exponent": 2.0}, {"temperature": 0.9}),
    "mirostat-1": ({"mirostat": 1, "mirostat_tau": 2.0}, {}),
    "mirostat-2": ({"mirostat": 2, "mirostat_tau": 3.0, "mirostat_eta": 0.5}, {}),
    "all-of-them": (
        {
            "dry_multiplier": 1.0, "dry_allowed_length": 1, "top_n_sigma": 2.5, "min_k": 50.0,
            "typical_p": 0.95, "xtc_probability": 0.4, "xtc_threshold": 0.05,
            "dynatemp_range": 0.4, "mirostat": 2, "mirostat_tau": 2.5,
        },
        {"temperature": 0.8, "top_k": 60, "top_p": 0.97},
    ),
}  # fmt: skip


class MarkParams(RequestParams):
    """What `Mark` reads."""

    mark: int | None = None


class Mark(SamplerStage):
    """Raises where it is asked to, and changes nothing."""

    def is_active(self, params):
        return MarkParams.read(params).mark is not None

    def apply(self, logits, row):
        del logits
        if len(row.output_ids) == row.params.extra_args["mark"]:
            raise ValueError("a mark was reached")


MARK = Component(name="mark", target=Mark, params=MarkParams)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_byte_model(LLAMA, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def llm(folder):
    stages = [*(one for one in REQUESTS if one not in {"all-of-them", "mirostat-1", "mirostat-2"})]
    native = ["temperature", "min-p", "top-k", "top-p", "penalties", "min-tokens", "logit-bias"]
    use = [*stages, "mirostat", *native, MARK]
    with LLM(folder, sampler_stage=use, max_num_seqs=16, threads=1) as model:
        yield model


def params_of(name, **others):
    extra_args, more = REQUESTS[name]
    return replace(BASE, extra_args=dict(extra_args), **more, **others)


def generate(llm, prompts, params):
    return llm.generate(prompts, params, use_tqdm=False)


def ids_of(llm, prompts, params):
    return [output.outputs[0].token_ids for output in generate(llm, prompts, params)]


def top_k(logits, k):
    return expected.keeping(logits, np.argsort(-logits, kind="stable")[:k])


def top_p(logits, p):
    order = np.argsort(-logits, kind="stable")
    sums = expected.probabilities(logits)[order].cumsum()
    return expected.keeping(logits, order[: np.searchsorted(sums, p) + 1])


class ByHand:
    """The pipeline of one request, from its parameters."""

    def __init__(self, params):
        self.params = params
        self.args = params.extra_args
        self.mu = 2 * self.args.get("mirostat_tau", 5.0)

    def probabilities(self, logits, history, dice):
        args, temperature = self.args, self.params.temperature
        x = logits.astype(np.float64)
        if "dry_multiplier" in args:
            settings = (args["dry_multiplier"], 1.75, args["dry_allowed_length"], -1)
            x = expected.dry(x, history, settings, BREAKERS)
        if "top_n_sigma" in args:
            x = expected.top_n_sigma(x, args["top_n_sigma"])
        if "min_k" in args:
            x = expected.min_k(x, args["min_k"])
        x = x / temperature
        if self.params.top_k > 0:
            x = top_k(x, self.params.top_k)
        if "typical_p" in args:
            x = expected.typical_p(x, args["typical_p"])
        if self.params.top_p < 1:
            x = top_p(x, self.params.top_p)
        if "xtc_probability" in args:
            x = expected.xtc(x, args["xtc_probability"], args["xtc_threshold"], dice)
        if "dynatemp_range" in args:
            exponent = args.get("dynatemp_exponent", 1.0)
            x = expected.dynatemp(x * temperature, temperature, args["dynatemp_range"], exponent)
        if "mirostat" in args:
            x = expected.mirostat(x, args["mirostat"], self.mu)
        return expected.probabilities(x)

    def follow(self, probabilities, token_id):
        surprise = -math.log2(probabilities[token_id])
        tau = self.args.get("mirostat_tau", 5.0)
        self.mu -= self.args.get("mirostat_eta", 0.1) * (surprise - tau)


def assert_told_by_hand(params, seed, output_ids, choice=0):
    """Each token is the one that its position's noise draws from the probabilities."""
    pipeline, history = ByHand(params), list(PROMPT)
    logits = tiny_models.reference_logits(LLAMA, [*PROMPT, *output_ids]).numpy()
    for position, token_id in enumerate(output_ids):
        dice = uniform(seed, position, choice, XTC_PURPOSE)
        probs = pipeline.probabilities(logits[len(history) - 1], history, dice)
        assert probs[token_id] > 0, (position, token_id)
        noise = uniform(seed, position, choice, 0)
        assert misfit(probs, noise, token_id) < 1e-4, (position, token_id)
        pipeline.follow(probs, token_id)
        history.append(token_id)


@pytest.mark.parametrize("name", REQUESTS)
def test_every_token_is_the_one_told_by_hand(llm, name):
    for seed in (1, 2, 3):
        params = params_of(name, seed=seed)
        (output_ids,) = ids_of(llm, [PROMPT], params)
        assert len(output_ids) == BASE.max_tokens
        assert_told_by_hand(params, seed, output_ids)


def test_choices_have_states_and_dice_of_their_own(llm):
    params = params_of("all-of-them", seed=5, n=3)
    (output,) = generate(llm, [PROMPT], params)
    assert len({tuple(one.token_ids) for one in output.outputs}) == 3
    for choice, one in enumerate(output.outputs):
        assert_told_by_hand(params, 5, one.token_ids, choice)


@pytest.mark.parametrize("name", ["typical-p", "xtc", "dynatemp", "mirostat-2"])
def test_drawn_tokens_have_the_distribution_that_the_stage_leaves(llm, name):
    """Chi-square over the first token of 1500 seeds, tokens that are rare taken together."""
    count = 1500
    params = [params_of(name, seed=seed, max_tokens=1) for seed in range(count)]
    params = [replace(one, max_tokens=1) for one in params]
    drawn = [ids[0] for ids in ids_of(llm, [PROMPT] * count, params)]
    logits = tiny_models.reference_logits(LLAMA, PROMPT).numpy()[-1]
    pipeline, probability = ByHand(params[0]), params[0].extra_args.get("xtc_probability")
    if probability is None:
        probs = pipeline.probabilities(logits, PROMPT, 0.0)
    else:  # it happens, or it does not
        probs = sum(
            share * pipeline.probabilities(logits, PROMPT, dice)
            for share, dice in ((probability, 0.0), (1 - probability, 1.0))
        )
    counts = np.bincount(drawn, minlength=len(probs))
    assert (counts[probs == 0] == 0).all()
    is_rare = probs * count < 8
    counts = np.append(counts[~is_rare], counts[is_rare].sum())
    wanted = np.append(probs[~is_rare], probs[is_rare].sum()) * count
    is_wanted = wanted > 0
    chi_square = float(((counts - wanted)[is_wanted] ** 2 / wanted[is_wanted]).sum())
    degrees = int(is_wanted.sum()) - 1
    assert degrees >= 5
    assert chi_square < degrees + 4 * math.sqrt(2 * degrees)


# ---------------------------------------------------------------------- what must not matter


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 16, "max_num_seqs": 3},
        {"num_gpu_blocks_override": 9, "max_num_seqs": 6, "enable_prefix_caching": False},
    ],
    ids=["chunks", "preemption"],
)
def test_neither_chunks_nor_preemption_change_a_token(llm, folder, settings):
    prompts, params = every_request()
    want = ids_of(llm, prompts, params)
    with LLM(folder, threads=1, block_size=16, **settings) as other:
        assert ids_of(other, prompts, params) == want
        preemptions = other.get_metrics().preemptions
    assert preemptions > 0 or "num_gpu_blocks_override" not in settings


@pytest.mark.parametrize("proposer", [all_right, by_turns])
def test_drafts_change_no_token_whether_right_or_wrong(llm, folder, proposer, monkeypatch):
    """States follow the tokens that were drawn, through drafts that are kept and taken back."""
    make_drafts_free(monkeypatch)
    prompts, params = every_request()
    want = ids_of(llm, prompts, params)
    texts = [[*prompt, *ids] for prompt, ids in zip(prompts, want, strict=True)]
    with LLM(folder, threads=1, proposer=proposer(texts)) as other:
        assert ids_of(other, prompts, params) == want
        assert other.get_metrics().accepted_tokens > 20


def every_request():
    """Return two prompts for each kind of request, with their parameters."""
    prompts = [PROMPT, random_prompt(30, 5) * 2]
    params = [params_of(name, seed=9) for name in REQUESTS for _ in prompts]
    return prompts * len(REQUESTS), params


def test_requests_beside_one_with_a_stage_get_what_they_get_alone(llm):
    plain = [replace(BASE, seed=seed, top_p=0.9) for seed in range(3)]
    alone = ids_of(llm, [PROMPT] * 3, plain)
    mixed = [plain[0], params_of("all-of-them", seed=1), plain[1], params_of("dry"), plain[2]]
    together = ids_of(llm, [PROMPT] * 5, mixed)
    assert [together[0], together[2], together[4]] == alone


def test_a_stage_that_raises_is_the_error_of_its_request(llm):
    plain = replace(BASE, seed=4)
    (alone,) = ids_of(llm, [PROMPT], plain)
    marked = replace(plain, extra_args={"mark": 5})
    first, second = generate(llm, [PROMPT, PROMPT], [marked, plain])
    assert first.outputs[0].finish_reason == "error"
    assert first.outputs[0].error.splitlines()[:2] == [
        "the sampler-stage 'mark' (passed in Python) failed in apply",
        "  ValueError: a mark was reached",
    ]
    assert first.outputs[0].token_ids == alone[:5]
    assert second.outputs[0].token_ids == alone
    unmarked = replace(plain, extra_args={"mark": 100})
    assert ids_of(llm, [PROMPT], unmarked) == [alone]


def test_a_parameter_of_a_stage_that_is_not_in_use_is_refused(folder):
    with LLM(folder, sampler_stage=["temperature", "xtc"], threads=1) as model:
        with pytest.raises(RequestError, match="declares a parameter 'typical_p'") as caught:
            generate(model, [PROMPT], replace(BASE, extra_args={"typical_p": 0.5}))
        assert caught.value.param == "typical_p"
        generate(model, [PROMPT], replace(BASE, extra_args={"xtc_probability": 0.5}))

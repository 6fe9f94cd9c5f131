"""Adapters at the level of a model's steps: as merged weights, each for its own tokens alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiny_gguf
import tiny_models
from octavo.engine.plan import RowAdvance
from octavo.errors import AdapterError
from octavo.execution.adapter_memory import AdapterLimits
from octavo.execution.adapters import AdapterStore
from octavo.execution.loader import load_parameters
from octavo.execution.recording import recording
from octavo.interfaces.adapter import AdapterSpec, AdapterUse
from octavo.testing.tensors.hand_runner import HandRunner
from octavo.testing.tensors.memory_checkpoint import MemoryCheckpoint
from octavo_plugins.adapters.lora import LoraFormat
from octavo_plugins.architectures.llama import Llama
from octavo_plugins.attention.torch_attention import TorchAttention
from octavo_plugins.ops.torch_ops import TorchOps
from octavo_plugins.weights.gguf_format import GgufFormat
from peft_folders import CONFIG, WEIGHTS, Lora, merged, write_adapter
from simple_ops import SimpleAttention, SimpleOps

VARIANT = "Llama-smollm2"  # 9 heads, 3 of keys and values, tied embeddings
PROMPT = list(range(3, 23))


def weights_of(variant_name=VARIANT):
    reference = tiny_models.reference_model(tiny_models.variant_named(variant_name))
    return {name: weight.detach() for name, weight in reference.state_dict().items()}


def model_of(weights, variant_name=VARIANT, make_ops=TorchOps, make_attention=TorchAttention):
    reference = tiny_models.reference_model(tiny_models.variant_named(variant_name))
    config = reference.config.to_dict() | {"architectures": [type(reference).__name__]}
    tensors = dict(weights)
    if config["tie_word_embeddings"]:
        tensors.pop("lm_head.weight", None)
    model = Llama(config, make_ops(), make_attention())
    load_parameters(model, MemoryCheckpoint(config, tensors))
    return model


class Bench:
    """A model, its adapters, and sequences that are run by hand: sequence = row."""

    def __init__(self, weights=None, max_resident=8, max_rank=128, model=None):
        self.model = model or model_of(weights_of() if weights is None else weights)
        self.runner = HandRunner(self.model)
        limits = AdapterLimits(max_resident, max_rank)
        self.store = AdapterStore(self.model, [LoraFormat()], limits)
        self.num_changes = 0
        self.store.on_change = self._count_change

    def _count_change(self):
        self.num_changes += 1

    def use(self, folder, scale=1.0, name="a"):
        spec = AdapterSpec(name, str(folder))
        return AdapterUse(spec, scale, self.store.prepare(spec).result(10))

    def run(self, chunks, execute=None):
        lengths = [len(tokens) for _, tokens in chunks]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        advances = [RowAdvance(row, 0, len(tokens), [], True) for row, tokens in chunks]
        self.failed = self.store.fill(SimpleNamespace(query_start=starts), advances)
        return self.runner.run(chunks, execute)


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.store.close()


@pytest.fixture(scope="module")
def weights():
    return weights_of()


def logits_alone(weights, tokens=PROMPT):
    return Bench(weights).run([(0, tokens)])[0]


LORAS = {
    "all linears": Lora(),
    "queries and values": Lora(seed=1, modules=("q_proj", "v_proj"), rank=3),
    "keys alone": Lora(seed=2, modules=("k_proj",), rank=1),
    "up alone": Lora(seed=3, modules=("up_proj",), rank=7, alpha=3),
    "rank above the width": Lora(seed=4, rank=80),
    "stabilised": Lora(seed=5, rank=16, alpha=32, is_rank_stabilised=True),
    "patterns": Lora(
        seed=6, ranks={"k_proj": 2, "down_proj": 9}, alphas={"k_proj": 1, "v_proj": 5}
    ),
    "stabilised patterns": Lora(
        seed=7, ranks={"q_proj": 9}, alphas={"q_proj": 3}, is_rank_stabilised=True
    ),
    "bfloat16": Lora(seed=8, dtype=torch.bfloat16),
    "float16": Lora(seed=9, dtype=torch.float16),
}


@pytest.mark.parametrize("lora", LORAS.values(), ids=LORAS)
def test_B124_logits_are_those_of_merged_weights(bench, weights, tmp_path, lora):
    folder = write_adapter(tmp_path / "a", weights, lora)
    bench.store.start(0, [bench.use(folder)])
    (logits,) = bench.run([(0, PROMPT)])
    expected = logits_alone(merged(weights, (folder, lora, 1.0)))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)
    assert (logits - logits_alone(weights)).abs().max() > 0.1


@pytest.mark.parametrize(
    "variant_name", ["Llama-biases", "Qwen3-biases", "Mistral-window", "SmolLM3-list"]
)
def test_other_families(tmp_path, variant_name):
    weights, lora = weights_of(variant_name), Lora()
    folder = write_adapter(tmp_path / "a", weights, lora)
    bench = Bench(model=model_of(weights, variant_name))
    bench.store.start(0, [bench.use(folder)])
    (logits,) = bench.run([(0, PROMPT)])
    plain = Bench(model=model_of(merged(weights, (folder, lora, 1.0)), variant_name))
    torch.testing.assert_close(logits, plain.run([(0, PROMPT)])[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant_name", ["Llama-2", "Llama-smollm2", "Qwen3-full"])
def test_models_from_gguf_files_take_the_same_adapters(tmp_path, variant_name):
    # converters reorder the rows of queries and keys of some families; adapters know none of that
    reference = tiny_models.reference_model(tiny_models.variant_named(variant_name))
    path = tiny_gguf.write_gguf(reference, tmp_path / "tiny.gguf")
    weights, lora = weights_of(variant_name), Lora()
    folder = write_adapter(tmp_path / "a", weights, lora)
    checkpoint = GgufFormat().open(path)
    model = Llama(checkpoint.config, TorchOps(), TorchAttention())
    load_parameters(model, checkpoint)
    checkpoint.close()
    bench = Bench(model=model)
    bench.store.start(0, [bench.use(folder)])
    (logits,) = bench.run([(0, PROMPT)])
    plain = Bench(model=model_of(merged(weights, (folder, lora, 1.0)), variant_name))
    torch.testing.assert_close(logits, plain.run([(0, PROMPT)])[0], rtol=0, atol=1e-4)


def test_different_adapters_and_none_in_one_batch_are_as_alone(weights, tmp_path):
    loras = {1: Lora(seed=1), 3: Lora(seed=3, modules=("q_proj", "down_proj"), rank=9)}
    folders = {
        row: write_adapter(tmp_path / str(row), weights, lora) for row, lora in loras.items()
    }
    chunks = [(0, PROMPT[:7]), (1, PROMPT[:3]), (2, PROMPT[:1]), (3, PROMPT[:11])]
    further = [(2, PROMPT[1:2]), (3, PROMPT[11:12]), (0, PROMPT[7:8]), (1, PROMPT[3:4])]
    together = Bench(weights)
    for row, folder in folders.items():
        together.store.start(row, [together.use(folder)])
    got = [
        dict(zip([row for row, _ in step], together.run(step), strict=True))
        for step in (chunks, further)
    ]
    for row in range(4):
        alone = Bench(weights)
        if row in folders:
            alone.store.start(row, [alone.use(folders[row])])
        for step, logits in zip((chunks, further), got, strict=True):
            (expected,) = alone.run([(row, dict(step)[row])])
            torch.testing.assert_close(logits[row], expected, rtol=0, atol=1e-4)


def test_rows_without_adapters_keep_their_bits(weights, tmp_path):
    chunks = [(0, PROMPT[:7]), (1, PROMPT[:3]), (2, PROMPT[:5])]
    expected = Bench(weights).run(chunks)
    bench = Bench(weights)
    bench.store.start(1, [bench.use(write_adapter(tmp_path / "a", weights, Lora()))])
    got = bench.run(chunks)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[2], expected[2])
    assert not torch.equal(got[1], expected[1])
    bench.store.end(1)
    assert all(map(torch.equal, Bench(weights).run(chunks), expected))


@pytest.mark.parametrize("scale", [0.0, 0.5, -1.0, 3.0])
def test_scales(bench, weights, tmp_path, scale):
    lora = Lora()
    folder = write_adapter(tmp_path / "a", weights, lora)
    bench.store.start(0, [bench.use(folder, scale)])
    (logits,) = bench.run([(0, PROMPT)])
    if scale == 0:
        assert torch.equal(logits, logits_alone(weights))
    expected = logits_alone(merged(weights, (folder, lora, scale)))
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-4)


def test_a_blend_is_the_merged_sum_whatever_the_order(weights, tmp_path):
    loras = [Lora(seed=1), Lora(seed=2, modules=("v_proj", "up_proj"))]
    folders = [write_adapter(tmp_path / str(lora.seed), weights, lora) for lora in loras]
    logits = []
    for order in ((0, 1), (1, 0)):
        bench = Bench(weights)
        scales = (0.75, -0.5)
        bench.store.start(0, [bench.use(folders[i], scales[i]) for i in order])
        logits += bench.run([(0, PROMPT)])
    assert torch.equal(*logits)
    both = [(folders[0], loras[0], 0.75), (folders[1], loras[1], -0.5)]
    torch.testing.assert_close(logits[0], logits_alone(merged(weights, *both)), rtol=0, atol=1e-4)


def test_one_content_under_two_names_counts_twice(bench, weights, tmp_path):
    lora = Lora()
    one, two = (write_adapter(tmp_path / name, weights, lora) for name in ("one", "two"))
    bench.store.start(0, [bench.use(one, 0.5, "one"), bench.use(two, 0.25, "two")])
    (logits,) = bench.run([(0, PROMPT)])
    expected = logits_alone(merged(weights, (one, lora, 0.75)))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


def test_a_recorded_step_serves_other_adapters(weights, tmp_path):
    folders = [
        write_adapter(tmp_path / str(seed), weights, Lora(seed=seed, modules=modules))
        for seed, modules in ((1, ("q_proj",)), (2, ("up_proj", "down_proj")), (3, ("o_proj",)))
    ]
    steps = [
        {0: [], 1: [(0, 1.0)]},
        {0: [(1, 2.0)], 1: [(0, 1.0)], 2: [(2, 1.0), (1, 0.5)]},
        {2: []},
        {1: [(2, 1.0)]},
    ]

    def run(is_replayed):
        bench, record, logits = Bench(weights), None, []
        for step in steps:
            for row, uses in step.items():
                bench.store.start(row, [bench.use(folders[i], scale) for i, scale in uses])
            chunks = [(row, PROMPT[: 3 + row]) for row in step]
            if not is_replayed:
                logits += bench.run(chunks)
            elif record is None:
                with recording(bench.model) as record:
                    logits += bench.run(chunks)
            else:
                logits += bench.run(chunks, record.replay)
            for row in step:
                bench.store.end(row)
        assert bench.num_changes == len(folders)
        return logits

    assert all(map(torch.equal, run(is_replayed=True), run(is_replayed=False)))


def test_unused_adapters_leave_the_model_as_it_was(bench, weights, tmp_path):
    ops = bench.model.ops
    bench.use(write_adapter(tmp_path / "a", weights, Lora()))
    bench.run([(0, PROMPT)])
    assert bench.model.ops is ops
    assert bench.num_changes == 0


# ---------------------------------------------------------------------- contents and memory


def test_B122_files_that_change_are_another_adapter(bench, weights, tmp_path):
    first, second = Lora(seed=1), Lora(seed=2)
    folder = write_adapter(tmp_path / "a", weights, first)
    expected = logits_alone(merged(weights, (folder, first, 1.0)))
    old = bench.use(folder)
    bench.store.start(0, [old])
    write_adapter(folder, weights, second)
    new = bench.use(folder)
    bench.store.start(1, [new])
    assert new.digest != old.digest
    got = bench.run([(0, PROMPT), (1, PROMPT)])
    torch.testing.assert_close(got[0], expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(
        got[1], logits_alone(merged(weights, (folder, second, 1.0))), rtol=0, atol=1e-4
    )
    # a request that was prepared before the change still gets what it was prepared with
    bench.store.start(2, [old])
    (late,) = bench.run([(2, PROMPT)])
    torch.testing.assert_close(late, expected, rtol=0, atol=1e-4)


def test_equal_content_is_one_adapter_wherever_it_lies(bench, weights, tmp_path):
    one, two = (write_adapter(tmp_path / name, weights, Lora()) for name in ("one", "two"))
    assert bench.use(one).digest == bench.use(two).digest
    other = write_adapter(tmp_path / "three", weights, Lora(alpha=9))
    assert bench.use(other).digest != bench.use(one).digest


def test_unchanged_files_are_read_once(bench, weights, tmp_path, monkeypatch):
    folder = write_adapter(tmp_path / "a", weights, Lora())
    bench.use(folder)
    monkeypatch.setattr(LoraFormat, "read", lambda *_: pytest.fail("it was read again"))
    future = bench.store.prepare(AdapterSpec("a", str(folder)))
    assert future.done()


def test_discarded_ones_are_read_again(bench, weights, tmp_path):
    folder = write_adapter(tmp_path / "a", weights, Lora())
    use = bench.use(folder)
    bench.store.discard(use.spec)
    bench.store.discard(AdapterSpec("b", "/nowhere"))
    again = bench.store.prepare(use.spec)
    assert again.result(10) == use.digest
    bench.store.start(0, [use])
    bench.store.discard(use.spec)  # in use: it stays for the row
    bench.run([(0, PROMPT)])
    assert not bench.failed


def test_one_that_is_discarded_in_use_goes_with_its_last_row(bench, weights, tmp_path):
    use = bench.use(write_adapter(tmp_path / "a", weights, Lora()))
    bench.store.start(0, [use])
    bench.run([(0, PROMPT)])
    assert any(parts.by_slot for parts in bench.store._parts.values())

    bench.store.discard(use.spec)
    bench.store.end(0)
    bench.run([(1, PROMPT)])

    assert not bench.store._memory._residents
    assert not any(parts.by_slot for parts in bench.store._parts.values())


def test_more_than_fit_take_turns(weights, tmp_path):
    loras = [Lora(seed=seed) for seed in range(4)]
    folders = [write_adapter(tmp_path / str(lora.seed), weights, lora) for lora in loras]
    expected = [
        logits_alone(merged(weights, (folder, lora, 1.0)))
        for folder, lora in zip(folders, loras, strict=True)
    ]
    bench = Bench(weights, max_resident=2)
    uses = [bench.use(folder) for folder in folders]
    memory = bench.store._memory
    assert len(memory._residents) == 2
    for row, use in enumerate(uses):
        bench.store.start(row, [use])
    got = bench.run([(row, PROMPT[:12]) for row in range(4)])
    assert len(memory._residents) == 4  # rows use them
    for logits, whole in zip(got, expected, strict=True):
        torch.testing.assert_close(logits, whole[:12], rtol=0, atol=1e-4)
    for row in range(4):
        bench.store.end(row)
    assert len(memory._residents) == 2
    bench.store.start(0, [uses[0]])
    bench.run([(0, PROMPT[12:13])])
    parts = bench.store._parts.values()
    assert max(len(one.by_slot) for one in parts) <= 2  # what was evicted has gone from the model


def test_least_recently_used_ones_go_first(weights, tmp_path):
    bench = Bench(weights, max_resident=2)
    one, two, three = (
        write_adapter(tmp_path / str(seed), weights, Lora(seed=seed)) for seed in range(3)
    )
    first = bench.use(one)
    bench.use(two)
    bench.use(one)  # a look is a use
    last = bench.use(three)
    assert list(bench.store._memory._residents) == [first.digest, last.digest]


def test_a_row_whose_files_changed_after_eviction_fails_alone(weights, tmp_path):
    bench = Bench(weights, max_resident=1)
    folder = write_adapter(tmp_path / "a", weights, Lora(seed=1))
    old = bench.use(folder)
    bench.use(write_adapter(tmp_path / "b", weights, Lora(seed=2)))
    write_adapter(folder, weights, Lora(seed=3))
    bench.store.start(0, [old])
    bench.store.start(1, [])
    (_, logits) = bench.run([(0, PROMPT), (1, PROMPT)])
    assert list(bench.failed) == [0]
    assert "changed while the request waited" in bench.failed[0]
    assert torch.equal(logits, Bench(weights).run([(0, PROMPT), (1, PROMPT)])[1])
    bench.store.end(0)
    bench.run([(0, PROMPT[:1])])
    assert not bench.failed


# ---------------------------------------------------------------------- links out of a root


def rooted(root, folder):
    return AdapterSpec("a", str(folder), str(root))


def test_links_within_the_root_are_followed(bench, weights, tmp_path):
    folder = write_adapter(tmp_path / "a", weights, Lora())
    (tmp_path / "blobs").mkdir()
    (folder / WEIGHTS).rename(tmp_path / "blobs/1")
    (folder / WEIGHTS).symlink_to("../blobs/1")
    assert bench.store.prepare(rooted(tmp_path, folder)).result(10)


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "README.md", "more/notes"])
def test_a_link_that_leads_outside_of_the_root_is_refused(bench, weights, tmp_path, name):
    secret = write_adapter(tmp_path / "secret", weights, Lora())
    root = tmp_path / "root"
    folder = write_adapter(root / "a", weights, Lora())
    (folder / "more").mkdir()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret / name)
    with pytest.raises(AdapterError, match="leads outside of the folder") as caught:
        bench.store.prepare(rooted(root, folder)).result(10)
    assert "secret" not in str(caught.value)
    # whoever starts the server may have it so, and that lets nobody else
    assert bench.store.prepare(AdapterSpec("a", str(folder))).result(10)
    with pytest.raises(AdapterError, match="leads outside of the folder"):
        bench.store.prepare(rooted(root, folder)).result(10)


def test_a_folder_that_has_become_a_link_is_refused(bench, weights, tmp_path):
    secret = write_adapter(tmp_path / "secret", weights, Lora())
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").symlink_to(secret)
    with pytest.raises(AdapterError, match="'a' leads outside of the folder"):
        bench.store.prepare(rooted(tmp_path / "root", tmp_path / "root/a")).result(10)


# ---------------------------------------------------------------------- what does not fit


def error_of(bench, folder):
    future = bench.store.prepare(AdapterSpec("bad", str(folder)))
    with pytest.raises(AdapterError) as caught:
        future.result(10)
    return caught.value


def test_a_rank_above_the_limit_is_refused(weights, tmp_path):
    bench = Bench(weights, max_rank=16)
    folder = write_adapter(tmp_path / "a", weights, Lora(rank=64, modules=("o_proj",)))
    error = error_of(bench, folder)
    assert error.headline == "this adapter does not fit the model"
    first = "model.layers.0.self_attn.o_proj.weight"
    assert error.facts == (
        f"{first} (and 2 like it): rank 64 is more than max-lora-rank, 16",
        f"adapter 'bad' in '{folder}'",
    )


def test_tensors_of_another_model_are_refused(bench, weights, tmp_path):
    others = {
        "model.layers.7.self_attn.q_proj.weight": torch.zeros(72, 72),
        "model.layers.0.self_attn.k_proj.weight": torch.zeros(72, 72),
        "model.embed_tokens.weight": torch.zeros(96, 72),
        "lm_head.weight": torch.zeros(96, 72),
        "model.norm.weight": torch.zeros(72, 1),
        "visual.patch.weight": torch.zeros(72, 72),
    }
    folder = write_adapter(tmp_path / "a", others, Lora(modules=("",)))
    error = error_of(bench, folder)
    assert error.headline == "this adapter does not fit the model"
    hint = "did you mean 'model.layers.2.self_attn.q_proj.weight'?"
    assert set(error.facts) == {
        f"model.layers.7.self_attn.q_proj.weight: the model has no such tensor; {hint}",
        "model.layers.0.self_attn.k_proj.weight: it is [24, 72], the change is [72, 72]",
        "model.embed_tokens.weight: only linear layers can be adapted",
        "lm_head.weight: the head cannot be adapted",
        "model.norm.weight: only linear layers can be adapted",
        "visual.patch.weight: the model has no such tensor",
        f"adapter 'bad' in '{folder}'",
    }
    assert error.param == "lora_request"


def test_no_adapter_at_all(bench, tmp_path):
    error = error_of(bench, tmp_path / "nowhere")
    assert error.facts[0] == f"'{tmp_path / 'nowhere'}' is no folder"
    assert error_of(bench, tmp_path).facts[0] == f"'{tmp_path}' has no adapter_config.json"


def test_a_refused_one_may_be_repaired(bench, weights, tmp_path):
    error_of(bench, tmp_path / "a")
    assert bench.use(write_adapter(tmp_path / "a", weights, Lora())).digest


def test_an_op_set_without_adapters_says_so(tmp_path):
    model = model_of(weights_of(), make_ops=SimpleOps, make_attention=SimpleAttention)
    store = AdapterStore(model, [LoraFormat()], AdapterLimits(1, 16))
    with pytest.raises(AdapterError, match="op set SimpleOps cannot apply adapters"):
        store.prepare(AdapterSpec("a", str(tmp_path))).result(1)

"""What differs between the kinds in a new plugin, beside the component itself.

Knows sentences, names of suites and declared facts. Does not know how anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One kind's part of a new plugin.

    `summary` says what the example does; `declared` are further fields of the Component, as source
    lines. `suite` is its class in `octavo.testing`, `kit` the template of its kit test, `sample`
    what `--sample` is given, and `more` are further files with their templates. `trial` is a
    command line that runs the component, behind `octavo`.
    """

    summary: str
    trial: str
    suite: str
    declared: tuple[str, ...] = ()
    kit: str = "kit.py.txt"
    sample: str = ""
    more: tuple[tuple[str, str], ...] = ()
    has_options: bool = True
    has_params: bool = False


#: `auto` takes whichever candidate has the highest rank
_ASKED_FOR = ("rank=-1,  # below the stock ones: `auto` takes it when these cannot run",)
_SIMULATE = "simulate --executor.fixed-ms 20"
_COMPLETE = "complete smollm2 --prompt 'Once upon a time'"

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "platform": Recipe(
            summary="this machine's processors, with half of the memory left to others",
            trial=f"{_COMPLETE} --platform $name",
            declared=_ASKED_FOR,
            suite="PlatformSuite",
        ),
        "ops": Recipe(
            summary="plain torch, with norms computed in float64",
            trial=f"{_COMPLETE} --ops $name",
            declared=_ASKED_FOR,
            suite="OpsSuite",
        ),
        "attention": Recipe(
            summary="plain torch, which looks back no further than it is told",
            trial=f"{_COMPLETE} --ops torch --attention $name --attention.max-window 64",
            declared=_ASKED_FOR,
            suite="AttentionSuite",
        ),
        "executor": Recipe(
            summary="in the engine's own thread, with a line in the log for slow steps",
            trial=f"{_COMPLETE} --executor $name --executor.slow-ms 5",
            declared=_ASKED_FOR,
            suite="ExecutorSuite",
        ),
        "scheduler": Recipe(
            summary="the shortest prompt first, with ageing",
            trial=f"{_SIMULATE} --scheduler $name",
            suite="SchedulerSuite",
        ),
        "allocator": Recipe(
            summary="blocks on demand, with a reserve for those who run",
            trial=f"{_SIMULATE} --allocator $name --allocator.reserved-tokens 1024",
            declared=('offers=frozenset({"prefix-caching", "cache-groups"}),',),
            suite="AllocatorSuite",
        ),
        "eviction": Recipe(
            summary="least recently used, blocks that were hit last",
            trial=f"{_SIMULATE} --eviction $name",
            suite="EvictionSuite",
        ),
        "sampler-stage": Recipe(
            summary="drops tokens far less likely than the likeliest one",
            trial="plugins info $name",
            suite="StageSuite",
            has_params=True,
        ),
        "proposer": Recipe(
            summary="guesses what followed the last token the last time",
            trial=f"{_COMPLETE} --proposer $name",
            suite="ProposerSuite",
        ),
        "grammar": Recipe(
            summary="llguidance, with the forms that are allowed",
            trial="serve smollm2 --grammar $name",
            declared=('requires=("llguidance>=1.9",),',),
            suite="GrammarSuite",
        ),
        "adapter": Recipe(
            summary="low-rank adapters in NumPy archives",
            trial="serve smollm2 --lora-modules mine=FOLDER",
            suite="AdapterSuite",
            kit="kits/adapter.py.txt",
            sample='\'{"good": "FOLDER"}\'',
        ),
        "architecture": Recipe(
            summary="a family like Llama, whose configs have names of their own",
            trial="serve FOLDER",
            declared=('offers=frozenset({"${cls}ForCausalLM"}),',),
            suite="ArchitectureSuite",
            kit="kits/architecture.py.txt",
            sample="tests/config.json",
            more=(("tests/config.json", "kits/architecture.json.txt"),),
            has_options=False,
        ),
        "weights": Recipe(
            summary="a folder with all tensors in one NumPy archive",
            trial="serve FOLDER",
            suite="WeightsSuite",
            kit="kits/weights.py.txt",
            sample="FOLDER",
        ),
        "source": Recipe(
            summary="`$name:MODEL` is a model on a shelf of this machine",
            trial="serve $name:MODEL --source.$name.shelf FOLDER",
            declared=("rank=30,  # asked before the stock ones, which claim more",),
            suite="SourceSuite",
            kit="kits/source.py.txt",
            sample='\'{"good": "$name:MODEL", "bad": "$name:NONE"}\'',
        ),
        "tokenizer": Recipe(
            summary="a list of words, one a line",
            trial="serve FOLDER",
            suite="TokenizerSuite",
            kit="kits/tokenizer.py.txt",
            sample="FOLDER",
        ),
        "parser": Recipe(
            summary="calls are JSON objects between two marks",
            trial="serve smollm2 --tool-parser $name",
            declared=('offers=frozenset({"tools"}),',),
            suite="ParserSuite",
        ),
        "dialect": Recipe(
            summary="GET /$name lists the served models",
            trial="serve smollm2",
            suite="DialectSuite",
        ),
    }
)

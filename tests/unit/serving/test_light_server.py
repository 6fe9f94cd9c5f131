"""The HTTP server's process imports no torch, whatever the flags: it would cost seconds and memory.

Options are checked where the command line is read, so that the modules which hold their models
must be light, and those that say why `auto` passes a component over.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from peft_folders import Lora, write_adapter

HEAVY = '{"torch", "transformers", "triton"} & set(sys.modules)'

DECLARED = f"""
import sys
from octavo.config.resolve import catalogue_for
from octavo.plugin.build import load_options, load_params
from octavo.plugin.files import import_target
from octavo.plugin.kinds import KINDS

for kind in KINDS:
    for entry in catalogue_for().all(kind):
        load_options(entry), load_params(entry)
        if entry.component.why_not:
            import_target(entry.component.why_not)
        if {HEAVY}:
            sys.exit(f"{{kind}} '{{entry.name}}'")
"""

BEGIN = f"""
import argparse, sys
import octavo.serving.startup as startup
from octavo.cli import serve
from octavo.config.flags import Parser, resolve_arguments

startup.start_engine_process = lambda config_json: None
parser = Parser()
serve.add_arguments(parser)
plan = startup.begin([resolve_arguments(parser.parse_args(sys.argv[1:]))])
plan.models[0].load_texts(), list(plan.load_dialects())
import octavo.serving.server
heavy = {HEAVY}
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""


def run(code, *words):
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_declarations_options_and_reasons_of_stock_components():
    run(DECLARED)


@pytest.mark.parametrize(
    "flags",
    [
        ("--proposer", "none"),
        ("--proposer", "ngram", "--proposer.num-drafts", "3"),
        ("--proposer", "draft-model"),
        ("--proposer", "draft-model", "--proposer.num-layers", "3"),
        ("--speculative-config", '{"model": "smollm2", "num_speculative_tokens": 3}'),
        ("--executor", "simulated", "--executor.fixed-ms", "3"),
        ("--tensor-parallel-size", "3"),
        ("--ops", "torch", "--attention", "torch", "--depth", "1"),
    ],
)
def test_the_start_of_a_server(flags):
    run(BEGIN, "smollm2", "--port", "0", *flags)


def test_the_start_of_a_server_with_adapters(tmp_path):
    weights = {"model.layers.0.mlp.up_proj.weight": torch.zeros(8, 4)}
    folder = write_adapter(tmp_path / "a", weights, Lora())
    run(BEGIN, "smollm2", "--port", "0", "--lora-modules", f"a={folder}")

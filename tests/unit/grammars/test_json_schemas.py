"""Schemas from the field: valid instances are accepted token by token, invalid ones are not.

The cases are no part of this project. `JSON_SCHEMA_CASES` names their file (a JSON object a line:
id, schema, tests of data and valid); without one, a file beside the checkout is looked for.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from grammars import accepts, schema_spec, smollm2_tokenizer
from octavo.errors import GrammarError
from octavo.interfaces.grammar import GrammarContext
from octavo_plugins.grammars.llguidance_grammar import LLGuidance
from octavo_plugins.grammars.xgrammar_grammar import XGrammar
from source_tree import ROOT

LAYOUTS = (
    {"ensure_ascii": False},
    {"ensure_ascii": False, "separators": (",", ":")},
    {"ensure_ascii": False, "indent": 2},
)


@pytest.fixture(scope="module")
def cases():
    default = ROOT.parent / "shared" / "cases" / "json_schemas.jsonl"
    path = Path(os.environ.get("JSON_SCHEMA_CASES", default))
    if not path.is_file():
        pytest.skip("no file of schemas: set JSON_SCHEMA_CASES")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def tokenizer():
    return smollm2_tokenizer()


@pytest.mark.parametrize(
    ("back_end", "least_compiled"),
    [(LLGuidance, 0.75), pytest.param(XGrammar, 0.5, marks=pytest.mark.full)],
)
def test_instances_are_told_apart(cases, tokenizer, back_end, least_compiled):
    backend = back_end(None, GrammarContext(tokenizer, tokenizer.vocab_size))
    wrong, counts, reasons = [], Counter(), Counter()
    for case in cases:
        try:
            compiled = backend.compile(schema_spec(case["schema"]))
        except GrammarError as error:
            counts["refused"] += 1
            reasons.update([(*error.facts, error.headline)[0]])
            continue
        counts["compiled"] += 1
        for test in case["tests"]:
            for layout in LAYOUTS:
                text = json.dumps(test["data"], **layout)
                token_ids = tokenizer.encode(text, add_special_tokens=False)
                is_accepted = accepts(compiled, token_ids, tokenizer.vocab_size)
                counts["valid" if test["valid"] else "invalid", is_accepted] += 1
                if is_accepted != test["valid"]:
                    wrong.append((case["id"], test["valid"], text[:200]))
    print(dict(counts), dict(reasons))  # noqa: T201 - figures for whoever runs this with -s

    backend.close()
    assert wrong == []
    assert counts["compiled"] >= least_compiled * len(cases)

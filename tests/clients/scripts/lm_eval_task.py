"""lm-eval on a small task of its own folder: texts that are written, and choices that are scored.

Usage: lm_eval_task.py FOLDER TOKENIZER_FOLDER
"""

import json
import os
import sys
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

folder, tokenizer = map(Path, sys.argv[1:])
QUESTIONS = [
    {"q": "The capital of France is", "choices": [" Paris", " banana"]},
    {"q": "Water is made of hydrogen and", "choices": [" oxygen", " letters"]},
    {"q": "One, two, three,", "choices": [" four", " green"]},
    {"q": "The opposite of hot is", "choices": [" cold", " purple"]},
]
(folder / "questions.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
COMMON = f"""
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/questions.jsonl}}}}
test_split: test
doc_to_text: "{{{{q}}}}"
"""
(folder / "written.yaml").write_text(f"""task: written{COMMON}
output_type: generate_until
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs: {{until: ["\\n", ".", ","], max_gen_toks: 3, temperature: 0}}
metric_list: [{{metric: exact_match}}]
""")
(folder / "chosen.yaml").write_text(f"""task: chosen{COMMON}
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: 0
target_delimiter: ""
metric_list: [{{metric: acc}}]
""")
found = lm_eval.simple_evaluate(
    model="local-completions",
    model_args={
        "model": os.environ["MODEL"],
        "base_url": f"{os.environ['BASE_URL']}/completions",
        "tokenizer": str(tokenizer),
        "tokenizer_backend": "huggingface",
        "num_concurrent": 2,
    },
    tasks=["written", "chosen"],
    task_manager=TaskManager(include_path=str(folder), include_defaults=False),
    bootstrap_iters=0,
)
scores = found["results"]
print(scores)
assert scores["chosen"]["acc,none"] == 1.0
assert scores["written"]["exact_match,none"] >= 0.5
print("ok lm-eval")

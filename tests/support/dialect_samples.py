"""Calls of the stock dialects that succeed: samples of the conformance kit."""

from __future__ import annotations

from octavo.testing.dialect_cases import DialectCall

TALK = {"model": "tiny", "messages": [{"role": "user", "content": "TEXT"}], "max_tokens": 6}
STREAM = {"stream": True}
OPENAI = (
    DialectCall("/v1/models"),
    DialectCall("/v1/models/tiny"),
    DialectCall(
        "/v1/completions",
        {"model": "tiny", "prompt": "TEXT", "max_tokens": 6, "temperature": 0, "stop": ["no"]},
        STREAM,
    ),
    DialectCall("/v1/embeddings", {"model": "tiny", "input": "TEXT"}),
    DialectCall("/v1/chat/completions", {**TALK, "seed": 3, "top_p": 0.9}, STREAM),
    DialectCall(
        "/v1/responses",
        {"model": "tiny", "input": "TEXT", "max_output_tokens": 6, "instructions": "Be brief."},
        STREAM,
    ),
)
ANTHROPIC = (
    DialectCall("/v1/messages", {**TALK, "system": "Be brief.", "top_k": 3}, STREAM),
    DialectCall("/v1/messages/count_tokens", {key: TALK[key] for key in ("model", "messages")}),
)
POOLING = (
    DialectCall("/pooling", {"model": "tiny", "input": "TEXT"}),
    DialectCall("/score", {"model": "tiny", "text_1": "TEXT", "text_2": ["one", "two"]}),
    DialectCall("/rerank", {"model": "tiny", "query": "TEXT", "documents": ["one"], "top_n": 1}),
)
TEXTS = (
    DialectCall("/tokenize", {"model": "tiny", "prompt": "TEXT", "return_token_strs": True}),
    DialectCall("/tokenize", {"model": "tiny", "messages": TALK["messages"]}),
    DialectCall("/detokenize", {"model": "tiny", "tokens": [65, 66]}),
)
OPS = (
    *map(DialectCall, ("/health", "/live", "/ready", "/version", "/load", "/metrics")),
    *map(DialectCall, ("/is_sleeping", "/is_paused", "/server_info")),
    DialectCall("/abort_requests", {"request_ids": ["none"]}),
)

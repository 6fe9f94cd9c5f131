"""Request bodies: their fields, and what becomes of fields that are not obeyed.

Every field of a body is obeyed, refused with 400, or named in the header
`X-Octavo-Ignored-Fields` and the log (refused too where the server has `strict-fields`). Fields
that components declare are obeyed too: they are handed on together with `vllm_xargs`.

Knows names and types. Does not know what values mean (`params`).
"""

from __future__ import annotations

import logging
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from octavo.errors import RequestError, nearest
from octavo_plugins.dialects.openai.json_escapes import without_lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Mapping

_logger = logging.getLogger("octavo.serving")

IGNORED_HEADER = "X-Octavo-Ignored-Fields"
_MAX_HEADER_CHARS = 512
_MAX_NAMED_FIELDS = 16
_PATH = re.compile(r"`\$\.(\w+)")
_MISSING = re.compile(r"required field `(\w+)`")


class StreamOptions(msgspec.Struct):
    """What a stream says of its usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class AdapterField(msgspec.Struct, forbid_unknown_fields=True):
    """An adapter among several: how much of it, beside the factor in its own files."""

    name: str
    scale: float = 1.0


class GenerationBody(msgspec.Struct, kw_only=True):
    """The fields that chat and plain completions share; null means not given."""

    model: str | None = None
    adapters: list[AdapterField] | None = None
    n: int | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    priority: int | None = None
    request_id: str | None = None
    cache_salt: str | None = None
    vllm_xargs: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_json_object: bool | None = None
    guided_whitespace_pattern: str | None = None
    user: str | None = None
    session_id: str | None = None

    @property
    def blend(self) -> dict[str, float]:
        """Return the scales of the adapters by name. Raises RequestError for one named twice."""
        adapters = self.adapters or []
        blend = {one.name: one.scale for one in adapters}
        if len(blend) < len(adapters):
            raise RequestError("an adapter is named twice: add up its scales", param="adapters")
        return blend

    @property
    def has_usage(self) -> bool:
        """Return whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def has_running_usage(self) -> bool:
        """Return whether every chunk of a stream has the usage so far."""
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


class ChatBody(GenerationBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(GenerationBody, kw_only=True):
    """POST /v1/completions. `prompt`: a text, texts, ids, or lists of ids."""

    prompt: str | list[Any]
    logprobs: int | None = None
    echo: bool | None = None


#: fields that are known and refused, unless they hold one of the values that ask for nothing
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "tools": (), "tool_choice": ("none",), "functions": (), "function_call": ("none",),
    "structural_tag": (), "guided_decoding_backend": ("auto", "guidance"),
    "use_beam_search": (False,), "length_penalty": (1,), "early_stopping": (False,),
    "suffix": ("",), "prompt_embeds": (), "logprob_token_ids": ([],),
    "thinking_token_budget": (), "repetition_detection": (), "watermarking": (False,),
    "audio": (), "modalities": (["text"],), "prediction": (), "web_search_options": (),
    "chat_template": (), "mm_processor_kwargs": ({},), "media_io_kwargs": ({},),
    "kv_transfer_params": (), "ec_transfer_params": (), "routed_experts_prompt_start": (),
    "return_mm_kwargs": (False,), "mm_payload": (), "truncation_side": ("left",),
    "return_prompt_text": (False,), "return_token_offsets": (False,), "stream_interval": (1,),
}  # fmt: skip

#: fields that clients send by habit and that change nothing here; reported, never refused
WITHOUT_EFFECT = frozenset({
    "store", "metadata", "service_tier", "parallel_tool_calls", "reasoning_effort", "verbosity",
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "include_reasoning",
})  # fmt: skip

T = TypeVar("T", bound=GenerationBody)
S = TypeVar("S", bound=msgspec.Struct)


class Decoded(msgspec.Struct, Generic[T]):
    """A body, its length, and the names of its fields that were ignored."""

    body: T
    num_bytes: int
    ignored: list[str]

    @property
    def headers(self) -> dict[str, str]:
        """Return the header that names what was ignored; names are cut to plain ASCII."""
        if not self.ignored:
            return {}
        text = ", ".join(self.ignored).encode("ascii", "replace").decode()
        printable = "".join(char if char.isprintable() else "?" for char in text)
        return {IGNORED_HEADER: printable[:_MAX_HEADER_CHARS]}


def decode_body(
    raw: bytes,
    shape: type[T],
    *,
    is_strict: bool,
    declared: frozenset[str] = frozenset(),
    unread: Mapping[str, str] = MappingProxyType({}),
) -> Decoded[T]:
    """Return a request's body. Raises RequestError naming the field at fault.

    `declared` are the parameters of components: fields of these names join `vllm_xargs`. `unread`
    are fields that nothing in use reads, and why: whatever but 0 they hold is ignored.
    """
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        names = declared.difference(shape.__struct_fields__) & fields.keys()
        theirs = {name: fields.pop(name) for name in names}
        known = {*shape.__struct_fields__, *declared}
        ignored = _check_names(fields, known, unread, is_strict=is_strict)
        body = msgspec.json.decode(raw, type=shape)
        _add_declared(body, theirs)
        return Decoded(body, len(raw), ignored)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except msgspec.DecodeError as error:
        repaired = without_lone_surrogates(raw)
        if repaired != raw:
            options: dict[str, Any] = {"declared": declared, "unread": unread}
            return decode_body(repaired, shape, is_strict=is_strict, **options)
        raise RequestError(
            f"the request's body is not valid JSON: {error}", "NaN and Infinity are not JSON"
        ) from error
    except RecursionError as error:
        raise RequestError("the request's body is nested too deeply") from error


def decode_plain(raw: bytes, shape: type[S]) -> S:
    """Return a body whose fields are all known. Raises RequestError naming the field at fault."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except msgspec.DecodeError as error:
        raise RequestError(f"the request's body is not valid JSON: {error}") from error


def _invalid(text: str) -> RequestError:
    """Return the error of a value of the wrong type, or of a field that is missing."""
    found, missing = _PATH.search(text), _MISSING.search(text)
    if found:
        return RequestError(f"{found.group(1)}: {text}", param=found.group(1))
    if missing:
        return RequestError(text, param=missing.group(1))
    return RequestError(f"the request's body must be a JSON object: {text}")


def _add_declared(body: GenerationBody, fields: Mapping[str, msgspec.Raw]) -> None:
    """Put the parameters of components with those that came in `vllm_xargs`."""
    values = {name: _value(name, raw) for name, raw in fields.items()}
    given = {name: value for name, value in values.items() if value is not None}
    if not given:
        return
    others = body.vllm_xargs or {}
    twice = sorted(given.keys() & others.keys())
    if twice:
        name = twice[0]
        raise RequestError(f"{name} is given twice: by itself and in vllm_xargs", param=name)
    body.vllm_xargs = others | given


def _value(name: str, raw: msgspec.Raw) -> Any:
    """Return what a field of any type holds. Raises RequestError for a number out of range."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError as error:
        text = str(error).replace("`$", f"`$.{name}", 1)
        raise RequestError(f"{name}: {text}", param=name) from error


def _check_names(
    fields: Mapping[str, msgspec.Raw],
    known: set[str],
    unread: Mapping[str, str],
    *,
    is_strict: bool,
) -> list[str]:
    """Return the names that are ignored. Raises for those that are refused."""
    given = {name: raw for name, raw in fields.items() if bytes(raw) != b"null"}
    idle = [name for name in unread if name in given and _value(name, given[name]) != 0]
    if idle and is_strict:
        raise RequestError(
            f"{idle[0]} changes nothing here: {unread[idle[0]]}",
            "this server refuses fields without effect (strict-fields)",
            param=idle[0],
        )
    for name, raw in given.items():
        if name in UNSUPPORTED and _value(name, raw) not in UNSUPPORTED[name]:
            raise RequestError(f"{name} is not supported by this server", param=name)
    unknown = [n for n in given if n not in known | WITHOUT_EFFECT and n not in UNSUPPORTED]
    if unknown and is_strict:
        raise RequestError(
            f"unknown field {unknown[0]!r:.80}",
            _suggestion(unknown[0], known),
            "this server refuses fields that it does not know (strict-fields)",
            param=unknown[0][:80],
        )
    ignored = [*unknown, *idle, *(name for name in given if name in WITHOUT_EFFECT)]
    if ignored:
        named = [f"{name!r:.80}" for name in ignored[:_MAX_NAMED_FIELDS]]
        hints = [_suggestion(name, known) for name in unknown[:_MAX_NAMED_FIELDS]]
        hints += [f"{name}: {unread[name]}" for name in idle]
        _logger.warning("ignored fields: %s", "; ".join(filter(None, (", ".join(named), *hints))))
    return ignored


def _suggestion(name: str, known: set[str]) -> str:
    match = nearest(name, known)
    return f"did you mean {match!r} for {name!r:.80}?" if match else ""

"""The sections of the configuration that belong to the core, with every setting's meaning.

Flags, config files, keywords of `LLM` and the reference pages are all generated from these
models: a setting is added here and nowhere else. Names and defaults follow vLLM's where it has
the same setting.

Knows names, types and limits. Does not know files, flags or components.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from octavo.lora import lora_modules
from octavo.plugin.options import kebab

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)")


def _amount(value: Any) -> Any:
    """Read `8k` as 8000 and `8K` as 8192, as vLLM does; leave everything else to pydantic."""
    if isinstance(value, str) and (match := _AMOUNT.fullmatch(value.strip())):
        number, unit = match.groups()
        return int(float(number) * (_UNITS | _BINARY_UNITS)[unit])
    return value


def _off(value: Any) -> Any:
    """Read the words that mean "no limit" as None; YAML reads a bare `off` as False."""
    is_word = isinstance(value, str) and value.lower() in {"none", "off", "auto"}
    return None if is_word or value is False else value


def _many(value: Any) -> Any:
    """Read a single text as a list of one."""
    return (value,) if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """Read a JSON list, which vLLM's flags of this kind take, or a single text."""
    if isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return _many(value)


def _filled(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an empty key: every request would match it, also one without a key."""
    if not all(key.strip() for key in keys):
        raise ValueError("a key must not be empty; leave the setting out to serve without keys")
    return keys


def _modules(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what names no adapter."""
    lora_modules(texts)
    return texts


Amount = Annotated[int, BeforeValidator(_amount)]
OptionalAmount = Annotated[int | None, BeforeValidator(lambda value: _off(_amount(value)))]
OptionalFloat = Annotated[float | None, BeforeValidator(_off)]
OptionalInt = Annotated[int | None, BeforeValidator(_off)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_many)]
OriginList = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Adapters = Annotated[tuple[str, ...], BeforeValidator(_many), AfterValidator(_modules)]
Keys = Annotated[tuple[str, ...], BeforeValidator(_many), AfterValidator(_filled)]


def _auto_length(value: Any) -> Any:
    """Read -1, as vLLM does, as "what the model allows"."""
    value = _off(_amount(value))
    return None if value in {-1, "-1"} else value


class Section(BaseModel):
    """Base of all config models: frozen, no unknown keys, kebab-case outside Python."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=kebab,
        populate_by_name=True,
        protected_namespaces=(),
    )


class EngineConfig(Section):
    """Budgets and sizes that the engine's mechanism keeps, whatever the policies say."""

    max_num_seqs: Amount = Field(64, ge=1, description="sequences in one step, at most")
    max_num_batched_tokens: Amount = Field(
        2048, ge=1, description="tokens in one step, at most; a platform may have its own default"
    )
    max_step_ms: OptionalFloat = Field(
        250.0,
        gt=0,
        description="milliseconds of one step, at most, from rates measured at start; or 'off'",
    )
    max_model_len: Annotated[int | None, BeforeValidator(_auto_length)] = Field(
        None, ge=1, description="tokens of prompt and output together; default: what the model has"
    )
    max_num_queued_reqs: Amount = Field(
        2048, ge=0, description="requests that may wait; further ones are answered with 503"
    )
    block_size: Amount = Field(16, ge=1, description="tokens in one block of the KV cache")
    enable_prefix_caching: bool = Field(
        default=True, description="share blocks between requests that begin with the same tokens"
    )
    num_gpu_blocks_override: OptionalAmount = Field(
        None, ge=2, description="blocks of KV cache, instead of as many as fit"
    )
    kv_cache_memory_bytes: OptionalAmount = Field(
        None, ge=1, description="bytes of KV cache, instead of a share of the free memory"
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16", "float", "half"] = Field(
        "auto", description="number type of activations; 'auto' takes what the op set computes best"
    )
    seed: OptionalInt = Field(None, description="seed for requests that bring none of their own")
    max_logprobs: int = Field(
        20, ge=-1, description="log probabilities per token that may be asked for; -1 for all"
    )
    depth: int = Field(
        0, ge=0, le=1, description="steps planned ahead of the one that runs: 0 or 1"
    )
    enable_lora: bool = Field(default=True, description="requests may bring adapters")
    max_loras: Amount = Field(
        8, ge=1, description="adapters kept in memory beside those that running requests use"
    )
    max_lora_rank: Amount = Field(256, ge=1, description="rank of an adapter, at most")
    tensor_parallel_size: Amount = Field(
        1, ge=1, description="processes that share every layer: each has a part of the heads"
    )
    threads: OptionalInt = Field(
        None, ge=1, description="threads that compute; default: the cores this process may use"
    )

    @property
    def max_tokens_ahead(self) -> int:
        """Return how many tokens of one request may be in flight, beyond the committed ones."""
        return (self.depth + 1) * self.max_num_batched_tokens


class ModelConfig(Section):
    """Which model, and how its files are read."""

    name: str | None = Field(
        None,
        description="folder, file, `org/repo[:quantization]` or alias",
        json_schema_extra={"flag": "model"},
    )
    tokenizer: str | None = Field(None, description="where the tokenizer is, if not with the model")
    tokenizer_mode: str = Field("auto", description="tokenizer component to use; 'auto' asks all")
    revision: str | None = Field(None, description="branch, tag or commit on the hub")
    load_format: str = Field("auto", description="weights component to use; 'auto' asks all")
    served_model_name: Texts = Field(
        (),
        description="names that clients may ask for; default: the model's own",
        json_schema_extra={"takes_many": True},
    )
    chat_template: str | None = Field(
        None, description="file with a Jinja chat template, or the template itself"
    )
    generation_config: Literal["auto", "none"] = Field(
        "auto", description="'auto' takes sampling defaults from the model, 'none' does not"
    )
    tool_parser: str = Field(
        "auto",
        description="parser component that reads calls of tools; 'auto' asks the chat template",
    )
    reasoning_parser: str = Field(
        "auto", description="parser component that reads reasoning; 'auto' asks the chat template"
    )
    pooling: Literal["auto", "last", "mean"] = Field(
        "auto", description="what vectors are made of; 'auto' asks the model, or takes the last"
    )


class ServerConfig(Section):
    """Where and how HTTP is served."""

    host: str = Field("0.0.0.0", description="address to listen on")  # noqa: S104 - as vLLM does
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 for any free one")
    api_key: Keys = Field(
        (),
        description="key that clients must send as a bearer token; may be given several times",
        json_schema_extra={"secret": True},
    )
    ssl_certfile: str | None = Field(
        None, description="certificate chain (PEM); with it the server speaks HTTPS and no HTTP"
    )
    ssl_keyfile: str | None = Field(
        None, description="private key (PEM) of the certificate, if it is not in the same file"
    )
    ssl_ca_certs: str | None = Field(
        None, description="authorities (PEM) of which a client must show a certificate"
    )
    open_metrics: bool = Field(
        default=False, description="let /metrics be read without a key where others need one"
    )
    allowed_origins: OriginList = Field(
        (), description="sites whose pages may ask this server from a browser; '*' for all"
    )
    allowed_methods: OriginList = Field(("*",), description="methods that such pages may use")
    allowed_headers: OriginList = Field(("*",), description="headers that such pages may send")
    allow_credentials: bool = Field(
        default=False, description="let such pages send cookies and keys of the browser's own"
    )
    request_timeout_s: OptionalFloat = Field(
        None, gt=0, description="seconds that a request may take, waiting included; default: any"
    )
    lora_modules: Adapters = Field(
        (),
        description="adapters that clients may ask for as models: name=path, or a JSON object",
        json_schema_extra={"takes_many": True},
    )
    lora_root: str | None = Field(
        None,
        description="folder below which adapters may be loaded over HTTP; default: none may",
    )
    max_body_bytes: Amount = Field(
        32 * 2**20, ge=1, description="size of a request's body, at most"
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", description="least severity that is logged"
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="form of a log line: for people, or one JSON object"
    )
    access_log: bool = Field(default=True, description="log one line for each HTTP request")
    enable_log_requests: bool = Field(
        default=False, description="log the beginning of each prompt, and its parameters"
    )
    max_log_len: int = Field(200, ge=0, description="characters of a prompt in the log, at most")
    strict_fields: bool = Field(
        default=False,
        description="answer a request with fields nobody knows with 400, instead of a warning",
    )
    reasoning_field: Literal["both", "reasoning", "reasoning_content"] = Field(
        "both", description="what a message's reasoning is called in answers of OpenAI's chat"
    )
    idle_seconds: OptionalFloat = Field(
        None, gt=0, description="unload a model that nobody has used for so long; default: never"
    )
    shutdown_timeout_s: float = Field(
        30.0, ge=0, description="seconds that running requests may still take after SIGTERM"
    )
    max_stream_backlog_tokens: Amount = Field(
        8192, ge=1, description="tokens that may wait for a slow reader before it is given up"
    )


class PluginsConfig(Section):
    """Which plugins are loaded, and what they may replace."""

    files: Texts = Field(
        (),
        description="Python file with a plugin; may be given several times",
        json_schema_extra={"flag": "plugin"},
    )
    only: Texts | None = Field(
        None,
        description="distributions to load beside octavo itself; others are not even imported",
        json_schema_extra={"flag": "only-plugin"},
    )
    disable: Texts = Field(
        (),
        description="distributions, or distribution:entry-point, that are not imported",
        json_schema_extra={"flag": "disable-plugin"},
    )
    allow_replace: Texts = Field(
        (),
        description="names of components that a plugin may take over from another",
        json_schema_extra={"flag": "allow-replace"},
    )
    strict: bool = Field(
        default=False,
        description="a plugin that cannot be loaded is fatal",
        json_schema_extra={"flag": "strict-plugins"},
    )


SECTIONS: Mapping[str, type[Section]] = MappingProxyType(
    {
        "engine": EngineConfig,
        "model": ModelConfig,
        "server": ServerConfig,
        "plugins": PluginsConfig,
    }
)

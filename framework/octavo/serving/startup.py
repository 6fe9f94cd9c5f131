"""What happens before anything heavy: checks, the port, the model's place, the engine process.

A start that cannot succeed fails here, in well under a second, with nothing to clean up: the
engine process (which imports torch and loads weights) is the last thing that begins.

Knows configuration, files and sockets. Does not know HTTP or asyncio, so that it imports fast.
"""

from __future__ import annotations

import errno
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import ConfigError, RequestError
from octavo.frontend.chat import ChatRenderer, read_template
from octavo.frontend.defaults import generation_defaults
from octavo.frontend.parsers import parsers_of
from octavo.frontend.progress import TransferLine
from octavo.frontend.request_params import DeclaredParams
from octavo.lora import lora_modules
from octavo.model_files import describe_model, load_tokenizer, locate_model
from octavo.plugin.request_params import declared_params, unread_fields
from octavo.serving.adapters import check_module
from octavo.serving.plans import AppPlan, ModelPlan, ServerPlan, Texts
from octavo.serving.process import start_engine_process
from octavo.serving.tls import tls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from octavo.config.resolved import ResolvedConfig
    from octavo.interfaces.adapter import AdapterFormat
    from octavo.interfaces.dialect import Dialect
    from octavo.lora import LoraModule

_BACKLOG = 2048


def begin(configs: Sequence[ResolvedConfig]) -> ServerPlan:
    """Check what can be checked, take the port, find all models, and start the first one's engine.

    There is one config for each model; settings of the server are those of the first. Raises
    ConfigError, ModelError and their kin before anything was started.
    """
    _check(configs)
    settings = configs[0].server
    tls = tls_of(settings)
    listener = bind(settings.host, settings.port)
    try:
        models = _started(configs)
    except BaseException:
        listener.close()
        raise
    return ServerPlan(
        settings=settings,
        models=models,
        listener=listener,
        tls=tls,
        load_dialects=_dialects(configs[0]),
    )


def begin_without_port(configs: Sequence[ResolvedConfig]) -> AppPlan:
    """Do as `begin`, for an application that is asked in its own process."""
    _check(configs)
    return AppPlan(
        settings=configs[0].server, models=_started(configs), load_dialects=_dialects(configs[0])
    )


def _check(configs: Sequence[ResolvedConfig]) -> None:
    """Refuse what can be seen to be wrong before a model was looked for."""
    names = [_model_names(config) for config in configs]
    _check_distinct(names)
    for config in configs:
        if config.model.chat_template is not None:
            read_template(config.model.chat_template)
    _check_adapters(configs[0], [name for some in names for name in some])


def _started(configs: Sequence[ResolvedConfig]) -> tuple[ModelPlan, ...]:
    """Find all models, and start the first one's engine."""
    first, *others = (
        _plan_of(config, _model_names(config), is_first=config is configs[0]) for config in configs
    )
    return replace(first, process=start_engine_process(first.engine_config_json)), *others


def _dialects(config: ResolvedConfig) -> Callable[[], Iterable[Dialect]]:
    return lambda: config.build_all("dialect").values()


def _plan_of(config: ResolvedConfig, names: tuple[str, ...], *, is_first: bool) -> ModelPlan:
    transfers = TransferLine()
    try:
        path = locate_model(config, transfers)
    finally:
        transfers.close()
    description = describe_model(config, path)

    def load_texts() -> Texts:
        has_sampling = config.model.generation_config == "auto"
        tokenizer = load_tokenizer(config, description)
        defaults = generation_defaults(
            description, has_sampling=has_sampling, pooling=config.model.pooling
        )
        chat = ChatRenderer(tokenizer, config.model)
        parsers = parsers_of(config, chat.template_text, tokenizer)
        return Texts(tokenizer, defaults, chat, parsers)

    return ModelPlan(
        names=names,
        # keys are the server's own business: the engine's process need not hold them
        engine_config_json=config.with_changes(server={"api_key": ()}).to_json(),
        load_texts=load_texts,
        declared=DeclaredParams(
            declared_params(config.in_use), unread_fields(config.chosen["scheduler"])
        ),
        adapters=_modules_of(config, names, is_first=is_first),
        seed=config.engine.seed,
    )


def _model_names(config: ResolvedConfig) -> tuple[str, ...]:
    """Return the names that clients may ask for. Raises ConfigError when no model was named."""
    name, served = config.model.name, config.model.served_model_name
    if name is None:
        raise ConfigError(
            "no model was named",
            "octavo serve MODEL, as in: octavo serve smollm2",
            f"--served-model-name takes all words after it, here {' '.join(served)}: "
            "MODEL comes before it"
            if served
            else "",
        )
    return served or (name,)


def _check_distinct(names: Sequence[tuple[str, ...]]) -> None:
    """Refuse two models of one name. Raises ConfigError."""
    counts = Counter(name for some in names for name in some)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise ConfigError(
            f"two models are called '{twice[0]}'",
            "name them apart: octavo serve NAME=MODEL OTHER=MODEL",
        )


def _modules_of(
    config: ResolvedConfig, names: tuple[str, ...], *, is_first: bool
) -> tuple[LoraModule, ...]:
    """Return the adapters of the model of these names; those that name no model are the first's."""
    modules = lora_modules(config.server.lora_modules)
    return tuple(
        one
        for one in modules
        if (is_first if one.base_model_name is None else one.base_model_name in names)
    )


def _check_adapters(config: ResolvedConfig, model_names: Sequence[str]) -> None:
    """Refuse adapters that cannot be served before a model is loaded for them."""
    settings = config.server
    modules = lora_modules(settings.lora_modules)
    if modules and not config.engine.enable_lora:
        raise ConfigError("adapters are to be served, and are switched off by enable-lora")
    formats = config.build_all("adapter").values() if modules else ()
    faults = [
        f"{module.name}: {fault}"
        for module in modules
        for fault in _adapter_faults(module, formats, model_names)
    ]
    if faults:
        where = config.origins.get("server.lora-modules", "lora-modules")
        raise ConfigError(f"adapters cannot be served ({where})", *faults)
    root = settings.lora_root
    if root is not None and not Path(root).expanduser().is_dir():
        raise ConfigError(f"'{root}' is no folder (lora-root)")


def _adapter_faults(
    module: LoraModule, formats: Iterable[AdapterFormat], model_names: Sequence[str]
) -> list[str]:
    """Return what can be told to be wrong with an adapter without reading its weights."""
    path, reasons = Path(module.path).expanduser(), list[str]()
    try:
        check_module(module, model_names)
        for one in formats:
            why_not = one.why_not(path)
            if not why_not:
                one.check(path)
                return []
            reasons += why_not
    except RequestError as error:
        return [error.headline, *error.facts]
    except OSError as error:  # a folder that may not be looked into
        return [f"'{path}': {error.strerror or error}"]
    return list(dict.fromkeys(reasons))


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises ConfigError when the address cannot be had.

    It listens at once, so that a second server cannot take the port while this one loads.
    Connections made meanwhile are answered when the engine is ready.
    """
    place = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigError(f"cannot listen on {place}", f"unknown host: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {place}", *_advice(error, port)) from error
    return listener


def _advice(error: OSError, port: int) -> tuple[str, ...]:
    if error.errno == errno.EADDRINUSE:
        return ("the port is in use", f"stop what uses it, or choose another: --port {port + 1}")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return ("this user may not use the port", "choose one above 1023: --port 8000")
    return (error.strerror or str(error),)

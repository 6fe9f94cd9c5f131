"""The real server in front of the scripted engine: `python scripted_server.py '{"port": 0, ...}'`.

Its argument is a JSON object: fields of `ServerConfig`, and under `script` those of the engine's
`Script`; `models` holds the names of each model, and `second_script` what is another for those
after the first. `parsers` names the parsers of calls and of reasoning. The tokenizer is
`BytesTokenizer`; a chat's prompt is the last message, so that the engine repeats what was said:
FORCE(text) is to say it.
"""

import json
import sys
from pathlib import Path

# found as a script, too, where PYTHONSAFEPATH is set
sys.path.insert(0, str(Path(__file__).parent))

import scripted
import scripted_engine
from octavo.config.schema import ModelConfig, ServerConfig
from octavo.errors import OctavoError
from octavo.frontend.chat import ChatRenderer
from octavo.frontend.defaults import GenerationDefaults
from octavo.frontend.parsers import Chosen, ModelParsers
from octavo.frontend.request_params import DeclaredParams
from octavo.lora import lora_modules
from octavo.plugin.options import RequestParams
from octavo.serving.client import RestartPolicy
from octavo.serving.logs import configure_logging
from octavo.serving.plans import ModelPlan, ServerPlan, Texts
from octavo.serving.process import start_engine_process
from octavo.serving.server import serve
from octavo.serving.startup import bind
from octavo.serving.tls import tls_of
from octavo.testing.subjects import stock
from octavo_plugins.dialects.anthropic.dialect import AnthropicDialect
from octavo_plugins.dialects.openai.dialect import OpenAIDialect
from octavo_plugins.dialects.ops.dialect import OpsDialect
from octavo_plugins.dialects.text.dialect import TextDialect

COMMAND = (sys.executable, str(Path(scripted_engine.__file__)))
NAMES = [["scripted", "second-name"]]
SCRIPT = {"vocab_size": scripted.VOCAB_SIZE, "eos_token_id": scripted.EOS}


class ScriptParams(RequestParams):
    """What a request may ask of the scripted engine."""

    ids: list[int] | None = None
    fail_at: int | None = None
    raise_at: int | None = None
    die_at: int | None = None
    hang_s: float | None = None


def last_message():
    """Return a renderer whose template is the last message's text."""
    template = "{{ messages[-1].content or '' }}"
    return ChatRenderer(scripted.BytesTokenizer(), ModelConfig(chat_template=template))


def plan_of(options):
    script = SCRIPT | options.pop("script", {})
    scripts = script, script | options.pop("second_script", {})
    every = options.pop("models", NAMES)
    parsers = parsers_of(*options.pop("parsers", (None, None)))
    settings = ServerConfig(**{"host": "127.0.0.1", "port": 0} | options)
    adapters = lora_modules(settings.lora_modules)
    listener = bind(settings.host, settings.port)
    return ServerPlan(
        settings=settings,
        models=tuple(
            model_of(names, json.dumps(scripts[i > 0]), adapters, parsers, is_first=not i)
            for i, names in enumerate(every)
        ),
        listener=listener,
        tls=tls_of(settings),
        load_dialects=lambda: [OpenAIDialect(), AnthropicDialect(), TextDialect(), OpsDialect()],
    )


def parsers_of(tools, reasoning):
    names = [name for name in (tools, reasoning) if name]
    built = {name: stock("parser", name) for name in names}  # one that reads both is built once
    return ModelParsers(
        *(Chosen(built.get(name), name or "none", "") for name in (tools, reasoning))
    )


def model_of(names, script, adapters, parsers, *, is_first):
    texts = Texts(scripted.BytesTokenizer(), GenerationDefaults(), last_message(), parsers)
    return ModelPlan(
        names=tuple(names),
        engine_config_json=script,
        process=start_engine_process(script, COMMAND) if is_first else None,
        load_texts=lambda: texts,
        adapters=adapters if is_first else (),
        declared=DeclaredParams(dict.fromkeys(ScriptParams.model_fields, ScriptParams)),
        engine_command=COMMAND,
    )


def main():
    options = json.loads(sys.argv[1])
    configure_logging(options.get("log_level", "info"), options.get("log_format", "text"))
    try:
        plan = plan_of(options)
        return serve(plan, RestartPolicy(max_in_row=2, first_delay_s=0.05, max_delay_s=0.1))
    except OctavoError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

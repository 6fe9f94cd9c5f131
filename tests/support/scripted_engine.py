"""An engine without a model: it repeats the prompt, and misbehaves when a request says so.

Run as a program it is an engine process like the real one, with the real main loop. The config is
a JSON object with the fields of `Script`. A request's `extra_args` (`vllm_xargs` over HTTP) may
hold: `ids` (what to emit instead of the prompt), `fail_at`, `raise_at`, `die_at` (after so many
tokens: an error of this request, of the engine, or SIGKILL), `hang_s` (the step that emits the
first token takes so long).

Adapters are not read: a request with some is answered with their names and scales, as
`name*scale+...`, and one whose path ends in "bad" cannot be had.
"""

import json
import os
import signal
import sys
import time
from concurrent.futures import Future
from dataclasses import dataclass, fields

from octavo.engine.messages import EngineInfo, EngineOutput, EngineStats, TokenLogprobs
from octavo.errors import AdapterError, ModelLoadError, QueueFullError
from octavo.faults import name_component
from octavo.serving import engine_process


@dataclass
class Script:
    vocab_size: int = 300
    eos_token_id: int = 256
    max_model_len: int = 256
    max_num_seqs: int = 64
    max_num_queued_reqs: int = 2048
    step_ms: float = 2.0
    tokens_per_step: int = 1
    start_s: float = 0.0
    start_error: str = ""
    die_at_start: bool = False


class _Running:
    def __init__(self, request):
        self.request = request
        self.args = request.params.extra_args or {}
        named = "+".join(f"{use.spec.name}*{use.scale:g}" for use in request.adapters)
        self.ids = list(self.args.get("ids", named.encode() or request.prompt_token_ids))
        self.num_emitted = 0
        self.is_prefilled = False


class ScriptedEngine:
    def __init__(self, script):
        self.script = script
        self.info = EngineInfo(
            vocab_size=script.vocab_size,
            max_model_len=script.max_model_len,
            capacity_tokens=script.max_model_len * script.max_num_seqs,
            max_num_queued_reqs=script.max_num_queued_reqs,
        )
        self.predicted_step_ms = script.step_ms
        self._requests = {}
        self._stats = EngineStats(num_blocks=1000)

    @property
    def has_work(self):
        return bool(self._requests)

    def is_held(self, request_id):
        return False

    def on_ready(self, call):
        """Nothing is ever held."""

    def prepare(self, resource):
        digest = Future()
        if resource.path.endswith("bad"):
            error = AdapterError("it is scripted to be bad", resource.path, param="lora_request")
            digest.set_exception(error)
        else:
            digest.set_result("digest")
        return digest

    def discard(self, resource):
        self.discarded = resource

    def add(self, source):
        for use in source.adapters:
            self.prepare(use.spec).result()
        if len(self._requests) >= self.script.max_num_seqs + self.script.max_num_queued_reqs:
            raise QueueFullError("too many requests are waiting", "try again later")
        self._requests[source.request_id] = _Running(source)

    def abort(self, request_ids):
        for request_id in request_ids:
            self._requests.pop(request_id, None)
        return []

    def step(self):
        time.sleep(self.script.step_ms / 1000)
        self._stats.step += 1
        running = list(self._requests.values())[: self.script.max_num_seqs]
        outputs = [self._advance(one) for one in running]
        for output in outputs:
            if output.finish_reason is not None:
                del self._requests[output.request_id]
        return outputs

    def reset_prefix_cache(self):
        return not self._requests

    def stats(self):
        num_running = min(len(self._requests), self.script.max_num_seqs)
        self._stats.num_running = num_running
        self._stats.num_waiting = len(self._requests) - num_running
        self._stats.kv_usage = num_running / self.script.max_num_seqs
        return self._stats

    def close(self):
        self._requests.clear()

    def _advance(self, one):
        request, params = one.request, one.request.params
        output = EngineOutput(request.request_id, [])
        if not one.is_prefilled:
            one.is_prefilled = True
            self._stats.prompt_tokens += len(request.prompt_token_ids)
            if params.prompt_logprobs is not None:
                ids = request.prompt_token_ids
                output.prompt_logprobs = [
                    None,
                    *(_logprobs(i, params.prompt_logprobs) for i in ids[1:]),
                ]
        self._misbehave(one)
        if self._hits(one, "fail_at"):
            output.finish_reason, output.error = "error", "the logits of this request were NaN"
            return output
        for _ in range(self.script.tokens_per_step):
            if output.finish_reason is None:
                self._emit(one, output)
        if params.logprobs is not None:
            output.logprobs = [_logprobs(i, params.logprobs) for i in output.token_ids]
        self._stats.generated_tokens += len(output.token_ids)
        return output

    def _emit(self, one, output):
        request = one.request
        if one.num_emitted >= request.max_tokens:
            output.finish_reason = "length"
            return
        is_over = one.num_emitted >= len(one.ids)
        if is_over and not request.params.ignore_eos:
            output.token_ids.append(self.script.eos_token_id)
            output.finish_reason = "stop"
            if self.script.eos_token_id in request.stop_token_ids:
                output.stop_reason = self.script.eos_token_id
            return
        output.token_ids.append(one.ids[one.num_emitted % len(one.ids)])
        one.num_emitted += 1
        if one.num_emitted >= request.max_tokens:
            output.finish_reason = "length"

    def _hits(self, one, name):
        return name in one.args and one.num_emitted >= one.args[name]

    def _misbehave(self, one):
        if self._hits(one, "die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._hits(one, "raise_at"):
            Blunderer().commit()
        if one.num_emitted == 0:
            time.sleep(one.args.get("hang_s", 0))


class Blunderer:
    """A component that raises, as plugins are named."""

    def __init__(self):
        name_component(self, "allocator 'blunderer' (octavo-blunderer 1.0)")

    def commit(self):
        raise RuntimeError("scripted failure of the engine")


def _logprobs(token_id, num_top):
    top = [token_id, *(i for i in range(97, 97 + num_top) if i != token_id)][:num_top]
    values = [-(0.25 + 0.5 * i + token_id / 1024) for i in range(len(top))]
    return TokenLogprobs(token_id, values[0] if values else -0.25 - token_id / 1024, 1, top, values)


def build(config_json):
    values = json.loads(config_json)
    names = {field.name for field in fields(Script)}
    script = Script(**{name: value for name, value in values.items() if name in names})
    if script.die_at_start:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(script.start_s)
    if script.start_error:
        raise ModelLoadError(script.start_error, "the file is scripted to be wrong")
    return ScriptedEngine(script)


if __name__ == "__main__":
    sys.exit(engine_process.main(build=build))

"""`LLM`: a model in this process, for programs that have all their prompts at hand.

Knows vLLM's names. Does not know how requests are checked (`octavo.frontend.preprocess`), run
(`octavo.frontend.offline`) or computed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Self, TypeVar

from octavo.errors import EngineDeadError
from octavo.frontend.offline import Follower, OfflineRun
from octavo.frontend.output_processor import OutputProcessor
from octavo.frontend.preprocess import Call
from octavo.frontend.progress import ProgressLine
from octavo.frontend.prompts import Prompt, is_single_prompt
from octavo.llm_beams import BeamMethods
from octavo.llm_pooling import PoolingMethods, naming, one_each
from octavo.local_model import open_model, resolve_settings
from octavo.lora import adapters_of_each
from octavo.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from octavo.config.resolved import ResolvedConfig
    from octavo.engine.messages import EngineInfo, EngineStats
    from octavo.frontend.outputs import RequestOutput
    from octavo.frontend.preprocess import PreparedCall
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.lora import Adapters
    from octavo.sampling_params import SamplingParams

F = TypeVar("F", bound=Follower)


class LLM(BeamMethods, PoolingMethods):
    """A model, loaded. A context manager; methods may be called from any thread, one at a time.

        llm = LLM(model="smollm2")
        outputs = llm.generate(["The sea is"], SamplingParams(temperature=0.7, top_p=0.95))
        print(outputs[0].outputs[0].text)

    `settings` are the names of the config (`max_num_seqs`, `block_size`, `seed`, ...) and any kind
    of component: by name (`scheduler="priority"`), by class (`scheduler=MyPolicy`), or with
    options (`scheduler={"use": "priority", "ageing-s": 5}`).

    Steps are not bounded in time here (`max_step_ms`), as nobody waits for single tokens.

    Raises ConfigError for a setting that nothing declares, with the nearest name; PluginError
    when components do not fit; ModelError and CapacityError when the model cannot be loaded.
    """

    def __init__(self, model: str, *, tokenizer: str | None = None, **settings: Any) -> None:
        named = {"model": model} if tokenizer is None else {"model": model, "tokenizer": tokenizer}
        # None: nobody reads these streams token by token, and large steps are faster as a whole
        self._start(resolve_settings({**named, **settings}, {"max_step_ms": None}))

    @classmethod
    def from_config(cls, config: ResolvedConfig) -> Self:
        """Return an LLM for a config that is resolved already."""
        llm = cls.__new__(cls)
        llm._start(config)  # noqa: SLF001 - what __init__ does, without resolving
        return llm

    def _start(self, config: ResolvedConfig) -> None:
        self._model = open_model(config)
        self._lock = threading.Lock()
        self._call_numbers = count()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the model."""
        self.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: Adapters | list[Adapters] = None,
        priority: Sequence[int] | int | None = None,
    ) -> list[RequestOutput]:
        """Continue each prompt, and return the outputs in the order of the prompts.

        A prompt is a text, a list of token ids, or a dict with `prompt` or `prompt_token_ids` (and
        `cache_salt`). One `SamplingParams` serves all prompts, a list has one for each; None takes
        the model's own defaults. `use_tqdm` shows a line of progress where somebody watches.

        `lora_request` is an adapter for all prompts, or a list with one for each; a tuple of them
        is a blend, whose changes add up, each times its `scale`.

        Raises RequestError, a ValueError that names the index of a bad prompt, before anything
        runs. A prompt that fails while it runs has `finish_reason` "error" and says why in
        `outputs[i].outputs[0].error`; the others are good. Ctrl-C raises KeyboardInterrupt, and
        the LLM stays usable.
        """
        is_one = is_single_prompt(prompts) or not hasattr(prompts, "__len__")
        many: Sequence[Any] = [prompts] if is_one else prompts  # type: ignore[assignment]
        return self._run(
            many, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request, priority=priority
        )

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        lora_request: Adapters | list[Adapters] = None,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation, or each of a list of them.

        `template_options` are those of `octavo.frontend.chat.ChatRenderer.render`
        (`add_generation_prompt`, `continue_final_message`, `tools`, ...), with vLLM's names
        `chat_template` (a file or the text itself) and `chat_template_kwargs` as well. Else as
        `generate`.
        """
        is_one = not messages or isinstance(messages[0], Mapping)
        conversations: Sequence[Any] = [messages] if is_one else messages
        renderer = self._model.chat
        if (template := template_options.pop("chat_template", None)) is not None:
            renderer = renderer.with_template(template)
        if (names := template_options.pop("chat_template_kwargs", None)) is not None:
            template_options["template_kwargs"] = names
        prompts = []
        for i, conversation in enumerate(conversations):
            with naming(f"conversation {i}"):
                prompts.append(renderer.render(conversation, **template_options))
        return self._run(
            prompts,
            sampling_params,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
            rendered_by=template_options,
        )

    @property
    def engine_info(self) -> EngineInfo:
        """Return the engine's limits: vocabulary, context, capacity."""
        return self._model.engine.info

    def get_tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self._model.tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """Return what the model's files advise, as `generate` uses without parameters."""
        return self._model.preprocessor.default_sampling_params()

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes. Returns whether all of them could be forgotten."""
        with self._lock:
            return self._model.engine.reset_prefix_cache()

    def get_metrics(self) -> EngineStats:
        """Return a snapshot of the engine's counters and gauges."""
        return self._model.engine.stats()

    def close(self) -> None:
        """Release the model and its memory; twice is fine."""
        with self._lock:
            self._is_closed = True
            self._model.engine.close()

    def _run(
        self,
        prompts: Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        use_tqdm: bool,
        lora_request: Adapters | list[Adapters],
        priority: Sequence[int] | int | None = None,
        rendered_by: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Run prompts; those of conversations say by which options they were rendered."""
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        params = one_each("sampling_params", sampling_params, len(prompts))
        priorities = one_each("priority", priority or 0, len(prompts))
        if any(priorities):
            self._model.warn_of_priority()
        adapters = adapters_of_each(lora_request, len(prompts))
        calls = [
            Call(
                request_id=self._next_id(),
                prompt=prompt,
                params=params[i],
                arrival_s=time.monotonic(),
                priority=priorities[i],
                lora_request=adapters[i],
                add_special_tokens=rendered_by is None,
                reasoning=self._model.reasoning_marks(
                    prompt,
                    params[i],
                    (rendered_by or {}).get("template_kwargs"),
                    is_chat=rendered_by is not None,
                ),
            )
            for i, prompt in enumerate(prompts)
        ]
        return self._run_calls(calls, use_tqdm=use_tqdm)

    def _next_id(self) -> str:
        return str(next(self._call_numbers))

    def _run_calls(self, asked: Sequence[Call], *, use_tqdm: bool) -> list[RequestOutput]:
        tokenizer, kind = self._model.tokenizer, RequestOutputKind.FINAL_ONLY
        followers = self._follow(
            asked, lambda call: OutputProcessor(call, tokenizer, kind=kind), use_tqdm=use_tqdm
        )
        outputs = [follower.take() for follower in followers]
        return [output for output in outputs if output is not None]

    def _follow(
        self, asked: Sequence[Call], follow: Callable[[PreparedCall], F], *, use_tqdm: bool
    ) -> list[F]:
        with self._lock:
            if self._is_closed:
                raise EngineDeadError("this LLM is closed", "make another one")
            calls: list[PreparedCall] = []
            for i, call in enumerate(asked):
                with naming(f"prompt {i}"):
                    checked = calls[-1].checked if calls else None
                    calls.append(self._model.preprocessor.prepare(call, checked))
            followers = [follow(call) for call in calls]
            run = OfflineRun(self._model.engine, followers)
            is_shown = None if use_tqdm else False
            with ProgressLine("Processed prompts", len(calls), is_shown=is_shown) as progress:
                run.run(progress)
        return followers

"""Texts of a request become vectors: what all routes that answer with vectors or scores share.

Knows the fields that these routes have in common, and how vectors are asked for. Does not know
any route's own shape.
"""

from __future__ import annotations

import base64
import time
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from octavo.errors import RequestError
from octavo.frontend.pooling import pooling_plan
from octavo.frontend.preprocess import Call
from octavo.frontend.vectors import vector_of
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import RequestOutputKind
from octavo.serving.generation import start_generation
from octavo.serving.streaming import until_disconnect
from octavo_plugins.dialects.shared.bodies import CommonBody, FieldRules
from octavo_plugins.dialects.shared.calls import renamed, with_salt
from octavo_plugins.dialects.shared.counting import TokenCounter
from octavo_plugins.dialects.shared.identity import Identities

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from litestar import Request
    from numpy.typing import NDArray

    from octavo.frontend.pooling import PoolingPlan
    from octavo.serving.context import ServingContext, Target
    from octavo.serving.generation import Generation
    from octavo_plugins.dialects.shared.identity import Identity

EncodingFormat: TypeAlias = Literal["float", "base64"]

#: texts of one request, at most, as OpenAI has it
MAX_TEXTS = 2048
#: fields that are known and refused, unless they hold one of the values that ask for nothing
_UNSUPPORTED: Mapping[str, tuple[Any, ...]] = MappingProxyType({
    "embed_dtype": ("float32",), "endianness": ("native", "little"), "truncation_side": ("left",),
    "padding": (False,), "softmax": (), "activation": (), "mm_processor_kwargs": ({},),
    "media_io_kwargs": ({},), "chat_template": (), "max_tokens_per_doc": (),
})  # fmt: skip


class PoolingBody(CommonBody, kw_only=True):
    """The fields that all routes of vectors share; null means not given."""

    rules: ClassVar[FieldRules] = FieldRules(_UNSUPPORTED)

    pooling: str | None = None
    dimensions: int | None = None
    use_activation: bool | None = None
    normalize: bool | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    request_id: str | None = None
    user: str | None = None
    session_id: str | None = None

    def params(self) -> PoolingParams:
        """Return what is asked of the vectors. Raises RequestError."""
        if self.stream:
            raise RequestError("vectors and scores are not streamed", param="stream")
        return PoolingParams(
            pooling=self.pooling,
            dimensions=self.dimensions,
            use_activation=self.use_activation,
            normalize=self.normalize,
            truncate_prompt_tokens=self.truncate_prompt_tokens,
            extra_args=self.vllm_xargs,
        )

    def metadata(self) -> dict[str, Any]:
        """Return what the request says of who asks: scheduling policies may read it."""
        given = {"user": self.user, "session_id": self.session_id}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Pooled:
    """The vectors of a request's texts, in their order."""

    identity: Identity
    vectors: list[NDArray[np.float32]]
    num_tokens: int
    num_cached_tokens: int

    def answer(self, data: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the answer of a list, as OpenAI and vLLM have it."""
        return {
            "id": self.identity.id,
            "object": "list",
            "created": self.identity.created,
            "model": self.identity.model,
            "data": data,
            "usage": self.usage(),
        }

    def usage(self) -> dict[str, Any]:
        """Return the tokens of all texts."""
        return {
            "prompt_tokens": self.num_tokens,
            "total_tokens": self.num_tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": {"cached_tokens": self.num_cached_tokens},
        }


class Pooler:
    """Makes vectors for one route. `prefix` begins the ids of its answers."""

    def __init__(self, context: ServingContext, prefix: str) -> None:
        self._context = context
        self._identities = Identities(prefix)

    async def target(self, body: PoolingBody) -> Target:
        """Return the model that a body names, once it can be asked. Raises as the context does."""
        return await self._context.target(body.model)

    async def pool(
        self,
        request: Request[Any, Any, Any],
        body: PoolingBody,
        target: Target,
        prompts: Sequence[Any],
        names: Mapping[str, str],
    ) -> Pooled:
        """Return the vectors of prompts. A client that leaves aborts them.

        `names` are those of `renamed`.
        """
        identity = self._identities.next(target.name, body.request_id)
        with renamed({"lora_request": "model", **names}):
            _refuse_empty(prompts)
            checks = target.model.preprocessor
            plan = pooling_plan(body.params(), checks.defaults.pooling, checks.info)
            calls = _calls(body, target, prompts, identity, plan)
            kind = RequestOutputKind.FINAL_ONLY
            generation = await start_generation(target.model, calls, kind)
            with closing(generation):
                async with until_disconnect(request.receive, generation.abandon):
                    return await _collect(generation, identity, plan)


def in_format(vector: NDArray[np.float32], encoding: EncodingFormat | None) -> list[float] | str:
    """Return a vector as numbers, or as base64 of little-endian float32."""
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers


def _refuse_empty(prompts: Sequence[Any]) -> None:
    for index, prompt in enumerate(prompts):
        if not len(prompt):
            raise RequestError(f"text {index} is empty: it has no vector", param="prompt")


def _calls(
    body: PoolingBody,
    target: Target,
    prompts: Sequence[Any],
    identity: Identity,
    plan: PoolingPlan,
) -> list[Call]:
    arrival_s = time.monotonic()
    return [
        Call(
            request_id=f"{identity.call_id}.{index}",
            prompt=with_salt(prompt, body),
            params=plan.sampling,
            arrival_s=arrival_s,
            priority=body.priority or 0,
            lora_request=target.adapters,
            add_special_tokens=body.add_special_tokens is not False,
            pooling=plan,
            metadata=body.metadata(),
        )
        for index, prompt in enumerate(prompts)
    ]


async def _collect(generation: Generation, identity: Identity, plan: PoolingPlan) -> Pooled:
    """Return the vectors when all are there, whatever the order they come in."""
    counter = TokenCounter(generation)
    vectors: dict[int, NDArray[np.float32]] = {}
    async for index, output in generation:
        counter.take(index, output)
        vectors[index] = vector_of(output, plan)
    in_order = [vectors[index] for index in range(len(generation.calls))]
    return Pooled(identity, in_order, counter.num_prompt_tokens, counter.num_cached_tokens)

"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them.

A path is taken below the server's `lora-root`, and nowhere else. Success is said in plain text.

Knows bodies and texts. Does not know how adapters are read or kept.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Response

from octavo.errors import RequestNotFoundError
from octavo.lora import LoraModule
from octavo_plugins.dialects.shared.bodies import decode_plain
from octavo_plugins.dialects.shared.calls import renamed

if TYPE_CHECKING:
    from litestar import Request

    from octavo.serving.adapters import ServedAdapters
    from octavo.serving.context import ServingContext


class LoadBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An adapter to be served as `lora_name`, from `lora_path` below the server's folder."""

    lora_name: str
    lora_path: str
    base_model_name: str | None = None
    load_inplace: bool | None = None


class UnloadBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An adapter to be served no more; `lora_int_id` is vLLM's, and says nothing here."""

    lora_name: str
    lora_int_id: int | None = None


class AdapterApi:
    """Loads and unloads adapters while the server runs."""

    def __init__(self, context: ServingContext) -> None:
        self._context = context

    async def load(self, request: Request[Any, Any, Any]) -> Response[str]:
        """Serve an adapter once the engine has read it; 400 for one that cannot be served."""
        body = decode_plain(await request.body(), LoadBody)
        adapters = self._adapters(body.base_model_name)
        path = await asyncio.to_thread(adapters.place, body.lora_path)
        root = str(adapters.check_may_change())
        module = LoraModule(body.lora_name, path, body.base_model_name, root)
        with renamed({"lora_request": "lora_path"}):
            await adapters.load(module, is_reload=bool(body.load_inplace))
        return _said(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def unload(self, request: Request[Any, Any, Any]) -> Response[str]:
        """Serve an adapter no more."""
        body = decode_plain(await request.body(), UnloadBody)
        adapters = self._adapters(None)
        adapters.check_may_change()
        adapters.unload(body.lora_name)
        return _said(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    def _adapters(self, model_name: str | None) -> ServedAdapters:
        """Return the adapters of the model of a name, or of the first."""
        models = self._context.models
        for model in models:
            if model_name is None or model_name in model.names:
                return model.adapters
        names = ", ".join(name for model in models for name in model.names)
        raise RequestNotFoundError(
            f"there is no model '{model_name:.80}' to adapt",
            f"served here: {names}",
            param="base_model_name",
        )


def _said(text: str) -> Response[str]:
    return Response(text, status_code=200, media_type="text/plain")

"""Adapters that clients may ask for by name, as if they were models.

Names belong to the server; what is in memory is the engine's business, and an engine that was
started again reads an adapter with the first request that brings it.

Knows names, paths and one engine. Does not know files of adapters or HTTP.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import AdapterError, RequestNotFoundError, did_you_mean
from octavo.lora import LoRARequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from octavo.interfaces.adapter import AdapterSpec
    from octavo.lora import LoraModule
    from octavo.serving.client import EngineClient

_MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """One adapter: its name, its folder, the model that it changes, and since when it is here.

    `root`: the folder that its files may not lie outside of, if there is one.
    """

    name: str
    path: str
    parent: str
    created_s: int
    root: str | None = None

    def request(self, scale: float = 1.0) -> LoRARequest:
        """Return what a call brings to be run with it. Raises RequestError for a bad scale."""
        return LoRARequest(self.name, 1, self.path, scale, root=self.root)


class ServedAdapters:
    """The adapters of one served model, by name.

    `root` is the folder below which clients may load adapters; None: they may load none.
    """

    def __init__(
        self, client: EngineClient, model_names: Sequence[str], root: str | None = None
    ) -> None:
        self._client = client
        self._model_names = tuple(model_names)
        self._root = None if root is None else Path(root).expanduser().resolve()
        self._adapters: dict[str, ServedAdapter] = {}

    def __iter__(self) -> Iterator[ServedAdapter]:
        return iter(tuple(self._adapters.values()))

    @property
    def names(self) -> list[str]:
        """Return the names there are."""
        return list(self._adapters)

    def get(self, name: str) -> ServedAdapter | None:
        """Return the adapter of a name, if there is one."""
        return self._adapters.get(name)

    def find(self, name: str, param: str = "lora_name") -> ServedAdapter:
        """Return the adapter of a name. Raises RequestNotFoundError with the names there are."""
        adapter = self._adapters.get(name)
        if adapter is None:
            raise RequestNotFoundError(
                f"there is no adapter '{name:.80}'",
                did_you_mean(name, self._adapters),
                f"served here: {', '.join(self._adapters) or 'none'}",
                param=param,
            )
        return adapter

    def check_may_change(self) -> Path:
        """Return the folder below which clients may load. Raises AdapterError when they may not."""
        if self._root is None:
            raise AdapterError(
                "adapters cannot be loaded or unloaded over HTTP here",
                "start the server with --lora-root FOLDER to allow it below that folder",
            )
        return self._root

    def place(self, path: str) -> str:
        """Return the folder that a client's path means: always below the root, links followed.

        Raises AdapterError for one that is not, or when clients may load nothing.
        """
        root = self.check_may_change()
        try:
            folder = (root / path).resolve()
        except (OSError, ValueError) as error:  # a loop of links; a name with a null character
            raise AdapterError(f"{path!r:.80} is no path", param="lora_path") from error
        if not folder.is_relative_to(root):
            raise AdapterError(
                "this path is outside of the folder that adapters are loaded from",
                "name one below it, relative or absolute",
                param="lora_path",
            )
        return str(folder)

    async def load(self, module: LoraModule, *, is_reload: bool = False) -> ServedAdapter:
        """Have the engine read an adapter, and serve it from then on.

        With `is_reload` it may take the place of one of the same name; requests that run go on
        with the old one. Raises AdapterError for a name that is taken, and for all that is wrong
        with the files; nothing has changed then.
        """
        self._check_name(module, is_reload=is_reload)
        adapter, spec = self._adapter(module)
        await self._client.prepare(spec)
        self._check_name(module, is_reload=is_reload)  # others may have come meanwhile
        before = self._adapters.get(module.name)
        self._adapters[module.name] = adapter
        if before is not None:
            self._discard(before)
        return adapter

    def declare(self, module: LoraModule) -> None:
        """Serve an adapter that the engine reads with the first request for it.

        Raises AdapterError for a name that is taken.
        """
        self._check_name(module, is_reload=False)
        self._adapters[module.name] = self._adapter(module)[0]

    def unload(self, name: str) -> None:
        """Serve an adapter no more; requests that run go on. Raises RequestNotFoundError."""
        adapter = self.find(name)
        del self._adapters[name]
        self._discard(adapter)

    def _adapter(self, module: LoraModule) -> tuple[ServedAdapter, AdapterSpec]:
        spec = LoRARequest(module.name, 1, module.path, root=module.root).use.spec
        parent = module.base_model_name or self._model_names[0]
        return ServedAdapter(module.name, spec.path, parent, int(time.time()), spec.root), spec

    def _check_name(self, module: LoraModule, *, is_reload: bool) -> None:
        name = module.name
        check_module(module, self._model_names)
        if name in self._adapters and not is_reload:
            raise AdapterError(
                f"the adapter '{name}' has been loaded already",
                "unload it first, or set load_inplace to replace it",
                param="lora_name",
            )

    def _discard(self, adapter: ServedAdapter) -> None:
        place = adapter.path, adapter.root
        if all((one.path, one.root) != place for one in self._adapters.values()):
            self._client.discard(adapter.request().use.spec)


def check_module(module: LoraModule, model_names: Sequence[str]) -> None:
    """Refuse a name that no adapter may have beside models of these names, and another's base.

    Raises AdapterError, or RequestNotFoundError for the base.
    """
    name, base = module.name, module.base_model_name
    if not name.isprintable() or not 0 < len(name) <= _MAX_NAME_CHARS:
        raise AdapterError(
            f"an adapter's name must be 1 to {_MAX_NAME_CHARS} printable characters",
            param="lora_name",
        )
    if name in model_names:
        raise AdapterError(f"'{name}' is the name of a model", param="lora_name")
    if base is not None and base not in model_names:
        raise RequestNotFoundError(
            f"there is no model '{base:.80}' to adapt",
            f"served here: {', '.join(model_names)}",
            param="base_model_name",
        )

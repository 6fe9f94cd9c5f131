"""The `lora` adapter format: low-rank adapters in the folders that PEFT writes.

    adapter_config.json           ranks, factors, and what kind of adapter it is
    adapter_model.safetensors     base_model.model.<module>.lora_A.weight [rank, in], lora_B ...

Both files are read as a whole before anything is looked at, so that what was checked, what was
hashed and what is used are the same bytes, whatever becomes of the files meanwhile.

Knows the files. Does not know which modules a model has, or of what shapes.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from octavo.adapter_faults import TensorFault, fault_lines
from octavo.errors import AdapterError, ModelLoadError
from octavo.interfaces.adapter import AdapterFormat, AdapterWeights, LowRank
from octavo_plugins.adapters.peft_config import CONFIG, PeftConfig, read_peft_config
from octavo_plugins.formats.regular_file import read_regular
from octavo_plugins.formats.safetensors_header import LoadedTensor, parse_safetensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    _Matrix: TypeAlias = NDArray[np.float32]

WEIGHTS: Final = "adapter_model.safetensors"
PICKLE: Final = "adapter_model.bin"
_PREFIX: Final = "base_model.model."
_FACTOR: Final = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])\.weight")
_DTYPES: Final = ("F32", "F16", "BF16")
_MATRIX: Final = 2
_MAX_CONFIG_BYTES: Final = 1 << 20
#: what a name holds that is no factor of a linear layer, and what it stands for
_OTHER_TENSORS: Final = (
    ("lora_embedding_", "adapters of embeddings are not supported"),
    ("lora_magnitude_vector", "DoRA is not supported"),
    (".bias", "biases are not supported"),
    ("lora_", "it is no factor of a linear layer"),
)
_WHOLE_WEIGHT: Final = "a whole weight (modules_to_save, or a larger vocabulary) is not supported"


class LoraFormat(AdapterFormat):
    """Reads PEFT folders."""

    def why_not(self, path: Path) -> list[str]:
        """Return why `path` is no folder with an adapter's config."""
        if not path.is_dir():
            return [f"'{path}' is no folder"]
        return [] if (path / CONFIG).exists() else [f"'{path}' has no {CONFIG}"]

    def check(self, path: Path) -> None:
        """Read the config, and see whether there are weights."""
        read_peft_config(path / CONFIG, _read(path / CONFIG, _MAX_CONFIG_BYTES))
        _weights_in(path)

    def read(self, path: Path) -> AdapterWeights:
        """Read and check a folder. Raises AdapterError with all that is wrong with it."""
        config_bytes = _read(path / CONFIG, _MAX_CONFIG_BYTES)
        config = read_peft_config(path / CONFIG, config_bytes)
        file = _weights_in(path)
        content = _read(file, _max_weights_bytes())
        try:
            tensors = parse_safetensors(file, content)
        except ModelLoadError as error:
            raise AdapterError(error.headline, *error.facts) from error
        digest = hashlib.sha256(config_bytes)
        digest.update(hashlib.sha256(content).digest())
        return AdapterWeights(digest.hexdigest(), _deltas(file, tensors, config))


def _weights_in(path: Path) -> Path:
    """Return the file with the weights. Raises AdapterError when there is none."""
    file = path / WEIGHTS
    if file.exists():
        return file
    if (path / PICKLE).exists():
        raise AdapterError(
            f"'{path}' holds its weights as a pickle, which can run code",
            f"file: {PICKLE}",
            f"save it as {WEIGHTS}: peft's save_pretrained does so by default",
        )
    raise AdapterError(f"'{path}' has no {WEIGHTS}")


def _max_weights_bytes() -> int:
    """Return how large a file may be: read, converted and packed it is in memory several times."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        return read_regular(path, max_bytes)
    except OSError as error:
        raise AdapterError(f"cannot read '{path}'", f"{error.strerror or error}") from error


def _deltas(
    file: Path, tensors: Mapping[str, LoadedTensor], config: PeftConfig
) -> dict[str, LowRank]:
    """Return the changes by the tensor that each changes. Raises AdapterError naming all faults."""
    factors: dict[str, dict[str, _Matrix]] = {}
    faults: list[TensorFault] = []
    for name, stored in sorted(tensors.items()):
        match = _FACTOR.fullmatch(name.removeprefix(_PREFIX))
        fault = _name_fault(name) if match is None else _tensor_fault(stored)
        if fault or match is None:
            faults.append(TensorFault(name, fault))
            continue
        values = _values(stored)
        if not np.isfinite(values).all():
            faults.append(TensorFault(name, "holds NaN or infinity"))
        factors.setdefault(match["module"], {})[match["side"]] = values
    for module, sides in factors.items():
        text = _pair_fault(sides, config.rank_of(module))
        if text:
            faults.append(TensorFault(module, text))
    if faults or not tensors:
        lines = fault_lines(faults) if tensors else ["it holds no tensors"]
        raise AdapterError(f"this adapter cannot be served ('{file}')", *lines)
    return {
        f"{module}.weight": LowRank(sides["A"], sides["B"], config.factor_of(module))
        for module, sides in factors.items()
    }


def _name_fault(name: str) -> str:
    return next((reason for part, reason in _OTHER_TENSORS if part in name), _WHOLE_WEIGHT)


def _tensor_fault(stored: LoadedTensor) -> str:
    if stored.dtype not in _DTYPES:
        return f"is of type {stored.dtype}; supported are {', '.join(_DTYPES)}"
    if len(stored.shape) != _MATRIX or 0 in stored.shape:
        return f"is {list(stored.shape)}, not a matrix"
    return ""


def _values(stored: LoadedTensor) -> _Matrix:
    """Return a matrix of its own memory, as float32."""
    if stored.dtype == "BF16":  # the upper half of a float32
        halves = np.frombuffer(stored.data, dtype="<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(stored.shape)
    data = np.frombuffer(stored.data, dtype="<f4" if stored.dtype == "F32" else "<f2")
    return data.astype(np.float32).reshape(stored.shape)


def _pair_fault(sides: Mapping[str, _Matrix], given_rank: int) -> str:
    missing = [side for side in "AB" if side not in sides]
    if missing:
        return f"lora_{missing[0]} is missing"
    rank, rank_of_b = sides["A"].shape[0], sides["B"].shape[1]
    if rank != rank_of_b:
        return f"lora_A has rank {rank}, and lora_B has {rank_of_b}"
    if rank != given_rank:
        return f"is of rank {rank}; {CONFIG} says {given_rank}"
    return ""

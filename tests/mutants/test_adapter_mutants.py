"""Adapter formats that are wrong on purpose."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from adapter_samples import peft_adapters
from mutants import assert_killed, counter_examples, name_of
from octavo.errors import AdapterError
from octavo.interfaces.adapter import AdapterWeights
from octavo_plugins.adapters import lora as stock
from octavo_plugins.adapters.lora import LoraFormat
from octavo_plugins.adapters.peft_config import CONFIG, PeftConfig


class _Changed(LoraFormat):
    """Changes what was read: `change(name, delta)` returns the delta that is told."""

    def read(self, path):
        read = super().read(path)
        return replace(
            read, deltas={name: self.change(name, one) for name, one in read.deltas.items()}
        )


class IgnoresBiases(LoraFormat):
    """Serves what it can of an adapter, and is silent about the rest."""

    def read(self, path):
        try:
            return super().read(path)
        except AdapterError as error:
            if "bias" not in str(error):
                raise
            return AdapterWeights("biased")


class Mapped(_Changed):
    """Leaves factors in the file until they are needed."""

    def read(self, path):
        self.file = path / stock.WEIGHTS
        return super().read(path)

    def change(self, name, delta):
        data = np.memmap(self.file, dtype=np.uint8, mode="r")
        size = min(len(data) // 4, delta.a.size) * 4
        a = data[-size:].view(np.uint8)
        return replace(delta, a=np.ndarray(delta.a.shape, np.float32, buffer=a))


class OneAtATime(LoraFormat):
    """Keeps the folder at hand that it reads."""

    def read(self, path):
        if getattr(self, "path", None):
            raise AdapterError("busy", str(path))
        self.path = path
        return super().read(path)


class TakesPickles(LoraFormat):
    def read(self, path):
        for file in path.glob("*.bin"):
            pickle.loads(file.read_bytes())  # noqa: S301 - that is its fault
        return super().read(path)


class TakesAnyConfig(LoraFormat):
    """Reads a config as whatever it is."""

    def read(self, path):
        config = path / CONFIG
        if config.exists() and config.read_bytes().endswith(b"R."):
            pickle.loads(config.read_bytes())  # noqa: S301 - that is its fault
        return super().read(path)


class OneFactor(_Changed):
    """Knows one rank and one alpha."""

    def change(self, name, delta):
        return replace(delta, factor=2.0)


class OtherSide(_Changed):
    def change(self, name, delta):
        return replace(delta, a=delta.a[::-1].copy())


class Doubles(_Changed):
    def change(self, name, delta):
        return replace(delta, a=delta.a.astype(np.float64))


class ModulesForTensors(LoraFormat):
    """Names modules, where tensors are changed."""

    def read(self, path):
        read = super().read(path)
        deltas = {name.removesuffix(".weight"): one for name, one in read.deltas.items()}
        return replace(read, deltas=deltas)


class SeesOneEverywhere(LoraFormat):
    def why_not(self, path):
        return []


class SaysNoMore(LoraFormat):
    """Tells that something is wrong, not what."""

    def read(self, path):
        try:
            return super().read(path)
        except AdapterError:
            raise AdapterError("this adapter cannot be read") from None


class RaisesAnything(LoraFormat):
    def read(self, path):
        (path / CONFIG).read_text()
        return super().read(path)


class StricterAtFirst(LoraFormat):
    """Refuses at once what it would read."""

    def check(self, path):
        super().check(path)
        if "halves" in path.name:
            raise AdapterError("halves are not to be trusted", str(path))


class HashesNames(LoraFormat):
    def read(self, path):
        read = super().read(path)
        return replace(read, digest=str(sorted(read.deltas)))


class HashesTheMoment(LoraFormat):
    def read(self, path):
        read = super().read(path)
        return replace(read, digest=str(id(read)) + read.digest)


MUTANTS = [
    (IgnoresBiases, "R1"),
    (OneAtATime, "R2"),
    (TakesPickles, "R4"),
    (TakesAnyConfig, "R4"),
    (OneFactor, "R5"),
    (OtherSide, "R5"),
    (Doubles, "R5"),
    (ModulesForTensors, "R5"),
    (SeesOneEverywhere, "R6"),
    (SaysNoMore, "R6"),
    (RaisesAnything, "R6"),
    (StricterAtFirst, "R6"),
    (HashesNames, "R7"),
    (HashesTheMoment, "R7"),
    (Mapped, "R2"),
]


@pytest.mark.parametrize(("mutant", "number"), MUTANTS, ids=name_of)
def test_a_wrong_format_is_killed(mutant, number):
    assert_killed("adapter", mutant, number, sample=peft_adapters)


def test_patterns_that_are_not_heeded_are_noticed(monkeypatch):
    monkeypatch.setattr(PeftConfig, "factor_of", lambda self, module: self.alpha / self.rank)

    assert counter_examples("adapter", LoraFormat, "R5", sample=peft_adapters)


HEAVY = "import torch\n\nfrom octavo_plugins.adapters.lora import LoraFormat\n"


def test_a_heavy_format_is_killed(tmp_path):
    (tmp_path / "heavy.py").write_text(f"{HEAVY}\n\nclass Heavy(LoraFormat):\n    pass\n")

    found = counter_examples("adapter", f"{tmp_path}/heavy.py:Heavy", "R3")
    assert found["its_target_is_light"].endswith("heavy.py:Heavy imports torch")

"""Tokenizers, weight formats, sources and platforms that are wrong on purpose."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from format_samples import gguf_model, gguf_vocabulary, local_references, model_folder
from mutants import assert_killed, name_of
from octavo.errors import ModelLoadError
from octavo_plugins.platforms.cpu import CpuPlatform
from octavo_plugins.sources.local import LocalSource
from octavo_plugins.tokenizers.gguf import GgufTokenizer
from octavo_plugins.tokenizers.hf import HfTokenizer
from octavo_plugins.weights.gguf_format import GgufFormat
from octavo_plugins.weights.safetensors_format import SafetensorsFormat


class _Wrapped:
    """Stands before a tokenizer; subclasses say what is wrong."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)


def of(wrapper):
    """Return a format whose tokenizers are wrapped."""

    class Format(HfTokenizer):
        def load(self, path):
            return wrapper(super().load(path))

    Format.__name__ = wrapper.__name__
    return Format


class SpacesBetween(_Wrapped):
    def decode(self, ids, skip_special_tokens=True):
        return " ".join(self.tokenizer.decode([one], skip_special_tokens) for one in ids)


class SplitsMarkers(_Wrapped):
    def encode(self, text, add_special_tokens=True):
        return self.tokenizer.encode(text.replace("<s>", "< s>"), add_special_tokens)


class StrictText(_Wrapped):
    def encode(self, text, add_special_tokens=True):
        return self.tokenizer.encode(text.encode().decode(), add_special_tokens)


class EndsOutside(_Wrapped):
    @property
    def eos_token_ids(self):
        return frozenset({self.tokenizer.vocab_size})


class Lowers(_Wrapped):
    def encode(self, text, add_special_tokens=True):
        return self.tokenizer.encode(text.lower(), add_special_tokens)


class OneKindOfLines(_Wrapped):
    def encode(self, text, add_special_tokens=True):
        return self.tokenizer.encode(text.replace("\r\n", "\n"), add_special_tokens)


class LosesTheLastSpace(_Wrapped):
    def encode(self, text, add_special_tokens=True):
        return self.tokenizer.encode(text.rstrip("\u00a0"), add_special_tokens)


class LosesPlane16(_Wrapped):
    """Has no such byte, where all else is as it should be."""

    def token_bytes(self, token_id):
        return self.tokenizer.token_bytes(token_id).replace(b"\xf4", b"")

    def decode(self, ids, skip_special_tokens=True):
        left = set(self.special_ids) if skip_special_tokens else set()
        return b"".join(self.token_bytes(one) for one in ids if one not in left).decode(
            "utf-8", "replace"
        )


class WholeCharacters(_Wrapped):
    """Reads each token's bytes as text of its own."""

    def token_bytes(self, token_id):
        return self.tokenizer.token_bytes(token_id).decode("utf-8", "replace").encode()


class OneSpelling(_Wrapped):
    def id_to_token(self, token_id):
        return self.tokenizer.id_to_token(max(token_id, 40))


class LoadsAnything(GgufTokenizer):
    def load(self, path):
        return super().load(path) if path.exists() else super().load(gguf_vocabulary())


class _WrappedCheckpoint(_Wrapped):
    pass


class DropsRope(GgufFormat):
    def open(self, path):
        checkpoint = super().open(path)
        config = {k: v for k, v in checkpoint.config.items() if k != "rope_parameters"}
        object.__setattr__(checkpoint.description, "config", config)
        return checkpoint


class NamesTwice(GgufFormat):
    def open(self, path):
        checkpoint = super().open(path)
        names = checkpoint.names()
        checkpoint.names = lambda: [*names, names[0]]
        return checkpoint


class ReadsEveryFile(SafetensorsFormat):
    """Takes whatever lies in the folder for a part of the checkpoint."""

    def open(self, path):
        checkpoint = super().open(path)
        names, number = checkpoint.names(), len(list(Path(path).iterdir()))
        checkpoint.names = lambda: names[:number] if number > 5 else names
        return checkpoint


class OpensWhatIsCut(SafetensorsFormat):
    def open(self, path):
        try:
            return super().open(path)
        except ModelLoadError:
            return super().open(model_folder())


class TakesBlocksAlong(GgufFormat):
    """Gives blocks that are gone when the checkpoint closes."""

    def open(self, path):
        checkpoint = super().open(path)
        blocks_of, close, given = checkpoint.blocks, checkpoint.close, []

        def blocks(name):
            one = blocks_of(name)
            object.__setattr__(one, "data", np.array(one.data))
            given.append(one.data)
            return one

        def close_and_clear():
            for data in given:
                data.fill(0)
            close()

        checkpoint.blocks, checkpoint.close = blocks, close_and_clear
        return checkpoint


class NeverRefuses(GgufFormat):
    def why_not(self, path):
        return []


class AsksTheNetwork(LocalSource):
    def claims(self, reference):
        try:
            socket.getaddrinfo("localhost", 80)
        except OSError:
            return super().claims(reference)
        return super().claims(reference)


class GivesWhatIsNotThere(LocalSource):
    def resolve(self, reference, **others):
        return Path(reference)


class OneEach(LocalSource):
    """Leads every caller to a place of its own."""

    count = 0

    def resolve(self, reference, **others):
        path = super().resolve(reference, **others)
        OneEach.count += 1
        return path / ("." * 0) if OneEach.count % 2 else path.parent


class SetsThreads(CpuPlatform):
    def num_threads(self):
        os.environ["OMP_NUM_THREADS_OF_A_TEST"] = str(super().num_threads())
        return super().num_threads()

    def describe(self):
        facts = super().describe()
        os.environ.pop("OMP_NUM_THREADS_OF_A_TEST", None)
        os.environ["SEEN_BY_A_TEST"] = "1"
        return facts


class NoThreads(CpuPlatform):
    def num_threads(self):
        return 0


class NumbersForFacts(CpuPlatform):
    def describe(self):
        return {**super().describe(), "cores": 4}


MUTANTS = [
    ("tokenizer", of(SpacesBetween), "K1", model_folder),
    ("tokenizer", of(SplitsMarkers), "K2", model_folder),
    ("tokenizer", of(StrictText), "K3", model_folder),
    ("tokenizer", of(EndsOutside), "K4", model_folder),
    ("tokenizer", of(Lowers), "K5", model_folder),
    ("tokenizer", of(OneKindOfLines), "K5", model_folder),
    ("tokenizer", of(LosesTheLastSpace), "K5", model_folder),
    ("tokenizer", of(LosesPlane16), "K5", model_folder),
    ("tokenizer", of(WholeCharacters), "K6", model_folder),
    ("tokenizer", of(OneSpelling), "K7", model_folder),
    ("tokenizer", LoadsAnything, "K8", gguf_vocabulary),
    ("weights", DropsRope, "W1", gguf_model),
    ("weights", NamesTwice, "W2", gguf_model),
    ("weights", ReadsEveryFile, "W3", model_folder),
    ("weights", OpensWhatIsCut, "W4", model_folder),
    ("weights", TakesBlocksAlong, "W5", gguf_model),
    ("weights", NeverRefuses, "W6", gguf_model),
    ("source", AsksTheNetwork, "F1", local_references),
    ("source", GivesWhatIsNotThere, "F2", local_references),
    ("source", OneEach, "F3", local_references),
    ("platform", SetsThreads, "L1", None),
    ("platform", NoThreads, "L2", None),
    ("platform", NumbersForFacts, "L3", None),
]


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    monkeypatch.delenv("SEEN_BY_A_TEST", raising=False)
    yield
    os.environ.pop("SEEN_BY_A_TEST", None)


@pytest.mark.parametrize(("kind", "mutant", "number", "sample"), MUTANTS, ids=name_of)
def test_a_wrong_format_is_killed(kind, mutant, number, sample):
    assert_killed(kind, mutant, number, sample=sample)

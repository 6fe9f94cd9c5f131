"""The `hub` source: which files are chosen, and what is said when there is no network."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from octavo.errors import ModelNotFoundError
from octavo_plugins.sources.hub import HubSource

if TYPE_CHECKING:
    from pathlib import Path

GGUF_REPO = [
    "README.md",
    "m-IQ4_XS.gguf",
    "m-Q4_K_M.gguf",
    "m-Q8_0-00001-of-00002.gguf",
    "m-Q8_0-00002-of-00002.gguf",
    "mmproj-Q4_K_M.gguf",
]


class FakeHub:
    """Answers as the hub would, and writes down what was fetched."""

    def __init__(self, names: list[str], folder: Path) -> None:
        self.names = names
        self.folder = folder
        self.fetched: list[str] = []
        self.patterns: list[str] = []

    def model_info(self, repo: str, *, revision: str | None, timeout: float) -> Any:
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.names])

    def hf_hub_download(self, repo: str, name: str, *, revision: str | None) -> str:
        self.fetched.append(name)
        return str(self.folder / name)

    def snapshot_download(
        self, repo: str, *, revision: str | None, allow_patterns: list[str]
    ) -> str:
        self.patterns = allow_patterns
        return str(self.folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(GGUF_REPO, tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: fake)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fake.hf_hub_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    return fake


def test_claims_org_slash_repo() -> None:
    source = HubSource()
    for reference in ("org/repo", "org/repo.v1", "org/repo:Q4_K_M", "Org-1/Repo_2:q8_0"):
        assert source.claims(reference), reference
    for reference in ("repo", "org/repo/more", "/org/repo", "org/repo:", "pypi:a/b", "a b/c"):
        assert not source.claims(reference), reference


@pytest.mark.parametrize("tag", ["Q4_K_M", "q4_k_m"])
def test_a_tag_picks_its_file(hub: FakeHub, tmp_path: Path, tag: str) -> None:
    assert HubSource().resolve(f"org/repo:{tag}") == tmp_path / "m-Q4_K_M.gguf"
    assert hub.fetched == ["m-Q4_K_M.gguf"]


def test_all_files_of_a_split_model_are_fetched(hub: FakeHub, tmp_path: Path) -> None:
    path = HubSource().resolve("org/repo:Q8_0")
    assert path == tmp_path / "m-Q8_0-00001-of-00002.gguf"
    assert hub.fetched == ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]


def test_without_a_tag_the_usual_one_is_taken(hub: FakeHub, tmp_path: Path) -> None:
    assert HubSource().resolve("org/repo") == tmp_path / "m-Q4_K_M.gguf"


def test_the_exact_tag_goes_before_one_that_ends_in_it(hub: FakeHub, tmp_path: Path) -> None:
    hub.names = ["m-UD-Q4_K_XL.gguf", "m-Q4_K_XL.gguf"]
    assert HubSource().resolve("org/repo:Q4_K_XL") == tmp_path / "m-Q4_K_XL.gguf"
    assert HubSource().resolve("org/repo:UD-Q4_K_XL") == tmp_path / "m-UD-Q4_K_XL.gguf"


def test_an_unknown_tag_gives_those_that_are_there(hub: FakeHub) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        HubSource().resolve("org/repo:Q4_K_S")
    assert str(caught.value) == (
        "'org/repo:Q4_K_S' means none of the 3 GGUF models there\n"
        "  did you mean 'Q4_K_M'?\n"
        "  write org/repo:TAG, where TAG is one of IQ4_XS, Q4_K_M, Q8_0"
    )


def test_a_folder_of_safetensors_is_fetched_without_other_formats(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.names = ["config.json", "model.safetensors", "pytorch_model.bin", "m-Q4_K_M.gguf"]
    assert HubSource().resolve("org/repo") == tmp_path
    assert "model.safetensors" in hub.patterns
    assert "*.json" in hub.patterns
    assert not any("bin" in pattern or "gguf" in pattern for pattern in hub.patterns)


def test_shards_are_fetched_with_their_index_and_without_strays(hub: FakeHub) -> None:
    hub.names = ["config.json", "model.safetensors.index.json", "model-00001-of-00001.safetensors"]
    HubSource().resolve("org/repo")
    assert hub.patterns[-2:] == ["model-*.safetensors", "model.safetensors.index.json"]


def test_a_repository_without_a_model_says_what_it_has(hub: FakeHub) -> None:
    hub.names = ["README.md", "pytorch_model.bin"]
    with pytest.raises(ModelNotFoundError) as caught:
        HubSource().resolve("org/repo")
    assert str(caught.value) == (
        "'org/repo' holds no model that can be read\n"
        "  there is no config.json with safetensors, and no GGUF file in it\n"
        "  it has README.md, pytorch_model.bin"
    )


@pytest.fixture
def offline_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real library, told that there is no network, with a cache of its own."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def fill(cache: Path, *names: str) -> Path:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repo = cache / "models--org--repo"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for name in names:
        (snapshot / name).touch()
    return snapshot


def test_without_a_network_the_cache_still_works(offline_cache: Path) -> None:
    snapshot = fill(offline_cache, "m-Q4_K_M.gguf", "m-Q8_0.gguf")
    assert HubSource().resolve("org/repo:q8_0") == snapshot / "m-Q8_0.gguf"


def test_without_a_network_a_cached_folder_still_works(offline_cache: Path) -> None:
    snapshot = fill(offline_cache, "config.json", "model.safetensors")
    assert HubSource().resolve("org/repo") == snapshot


def test_without_network_and_cache_the_error_is_quick_and_clear(offline_cache: Path) -> None:
    start_s = time.perf_counter()
    with pytest.raises(ModelNotFoundError) as caught:
        HubSource().resolve("org/repo", revision="v1")
    assert time.perf_counter() - start_s < 5
    lines = str(caught.value).splitlines()
    assert lines[0] == "cannot get 'org/repo' at revision 'v1' from the Hugging Face hub"
    assert lines[-2:] == [
        "  the hub cannot be reached, and its cache does not hold the model",
        "  there is no folder 'org/repo' here either",
    ]

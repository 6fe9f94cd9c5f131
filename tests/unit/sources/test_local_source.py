"""The `local` source: paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import ModelNotFoundError
from octavo_plugins.formats.model_files import gguf_models, has_tag, quantization_of
from octavo_plugins.sources.local import LocalSource


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_claims_what_looks_like_a_path_or_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(touch(tmp_path, "org/repo/config.json"))
    source = LocalSource()
    for reference in ("/no/such", "./x", "../x", "~/x", ".", "org/repo", "model.gguf", "a/b.GGUF"):
        assert source.claims(reference), reference
    for reference in ("org/other", "smollm2", "org/repo:Q4_K_M", "", "org/repo:x.gguf"):
        assert not source.claims(reference), reference


def test_a_folder_with_a_config_is_the_model(tmp_path: Path) -> None:
    touch(tmp_path, "config.json", "a.gguf", "b.gguf")
    assert LocalSource().resolve(str(tmp_path)) == tmp_path


def test_a_folder_with_one_gguf_model_means_it(tmp_path: Path) -> None:
    touch(tmp_path, "m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-f16.gguf")
    assert LocalSource().resolve(str(tmp_path)) == tmp_path / "m-00001-of-00002.gguf"


def test_any_file_of_a_split_model_means_the_first(tmp_path: Path) -> None:
    touch(tmp_path, "m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    second = str(tmp_path / "m-00002-of-00002.gguf")
    assert LocalSource().resolve(second) == tmp_path / "m-00001-of-00002.gguf"


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(touch(tmp_path, "m.gguf")))
    assert LocalSource().resolve("~/m.gguf") == tmp_path / "m.gguf"


def test_a_folder_with_several_models_asks_for_one(tmp_path: Path) -> None:
    touch(tmp_path, "a-Q4_0.gguf", "a-Q8_0.gguf")
    with pytest.raises(ModelNotFoundError) as caught:
        LocalSource().resolve(str(tmp_path))
    assert str(caught.value) == (
        f"folder '{tmp_path}' holds 2 GGUF models: name one\n  there are a-Q4_0.gguf, a-Q8_0.gguf"
    )


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="holds no model"):
        LocalSource().resolve(str(tmp_path))


def test_a_missing_path_gives_the_nearest(tmp_path: Path) -> None:
    touch(tmp_path, "SmolLM2.gguf")
    with pytest.raises(ModelNotFoundError) as caught:
        LocalSource().resolve(str(tmp_path / "SmolLM.gguf"))
    assert str(caught.value) == (
        f"there is no file or folder '{tmp_path / 'SmolLM.gguf'}'\n  did you mean 'SmolLM2.gguf'?"
    )


def test_a_missing_folder_is_named_too() -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        LocalSource().resolve("no/such/model.gguf")
    assert str(caught.value) == (
        "there is no file or folder 'no/such/model.gguf'\n"
        "  there is no folder 'no/such' either\n"
        f"  looked for '{Path.cwd() / 'no/such/model.gguf'}'"
    )


def test_files_are_grouped_into_models() -> None:
    names = ["b-Q4_0.gguf", "a-00002-of-00002.gguf", "a-00001-of-00002.gguf", "mmproj-a.gguf", "x"]
    assert gguf_models(names) == {
        "a": ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"],
        "b-Q4_0": ["b-Q4_0.gguf"],
    }


@pytest.mark.parametrize(
    ("model", "quantization"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M", "Q4_K_M"),
        ("model.q8_0", "q8_0"),
        ("Model-UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("Model-IQ4_XS", "IQ4_XS"),
        ("model-bf16", "bf16"),
        ("model-f16", "f16"),
        ("model", None),
    ],
)
def test_quantizations_are_read_from_names(model: str, quantization: str | None) -> None:
    assert quantization_of(model) == quantization


def test_tags_match_whole_parts_whatever_the_case() -> None:
    assert has_tag("m-Q4_K_M", "q4_k_m")
    assert has_tag("Q4_K_M/m", "Q4_K_M")
    assert not has_tag("m-Q4_K_M", "Q4_K")
    assert not has_tag("m-IQ4_K_M", "Q4_K_M")

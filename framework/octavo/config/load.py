"""Read settings from a file, from flags and from keywords, each into a layer, and merge layers.

A layer maps a path (`("engine", "max-num-seqs")`, `("scheduler", "use")`) to a value and to
where it was written. Files may have sections, as `octavo.toml` does, or flat keys that are the
flags' names, as vLLM's YAML files do, or both.

Knows formats and names. Does not validate values, and does not know which components exist.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.config.fields import HIDDEN, KIND_FLAGS, SECRETS, SETTINGS
from octavo.config.schema import SECTIONS
from octavo.config.speculative import read_speculative_config
from octavo.config.vllm import FOREIGN
from octavo.errors import ConfigError, ConfigFileError, UnknownOptionError, did_you_mean
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Written:
    """A value, and where it was written: `octavo.toml: [engine] seed`, `--seed` or `seed=`."""

    value: Any
    where: str


@dataclass(slots=True)
class Layer:
    """The settings of one source, and notes on what was accepted without effect."""

    values: dict[tuple[str, ...], Written] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put_flat(self, name: str, value: Any, where: str) -> None:
        """Add a setting by its flat name: a setting, a kind, `kind.option`, or one of vLLM's.

        Raises UnknownOptionError for what nothing declares, ConfigError for what is refused.
        """
        head, _, rest = name.replace("_", "-").partition(".")
        if rest and head in KINDS:
            self._put_option(head, rest, value, where)
        elif rest and head in SECTIONS:
            self._put_key(head, rest, value, where)
        elif head in SETTINGS and not rest:
            setting = SETTINGS[head]
            self._put((setting.section, setting.key), value, where)
        elif head in KIND_FLAGS and not rest:
            self._put_kind(head, value, where)
        elif head in FOREIGN and not rest:
            self._put_foreign(head, value, where)
        else:
            headline = f"unknown setting '{name}' ({where})"
            raise UnknownOptionError(headline, did_you_mean(head, flat_names()))

    def _put(self, path: tuple[str, ...], value: Any, where: str) -> None:
        """Add a setting. Raises ConfigError when it was given before with another value.

        One source may say a thing in several ways (`--proposer`, and `--speculative-config`), and
        nobody can tell which of two it means.
        """
        before = self.values.get(path)
        if before is not None and str(before.value) != str(value):  # flags are texts
            secret = path in SECRETS
            raise ConfigError(
                f"two values for {'.'.join(path).removesuffix('.use')}",
                *(
                    f"{one.where}: {HIDDEN if secret else repr(one.value)[:80]}"
                    for one in (before, Written(value, where))
                ),
                "give one of them",
            )
        self.values[path] = Written(value, where)

    def put_section(self, section: str, table: Mapping[str, Any], where: str) -> None:
        """Add the keys of one table: a section of the core, or a kind's choice and options."""
        for key, value in table.items():
            self._put_option(section, key, value, f"{where} {key}") if section in KINDS else (
                self._put_key(section, key, value, f"{where} {key}")
            )

    def _put_key(self, section: str, key: str, value: Any, where: str) -> None:
        name = key.replace("_", "-")
        known = [setting.key for setting in SETTINGS.values() if setting.section == section]
        if name not in known:
            headline = f"unknown setting '{key}' ({where})"
            facts = did_you_mean(name, known), f"settings of [{section}]: {', '.join(known)}"
            raise UnknownOptionError(headline, *facts)
        self._put((section, name), value, where)

    def _put_kind(self, kind: str, value: Any, where: str) -> None:
        """Add what Python may pass for a kind: a name, a class, or a table with `use`."""
        if isinstance(value, dict):
            self.put_section(kind, value, where)
        else:
            self._put((kind, "use"), value, where)

    def _put_option(self, kind: str, key: str, value: Any, where: str) -> None:
        """Add an option; of a set's component by `component.option` or as a table."""
        if key == "use" or KINDS[kind].mode == "one":
            self._put((kind, key.replace("_", "-")), value, where)
            return
        component, _, option = key.partition(".")
        if option:
            self._put((kind, component, option.replace("_", "-")), value, where)
        elif isinstance(value, dict):
            for option, one in value.items():
                path = (kind, component, option.replace("_", "-"))
                self._put(path, one, f"{where}.{option}")
        else:
            headline = f"unknown setting '{key}' ({where})"
            fact = f"[{kind}] has `use`, and one table of options for each component"
            raise UnknownOptionError(headline, did_you_mean(key, ["use"]), fact)

    def _put_foreign(self, name: str, value: Any, where: str) -> None:
        foreign = FOREIGN[name]
        if foreign.verdict == "renamed":
            self.put_flat(foreign.text, value, where)
        elif foreign.verdict == "read":
            self._put_speculative(value, where)
        elif foreign.verdict == "accepted":
            self.notes.append(f"{where} has no effect: {foreign.text}")
        elif value not in {False, None} and str(value) != foreign.harmless:
            headline = f"{where} is not supported"
            raise ConfigError(headline, foreign.text)

    def _put_speculative(self, value: Any, where: str) -> None:
        """Add vLLM's `speculative_config`; None is no speculation, as in vLLM."""
        if value is None:
            return
        settings = read_speculative_config(value, where)
        self.notes.extend(settings.notes)
        for key, (setting, origin) in settings.values.items():
            self._put_option("proposer", key, setting, f"{where} {origin}")


def flat_names() -> list[str]:
    """Return every name that a flag or a flat key may have."""
    return [*SETTINGS, *KIND_FLAGS, *FOREIGN]


def layer_of_file(path: str | Path) -> Layer:
    """Read a config file.

    Raises ConfigFileError when it cannot be read, UnknownOptionError for a key nobody knows.
    """
    layer = Layer()
    for key, value in _read(Path(path)).items():
        name = key.replace("_", "-")
        if isinstance(value, dict) and (name in SECTIONS or name in KINDS):
            layer.put_section(name, value, f"{path}: [{name}]")
        elif isinstance(value, dict) and name not in SETTINGS and name not in FOREIGN:
            sections = [*SECTIONS, *KINDS]
            headline = f"unknown section '{key}' ({path})"
            facts = did_you_mean(name, sections), f"sections: {', '.join(sections)}"
            raise UnknownOptionError(headline, *facts)
        else:
            layer.put_flat(name, value, f"{path}: {key}")
    return layer


def layer_of_flags(flags: Mapping[str, Any]) -> Layer:
    """Take settings by their flags' names, without the leading hyphens."""
    layer = Layer()
    for name, value in flags.items():
        layer.put_flat(name, value, f"--{name}")
    return layer


def layer_of_keywords(keywords: Mapping[str, Any]) -> Layer:
    """Take settings as keywords of `LLM`: flat names, with underscores."""
    layer = Layer()
    for name, value in keywords.items():
        layer.put_flat(name, value, f"{name}=")
    return layer


def merge(*layers: Layer) -> Layer:
    """Put later layers over earlier ones.

    A layer that chooses another component of a kind also drops what earlier layers said about
    the options of the one they chose.
    """
    merged = Layer()
    for layer in layers:
        for kind in KINDS:
            new = layer.values.get((kind, "use"))
            old = merged.values.get((kind, "use"))
            if KINDS[kind].mode == "one" and new and (old is None or old.value != new.value):
                for path in [path for path in merged.values if path[0] == kind]:
                    del merged.values[path]
        merged.values.update(layer.values)
        merged.notes.extend(layer.notes)
    return merged


def _read(path: Path) -> dict[str, Any]:
    suffix = path.suffix.lower()
    if suffix not in {".toml", ".yaml", ".yml", ".json"}:
        headline = f"cannot read config file '{path}'"
        raise ConfigFileError(headline, "its name must end in .toml, .yaml, .yml or .json")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        headline = f"cannot read config file '{path}'"
        raise ConfigFileError(headline, "there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        headline = f"cannot read config file '{path}'"
        raise ConfigFileError(headline, f"{type(error).__name__}: {error}") from error
    parsed = _parse(path, text, suffix)
    if not isinstance(parsed, dict):
        headline = f"config file '{path}' is not a table of settings"
        raise ConfigFileError(headline, f"it holds one {type(parsed).__name__}")
    return {str(key): value for key, value in parsed.items()}


def _parse(path: Path, text: str, suffix: str) -> Any:
    try:
        if suffix == ".toml":
            return tomllib.loads(text)
        if suffix == ".json":
            return json.loads(text)
    except ValueError as error:
        headline = f"config file '{path}' is not valid {suffix[1:].upper()}"
        raise ConfigFileError(headline, str(error)) from error
    try:
        import yaml  # noqa: PLC0415 - optional: only YAML files need it
    except ImportError as error:
        headline = f"cannot read config file '{path}'"
        fact = "YAML needs PyYAML: pip install pyyaml; or write the same as .toml or .json"
        raise ConfigFileError(headline, fact) from error
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        headline = f"config file '{path}' is not valid YAML"
        raise ConfigFileError(headline, _yaml_problem(error)) from error


def _yaml_problem(error: Any) -> str:
    """Say what is wrong and where, without the lines themselves: secrets may be among them."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return type(error).__name__
    return f"{error.problem} (at line {mark.line + 1}, column {mark.column + 1})"

"""Command-line flags, generated from the schema and the table of kinds.

A command adds what it needs with `add_config_arguments` and gets its config back with
`resolve_arguments`. Options of components (`--scheduler.ageing-s 5`) need no declaration: they
are checked when the component is known.

Knows argparse. Does not know commands.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from octavo.config.fields import KIND_FLAGS, SETTINGS
from octavo.config.resolve import Resolution, resolve_with_catalogue
from octavo.config.schema import SECTIONS
from octavo.config.vllm import FOREIGN
from octavo.errors import ConfigError, UnknownOptionError, did_you_mean
from octavo.plugin.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from octavo.config.fields import Setting
    from octavo.config.resolved import ResolvedConfig

_DEST = "config."
_DOTTED = "config_dotted"
_POSITIONAL = "config_models"
ALL_SECTIONS = tuple(SECTIONS)
#: `--name` or `--name=value`; a text that begins with hyphens and has spaces is a value
_FLAG = re.compile(r"--[A-Za-z][\w.-]*(=.*)?", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """argparse with our errors, with dotted flags, and with underscores read as hyphens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take argparse's arguments; abbreviations of flags are off."""
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError instead of printing the usage and leaving."""
        headline = f"{self.prog}: {message}"
        raise ConfigError(headline, f"see: {self.prog} --help")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse after taking the dotted flags out, and refuse flags that nobody declared.

        Raises UnknownOptionError, with the nearest flag.
        """
        plain, dotted = self._split(list(sys.argv[1:] if args is None else args))
        parsed, extras = super().parse_known_args(plain, namespace)
        setattr(parsed, _DOTTED, dotted)
        if extras:
            self.error(_unexpected(plain, extras[0]))
        return parsed, extras

    def _split(self, argv: list[str]) -> tuple[list[str], dict[str, str]]:
        """Take `--kind.option value` out; check the names of all other flags."""
        plain: list[str] = []
        dotted: dict[str, str] = {}
        rest = iter(argv)
        for word in rest:
            if word == "--":
                plain += [word, *rest]
                break
            if not _FLAG.fullmatch(word):
                plain.append(word)
                continue
            name, equals, value = word.partition("=")
            flag = name.replace("_", "-")
            head = flag[2:].partition(".")[0]
            if "." in flag and (head in KINDS or head in SECTIONS):
                text = value if equals else next(rest, None)
                if text is None or (not equals and _FLAG.fullmatch(text)):
                    self.error(f"argument {name}: expected a value, as in {name}=VALUE")
                dotted[name[2:]] = text
                continue
            self._check_flag(flag, name)
            plain.append(f"{flag}{equals}{value}")
        return plain, dotted

    def _check_flag(self, flag: str, as_written: str) -> None:
        known = self._option_string_actions
        if flag in known:
            return
        shown = [one for one, action in known.items() if action.help != argparse.SUPPRESS]
        headline = f"{self.prog}: unknown flag '{as_written}'"
        raise UnknownOptionError(
            headline,
            did_you_mean(flag, shown) or did_you_mean(flag, known),
            f"see: {self.prog} --help",
        )


def _unexpected(words: Sequence[str], extra: str) -> str:
    """Say that a word has no place, without showing it where it may be a secret."""
    before = [word for word in words[: words.index(extra)] if word.startswith("--")]
    flag = before[-1].partition("=")[0] if before else ""
    setting = SETTINGS.get(flag.removeprefix("--"))
    if setting is not None and setting.is_secret:
        return f"unexpected argument after {flag}, which takes one word and may be given again"
    return f"unexpected argument '{extra}'"


def add_config_arguments(
    parser: argparse.ArgumentParser,
    *,
    sections: Iterable[str] = ALL_SECTIONS,
    models: str | None = "?",
) -> None:
    """Add `--config`, the flags of the sections, one flag for each kind, and MODEL.

    `models` is argparse's nargs of the positional: "?" for one, "*" for any number, None to
    have no positional.
    """
    if models is not None:
        parser.add_argument(
            _POSITIONAL, nargs=models, metavar="MODEL", help=SETTINGS["model"].description
        )
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        dest=f"{_DEST}config",
        help="settings from a .toml, .yaml or .json file; flags win over it",
    )
    for section in sections:
        about = (SECTIONS[section].__doc__ or "").strip()
        group = parser.add_argument_group(section, about)
        for setting in SETTINGS.values():
            if setting.section == section:
                _add_setting(group, setting)
    group = parser.add_argument_group(
        "components", "options of a component: --KIND.OPTION VALUE, as `octavo plugins info` shows"
    )
    for kind in (KINDS[name] for name in KIND_FLAGS):
        metavar = "NAME" if kind.mode == "one" else "NAME[,NAME...]"
        text = f"{kind.decides} (default: {kind.default})"
        _add(group, kind.name, metavar=metavar, help=text)
    for name, foreign in FOREIGN.items():
        if foreign.verdict == "read":
            _add(group, name, help=foreign.text, metavar="JSON")
        elif foreign.is_switch:
            _add(group, name, help=argparse.SUPPRESS, action=argparse.BooleanOptionalAction)
        else:
            _add(group, name, help=argparse.SUPPRESS)


def given_models(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the models named as positionals or by `--model`, in order.

    Raises ConfigError when both forms are used and differ.
    """
    positional = getattr(args, _POSITIONAL, None) or []
    names = tuple([positional] if isinstance(positional, str) else positional)
    by_flag = getattr(args, f"{_DEST}model", None)
    if names and by_flag is not None and names != (by_flag,):
        headline = f"two models: '{' '.join(names)}' and --model '{by_flag}'"
        raise ConfigError(headline, "give the model once")
    return names or ((by_flag,) if by_flag is not None else ())


def flags_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings given on the command line, by flat or dotted name."""
    flags = {
        name.removeprefix(_DEST): value
        for name, value in vars(args).items()
        if name.startswith(_DEST) and name != f"{_DEST}config"
    }
    return {**flags, **getattr(args, _DOTTED, {})}


def resolve_arguments(
    args: argparse.Namespace, *, model: str | None = None, **overrides: Any
) -> ResolvedConfig:
    """Resolve the config of a parsed command line.

    `model` picks one of several models, else the one that was given is taken, else the one in
    the file. `overrides` are the command's own settings, by keyword. Raises ConfigError or
    PluginError. Notes are printed to stderr.
    """
    config = resolve_arguments_with_catalogue(args, model=model, **overrides).config
    for note in config.notes:
        print(f"note: {note}", file=sys.stderr)  # noqa: T201 - only commands call this
    return config


def resolve_arguments_with_catalogue(
    args: argparse.Namespace, *, model: str | None = None, **overrides: Any
) -> Resolution:
    """Do as `resolve_arguments`, return the catalogue as well, and print nothing."""
    flags = flags_of(args)
    models = (model,) if model is not None else given_models(args)
    if models:
        flags["model"] = models[0]
    file = getattr(args, f"{_DEST}config", None)
    return resolve_with_catalogue(file=file, flags=flags, overrides=overrides)


def _add_setting(group: argparse._ArgumentGroup, setting: Setting) -> None:
    text = setting.description
    if setting.default not in (None, (), False):
        text += f" (default: {setting.default})"
    if setting.shape == "switch":
        _add(group, setting.flag, help=text, action=argparse.BooleanOptionalAction)
    elif setting.takes_many:
        _add(group, setting.flag, help=text, action="extend", nargs="+", metavar="TEXT")
    elif setting.shape == "list":
        _add(group, setting.flag, help=text, action="append", metavar="TEXT")
    else:
        choices = f"{{{','.join(setting.choices)}}}" if setting.choices else "VALUE"
        _add(group, setting.flag, help=text, metavar=choices)


def _add(group: argparse._ArgumentGroup, name: str, *, help: str, **extra: Any) -> None:  # noqa: A002
    # values are validated by the schema, not by argparse: one set of messages for all sources
    group.add_argument(
        f"--{name}",
        dest=f"{_DEST}{name}",
        default=argparse.SUPPRESS,
        help=help if help == argparse.SUPPRESS else help.replace("%", "%%"),
        **extra,
    )

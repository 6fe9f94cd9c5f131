"""The base of every component's options, and the options of a component that has none.

Knows pydantic. Does not know any component, and is not imported by declarations.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


def kebab(name: str) -> str:
    """Return a field's name as it is written in files and flags: `max_num_seqs` is kebab-cased."""
    return name.replace("_", "-")


class ComponentOptions(BaseModel):
    """Base for options models: frozen, no unknown keys, kebab-case in files and flags.

    Give every field a `description`; `octavo plugins info` and the reference pages print it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=kebab, populate_by_name=True
    )


class NoOptions(ComponentOptions):
    """The options of a component that declares none."""

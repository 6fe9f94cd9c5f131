"""Options of the proposers that run beside the model. Imports nothing that they compute with.

Whoever reads a command line checks options against these models, the HTTP server's process too.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from octavo.plugin.options import ComponentOptions

#: the model that drafts are made for, whatever it is called
TARGET: Final = "target"


class DraftModelOptions(ComponentOptions):
    """Options of `draft-model`."""

    model: str = Field(
        TARGET, description="the draft model's name or path; 'target' is the model itself"
    )
    num_layers: int | None = Field(
        None, ge=1, description="use only so many layers of it, the first ones, and its head"
    )
    num_drafts: int = Field(5, ge=1, le=64, description="drafts of one request and step, at most")
    chunk_tokens: int = Field(
        256, ge=1, description="tokens of prompts that it reads in one step, at most"
    )

"""Options of the stock grammar back ends. Imports none of the libraries that they wrap."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from octavo.plugin.options import ComponentOptions

#: twelve levels by four spaces, or twenty-four by two
DEFAULT_INDENT: Final = 48


class TrialOptions(ComponentOptions):
    """How much work one grammar may be, and how JSON is spaced."""

    max_text_bytes: int = Field(1 << 20, ge=1, description="length of a grammar, at most")
    max_compile_s: float = Field(10.0, gt=0, description="seconds that compiling may take")
    max_compile_mb: int = Field(
        1024, ge=256, description="megabytes that the process may have that compiles on trial"
    )
    max_indent: int = Field(
        DEFAULT_INDENT,
        ge=0,
        le=1024,
        description="spaces, or tabs, that a line of JSON may begin with; a line that is nested "
        "more deeply begins with no more",
    )


class LLGuidanceOptions(TrialOptions):
    """Options of `llguidance`: how much work one grammar may be, and how JSON is spaced."""

    max_states: int = Field(
        50_000, ge=1, description="states that one grammar may grow while it is followed"
    )


class XGrammarOptions(TrialOptions):
    """Options of `xgrammar`: how much work one grammar may be, and how JSON is spaced."""

    max_token_ms: float = Field(
        2.0,
        gt=0,
        description="milliseconds of a core that a token may take on average, after a second",
    )

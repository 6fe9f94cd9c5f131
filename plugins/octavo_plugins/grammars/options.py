"""Options of the stock grammar back ends. Imports none of the libraries that they wrap."""

from __future__ import annotations

from pydantic import Field

from octavo.plugin.options import ComponentOptions


class LLGuidanceOptions(ComponentOptions):
    """Options of `llguidance`: how much work one grammar may be."""

    max_text_bytes: int = Field(1 << 20, ge=1, description="length of a grammar, at most")
    max_compile_s: float = Field(10.0, gt=0, description="seconds that compiling may take")
    max_compile_mb: int = Field(
        1024, ge=256, description="megabytes that the process may have that compiles on trial"
    )
    max_states: int = Field(
        50_000, ge=1, description="states that one grammar may grow while it is followed"
    )

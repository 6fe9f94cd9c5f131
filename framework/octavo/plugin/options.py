"""The bases of what is set for components: options for good, parameters for a single request.

Knows pydantic. Does not know any component, and is not imported by declarations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, cast

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from octavo.interfaces.tokenizer import Tokenizer
    from octavo.sampling_params import SamplingParams


def kebab(name: str) -> str:
    """Return a field's name as it is written in files and flags: `max_num_seqs` is kebab-cased."""
    return name.replace("_", "-")


#: where a field's schema says what to set in its place
INSTEAD: Final = "x-octavo-instead"


def deprecated(instead: str) -> dict[str, Any]:
    """Mark an option that will go: `Field(4, json_schema_extra=deprecated("use --speed"))`.

    Whoever sets it is told so, with the component's name and distribution.
    """
    return {"deprecated": True, INSTEAD: instead}


class ComponentOptions(BaseModel):
    """Base for options models: frozen, no unknown keys, kebab-case in files and flags.

    Give every field a `description`; `octavo plugins info` and the reference pages print it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=kebab, populate_by_name=True
    )


class NoOptions(ComponentOptions):
    """The options of a component that declares none."""


class RequestParams(BaseModel):
    """Base for the parameters that a component reads of a single request.

    A request gives them by name: among the fields of its body, in `vllm_xargs`, or in
    `SamplingParams.extra_args`. Every field has a default, which asks for nothing. Values are
    taken as they are: the text "0.5" is no number, and neither are NaN and infinity.

    The front end, which need not have torch, checks them; components find them in
    `extra_args`, and `read` gives them back with the defaults of what was left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, params: SamplingParams) -> Self:
        """Return what a request asks for. Nothing is checked again."""
        given = params.extra_args or {}
        known = {name: given[name] for name in cls.model_fields if name in given}
        return cast("Self", cls.model_construct(**known))  # mypy's plugin forgets the subclass

    def to_extra_args(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return what goes into `extra_args`: what was given, as JSON could hold it.

        A model whose component has no tokenizer may add here what it needs of this one.
        """
        del tokenizer
        return self.model_dump(exclude_unset=True)

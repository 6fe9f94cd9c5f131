"""The Jinja environment in which other people's templates run.

Jinja's sandbox keeps a template from what is none of its business. This one also bounds what it
makes: a few characters of template could otherwise ask for a text of gigabytes, or for a loop of
hours. What is too large is refused before it is made.

Knows Jinja. Does not know chats, or what is rendered.
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox
import jinja2.utils
import jinja2.visitor

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from jinja2.parser import Parser
    from jinja2.runtime import Context

#: characters of a text, or items of a list, that an operation may make
MAX_SIZE: Final = 10_000_000
#: bits of a number
_MAX_BITS: Final = 10_000
#: items of all ranges that one rendering may ask for
_MAX_RANGES: Final = 1_000_000
#: filters and globals that take a number of characters, items or copies
_COUNTING_FILTERS: Final = ("batch", "center", "indent", "slice", "tojson", "wordwrap")
_LARGE_FIELD: Final = re.compile(r"\d{6}|%[^a-zA-Z%]*\*")


class RefusedError(jinja2.TemplateError):
    """A template called `raise_exception`."""


class TooLargeError(jinja2.TemplateError):
    """A template asked for more than any chat needs."""


class RangeBudget:
    """The `range` of one rendering: all ranges together are bounded, nested ones too."""

    def __init__(self) -> None:
        self._left = _MAX_RANGES

    def __call__(self, *args: int) -> range:
        """Return a range. Raises TooLargeError."""
        result = range(*args)
        length = max(0, -((result.start - result.stop) // result.step))  # len() fails beyond 2**63
        _refuse_above(length, self._left, "items of ranges")
        self._left -= length
        return result


class TemplateSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Jinja as transformers sets it up for chat templates, with bounds. `now` is the clock."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _GenerationTag],
        )
        self.filters["tojson"] = _to_json
        for name in _COUNTING_FILTERS:
            self.filters[name] = _counting(self.filters[name])
        self.filters["format"] = _formatting(self.filters["format"])
        self.globals["lipsum"] = _counting(jinja2.utils.generate_lorem_ipsum)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda form: now().strftime(form)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return what an operator makes. Raises TooLargeError."""
        if operator == "%" and isinstance(left, str):
            _refuse_large_fields(left)
        elif operator == "+":
            _refuse_above(_size(left) + _size(right), MAX_SIZE, "characters or items")
        elif isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else (
                left.bit_length() + right.bit_length()
            )  # fmt: skip
            _refuse_above(bits, _MAX_BITS, "bits of a number")
        elif operator == "*":
            copies = [one for one in (left, right) if isinstance(one, int)]
            size = (_size(left) + _size(right)) * max(copies, default=0)
            _refuse_above(size, MAX_SIZE, "characters or items")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - named so that keywords cannot clash
        """Call what a template calls. Raises TooLargeError for methods of texts."""
        text = getattr(__obj, "__self__", None)
        if isinstance(text, str):
            _refuse_counts((*args, *kwargs.values()))
            if __obj.__name__ == "replace" and len(args) > 1 and isinstance(args[0], str):
                size = (text.count(args[0]) + 1) * _size(args[1])
                _refuse_above(size, MAX_SIZE, "characters")
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Wrap `str.format` as the sandbox does, after a look at the widths of its fields."""
        wrapped = super().wrap_str_format(value)
        return None if wrapped is None else _formatting_method(value.__self__, wrapped)

    def join_texts(self, *parts: Any) -> str:
        """Return what `~` makes. Raises TooLargeError."""
        texts = [str(part) for part in parts]
        _refuse_above(sum(map(len, texts)), MAX_SIZE, "characters")
        return "".join(texts)

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree: jinja2.nodes.Template = super()._parse(source, name, filename)
        _BoundedJoins().visit(tree)
        return tree


class _BoundedJoins(jinja2.visitor.NodeTransformer):
    """Puts `TemplateSandbox.join_texts` in the place of `~`, which Jinja lets nobody intercept."""

    def visit_Concat(self, node: jinja2.nodes.Concat) -> jinja2.nodes.Call:  # noqa: N802 - Jinja's
        self.generic_visit(node)
        function = jinja2.nodes.EnvironmentAttribute("join_texts")
        call = jinja2.nodes.Call(function, node.nodes, [], None, None, lineno=node.lineno)
        if node.environment is not None:
            call.set_environment(node.environment)
        return call


class _GenerationTag(jinja2.ext.Extension):
    """Accepts `{% generation %}...{% endgeneration %}`, and prints what is inside.

    transformers marks with it what the assistant said, for training.
    """

    tags = {"generation"}  # noqa: RUF012 - a set by Jinja's own declaration

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        """Return the statements inside the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple) else 0


def _refuse_above(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise TooLargeError(f"the template asks for more than {limit} {what}")


def _refuse_counts(values: tuple[Any, ...]) -> None:
    for value in values:
        if isinstance(value, int):
            _refuse_above(value, MAX_SIZE // 100, "characters, items or copies")


def _refuse_large_fields(form: str) -> None:
    if _LARGE_FIELD.search(form):
        raise TooLargeError("the template asks for a field of unlimited width")


def _counting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is refused numbers that are too large."""

    @functools.wraps(function)  # Jinja's marks of what it is passed are kept too
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _refuse_counts((*args, *kwargs.values()))
        return function(*args, **kwargs)

    return bounded


def _formatting(function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def bounded(value: str, *args: Any, **kwargs: Any) -> str:
        _refuse_large_fields(str(value))
        return function(value, *args, **kwargs)

    return bounded


def _formatting_method(form: str, function: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> str:
        _refuse_large_fields(form)
        return function(*args, **kwargs)

    return bounded


def _raise_exception(message: str) -> NoReturn:
    raise RefusedError(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON as models were trained on it: Jinja's own filter escapes it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )

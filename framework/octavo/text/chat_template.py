"""Renders a conversation through a model's Jinja chat template, in a sandbox.

Templates come with models, so that they are other people's code: they run in a sandbox, with the
globals and filters that transformers gives them and no others.

Knows Jinja. Does not know tokenizers, HTTP, or what messages should look like.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import jinja2
import jinja2.meta
import jinja2.nodes

from octavo.errors import ModelLoadError, RequestError
from octavo.text.template_sandbox import (
    MAX_SIZE,
    RangeBudget,
    RefusedError,
    TemplateSandbox,
    TooLargeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Messages = Sequence[Mapping[str, Any]]


_FAILURE: Final = "the chat template fails on these messages"


class OversizedChatError(RequestError):
    """A template made more of the messages than any prompt may be."""


class ChatTemplate:
    """A compiled template. Thread-safe: rendering changes nothing.

    `source` is the Jinja text, `where` says in errors where it came from. `special_tokens` are
    the texts that templates use as `bos_token`, `eos_token` and so on. `now` is the clock behind
    `strftime_now`. Raises ModelLoadError if the template cannot be compiled.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        where: str = "the model's chat template",
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        environment = TemplateSandbox(now)
        try:
            self._tree = environment.parse(source)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelLoadError(
                f"{where} is no valid Jinja template",
                f"line {error.lineno}: {error.message}",
                "give another one with --chat-template FILE",
            ) from error

    @property
    def variables(self) -> frozenset[str]:
        """Return the names that the template takes from outside: `tools`, `enable_thinking`..."""
        return frozenset(jinja2.meta.find_undeclared_variables(self._tree))

    @property
    def takes_content_parts(self) -> bool:
        """Return whether the template loops over a message's content.

        If not, content that is a list of parts must be joined to one text before rendering.
        """
        loops = self._tree.find_all(jinja2.nodes.For)
        assigned = _names_for_content(self._tree)
        return any(_is_content(loop.iter, assigned) for loop in loops)

    def render(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of a conversation.

        `template_kwargs` are further variables (`enable_thinking`); they may replace special
        tokens but not the arguments above. Raises RequestError with the template's own words
        when it refuses the messages, or fails on them; OversizedChatError is one.
        """
        variables = {
            **self._special_tokens,
            **(template_kwargs or {}),
            "range": RangeBudget(),
            "messages": messages,
            "tools": tools or None,
            "documents": documents or None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._template.render(variables)
        except RefusedError as error:
            raise RequestError(
                f"the chat template refuses these messages: {error}", param="messages"
            ) from error
        except TooLargeError as error:
            num_chars = len(words_of(messages))
            is_long = num_chars > MAX_SIZE // 2
            raise OversizedChatError(
                f"the messages are too long: {num_chars} characters" if is_long else _FAILURE,
                f"{type(error).__name__}: {error}",
                param="messages",
            ) from error
        except Exception as error:  # whatever untrusted code raises on a client's data
            raise RequestError(
                _FAILURE,
                f"{type(error).__name__}: {error}",
                param="messages",
            ) from error

    def render_open(self, messages: Messages, **options: Any) -> str:
        """Return the text up to the end of the last message's content, for the model to continue.

        Takes the options of `render`. Raises RequestError if the content is not in the text.
        """
        text = self.render(messages, **options, add_generation_prompt=False)
        content = _last_text(messages)
        start = text.rfind(content.strip())
        if not content.strip() or start < 0:
            raise RequestError(
                "the last message cannot be continued: its content is not in the rendered text",
                "it must have text, and the chat template must print it",
                param="messages",
            )
        # a template may strip what follows the content, or keep it
        kept = content.lstrip()
        is_kept = text.startswith(kept, start)
        return text[: start + len(kept if is_kept else content.strip())]


def words_of(messages: Messages) -> str:
    """Return all texts of a conversation, without what a template puts around them."""
    contents = [message.get("content") for message in messages]
    parts = [part for one in contents for part in (one if isinstance(one, list) else [one])]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _last_text(messages: Messages) -> str:
    content = messages[-1].get("content") if messages else None
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
        content = texts[-1] if texts else None
    return content if isinstance(content, str) else ""


def _names_for_content(tree: jinja2.nodes.Template) -> frozenset[str]:
    """Return names that the template gives to a message's content: `set c = message.content`."""
    return frozenset(
        assignment.target.name
        for assignment in tree.find_all(jinja2.nodes.Assign)
        if isinstance(assignment.target, jinja2.nodes.Name)
        and _is_content(assignment.node, frozenset())
    )


def _is_content(node: jinja2.nodes.Node, names: frozenset[str]) -> bool:
    """Return whether an expression is `x.content`, `x['content']`, or a name given to one."""
    if isinstance(node, jinja2.nodes.Filter) and node.node is not None:
        return _is_content(node.node, names)
    if isinstance(node, jinja2.nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, jinja2.nodes.Getitem):
        return isinstance(node.arg, jinja2.nodes.Const) and node.arg.value == "content"
    return isinstance(node, jinja2.nodes.Name) and node.name in names

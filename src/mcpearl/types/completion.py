"""Completion: suggestions for the arguments of prompts and resource templates."""

from mcpearl.types.base import RequestParams, Result, Wire


class PromptReference(Wire, kw_only=True, tag_field="type", tag="ref/prompt"):
    """Refers to a prompt by name."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, kw_only=True, tag_field="type", tag="ref/resource"):
    """Refers to a resource or resource template by URI."""

    uri: str


class CompletionArgument(Wire, kw_only=True):
    """The argument to complete, and its value so far."""

    name: str
    value: str


class CompletionContext(Wire, kw_only=True):
    """Arguments that are already filled in."""

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams, kw_only=True):
    """Requests completions of an argument."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Wire, kw_only=True):
    """Up to 100 suggestions, and the total number."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The suggestions for an argument."""

    completion: Completion

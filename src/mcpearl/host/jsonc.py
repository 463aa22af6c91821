"""JSON as people edit it in configuration files: with comments and trailing commas, as in VS Code.

Members that an object has twice are noted; a JSON parser would silently drop all but the last.
"""

import json
import re
from collections import Counter
from typing import Any

from mcpearl.client.entries import ConfigError

MAX_SIZE = 4 * 1024 * 1024  # bytes of a file

# Each alternative matches all it can and cannot fail once begun, so the time is linear in the text.
_STRING_OR_COMMENT = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|,(?=\s*[}\]])', re.DOTALL)
_VISIBLE = re.compile(r"[^\r\n]")


class JsonObject(dict[str, Any]):
    """An object of a file, with the names that occur in it more than once."""

    repeated: tuple[str, ...] = ()


def parse(data: bytes | str, source: str) -> Any:
    """Parse a text.

    Args:
        data: The text; if it is bytes, the encoding is detected.
        source: What it is called in errors.

    Raises:
        ConfigError: The text is too long, or not JSON; the message has the line.
    """
    if len(data) > MAX_SIZE:
        raise ConfigError(f"{source} has more than {MAX_SIZE} bytes: it is not a configuration")
    text = data if isinstance(data, str) else _decode(data, source)
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise ConfigError(f'{source} is empty; write {{"mcpServers": {{}}}} or remove it')
    try:
        return _loads(plain_json(text))
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{source} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise ConfigError(f"{source} is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}") from None


def _decode(data: bytes, source: str) -> str:
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError:
        raise ConfigError(f"{source} is not JSON: it is not text in UTF-8 or UTF-16") from None


def plain_json(text: str) -> str:
    """Replace comments and trailing commas by spaces, so that positions in errors stay right."""
    if "/" in text:
        text = _STRING_OR_COMMENT.sub(_without_comment, text)
    return _STRING_OR_COMMA.sub(lambda found: " " if found[0] == "," else found[0], text)


def _without_comment(found: "re.Match[str]") -> str:
    return found[0] if found[0].startswith('"') else _VISIBLE.sub(" ", found[0])


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    made = JsonObject(pairs)
    if len(made) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        made.repeated = tuple(name for name, count in counts.items() if count > 1)
    return made

"""What handlers may return besides plain values: media, messages, and whole results of tools.

`results` converts them to the types of the specification.
"""

from base64 import b64encode
from os import PathLike
from typing import Any

from mcpearl.types.base import Result, Role
from mcpearl.types.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent
from mcpearl.types.resources import ResourceContents


class Media:
    """Bytes with a media type, returned by a tool or prompt as an image, audio or file.

    Args:
        data: The bytes.
        mime_type: Their media type, such as `image/png`.
        uri: The URI to use if they are sent as an embedded resource.

    >>> return Media(png, "image/png")
    """

    __slots__ = ("data", "mime_type", "uri")

    def __init__(self, data: bytes, mime_type: str, uri: str = "data:") -> None:
        self.data = data
        self.mime_type = mime_type
        self.uri = uri  # only used for an embedded resource

    def block(self) -> ContentBlock:
        """Return the content block for this media type."""
        encoded = b64encode(self.data).decode("ascii")
        if self.mime_type.startswith("image/"):
            return ImageContent(data=encoded, mime_type=self.mime_type)
        if self.mime_type.startswith("audio/"):
            return AudioContent(data=encoded, mime_type=self.mime_type)
        contents = ResourceContents(uri=self.uri, mime_type=self.mime_type, blob=encoded)
        return EmbeddedResource(resource=contents)


class Image(Media):
    """An image, from a file or from bytes.

    Args:
        path: The file. It is read now.
        data: The bytes, instead of a file.
        format: The part of the media type after `image/`; by the file's name, or `png`.

    >>> return Image("chart.png")
    """

    __slots__ = ()

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        data: bytes | None = None,
        format: str | None = None,
    ) -> None:
        super().__init__(
            _contents("Image", path, data), _media_type("image", path, format, "image/png")
        )


class Audio(Media):
    """Audio, from a file or from bytes.

    Args:
        path: The file. It is read now.
        data: The bytes, instead of a file.
        format: The part of the media type after `audio/`; by the file's name, or `wav`.
    """

    __slots__ = ()

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        data: bytes | None = None,
        format: str | None = None,
    ) -> None:
        super().__init__(
            _contents("Audio", path, data), _media_type("audio", path, format, "audio/wav")
        )


class File(Media):
    """A file, from the disk or from bytes; sent as an embedded resource, as text if it is text.

    Args:
        path: The file. It is read now.
        data: The bytes, instead of a file.
        format: The part of the media type after `application/`; by the file's name if not given.
        name: The name in its URI; the file's own by default.
    """

    __slots__ = ()

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        data: bytes | None = None,
        format: str | None = None,
        name: str | None = None,
    ) -> None:
        from pathlib import Path
        from urllib.parse import quote

        if name is None:
            name = "file" + (f".{format}" if format else "") if path is None else Path(path).name
        kind = _media_type("application", path or name, format, "application/octet-stream")
        super().__init__(_contents("File", path, data), kind, f"file:///{quote(name)}")

    def block(self) -> ContentBlock:
        """Return the embedded resource."""
        text = blob = None
        try:
            text = self.data.decode() if self.mime_type.startswith("text/") else None
        except UnicodeDecodeError:
            pass  # a text file by its name, but not by its bytes
        if text is None:
            blob = b64encode(self.data).decode("ascii")
        return EmbeddedResource(
            resource=ResourceContents(uri=self.uri, mime_type=self.mime_type, text=text, blob=blob)
        )


def _contents(what: str, path: str | PathLike[str] | None, data: bytes | None) -> bytes:
    if (path is None) == (data is None):
        raise TypeError(f"`{what}` needs either `path` or `data`, as in `{what}(path=…)`")
    if data is not None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"`{what}(data=…)` takes bytes, not {type(data).__name__}")
        return bytes(data)
    assert path is not None
    from pathlib import Path  # most servers have no files

    return Path(path).read_bytes()


def _media_type(
    kind: str, path: str | PathLike[str] | None, format: str | None, default: str
) -> str:
    if format is not None:
        return f"{kind}/{format.lower().removeprefix('.')}"
    if path is None:
        return default
    from mimetypes import guess_type

    return guess_type(path)[0] or default


class ToolResult(Result, kw_only=False):
    """What a tool returns to choose content, structured content and `_meta` itself.

    Args:
        content: Text, a content block, `Media`, or a list of these; by default the JSON of
            `structured_content`.
        structured_content: The structured content: a dict, dataclass, struct or model.
        is_error: Whether the tool failed.
        meta: The `_meta` of the result.

    >>> return ToolResult("three rows", structured_content={"rows": 3})
    """

    content: Any = None
    structured_content: Any = None
    is_error: bool = False


class Message:
    """A message of a prompt.

    Args:
        content: Text, a content block, `Media`, or a value that is sent as JSON.
        role: `user` or `assistant`.
    """

    __slots__ = ("content", "role")

    def __init__(self, content: Any, role: Role = "user") -> None:
        self.content = content
        self.role = role


class UserMessage(Message):
    """A message of the user in a prompt.

    Args:
        content: As for `Message`.
    """

    __slots__ = ()

    def __init__(self, content: Any) -> None:
        super().__init__(content, "user")


class AssistantMessage(Message):
    """A message of the assistant in a prompt.

    Args:
        content: As for `Message`.
    """

    __slots__ = ()

    def __init__(self, content: Any) -> None:
        super().__init__(content, "assistant")

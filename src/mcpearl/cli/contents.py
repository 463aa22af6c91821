"""Content of tools, prompts and resources on a terminal; what is binary becomes a file."""

import base64
import binascii
import json
import mimetypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcpearl.cli.exits import CommandFailed
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.pictures import drawn, draws_png_only
from mcpearl.types.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcpearl.types.resources import ResourceContents


class Writer:
    """Writes content blocks, one after the other.

    Args:
        out: where the command writes.
        output: a directory for what is binary, or a file for the only one; None for a new directory
            among the temporary files.
    """

    def __init__(self, out: CommandOutput, output: str | None = None) -> None:
        self._out = out
        self._output = None if output is None else Path(output)
        self._folder: Path | None = None
        self._count = 0
        self.saved: list[Path] = []
        """The files that were written."""

    def block(self, block: Any, indent: str = "") -> None:
        """Write one block."""
        match block:
            case TextContent(text=text):
                self._out.line(_indented(text, indent))
            case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
                self._binary(data, kind, block.type, indent)
            case ResourceLink(uri=uri):
                about = f" - {block.description}" if block.description else ""
                self._out.line(f"{indent}→ {uri}{about}")
            case EmbeddedResource(resource=resource):
                self._out.line(f"{indent}{resource.uri}", dim=True)
                self.resource(resource, indent)
            case _:
                self._out.line(f"{indent}[{getattr(block, 'type', type(block).__name__)}]")

    def resource(self, contents: ResourceContents, indent: str = "") -> None:
        """Write the contents of a resource."""
        if contents.text is not None:
            self._out.line(_indented(contents.text, indent))
        else:
            self._binary(contents.blob or "", contents.mime_type or "", "resource", indent)

    def _binary(self, data: str, kind: str, name: str, indent: str) -> None:
        content = decoded(data)
        path = self.save(content, kind, name)
        size = f"{len(content):,} bytes"
        self._out.line(f"{indent}[{kind or name}, {size}] saved as {path}")
        if not (self._out.tty and kind.startswith("image/")):
            return
        if (picture := drawn(content, os.environ)) is not None:
            sys.stdout.write(picture + "\n")
        elif draws_png_only(os.environ):
            self._out.line(f"{indent}(not shown: this terminal draws only PNG)", dim=True)

    def save(self, content: bytes, kind: str, name: str) -> Path:
        """Write binary content to a file, and return its path."""
        path = self._place(kind, name)
        write_file(path, content)
        self.saved.append(path)
        return path

    def _place(self, kind: str, name: str) -> Path:
        self._count += 1
        if self._output is not None and self._output.suffix and self._count == 1:
            return self._output
        folder = self._output.parent if self._output and self._output.suffix else self._output
        if folder is None:
            folder = self._folder = self._folder or Path(tempfile.mkdtemp(prefix="mcpearl-"))
        return folder / f"{name}-{self._count}{mimetypes.guess_extension(kind) or '.bin'}"


def write_file(path: Path, content: bytes) -> None:
    """Write a file, and the directories above it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"cannot save to {path}: {error.strerror}") from None


def decoded(data: str) -> bytes:
    """Decode base64 of a server."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CommandFailed(f"the server sent binary content that is not base64: {error}") from None


def _indented(text: str, indent: str) -> str:
    return "\n".join(indent + line for line in text.split("\n")) if indent else text


def structured_text(value: Any) -> str:
    """Return structured content for people: a lone text as it is, otherwise JSON."""
    if isinstance(value, dict) and value.keys() == {"result"}:
        value = value["result"]
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

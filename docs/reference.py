"""Makes the reference from the docstrings, and `llms.txt` from the pages.

Every public name gets an entry on a page of its kind. A name that no kind claims ends the build, so that
a new one cannot be forgotten.
"""

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import click

import mcpearl
from mcpearl.cli.main import SECTIONS
from mcpearl.cli.main import mcpearl as the_command

HERE = Path(__file__).parent
OUT = HERE / "reference"

# Pages, and the names on them: of `mcpearl` itself by name, of other modules all they export.
PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "server": (
        "Server",
        "What serves: the server, what handlers get, and what tools declare.",
        (
            "mcpearl.server.server", "mcpearl.server.handler", "mcpearl.server.context",
            "mcpearl.server.asking", "mcpearl.server.session", "mcpearl.server.registry",
            "mcpearl.server.extensions",
            "mcpearl.server.registering", "mcpearl.server.web", "mcpearl.net.http_server",
            "mcpearl.server.tasks", "mcpearl.server.composition", "mcpearl.server.serving",
        ),
    ),
    "client": (
        "Client",
        "What calls: the client, its results, pools, tasks and ready-made answers to sampling.",
        ("mcpearl.client", "mcpearl.sync"),
    ),
    "hosts": (
        "Hosts and gateways",
        "Many servers in one client, and many servers behind one endpoint.",
        ("mcpearl.host", "mcpearl.gateway"),
    ),
    "runtime": (
        "Supervision, isolation and limits",
        "What keeps servers and clients alive.",
        ("mcpearl.runtime", "mcpearl.server.throttle", "mcpearl.server.tree", "mcpearl.protocol.limits"),
    ),
    "telemetry": (
        "Telemetry and receipts",
        "What shows and records what a server does.",
        ("mcpearl.telemetry", "mcpearl.receipts", "mcpearl.console"),
    ),
    "wires": (
        "Wires and stores",
        "How messages travel, and what outlives a process.",
        ("mcpearl.transports", "mcpearl.net", "mcpearl.stores"),
    ),
    "errors": (
        "Errors",
        "What is raised, and when.",
        ("mcpearl.protocol",),
    ),
}  # fmt: skip
MODULES = {
    "auth": ("Authorization", "mcpearl.auth"),
    "types": ("Types of the protocol", "mcpearl.types"),
    "testing": ("Testing", "mcpearl.testing"),
}
COMMAND = ("The command", "Every option of `mcpearl`; :doc:`/command` has examples.")
OWN_PAGES = tuple(f"{module}." for _, module in MODULES.values())

TREE = re.compile(r"```\{toctree\}\n:caption: (.+)\n(?::.*\n)*\n((?:[^`].*\n)+)```")


def page_of(value: Any) -> str | None:
    """Return the page that a public name belongs on."""
    module = getattr(value, "__module__", "") or ""
    if isinstance(value, type) and issubclass(value, BaseException):
        return "errors"
    fitting = [
        (len(prefix), page)
        for page, (_, _, prefixes) in PAGES.items()
        for prefix in prefixes
        if module == prefix or module.startswith(f"{prefix}.")
    ]
    return max(fitting)[1] if fitting else None


def entry(module: str, name: str, value: Any) -> str:
    """Return the directive that documents one name."""
    full = f"{module}.{name}"
    if isinstance(value, type):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        members = (
            ""
            if kind == "autoexception"
            else "   :members:\n   :inherited-members: Exception, dict, Struct\n"
        )
        return f".. {kind}:: {full}\n{members}"
    if inspect.isroutine(value):
        return f".. autofunction:: {full}\n"
    return f".. py:data:: {full}\n\n   {_about(value)}\n"


def _about(value: Any) -> str:
    """Say what a name is that has no docstring: a type that stands for others, or a value."""
    text = str(value).replace("mcpearl.types.", "").replace("typing.", "")
    return f"``{text}``" if len(text) < 300 else f"A ``{type(value).__name__}``."


def rst(title: str, text: str, entries: list[str]) -> str:
    """Return a page of the reference."""
    return "\n".join([title, "=" * len(title), "", text, "", *entries])


def generate() -> None:
    """Write the pages of the reference."""
    OUT.mkdir(exist_ok=True)
    entries: dict[str, list[tuple[str, str]]] = {page: [] for page in PAGES}
    for name in mcpearl.__all__:
        value = getattr(mcpearl, name)
        elsewhere = f"{getattr(value, '__module__', '')}.".startswith(OWN_PAGES)
        if name == "__version__" or inspect.ismodule(value) or elsewhere:
            continue
        page = page_of(value)
        if page is None:
            raise SystemExit(
                f"docs/reference.py has no page for mcpearl.{name}, of {value.__module__}"
            )
        entries[page].append((name, entry("mcpearl", name, value)))
    written = []
    for page, (title, text, _) in PAGES.items():
        if entries[page]:
            found = [each for _, each in sorted(entries[page])]
            write(OUT / f"{page}.rst", rst(title, text, found))
            written.append(page)
    for page, (title, module) in MODULES.items():
        try:
            loaded = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        names = sorted(loaded.__all__)
        found = [entry(module, name, getattr(loaded, name)) for name in names]
        write(OUT / f"{page}.rst", rst(title, f"The names of `{module}`.", found))
        written.append(page)
    for old in OUT.glob("*.rst"):
        if old.stem not in {*written, "index"}:
            old.unlink()
    write(OUT / "command.rst", rst(COMMAND[0], COMMAND[1], command_lines()))
    written.append("command")
    toc = ["", ".. toctree::", "   :maxdepth: 1", "", *(f"   {page}" for page in written), ""]
    text = (
        "Every public name, from the docstrings. In Python, `help(mcpearl.Server)` shows the same."
    )
    write(OUT / "index.rst", rst("Reference", text, toc))


def command_lines() -> list[str]:
    """Return what is said of each command and its options."""
    assert isinstance(the_command, click.Group)
    context = click.Context(the_command, info_name="mcpearl")
    lines: list[str] = []
    for names in SECTIONS.values():
        for name in names:
            found = the_command.get_command(context, name)
            assert found is not None
            lines += of_command(found, click.Context(found, context, info_name=name))
    return lines


def of_command(command: click.Command, context: click.Context) -> list[str]:
    """Return the usage, the help and the options of a command, and of those below it."""
    path = context.command_path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    help = [escaped(line) for line in inspect.cleandoc(command.help or "").splitlines()]
    lines = [path, "-" * len(path), "", f".. program:: {path}", "", f"``{usage}``", "", *help, ""]
    for each in command.params:
        record = each.get_help_record(context)
        if record is not None and not isinstance(each, click.Argument):
            lines += [f".. option:: {record[0]}", "", f"   {escaped(record[1])}", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            lines += of_command(found, click.Context(found, context, info_name=name))
    return lines


def escaped(text: str) -> str:
    """Return plain text as it is written in a page; what stands between backticks is code there, too."""
    parts = re.split(r"(`[^`]*`)", text.replace("\b", ""))
    return "".join(
        part if part[:1] == "`" else re.sub(r"([*_|:\\-])", r"\\\1", part) for part in parts
    )


def write(path: Path, text: str) -> None:
    """Write a file if that changes it: unchanged pages are not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def llms(out: Path) -> None:
    """Write `llms.txt`, a list of the pages for language models, and `llms-full.txt`, their text."""
    index = (HERE / "index.md").read_text()
    lines = [
        "# mcpearl",
        "",
        "> A Model Context Protocol SDK for Python: client, server and runtime.",
        "",
    ]
    whole = []
    for caption, body in re.findall(
        r"```\{toctree\}\n(?:.*\n)*?:caption: (.+)\n(?::.*\n)*\n((?:[^`].*\n)+)```", index
    ):
        lines += [f"## {caption}", ""]
        for page in body.split():
            source = HERE / f"{page}.md"
            if not source.exists():
                lines += references()
                continue
            text = source.read_text()
            title, first = headline(text)
            lines.append(f"- [{title}]({page}.md): {first}")
            whole.append(text)
            target = out / f"{page}.md"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        lines.append("")
    (out / "llms.txt").write_text("\n".join(lines))
    (out / "llms-full.txt").write_text("\n\n".join(whole))


def references() -> list[str]:
    """Return a line for each page of the reference."""
    pages = [(page, title, text) for page, (title, text, _) in PAGES.items()]
    pages += [(page, title, f"The names of `{of}`.") for page, (title, of) in MODULES.items()]
    pages.append(("command", COMMAND[0], "Every option of `mcpearl`."))
    return [f"- [{title}](reference/{page}.html): {text}" for page, title, text in pages]


def headline(text: str) -> tuple[str, str]:
    """Return the title of a page and its first sentence, without the links of that."""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    rest = re.sub(
        r"^```.*?^```", "", text[title.end() :] if title else text, flags=re.MULTILINE | re.DOTALL
    )
    paragraph = next(part for part in rest.split("\n\n") if re.match(r"\w|\[|`[^`]", part.strip()))
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    sentence = plain.split(". ")[0]
    return (title[1] if title else "", sentence.rstrip(".:") + ".")


def setup(app: Any) -> dict[str, Any]:
    """Take part in a build of Sphinx."""
    generate()

    def finished(app: Any, error: Exception | None) -> None:
        if error is None and app.builder.name == "html":
            llms(Path(app.outdir))

    app.connect("build-finished", finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

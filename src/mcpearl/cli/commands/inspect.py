"""Show all that a server offers, and what hosts will stumble over."""

import time
from typing import TYPE_CHECKING, Any

import click

from mcpearl.cli.arguments import object_of
from mcpearl.cli.command import make_command
from mcpearl.cli.exits import Exit, as_failure
from mcpearl.cli.findings import Objection, findings, tokens
from mcpearl.cli.offered import ServerOffer, offered, summary_of
from mcpearl.cli.output import CommandOutput
from mcpearl.cli.schema_text import members, type_name
from mcpearl.cli.target import ServerTarget, connected, target_options
from mcpearl.protocol.errors import McpError

if TYPE_CHECKING:
    from mcpearl.client.client import Client

_KINDS = ("tools", "resources", "templates", "prompts")
_MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", None)}


@make_command()
@target_options
@click.option("--versions", is_flag=True, help="Try every version of the protocol.")
@click.option("--check", is_flag=True, help="Exit with 1 if there are errors or warnings.")
async def command(out: CommandOutput, target: ServerTarget, versions: bool, check: bool) -> int:
    """Show all that a server offers: versions, capabilities, extensions, sizes, timings, problems."""
    began = time.perf_counter()
    timings: dict[str, float] = {}
    lists = ServerOffer()
    async with connected(target, out) as client:
        timings["connect"] = _since(began)
        for kind in _KINDS:
            began = time.perf_counter()
            found = getattr(await offered(client, (kind,)), kind)
            setattr(lists, kind, found)
            if found:
                timings[kind] = _since(began)
        began = time.perf_counter()
        refusal = await _ping_refused(client)
        timings["ping"] = _since(began)
        info, instructions = client.server_info, client.instructions
        capabilities, version, era = client.server_capabilities, client.protocol_version, client.era
    speaks = await _versions(target, out) if versions else None
    problems = [*refusal, *findings(lists, info, instructions)]
    report: dict[str, Any] = {
        "server": info,
        "protocol": {"version": version, "era": era, "versions": speaks},
        "capabilities": capabilities,
        "extensions": sorted(capabilities.extensions or {}),
        "instructions": instructions,
        "timings_ms": timings,
        "tokens": {"tools": {tool.name: tokens(tool) for tool in lists.tools}},
        "offers": lists,
        "problems": [each._asdict() for each in problems],
    }
    report["tokens"]["all"] = tokens(lists.tools) + tokens(instructions or "")
    out.show(report, lambda: _write(out, report, lists, problems))
    bad = any(each.grade != "note" for each in problems)
    return Exit.FAILED if check and bad else Exit.OK


async def _ping_refused(client: "Client") -> list[Objection]:
    """Ping a server; return the objection to one that answers with an error."""
    try:
        await client.ping()
    except McpError as error:
        return [Objection("error", "server", f"it refuses `ping`: {error.message}")]
    return []


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 2)


async def _versions(target: ServerTarget, out: CommandOutput) -> dict[str, str]:
    """Try every version, each with a connection of its own; return how each went."""
    from mcpearl.protocol.versions import VERSIONS

    found = {}
    for name in VERSIONS:
        try:
            async with connected(target._replace(protocol=name), CommandOutput(as_json=True)):
                found[name] = "yes"
        except Exception as error:
            failure = as_failure(error)
            if failure is None:
                raise
            found[name] = str(failure)
    return found


def _write(
    out: CommandOutput, report: dict[str, Any], lists: ServerOffer, problems: list[Objection]
) -> None:
    info = report["server"]
    out.heading(f"{info.name} {info.version}" if info else "a server without a name")
    protocol = report["protocol"]
    versions = protocol["versions"] or {}
    rows = [
        ["protocol", f"{protocol['version']} ({protocol['era']})"],
        ["versions", "\n".join(f"{name}  {answer}" for name, answer in versions.items())],
        ["capabilities", _capabilities(report["capabilities"])],
        ["extensions", ", ".join(report["extensions"])],
        [
            "timings",
            ", ".join(f"{name} {_shown(took)}" for name, took in report["timings_ms"].items()),
        ],
        ["size", f"about {report['tokens']['all']:,} tokens of a model's context"],
        ["instructions", report["instructions"] or ""],
    ]
    out.table((), [row for row in rows if row[1]], 2)
    _write_tools(out, lists, report["tokens"]["tools"])
    for kind, rows in _others(lists).items():
        if rows:
            out.line()
            out.heading(f"{kind} ({len(rows)})")
            out.table((), rows, 2)
    _write_problems(out, problems)


def _shown(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds >= 100 else f"{milliseconds:.2f} ms"


def _capabilities(capabilities: Any) -> str:
    import msgspec

    found = msgspec.to_builtins(capabilities)
    found.pop("extensions", None)
    return ", ".join(
        f"{name} ({', '.join(each for each, on in value.items() if on is not False)})"
        if isinstance(value, dict) and value
        else name
        for name, value in found.items()
    )


def _write_tools(out: CommandOutput, lists: ServerOffer, sizes: dict[str, int]) -> None:
    if not lists.tools:
        return
    out.line()
    out.heading(f"tools ({len(lists.tools)})")
    for tool in lists.tools:
        hints = _hints(tool)
        size = out.styled(f"  ~{sizes[tool.name]} tokens{hints}", dim=True)
        name = out.styled(_clean(tool.name), bold=True)
        click.echo(f"  {name}{size}", color=out.colour)
        out.table((), [["", summary_of(tool)]], 4)
        out.table((), _rows(tool.input_schema, tool.input_schema), 6)


def _rows(schema: Any, root: dict[str, Any], prefix: str = "") -> list[list[str]]:
    """Return a row for each argument; below one that is an object, its members: `trip.days`."""
    rows = []
    required = schema.get("required") or ()
    for name, own in members(schema).items():
        optional = "" if name in required else "optional"
        rows.append([prefix + name, type_name(own), optional, _about(own)])
        inner = object_of(own, root)
        if inner is not None and not prefix:
            rows += _rows(inner, root, f"{name}.")
    return rows


def _clean(text: str) -> str:
    from mcpearl.cli.output import clean

    return clean(text)


def _hints(tool: Any) -> str:
    notes = tool.annotations
    if notes is None:
        return ""
    found = [
        word
        for word, on in (
            ("reads only", notes.read_only_hint),
            ("destructive", notes.destructive_hint),
            ("idempotent", notes.idempotent_hint),
        )
        if on
    ]
    return ", " + ", ".join(found) if found else ""


def _about(schema: Any) -> str:
    return str(schema.get("description") or "") if isinstance(schema, dict) else ""


def _others(lists: ServerOffer) -> dict[str, list[list[str]]]:
    return {
        "resources": [[r.uri, r.mime_type or "", summary_of(r)] for r in lists.resources],
        "templates": [[t.uri_template, t.mime_type or "", summary_of(t)] for t in lists.templates],
        "prompts": [
            [p.name, ", ".join(a.name for a in p.arguments or ()), summary_of(p)]
            for p in lists.prompts
        ],
    }


def _write_problems(out: CommandOutput, problems: list[Objection]) -> None:
    out.line()
    out.heading(f"problems ({len(problems)})" if problems else "no problems found")
    for each in problems:
        mark, colour = _MARKS[each.grade]
        out.prose(f"  {mark} {each.about}: {each.text}", 2, fg=colour)

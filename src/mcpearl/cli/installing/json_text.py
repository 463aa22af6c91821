"""One member of one object in a JSON file, set or removed in the text; comments and layout stay."""

import json
from typing import Any, NamedTuple

from mcpearl.cli.exits import CommandFailed
from mcpearl.host.jsonc import parse, plain_json

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


class _MemberPlace(NamedTuple):
    """Where a member of an object is in the text."""

    name: str
    begin: int
    """Of its name."""
    value: int
    end: int


class _Object(NamedTuple):
    """Where an object is in the text."""

    begin: int
    end: int
    """After its brace."""
    members: list[_MemberPlace]


def with_member(text: str, section: str, name: str, value: Any, source: str) -> str:
    """Return a file's text with a member of a section set, or, for None, removed.

    Args:
        text: the text; an empty one is an empty object.
        section: the member of the file that is changed.
        name: the member of the section.
        value: what it becomes; None to remove it.
        source: the file, for messages.
    """
    if not text.strip():
        text = "{}\n"
    before = parse(text, source)
    if not isinstance(before, dict) or not isinstance(before.get(section, {}), dict):
        raise CommandFailed(
            f"{source} has something else than objects where servers are; it is unchanged"
        )
    changed = _changed(text, section, name, value)
    wanted = {**before, section: {**before.get(section, {}), name: value}}
    if value is None:
        wanted[section] = {key: each for key, each in wanted[section].items() if key != name}
    if parse(changed, source) != wanted:
        raise CommandFailed(
            f"{source} is written in a way that cannot be changed safely; it is unchanged",
            hint="add the server by hand: `--print` shows what to add",
        )
    return changed


def _changed(text: str, section: str, name: str, value: Any) -> str:
    plain = plain_json(text)
    whole = _object_at(plain, _skipped(plain, 0))
    inner = _found(whole, section)
    if inner is None:
        return _set(text, plain, whole, section, {name: value}, 1)
    servers = _object_at(plain, inner.value)
    if value is None:
        return _removed(text, plain, servers, name)
    return _set(text, plain, servers, name, value, 2)


def _skipped(plain: str, at: int) -> int:
    while at < len(plain) and plain[at] in _SPACE + "\ufeff":
        at += 1
    return at


def _object_at(plain: str, at: int) -> _Object:
    """Find the members of the object that begins here; the text is known to be JSON."""
    begin, members = at, []
    at = _skipped(plain, at + 1)
    while plain[at] != "}":
        name, end = _DECODER.raw_decode(plain, at)
        value = _skipped(plain, _skipped(plain, end) + 1)
        _, end = _DECODER.raw_decode(plain, value)
        members.append(_MemberPlace(name, at, value, end))
        at = _skipped(plain, end)
        if plain[at] == ",":
            at = _skipped(plain, at + 1)
    return _Object(begin, at + 1, members)


def _found(place: _Object, name: str) -> _MemberPlace | None:
    return next((each for each in reversed(place.members) if each.name == name), None)


def _set(text: str, plain: str, place: _Object, name: str, value: Any, depth: int) -> str:
    unit = _unit(text)
    shown = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", "\n" + unit * depth)
    if (old := _found(place, name)) is not None:
        return text[: old.value] + shown + text[old.end :]
    member = f"\n{unit * depth}{json.dumps(name, ensure_ascii=False)}: {shown}"
    if not place.members:
        inside = text[place.begin + 1 : place.end - 1].rstrip()  # a comment may be there
        closing = f"\n{unit * (depth - 1)}}}"
        return text[: place.begin + 1] + inside + member + closing + text[place.end :]
    last = place.members[-1].end
    # A comma that is there already is blank in `plain`, as comments are.
    comma = text.find(",", last, place.end)
    trails = comma >= 0 and not text[last:comma].strip()
    at = comma + 1 if trails else last
    line_end = text.find("\n", at, place.end)
    if text[at : max(at, line_end)].lstrip().startswith("//"):
        at = line_end  # a comment about the last member stays beside it
    return text[:last] + ("" if trails else ",") + text[last:at] + member + text[at:]


def _removed(text: str, plain: str, place: _Object, name: str) -> str:
    at = next((n for n, each in enumerate(place.members) if each.name == name), None)
    if at is None:
        return text
    member = place.members[at]
    if at + 1 < len(place.members):
        return text[: member.begin] + text[place.members[at + 1].begin :]
    if at:
        last = place.members[at - 1].end
        between, rest = text[last : member.begin].lstrip().removeprefix(","), text[member.end :]
        if not between.strip():
            return text[:last] + rest
        # A comment about the member before this one stays, without the comma that comes after.
        return text[:last] + between.rstrip() + rest.lstrip(" \t").removeprefix(",")
    rest = text[member.end : place.end - 1].lstrip(" \t").removeprefix(",")
    return (
        text[: place.begin + 1]
        + text[place.begin + 1 : member.begin].rstrip()
        + rest.strip()
        + text[place.end - 1 :]
    )


def _unit(text: str) -> str:
    """Return what a level is indented by."""
    for line in text.splitlines()[1:]:
        if line.lstrip().startswith('"'):
            return line[: len(line) - len(line.lstrip())] or "  "
    return "  "

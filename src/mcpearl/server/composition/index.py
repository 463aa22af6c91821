"""Maps the names and URIs that clients use to the parts, and back.

The index is built from the parts' catalogs when it is first needed after a change. Parts without a
catalog are found by the prefix of a name, and by what was seen in their lists.
"""

from collections.abc import Container, Mapping
from typing import Any

from mcpearl.runtime.joint_names import SEPARATOR, joint_name
from mcpearl.server.composition.mount import KINDS, Exposed, Mount
from mcpearl.server.composition.part import Catalog
from mcpearl.server.composition.rewrite import EntryKind
from mcpearl.server.registry.normal_uri import normal_uri
from mcpearl.server.registry.uri_template import UriTemplate

_KIND_OF: dict[str, EntryKind] = {"tools/call": "tools", "prompts/get": "prompts"}


class Index:
    """The index of one server.

    Args:
        own: What the outer server itself offers, as far as that is known.
        mounts: The parts by name; their owner changes them.
    """

    def __init__(self, own: Catalog, mounts: Mapping[str, Mount]) -> None:
        self._own = own
        self._mounts = mounts
        self._stale = True
        self.tools: dict[str, Exposed] = {}
        """The tools of the parts, by the names clients use; empty while the index has to be rebuilt."""
        self._tools: dict[str, Exposed] = {}
        self._prompts: dict[str, Exposed] = {}
        self._own_names: dict[EntryKind, frozenset[str] | None] = {}  # None where that is not known
        self._unknown: dict[EntryKind, list[Mount]] = {}  # parts without a catalog
        self._own_templates: list[UriTemplate] = []
        self._resources: dict[str, Exposed] = {}  # by URI in its normal form
        self._templates: dict[str, tuple[UriTemplate | None, Exposed]] = {}
        self._inner: dict[
            tuple[str, EntryKind, str], Exposed | None
        ] = {}  # by mount, kind, inner name
        self._schemes: dict[str, Mount | None] = {}  # the one mount with resources of a scheme

    def doubt(self) -> None:
        """Note that something changed. Safe from any thread."""
        self._stale = True
        self.tools = {}

    @property
    def mounts(self) -> list[Mount]:
        """The parts, in the order of lists."""
        return list(self._mounts.values())

    def all(self, kind: EntryKind) -> list[Exposed]:
        """Return everything of a kind that the parts offer to some client."""
        self._refresh()
        found = (each for (_, of, _), each in self._inner.items() if of == kind)
        return [each for each in found if each is not None]

    # Finding

    def find(self, method: str, name: str) -> Exposed | None:
        """Return what a request names; None if no part has it."""
        kind = _KIND_OF.get(method)
        if kind is None:
            return self.resource(name)
        return self.tool(name) if kind == "tools" else self.prompt(name)

    def tool(self, name: str) -> Exposed | None:
        """Return the tool of a part that clients know by this name."""
        if self._stale:
            self._refresh()
        found = self._tools.get(name)
        return self._unlisted("tools", name) if found is None else found

    def prompt(self, name: str) -> Exposed | None:
        """Return the prompt of a part that clients know by this name."""
        if self._stale:
            self._refresh()
        found = self._prompts.get(name)
        return self._unlisted("prompts", name) if found is None else found

    def template(self, uri: str) -> Exposed | None:
        """Return the resource template of a part."""
        self._refresh()
        found = self._templates.get(uri)
        return None if found is None else found[1]

    def resource(self, uri: str) -> Exposed | None:
        """Return the part that has a resource: listed, of a template, spelled `name+uri`, by scheme."""
        self._refresh()
        normal = normal_uri(uri)
        found = self._resources.get(normal)
        if found is not None or self._owns(normal):
            return found
        for template, exposed in self._templates.values():
            if template is not None and template.match(normal) is not None:
                return _with_uri(exposed, uri, uri)
        name, plus, inner = uri.partition("+")
        mount = self._mounts.get(name) if plus else None
        if mount is None:
            mount = self._schemes.get(uri.partition(":")[0].lower()) or self._only_unknown()
            inner = uri
        return None if mount is None else mount.expose("resources", inner, uri, None)

    def _owns(self, uri: str) -> bool:
        """Whether the server itself has a resource, as far as that is known."""
        if uri in (self._own_names["resources"] or ()):
            return True
        return any(template.match(uri) is not None for template in self._own_templates)

    def _only_unknown(self) -> Mount | None:
        """Return the only part without a catalog of resources, if the server itself has one."""
        unknown = self._unknown["resources"]
        return (
            unknown[0] if self._own_names["resources"] is not None and len(unknown) == 1 else None
        )

    def _unlisted(self, kind: EntryKind, name: str) -> Exposed | None:
        """Return an entry that a part without a catalog may have."""
        unknown, own = self._unknown[kind], self._own_names[kind]
        if not unknown or (own is not None and name in own):
            return None
        for mount in unknown:
            inner = name
            if mount.prefix:
                inner = name.removeprefix(f"{mount.name}{SEPARATOR}")
                if inner == name or joint_name(mount.name, inner) != name:
                    continue
            elif own is None:
                continue  # the server's own handler may have it
            renamed = {outer: own_name for own_name, outer in mount.rewrite.rename.items()}
            if inner in mount.rewrite.rename:
                continue
            inner = renamed.get(inner, inner)
            if (mount.name, kind, inner) in self._inner:
                continue  # it is listed: hidden, or under another name
            return mount.expose(kind, inner, name, None)
        return None

    # From a part's list to what clients get

    def exposed(self, mount: Mount, kind: EntryKind, inner: str, source: Any) -> Exposed | None:
        """Return an entry of a part's list as clients see it; None if it is hidden."""
        self._refresh()
        key = (mount.name, kind, inner)
        found = self._inner.get(key)
        if found is not None and (found.source is source or found.source == source):
            return found
        if key in self._inner and found is None:
            return None
        if _known(mount, kind) is None:
            if mount.learn(kind, inner, source):
                self.doubt()
                self._refresh()
            return self._inner.get(key)
        # Its list differs from its catalog: for this caller, for example.
        if found is not None:
            return mount.expose(kind, inner, found.outer, source)
        if not mount.part.is_open:
            return None
        outer = inner if kind in ("resources", "templates") else self._outer_name(mount, inner, ())
        return mount.expose(kind, inner, outer, source)

    # Making

    def _refresh(self) -> None:
        if not self._stale:
            return
        self._stale = False
        self._inner = {}
        self._look_at_own()
        self._tools = self._names("tools")
        self._prompts = self._names("prompts")
        self._find_resources()
        self.tools = self._tools
        if self._stale:  # another thread changed something meanwhile
            self.tools = {}

    def _look_at_own(self) -> None:
        """Note what the server itself has, and which parts have no catalog."""
        for kind in KINDS:
            own = getattr(self._own, kind)()
            keys = None if own is None else frozenset(_key(each) for each in own)
            if kind == "resources" and keys is not None:
                keys = frozenset(map(normal_uri, keys))
            self._own_names[kind] = keys
            self._unknown[kind] = [
                mount
                for mount in self._mounts.values()
                if mount.part.is_open or _known(mount, kind) is None
            ]
        templates = map(_template, self._own_names["templates"] or ())
        self._own_templates = [each for each in templates if each is not None]

    def _names(self, kind: EntryKind) -> dict[str, Exposed]:
        taken = set(self._own_names[kind] or ())
        found: dict[str, Exposed] = {}
        for mount in self._mounts.values():
            listed = _known(mount, kind)
            sources = mount.learned[kind].values() if listed is None else listed
            if listed is not None and kind == "tools":
                self._warn(mount)
            for source in sources:
                outer = self._outer_name(mount, source.name, taken)
                exposed = mount.expose(kind, source.name, outer, source)
                self._inner[mount.name, kind, source.name] = exposed
                taken.add(outer)
                if exposed is not None:
                    found[outer] = exposed
                    if kind == "tools":
                        exposed.answer = mount.answer_of(source.name)
                        plain = exposed.plain and exposed.answer is not None
                        exposed.at_once = plain and mount.part.at_once(source.name)
        return found

    def _warn(self, mount: Mount) -> None:
        listed = (_known(mount, kind) for kind in KINDS)
        known = [None if each is None else [_key(one) for one in each] for each in listed]
        if all(each is not None for each in known):
            mount.warn_of_unknown(name for each in known for name in each or ())

    def _outer_name(self, mount: Mount, inner: str, taken: Container[str]) -> str:
        name = mount.rewrite.rename.get(inner, inner)
        if not mount.prefix and name not in taken:
            return name
        attempt = 0
        while (outer := joint_name(mount.name, name, attempt)) in taken:
            attempt += 1
        return outer

    def _find_resources(self) -> None:
        taken = set(self._own_names["resources"] or ())
        own_templates = self._own_names["templates"] or ()
        self._resources, self._templates, self._schemes = {}, {}, {}
        for mount in self._mounts.values():
            for source in _sources(mount, "resources"):
                outer = source.uri
                if normal_uri(outer) in taken:
                    outer = f"{mount.name}+{source.uri}"
                exposed = mount.expose("resources", source.uri, outer, source)
                self._inner[mount.name, "resources", source.uri] = exposed
                if exposed is not None:
                    taken.add(normal_uri(outer))
                    self._resources[normal_uri(outer)] = exposed
                    self._note_scheme(mount, source.uri)
            for source in _sources(mount, "templates"):
                outer = source.uri_template
                if outer in own_templates or outer in self._templates:
                    outer = f"{mount.name}+{outer}"
                exposed = mount.expose("templates", source.uri_template, outer, source)
                self._inner[mount.name, "templates", source.uri_template] = exposed
                if exposed is not None:
                    self._templates[outer] = (_template(source.uri_template), exposed)
                    self._note_scheme(mount, source.uri_template)
        specific = sorted(self._templates.items(), key=lambda each: _specificity(each[1][0]))
        self._templates = dict(specific)

    def _note_scheme(self, mount: Mount, uri: str) -> None:
        scheme = uri.partition(":")[0].lower()
        before = self._schemes.setdefault(scheme, mount)
        if before is not mount:
            self._schemes[scheme] = None  # several parts have such resources


def _known(mount: Mount, kind: EntryKind) -> Any:
    return getattr(mount.part.catalog, kind)()


def _sources(mount: Mount, kind: EntryKind) -> list[Any]:
    listed = _known(mount, kind)
    return list(mount.learned[kind].values() if listed is None else listed)


def _key(source: Any) -> str:
    key = getattr(source, "uri", None) or getattr(source, "uri_template", None) or source.name
    return str(key)


def _template(text: str) -> UriTemplate | None:
    try:
        return UriTemplate(text)
    except ValueError:
        return None  # it can be listed, but no URI matches it


def _specificity(template: UriTemplate | None) -> Any:
    return ((), ()) if template is None else template.specificity


def _with_uri(exposed: Exposed, inner: str, outer: str) -> Exposed:
    """Return one resource of a template."""
    return Exposed(
        exposed.mount,
        "resources",
        inner,
        outer,
        None,
        exposed.definition,
        exposed.scopes,
        exposed.tags,
        exposed.plain,
    )


class JointCatalog:
    """What a server and its parts offer, for a server in which it is mounted itself."""

    def __init__(self, own: Catalog, index: Index) -> None:
        self._own = own
        self._index = index

    def tools(self) -> list[Any] | None:
        """Return all tools, or None if some part has no catalog."""
        return self._all("tools", self._own.tools())

    def prompts(self) -> list[Any] | None:
        """Return all prompts, or None if some part has no catalog."""
        return self._all("prompts", self._own.prompts())

    def resources(self) -> list[Any] | None:
        """Return all resources, or None if some part has no catalog."""
        return self._all("resources", self._own.resources())

    def templates(self) -> list[Any] | None:
        """Return all resource templates, or None if some part has no catalog."""
        return self._all("templates", self._own.templates())

    def _all(self, kind: EntryKind, own: Any) -> list[Any] | None:
        if own is None or any(_known(mount, kind) is None for mount in self._index.mounts):
            return None
        return [*own, *(each.definition for each in self._index.all(kind))]

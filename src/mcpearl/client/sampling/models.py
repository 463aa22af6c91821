"""Chooses the model that answers, among those the application configured, by the server's preferences."""

from collections.abc import Mapping, Sequence

from mcpearl.types.sampling import ModelPreferences


class Models:
    """The models an application allows, and the rule by which one is chosen.

    A server cannot choose a model that was not configured. Its hints are tried in order, each as part of
    a name; without a match, its priorities choose between `fast` and `smart`. Otherwise the default is
    used.

    Args:
        default: The model that is used if the preferences choose no other one.
        others: Further models; or models by the names that hints may contain, such as
            `{"claude": "llama3.3"}`.
        fast: The model for servers that prefer speed or low cost.
        smart: The model for servers that prefer intelligence.
    """

    def __init__(
        self,
        default: str,
        others: Sequence[str] | Mapping[str, str] = (),
        fast: str | None = None,
        smart: str | None = None,
    ) -> None:
        if not default:
            raise ValueError("`model` is the name of a model")
        if isinstance(others, str):
            raise TypeError(f"`models` must be a list, as in `models=[{others!r}]`")
        named = others if isinstance(others, Mapping) else {name: name for name in others}
        own = {name: name for name in (default, fast, smart) if name}
        self._by_name = {name.lower(): model for name, model in {**named, **own}.items()}
        self._default = default
        self._fast = fast
        self._smart = smart

    def choose(self, preferences: ModelPreferences | None) -> str:
        """Return the model for a request.

        Args:
            preferences: What the server prefers.
        """
        if preferences is None:
            return self._default
        for hint in preferences.hints or ():
            wanted = (hint.name or "").lower()
            for name, model in self._by_name.items():
                if wanted and (wanted in name or (len(name) > 2 and name in wanted)):
                    return model
        smart = preferences.intelligence_priority or 0
        quick = max(preferences.speed_priority or 0, preferences.cost_priority or 0)
        if smart > quick and self._smart is not None:
            return self._smart
        if quick > smart and self._fast is not None:
            return self._fast
        return self._default

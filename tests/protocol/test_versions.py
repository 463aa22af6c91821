"""The versions, what differs between them, and how two sides find one."""

import pytest

from mcpearl.protocol.versions import (
    LEGACY_VERSIONS,
    MODERN_VERSIONS,
    NEWEST,
    NEWEST_LEGACY,
    SUPPORTED,
    VERSIONS,
    common,
    negotiate,
    unsupported,
)


def test_every_version_from_first_to_last() -> None:
    assert SUPPORTED == ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert LEGACY_VERSIONS == ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
    assert MODERN_VERSIONS == ("2026-07-28",)
    assert (NEWEST.name, NEWEST_LEGACY.name) == ("2026-07-28", "2025-11-25")


def test_indexes_follow_time() -> None:
    ordered = sorted(VERSIONS)
    assert [VERSIONS[name].index for name in ordered] == list(range(len(ordered)))


@pytest.mark.parametrize(
    ("trait", "where"),
    [
        ("batches", {"2025-03-26"}),
        ("modern", {"2026-07-28"}),
        ("arguments_as_result", {"2025-11-25", "2026-07-28"}),
        ("url_elicitation_error", {"2025-11-25"}),
    ],
)
def test_which_version_has_what(trait: str, where: set[str]) -> None:
    assert {name for name, version in VERSIONS.items() if getattr(version, trait)} == where


def test_the_code_for_an_unknown_resource() -> None:
    codes = {name: version.resource_not_found for name, version in VERSIONS.items()}
    assert codes == dict.fromkeys(LEGACY_VERSIONS, -32002) | {"2026-07-28": -32602}


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_known_version_is_answered_with_itself(version: str) -> None:
    assert negotiate(version).name == version


@pytest.mark.parametrize("version", ["2026-07-28", "1900-01-01", "2099-01-01", "", "latest", "\0"])
def test_any_other_version_is_answered_with_the_newest_legacy_one(version: str) -> None:
    assert negotiate(version).name == "2025-11-25"


def test_a_server_that_speaks_less_answers_with_its_own_newest() -> None:
    assert negotiate("2025-11-25", ("2024-11-05", "2025-03-26")).name == "2025-03-26"
    assert negotiate("2024-11-05", ("2024-11-05", "2025-03-26")).name == "2024-11-05"


def test_an_unsupported_version_is_told_what_is_supported() -> None:
    error = unsupported("1900-01-01")
    assert error.code == -32022
    assert error.data == {"supported": list(SUPPORTED), "requested": "1900-01-01"}
    assert "1900-01-01" in error.message


def test_an_endless_version_is_not_echoed() -> None:
    error = unsupported("9" * 1_000_000)
    assert len(error.message) < 200
    assert len(error.data["requested"]) < 100


@pytest.mark.parametrize(
    ("offered", "newest"),
    [
        (["2026-07-28", "2025-11-25"], "2026-07-28"),
        (["2025-06-18", "2099-01-01"], "2025-06-18"),
        (["2024-11-05", "2025-03-26"], "2025-03-26"),
    ],
)
def test_the_newest_version_in_common(offered: list[str], newest: str) -> None:
    found = common(offered)
    assert found is not None
    assert found.name == newest


def test_nothing_in_common() -> None:
    assert common(["2099-01-01"]) is None
    assert common([]) is None
    assert common(["2024-11-05"], MODERN_VERSIONS) is None

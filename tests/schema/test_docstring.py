"""Three styles, the same knowledge."""

from __future__ import annotations

import pytest

from mcpearl.schema import parse_docstring

GOOGLE = """What the weather will be.

    More about it.

    Args:
        city (str): The city, with its country
            where that is not clear.
        days: How many days: one to seven.
        **rest (dict[str, Any]): Anything else.

    Returns:
        The forecast.

    Raises:
        ValueError: Never.
    """

NUMPY = """
    What the weather will be.

    More about it.

    Parameters
    ----------
    city : str
        The city, with its country
        where that is not clear.
    days : int, optional
        How many days: one to seven.
    **rest
        Anything else.

    Returns
    -------
    Forecast
        The forecast.

    Raises
    ------
    ValueError
        Never.
    """

SPHINX = """What the weather will be.

    More about it.

    :param str city: The city, with its country
        where that is not clear.
    :param days: How many days: one to seven.
    :type days: int
    :param rest: Anything else.
    :returns: The forecast.
    :raises ValueError: Never.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_styles(text):
    parsed = parse_docstring(text)
    assert parsed.summary == "What the weather will be.\n\nMore about it."
    assert parsed.parameters == {
        "city": "The city, with its country where that is not clear.",
        "days": "How many days: one to seven.",
        "rest": "Anything else.",
    }
    assert parsed.returns == "The forecast."


@pytest.mark.parametrize("heading", ["Args", "Arguments", "Parameters", "Params"])
def test_google_headings(heading):
    assert parse_docstring(f"Do.\n\n{heading}:\n    x: It.").parameters == {"x": "It."}


@pytest.mark.parametrize("text", [None, "", "   \n  "])
def test_nothing(text):
    parsed = parse_docstring(text)
    assert (parsed.summary, parsed.parameters, parsed.returns) == ("", {}, None)


def test_only_a_summary_keeps_its_shape():
    text = """Do it.

    Steps:
    1. one
       - nested
    2. two: with a colon
    """
    expected = "Do it.\n\nSteps:\n1. one\n   - nested\n2. two: with a colon"
    assert parse_docstring(text).summary == expected


def test_prose_sections_before_the_parameters_belong_to_the_description():
    text = "Do.\n\nNote:\n    Slow.\n\nArgs:\n    x: It.\n\nExamples:\n    do(1)\n"
    parsed = parse_docstring(text)
    assert parsed.summary == "Do.\n\nNote:\n    Slow."
    assert parsed.parameters == {"x": "It."}


def test_numpy_names_that_share_a_description():
    text = "Do.\n\nParameters\n----------\nx, y : int\n    A coordinate.\n"
    assert parse_docstring(text).parameters == {"x": "A coordinate.", "y": "A coordinate."}


def test_paragraphs_within_a_description():
    text = "Do.\n\nArgs:\n    x: One.\n\n        Two.\n    y: Three."
    assert parse_docstring(text).parameters == {"x": "One.\n\nTwo.", "y": "Three."}


def test_args_in_running_text_is_no_section():
    text = "Takes args:\nas they come."
    assert parse_docstring(text).summary == text

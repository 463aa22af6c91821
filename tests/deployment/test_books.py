"""The books of a scene find what they are there to find."""

import json

import pytest

from tests.deployment.books import OPENED, STEPS, Books, Kind, ServerNotes
from tests.deployment.round_robin import Passed

KIND = Kind("stranger", ("record", "count", "ask"), True)


@pytest.fixture
def books() -> Books:
    """Books of one client that did everything once, and nothing wrong."""
    made = Books()
    made.kinds["a"] = KIND
    begins = {"method": "initialize", "params": {"clientInfo": {"name": "a"}}}
    answer = {"id": 1, "result": {"action": "accept", "content": {"a": "a-3"}}}
    session = {b"mcp-session-id": b"s"}
    for passed in (
        Passed(b"POST", {}, json.dumps(begins).encode(), 200, session),
        Passed(b"POST", session, json.dumps(answer).encode(), 202, {}),
        Passed(b"GET", {**session, b"last-event-id": b"pX.1"}, b"", 200, {}),
    ):
        made.ledger.note(passed)
    made.close("a", "a-1", "record", "answered")
    made.close("a", "a-2", "count", "answered", STEPS)
    made.close("a", "a-3", "ask", "answered")
    made.asked["a"] += 1
    return made


NOTES = ["ran a-1", "ran a-2", "asked a-3 7", "heard a-3", "ran a-3"]


def faults(books: Books, notes: list[str] = NOTES) -> list[str]:
    return books.faults(ServerNotes("\n".join(notes)))


def test_books_that_balance(books: Books) -> None:
    assert faults(books) == books.shortages(60.0) == []
    assert books.figures()["sessions begun"] == {"a": 1}


def test_calls_that_ran_twice_or_not_at_all(books: Books) -> None:
    assert faults(books, [*NOTES, "ran a-1"]) == ["calls ran twice: 1, such as a-1"]
    (fault,) = faults(books, NOTES[1:])
    assert fault == "calls were answered that did not run: 1, such as a-1"
    books.close("a", "a-4", "record", "not run: it says so")
    (fault,) = faults(books, [*NOTES, "ran a-4"])
    assert "it was said that they did not" in fault


def test_two_outcomes(books: Books) -> None:
    books.close("a", "a-1", "record", "answered")
    assert faults(books) == ["calls had two outcomes: 1, such as a-1"]


def test_an_acknowledged_answer_that_is_lost_unless_its_worker_was_killed(books: Books) -> None:
    books.outcomes["a-3"] = "refused: it ended"
    unheard = NOTES[:3]
    assert faults(books, unheard) == ["acknowledged answers to questions were lost: 1, such as a-3"]
    books.killed.add(7)
    assert faults(books, unheard) == []


def test_the_answer_to_another_question(books: Books) -> None:
    (fault,) = faults(books, [*NOTES, "wrong a-3 a-9"])
    assert "another answer" in fault


def test_progress_that_is_missing(books: Books) -> None:
    books.close("a", "a-5", "count", "answered", STEPS[1:])
    (fault,) = faults(books, [*NOTES, "ran a-5"])
    assert "progress" in fault and "a-5: [2, 3, 4, 5]" in fault


def test_a_client_that_is_deaf_or_began_again(books: Books) -> None:
    books.touched, books.heard["a"] = 5.0, [4.0]
    books.phases["a"] = ["INITIALIZING", OPENED, "INITIALIZING"]
    assert len(faults(books)) == 2
    books.heard["b"] = [4.0, 6.5, 8.0]
    assert books.figures()["seconds until the last change was heard"] == {"a": None, "b": 1.5}


def test_a_kind_of_client_that_did_too_little(books: Books) -> None:
    assert set(books.shortages(120.0)) == {
        "stranger: 1 answered record",
        "stranger: 1 answered count",
        "stranger: 1 answered ask",
        "stranger: 1 questions answered",
        "stranger: 1 streams resumed",
    }

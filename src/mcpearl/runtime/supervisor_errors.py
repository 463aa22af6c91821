"""How a supervisor fails: a child did not start, or its children failed too often."""

from msgspec import Struct


class StartFailed(RuntimeError):
    """A child did not start, so its supervisor did not either."""


class Failure(Struct, frozen=True):
    """A child that ended and had to be restarted."""

    at: float
    """When it ended, in the monotonic time of `runtime.clock`."""
    child: str
    """Its name."""
    error: str
    """Why it ended."""


class GaveUp(RuntimeError):
    """A supervisor stopped because its children failed too often, or a significant one failed.

    `failures` are those within its period, the latest at the end; `__cause__` is the error of the latest.
    """

    def __init__(self, name: str, period: float, failures: tuple[Failure, ...]) -> None:
        last = failures[-1].at
        count = f"{len(failures)} failures" if len(failures) > 1 else "1 failure"
        story = "; ".join(
            f"{each.at - last:+.1f} s `{each.child}`: {each.error}" for each in failures
        )
        super().__init__(f"supervisor `{name}` gave up after {count} within {period:g} s: {story}")
        self.failures = failures

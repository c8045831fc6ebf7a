"""Names of apis and error codes as people write them: checked, with a suggestion where one is misspelt."""

from __future__ import annotations

from collections.abc import Iterable

from kohort.protocol import schema
from kohort.protocol.errors import ErrorCode


def one_of(given: str, known: Iterable[str], what: str) -> str:
    names = list(known)
    if given not in names:
        import difflib  # only where something is misspelt

        nearest = difflib.get_close_matches(str(given), names, n=1, cutoff=0.5)
        raise ValueError(f"{given!r} is no {what}" + (f"; did you mean {nearest[0]}?" if nearest else ""))
    return given


def api_names() -> list[str]:
    return [name.removesuffix("Request") for name in schema.message_names() if name.endswith("Request")]


def api_name(given: str, *others: str) -> str:
    """An api by Kafka's name, or one of `others`."""
    return one_of(given, [*others, *api_names()], "api")


def error_code(given: ErrorCode | str | int | None) -> ErrorCode:
    """An error code by name or number, other than NONE."""
    if isinstance(given, str):
        code = ErrorCode[one_of(given, [code.name for code in ErrorCode], "error code")]
    elif isinstance(given, int) and given in {int(code) for code in ErrorCode}:
        code = ErrorCode(given)
    else:
        raise ValueError(f"{given!r} is no error code: give its name, e.g. COORDINATOR_NOT_AVAILABLE, or its number")
    if code is ErrorCode.NONE:
        raise ValueError("NONE is not a failure")
    return code

"""RE2 expressions of clients, with the extra `regex` (google-re2): what is one, and which names it stands for.

Python's own `re` accepts what RE2 refuses, means other things by it, and can take for ever: without the extra
expressions are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

MISSING = "Subscriptions by regular expression need RE2 in the broker: pip install 'kohort[regex]'."
_MOST_MEMORY = 8 << 20


@lru_cache(maxsize=1)
def _re2() -> Any:
    try:
        return import_module("re2")
    except ImportError:
        return None


@lru_cache(maxsize=1_024)
def _compiled(regex: str) -> Any:
    """The expression, or the sentence that says what is wrong with it."""
    re2 = _re2()
    if re2 is None:
        return MISSING
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    try:
        return re2.compile(regex, options=options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        text = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        return f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."


def problem(regex: str) -> str:
    """Empty where there is none."""
    compiled = _compiled(regex)
    return compiled if isinstance(compiled, str) else ""


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that it stands for as a whole; none where it cannot be used here."""
    compiled = _compiled(regex)
    if isinstance(compiled, str):
        return frozenset()
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)

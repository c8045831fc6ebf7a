"""Where a consumer's application is, and its search for positions: states and legal moves. Tables only."""

from __future__ import annotations

from enum import Enum


class Application(Enum):
    """Where the application is, which decides when it can be asked for something."""

    AWAY = "it works on what it was given"
    POLLING = "it waits in poll()"
    ACTING = "it gives partitions up or takes them over"
    LEAVING = "it waits for the consumer to leave the group"


APPLICATION_MOVES: dict[Application, frozenset[Application]] = {
    Application.AWAY: frozenset({Application.POLLING, Application.LEAVING}),
    Application.POLLING: frozenset({Application.AWAY, Application.ACTING, Application.LEAVING}),
    Application.ACTING: frozenset({Application.AWAY, Application.LEAVING}),
    Application.LEAVING: frozenset({Application.AWAY, Application.ACTING}),
}


class Lookup(Enum):
    """The search for the positions of newly assigned partitions."""

    IDLE = "none is missing, or it begins at once"
    ASKING = "the group's commits are asked for"
    FAILED = "the application hears of it; the next poll() begins anew"


LOOKUP_MOVES: dict[Lookup, frozenset[Lookup]] = {
    Lookup.IDLE: frozenset({Lookup.ASKING}),
    Lookup.ASKING: frozenset({Lookup.IDLE, Lookup.FAILED}),
    Lookup.FAILED: frozenset({Lookup.IDLE}),
}

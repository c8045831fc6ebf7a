"""The log of `kohort serve`: what comes too often is counted."""

import logging

import pytest

from kohort.cli.serve_logging import LINES_A_WINDOW, WINDOW_S, Flood


@pytest.fixture
def logged():
    lines, now = [], [0.0]

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    handler, flood = Keep(), Flood(lambda: now[0])
    handler.addFilter(flood)
    logger = logging.getLogger("flooded")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, lines, now, flood
    logger.removeHandler(handler)


def test_a_warning_that_comes_again_and_again_is_counted(logged):
    logger, lines, now, _ = logged
    for number in range(1000):
        logger.warning("closing the connection of %s", number)
    logger.error("something else")
    assert lines == [*(f"closing the connection of {number}" for number in range(LINES_A_WINDOW)), "something else"]
    now[0] += WINDOW_S
    logger.error("something else")
    assert lines[-2:] == [
        f"{1000 - LINES_A_WINDOW} more like it within 10 s: closing the connection of 0",
        "something else",
    ]
    logger.warning("closing the connection of %s", 7)
    assert lines[-1] == "closing the connection of 7", "a new window"


def test_what_was_left_out_is_said_at_the_end(logged):
    logger, lines, _, flood = logged
    for _ in range(LINES_A_WINDOW + 1):
        logger.error("no space")
    flood.flush()
    assert lines[-1] == "1 more like it within 10 s: no space"


def test_lines_that_are_no_warnings_are_all_written(logged):
    logger, lines, _, _ = logged
    for _ in range(500):
        logger.info("rebalance done")
    assert len(lines) == 500

"""`kohort schemes`: the four ways of coordinating a group put through the same changes, as a table or JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Annotated

import typer

from kohort.cli.failures import WrongInput
from kohort.cli.output import JsonOption, print_json, print_table
from kohort.cli.style import command, new_app
from kohort.schemes.compare import ALL_JOIN, CUT, CUT_MS, JOIN, LAG, SCHEMES, WINDOW_MS, Outcome, compare
from kohort.schemes.divided import MEMBERS, Loss, lose_one
from kohort.schemes.zookeeper import SYNC_LIMIT_MS

app = new_app()

MESSAGES = ("notifications", "reads", "writes", "requests")
WRONG = ("views-differ-ms", "no-reader-ms", "standstill-ms", "two-readers-ms")


@command(app)
def schemes(
    members: Annotated[str, typer.Option(help="Sizes of the group, with commas between.")] = "3,10,30",
    seed: Annotated[int, typer.Option(help="Draws delays, names and who leaves.", min=0)] = 0,
    lag_ms: Annotated[
        int, typer.Option(help="How long a ZooKeeper follower falls behind.", min=0, max=SYNC_LIMIT_MS)
    ] = SYNC_LIMIT_MS,
    by_change: Annotated[bool, typer.Option("--by-change", help="Print a row for every change instead.")] = False,
    groups: Annotated[
        int | None,
        typer.Option(help="Print instead what happens to so many groups on three brokers, one of which dies.", min=1),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the four ways in which Kafka has coordinated groups: herd effect and split brain, measured.

    "watchers" is Kafka 0.8, where every consumer watches ZooKeeper and decides for itself; "server coordinator" is a
    broker that watches ZooKeeper and assigns; "today" is this broker and this consumer, "next" the same with
    group.protocol=consumer, where the broker assigns again. Each is put through the same changes in virtual time; the
    same seed always gives the same figures.
    """
    logging.disable(logging.CRITICAL)
    if groups is not None:
        _print_losses(list(lose_one(groups, seed)), as_json)
        return
    outcomes = list(compare(_sizes(members), seed, lag_ms))
    if as_json:
        print_json([outcome.to_dict() for outcome in outcomes])
    elif by_change:
        _print_changes(outcomes)
    else:
        _print_comparison(outcomes, lag_ms)


def _print_losses(losses: list[Loss], as_json: bool) -> None:
    if as_json:
        print_json([loss.to_dict() for loss in losses])
        return
    print(f"{losses[0].groups} groups of {MEMBERS} on three brokers, one of which dies:")
    columns = ("coordinators", "its-own-groups", "groups-that-rebalance", "of-others", "coordinated-after-ms")
    rows = ((o.coordinators, o.its_own, o.rebalanced, o.others_rebalanced, o.coordinated_after_ms) for o in losses)
    print_table(("scheme", *columns), ((loss.scheme, *row) for loss, row in zip(losses, rows, strict=True)))
    print("of-others are those that another broker coordinates, which has not died.")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 2:
        raise WrongInput(f"--members takes sizes from 2 on, such as 3,10,30, not {text!r}")
    return sizes


def _print_comparison(outcomes: list[Outcome], lag_ms: int) -> None:
    found = {(o.scheme, o.members, o.change): o for o in outcomes}
    groups = [(o.scheme, o.members) for o in outcomes if o.change == JOIN]
    print("One more consumer joins, as the last of so many:")
    print_table(
        ("scheme", "members", *MESSAGES, "agreed-after-ms", "standstill-ms", "messages-of-all-joins"),
        (
            (
                *(*group, *_messages(found[*group, JOIN]), _agreed(found[*group, JOIN])),
                *(found[*group, JOIN].tally.standstill_ms, found[*group, ALL_JOIN].messages),
            )
            for group in groups
        ),
    )
    print("standstill-ms is the time in which a partition had no reader, added up over the partitions.")
    print(f"\nA consumer joins while a ZooKeeper follower is {lag_ms / 1000:g} s behind; then another consumer")
    print(f"is cut off from whoever coordinates for {CUT_MS // 1000} s, but not from the brokers it reads from:")
    print_table(
        ("scheme", "members", "views-differ-ms", "gave-up", "unread-after-60-s", "two-readers-ms", "stale-commits"),
        ((*group, *_wrong(found[*group, LAG], found[*group, CUT])) for group in groups),
    )
    print()
    for line in _lessons(found, max(members for _, members in groups)):
        print(line)


def _messages(outcome: Outcome) -> tuple[int, ...]:
    return tuple(getattr(outcome.tally, name) for name in MESSAGES)


def _agreed(outcome: Outcome) -> int | str:
    return f"not in {WINDOW_MS // 1000} s" if outcome.agreed_after_ms is None else outcome.agreed_after_ms


def _wrong(lag: Outcome, cut: Outcome) -> tuple[int, ...]:
    return lag.tally.disagreeing_ms, lag.tally.gave_up, lag.unread, cut.tally.two_readers_ms, cut.tally.stale_commits


def _lessons(found: dict[tuple[str, int, str], Outcome], members: int) -> Iterable[str]:
    """A line a scheme, with what was measured at the largest size."""
    watchers, server, today, following = (
        (found[scheme, members, JOIN], found[scheme, members, LAG], found[scheme, members, CUT]) for scheme in SCHEMES
    )
    join, lag, _ = watchers
    yield (
        f"watchers: every consumer hears of every change and reads the whole group, {join.tally.reads} reads for one"
        f" join of {members}; where servers differ, consumers decide by different groups: {lag.tally.gave_up} gave up,"
        f" {lag.unread} partitions left unread."
    )
    join, lag, cut = server
    yield (
        f"server coordinator: one watcher, {join.tally.reads} reads, and one view of the group, if at times a late one"
        f" ({_agreed(lag)} ms behind a lagging follower); a commit cannot be told from a stale one"
        f" ({cut.tally.stale_commits} stored)."
    )
    join, _, cut = today
    yield (
        f"today: no ZooKeeper, {join.tally.requests} requests for the same join; who is cut off may still read for"
        f" {cut.tally.two_readers_ms} ms what another has got, but its generation is over: {cut.tally.stale_commits}"
        " stale commits stored."
    )
    join, _, cut = following
    yield (
        f"next: {join.tally.requests} requests for the same join, of those who are concerned; partitions stood still"
        f" for {join.tally.standstill_ms} ms in all, {today[0].tally.standstill_ms} ms today; who is cut off has an"
        f" old epoch: {cut.tally.stale_commits} stale commits stored."
    )


def _print_changes(outcomes: list[Outcome]) -> None:
    print_table(
        ("scheme", "members", "what-happens", *MESSAGES, "agreed-after-ms", *WRONG, "unread", "stale-commits"),
        (
            (
                *(o.scheme, o.members, o.change),
                *_messages(o),
                _agreed(o),
                *(
                    o.tally.disagreeing_ms,
                    o.tally.no_reader_ms,
                    o.tally.standstill_ms,
                    o.tally.two_readers_ms,
                    o.unread,
                    o.tally.stale_commits,
                ),
            )
            for o in outcomes
        ),
    )

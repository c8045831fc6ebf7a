"""The end of the demo in words: what was proved, what was read twice and why, how long the group stood still. Pure."""

from __future__ import annotations

from kohort.coordinator.events import GroupEvent, MemberEvicted, RebalanceCompleted
from kohort.demo.acts import Result
from kohort.demo.proof import Proof
from kohort.demo.screen import cause_of
from kohort.insight.rebalances import from_events


def part_lines(group_id: str, result: Result, source: str) -> list[str]:
    return [
        f"Group {group_id!r}, from the coordinator's events:",
        *rebalance_lines(result.events),
        *takeover_lines(result.events, result.victim, result.killed_ms),
        f"The orders, from {source}:",
        *proof_lines(result.proof, result.victim),
    ]


def rebalance_lines(events: list[GroupEvent]) -> list[str]:
    lines = ["  generation  members  stood still  because"]
    for rebalance in from_events(events).rebalances:
        still = "-" if rebalance.standstill_ms is None else f"{rebalance.standstill_ms:,} ms"
        lines.append(
            f"  {rebalance.generation or 0:>10}  {rebalance.members or 0:>7}  {still:>11}  {cause_of(rebalance)}"
        )
    return lines


def takeover_lines(events: list[GroupEvent], victim: str, killed_ms: int) -> list[str]:
    """From the kill to the next assignment: what a crash costs, and what of it was waiting for silence."""
    evicted = next((e.at_ms for e in events if isinstance(e, MemberEvicted) and e.client_id == victim), None)
    if evicted is None:
        return [f"  {victim} was killed and never evicted"]
    done = next((e.at_ms for e in events if isinstance(e, RebalanceCompleted) and e.at_ms >= evicted), evicted)
    return [
        f"  After kill -9 the partitions of {victim} had no reader for {done - killed_ms:,} ms: "
        f"{evicted - killed_ms:,} ms until",
        f"  its silence was noticed (session.timeout.ms), then {done - evicted:,} ms of rebalance.",
    ]


def proof_lines(proof: Proof, victim: str) -> list[str]:
    lines = [f"  {proof.sold:,} orders sold, {proof.read:,} read: {_skipped(proof)}."]
    if proof.twice:
        who = ", ".join(f"{count:,} first by {name}" for name, count in proof.first_readers().most_common())
        lines += [
            f"  {len(proof.twice):,} read twice ({who}): written, but not yet committed at the kill.",
            "  The promise is at-least-once: a commit follows the write, so a crash repeats orders and loses none.",
        ]
    else:
        lines.append(f"  None read twice: {victim} happened to have committed all it had written when it was killed.")
    if proof.without_need:
        lines.append(f"  BROKEN: {len(proof.without_need):,} were read again although they had been committed.")
    if proof.strange:
        lines.append(f"  BROKEN: {proof.strange:,} orders do not add up with what the shop sold.")
    return lines


def _skipped(proof: Proof) -> str:
    if not proof.skipped:
        return "none skipped"
    places = ", ".join(f"partition {p} offset {o}" for p, o in proof.skipped[:5])
    return f"BROKEN: {len(proof.skipped):,} SKIPPED ({places}...)"

"""The end of the demo in words: what was proved, what was read twice and why, how long the group stood still. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kohort.coordinator.rebalances import from_events
from kohort.demo.proof import Proof
from kohort.demo.screen import cause_of


def rebalance_lines(events: list[dict[str, Any]]) -> list[str]:
    lines = ["  generation  members  stood still  because"]
    for rebalance in from_events(events).rebalances:
        still = "-" if rebalance.standstill_ms is None else f"{rebalance.standstill_ms:,} ms"
        lines.append(
            f"  {rebalance.generation or 0:>10}  {rebalance.members or 0:>7}  {still:>11}  {cause_of(rebalance)}"
        )
    return lines


def takeover_line(events: list[dict[str, Any]], victim: str, killed_ms: int) -> str:
    """From the kill to the next assignment: what a crash costs, and what of it was waiting for silence."""
    evicted = next((e["at_ms"] for e in events if e["type"] == "MemberEvicted" and e.get("client_id") == victim), None)
    if evicted is None:
        return f"  {victim} was killed and never evicted"
    done = next((e["at_ms"] for e in events if e["type"] == "RebalanceCompleted" and e["at_ms"] >= evicted), evicted)
    return (
        f"  {victim}'s partitions had no reader for {done - killed_ms:,} ms after kill -9: {evicted - killed_ms:,} ms "
        f"until its silence was noticed, {done - evicted:,} ms of rebalance"
    )


def proof_lines(proof: Proof, victim: str, source: str, promise: str) -> list[str]:
    lines = [f"  {proof.sold:,} orders sold, {proof.read:,} read (from {source}): {_skipped(proof)}"]
    if proof.twice:
        shares = proof.first_readers()
        who = ", ".join(f"{count:,} of {name}'s" for name, count in shares.most_common())
        lines.append(f"  {len(proof.twice):,} read twice ({who}): {promise}")
    else:
        lines.append(f"  none read twice: {victim} happened to have committed all it had written when it was killed")
    if proof.without_need:
        lines.append(f"  BROKEN: {len(proof.without_need):,} were read again although they had been committed")
    if proof.strange:
        lines.append(f"  BROKEN: {proof.strange:,} orders do not add up with what the shop sold")
    return lines


def _skipped(proof: Proof) -> str:
    if not proof.skipped:
        return "none skipped"
    places = ", ".join(f"partition {p} offset {o}" for p, o in proof.skipped[:5])
    return f"BROKEN: {len(proof.skipped):,} SKIPPED ({places}...)"


def count_lines(by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in by_name.items())

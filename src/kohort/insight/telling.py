"""A rebalance told in plain words: who did what, what it led to, and how long nobody read. Pure.

`groups explain`, the console and the reports all tell it with these words.
"""

from __future__ import annotations

from kohort.insight.rebalances import Rebalance, Trigger
from kohort.insight.wording import human_ms, plural, printable


def tell(rebalance: Rebalance, now_ms: int) -> str:
    causes = sentence(rebalance.triggers)
    if rebalance.open:
        waiting = (
            f", waiting for {', '.join(printable(who) for who in rebalance.waiting_for)}"
            if rebalance.waiting_for
            else ""
        )
        what = f"move to epoch {rebalance.generation}" if rebalance.is_modern else "rebalance"
        return f"{causes} The {what} is still under way after {human_ms(now_ms - rebalance.started_ms)}{waiting}."
    if rebalance.members == 0:
        return f"{causes} The group was empty from then on."
    word = "epoch" if rebalance.is_modern else "generation"
    to = f"{word} {rebalance.generation}" if rebalance.generation is not None else "a new assignment"
    result = f"That led to {to} with {plural(rebalance.members or 0, 'member')}"
    if rebalance.standstill_ms is None:
        return f"{causes} {result}."
    verb = "took" if rebalance.cooperative else "stood still for"
    subject = "the rebalance" if rebalance.cooperative else "the group"
    if rebalance.is_modern:
        subject = "the hand-over"
    parts = _first_join(rebalance) if rebalance.initial_delay_ms else _slowest(rebalance)
    return f"{causes} {result}; {subject} {verb} {human_ms(rebalance.standstill_ms)}{parts}."


def _slowest(rebalance: Rebalance) -> str:
    if rebalance.last_back is None or (rebalance.last_back_after_ms or 0) < 1000:
        return ""
    came = "reached it" if rebalance.is_modern else "came back"
    return f"; {printable(rebalance.last_back)} {came} last, after {human_ms(rebalance.last_back_after_ms or 0)}"


def _first_join(rebalance: Rebalance) -> str:
    """Where the time of an empty group's first join went: in waiting for company first of all."""
    joined_ms = rebalance.joined_after_ms
    if joined_ms is None or rebalance.standstill_ms is None:
        return ""
    initial_ms = rebalance.initial_delay_ms or 0
    delay = f"group.initial.rebalance.delay.ms is {human_ms(initial_ms)}"
    in_company = (rebalance.members or 0) > 1  # a timer that was late is no company
    if joined_ms > initial_ms and in_company:
        delay += ", and began again while members came"
    if rebalance.last_back is not None and in_company:
        delay += f"; {printable(rebalance.last_back)} came last, after {human_ms(rebalance.last_back_after_ms or 0)}"
    assigning_ms = rebalance.standstill_ms - joined_ms
    return f": {human_ms(joined_ms)} waiting for more members ({delay}), {human_ms(assigning_ms)} for the assignment"


def sentence(triggers: list[Trigger]) -> str:
    """Who did what; equal doings are told together."""
    by_text: dict[str, list[str]] = {}
    for trigger in triggers:
        who = printable(trigger.who) if trigger.who else ""
        by_text.setdefault(printable(trigger.text), []).append(who)
    parts = []
    for text, names in by_text.items():
        named = list(dict.fromkeys(name for name in names if name))
        names_of = ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
        times = f" ({len(names)} members)" if len(names) > len(named) > 0 else ""
        if len(names) > 1 and text.startswith("was "):
            text = f"were {text[4:]}"
        parts.append(f"{names_of}{times} {text}".strip())
    joined = "; ".join(parts)
    return f"{joined[:1].upper()}{joined[1:]}." if joined and not triggers[0].who else f"{joined}."

"""What is wrong with a group and what to change, from its past and one look at its present. A pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.coordinator.causes import CauseKind, Who
from kohort.insight.claims import polled_late
from kohort.insight.patterns import FLAP_WINDOW_MS, FLAPS, STORM_COUNT, STORM_WINDOW_MS, busiest, counted, exits
from kohort.insight.rebalances import History, Rebalance, Refusal, Trigger
from kohort.insight.sentences import seconds, verb
from kohort.insight.waiting import Wait
from kohort.insight.waiting import told as told_waits

LONG_STANDSTILL_MS = 10_000
LAG_THAT_MATTERS = 1_000
LAG_SHARE = 0.8
RECENT_MS = 60 * 60_000
EAGER = ("range", "roundrobin", "sticky")

PROBLEM, WARNING, NOTE = "problem", "warning", "note"


class Finding(NamedTuple):
    """A pattern: what is seen (`text`), and what to change (`advice`)."""

    kind: str
    severity: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Present:
    """The group as it is now. `assigned` and `lags` are by member id and by partition."""

    state: str
    protocol: str = ""
    members: Mapping[str, Who] = field(default_factory=dict)
    subscriptions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    assigned: Mapping[str, int] = field(default_factory=dict)
    lags: Mapping[tuple[str, int], int] = field(default_factory=dict)
    owners: Mapping[tuple[str, int], str] = field(default_factory=dict)
    waits: Sequence[Wait] = ()


def diagnose(history: History, present: Present, now_ms: int) -> list[Finding]:
    """The worst first. What is older than an hour is past."""
    recent = [r for r in history.rebalances if (r.completed_ms or now_ms) >= now_ms - RECENT_MS]
    refusals = [refusal for refusal in history.refusals if refusal.at_ms >= now_ms - RECENT_MS]
    flapping, storm = _flapping(recent), _storm(recent, present)
    if flapping and storm and storm[0].severity == NOTE:
        storm = []  # not a start: the same client over and over
    found = [
        *_under_way(recent, present, now_ms),
        *_no_target(history),
        *storm,
        *flapping,
        *_late_polls(recent),
        *_timeouts(recent),
        *_refused_commits(refusals),
        *_refused_joins(refusals),
        *_fenced(refusals),
        *_standstill(recent, present),
        *_store_failures(recent),
        *_skew(present),
        *_lag(present),
        *_abandoned(present),
    ]
    order = {PROBLEM: 0, WARNING: 1, NOTE: 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _names(whos: Iterable[Who]) -> str:
    names = list(dict.fromkeys(map(str, whos)))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _triggers(rebalances: Iterable[Rebalance], *kinds: CauseKind) -> list[Trigger]:
    return [trigger for rebalance in rebalances for trigger in rebalance.triggers if trigger.kind in kinds]


# -- rebalances -------------------------------------------------------------------------------------------------------


def _under_way(rebalances: list[Rebalance], present: Present, now_ms: int) -> list[Finding]:
    open_ = [rebalances[-1]] if rebalances and rebalances[-1].open else []
    if present.waits or (open_ and open_[0].is_modern):
        return _handing_over(open_, present, now_ms)
    if not open_:
        return []
    last = rebalances[-1]
    age_ms = now_ms - last.started_ms
    limit = f" They have {seconds(last.rebalance_timeout_ms)} in all." if last.rebalance_timeout_ms else ""
    waits = f" It waits for {_names(last.waiting_for)} to rejoin.{limit}" if last.waiting_for else ""
    text = f"A rebalance has been under way for {seconds(age_ms)}.{waits}"
    late = last.rebalance_timeout_ms is not None and age_ms > last.rebalance_timeout_ms
    advice = "Members rejoin when their application polls: look at what those that are missing are doing."
    return [Finding("rebalancing", PROBLEM if late or age_ms > LONG_STANDSTILL_MS else NOTE, text, advice)]


def _handing_over(open_: list[Rebalance], present: Present, now_ms: int) -> list[Finding]:
    """KIP-848: who still has what others wait for."""
    age_ms = now_ms - open_[0].started_ms if open_ else 0
    since = f"A move to epoch {open_[0].generation} has been under way for {seconds(age_ms)}. " if open_ else ""
    sentences = told_waits(present.waits)
    more = f" And {len(sentences) - 5} more wait." if len(sentences) > 5 else ""
    text = since + " ".join(f"{sentence}." for sentence in sentences[:5]) + more
    if not sentences:
        text += f"Not there yet: {_names(open_[0].waiting_for)}." if open_[0].waiting_for else ""
    advice = (
        "A member gives partitions up from poll(), and has its max.poll.interval.ms for it; then it is put out. "
        "Look at what those that hold on are doing."
    )
    return [Finding("handing over", PROBLEM if age_ms > LONG_STANDSTILL_MS else NOTE, text.strip(), advice)]


def _no_target(history: History) -> list[Finding]:
    failure = history.target_failure
    if failure is None:
        return []
    text = f"There is no target assignment for the newest epoch: {failure.text}."
    return [Finding("no target", PROBLEM, text, "Mend the assignor, or name another one with group.remote.assignor.")]


def _storm(rebalances: list[Rebalance], present: Present) -> list[Finding]:
    each = counted(rebalances)
    count, first, last = busiest([r.started_ms for r in each], STORM_WINDOW_MS)
    if count < STORM_COUNT:
        return []
    kinds = Counter(t.kind for r in each for t in r.triggers if first <= r.started_ms <= last)
    usual = ", ".join(f"{verb(kind)} {times}x" for kind, times in kinds.most_common(3))
    text = f"A storm: {count} rebalances within {seconds(last - first)} (members {usual})."
    joined = kinds[CauseKind.JOINED]
    if joined and joined == sum(kinds.values()):
        advice = "Members arrive one after the other: start them together, or raise group.initial.rebalance.delay.ms."
        return [Finding("storm", NOTE, text, advice)]
    advice = (
        "Find out why these members come and go; a group.instance.id makes the restart of a member free of rebalances"
    )
    if (present.protocol or rebalances[-1].protocol) in EAGER:
        advice += ", and partition.assignment.strategy=cooperative-sticky lets members keep working meanwhile"
    return [Finding("storm", PROBLEM, text, f"{advice}.")]


def _flapping(rebalances: list[Rebalance]) -> list[Finding]:
    came = _triggers(rebalances, CauseKind.JOINED, CauseKind.REPLACED)
    joins = Counter(trigger.who.identity for trigger in came if trigger.who is not None)
    found = []
    for identity, triggers in exits(rebalances).items():
        count, first, last = busiest([trigger.at_ms for trigger in triggers], FLAP_WINDOW_MS)
        if count >= FLAPS and joins[identity] >= FLAPS - 1:
            how = verb(Counter(trigger.kind for trigger in triggers).most_common(1)[0][0])
            who = triggers[-1].who
            text = f"{who} is flapping: in and out {count} times within {seconds(last - first)} (it {how})."
            advice = (
                "Look into that client's log for crashes and restarts. Under a supervisor, give it a group.instance.id "
                "and a session.timeout.ms longer than its restart."
            )
            found.append(Finding("flapping member", PROBLEM, text, advice))
    return found


def _late_polls(rebalances: list[Rebalance]) -> list[Finding]:
    late = [
        trigger
        for trigger in _triggers(rebalances, CauseKind.LEFT, CauseKind.DID_NOT_REJOIN)
        if trigger.kind is CauseKind.DID_NOT_REJOIN or polled_late(trigger.cause)
    ]
    if not late:
        return []
    times = f"{len(late)} times" if len(late) > 1 else "once"
    timeouts = [t.cause.timeout_ms for t in reversed(late) if t.cause.timeout_ms]
    limit = f" of {seconds(timeouts[0])}" if timeouts else ""
    text = (
        f"The poll interval is too short for the work: {_names(t.who for t in late if t.who)} did not poll in time "
        f"and lost its partitions {times} (max.poll.interval.ms{limit})."
    )
    advice = (
        "Take fewer records at a time (max.poll.records), make the work on them shorter, or raise max.poll.interval.ms."
    )
    return [Finding("poll interval too short", PROBLEM, text, advice)]


def _timeouts(rebalances: list[Rebalance]) -> list[Finding]:
    silent = _triggers(rebalances, CauseKind.TIMED_OUT)
    if not silent:
        return []
    rejoined = {t.who.identity: t.at_ms for t in _triggers(rebalances, CauseKind.JOINED) if t.who is not None}
    back = [t for t in silent if t.who is not None and rejoined.get(t.who.identity, -1) > t.at_ms]
    timeout_ms = silent[-1].cause.timeout_ms
    after = seconds(timeout_ms) if timeout_ms else "its session timeout"
    if back:
        names = _names(t.who for t in back if t.who)
        text = f"{names} went silent for {after} and came back: paused, cut off, or restarted."
        advice = (
            "Look for long pauses (garbage collection, a busy event loop, a suspended machine) and network loss; raise "
            "session.timeout.ms if they cannot be avoided."
        )
    else:
        text = f"{_names(t.who for t in silent if t.who)} crashed or was cut off: the group noticed after {after}."
        advice = "Close consumers on shutdown, so that they leave at once; a lower session.timeout.ms notices earlier."
    return [Finding("session timeout", WARNING, text, advice)]


def _standstill(rebalances: list[Rebalance], present: Present) -> list[Finding]:
    timed = [
        r
        for r in rebalances
        if r.standstill_ms is not None and r.standstill_ms >= LONG_STANDSTILL_MS and not r.is_modern
    ]
    if not timed:
        return []
    worst = max(timed, key=lambda r: r.standstill_ms or 0)
    assert worst.standstill_ms is not None
    who = (
        f"; the last to rejoin was {worst.last_back} after {seconds(worst.last_back_after_ms or 0)}"
        if worst.last_back
        else ""
    )
    text = f"The group stood still for {seconds(worst.standstill_ms)} in one rebalance{who}."
    advice = "Members rejoin from poll(): poll more often (a lower max.poll.records)"
    if (present.protocol or worst.protocol) in EAGER:
        advice += ", or use cooperative-sticky, with which partitions that do not move go on being read"
    return [Finding("long standstill", WARNING, text, f"{advice}.")]


def _store_failures(rebalances: list[Rebalance]) -> list[Finding]:
    failures = _triggers(rebalances, CauseKind.STORE_FAILED)
    if not failures:
        return []
    text = f"Assignments could not be stored {len(failures)} times: {failures[-1].text}."
    return [Finding("store failed", PROBLEM, text, "Look at the broker's disk and log, and at __consumer_offsets.")]


# -- refusals ---------------------------------------------------------------------------------------------------------


def _refused_commits(refusals: list[Refusal]) -> list[Finding]:
    commits = [refusal for refusal in refusals if refusal.what == "commit"]
    if not commits:
        return []
    errors = ", ".join(f"{error} {count}x" for error, count in Counter(c.error for c in commits).most_common())
    text = (
        f"Commits are failing: {len(commits)} were refused ({errors}), from {_names(c.who for c in commits)}. "
        "What was read since the commit before is read again."
    )
    advice = (
        "The committer had lost its partitions: commit in on_partitions_revoked, and keep the work between two polls "
        "shorter than max.poll.interval.ms."
    )
    return [Finding("commits failing", PROBLEM if len(commits) >= FLAPS else WARNING, text, advice)]


_JOIN_ADVICE = {
    "INCONSISTENT_GROUP_PROTOCOL": "All members need one assignor in common: change partition.assignment.strategy in "
    "two rolling restarts, and use another group.id for another kind of application.",
    "GROUP_MAX_SIZE_REACHED": "The group is full: raise the broker's group.max.size, or start fewer members.",
    "INVALID_SESSION_TIMEOUT": "Choose a session.timeout.ms between the broker's group.min.session.timeout.ms and "
    "group.max.session.timeout.ms.",
    "UNKNOWN_MEMBER_ID": "A member came back after the group had put it out; it joins anew by itself.",
}


def _refused_joins(refusals: list[Refusal]) -> list[Finding]:
    found = []
    errors: dict[str, list[Who]] = {}
    for refusal in refusals:
        if refusal.what == "join" and refusal.error != "UNKNOWN_MEMBER_ID":
            errors.setdefault(refusal.error, []).append(refusal.who)
    for error, whos in errors.items():
        text = f"{_names(whos)} could not join: {error}, {len(whos)}x."
        advice = _JOIN_ADVICE.get(error, "The name of the error says why; the client's log has more.")
        found.append(Finding("joins refused", PROBLEM, text, advice))
    return found


def _fenced(refusals: list[Refusal]) -> list[Finding]:
    fenced = [refusal.who for refusal in refusals if refusal.what == "fenced"]
    if not fenced:
        return []
    names = ", ".join(sorted({who.instance_id or str(who) for who in fenced}))
    text = f"Two processes use the same group.instance.id: {names}. The older one was fenced {len(fenced)}x."
    return [Finding("fenced member", PROBLEM, text, "Give every process a group.instance.id of its own.")]


# -- the present ------------------------------------------------------------------------------------------------------


def _skew(present: Present) -> list[Finding]:
    counts = dict(present.assigned)
    if len(counts) < 2 or not sum(counts.values()):
        return []
    idle = [present.members[m] for m, count in counts.items() if count == 0 and m in present.members]
    if idle:
        text = f"{len(idle)} of {len(counts)} members have no partition: {_names(idle)}."
        advice = "There are more members than partitions: add partitions, or stop what idles (or keep it as a spare)."
        return [Finding("idle members", NOTE, text, advice)]
    most, least = max(counts.values()), min(counts.values())
    if most - least < 2 or most < 2 * least:
        return []
    who = next(present.members[m] for m, count in counts.items() if count == most and m in present.members)
    text = f"Skew: {who} has {most} partitions, others as few as {least}."
    advice = "All members should subscribe to the same topics."
    if present.protocol == "range" and len(set(present.subscriptions.values())) == 1:
        advice = "range divides topic by topic and favours the first members: use cooperative-sticky or roundrobin."
    return [Finding("skew", WARNING, text, advice)]


def _lag(present: Present) -> list[Finding]:
    total = sum(present.lags.values())
    if total < LAG_THAT_MATTERS or len(present.lags) < 2:
        return []
    tp, most = max(present.lags.items(), key=lambda item: item[1])
    if most < LAG_SHARE * total:
        return []
    owner = present.members.get(present.owners.get(tp, ""))
    text = f"Skew: {tp[0]}-{tp[1]} has {most} of the {total} records of lag" + (
        f"; it belongs to {owner}." if owner else "."
    )
    advice = (
        "Either its reader is stuck (look at that client), or one key gets most records (look at the producers' keys)."
    )
    return [Finding("lag skew", WARNING, text, advice)]


def _abandoned(present: Present) -> list[Finding]:
    total = sum(present.lags.values())
    if present.state != "Empty" or not total:
        return []
    text = f"Nobody reads: the group has no members and {total} records of lag."
    advice = "Start its consumers; delete the group if it is no longer needed."
    return [Finding("no members", WARNING, text, advice)]

"""Writes the parts of docs/ that are made from the code: `python tools/make_docs.py`; `--check` tells what is stale.

Whole files, and blocks of files between `<!-- NAME: made by tools/make_docs.py -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import behaviours
import kohort
from kohort.broker import metrics, reference
from kohort.client.config import SETTINGS
from kohort.client.producer_config import PRODUCER_SETTINGS
from kohort.coordinator.causes import Cause, CauseKind, Who
from kohort.coordinator.classic import states
from kohort.coordinator.classic.states import TRANSITIONS, GroupState
from kohort.coordinator.event_json import TYPES
from kohort.coordinator.events import GroupEvent, MemberEvent
from kohort.insight.sentences import told, why
from kohort.protocol import messages
from kohort.protocol.apis import ApiKey

DOCS = Path(__file__).resolve().parent.parent / "docs"

MEANING = {
    GroupState.EMPTY: "no members; offsets stay until they expire",
    GroupState.PREPARING_REBALANCE: "joins are parked until everybody is in, or the rebalance timeout is over",
    GroupState.COMPLETING_REBALANCE: "syncs are parked until the leader's assignment is stored",
    GroupState.STABLE: "everybody has an assignment",
    GroupState.DEAD: "deleted, or moved to another coordinator; final",
}
WHY = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE): "a member joins",
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE): "all are in, or time is up",
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY): "all have left",
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE): "the assignment is stored",
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE): "a member joins, leaves or is lost",
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE): "a member joins, leaves, is lost or changes",
}
REQUESTS = {
    "JoinGroup, known member": states.JOIN,
    "JoinGroup, new member": states.JOIN_NEW,
    "SyncGroup": states.SYNC,
    "Heartbeat": states.HEARTBEAT,
    "LeaveGroup": states.LEAVE,
    "OffsetCommit, member": states.COMMIT,
    "OffsetCommit, no member": states.COMMIT_SIMPLE,
    "OffsetDelete": states.OFFSET_DELETE,
    "DeleteGroups": states.DELETE_GROUP,
}


def state_diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> Empty"]
    for state, targets in TRANSITIONS.items():
        for target in GroupState:
            if target not in targets or target is state:
                continue
            why = WHY.get((state, target), "deleted or moved away")
            lines.append(f"    {state.value} --> {target.value}: {why}")
    lines += ["    Dead --> [*]", "```", "", "| state | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {state.value} | {MEANING[state]} |" for state in GroupState)])


def answers() -> str:
    """What a request gets per state, once group, member and generation fit."""
    names = [state.value for state in GroupState]
    lines = [f"| request | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for request, table in REQUESTS.items():
        cells = ["served" if not table[state] else f"`{table[state].name}`" for state in GroupState]
        lines.append(f"| {request} | {' | '.join(cells)} |")
    return "\n".join(lines)


def metrics_table() -> str:
    rows = [(name, "", doc) for name, doc in metrics.SIMPLE.items()]
    rows += [(name, ", ".join(labels), doc) for name, (doc, labels) in metrics.LABELLED.items()]
    rows += [(metrics.LATENCY[0], "request", metrics.LATENCY[1] + " Histogram.")]
    rows += [(metrics.REBALANCE[0], "", metrics.REBALANCE[1] + " Histogram.")]
    return _table(("name", "labels", ""), ((f"`{name}`", labels, doc) for name, labels, doc in sorted(rows)))


def events_table() -> str:
    common = {field.name for field in fields(GroupEvent)}
    of_members = {field.name for field in fields(MemberEvent)}

    def row(name: str, kind: type[GroupEvent]) -> tuple[str, str, str]:
        known = of_members if issubclass(kind, MemberEvent) else common
        names = [f"`{field.name}`" for field in fields(kind) if field.name not in known]
        who = ["the member's"] if issubclass(kind, MemberEvent) else []
        doc = "" if (kind.__doc__ or "").startswith(f"{name}(") else inspect.getdoc(kind) or ""
        return f"`{name}`", ", ".join(who + names), doc.replace("`", "")

    return _table(("type", "fields beside the common ones", ""), (row(*item) for item in TYPES.items()))


def kinds_table() -> str:
    example = {"said": "because", "state": "Stable", "generation": 7, "timeout_ms": 45_000, "size": 12, "limit": 10}
    rows = []
    for kind in CauseKind:
        cause = Cause(kind, (Who("m-1", "i-1", "carol"),), error="NOT_COORDINATOR", raw="{...}", **example)
        rows.append((f"`{kind.value}`", why(cause), told(cause) if told(cause) != why(cause) else ""))
    return _table(("kind", "in a log line, such as", "in `explain`, after the member's name"), rows)


@cache
def apis() -> str:
    """What a broker says that it serves, beside what Kafka's definitions have."""
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        served = admin.api_versions()
    known = {key.title: getattr(messages, f"{key.title}Request", None) for key in ApiKey}
    rows = []
    for name, (low, high) in served.items():
        all_of = (low, high) == (known[name].MIN_VERSION, known[name].MAX_VERSION)
        rows.append((name, f"{low} to {high}" if low != high else str(low), "all" if all_of else ""))
    missing = ", ".join(name for name, request in known.items() if request is not None and name not in served)
    return "\n".join(
        [
            "# Apis",
            "",
            "What this broker answers to ApiVersions; `kohort apis` shows it of any broker, and of two side by side.",
            "The codec has every message of Kafka 4.3 in every version; the broker serves these:",
            "",
            _table(("api", "versions", "of those in Kafka 4.3"), rows),
            "",
            f"Not served: {missing}.",
            "",
        ]
    )


def configuration() -> str:
    return "\n".join(
        [
            reference.markdown().rstrip(),
            "",
            "## Consumer and Admin",
            "",
            'Given as `kohort.Consumer({"session.timeout.ms": 10_000})` or as keywords, `session_timeout_ms=10_000`.',
            "",
            _settings(SETTINGS),
            "",
            "## Producer",
            "",
            _settings(PRODUCER_SETTINGS),
            "",
            "The options of the Spark source and sink are in [spark.md](spark.md).",
            "",
        ]
    )


def _settings(settings: Mapping[str, Any]) -> str:
    rows = ((f"`{s.name}`", s.kind, _default(s.default), s.doc) for s in sorted(settings.values(), key=_name))
    return _table(("name", "type", "default", ""), rows)


def _name(setting: Any) -> str:
    return setting.name


def _default(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows)
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])


BLOCKS = {
    "events.md": {"events": events_table, "kinds": kinds_table},
    "groups.md": {"state diagram": state_diagram, "answers": answers},
    "operating.md": {"metrics": metrics_table},
}
FILES = {"apis.md": apis, "behaviours.md": behaviours.page, "configuration.md": configuration}


def made() -> dict[Path, str]:
    """Every file as it should be."""
    found = {DOCS / name: make() for name, make in FILES.items()}
    for name, blocks in BLOCKS.items():
        text = (DOCS / name).read_text(encoding="utf-8")
        for block, make in blocks.items():
            begin, end = f"<!-- {block}: made by tools/make_docs.py -->", f"<!-- end {block} -->"
            pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
            if not pattern.search(text):
                raise SystemExit(f"docs/{name} has no block {block!r}")
            content = f"{begin}\n{make()}\n{end}"
            text = pattern.sub(lambda _, content=content: content, text)
        found[DOCS / name] = text
    return found


def main(check: bool) -> int:
    stale = [path for path, text in made().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if not check:
        for path in stale:
            path.write_text(made()[path], encoding="utf-8")
    for path in stale:
        print(f"{'stale' if check else 'wrote'}: docs/{path.name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

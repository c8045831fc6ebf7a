"""What the console may change with --allow-changes: reset offsets, remove a member, delete a group.

Each is a plan first: sentences, rows, and a digest of them. It is executed only with that digest, and only if the same
plan would still be made: what happens is what was shown.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kohort.cli import reset_offsets, times
from kohort.cli.failures import Failed, WrongInput
from kohort.cli.group_report import compact
from kohort.cli.output import plural
from kohort.cli.resetting import Mode
from kohort.console.app import Refused
from kohort.protocol.errors import KafkaError

if TYPE_CHECKING:
    from kohort.cli.target import Target

MODES = ("to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration")
Work = Callable[[Any, dict[str, Any], bool], dict[str, Any]]


class ClusterChanges:
    def __init__(self, target: Target) -> None:
        self._target = target

    async def preview(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(self._run, asked, None)

    async def execute(self, asked: dict[str, Any], plan: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._run, asked, plan)

    def _run(self, asked: dict[str, Any], plan: str | None) -> dict[str, Any]:
        work = _WORK.get(str(asked.get("do")))
        if work is None or not isinstance(asked.get("group"), str) or not asked["group"]:
            raise Refused(400, f"say what to do ({', '.join(_WORK)}) and to which group")
        try:
            with self._target.admin() as admin:
                made = work(admin, asked, False)
                digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:32]
                if plan is None:
                    return made | {"plan": digest}
                if plan != digest:
                    raise Refused(409, "the group has changed since the preview: look again at what would be done")
                work(admin, asked, True)
                return {"done": True, "says": made["says"]}
        except (WrongInput, Failed, KafkaError, TimeoutError, OSError) as error:
            raise Refused(409, str(error)) from None


def _reset(admin: Any, asked: dict[str, Any], execute: bool) -> dict[str, Any]:
    topics = [str(topic) for topic in asked.get("topics") or ()]
    wanted = reset_offsets.Asked(_mode(asked), topics, not topics)
    outcome = reset_offsets.reset(admin, asked["group"], wanted, execute)
    rows = [[tp.topic, tp.partition, outcome.before[tp], after] for tp, after in outcome.after.items()]
    steps = [after - before for tp, after in outcome.after.items() if (before := outcome.before[tp]) is not None]
    again = -sum(step for step in steps if step < 0)
    skipped = sum(step for step in steps if step > 0)
    says = [f"The committed offsets of {plural(len(rows), 'partition')} are set."]
    says += [f"{plural(again, 'record')} will be read again."] if again else []
    says += [f"{plural(skipped, 'record')} will never be read by this group."] if skipped else []
    columns = ["topic", "partition", "before", "after"]
    return {"says": says + outcome.remarks, "columns": columns, "rows": rows}


def _mode(asked: dict[str, Any]) -> Mode:
    name, value = str(asked.get("mode")), str(asked.get("value", ""))
    if name not in MODES:
        raise WrongInput(f"say where to: one of {', '.join(MODES)}")
    if name == "to-datetime":
        return Mode(name, times.parse_time_ms(value))
    if name == "by-duration":
        # To the minute, so that the plan is the same a moment later.
        return Mode(name, int(time.time()) // 60 * 60_000 - times.parse_duration_ms(value))
    if name in ("to-offset", "shift-by"):
        try:
            number = int(value)
        except ValueError:
            raise WrongInput(f"{name} takes a whole number, not {value!r}") from None
        if name == "to-offset" and number < 0:
            raise WrongInput(f"to-offset takes a number from 0, not {number}")
        return Mode(name, number)
    return Mode(name)


def _remove(admin: Any, asked: dict[str, Any], execute: bool) -> dict[str, Any]:
    group = admin.describe_groups([asked["group"]])[asked["group"]]
    found = [member for member in group.members if member.member_id == asked.get("member")]
    if not found:
        raise WrongInput("the group has no such member now")
    member = found[0]
    if execute:
        instance = member.group_instance_id
        who = {"group_instance_ids": [instance]} if instance else {"member_ids": [member.member_id]}
        admin.remove_members(asked["group"], **who, reason="removed from the kohort console")
    name = member.group_instance_id or member.client_id or member.member_id
    held = compact(member.assignment) or "nothing"
    says = [
        f"{name} is put out of the group; it holds {held}.",
        f"The group rebalances, and {plural(len(group.members) - 1, 'member')} will be left.",
        "If its process runs on, it joins again by itself: stop it first to keep it out.",
    ]
    return {"says": says, "columns": [], "rows": []}


def _delete(admin: Any, asked: dict[str, Any], execute: bool) -> dict[str, Any]:
    group = admin.describe_groups([asked["group"]])[asked["group"]]
    if group.state == "Dead":
        raise WrongInput("the group does not exist any more")
    if group.members:
        raise WrongInput(f"the group has {plural(len(group.members), 'member')}: stop its consumers first")
    committed = admin.group_offsets(asked["group"])
    if execute:
        admin.delete_groups([asked["group"]])
    rows = [[tp.topic, tp.partition, None if at is None else at.offset] for tp, at in sorted(committed.items())]
    says = [
        f"The group is deleted, with its committed offsets of {plural(len(rows), 'partition')}.",
        "This cannot be undone: consumers of that name begin where auto.offset.reset says.",
    ]
    return {"says": says, "columns": ["topic", "partition", "committed"], "rows": rows}


_WORK: dict[str, Work] = {"reset-offsets": _reset, "remove-member": _remove, "delete-group": _delete}

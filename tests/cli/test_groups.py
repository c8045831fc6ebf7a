"""`kohort groups` through the command line: list, describe, watch, delete, remove-member, reset-offsets."""

import json

import pytest

import kohort
from cli.conftest import until
from kohort.client import TopicPartition


def commit(admin, group, topic, *offsets):
    admin.alter_group_offsets(group, {TopicPartition(topic, p): offset for p, offset in enumerate(offsets)})


def committed(admin, group, topic):
    found = admin.group_offsets(group, [TopicPartition(topic, p) for p in range(3)])
    return [None if place is None else place.offset for place in found.values()]


@pytest.fixture
def idle(admin, topic):
    """A group without members that has read 4, 5 and 6 records of the topic."""
    group = f"{topic}-idle"
    commit(admin, group, topic, 4, 5, 6)
    return group


# -- describe, list, watch --------------------------------------------------------------------------------------------


def test_describe_a_group_with_members(k, topic, join):
    group = f"{topic}-busy"
    one, two = join(group, topic, client_id="one"), join(group, topic, client_id="two", group_instance_id="static-two")
    until(lambda: one.assigned and two.assigned and len(one.records + two.records) >= 60, "both have partitions")
    one.pause()
    one.consumer.commit()
    (report,) = k("groups", "describe", group, "--json").json()
    assert (report["state"], report["type"], report["protocol"], report["protocol_type"]) == (
        "Stable",
        "classic",
        "range",
        "consumer",
    )
    assert report["generation"] == one.consumer.group_metadata().generation_id
    assert report["coordinator"]["address"] == k.servers
    members = {m["client_id"]: m for m in report["members"]}
    assert members["two"]["instance_id"] == "static-two" and members["one"]["host"] == "127.0.0.1"
    for name, member in (("one", one), ("two", two)):
        assert {(t, p) for t, ps in members[name]["assignment"].items() for p in ps} == member.assigned
    rows = {p["partition"]: p for p in report["partitions"]}
    assert [rows[p]["log_end_offset"] for p in range(3)] == [10, 20, 30]
    for tp in one.assigned:
        assert (rows[tp.partition]["lag"], rows[tp.partition]["client_id"]) == (0, "one")
    text = k("groups", "describe", group).out
    assert f"generation   {report['generation']}\n" in text and "state        Stable, 2 members\n" in text
    assert [group, "Stable", "classic", "consumer"] in k("groups", "list").rows()


def test_lag_is_never_negative_and_offsets_outlive_topics(k, admin, topic, idle):
    commit(admin, idle, topic, 4, 99, 6)
    with kohort.Producer(bootstrap_servers=k.servers) as producer:
        producer.send(f"{topic}-short-lived", b"x").result(60)
    admin.alter_group_offsets(idle, {TopicPartition(f"{topic}-short-lived", 0): 1})
    admin.delete_records({TopicPartition(topic, 0): 2})
    (report,) = k("groups", "describe", idle, "--json").json()
    assert (report["state"], report["generation"], report["members"]) == ("Empty", None, [])
    rows = {(p["topic"], p["partition"]): p for p in report["partitions"]}
    assert [rows[topic, p]["lag"] for p in range(3)] == [6, 0, 24]
    assert report["total_lag"] == 30
    before = rows[f"{topic}-short-lived", 0]
    assert (before["current_offset"], before["log_end_offset"]) == (1, 1)


def test_an_offset_whose_partition_is_gone_is_shown_without_lag():
    from kohort.cli.group_report import _row
    from kohort.client import OffsetAndMetadata

    row = _row(TopicPartition("gone", 0), OffsetAndMetadata(7), None, None)
    assert (row.current_offset, row.log_end_offset, row.lag) == (7, None, None)


def test_describe_parts_and_all_groups(k, topic, idle):
    assert k("groups", "describe", idle, "--state").out.startswith(
        f"group        {idle}\nstate        Empty, 0 members\n"
    )
    assert k("groups", "describe", idle, "--members").out == "no members\n"
    rows = k("groups", "describe", idle, "--offsets").rows()
    assert rows == [[topic, str(p), str(4 + p), str(end), str(end - 4 - p), "-"] for p, end in enumerate((10, 20, 30))]
    everything = k("groups", "describe", "--all-groups", "--json").json()
    assert idle in [report["group"] for report in everything]


def test_list_by_state(k, idle):
    assert idle in k("groups", "list", "--state", "Empty").out
    assert idle not in k("groups", "list", "--state", "Stable").out
    (row,) = [g for g in k("groups", "list", "--json").json() if g["group"] == idle]
    assert row["state"] == "Empty"


def test_watch_in_a_pipe_prints_a_line_per_look(k, idle):
    lines = k("groups", "watch", idle, "--count", "3", "--interval", "0.1").out.splitlines()
    assert len(lines) == 3 and all(f"  {idle}  Empty  generation=-  members=0  lag=45" in line for line in lines)
    looks = k("groups", "watch", idle, "--count", "2", "--interval", "0.1", "--json").out.splitlines()
    assert [json.loads(look)["total_lag"] for look in looks] == [45, 45]


def test_watch_follows_the_generation(k, topic, join):
    group = f"{topic}-followed"
    one = join(group, topic)
    until(lambda: one.assigned, "it has partitions")
    from kohort.cli.group_log import GenerationFollower
    from kohort.cli.target import Target

    with GenerationFollower(Target(k.servers, None, ()), group) as generations:
        assert generations.latest() == one.consumer.group_metadata().generation_id == 1
        assert generations.latest() == 1
        join(group, topic)
        until(lambda: one.consumer.group_metadata().generation_id == 2, "a rebalance")
        until(lambda: generations.latest() == 2, "it is seen")


def test_the_live_picture_of_watch(admin, topic, join):
    from rich.console import Console

    from kohort.cli import watch
    from kohort.cli.group_report import read_report

    group = f"{topic}-watched"
    member = join(group, topic, client_id="eagle")
    until(lambda: len(member.records) >= 60, "everything is read")
    trend = watch.Trend()
    for second in range(2):
        trend.look(report := read_report(admin, group), float(second))
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        console.print(watch.screen(report, trend, 2.0))
    picture = captured.get()
    assert "Stable" in picture and "eagle" in picture and f"{topic}:0-2" in picture and "records/s" in picture
    assert all(len(line) <= 80 for line in picture.splitlines())
    member.close()
    trend.look(read_report(admin, group), 3.0)
    assert any("eagle at 127.0.0.1 is gone" in line for line in trend.events)


# -- reset-offsets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "after"),
    [
        (["--to-earliest"], [0, 0, 0]),
        (["--to-latest"], [10, 20, 30]),
        (["--to-current"], [4, 5, 6]),
        (["--to-offset", "15"], [10, 15, 15]),
        (["--to-datetime", "1970-01-01T00:00:01.012"], [10, 12, 12]),
        (["--by-duration", "PT1H"], [10, 20, 30]),
        (["--by-duration", "P30000D"], [0, 0, 0]),
        (["--shift-by", "-5"], [0, 0, 1]),
        (["--shift-by", "20"], [10, 20, 26]),
    ],
)
def test_reset_offsets(k, admin, topic, idle, mode, after):
    dry = k("groups", "reset-offsets", idle, "--all-topics", *mode, "--json").json()
    assert dry == {"group": idle, "executed": False} | {
        "offsets": [
            {"topic": topic, "partition": p, "before": 4 + p, "after": offset} for p, offset in enumerate(after)
        ]
    }
    assert committed(admin, idle, topic) == [4, 5, 6]
    done = k("groups", "reset-offsets", idle, "--topic", topic, *mode, "--execute")
    assert done.code == 0 and committed(admin, idle, topic) == after
    assert [row[2:4] for row in done.rows()] == [[str(4 + p), str(offset)] for p, offset in enumerate(after)]


def test_reset_from_a_file_that_was_exported(k, admin, topic, idle, tmp_path):
    exported = k("groups", "reset-offsets", idle, "--to-latest", "--topic", f"{topic}:0,2", "--export").out
    assert exported == f"{topic},0,10\n{topic},2,30\n"
    (tmp_path / "plan.csv").write_text(exported)
    plan = str(tmp_path / "plan.csv")
    result = k("groups", "reset-offsets", idle, "--from-file", plan, "--execute")
    assert result.code == 0 and committed(admin, idle, topic) == [10, 5, 30]
    other = f"{idle},{topic},1,7\nsomebody-else,{topic},0,1\n"
    (tmp_path / "plan.csv").write_text(other)
    assert k("groups", "reset-offsets", idle, "--from-file", plan, "--execute").code == 0
    assert committed(admin, idle, topic) == [10, 7, 30]


def test_reset_says_what_it_does(k, topic, idle):
    result = k("groups", "reset-offsets", idle, "--to-offset", "25", "--topic", topic)
    assert f"{topic}-0: 25 is not in the log, so the last offset 10 is used" in result.err
    assert "this was a dry run, nothing is changed; add --execute" in result.err


def test_reset_of_a_new_group_and_of_single_partitions(k, admin, topic):
    result = k("groups", "reset-offsets", f"{topic}-new", "--to-earliest", "--topic", f"{topic}:1", "--execute")
    assert result.code == 0 and committed(admin, f"{topic}-new", topic) == [None, 0, None]


def test_reset_of_an_active_group_is_refused(k, topic, join):
    member = join(f"{topic}-active", topic)
    until(lambda: member.assigned, "it has partitions")
    said = k.refused("groups", "reset-offsets", f"{topic}-active", "--to-latest", "--topic", topic, "--execute", code=1)
    assert "is Stable with 1 member" in said and "stop its consumers first" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--all-topics"], "exactly one of --to-earliest"),
        (["--all-topics", "--to-latest", "--to-earliest"], "exactly one of"),
        (["--to-latest"], "say what to reset: --topic TOPIC"),
        (["--to-latest", "--all-topics", "--topic", "t"], "choose one"),
        (["--to-latest", "--topic", "t:x"], "--topic takes TOPIC or TOPIC:0,1"),
        (["--to-offset", "-1", "--all-topics"], "--to-offset takes a number from 0"),
        (["--to-datetime", "soon", "--all-topics"], "is not a time: write YYYY-MM-DDTHH:MM:SS.sss"),
        (["--by-duration", "long", "--all-topics"], "is not a duration: write PT1H30M"),
        (["--from-file", "/no/such/file"], "cannot be read"),
        (["--to-latest", "--all-topics", "--execute", "--dry-run"], "choose one"),
        (["--shift-by", "1", "--topic", "TOPIC"], "so it cannot be shifted"),
    ],
)
def test_wrong_resets(k, topic, arguments, says):
    words = [topic if word == "TOPIC" else word for word in arguments]
    assert says in k.refused("groups", "reset-offsets", f"{topic}-wrong", *words)


def test_resets_of_what_does_not_exist(k, topic, idle, tmp_path):
    assert "no such topic: nowhere" in k.refused(
        "groups", "reset-offsets", idle, "--to-latest", "--topic", "nowhere", code=1
    )
    gone = k.refused("groups", "reset-offsets", idle, "--to-latest", "--topic", f"{topic}:7", code=1)
    assert f"no such partition: {topic}-7" in gone
    nothing = k.refused("groups", "reset-offsets", f"{topic}-none", "--to-latest", "--all-topics", code=1)
    assert "has committed nothing yet: name topics with --topic" in nothing
    (tmp_path / "bad.csv").write_text("a,b\n")
    assert "line 1 of the file" in k.refused("groups", "reset-offsets", idle, "--from-file", str(tmp_path / "bad.csv"))


# -- delete and remove-member -----------------------------------------------------------------------------------------


def test_delete_offsets_then_the_group(k, admin, topic, idle):
    assert k("groups", "delete", idle, "--topic", f"{topic}:0,1").out == f"deleted 2 offsets of group {idle}\n"
    assert committed(admin, idle, topic) == [None, None, 6]
    assert "has committed nothing for other" in k.refused("groups", "delete", idle, "--topic", "other", code=1)
    assert k("groups", "delete", idle).out == f"deleted group {idle}\n"
    assert "does not exist" in k.refused("groups", "delete", idle, code=1)
    assert "kohort groups list shows" in k.refused("groups", "describe", idle, code=1)


def test_members_are_removed(k, admin, topic, join):
    group = f"{topic}-crowd"
    static = join(group, topic, group_instance_id="one")
    until(lambda: static.assigned, "it has partitions")
    assert "stop its consumers first, or remove them" in k.refused("groups", "delete", group, code=1)
    static.crash()
    assert k("groups", "remove-member", group, "--group-instance-id", "one").out == f"removed one from group {group}\n"
    assert "not a member of group" in k.refused("groups", "remove-member", group, "--member-id", "stranger", code=1)
    assert "has no members" in k.refused("groups", "remove-member", group, "--all", code=1)
    dynamic = join(group, topic)
    until(lambda: dynamic.assigned, "it has partitions")
    dynamic.crash()
    (member,) = admin.describe_groups([group])[group].members
    assert k("groups", "remove-member", group, "--all").out == f"removed {member.member_id} from group {group}\n"
    assert k("groups", "delete", group).code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["describe"], "name groups, or give --match REGEX or --all-groups"),
        (["remove-member", "g"], "name members with --member-id or --group-instance-id, or give --all"),
        (["watch", "g", "--interval", "0"], "'--interval'"),
        (["explain"], "missing argument 'GROUP'"),
    ],
)
def test_wrong_input(k, arguments, says):
    assert says in k.refused("groups", *arguments)

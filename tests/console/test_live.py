"""The console over a live broker: its answers equal the broker's events, and it hears of news by itself."""

import asyncio
import http.client
import json
from types import SimpleNamespace

import kohort
from console_running import MARKUP, PATIENCE_S, Running, until
from kohort.cli.group_log import read_events
from kohort.cli.target import Target
from kohort.client.admin_types import MemberDescription
from kohort.client.types import TopicPartition
from kohort.console.live import LiveSource
from kohort.coordinator import events
from kohort.coordinator.causes import Who
from kohort.insight.generations import GenerationMember, StoredGeneration


def settled(console, group, count):
    """The timeline of a group once it has this many members and nothing is under way."""

    def look():
        row = console.row(group)
        if row is None or row["members"] != count or row["state"] not in ("Stable", "Empty"):
            return None
        view = console.get("group", group=group)
        bands = view["bands"]
        return view if bands["end"] and -1 not in bands["end"] and all(bands["exact"]) else None

    return until(look, f"{group} with {count} members")


def test_bars_and_bands_equal_the_events_they_come_from(live, broker, members):
    members("equal", "one")
    settled(live, "equal", 1)
    second = members("equal", "two")
    settled(live, "equal", 2)
    second.stop()
    view = settled(live, "equal", 1)
    told = read_events(Target(broker.bootstrap_servers, None, []), "equal", 1_000, 20)
    begun = [event.at_ms for event in told if isinstance(event, events.RebalanceStarted)]
    done = [event for event in told if isinstance(event, events.RebalanceCompleted)]
    bands, bars = view["bands"], view["bars"]
    assert view["exact"] and all(bands["exact"])
    assert bands["end"] == [event.at_ms for event in done]
    assert bands["start"][0] == begun[0] and set(bands["start"]) <= set(begun)
    assert bands["generation"] == [event.generation for event in done]
    assert {*bars["start"], *(end for end in bars["end"] if end >= 0)} <= {event.at_ms for event in done}
    now = {
        view["lanes"][bars["lane"][i]]["client_id"]: bars["sets"][bars["set"][i]]
        for i, end in enumerate(bars["end"])
        if end < 0
    }
    assert now == {"one": [["orders", [0, 1, 2, 3]]]}
    texts = [view["texts"][i] for i in bands["text"]]
    assert texts[0].startswith("one (127.0.0.1) joined") and "two (127.0.0.1) left" in texts[-1]


def test_a_rebalance_is_told_as_explain_tells_it(live, members):
    members("told", "one")
    view = settled(live, "told", 1)
    detail = live.get("rebalance", group="told", id=view["bands"]["id"][0])
    assert detail["text"].startswith("one (127.0.0.1) joined. That led to generation 1 with 1 member")
    assert len(detail["diff"]["came"]) == 4 and detail["diff"]["kept"] == 0


def test_lag_is_known_and_commits_are_counted(live, broker, members):
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in range(4):
            producer.send("orders", value=b"x", partition=partition)
    members("lagging", "one", auto_commit_interval_ms=100)
    row = until(lambda: (r := live.row("lagging")) and r["lag"] == 0 and r, "no lag is left")
    assert row["lag_ms"] == 0
    view = live.get("group", group="lagging")
    assert sum(view["series"]["commits"]) >= 4
    assert {row["verdict"] for row in view["partitions"]} == {"keeps up"}
    cluster = until(lambda: (c := live.get("cluster")).get("brokers") and c["talkers"] and c, "the cluster is known")
    assert cluster["brokers"][0]["offsets_partitions"] == 4
    assert [topic["topic"] for topic in cluster["topics"]] == ["orders"]


def test_what_happens_is_heard_of_without_asking(live, members):
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=PATIENCE_S)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.getheader("content-type").startswith("text/event-stream")
    members("heard", "one")

    def news():
        line = answer.readline()
        return line.startswith(b"data:") and "heard" in json.loads(line[5:])["changed"]

    until(news, "the stream names the group")
    connection.close()


def test_names_with_markup_are_data(live, members):
    members(MARKUP, "<b>one</b>")
    until(lambda: live.row(MARKUP), "the group is listed")
    settled(live, MARKUP, 1)
    for path in ("/api/timeline.svg", "/api/report.html"):
        answer = live.ask(path, group=MARKUP)
        text = answer.body.decode()
        assert answer.status == 200 and "&lt;img" in text
        assert "<img" not in text and "<b>one" not in text and "\x1b" not in text and "\u202e" not in text
        assert "script" not in answer.headers["content-security-policy"].replace("script-src", "")


def test_questions_that_make_no_sense_are_answered_with_a_sentence(live, members):
    members("asked", "one")
    settled(live, "asked", 1)
    for path, query, status, words in [
        ("/api/group", {"group": "nobody"}, 404, "no such group"),
        ("/api/group", {}, 404, "no such group"),
        ("/api/group", {"group": "asked", "from": "x"}, 400, "from takes a whole number"),
        ("/api/group", {"group": "asked", "from": "9", "to": "3"}, 400, "from must be before to"),
        ("/api/group", {"group": "asked", "to": "9" * 30}, 400, "to takes a whole number"),
        ("/api/rebalance", {"group": "asked", "id": "5"}, 404, "no such rebalance"),
    ]:
        answer = live.ask(path, **query)
        assert answer.status == status and words in answer.json()["error"], answer
    assert live.ask("/static/../app.py").status == 404
    assert live.ask("/api/groups", since=-1).status == 400


def test_a_cluster_out_of_reach_is_said_and_the_console_serves_on():
    settings = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 500, "request.timeout.ms": 300}
    with Running(lambda: LiveSource(settings=settings)) as console:
        status = until(lambda: (s := console.get("status"))["notices"] and s, "a notice")
        assert "127.0.0.1:1 does not answer" in status["notices"][0]["text"]
        assert console.get("groups")["rows"] == []
        assert console.get("cluster")["topics"] == []


# -- changes


def plan(console, **asked):
    answer = console.ask("/api/changes/preview", method="POST", body=asked)
    return answer.status, answer.json()


def test_offsets_are_reset_as_the_preview_said(live, broker, admin, members):
    member = members("reset", "one", auto_commit_interval_ms=100)
    until(lambda: (r := live.row("reset")) and r["lag"] == 0, "it has committed")
    status, refused = plan(live, do="reset-offsets", group="reset", mode="to-earliest")
    assert status == 409 and "stop its consumers first" in refused["error"]
    member.stop()
    ends = {tp: at.offset for tp, at in admin.group_offsets("reset").items()}
    status, made = plan(live, do="reset-offsets", group="reset", mode="to-earliest")
    assert status == 200 and made["columns"] == ["topic", "partition", "before", "after"]
    assert {(row[0], row[1]): row[2] for row in made["rows"]} == {tuple(tp): end for tp, end in ends.items()}
    body = {"do": "reset-offsets", "group": "reset", "mode": "to-earliest"}
    assert live.ask("/api/changes/execute", method="POST", body=body | {"plan": "old"}).status == 409
    assert {at.offset for at in admin.group_offsets("reset").values()} == set(ends.values()), "nothing happened"
    done = live.ask("/api/changes/execute", method="POST", body=body | {"plan": made["plan"]})
    assert done.json()["done"] and {at.offset for at in admin.group_offsets("reset").values()} == {0}


def test_a_group_is_deleted_and_a_member_removed_only_as_asked(live, admin, members):
    member = members("doomed", "one", auto_commit_interval_ms=100)
    settled(live, "doomed", 1)
    status, refused = plan(live, do="delete-group", group="doomed")
    assert status == 409 and "has 1 member" in refused["error"]
    (described,) = admin.describe_groups(["doomed"])["doomed"].members
    status, made = plan(live, do="remove-member", group="doomed", member=described.member_id)
    assert status == 200 and "one is put out of the group" in made["says"][0]
    body = {"do": "remove-member", "group": "doomed", "member": described.member_id, "plan": made["plan"]}
    assert live.ask("/api/changes/execute", method="POST", body=body).status == 200
    until(
        lambda: "removed from the kohort console" in json.dumps(live.get("group", group="doomed")["texts"]), "told why"
    )
    member.stop()
    status, made = plan(live, do="delete-group", group="doomed")
    assert status == 200 and "cannot be undone" in made["says"][1]
    body = {"do": "delete-group", "group": "doomed", "plan": made["plan"]}
    assert live.ask("/api/changes/execute", method="POST", body=body).status == 200
    until(lambda: live.row("doomed")["state"] == "Dead", "the group is gone")


def test_changes_that_make_no_sense_are_refused(live):
    for asked, words in [
        ({"do": "format-disk", "group": "g"}, "say what to do"),
        ({"do": "delete-group"}, "to which group"),
        ({"do": "reset-offsets", "group": "g", "mode": "sideways"}, "say where to"),
        ({"do": "reset-offsets", "group": "g", "mode": "to-offset", "value": "x"}, "takes a whole number"),
        ({"do": "remove-member", "group": "g", "member": "nobody"}, "no such member"),
    ]:
        status, answer = plan(live, **asked)
        assert status in (400, 409) and words in answer["error"], answer
    assert live.ask("/api/changes/preview", method="POST", body=[1]).status == 400
    assert live.ask("/api/changes/preview", method="POST", body={"x": "y" * 70_000}).status == 413


def test_a_group_of_the_consumer_protocol_has_current_and_target(live, members):
    members("modern", "one", group_protocol="consumer", session_timeout_ms=None, heartbeat_interval_ms=None)
    until(lambda: (r := live.row("modern")) and r["members"] == 1 and r["type"] == "consumer", "the first member")
    members("modern", "two", group_protocol="consumer", session_timeout_ms=None, heartbeat_interval_ms=None)

    def shared():
        view = live.get("group", group="modern")
        bars = view["bars"]
        held = {
            view["lanes"][bars["lane"][i]]["client_id"]: sum(
                len(numbers) for _, numbers in bars["sets"][bars["set"][i]]
            )
            for i, end in enumerate(bars["end"])
            if end < 0
        }
        return view if held == {"one": 2, "two": 2} and view["bands"]["end"][-1] >= 0 else None

    view = until(shared, "both have two partitions")
    assert view["bars"]["sets"][0] == [["orders", [0, 1, 2, 3]]], "topics by their names"
    assert sum(end < 0 for end in view["targets"]["end"]) == 2
    texts = [view["texts"][i] for i in view["bands"]["text"]]
    assert "two (127.0.0.1) joined" in texts[-1] and set(view["bands"]["standstill"]) == {0}


def test_what_a_group_is_asked_for_does_not_overwrite_what_its_records_told_meanwhile():
    source = LiveSource(settings={"bootstrap.servers": "nowhere:1"})
    who = Who("m-1", None, "one", "/127.0.0.1")

    class Late:
        """Its answer is of the time before the record."""

        async def describe_groups(self, groups):
            member = MemberDescription("m-1", None, "one", "/127.0.0.1", ("t",), frozenset({TopicPartition("t", 0)}))
            return {groups[0]: SimpleNamespace(assignor="range", members=[member])}

        async def group_offsets(self, group):
            return {}

    past = source.ledger.group("g")
    asyncio.run(source._sample(Late(), "g"))
    assert past.lanes.held_now() == {"m-1": (("t", 0),)}, "nothing was told"
    held = GenerationMember(who, 6_000, 6_000, ("t",), frozenset({("t", 0), ("t", 1)}))
    past.generation(StoredGeneration(source.now_ms(), 2, "range", "m-1", (held,)))
    asyncio.run(source._sample(Late(), "g"))
    assert past.lanes.held_now() == {"m-1": (("t", 0), ("t", 1))}

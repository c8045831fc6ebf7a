"""Kafka's habits are understood, what is misspelt is answered with the nearest, and choices with the list."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest

import kohort
from cli.conftest import CommandLine
from kohort.cli.habits import translate
from kohort.cli.serve_options import OPTIONS
from serving import environment


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("groups list", "groups list"),
        ("--bootstrap-server a:1 groups list", "groups list --bootstrap-server a:1"),
        ("--bootstrap-server=a:1 -X x=y topics describe t", "topics describe t --bootstrap-server=a:1 -X x=y"),
        ("groups --bootstrap-server a:1 list", "groups list --bootstrap-server a:1"),
        ("groups --bootstrap-servers a:1 --list", "groups list --bootstrap-server a:1"),
        ("groups describe --group g --members", "groups describe g --members"),
        ("groups --describe --group=g", "groups describe g"),
        ("groups --describe --all-groups", "groups describe --all-groups"),
        ("kafka-consumer-groups.sh --list --state Stable", "groups list --state Stable"),
        ("groups --reset-offsets --group g --topic t --to-earliest", "groups reset-offsets g --topic t --to-earliest"),
        ("groups --delete-offsets --group g --topic t", "groups delete g --topic t"),
        ("kafka-topics --create --topic t --partitions 3", "topics create t --partitions 3"),
        ("kafka-console-consumer --topic t --from-beginning", "consume t --from-beginning"),
        ("consume t --group g", "consume t --group g"),
        ("produce --topic t", "produce t"),
        ("kafka-transactions.sh -b h describe --transactional-id x", "transactions -b h describe x"),
        ("kafka-transactions.sh find-hanging --topic t", "transactions list --hanging --topic t"),
        ("history --group g", "history --group g"),
        ("topics list --brokers a:1", "topics list -b a:1"),
        ("sim --brokers 3 --seeds 2", "sim --brokers 3 --seeds 2"),
        ("--version", "--version"),
        ("", ""),
    ],
)
def test_words_of_kafkas_tools(written, meant):
    assert translate(written.split()) == meant.split()


def test_they_work(k, topic, join):
    join("habits-1", topic)
    assert k("--bootstrap-server", k.servers, "topics", "list").code == 0
    assert topic in k("kafka-topics.sh", "--list").out
    assert k("groups", "--describe", "--group", "habits-1", "--json").json()[0]["group"] == "habits-1"
    assert "v0" in k("consume", "--topic", topic, "--from-beginning", "--exit").out


def test_the_nearest_command_is_offered(k):
    assert k.refused("grops", "list") == "kohort: no such command 'grops'; did you mean groups? see kohort --help"
    assert "did you mean serve?" in k.refused("serv")
    assert "did you mean list?" in k.refused("groups", "lst")
    assert "did you mean --json?" in k.refused("groups", "list", "--jso")


def test_choices_are_listed(k):
    assert "'Foo' is no state: there are Empty, PreparingRebalance" in k.refused("groups", "list", "--state", "Foo")
    assert "no type of group: there are classic" in k.refused("groups", "list", "--type", "x")
    assert "'tcsh' is not one of 'bash', 'zsh'" in k.refused("completions", "tcsh")
    assert "no regular expression" in k.refused("groups", "list", "--match", "(")


def test_groups_by_states_and_by_regular_expression(k, topic, join):
    member = join("match-a", topic)
    join("match-b", topic)
    while "match-b" not in k("groups", "list", "--state", "stable,Empty").out:
        time.sleep(0.02)
    member.close()
    found = k("groups", "list", "--match", "match-.", "--state", "Empty", "--state", "Stable", "--json").json()
    assert {row["group"] for row in found} == {"match-a", "match-b"}
    assert [row["group"] for row in k("groups", "describe", "--match", ".*h-b", "--json").json()] == ["match-b"]
    assert k("groups", "delete", "--match", "match-a|nothing", "--yes").out == "deleted group match-a\n"
    assert k("groups", "delete", "--match", "match-a", "--yes").out == "no groups\n"


def test_configs(k, topic):
    shown = k("configs", "describe", "--topic", topic, "--json").json()
    assert {"name": "retention.ms", "value": "-1", "source": "topic"} in shown and len(shown) < 5
    assert k("configs", "alter", "--topic", topic, "--set", "segment.bytes=1048577").code == 0
    rows = k("configs", "describe", "--topic", topic, "--match", "segment").rows()
    assert ["segment.bytes", "1048577", "topic"] in rows and len(rows) > 1
    said = k("configs", "alter", "--entity-type", "topics", "--entity-name", topic, "--delete-config", "segment.bytes")
    assert said.out == f"{topic}: segment.bytes is its default again\n"
    assert len(k("configs", "describe", "--broker", "1", "--all").rows()) > 50
    assert "of what?" in k.refused("configs", "describe")
    assert "takes a number" in k.refused("configs", "describe", "--broker", "x")
    assert "nothing to change" in k.refused("configs", "alter", "--topic", topic)
    assert "retention" in k.refused("configs", "alter", "--topic", topic, "--set", "retention.ms=x", code=1)


def test_apis_and_cluster(k):
    rows = k("apis").rows()
    assert rows[0][0] == "Produce" and any(row[0] == "JoinGroup" for row in rows)
    assert k("apis", "--compare", k.servers, "--differences").out == "both serve the same\n"
    compared = k("apis", "--compare", k.servers, "--json").json()
    assert compared[0]["api"] == "Produce" and compared[0][k.servers] == compared[0]["versions"]
    described = k("cluster", "--json").json()
    assert [f"{one['host']}:{one['port']}" for one in described["brokers"]] == [k.servers]
    assert k("cluster").out.startswith("cluster  ")


def test_serve_has_the_help_of_every_other_command(k):
    shown = k("serve", "--help").out
    assert shown.startswith("Usage: kohort serve [OPTIONS]") and all(option.flag in shown for option in OPTIONS)
    command = [sys.executable, "-m", "kohort.cli", "serve"]
    for words, says in {
        "--prot 1": "no such option: --prot; did you mean --port? see kohort serve --help",
        "now": "it takes options only, not: now; see kohort serve --help",
        "--log-level loud": "invalid choice: 'loud' (choose from 'debug', 'info', 'warning', 'error')",
    }.items():
        done = subprocess.run([*command, *words.split()], capture_output=True, text=True, env=environment(), timeout=60)
        assert done.returncode == 2 and says in done.stderr
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.returncode == 0 and done.stdout == shown


def test_consume_ends_when_its_reader_does(k, topic):
    """As in `kohort consume TOPIC --from earliest | head -1`, with nothing more to come."""
    command = [sys.executable, "-m", "kohort.cli", "consume", topic, "--from", "earliest", "-b", k.servers]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_produce_says_what_it_waits_for(k, topic):
    assert "waiting" not in k("produce", topic, stdin="x\n").err
    with kohort.Broker(config={"auto.create.topics.enable": "false"}) as strict:
        said = CommandLine(strict.bootstrap_servers)("produce", "t", "-X", "max.block.ms=1500", stdin="x\n")
    assert said.code == 1 and said.err.startswith("kohort: waiting for the topic t: the broker does not have it")


def test_produce_invites_whoever_types(k, topic):
    mine, theirs = pty.openpty()
    command = [sys.executable, "-m", "kohort.cli", "produce", topic, "-K", ":", "-b", k.servers]
    process = subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE, text=True, env=environment())
    os.close(theirs)
    assert process.stderr is not None
    assert process.stderr.readline() == f"kohort: type key:value a line for {topic}; ctrl-D ends\n"
    os.write(mine, b"k:v\n\x04")
    assert process.wait(60) == 0 and "1 record stored" in process.stderr.read()
    process.stderr.close()
    os.close(mine)


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        ("kohort groups list --state ", "PreparingRebalance"),
        ("kohort produce t --compression ", "zstd"),
        ("kohort serve --log-level ", "warning"),
        ("kohort serve --con", "--control-port"),
        ("kohort config", "configs"),
    ],
)
def test_values_are_completed(words, offers):
    count = len(words.split(" ")) - 1
    shell = {"_KOHORT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    command = [sys.executable, "-c", "from kohort.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment() | shell, timeout=60)
    assert offers in done.stdout, done.stdout + done.stderr

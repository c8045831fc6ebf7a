"""How the command line behaves as a program: help, exit codes, signals, pipes, completions."""

import os
import pty
import signal
import socket
import subprocess
import sys

import pytest

from cli.conftest import PATIENCE_S, CommandLine, until
from kohort.cli.app import COMMANDS
from serving import Serving, environment

EVERY_COMMAND = [
    ["completions"],
    ["consume"],
    ["history"],
    ["produce"],
    *[["groups", name] for name in ["list", "describe", "watch", "explain", "delete"]],
    *[["groups", name] for name in ["reset-offsets", "remove-member"]],
    *[["topics", name] for name in ["list", "create", "describe", "delete", "alter"]],
]


def start(*arguments, **options):
    command = [sys.executable, "-m", "kohort.cli", *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment(), **{**pipes, **options})


def control_characters(text):
    return {c for c in text if not c.isprintable()} - {"\n"}


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_help_of_every_command(k, words):
    result = k(*words, "--help")
    assert result.code == 0 and not control_characters(result.out)
    assert f"Usage: kohort {' '.join(words)}" in result.out
    if words != ["completions"]:
        assert "--bootstrap-server" in result.out and "KOHORT_BOOTSTRAP_SERVER" in result.out
        assert "--command-config" in result.out and "KEY=VALUE" in result.out


def test_help_lists_every_command(k):
    shown = k("--help").out
    assert all(name in shown for name in [*COMMANDS, "serve"])
    assert k("--version").out.startswith("kohort ")
    alone = k("groups")
    assert alone.code == 2 and "reset-offsets" in alone.out


def test_wrong_words_are_one_sentence(k):
    assert k.refused("nonsense") == "kohort: no such command 'nonsense'; see kohort --help"
    assert k.refused("groups", "list", "--wrong").startswith("kohort groups list: no such option: --wrong")


def test_nobody_listens():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    k = CommandLine(address)
    for words in (["groups", "list"], ["topics", "list"], ["produce", "t"], ["consume", "t"], ["groups", "watch", "g"]):
        said = k.refused(*words, code=1)
        assert said.startswith(f"kohort: no broker can be reached at {address} (Connection refused)")
        assert "kohort serve" in said


def test_servers_and_settings_that_make_no_sense(k):
    assert "it takes HOST:PORT" in k.refused("groups", "list", "-b", "somewhere")
    assert "did you mean 'client.id'" in k.refused("groups", "list", "--config", "clent.id=x")
    assert "--config takes KEY=VALUE" in k.refused("groups", "list", "--config", "x")
    assert "cannot be read" in k.refused("groups", "list", "--command-config", "/no/such/file")


def test_settings_from_a_file(k, topic, tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(f"# for all tools\nbootstrap.servers = {k.servers}\nclient.id: tester\nkey.serializer=x.y.Z\n")
    elsewhere = CommandLine("localhost:9092")
    assert topic in elsewhere("topics", "list", "--command-config", str(file)).out
    assert elsewhere("produce", topic, "--command-config", str(file), stdin="x\n").code == 0
    by_option = elsewhere("consume", topic, "-b", k.servers, "-X", "client.id=y", "--from-beginning", "-n", "1")
    assert by_option.code == 0


def test_ctrl_c_is_clean(k, topic):
    process = start("consume", topic, "--from-beginning", "-b", k.servers)
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, "")


def test_a_member_that_is_told_to_end_leaves_its_group(k, admin, topic):
    group = f"{topic}-terminated"
    process = start("consume", topic, "--group", group, "--from", "earliest", "-b", k.servers)
    assert process.stdout.readline()
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    assert admin.describe_groups([group])[group].state == "Empty"


def test_a_reader_that_goes_away_is_not_an_error(k, topic):
    process = start("consume", topic, "--from-beginning", "-b", k.servers)
    assert process.stdout.readline()
    process.stdout.close()
    until(lambda: k("produce", topic, stdin="more\n").code == 0 and process.poll() is not None, "it ends by itself")
    assert (process.returncode, process.stderr.read()) == (141, "")


def test_a_terminal_gets_styles_and_a_pipe_does_not(k, topic):
    words = ["topics", "describe", topic, "-b", k.servers]
    piped, _ = start(*words).communicate(timeout=PATIENCE_S)
    assert not control_characters(piped)
    master, slave = pty.openpty()
    process = start(*words, stdout=slave)
    os.close(slave)
    shown = b""
    with os.fdopen(master, "rb", buffering=0) as terminal:
        while True:
            try:
                more = terminal.read(4096)
            except OSError:
                break
            if not more:
                break
            shown += more
    process.communicate(timeout=PATIENCE_S)
    assert b"\x1b[1m" in shown and process.returncode == 0


def test_kohort_serve_keeps_group_events():
    serving = Serving("--memory")
    try:
        k = CommandLine(serving.address)
        k("topics", "create", "t", "--partitions", "1")
        k("produce", "t", stdin="x\n")
        assert k("consume", "t", "--group", "g", "--from", "earliest", "-n", "1").out == "x\n"
        assert k("groups", "explain", "g", "--json").json()["source"] == "events"
    finally:
        serving.stop()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts(k, shell):
    result = k("completions", shell)
    assert result.code == 0 and "_KOHORT_COMPLETE" in result.out
    assert "'bash', 'zsh', 'fish', 'powershell'" in k.refused("completions", "tcsh")


def test_bash_completes_commands_options_and_names(k, topic):
    def complete(line):
        words = line.split(" ")
        asked = {"_KOHORT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        asked["KOHORT_BOOTSTRAP_SERVER"] = k.servers
        done = subprocess.run(
            [sys.executable, "-c", "import sys; sys.argv[0] = 'kohort'; from kohort.cli import main; main()"],
            env=environment() | asked,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.stdout.split()

    assert complete("kohort gr") == ["groups"]
    assert set(complete("kohort groups re")) == {"reset-offsets", "remove-member"}
    assert "--to-datetime" in complete("kohort groups reset-offsets g --to-")
    assert complete(f"kohort topics describe {topic}") == [topic]
    assert complete("kohort groups describe nobody-") == []

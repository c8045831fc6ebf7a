"""Every message and version against the classes that Kafka generates: equal bytes, equal content, both directions."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import fetch_jars, run_java
from kohort.protocol import messages, schema
from make_definitions import compact
from message_filler import fill, messages_and_versions

SEEDS = range(8)
JARS = ("clients", "group-coordinator", "share-coordinator", "transaction-coordinator")

Answer = tuple[str, int, int, bytes, dict[str, Any]]


@pytest.fixture(scope="module")
def ask(java_classes: Path) -> Callable[[list[str]], list[str]]:
    """Sends lines to the Java harness and returns one answer for each."""

    def send(lines: list[str]) -> list[str]:
        done = run_java("CodecHarness", input="\n".join(lines) + "\n", extra_class_path=[java_classes], timeout=300)
        return done.stdout.split("\n")

    return send


@pytest.fixture(scope="module")
def java_messages(ask: Callable[[list[str]], list[str]]) -> dict[str, tuple[str, int, int]]:
    """Kafka's name of a message -> its Java class, lowest and highest version."""
    found = {}
    for line in ask(["list"]):
        if line:
            java_class, low, high = line.split()
            found[message_name(java_class)] = (java_class, int(low), int(high))
    return found


def message_name(java_class: str) -> str:
    name = java_class.rpartition(".")[2]
    return name.removesuffix("Data") if name.endswith(("RequestData", "ResponseData", "HeaderData")) else name


def test_definitions_are_those_of_the_jars(jdk: None) -> None:
    jars = [str(jar) for part in JARS for jar in fetch_jars().glob(f"kafka-{part}-[0-9]*.jar")]
    stored = Path(schema.__file__).with_name("definitions.json").read_text("utf-8")
    assert stored == compact(jars)


def test_every_message_and_version_is_known(java_messages: dict[str, tuple[str, int, int]]) -> None:
    ours = {name: (v.low, v.high) for name in schema.message_names() for v in [schema.message(name).valid]}
    theirs = {
        name: (low, high)
        for name, (java_class, low, high) in java_messages.items()
        if java_class.startswith(("org.apache.kafka.common.message.", "org.apache.kafka.coordinator."))
    }
    assert {name: versions for name, versions in theirs.items() if versions[1] >= versions[0]} == ours


def test_what_java_writes_is_read_and_written_alike(ask: Any, java_messages: dict[str, tuple[str, int, int]]) -> None:
    cases = [(name, version, seed) for name, version in messages_and_versions() for seed in SEEDS]
    answers = ask([f"make {java_messages[name][0]} {version} {seed}" for name, version, seed in cases])
    wrong = []
    for (name, version, seed), answer in zip(cases, answers, strict=False):
        hex_text, _, json_text = answer.partition("\t")
        if not json_text:
            wrong.append(f"{name} v{version} seed {seed}: {answer}")
            continue
        data = bytes.fromhex(hex_text)
        message, end = getattr(messages, name).decode_from(data, version)
        difference = differs(message, json.loads(json_text), name) or (f"end {end}" if end != len(data) else None)
        if difference is None and message.encode(version) != data:
            difference = "encoded bytes"
        if difference:
            wrong.append(f"{name} v{version} seed {seed}: {difference}")
    assert not wrong, f"{len(wrong)} of {len(cases)}: " + "; ".join(wrong[:20])
    assert len(answers) > len(cases)


def test_what_kohort_writes_is_read_and_written_alike_by_java(
    ask: Any, java_messages: dict[str, tuple[str, int, int]]
) -> None:
    cases = [(name, version, seed) for name, version in messages_and_versions() for seed in SEEDS]
    filled = [fill(name, version, seed) for name, version, seed in cases]
    encoded = [message.encode(version) for message, (_, version, _) in zip(filled, cases, strict=True)]
    lines = [
        f"echo {java_messages[name][0]} {version} {data.hex()}"
        for (name, version, _), data in zip(cases, encoded, strict=True)
    ]
    wrong = []
    for (name, version, seed), message, data, answer in zip(cases, filled, encoded, ask(lines), strict=False):
        hex_text, _, json_text = answer.partition("\t")
        if hex_text != data.hex():
            wrong.append(f"{name} v{version} seed {seed}: {data.hex()} became {answer}")
        elif difference := differs(message, json.loads(json_text), name):
            wrong.append(f"{name} v{version} seed {seed}: {difference}")
    assert not wrong, f"{len(wrong)} of {len(cases)}: " + "; ".join(wrong[:20])


def differs(message: Any, expected: dict[str, Any], where: str) -> str | None:
    """The first field in which a message is not what Kafka's JSON converter says, or None."""
    kinds = {field.name: field.type for field in field_list(message)}
    for key, value in expected.items():
        name = schema.snake_case(key)
        if kinds[name] == "records":  # the JSON converter leaves their bytes out
            continue
        actual = getattr(message, name)
        if difference := value_differs(actual, value, f"{where}.{name}"):
            return difference
    return None


def field_list(message: Any) -> tuple[schema.Field, ...]:
    root = schema.message(type(message).__qualname__.partition(".")[0])
    _, dot, inner = type(message).__qualname__.partition(".")
    return root.structs[inner].fields if dot else root.root.fields


def value_differs(actual: Any, expected: Any, where: str) -> str | None:
    if isinstance(expected, dict) and actual is not None:
        return differs(actual, expected, where)
    if isinstance(expected, list) and actual is not None:
        if len(actual) != len(expected):
            return f"{where}: {len(actual)} elements instead of {len(expected)}"
        pairs = zip(actual, expected, strict=True)
        return next((d for i, (a, e) in enumerate(pairs) if (d := value_differs(a, e, f"{where}[{i}]"))), None)
    if isinstance(actual, bytes | memoryview) and isinstance(expected, str):
        texts = (base64.b64encode(actual), base64.urlsafe_b64encode(actual))  # bytes, or a Uuid without its padding
        return None if expected.rstrip("=") in [text.decode().rstrip("=") for text in texts] else where
    same = actual == expected and type(actual) is type(expected)
    return None if same else f"{where}: {actual!r} instead of {expected!r}"

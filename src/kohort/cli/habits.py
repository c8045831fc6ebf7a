"""What people write who know Kafka's own tools: turned into this command line's words before it is parsed.

    --bootstrap-server HOST:PORT groups list         options of the connection before the command
    groups --describe --group G                      actions as options, names as options
    kafka-consumer-groups.sh --list                  the tools' own names

Pure: words in, words out. What is understood anyway stays as it is.
"""

from __future__ import annotations

TOOLS = {
    "kafka-consumer-groups": "groups",
    "consumer-groups": "groups",
    "group": "groups",
    "kafka-groups": "groups",
    "kafka-topics": "topics",
    "topic": "topics",
    "kafka-configs": "configs",
    "config": "configs",
    "kafka-console-consumer": "consume",
    "console-consumer": "consume",
    "consumer": "consume",
    "kafka-console-producer": "produce",
    "console-producer": "produce",
    "producer": "produce",
    "kafka-broker-api-versions": "apis",
    "broker-api-versions": "apis",
    "kafka-transactions": "transactions",
    "transaction": "transactions",
    "kafka-cluster": "cluster",
    "brokers": "cluster",
}
ACTIONS = {
    "groups": ("list", "describe", "delete", "reset-offsets", "delete-offsets"),
    "topics": ("list", "create", "describe", "delete", "alter"),
    "configs": ("describe", "alter"),
}
SPELLINGS = {"--bootstrap-servers": "--bootstrap-server", "--broker-list": "--bootstrap-server", "--brokers": "-b"}
CONNECTION = ("--bootstrap-server", "-b", "--command-config", "--command-property", "-X")
# The option that Kafka's tools have for what is an argument here.
NAMES = {
    "groups": "--group",
    "topics": "--topic",
    "consume": "--topic",
    "produce": "--topic",
    "transactions": "--transactional-id",
}
WORDS = {("transactions", "find-hanging"): ["list", "--hanging"]}
WITHOUT_NAMES = ("list",)


OWN_SPELLINGS = {"sim": frozenset({"--brokers"})}
"""Options that a command has by such a name."""


def translate(words: list[str]) -> list[str]:
    own = OWN_SPELLINGS.get(words[0], frozenset()) if words else frozenset()
    words = [word if word.partition("=")[0] in own else _spelt(word) for word in words]
    connection, rest = _split_connection(words)
    if not rest or rest[0].startswith("-"):
        return words
    command = TOOLS.get(rest[0].removesuffix(".sh"), rest[0])
    rest = rest[1:]
    rest = [*WORDS.get((command, rest[0]), rest[:1]), *rest[1:]] if rest else rest
    if command in ACTIONS:
        more, rest = _split_connection(rest)
        connection += more
    return [command, *_argument(command, _action(command, rest)), *connection]


def _spelt(word: str) -> str:
    name, equals, value = word.partition("=")
    return SPELLINGS.get(name, name) + equals + value


def _split_connection(words: list[str]) -> tuple[list[str], list[str]]:
    """Options of the connection that come before the command, and everything else."""
    found: list[str] = []
    position = 0
    while position < len(words) and words[position].partition("=")[0] in CONNECTION:
        size = 1 if "=" in words[position] else 2
        found += words[position : position + size]
        position += size
    return found, words[position:]


def _action(command: str, rest: list[str]) -> list[str]:
    """`--describe` among the options becomes the word after the command, unless there is one."""
    actions = ACTIONS.get(command, ())
    if not actions or (rest and not rest[0].startswith("-")):
        return rest
    for action in actions:
        if f"--{action}" in rest:
            others = [word for word in rest if word != f"--{action}"]
            return ["delete" if action == "delete-offsets" else action, *others]
    return rest


def _argument(command: str, rest: list[str]) -> list[str]:
    """`--group G` becomes the argument G where the command has none of that name."""
    option = NAMES.get(command)
    if option is None or (command in ACTIONS and (not rest or rest[0] in WITHOUT_NAMES)):
        return rest
    kept: list[str] = []
    position = 0
    while position < len(rest):
        word = rest[position]
        if word == option and position + 1 < len(rest):
            kept.append(rest[position + 1])
            position += 2
            continue
        kept.append(word.removeprefix(f"{option}=") if word.startswith(f"{option}=") else word)
        position += 1
    return kept

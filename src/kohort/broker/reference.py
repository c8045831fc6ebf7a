"""The configuration reference as Markdown, made from the keys themselves: `python -m kohort.broker.reference`."""

from __future__ import annotations

from kohort.broker.config import ConfigType
from kohort.broker.config_keys import BROKER_KEYS, TOPIC_DOCS
from kohort.storage.config import CONFIG_KEYS

_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1


def markdown() -> str:
    lines = [
        "# Configuration",
        "",
        "Names, types and defaults are Apache Kafka's; `kohort.` marks what Kafka does not have.",
        "",
        "## Broker",
        "",
        "Given with `kohort serve --config NAME=VALUE` or `kohort.Broker(config={...})`. Those marked *dynamic* can be",
        "changed while the broker runs.",
        "",
        "| name | type | default | |",
        "|---|---|---|---|",
    ]
    for key in sorted(BROKER_KEYS.values(), key=lambda key: key.name):
        dynamic = " *dynamic*" if key.dynamic else ""
        lines.append(f"| `{key.name}` | {_type(key.type.name)} | {_default(key.default)} | {key.doc}{dynamic} |")
    lines += ["", "## Topics", "", "| name | type | default | broker's name for it | |", "|---|---|---|---|---|"]
    for name, topic_key in sorted(CONFIG_KEYS.items()):
        synonyms = ", ".join(f"`{synonym}`" for synonym in topic_key.synonyms)
        default = _default(topic_key.default)
        lines.append(f"| `{name}` | {_type(topic_key.type.name)} | {default} | {synonyms} | {TOPIC_DOCS[name]} |")
    return "\n".join([*lines, ""])


def _type(name: str) -> str:
    return ConfigType[name].name.lower()


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(value)
    return {_LONG_MAX: "no limit", _INT_MAX: "no limit"}.get(value, str(value))  # type: ignore[call-overload]


if __name__ == "__main__":
    print(markdown(), end="")

"""The configuration reference as Markdown, made from the keys themselves: `python -m kohort.broker.reference`."""

from __future__ import annotations

from kohort.broker.config_keys import BROKER_KEYS, GROUP_KEYS
from kohort.broker.listener_config import OF_LISTENERS, OF_MECHANISMS
from kohort.config_key import INT_MAX, LONG_MAX
from kohort.storage.config import CONFIG_KEYS


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
        lines.append(f"| `{key.name}` | {key.type.name.lower()} | {_default(key.default)} | {key.doc}{dynamic} |")
    of_mechanisms = ", ".join(f"`{name}`" for name in OF_MECHANISMS)
    lines += [
        "",
        "### Of one listener",
        "",
        "`listener.name.<listener>.<setting>`, the listener in small letters, is for that listener alone, as in Kafka:",
        f"{', '.join(f'`{name}`' for name in OF_LISTENERS)}.",
        f"`listener.name.<listener>.<mechanism>.<setting>` is for one of its mechanisms: {of_mechanisms}.",
        "What a listener has not of its own is that of the broker; others, and other listeners, are refused.",
    ]
    lines += ["", "## Topics", "", "| name | type | default | broker's name for it | |", "|---|---|---|---|---|"]
    for name, topic_key in sorted(CONFIG_KEYS.items()):
        synonyms = ", ".join(f"`{synonym}`" for synonym in topic_key.synonyms)
        default = _default(topic_key.default)
        lines.append(f"| `{name}` | {topic_key.type.name.lower()} | {default} | {synonyms} | {topic_key.doc} |")
    lines += [
        "",
        "## Groups",
        "",
        "Set with AlterConfigs (`kafka-configs.sh --entity-type groups`), kept with the data.",
        "",
        "| name | type | default | broker's name for it | |",
        "|---|---|---|---|---|",
    ]
    for name, key in GROUP_KEYS.items():
        lines.append(
            f"| `{name}` | {key.type.name.lower()} | {_default(key.default)} | `{key.synonyms[0]}` | {key.doc} |"
        )
    return "\n".join([*lines, ""])


def _default(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return "no limit" if value in (LONG_MAX, INT_MAX) else str(value)


if __name__ == "__main__":
    print(markdown(), end="")

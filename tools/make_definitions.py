"""Makes src/kohort/protocol/definitions.json from the message definitions inside Apache Kafka's jars: facts, no prose.

Usage: make_definitions.py JAR [JAR ...] > definitions.json   (kafka-clients and the coordinators')
"""

import json
import re
import sys
import zipfile

OPTIONS = {
    "nullableVersions": "nullable",
    "taggedVersions": "tagged",
    "tag": "tag",
    "default": "default",
    "flexibleVersions": "flexible",
}


def read_definitions(jar: str) -> dict[str, dict]:
    """Every message definition of one jar by its name; the definitions are JSON with // comments."""
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for path in sorted(archive.namelist()):
            if path.startswith("common/message/") and path.endswith(".json"):
                text = archive.read(path).decode()
                text = re.sub(r"^\s*//.*$|\s//[^\"\n]*$", "", text, flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def compact_field(field: dict) -> list:
    """[name, type, versions] and, where there is more to say, a fourth item with the options."""
    options = {short: field[name] for name, short in OPTIONS.items() if name in field}
    if field.get("ignorable"):
        options["ignorable"] = True
    if "fields" in field:
        options["fields"] = [compact_field(inner) for inner in field["fields"]]
    row = [field["name"], field["type"], field.get("versions") or field["taggedVersions"]]
    return [*row, options] if options else row


def compact_message(definition: dict) -> dict:
    message = {"name": definition["name"], "type": definition["type"]}
    if "apiKey" in definition:
        message["key"] = definition["apiKey"]
    message["valid"] = definition["validVersions"]
    message["flexible"] = definition["flexibleVersions"]
    if definition.get("latestVersionUnstable"):
        message["unstable"] = True
    if "commonStructs" in definition:
        message["structs"] = {s["name"]: [compact_field(f) for f in s["fields"]] for s in definition["commonStructs"]}
    message["fields"] = [compact_field(field) for field in definition["fields"]]
    return message


def compact(jars: list[str]) -> str:
    """The text of definitions.json: one message a line, sorted by name."""
    definitions: dict[str, dict] = {}
    for jar in jars:
        definitions = read_definitions(jar) | definitions
    kept = [compact_message(d) for _, d in sorted(definitions.items()) if d["validVersions"] != "none"]
    lines = ",\n".join(json.dumps(message, separators=(",", ":")) for message in kept)
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.stdout.write(compact(sys.argv[1:]))

"""What a query writes into the metadata of its commits: whose commit it is, of which topic, and how the group began.

Pure text, both ways. Whoever gets a partition next decides by it, so it must be readable by every version of this file.
"""

from __future__ import annotations

from dataclasses import dataclass

_PREFIX = "kohort-spark"
_END = "\0"
"""librdkafka hands metadata to its users as bytes without an end (librdkafka#4649), and those who take them for a C
string read on into whatever follows. A zero of our own ends it for them; to others it is a character without width."""


@dataclass(frozen=True, slots=True)
class CommitTag:
    """`began` is the number of partitions the topic had when the group first took it up: later ones are new."""

    query: str
    topic_id: str = ""
    began: int | None = None

    def text(self) -> str:
        began = "" if self.began is None else str(self.began)
        return ":".join((_PREFIX, self.query, self.topic_id, began)) + _END

    @classmethod
    def parse(cls, text: str | None) -> CommitTag | None:
        """None where the commit is not of this source."""
        prefix, *fields = (text or "").rstrip(_END).split(":")
        if prefix != _PREFIX or not fields:
            return None
        query, topic_id, began = [*fields, "", ""][:3]
        return cls(query, topic_id, int(began) if began.isdigit() else None)

"""Uuids as Kafka shows them, and as members have them in their ids."""

import random
import uuid

from kohort.protocol.uuids import random_uuid


def test_a_random_uuid_is_the_standard_librarys():
    chance = random.Random(1)
    for _ in range(100):
        data = chance.randbytes(16)
        assert random_uuid(data) == str(uuid.UUID(bytes=data, version=4))

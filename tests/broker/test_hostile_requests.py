"""Random requests of every api and version, half of them damaged: no handler fails, and the broker goes on serving."""

import random

import pytest

from kohort.broker.groups import GroupService
from kohort.protocol import messages
from kohort.protocol.frames import encode_request
from kohort.protocol.wire import EncodeError
from wire import World, batch

NAMES = ["t", "other", "", "consumer", "range", "a/b", "__consumer_offsets", "x" * 300]
BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


class Maker:
    """Builds requests whose fields are mostly extreme and sometimes right."""

    def __init__(self, seed, topic_id):
        self.random = random.Random(seed)
        self.topic_id = topic_id

    def request(self, api, version):
        kind = getattr(messages, f"{api.name}Request")
        return self._struct(kind, kind.SCHEMA.root, version)

    def _struct(self, kind, struct, version):
        made = (kind if struct is kind.SCHEMA.root else getattr(kind, struct.name))()
        for field in struct.fields:
            if version in field.versions:
                setattr(made, field.name, self._field(kind, field, version))
        return made

    def _field(self, kind, field, version):
        if field.is_array:
            count = self.random.choice((0, 1, 1, 2))
            return [self._one(kind, field, version) for _ in range(count)]
        if field.struct is not None and field.default is None and self.random.random() < 0.5:
            return None
        return self._one(kind, field, version)

    def _one(self, kind, field, version):
        return self._struct(kind, field.struct, version) if field.struct is not None else self._scalar(field.type)

    def _scalar(self, kind):
        choose = self.random.choice
        if kind in BITS:
            limit = 1 << (BITS[kind] - 1)
            value = choose([0, 1, -1, 2, 100, -2, 10_000, limit - 1, -limit])
            return abs(value) % limit if kind.startswith("u") else max(-limit, min(limit - 1, value))
        return {
            "string": lambda: choose(NAMES),
            "bool": lambda: choose([True, False]),
            "uuid": lambda: choose([self.topic_id, b"\0" * 16, b"u" * 16]),
            "bytes": lambda: choose([b"", b"abc"]),
            "records": lambda: choose([None, b"", batch(b"z"), b"junk" * 20]),
            "float64": lambda: 1.0,
        }[kind]()

    def damage(self, frame):
        data = bytearray(frame)
        for _ in range(self.random.choice((1, 1, 2, 5))):
            at = self.random.randrange(10, max(len(data), 11))
            if self.random.random() < 0.6 and at < len(data):
                data[at] = self.random.choice((0, 1, 127, 128, 255, self.random.randrange(256)))
            elif self.random.random() < 0.5:
                del data[at : at + self.random.randrange(1, 9)]
            else:
                data[at:at] = self.random.randbytes(self.random.randrange(1, 9))
        return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_a_client_sends_makes_a_handler_fail(seed, caplog):
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
    world = World(config, groups=GroupService)
    maker = Maker(seed, world.create_topic("t", 2).topic_id)
    apis = list(world.core.table.apis.values())
    for _ in range(1000):
        api = maker.random.choice(apis)
        version = maker.random.randint(api.min_version, api.max_version)
        try:
            parts = encode_request(1, "hostile", version, maker.request(api, version))
        except EncodeError:
            continue
        frame = b"".join(map(bytes, parts))[4:]
        client = world.connect()
        client.deliver = client.connection.take_output
        client.send_raw(maker.damage(frame) if maker.random.random() < 0.5 else frame)
        if maker.random.random() < 0.3:
            world.turn()
        if maker.random.random() < 0.05:
            world.advance(maker.random.choice((1, 1000, 60_000)))
    failed = [record.getMessage() for record in caplog.records if record.exc_info]
    assert failed == []
    world.turn()
    assert world.connect().call(messages.MetadataRequest(topics=[]), 9).controller_id == 1

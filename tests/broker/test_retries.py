"""Idempotent producers whose connections break after the broker has appended: every record once, in order."""

import contextlib
import random
import socket
import threading

import confluent_kafka as ck

import kohort

LIMIT_S = 90


class BreakingProxy:
    """Forwards to a broker, but now and then swallows what the broker answers and closes the connection instead."""

    def __init__(self, chance, seed):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._random = random.Random(seed)
        self.chance = chance
        self.broken = 0
        self.target = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client, broker, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(broker, client, True), daemon=True).start()

    def _forward(self, source, sink, breaks):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if breaks and self._random.random() < self.chance:
                    self.broken += 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self._listener.close()


def test_every_record_is_stored_once_and_in_order():
    proxy = BreakingProxy(chance=0.05, seed=3)
    with kohort.Broker(config={"advertised.listeners": f"127.0.0.1:{proxy.port}"}) as broker:
        proxy.target = broker.port
        producer = ck.Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{proxy.port}",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,
                "reconnect.backoff.ms": 1,
                "reconnect.backoff.max.ms": 20,
                "retry.backoff.ms": 5,
                "log_level": 0,
            }
        )
        failures = []
        for number in range(2000):
            producer.produce("t", b"%d" % number, on_delivery=lambda error, _: error and failures.append(error))
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0 and failures == []
        assert proxy.broken > 0
        proxy.chance = 0
        log = broker._running.core.topics.by_name["t"].partitions[0].log
        reader = ck.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        reader.assign([ck.TopicPartition("t", 0, 0)])
        values = []
        while len(values) < log.end_offset:
            values += [int(message.value()) for message in reader.consume(500, LIMIT_S)]
        reader.close()
        assert values == list(range(2000))
    proxy.close()

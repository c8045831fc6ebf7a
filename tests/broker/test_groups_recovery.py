"""kill -9 in the middle of commits and rebalances: what was acknowledged is there after the restart."""

import random
import threading
from pathlib import Path

import pytest

from kohort.protocol import messages
from kohort.protocol.errors import ErrorCode
from serving import LIMIT_S, Serving
from wire import WireClient

PARTITIONS = 4
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
    "group.max.session.timeout.ms=1800000",
)


class Committer:
    """Commits ever larger offsets for a group without members."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.sent = 0
        self.acknowledged = 0

    def work(self, client: WireClient) -> None:
        while True:
            self.sent += 1
            request = messages.OffsetCommitRequest
            rows = [
                request.OffsetCommitRequestPartition(partition_index=p, committed_offset=self.sent)
                for p in range(PARTITIONS)
            ]
            topic = request.OffsetCommitRequestTopic(name="orders", partitions=rows)
            answer = client.call(request(group_id=self.group_id, topics=[topic]), 9)
            errors = {row.error_code for row in answer.topics[0].partitions}
            assert errors == {0}, errors
            self.acknowledged = self.sent

    def check(self, client: WireClient) -> None:
        request = messages.OffsetFetchRequest
        asked = request.OffsetFetchRequestTopics(name="orders", partition_indexes=list(range(PARTITIONS)))
        answer = client.call(
            request(groups=[request.OffsetFetchRequestGroup(group_id=self.group_id, topics=[asked])]), 9
        )
        found = {row.committed_offset for row in answer.groups[0].topics[0].partitions} - {-1}
        assert len(found) <= 1, f"half a commit is there: {found}"
        assert self.acknowledged <= max(found, default=0) <= self.sent
        self.sent = self.acknowledged = max(found, default=0)


class Rebalancer:
    """The only member of a group, which makes it rebalance without end."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = 0  # the last one whose sync was answered
        self.syncing = 0  # the last one whose sync was sent

    def work(self, client: WireClient) -> None:
        while True:
            answer = client.call(self._join(), 5)
            if answer.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.UNKNOWN_MEMBER_ID):
                assert self.generation == 0 or answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
                self.member_id = answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""
                continue
            assert answer.error_code == 0, answer
            assert answer.generation_id > self.generation
            self.syncing = answer.generation_id
            assignment = b"generation %d" % self.syncing
            assert client.call(self._sync(self.syncing, assignment), 3).assignment == assignment
            self.generation = self.syncing

    def check(self, client: WireClient) -> None:
        """The member is still a member, of the last generation it was told or of the one it was syncing to."""
        if self.generation == 0:
            return
        for generation in {self.generation, self.syncing}:
            answer = client.call(self._sync(generation, b""), 3)
            if answer.error_code == 0:
                assert answer.assignment == b"generation %d" % generation
                self.generation = self.syncing = generation
                return
            assert answer.error_code == ErrorCode.ILLEGAL_GENERATION, answer
        pytest.fail(f"neither generation {self.generation} nor {self.syncing} of {self.group_id} is there")

    def _join(self) -> messages.Message:
        request = messages.JoinGroupRequest
        return request(
            group_id=self.group_id,
            member_id=self.member_id,
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[request.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00")],
        )

    def _sync(self, generation: int, assignment: bytes) -> messages.Message:
        request = messages.SyncGroupRequest
        made = request.SyncGroupRequestAssignment(member_id=self.member_id, assignment=assignment)
        return request(group_id=self.group_id, generation_id=generation, member_id=self.member_id, assignments=[made])


def until_it_breaks(worker: Committer | Rebalancer, address: str, failures: list[BaseException]) -> None:
    try:
        worker.work(WireClient(address))
    except (OSError, EOFError):
        pass  # the broker is gone
    except BaseException as error:
        failures.append(error)


def loaded(address: str) -> WireClient:
    """A client of the restarted broker, once its groups are read back."""
    client = WireClient(address)
    client.call(messages.FindCoordinatorRequest(key="g"), 2)
    while client.call(messages.ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    return client


def kill_again_and_again(data_dir: Path, kills: int) -> None:
    chance = random.Random(kills)
    workers = [Committer(f"commits-{i}") for i in range(4)] + [Rebalancer(f"rebalances-{i}") for i in range(4)]
    arguments = ["--data-dir", str(data_dir)]
    for setting in SETTINGS:
        arguments += ["--config", setting]
    failures: list[BaseException] = []
    for round_number in range(kills):
        serving = Serving(*arguments)
        try:
            client = loaded(serving.address)
            if round_number == 0:
                request = messages.CreateTopicsRequest
                topic = request.CreatableTopic(name="orders", num_partitions=PARTITIONS, replication_factor=1)
                client.call(request(topics=[topic], timeout_ms=1_000), 7)
            for worker in workers:
                worker.check(client)
            threads = [
                threading.Thread(target=until_it_breaks, args=(worker, serving.address, failures)) for worker in workers
            ]
            before = [worker.acknowledged for worker in workers if isinstance(worker, Committer)]
            for thread in threads:
                thread.start()
            goal = chance.randrange(5, 60)
            while not failures and sum(w.acknowledged for w in workers[:4]) < sum(before) + goal:
                client.call(messages.ListGroupsRequest(), 4)
        finally:
            serving.kill()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not failures, failures
    assert all(worker.acknowledged for worker in workers[:4])
    assert all(worker.generation > kills for worker in workers[4:])


@pytest.mark.timeout(600)
def test_kills_in_the_middle_of_commits_and_rebalances(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 10)


@pytest.mark.conformance
@pytest.mark.timeout(1200)
def test_fifty_kills_in_the_middle_of_commits_and_rebalances(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 50)

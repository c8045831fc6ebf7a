"""A stream cut at any place gives the same frames; headers in all their versions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.protocol import frames, messages
from kohort.protocol.wire import DecodeError


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1))
def test_a_stream_cut_anywhere_gives_the_same_frames(bodies, cuts):
    stream, splitter, seen, at, turn = framed(*bodies), frames.FrameSplitter(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        seen += splitter.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert seen == bodies
    assert splitter.pending == 0


@pytest.mark.parametrize("size", [101, -1, 0x7FFFFFFF])
def test_a_frame_over_the_limit_is_refused_before_it_arrives(size):
    splitter = frames.FrameSplitter(limit=100)
    with pytest.raises(frames.FrameTooLarge, match="limit is 100"):
        list(splitter.feed(size.to_bytes(4, "big", signed=True)))


@pytest.mark.parametrize("client_id", ["reader-1", "", None])
@pytest.mark.parametrize("version", [3, 4])
def test_a_request_reads_back(client_id, version):
    request = messages.HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    (frame,) = frames.FrameSplitter().feed(b"".join(frames.encode_request(7, client_id, version, request)))
    header = frames.parse_request_header(frame)
    assert header[:4] == (12, version, 7, client_id)
    body = header.body_offset(frame, request.flexible(version))
    assert messages.HeartbeatRequest.decode(frame, version, body) == request


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_reads_back(version):
    response = messages.HeartbeatResponse(error_code=27)
    (frame,) = frames.FrameSplitter().feed(b"".join(frames.encode_response(7, version, response)))
    assert frames.response_correlation_id(frame) == 7
    assert frames.decode_response(frame, version, messages.HeartbeatResponse) == response


def test_the_response_of_api_versions_keeps_the_old_header():
    """A client that asks for a version too new must still be able to read the answer (KIP-511)."""
    (frame,) = frames.FrameSplitter().feed(b"".join(frames.encode_response(7, 3, messages.ApiVersionsResponse())))
    assert messages.ApiVersionsResponse.decode(frame, 3, 4) == messages.ApiVersionsResponse()


@given(st.binary(max_size=60))
def test_any_bytes_as_a_header_are_read_or_refused(data):
    try:
        header = frames.parse_request_header(data)
        header.body_offset(data, True)
    except DecodeError:
        pass


def test_tagged_fields_of_the_header_are_skipped():
    head = b"\0\x0c\0\x04\0\0\0\x07\0\x01c" + b"\x01\x05\x03abc"
    assert frames.parse_request_header(head).body_offset(head, True) == len(head)

"""A bucket of S3, served by moto in a process of its own."""

import pytest

import s3


@pytest.fixture(scope="session")
def moto():
    pytest.importorskip("moto")
    pytest.importorskip("obstore")
    with s3.serving() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(moto, request):
    from kohort.cluster.object_engine import ObjectEngine

    name = f"b{abs(hash(request.node.nodeid)) % 10**12}"
    s3.make_bucket(moto, name)
    return ObjectEngine(
        f"s3://{name}/prefix",
        endpoint=moto,
        access_key_id="test",
        secret_access_key="test",
        region="us-east-1",
        client_options={"allow_http": True},
    )

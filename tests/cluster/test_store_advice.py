"""Mistakes of a first try with a bucket: each gets a sentence that says what to do. A server answers as stores do."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kohort.cluster.engine import EngineError
from kohort.cluster.open_engine import open_engine
from kohort.cluster.store_advice import advice

pytest.importorskip("obstore")


@pytest.fixture
def store():
    """A store that answers everything with one status and one body."""

    class Answer(BaseHTTPRequestHandler):
        status, body, headers_sent = 200, b"", {}

        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(self.status)
            for name, value in self.headers_sent.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(self.body)))
            self.end_headers()
            self.wfile.write(self.body)

        do_GET = do_PUT = do_DELETE = answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.answer = Answer
    yield server
    server.shutdown()
    server.server_close()


def error(code, words=""):
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{words}</Message></Error>".encode()


S3 = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, error("NoSuchBucket"), "there is no such bucket: create it"),
        (403, error("InvalidAccessKeyId"), "the store refuses these credentials: check AWS_ACCESS_KEY_ID"),
        (403, error("SignatureDoesNotMatch"), "refuses these credentials"),
        (403, error("AccessDenied"), "may read, write, list and delete there"),
        (401, b"", "refuses these credentials"),
        (301, error("PermanentRedirect"), "the bucket is elsewhere: set AWS_REGION"),
        (400, error("AuthorizationHeaderMalformed", "the region is wrong; expecting eu-west-1"), "set AWS_REGION"),
        (501, error("NotImplemented"), "no conditional puts"),
    ],
)
def test_what_s3_says(store, status, body, said):
    store.answer.status, store.answer.body = status, body
    port = store.server_address[1]
    engine = open_engine(
        "s3://bucket/prefix", endpoint=f"http://127.0.0.1:{port}", client_options={"allow_http": True}, **S3
    )
    with pytest.raises(EngineError, match=said):
        engine.create("meta/0", b"x")


def test_a_store_that_nobody_serves(store):
    port = store.server_address[1]
    store.shutdown()
    store.server_close()
    engine = open_engine(
        "s3://bucket/prefix", endpoint=f"http://127.0.0.1:{port}", client_options={"allow_http": True}, **S3
    )
    with pytest.raises(EngineError, match="cannot be reached: check AWS_REGION, and AWS_ENDPOINT"):
        engine.create("meta/0", b"x")


def test_a_container_of_azure_is_created_on_condition(store):
    asked = []
    answer = store.answer

    def put(self):
        asked.append((self.path, self.headers.get("If-None-Match")))
        answer.answer(self)

    answer.do_PUT, answer.status, answer.headers_sent = (
        put,
        201,
        {"ETag": '"1"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"},
    )
    engine = open_engine(
        "az://box/prefix",
        account_name="account",
        account_key="a2V5",
        endpoint=f"http://127.0.0.1:{store.server_address[1]}/account",
        client_options={"allow_http": True},
    )
    engine.create("meta/0", b"x")
    assert [condition for _, condition in asked] == ["*"], "the store decides who is first"
    assert asked[0][0].endswith("/box/prefix/meta/0")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://", "name the bucket, as in s3://bucket/prefix"),
        ("gs://", "name the bucket"),
        ("az://", "name the container, as in az://container/prefix"),
        ("az://box/prefix", "set AZURE_STORAGE_ACCOUNT_NAME"),
        ("s3a://bucket/prefix", "did you mean s3://bucket/prefix"),
        ("gcs://bucket/prefix", "did you mean gs://bucket/prefix"),
        ("azure://box/prefix", "did you mean az://box/prefix"),
        ("s4://bucket", "did you mean s3://bucket"),
        ("fil:///var/lib/kohort", "did you mean file:///var/lib/kohort"),
        ("/var/lib/kohort", "did you mean file:///var/lib/kohort"),
        ("file://var/lib/kohort", "write it as file:///path"),
        ("http://example", "begins with one of file, s3, gs, az"),
    ],
)
def test_mistyped_urls(url, said, monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EngineError, match=said):
        open_engine(url)


def test_buckets_of_google_and_azure_have_engines():
    assert type(open_engine("gs://bucket/prefix")._store).__name__ == "GCSStore"
    assert type(open_engine("abfss://box@account.dfs.core.windows.net/prefix")._store).__name__ == "AzureStore"


@pytest.mark.parametrize(
    ("url", "text", "said"),
    [
        ("gs://b", "error sending request for url (http://metadata.google.internal/x)", "set GOOGLE_SERVICE_ACCOUNT"),
        ("s3://b", "Error performing PUT http://169.254.169.254/latest/api/token", "no credentials were found"),
        ("az://b", "ContainerNotFound", "there is no such container"),
        ("s3://b", "something that nobody has seen", ""),
    ],
)
def test_what_libraries_say_without_a_network(url, text, said):
    assert said in advice(url, text) and bool(advice(url, text)) == bool(said)

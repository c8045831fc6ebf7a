"""Who may talk to the console: names, origins, tokens, and what every answer says to the browser."""

import pytest

from console_running import MARKUP, Running
from kohort.console.guard import COOKIE, POLICY, Rules, is_loopback
from kohort.console.server import address, rules_for
from kohort.console.source import Source


@pytest.fixture(scope="module")
def console():
    with Running(Source) as running:
        yield running


@pytest.fixture(scope="module")
def guarded():
    with Running(Source, rules=Rules("secret-token")) as running:
        yield running


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::1", "", "localhost.evil"]
)
def test_a_name_that_is_not_the_loopbacks_is_refused(console, host):
    """A page that rebinds its own name to 127.0.0.1 would otherwise read everything."""
    assert console.ask("/api/status", {"host": host}).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1:9095", "[::1]:9095"])
def test_names_of_the_loopback_are_answered(console, host):
    assert console.ask("/api/status", {"host": host}).status == 200


def test_another_site_gets_nothing(console):
    assert console.ask("/api/groups", {"origin": "https://evil.example"}).status == 403
    assert console.ask("/api/groups", {"origin": "null"}).status == 403
    assert console.ask("/api/groups", {"sec-fetch-site": "cross-site"}).status == 403
    assert console.ask("/api/groups", {"origin": console.url}).status == 200


def test_every_answer_has_the_policy(console):
    for path in ("/", "/api/groups", "/static/app.js", "/nowhere", "/api/group"):
        headers = console.ask(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY


def test_nothing_can_be_changed_unless_it_was_allowed(console):
    answer = console.ask("/api/changes/preview", method="POST", body={"do": "delete-group", "group": "g"})
    assert answer.status == 403 and "--allow-changes" in answer.json()["error"]


def test_a_form_of_another_page_cannot_change_anything(live):
    form = {"content-type": "text/plain"}
    answer = live.ask("/api/changes/preview", form, "POST", {"do": "delete-group", "group": "g"})
    assert answer.status == 403


def test_elsewhere_a_token_is_needed(guarded):
    for path in ("/", "/api/groups", "/static/app.js"):
        assert guarded.ask(path).status == 401
    assert guarded.ask("/api/groups", token="wrong").status == 401
    assert guarded.ask("/api/groups", {"authorization": "Bearer secret-token"}).status == 200
    assert guarded.ask("/api/groups", {"cookie": f"{COOKIE}=\u00e9"}).status == 401
    assert guarded.ask("/api/groups", {"host": "box.example", "authorization": "Bearer secret-token"}).status == 200


def test_the_token_moves_from_the_address_into_a_cookie(guarded):
    answer = guarded.ask("/", token="secret-token")
    assert answer.status == 303 and answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert guarded.ask("/", {"cookie": cookie.split(";")[0]}).status == 200


def test_which_addresses_need_a_token():
    assert [is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "10.1.1.1", "::", "box", MARKUP)] == [False] * 5
    assert rules_for("127.0.0.1").token is None
    made = rules_for("0.0.0.0")
    assert len(made.token) >= 32 and address("0.0.0.0", 1, made).endswith(f"?token={made.token}")

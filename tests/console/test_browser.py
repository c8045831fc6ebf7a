"""The page in a real Chromium: every screen live and from a history, news by themselves, no fault, no leak."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console_browser import FLAGS, chromium
from console_running import MARKUP, PATIENCE_S, Running, until
from console_tables import a_history
from kohort.console.kept import KeptSource

if chromium() is None:
    pytest.skip("no Chromium here: apt-get install chromium, then make browser", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api")

LIMIT_MS = PATIENCE_S * 1000


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield running
        running.close()


class Watched:
    """A page whose faults and requests are kept; `check` says whether there were any that must not be."""

    def __init__(self, browser, url, width=1280, scheme="light"):
        self.url, self.faults, self.hosts = url, [], set()
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.page.on("console", lambda said: said.type in ("error", "warning") and self.faults.append(said.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda asked: self.hosts.add(re.match(r"\w+:(//[^/]*)?", asked.url).group()))

    def open(self, path="/"):
        self.page.goto(self.url + path)
        return self.page

    def check(self):
        assert self.faults == [] and self.hosts <= {self.url, "data:"}, (self.faults, self.hosts)
        self.context.close()


@pytest.fixture
def watch(browser):
    made = []

    def start(url, **options):
        made.append(Watched(browser, url, **options))
        return made[-1]

    yield start
    for one in made:
        one.check()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    directory = a_history(tmp_path_factory.mktemp("history"))
    with Running(lambda: KeptSource(directory=directory)) as console:
        until(lambda: console.row("g"), "the history is read")
        yield console


def wait(page, expression):
    """As page.wait_for_function, which the page's policy does not allow."""
    until(lambda: page.evaluate(expression) or page.wait_for_timeout(50), expression)


def drawn(page):
    """What the timeline holds, once it holds bars: as [client, start, end, partitions]."""
    wait(page, "window.kohortTimeline?.data?.painted > 0")
    return page.evaluate(
        """() => { const { bars, view } = kohortTimeline.data; return [...bars.lane].map((lane, i) => [
            view.lanes[lane].client_id, bars.start[i], bars.end[i] === Infinity ? -1 : bars.end[i],
            kohortTimeline.data.texts[bars.set[i]]]); }"""
    )


def faults_of_access(page):
    import axe_playwright_python

    page.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def test_a_rebalance_appears_while_the_page_is_open(live, members, watch):
    members("appears", "one")
    until(lambda: (row := live.row("appears")) and row["members"] == 1, "the first member")
    page = watch(live.url).open("/?group=appears")
    assert drawn(page)[-1][0] == "one"
    members("appears", "two")
    wait(page, "kohortTimeline.data.view.bands.id.length >= 2 && kohortTimeline.data.rows.size === 2")
    page.get_by_text("two (127.0.0.1) joined").first.wait_for()
    view = live.get("group", group="appears")
    places = zip(view["bars"]["lane"], view["bars"]["start"], strict=True)
    expected = {(view["lanes"][lane]["client_id"], start) for lane, start in places}
    assert {(client, start) for client, start, *_ in drawn(page)} == expected


def test_groups_are_searched_and_opened_with_the_keyboard_alone(live, members, watch):
    members("keys", "one")
    until(lambda: live.row("keys"), "the group")
    page = watch(live.url).open("/?screen=cluster")
    page.get_by_role("heading", name="Brokers").wait_for()
    page.keyboard.press("g")
    page.get_by_role("link", name="keys", exact=True).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("keys")
    wait(page, "document.querySelectorAll('tbody tr').length === 1")
    assert "q=keys" in page.url
    page.get_by_role("link", name="keys", exact=True).press("Enter")
    drawn(page)
    page.locator("body").press("n")
    page.locator(".detail .lead").wait_for()
    assert "one (127.0.0.1) joined" in page.locator(".detail .lead").inner_text()
    page.locator("body").press("Escape")
    page.locator(".detail").wait_for(state="detached")
    page.go_back()
    page.locator(".detail .lead").wait_for()


def test_a_link_brings_back_group_span_and_selection(kept, watch):
    view = kept.get("group", group="g")
    chosen = view["bands"]["id"][1]
    path = f"/?group=g&from={chosen - 20_000}&to={chosen + 20_000}&rebalance={chosen}&colour=topic"
    page = watch(kept.url).open(path)
    page.locator(".detail .lead").wait_for()
    drawn(page)
    assert page.evaluate("[kohortTimeline.from, kohortTimeline.to]") == [chosen - 20_000, chosen + 20_000]
    assert page.locator("select").input_value() == "topic" and page.get_by_text("estimated", exact=True).count() == 1
    page.locator(".lanes .u-over").hover()
    page.mouse.wheel(0, -400)
    wait(page, "kohortTimeline.to - kohortTimeline.from < 30000")
    wait(page, f"!location.search.includes('from={chosen - 20_000}')")
    there = page.url
    page.reload()
    drawn(page)
    assert page.url == there


def test_every_screen_from_a_history(kept, watch):
    page = watch(kept.url).open()
    page.get_by_role("link", name="g", exact=True).click()
    shown = drawn(page)
    view = kept.get("group", group="g")
    starts = sorted(view["bars"]["start"])
    assert sorted(start for _, start, *_ in shown) == starts and len(shown) == 3
    page.get_by_role("link", name="Cluster").click()
    page.get_by_role("cell", name="orders").wait_for()
    assert page.get_by_text("brokers are known of a live cluster only").count() == 1


def test_a_band_is_told_on_hover_and_on_click(kept, watch):
    chosen = kept.get("group", group="g")["bands"]["id"][1]
    page = watch(kept.url).open(f"/?group=g&from={chosen - 10_000}&to={chosen + 10_000}")
    drawn(page)
    box = page.locator(".lanes .u-over").bounding_box()
    x = box["x"] + box["width"] * (10_000 - 1_000) / 20_000
    page.mouse.move(x, box["y"] + 10)
    tip = page.get_by_role("tooltip")
    tip.wait_for()
    assert "b (10.0.0.1) joined" in tip.inner_text() and "at most 3 s" in tip.inner_text()
    page.mouse.down()
    page.mouse.up()
    page.locator(".detail .lead").wait_for()
    assert f"rebalance={chosen}" in page.url
    assert "1 moved, 1 kept, 0 lost, 0 came" in page.locator(".diff p").inner_text()


def test_names_with_markup_stay_names(live, members, watch):
    members(MARKUP, "<svg onload=alert(1)>")
    until(lambda: (row := live.row(MARKUP)) and row["members"], "the group")
    page = watch(live.url).open()
    link = page.get_by_role("link", name="<img src=x")
    link.wait_for()
    assert "\\u001b" in link.inner_text() and "\\u202e" in link.inner_text()
    link.click()
    drawn(page)
    assert page.locator("main img, main svg[onload]").count() == 0
    with page.expect_download() as saved:
        page.get_by_role("link", name="SVG").click()
    assert "&lt;svg onload" in Path(saved.value.path()).read_text(encoding="utf-8")


def test_changes_are_asked_first(live, admin, members, watch):
    member = members("asked-first", "one", auto_commit_interval_ms=100)
    until(lambda: (row := live.row("asked-first")) and row["members"] == 1, "the member")
    member.stop()
    page = watch(live.url).open("/?group=asked-first")
    page.get_by_role("button", name="Delete the group…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("This cannot be undone").wait_for()
    dialog.get_by_role("button", name="Do nothing").click()
    assert admin.describe_groups(["asked-first"])["asked-first"].state == "Empty"
    page.get_by_role("button", name="Delete the group…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete the group").click()
    page.get_by_text("Done.").wait_for()
    assert admin.describe_groups(["asked-first"])["asked-first"].state == "Dead"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_all_can_read_it(live, members, watch, width, scheme):
    members("read", "one")
    until(lambda: (row := live.row("read")) and row["members"] == 1, "the member")
    page = watch(live.url, width=width, scheme=scheme).open()
    page.get_by_role("link", name="read", exact=True).wait_for()
    assert faults_of_access(page) == []
    page.goto(f"{live.url}/?group=read")
    drawn(page)
    page.locator("body").press("n")
    page.locator(".detail .lead").wait_for()
    assert faults_of_access(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing runs out of the page"
    page.goto(f"{live.url}/?screen=cluster")
    page.get_by_role("heading", name="Talkers").wait_for()
    assert faults_of_access(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_report_is_one_file_that_needs_nothing(kept, browser, tmp_path):
    answer = kept.ask("/api/report.html")
    file = tmp_path / "report.html"
    file.write_bytes(answer.body)
    context = browser.new_context()
    page = context.new_page()
    asked, faults = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda said: faults.append(said.text))
    page.goto(file.as_uri())
    assert page.locator("h2").all_inner_texts()[0] == "Groups, the worst first"
    assert page.locator("svg rect").count() > 5 and asked == [file.as_uri()] and faults == []
    assert "<script" not in answer.body.decode() and json.dumps(page.title())
    context.close()

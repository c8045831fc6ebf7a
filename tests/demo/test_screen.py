"""Frames and the picture made of them, without a group: what is lit, what is drawn, what the SVG holds."""

import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from kohort.coordinator.classic.states import TRANSITIONS, GroupState
from kohort.coordinator.events import MemberIdAssigned
from kohort.demo.picture import picture
from kohort.demo.screen import ARROWS, PATH, Scene, frame
from kohort.demo.watch import MemberView, View
from kohort.demo.words import STATES, line_for


def lines_of(view, width=100, height=32):
    console = Console(width=width, height=height, force_terminal=True, color_system="truecolor")
    scene = Scene("demo", "JOIN_GROUP", "bob joins", gone={"carol": "killed"})
    return console.render_lines(frame(scene, view, width, height), console.options.update(width=width), pad=False)


@pytest.mark.parametrize("height", [24, 25, 32, 50])
def test_a_frame_fits_the_terminal(height):
    assert len(lines_of(view(), height=height)) < height


def view(state="Stable"):
    members = [MemberView("alice", "a-1", (0, 1), 7, True), MemberView("carol", "c-1", (2,), 0, False)]
    return View("shop", state, 3, "range", members, (3,), 7, 70)


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("state", PATH)
def test_the_current_state_is_lit_and_no_other(state, width):
    lit = {
        segment.text.strip()
        for line in lines_of(view(state), width)
        for segment in line
        if segment.style and segment.style.bgcolor and segment.text.strip() in STATES
    }
    assert lit == {state}


def test_the_arrows_drawn_are_legal_moves():
    for (source, target), arrow in ARROWS.items():
        assert GroupState(target) in TRANSITIONS[GroupState(source)]
        assert "◀" not in arrow or GroupState(source) in TRANSITIONS[GroupState(target)]
    assert set(STATES) == {state.value for state in GroupState}


def test_a_frame_has_members_partitions_lag_and_the_dead():
    text = "\n".join("".join(segment.text for segment in line) for line in lines_of(view()))
    for part in ("alice ★", "0 1", "carol killed", "nobody", "bob joins", "generation 3"):
        assert part in text


def test_an_event_without_words_has_no_line():
    assert line_for(MemberIdAssigned(at_ms=1, group_id="g", generation=1, member_id="m"), {}) is None


def test_the_picture_is_svg_with_a_frame_for_each_change():
    frames = [(0.0, lines_of(view("Empty"))), (1.0, lines_of(view("Empty"))), (2.0, lines_of(view("Stable")))]
    root = ElementTree.fromstring(picture(frames, "kohort <demo>"))
    shown = [g for g in root.iter("{http://www.w3.org/2000/svg}g") if (g.get("class") or "").startswith("f ")]
    assert len(shown) == 2
    names = {g.get("id") for g in root.iter("{http://www.w3.org/2000/svg}g")}
    uses = {use.get("href", "").lstrip("#") for use in root.iter("{http://www.w3.org/2000/svg}use")}
    assert uses <= names

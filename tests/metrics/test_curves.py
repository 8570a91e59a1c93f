"""Curves as text and as SVG."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from longboat.metrics.curves import MOST_NAMED, WIDTH, Curve, frame_of, svg, text_curve

FALLING = Curve("loss", [(n, 1 / (n + 1)) for n in range(100)])


def test_a_curve_falls_from_the_upper_left_to_the_lower_right() -> None:
    lines = text_curve(FALLING, width=40, height=6, is_ascii=True)
    assert len(lines) == 7 and all(len(line) <= 40 for line in lines)
    assert lines[0].startswith("    1 |*")
    assert lines[5].endswith("*")
    assert lines[6].split() == ["0", "99"]


def test_points_far_apart_are_joined() -> None:
    (line, *_) = text_curve(Curve("x", [(0, 1.0), (10, 1.0)]), width=40, height=3, is_ascii=True)[1:2]
    assert line.count("*") > 25


def test_a_spike_among_many_points_stays_visible() -> None:
    points = [(float(n), 100.0 if n == 5000 else 1.0) for n in range(10000)]
    assert "*" in text_curve(Curve("x", points), width=60, height=6, is_ascii=True)[0]


def test_curves_in_one_frame_have_one_scale() -> None:
    low, high = Curve("low", [(0, 1.0), (5, 1.0)]), Curve("high", [(0, 3.0), (10, 3.0)])
    frame = frame_of([low, high])
    below, above = (text_curve(each, width=40, height=5, is_ascii=True, frame=frame) for each in (low, high))
    assert below[4].count("*") > 10 and above[0].count("*") > 25
    assert [line.split("|")[0] for line in below] == [line.split("|")[0] for line in above]  # the same scale


def test_without_a_finite_value_there_is_no_curve() -> None:
    assert text_curve(Curve("x", [(1, math.nan)]), width=40, height=6) == ["(no finite value)"]


def test_a_picture_is_xml_and_names_are_quoted() -> None:
    picture = svg("<run>", [("<loss>", [FALLING]), ("none", [Curve("n", [])]), ("two", [FALLING, FALLING])])
    root = ET.fromstring(picture)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "<run>" in texts and "<loss>" in texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 3


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats()), max_size=50), st.integers(8, 100), st.integers(1, 9))
def test_any_values_are_drawn(points: list[tuple[float, float]], width: int, height: int) -> None:
    curve = Curve("x", sorted(points))
    assert text_curve(curve, width=width, height=height)
    assert svg("t", [("x", [curve])])


def test_names_of_many_curves_have_room() -> None:
    """Twenty runs: each line differs from its neighbours by more than its colour, and no name leaves the picture."""
    curves = [Curve(f"a-run-with-a-rather-long-name-{at}", FALLING.points) for at in range(20)]
    root = ET.fromstring(svg("many", [("loss", curves)]))
    names = [each for each in root.iter("{http://www.w3.org/2000/svg}text") if (each.text or "").startswith("a-run")]
    assert len(names) == MOST_NAMED and all(
        float(each.get("x", 0)) + 6 * len(each.text or "") < WIDTH for each in names
    )
    lines = list(root.iter("{http://www.w3.org/2000/svg}polyline"))
    looks = [(each.get("stroke"), each.get("stroke-dasharray")) for each in lines]
    assert len(lines) == 20 and all(before[1] != after[1] for before, after in zip(looks, looks[1:]))


def test_control_characters_in_names_leave_the_picture_whole() -> None:
    name = "a\x00\x1b\ud800\uffff<b>"
    root = ET.fromstring(svg(name, [(name, [Curve(name, FALLING.points), Curve(name, FALLING.points)])]))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("a\ufffd\ufffd\ufffd\ufffd<b>") == 4

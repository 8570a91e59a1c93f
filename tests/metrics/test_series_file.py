"""The launchers' files of metrics, read back: nodes, ranks and attempts as one value; what is damaged is left out."""

from __future__ import annotations

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from longboat.metrics.series_file import MOST_SERIES, join, parse
from longboat.metrics.values import Software

HEAD = {"v": 1, "columns": {"rank": ["cpu", "memory"], "node": ["cpu"], "gpu": ["gpu"]}}


def lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_rows_of_every_kind() -> None:
    file = parse(
        lines(
            HEAD,
            ["node", 5.0, "worker-0", 1.5],
            ["rank", 5.0, 0, 0.5, 100],
            ["gpu", 5.0, 3, 97],
            ["step", 6.0, 0, 10, {"loss": 0.5, "odd": None}],
        ),
        node="worker-0",
        attempt=0,
    )
    metrics = join("r", [file])
    assert metrics.series["loss"] == ((10, 6.0, 0.5),)
    assert math.isnan(metrics.series["odd"][0][2])
    assert metrics.system == {"0": {"cpu": ((5.0, 0.5),), "memory": ((5.0, 100.0),)}}
    assert metrics.nodes == {"worker-0": {"cpu": ((5.0, 1.5),)}, "worker-0/gpu3": {"gpu": ((5.0, 97.0),)}}


def test_a_metric_is_that_of_the_lowest_rank_that_has_it() -> None:
    first = parse(lines(["step", 6.0, 1, 10, {"loss": 1.0}]), node="worker-1", attempt=0)
    other = parse(lines(["step", 6.0, 0, 10, {"loss": 2.0}], ["step", 7.0, 0, 9, {"x": 1}]), node="worker-0", attempt=0)
    metrics = join("r", [first, other])
    assert metrics.series["loss"] == ((10, 6.0, 2.0),)


def test_a_later_attempt_counts_from_where_it_went_on() -> None:
    before = parse(lines(*(["step", 1.0 + n, 0, n, {"loss": float(n)}] for n in range(5))), node="w-0", attempt=0)
    after = parse(lines(*(["step", 10.0 + n, 0, n, {"loss": 100.0 + n}] for n in (3, 4, 5))), node="w-0", attempt=1)
    steps = [(step, value) for step, _, value in join("r", [after, before]).series["loss"]]
    assert steps == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 103.0), (4, 104.0), (5, 105.0)]


def test_scalars_of_event_files_have_their_folder_where_several_have_the_tag() -> None:
    alone = parse(lines(["event", 6.0, "logs/train", 1, {"loss": 1.0}]), node="w-0", attempt=0)
    assert set(join("r", [alone]).series) == {"loss"}
    both = parse(
        lines(["event", 6.0, "logs/train", 1, {"loss": 1.0}], ["event", 6.0, "logs/validation", 1, {"loss": 2.0}]),
        node="w-0",
        attempt=0,
    )
    assert set(join("r", [both]).series) == {"train/loss", "validation/loss"}


def test_what_a_rank_reports_itself_comes_before_an_event_file_of_that_name() -> None:
    rows = (["event", 6.0, "logs", 1, {"loss": 1.0}], ["step", 6.0, 0, 1, {"loss": 2.0}])
    assert join("r", [parse(lines(*rows), node="w-0", attempt=0)]).last("loss") == 2.0


def test_more_names_than_anybody_looks_at_are_left_out() -> None:
    rows = [["step", 6.0, 0, 1, {f"m{n}": 1.0}] for n in range(MOST_SERIES + 10)]
    assert len(join("r", [parse(lines(*rows), node="w-0", attempt=0)]).series) == MOST_SERIES


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
rows = st.tuples(st.sampled_from(["step", "event", "rank", "gpu", "node"]), values, values, values, values).map(list)


@given(st.lists(rows | values, max_size=8), st.binary(max_size=30), st.integers(0, 400))
def test_hostile_files_are_read_without_an_error(content: list[object], tail: bytes, cut: int) -> None:
    data = lines(HEAD, *content)
    for text in (data, data[:cut], data + tail):
        join("r", [parse(text, node="w-0", attempt=0)])


def test_an_integer_of_hundreds_of_digits_is_no_number() -> None:
    data = b'["step",1.0,0,1,{"a":%s,"b":2}]\n["event",1.0,"logs",1,{"c":%s}]\n' % (b"9" * 400, b"9" * 400)
    series = join("r", [parse(data, node="w-0", attempt=0)]).series
    assert series["b"] == ((1, 1.0, 2.0),)
    assert all(math.isnan(value) for name in "ac" for _, _, value in series.get(name, ()))


def test_what_a_node_says_it_ran_in_is_words_and_nothing_else() -> None:
    header = {
        "python": "python3.11",
        "driver": "550.1\x1b[31m",
        "packages": {"numpy": "2.1", "<script>": "1", "x": {"a": 1}, "y": "1" * 500},
        "gpus": {
            "0": ["GPU-1", "NVIDIA H100 80GB HBM3"],
            "1": ["GPU-2", "NVIDIA H100 80GB HBM3"],
            "2": "odd",
            "3": ["u", "<b>"],
        },
    }
    told = join("r", [parse(json.dumps(header).encode(), node="worker-0", attempt=0)]).software
    assert told == Software(python="python3.11", packages={"numpy": "2.1"}, gpus={"NVIDIA H100 80GB HBM3": 2})
    for odd in ([], {"packages": [1], "gpus": 3, "python": None}):
        assert join("r", [parse(json.dumps(odd).encode(), node="worker-0", attempt=0)]).software == Software()

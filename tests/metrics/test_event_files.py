"""TensorBoard event files: real ones of PyTorch and TensorFlow, growing ones, cut, damaged and hostile ones."""

from __future__ import annotations

import math
import struct
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longboat.metrics.event_files import MOST_RECORD, EventFile, crc32c, masked, parse_event

DATA = Path(__file__).parent / "data"


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked(head)) + data + struct.pack("<I", masked(data))


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number: int, wire: int, value: bytes) -> bytes:
    return varint(number << 3 | wire) + (varint(len(value)) if wire == 2 else b"") + value


def event(step: int, **scalars: float) -> bytes:
    values = [field(1, 2, name.encode()) + field(2, 5, struct.pack("<f", number)) for name, number in scalars.items()]
    summary = b"".join(field(1, 2, value) for value in values)
    return field(1, 1, struct.pack("<d", 1000.0 + step)) + field(2, 0, varint(step)) + field(5, 2, summary)


def test_the_checksum_of_castagnoli() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # as RFC 3720 has it


def test_a_file_of_pytorch() -> None:
    scalars = [
        (step, name, value)
        for _, step, each in EventFile(str(DATA / "torch.tfevents")).scalars()
        for name, value in each.items()
    ]
    assert [each for each in scalars if each[1] == "lr"] == [(step, "lr", 0.1) for step in range(5)]
    losses = [value for _, name, value in scalars if name == "loss/train"]
    assert losses[:5] == [1.0, 0.5, 0.3333333, 0.25, 0.2] and math.isnan(losses[5])
    assert {name for _, name, _ in scalars} == {"lr", "loss/train"}  # neither the text nor the histogram


def test_a_file_of_tensorflow() -> None:
    scalars = list(EventFile(str(DATA / "tensorflow.tfevents.v2")).scalars())
    assert [each["epoch_loss"] for _, _, each in scalars if "epoch_loss" in each] == [1.0, 0.5, 0.3333333, 0.25, 0.2]
    assert [(step, each["count"]) for _, step, each in scalars if "count" in each] == [(n, float(n)) for n in range(5)]
    assert all(1.7e9 < at < 1e11 for at, _, _ in scalars)


def test_a_growing_file_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    whole = b"".join(record(event(n, loss=n / 2)) for n in range(20))
    file = EventFile(str(tmp_path / "f"))
    seen: list[int] = []
    for end in range(0, len(whole) + 1, 7):
        (tmp_path / "f").write_bytes(whole[:end])
        seen += [step for _, step, _ in file.scalars()]
    (tmp_path / "f").write_bytes(whole)
    seen += [step for _, step, _ in file.scalars()]
    assert seen == list(range(20))


def test_large_records_are_passed_over_unread(tmp_path: Path) -> None:
    image = struct.pack("<Q", MOST_RECORD * 40)
    big = image + struct.pack("<I", masked(image)) + bytes(MOST_RECORD * 40 + 4)
    (tmp_path / "f").write_bytes(record(event(1, a=1)) + big + record(event(2, a=2)) + big + record(event(3, a=3)))
    assert [step for _, step, _ in EventFile(str(tmp_path / "f")).scalars()] == [1, 2, 3]


def test_a_record_with_a_wrong_checksum_is_passed_over_and_a_wrong_length_ends_the_file(tmp_path: Path) -> None:
    good, bad = record(event(1, a=1)), bytearray(record(event(2, a=2)))
    bad[-5] ^= 1
    (tmp_path / "f").write_bytes(good + bytes(bad) + good)
    assert len(list(EventFile(str(tmp_path / "f")).scalars())) == 2
    bad[3] ^= 1
    (tmp_path / "f").write_bytes(good + bytes(bad) + good)
    file = EventFile(str(tmp_path / "f"))
    assert len(list(file.scalars())) == 1 and file.is_damaged
    assert list(file.scalars()) == []


def test_a_length_beyond_the_file_is_waited_for_and_not_read(tmp_path: Path) -> None:
    head = struct.pack("<Q", (1 << 64) - 1)
    (tmp_path / "f").write_bytes(record(event(1, a=1)) + head + struct.pack("<I", masked(head)) + bytes(100))
    assert [step for _, step, _ in EventFile(str(tmp_path / "f")).scalars()] == [1]


def test_where_records_come_too_fast_every_tag_still_has_points(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"".join(record(event(n, **{f"tag{n % 8}": 1.0})) for n in range(4000)))
    file = EventFile(str(tmp_path / "f"))
    file.stride = 8
    tags = [tag for _, _, scalars in file.scalars() for tag in scalars]
    assert set(tags) == {f"tag{n}" for n in range(8)} and 300 < len(tags) < 800


@settings(max_examples=200)
@given(st.integers(0, 6000), st.integers(0, 6000), st.binary(max_size=40))
def test_real_files_cut_and_overwritten_anywhere(tmp_path_factory: object, cut: int, at: int, junk: bytes) -> None:
    import tempfile

    for path in DATA.iterdir():
        data = path.read_bytes()
        with tempfile.NamedTemporaryFile() as damaged:
            damaged.write((data[:at] + junk + data[at + len(junk) :])[:cut])
            damaged.flush()
            assert len(list(EventFile(damaged.name).scalars())) <= 11
            file = EventFile(damaged.name)
            file.whole_tail = cut // 2
            file.skip_to_tail()
            assert len(list(file.scalars())) <= 11


@given(st.binary(max_size=200))
def test_any_bytes_are_no_error(data: bytes) -> None:
    parse_event(data)
    parse_event(event(1, a=1.0) + data)
    summary = field(5, 2, field(1, 2, field(1, 2, b"t") + field(8, 2, data)))
    parse_event(summary)
    parse_event(field(5, 2, field(1, 2, data)))


def test_steps_and_times_that_are_none() -> None:
    assert parse_event(event(5, a=1.0)) == (1005.0, 5, {"a": 1.0})
    assert parse_event(field(2, 0, varint((1 << 64) - 1)) + event(1, a=1.0)[9:]) is not None
    assert parse_event(event(1, a=1.0) + field(2, 0, varint((1 << 64) - 1))) is None
    assert parse_event(event(1, a=1.0) + field(1, 1, struct.pack("<d", math.nan))) is None


def test_reading_ends_at_its_time_also_among_records_without_scalars(tmp_path: Path) -> None:
    blank = record(field(1, 1, struct.pack("<d", 5.0)))
    (tmp_path / "f").write_bytes(blank * 3 + record(event(1, a=1.0)))
    file = EventFile(str(tmp_path / "f"))
    file.until = -1.0
    for number in (1, 2, 3):
        assert list(file.scalars()) == [] and file.is_behind and file.offset == number * len(blank)
    file.until = math.inf
    assert [step for _, step, _ in file.scalars()] == [1] and not file.is_behind


def test_reading_ends_at_its_time_also_among_records_that_are_too_large(tmp_path: Path) -> None:
    head = struct.pack("<Q", MOST_RECORD + 1)
    big = head + struct.pack("<I", masked(head)) + bytes(MOST_RECORD + 5)
    (tmp_path / "f").write_bytes(big * 3)
    file = EventFile(str(tmp_path / "f"))
    file.until = -1.0
    assert list(file.scalars()) == [] and file.is_behind and file.offset == len(big)

from __future__ import annotations

from longboat.core.words import counted, listing, nearest, three_digits


def test_the_first_are_named_and_the_others_counted() -> None:
    assert listing(["a", "b"], 2) == "a, b"
    assert listing(["a", "b", "c", "d"], 2) == "a, b and 2 more"
    assert listing(["a", "b", "c"], 2, separator="; ") == "a; b and 1 more"
    assert listing(["a"], 3, count=4) == "a and 3 more"
    assert listing([], 3) == ""


def test_a_noun_agrees_with_its_count() -> None:
    assert [counted(count, "GPU") for count in (0, 1, 2)] == ["0 GPUs", "1 GPU", "2 GPUs"]
    assert [counted(count, "CPU") for count in (1.0, 0.5)] == ["1 CPU", "0.5 CPUs"]
    assert (counted(2, "process"), counted(12000, "file")) == ("2 processes", "12,000 files")


def test_a_guess_is_made_only_where_it_is_likely() -> None:
    names = ["--procs", "--nodes", "--gpus", "status", "Train.py"]
    assert [nearest(name, names) for name in ("--epochs", "bogus", "x", "")] == [[], [], [], []]
    assert nearest("--node", names) == ["--nodes"] and nearest("noeds", names) == ["--nodes"]
    assert nearest("us-esat-1", ["us-west-1", "us-east-1"]) == ["us-east-1"], "the same letters in another order"
    assert nearest("stats", names) == ["status"] and nearest("trian.py", names) == ["Train.py"]


def test_measured_numbers_have_three_digits_and_no_exponent() -> None:
    assert [three_digits(value) for value in (0.6721, 14.93, 999.4, 999.6, 1492.4, -12000.0)] == [
        "0.672",
        "14.9",
        "999",
        "1,000",
        "1,492",
        "-12,000",
    ]

"""What pods, tenants and earlier versions wrote, spoiled: records, gang files, last words, logs, frames, events."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longboat.bundles.archive import pack, unpack
from longboat.bundles.extraction import extract
from longboat.bundles.snapshot import take
from longboat.bundles.store import BundleStore
from longboat.core.errors import BundleError, LongboatError
from longboat.engines.kubernetes.logs.lines import lines_of_pod
from longboat.engines.kubernetes.manifests import gang_file
from longboat.engines.kubernetes.observe.termination import read_answer, read_termination
from longboat.engines.kubernetes.record_store import BadRecord, read_record
from longboat.engines.kubernetes.status import brief_status
from longboat.engines.local.engine import LocalEngine
from longboat.launcher.gang import messages
from longboat.launcher.gang.handshake import frame, take_frame
from longboat.launcher.node.plan import PlanError, read_plan
from longboat.launcher.pod.gang_file import GangError, plan_of
from longboat.metrics.event_files import EventFile
from tests.fuzz.mutations import as_json, examples, spoiled, strange

FORMATS = Path(__file__).resolve().parents[1] / "formats"
EVENTS = Path(__file__).resolve().parents[1] / "metrics" / "data"


def newest(name: str) -> Path:
    """That of the newest format that has one: a format may be of clusters alone."""
    return sorted(FORMATS.glob(f"*/{name}"), key=lambda path: int(path.parent.name))[-1]


def stored(name: str) -> Any:
    return json.loads(newest(name).read_text())


CONFIG_MAP = stored("configmap.json")
RECORDS = [json.loads(CONFIG_MAP["data"][part]) for part in ("record", "state")]
GANG = stored("gang.json")
ENDS = [text.encode() for text in stored("terminations.json").values()]
TIME = b"2026-11-15T07:10:02.123456Z"
LOG = [
    b"".join(
        b"%s %d %s line %d\n" % (key, number, TIME, number) for number in range(3) for key in (b"0.out", b"1.err")
    ),
    b"plain\nwords\r\n\xff\n0.out~ 3 " + TIME + b" no end\n0.out^ 4 " + TIME + b" a\r|\n",
    b"0.err+17 3 " + TIME + b" 10%\nsetup.out 1 2026-11-15T07:10:02Z  two blanks\n0.out@2 0 " + TIME + b" again\n",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("fuzz")


@examples(0.04)
@given(record=strange([RECORDS[0]]), state=strange([RECORDS[1]]), which=st.integers(1, 3))
def test_records_of_runs_in_a_cluster(record: Any, state: Any, which: int) -> None:
    parts = (record if which & 1 else RECORDS[0], state if which & 2 else RECORDS[1])
    body = {**CONFIG_MAP, "data": dict(zip(("record", "state"), map(json.dumps, parts), strict=True))}
    with contextlib.suppress(BadRecord):
        read, kept = read_record(body)
        status = brief_status(read, kept)
        assert status.name == CONFIG_MAP["metadata"]["name"]


@examples(0.03)
@given(data=spoiled([part.encode() for part in CONFIG_MAP["data"].values()]), part=st.sampled_from(("record", "state")))
def test_bytes_of_records(data: bytes, part: str) -> None:
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(BadRecord):
        read_record({**CONFIG_MAP, "data": {**CONFIG_MAP["data"], part: text}})


@pytest.fixture(scope="module")
def home(folder: Path) -> LocalEngine:
    run = folder / "home" / "runs" / "digits"
    run.mkdir(parents=True)
    for path in newest("run").glob("*.json"):
        (run / path.name).write_bytes(path.read_bytes())
    return LocalEngine(folder / "home", environment={"PATH": "/usr/bin:/bin", "HOME": str(folder)})


@examples(0.02)
@given(data=st.data(), name=st.sampled_from(("record.json", "state.json", "progress.json")))
def test_files_of_runs_on_this_machine(home: LocalEngine, data: st.DataObject, name: str) -> None:
    """`ps` and `status` of a home in which one file of a run is strange."""
    kept = (newest("run") / name).read_bytes()
    changed = data.draw(spoiled([kept]) | strange([json.loads(kept)]).map(as_json))
    file = home.home.runs / "digits" / name
    file.write_bytes(changed)
    try:
        home.list()
        with contextlib.suppress(LongboatError):
            home.status("digits")
    finally:
        file.write_bytes(kept)


@examples(0.03)
@given(gang=strange([GANG]), index=st.integers(-1, 3))
def test_gang_files_read_by_a_launcher(folder: Path, gang: Any, index: int) -> None:
    with contextlib.suppress(GangError, PlanError):
        plan = folder / "plan.json"
        plan.write_bytes(as_json(plan_of(gang, "worker", index, "/longboat", [])))
        read_plan(str(plan))


@examples(0.03)
@given(data=spoiled([gzip.compress(as_json(GANG)), gzip.compress(as_json({**GANG, "code": None}))]))
def test_gang_files_read_by_an_engine(data: bytes) -> None:
    with contextlib.suppress(LongboatError):
        gang_file.code_of(gang_file.decode(data))


@examples(0.04)
@given(data=spoiled(ENDS) | strange([json.loads(text) for text in ENDS]).map(as_json))
def test_last_words_of_pods(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    end = read_termination(text)
    assert end is None or isinstance(end.exit_code, (int, type(None)))
    with contextlib.suppress(ValueError, RecursionError):
        answer = json.loads(text)
        if isinstance(answer, dict):
            read_answer(answer)


@examples(0.03)
@given(data=spoiled(LOG), sizes=st.lists(st.integers(1, 30), max_size=8))
def test_lines_of_pods(data: bytes, sizes: list[int]) -> None:
    chunks, rest = [], data
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    lines = list(lines_of_pod(iter([*chunks, rest]), seen={}))
    assert sum(len(line.data) for line in lines) <= len(data) + len(lines)


SAID = [
    {"is": "ready"},
    {"is": "stalled", "rank": 1, "silent_s": 3.5},
    {"is": "stop", "grace_s": 3.0, "evicted": False, "dump": True},
    {
        "is": "report",
        "age_s": 0.1,
        "report": {"rank": 0, "exit_code": 1, "cause": "exit", "message": "m", "tail": ["a"]},
    },
    {"is": "ended", "outcome": {"exit_code": 0, "started": 1.0, "ended": 2.0}},
    {"do": "go", "resume_from": "step-1"},
    {"do": "end", "reason": "x", "grace_s": 1.0},
    {"do": "dump"},
]


@examples(0.02)
@given(said=strange(SAID))
def test_messages_of_a_gang(said: Any) -> None:
    for check in (messages.from_node, messages.from_leader):
        with contextlib.suppress(ValueError):
            check(said)


@examples(0.02)
@given(data=spoiled([b"".join(frame(b"M", as_json(said)) for said in SAID)]), size=st.integers(1, 50))
def test_frames_of_a_line(data: bytes, size: int) -> None:
    """However they come in: what is kept is never more than one frame may be."""
    buffer, taken = bytearray(), 0
    with contextlib.suppress(ValueError):
        for at in range(0, len(data), size):
            buffer += data[at : at + size]
            while (whole := take_frame(buffer)) is not None:
                taken += len(whole[1])
    assert taken + len(buffer) <= len(data)


def bundle() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "tree"
        (root / "deep").mkdir(parents=True)
        (root / "train.py").write_text("print(1)\n")
        (root / "deep" / "data").write_bytes(bytes(range(256)))
        (root / "link").symlink_to("train.py")
        store = BundleStore(Path(place) / "store")
        store.prepare()
        packed = io.BytesIO()
        pack(store, take(root, store).hash, packed)
        return packed.getvalue()


PACKED = bundle()


@examples(0.02)
@given(plain=spoiled([gzip.decompress(PACKED)]), packed=spoiled([PACKED]), is_plain=st.booleans())
def test_bundles_and_archives(plain: bytes, packed: bytes, is_plain: bool) -> None:
    data = gzip.compress(plain, 1) if is_plain else packed
    with tempfile.TemporaryDirectory() as place:
        with contextlib.suppress(BundleError):
            unpack(io.BytesIO(data), Path(place) / "code")
        archive = Path(place) / "archive.tar.gz"
        archive.write_bytes(data)
        with contextlib.suppress(BundleError):
            extract(archive, Path(place) / "data")
        assert {path.name for path in Path(place).iterdir()} <= {"code", "data", "archive.tar.gz"}


@examples(0.02)
@given(data=spoiled([path.read_bytes()[:20_000] for path in sorted(EVENTS.iterdir()) if path.is_file()]))
def test_event_files(folder: Path, data: bytes) -> None:
    file = folder / "events"
    file.write_bytes(data)
    for time_, step, values in EventFile(str(file)).scalars():
        assert isinstance(time_, float) and isinstance(step, int) and len(values) <= len(data)

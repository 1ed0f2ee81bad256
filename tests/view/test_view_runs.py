"""The server of the page of runs: following metrics.jsonl, its reduction to buckets, the stream of events."""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import http.client
import json
import math
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest

from gristmill.view.artefacts import Artefact
from gristmill.view.metrics_tail import MetricsTail
from gristmill.view.run_columns import MAX_BUCKETS, Columns
from gristmill.view.runs import FollowedRun, Follower
from recorded_runs import posterior_record, read_lines, write_json, write_lines, write_run
from view.pages import TOKEN, serving


def line(step, **fields):
    return json.dumps({"kind": "train", "step": step, "loss": 1.0, **fields}) + "\n"


def append(path, text):
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def steps_of(tail):
    return tail.tables["train"].table().steps.tolist()


@pytest.fixture
def metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2))
    return path


@pytest.fixture
def tail(metrics):
    tail = MetricsTail(metrics.parent)
    tail.poll()
    assert steps_of(tail) == [1, 2]
    return tail


# Following a file


def test_an_incomplete_line_waits_for_its_rest(tail, metrics):
    append(metrics, line(3)[:20])
    tail.poll()
    assert steps_of(tail) == [1, 2]
    append(metrics, line(3)[20:] + line(4))
    tail.poll()
    assert steps_of(tail) == [1, 2, 3, 4] and tail.num_damaged == 0


def test_appended_records_keep_the_generation_and_a_resumed_run_starts_a_new_one(tail, metrics):
    before = tail.generation
    append(metrics, line(3))
    tail.poll()
    assert tail.generation == before
    replacement = metrics.with_name("new")
    replacement.write_text(line(1) + line(2, loss=9.0) + line(3) + line(4))  # longer than the old file
    replacement.rename(metrics)
    tail.poll()
    assert tail.generation > before and steps_of(tail) == [1, 2, 3, 4]
    assert tail.tables["train"].table()["loss"].tolist() == [1, 9, 1, 1]


@pytest.mark.parametrize("content", [line(1), line(7) + line(8) + line(9) + line(10)], ids=["shorter", "longer"])
def test_a_file_that_was_rewritten_in_place_is_read_again(tail, metrics, content):
    before = tail.generation
    metrics.write_text(content)  # the same inode
    tail.poll()
    assert tail.generation > before and steps_of(tail) == [json.loads(each)["step"] for each in content.splitlines()]


def test_a_deleted_run_is_reported_and_comes_back(tail, metrics):
    shutil.rmtree(metrics.parent)
    tail.poll()
    assert "no longer exists" in tail.problem and steps_of(tail) == []
    metrics.parent.mkdir()
    tail.poll()
    assert "no records yet" in tail.problem
    metrics.write_text(line(5))
    tail.poll()
    assert tail.problem == "" and steps_of(tail) == [5]


def test_damaged_lines_are_counted_and_skipped_and_nan_is_not_damage(tail, metrics):
    append(metrics, '{"kind": "train", "step": 3, "loss": NaN}\n{"kind": "tr\n[1]\n\n' + line(4))
    append(metrics, '{"kind": "sample", "step": 4, "prompt": "", "text": "\\ud800 x"}\n')
    append(metrics, '{"kind": "train", "step": 5, "loss": 1' + "0" * 400 + "}\n")
    tail.poll()
    assert steps_of(tail) == [1, 2, 3, 4, 5] and tail.num_damaged == 2
    assert np.isfinite(tail.tables["train"].table()["loss"]).tolist() == [True, True, False, True, False]
    assert tail.samples.since(0)[0].text == "\\ud800 x"


def test_steps_that_go_back_are_sorted_as_in_the_report(tail, metrics):
    before = tail.generation
    append(metrics, line(2, loss=5.0) + line(1, loss=6.0))
    tail.poll()
    table = tail.tables["train"].table()
    assert table.steps.tolist() == [1, 1, 2, 2] and table["loss"].tolist() == [1, 6, 1, 5]
    assert tail.generation > before


def test_a_folder_or_pipe_as_metrics_file_is_a_problem_and_never_blocks(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    tail = MetricsTail(tmp_path)
    tail.poll()
    assert "not a regular file" in tail.problem


@pytest.mark.parametrize("num_lines", [0, 1, 700])
def test_a_line_without_an_end_is_reported_once_and_not_read_again_and_again(tmp_path, monkeypatch, num_lines):
    monkeypatch.setattr("gristmill.view.metrics_tail.BLOCK_BYTES", 1 << 8)
    monkeypatch.setattr("gristmill.view.metrics_tail.POLL_BYTES", 1 << 12)
    monkeypatch.setattr("gristmill.view.metrics_tail.MAX_LINE_BYTES", 1 << 12)
    (tmp_path / "metrics.jsonl").write_bytes(b'{"kind": "train", "step": 1, "loss": 2}\n' * num_lines + bytes(1 << 14))
    tail = MetricsTail(tmp_path)
    assert not all(tail.poll() for _ in range(20))
    assert "has a line of more than" in tail.problem and tail.tables["train"].count == num_lines


def test_a_file_in_several_blocks_gives_the_same_records(tmp_path, monkeypatch):
    write_run(tmp_path / "run", num_records=50)
    whole = MetricsTail(tmp_path / "run")
    whole.poll()
    monkeypatch.setattr("gristmill.view.metrics_tail.BLOCK_BYTES", 100)
    monkeypatch.setattr("gristmill.view.metrics_tail.POLL_BYTES", 1_000)
    pieces = MetricsTail(tmp_path / "run")
    num_polls = 1
    while pieces.poll():
        num_polls += 1
    assert num_polls > 5
    for name, table in whole.tables.items():
        other = pieces.tables[name]
        assert table.rows(0).keys() == other.rows(0).keys()
        for column, values in table.rows(0).items():
            np.testing.assert_array_equal(other.rows(0)[column], values)


# Columns and buckets


def decoded(parts, name):
    return np.frombuffer(base64.b64decode(parts[name]), "<f4").astype(float)


@pytest.mark.parametrize("num_records", [1, MAX_BUCKETS, MAX_BUCKETS + 1, 5_000])
def test_buckets_have_the_mean_and_the_extremes_of_their_records(num_records):
    values = np.random.default_rng(0).normal(size=num_records).astype(np.float32)
    values[num_records // 3] = 1000.0
    columns = Columns()
    columns.extend([{"step": i + 1, "loss": float(value)} for i, value in enumerate(values)])
    found = columns.buckets()
    size = found["size"]
    groups = [values[i : i + size] for i in range(0, num_records, size)]
    assert len(groups) <= MAX_BUCKETS and (size == 1 or len(groups) > MAX_BUCKETS // 2)
    parts = found["columns"]["loss"]
    np.testing.assert_allclose(decoded(parts, "mean"), [group.mean() for group in groups], rtol=1e-5, atol=1e-6)
    if size > 1:
        assert decoded(parts, "min").tolist() == [group.min() for group in groups]
        assert decoded(parts, "max").tolist() == [group.max() for group in groups]
    last_steps = np.frombuffer(base64.b64decode(found["columns"]["step"]["mean"]), "<f8")
    assert last_steps.tolist() == [min(num_records, (i + 1) * size) for i in range(len(groups))]


def test_a_column_that_comes_later_or_is_never_a_number():
    columns = Columns()
    columns.extend([{"step": 1, "loss": 2.0, "mfu": None, "name": "x", "list": [1]}])
    columns.extend([{"step": 2, "loss": "2.0", "mfu": 0.5, "gap": True, "\x07": 1.0}])
    rows = columns.rows(0)
    assert rows.keys() == {"step", "loss", "mfu", "gap"}
    assert rows["loss"][0] == 2.0 and math.isnan(rows["loss"][1])
    assert math.isnan(rows["mfu"][0]) and rows["mfu"][1] == 0.5


def test_damaged_records_with_any_number_of_names_do_not_fill_memory():
    columns = Columns()
    columns.extend([{"step": 1, **{f"name {i}": 1.0 for i in range(1_000)}}])
    assert len(columns.rows(0)) <= 80


# Status


def status_of(folder):
    run = FollowedRun(0, Artefact("run", folder))
    run.poll(look_at_state=True)
    return run.status


@contextlib.contextmanager
def lock_of(folder, *, pid=None, host=None, is_held=True):
    with (folder / ".lock").open("w") as file:
        file.write(json.dumps({"pid": pid or os.getpid(), "host": host or socket.gethostname()}))
        file.flush()
        if is_held:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_the_state_of_a_run(tmp_path):
    run = write_run(tmp_path / "run", num_records=20, max_steps=400)
    assert status_of(run).state == "stopped"
    with lock_of(run):
        status = status_of(run)
        assert status.state == "training" and (status.step, status.total) == (200, 400)
        assert status.seconds_left == pytest.approx(200 * 0.1)  # 0.1 s per step
    with lock_of(run, is_held=False):
        assert status_of(run).state == "stopped"  # a killed process left its file, and its number is in use again
    with lock_of(run, host="another-machine"):
        assert status_of(run).state == "training"  # its last record is recent
        os.utime(run / "metrics.jsonl", (1, 1))
        assert status_of(run).state == "stopped"
    write_json(run / "config.json", {"max_steps": 200})
    assert status_of(run).state == "finished"
    assert status_of(tmp_path / "nothing").state == "missing"


def test_a_look_at_the_state_never_takes_the_lock(tmp_path, monkeypatch):
    """A run that starts in the same moment would fail."""
    run = write_run(tmp_path / "run", num_records=2)
    with lock_of(run, is_held=False):
        taken = []
        monkeypatch.setattr(fcntl, "flock", lambda *arguments: taken.append(arguments))
        assert status_of(run).state == "finished" and taken == []


def test_a_run_that_stopped_itself_says_why(tmp_path):
    run = write_run(tmp_path / "run", num_records=5, max_steps=400)
    message = "The loss of step 50 is NaN or infinite. The run is stopped. Try a lower learning rate."
    append(run / "metrics.jsonl", json.dumps({"kind": "event", "step": 50, "message": message}) + "\n")
    assert "Stopped at step 50: The loss of step 50 is NaN or infinite." in status_of(run).problem


def test_a_damaged_configuration_is_a_message(tmp_path):
    run = write_run(tmp_path / "run", num_records=5)
    write_json(run / "config.json", {"max_steps": 10**400})
    with lock_of(run):
        assert (status_of(run).state, status_of(run).total) == ("training", None)
    (run / "config.json").write_text("{")
    assert "config.json" in status_of(run).problem


# Errors


@pytest.fixture
def breaks(monkeypatch):
    """A function that lets `Path.stat` or `Path.is_dir` of a folder or its files raise ESTALE, `times` times."""

    def broken(folder, name, *, times=math.inf):
        real, left = getattr(Path, name), [times]

        def raising(path, *arguments, **options):
            if left[0] and folder in (path, path.parent):
                left[0] -= 1
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return real(path, *arguments, **options)

        monkeypatch.setattr(Path, name, raising)

    return broken


@pytest.mark.parametrize(("name", "state"), [("is_dir", "unreadable"), ("stat", "stopped")])
def test_an_error_of_the_file_system_is_the_status_until_it_is_over(tmp_path, breaks, name, state):
    run = write_run(tmp_path / "run", num_records=20, max_steps=400)
    followed = FollowedRun(0, Artefact("run", run))
    followed.poll(look_at_state=True)
    before = followed.status
    assert (before.state, before.problem) == ("stopped", "")
    breaks(run, name, times=1)
    assert not followed.poll(look_at_state=True)
    assert followed.status.state == state and os.strerror(errno.ESTALE) in followed.status.problem
    assert (followed.status.step, followed.status.loss) == (before.step, before.loss)
    followed.poll(look_at_state=False)  # tries again at once
    assert followed.status == before


def test_a_missing_file_in_a_folder_that_cannot_be_read_is_a_problem(tmp_path, breaks):
    followed = FollowedRun(0, Artefact("run", tmp_path))
    breaks(tmp_path, "is_dir", times=2)  # once for metrics.jsonl and once for the state
    followed.poll(look_at_state=True)
    assert os.strerror(errno.ESTALE) in followed.status.problem
    followed.poll(look_at_state=False)
    assert (followed.status.state, followed.status.problem) == ("waiting", "")


def test_a_configuration_that_could_not_be_read_is_read_again(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", num_records=20, max_steps=400)
    followed = FollowedRun(0, Artefact("run", run))
    with monkeypatch.context() as patched:
        patched.setattr("gristmill.view.run_state.read_object", raising(OSError(errno.EIO, "Input/output error")))
        followed.poll(look_at_state=True)
    assert "Input/output error" in followed.status.problem and followed.status.total is None
    followed.poll(look_at_state=True)
    assert (followed.status.problem, followed.status.total) == ("", 400)


def raising(error):
    def raise_it(*_arguments, **_options):
        raise error

    return raise_it


def test_a_block_that_fails_in_the_middle_is_not_added_twice(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", num_records=20)
    followed = FollowedRun(0, Artefact("run", run))
    with monkeypatch.context() as patched:
        patched.setattr(MetricsTail, "_add", added_in_part(MetricsTail._add))
        for _ in range(3):
            followed.poll(look_at_state=True)
        assert followed.status.state == "unreadable" and "RuntimeError: no idea" in followed.status.problem
    followed.poll(look_at_state=False)
    assert (followed.status.state, followed.status.problem) == ("finished", "")
    assert followed.event_after(None)[1]["tables"]["train"]["count"] == 20


def added_in_part(add):
    def failing(tail, records):
        add(tail, records[: len(records) // 2])
        raise RuntimeError("no idea")

    return failing


# Over HTTP


class Stream:
    """The events of the page, read one by one."""

    def __init__(self, served, *, last_id="", since=""):
        self._connection = http.client.HTTPConnection(served.origin.removeprefix("http://"), timeout=20)
        headers = {"Last-Event-ID": last_id} if last_id else {}
        self._connection.request("GET", f"/{TOKEN}/api/runs/events?since={since}", headers=headers)
        self._reply = self._connection.getresponse()
        assert self._reply.status == 200

    def next(self):
        fields = {}
        while True:
            text = self._line()
            if text == "" and "data" in fields:
                return fields["event"], json.loads(fields["data"]), fields["id"]
            name, _, value = text.partition(": ")
            fields[name] = value

    def _line(self):
        for _ in range(3):
            line = self._reply.readline().decode()
            if not line.startswith(":"):
                return line.rstrip("\n")
            self._reply.readline()
        raise AssertionError("the server sent only heartbeats")

    def ends(self):
        """Return whether the server ends the stream without another event."""
        return self._line() == "" and self._reply.isclosed()

    def close(self):
        self._reply.close()
        self._connection.close()


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.view.runs.POLL_SECONDS", 0.05)
    for number, name in enumerate(("one", "two")):
        write_run(tmp_path / "runs" / name, num_records=20, seed=number)
    config = json.loads((tmp_path / "runs/two/config.json").read_text())
    write_json(tmp_path / "runs/two/config.json", {**config, "num_layers": 8})
    with serving(tmp_path / "runs") as server:
        server.runs = tmp_path / "runs"
        yield server


def test_a_page_gets_a_snapshot_then_new_records_and_catches_up_after_a_reconnect(served):
    stream = Stream(served)
    snapshots = [stream.next() for _ in range(2)]
    assert [(name, content["run"]) for name, content, _ in snapshots] == [("snapshot", 0), ("snapshot", 1)]
    assert snapshots[1][1]["tables"]["train"]["count"] == 20 and snapshots[0][1]["samples"][0]["step"] == 66
    append(served.runs / "two/metrics.jsonl", line(300, loss=7.5) + line(310, mfu=None))
    name, content, last_id = stream.next()
    assert (name, content["run"]) == ("append", 1)
    assert content["tables"]["train"]["step"] == [300, 310] and content["tables"]["train"]["lr"] == [None, None]
    stream.close()
    append(served.runs / "two/metrics.jsonl", line(320))
    for again in (Stream(served, last_id=last_id), Stream(served, since=last_id)):
        name, content, _ = again.next()
        assert name == "append" and content["tables"]["train"]["step"] == [320]
        again.close()


@pytest.mark.parametrize("last_id", ["nonsense", "a;1.2;3", "x" * 2_000, "0;99999999999999999999"])
def test_a_foreign_id_gives_snapshots(served, last_id):
    stream = Stream(served, last_id=last_id)
    assert stream.next()[0] == "snapshot"
    stream.close()


def wait_for_status(stream, number, *, state):
    while True:
        name, content, _ = stream.next()
        if content["run"] == number and content["status"]["state"] == state:
            return name, content


@pytest.mark.parametrize("name", ["is_dir", "stat"])
def test_a_run_that_can_never_be_read_does_not_stop_the_others(served, breaks, name):
    breaks(served.runs / "one", name)
    stream = Stream(served)
    contents = [stream.next()[1] for _ in range(2)]
    assert [content["run"] for content in contents] == [0, 1]
    assert os.strerror(errno.ESTALE) in contents[0]["status"]["problem"]
    for step in (300, 310):
        append(served.runs / "two/metrics.jsonl", line(step))
        kind, content, _ = stream.next()
        assert (kind, content["run"], content["tables"]["train"]["step"]) == ("append", 1, [step])
    stream.close()


def test_an_unexpected_error_in_one_run_is_its_status_and_the_others_continue(served, monkeypatch):
    real = MetricsTail.poll
    with monkeypatch.context() as patched:
        patched.setattr(
            MetricsTail,
            "poll",
            lambda tail: raising(KeyError("no idea"))() if tail.path.parent.name == "one" else real(tail),
        )
        stream = Stream(served)
        _, content = wait_for_status(stream, 0, state="unreadable")
        assert "KeyError: 'no idea'" in content["status"]["problem"]
        append(served.runs / "two/metrics.jsonl", line(300))
        while (content["run"], content["status"]["step"]) != (1, 300):
            _, content, _ = stream.next()
    _, content = wait_for_status(stream, 0, state="finished")
    assert content["status"]["problem"] == ""
    stream.close()


def test_an_event_that_cannot_be_made_is_a_status_and_the_next_one_is_a_snapshot(served, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("gristmill.view.runs._posterior", raising(ValueError("no idea")))
        stream = Stream(served)
        contents = [stream.next()[1] for _ in range(2)]
        assert all("ValueError: no idea" in content["status"]["problem"] for content in contents)
        assert all(content["tables"] == {} for content in contents)
    append(served.runs / "two/metrics.jsonl", line(300))
    name, content, _ = stream.next()
    assert (name, content["run"], content["tables"]["train"]["count"]) == ("snapshot", 1, 21)
    stream.close()


def test_open_pages_end_and_can_connect_again_if_nothing_follows_the_runs_any_more(served, monkeypatch):
    stream = Stream(served)
    stream.next(), stream.next()
    waiting = Stream(served)
    waiting.next(), waiting.next()
    with monkeypatch.context() as patched:
        patched.setattr(Follower, "_poll", raising(RuntimeError("can't start new thread")))
        assert stream.ends() and waiting.ends()
        first = Stream(served)  # fails in its first poll
        assert first.ends()
    again = Stream(served)
    assert [again.next()[0] for _ in range(2)] == ["snapshot", "snapshot"]
    again.close()


def test_a_restarted_and_a_deleted_run_are_sent_as_snapshots(served):
    stream = Stream(served)
    stream.next(), stream.next()
    replacement = served.runs / "one" / "new"
    records = [record for record in read_lines(served.runs / "one/metrics.jsonl") if record["kind"] == "train"]
    write_lines(replacement, records[:5])
    replacement.rename(served.runs / "one/metrics.jsonl")
    name, content, _ = stream.next()
    assert name == "snapshot" and content["run"] == 0 and content["tables"]["train"]["count"] == 5
    shutil.rmtree(served.runs / "two")
    while content["run"] != 1 or content["status"]["state"] != "missing":
        name, content, _ = stream.next()
    assert "no longer exists" in content["status"]["problem"]
    stream.close()


def get(served, path):
    connection = http.client.HTTPConnection(served.origin.removeprefix("http://"), timeout=20)
    connection.request("GET", f"/{TOKEN}/api/runs/{path}")
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


def test_a_window_has_the_records_of_its_steps(served):
    stream = Stream(served)  # the records are read while a page is open
    stream.next()
    status, content = get(served, "0/window?first=100&last=150")
    assert status == 200 and content["tables"]["train"]["count"] == 6
    assert get(served, "0/window?first=100&last=1")[1]["tables"]["train"]["count"] == 0
    for query in ("first=nan&last=1", "first=1", "first=1&last=x"):
        status, content = get(served, f"0/window?{query}")
        assert status == 400 and "must be a step" in content["error"]
    assert get(served, "7/window?first=1&last=2")[0] == 404
    assert get(served, "..%2F0/window?first=1&last=2")[0] == 404
    stream.close()


def test_details_mark_the_options_that_differ(served):
    status, content = get(served, "details?runs=0,1")
    assert status == 200 and content["names"] == ["one", "two"]
    rows = {row["name"]: row for row in content["options"]}
    assert rows["num_layers"] == {"name": "num_layers", "values": ["4", "8"], "differs": True}
    assert not rows["vocab_size"]["differs"]
    assert any(cell["is_best"] for row in content["figures"] for cell in row["cells"])
    assert get(served, "details?runs=1")[1]["names"] == ["two"]
    assert get(served, "details?runs=9")[0] == 404


def test_alarms_and_the_kl_per_dimension_are_in_the_snapshot(tmp_path):
    run = write_run(tmp_path / "run", num_records=10)
    records = [
        posterior_record(step, alarms=[("raised", "collapse")] if step == 20 else []) for step in range(10, 60, 10)
    ]
    append(run / "metrics.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    followed = FollowedRun(0, Artefact("run", run))
    followed.poll(look_at_state=True)
    _, content, position = followed.event_after(None)
    posterior = content["posterior"]
    assert posterior["latent_dim"] == 16 and len(posterior["cells"]) == 16 and len(posterior["edges"]) == 6
    assert posterior["cells"][-1] == [0.5] * 5  # the dimension with the most KL is the last row
    assert [(span["words"], span["first"], span["is_over"]) for span in posterior["spans"]] == [("collapse", 20, False)]
    assert followed.event_after(position) is None
    append(run / "metrics.jsonl", json.dumps(posterior_record(60, alarms=[("cleared", "collapse")])) + "\n")
    followed.poll(look_at_state=False)
    name, content, _ = followed.event_after(position)
    assert name == "append" and content["posterior"]["spans"][0]["is_over"]
    assert content["tables"]["posterior"]["step"] == [60] and "train" not in content["tables"]


def test_a_page_that_was_away_for_long_gets_a_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.view.runs.MAX_ROWS", 10)
    run = write_run(tmp_path / "run", num_records=10)
    followed = FollowedRun(0, Artefact("run", run))
    followed.poll(look_at_state=True)
    _, _, position = followed.event_after(None)
    append(run / "metrics.jsonl", "".join(map(line, range(200, 220))))
    followed.poll(look_at_state=False)
    assert followed.event_after(position)[0] == "snapshot"


def test_100_000_records_arrive_complete_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.view.metrics_tail.POLL_BYTES", 1 << 20)  # so that a part takes several polls
    num_records, part_bytes = 100_000, 2_000_003
    losses = np.random.default_rng(0).normal(3.0, 0.5, num_records).round(6)
    losses[12_345] = 50.0
    records = []
    for i, loss in enumerate(losses.tolist()):
        step = 3 * (i + 1)
        records.append({"kind": "train", "step": step, "loss": loss, "tokens": 64 * step})
        if step % 3_000 == 0:
            records.append({"kind": "val", "step": step, "loss": loss + 1.0})
        if step % 30_000 == 0:
            records.append({"kind": "sample", "step": step, "prompt": "", "text": f"text {step}"})
    content = "".join(json.dumps(record) + "\n" for record in records)
    write_json(tmp_path / "config.json", {"max_steps": 400_000})
    followed = FollowedRun(0, Artefact("run", tmp_path))
    position, num_polls = None, 0
    for first in range(0, len(content), part_bytes):  # most parts end inside a line
        append(tmp_path / "metrics.jsonl", content[first : first + part_bytes])
        while followed.poll(look_at_state=False):
            num_polls += 1
        name, _, position = followed.event_after(position)
        assert name == "snapshot"  # too many records to append
    followed.poll(look_at_state=True)
    assert num_polls > 3

    status = followed.status
    assert (status.state, status.step, status.total, status.num_damaged) == ("stopped", 300_000, 400_000, 0)
    assert status.loss == losses[-1] and status.val_loss == losses[-1] + 1.0 and status.problem == ""
    name, snapshot, position = followed.event_after(None)
    tables = snapshot["tables"]
    assert (name, tables["train"]["count"], tables["val"]["count"]) == ("snapshot", 100_000, 100)
    samples = [(sample.step, sample.text) for sample in snapshot["samples"]]
    assert samples == [(step, f"text {step}") for step in range(30_000, 300_001, 30_000)]
    size, columns = tables["train"]["size"], tables["train"]["columns"]
    assert size == 64
    groups = [losses[at : at + size] for at in range(0, 100_000, size)]
    means = [sum(group) / len(group) for group in groups]
    np.testing.assert_allclose(decoded(columns["loss"], "mean"), means, rtol=1e-6)
    np.testing.assert_array_equal(decoded(columns["loss"], "min"), np.float32([min(group) for group in groups]))
    np.testing.assert_array_equal(decoded(columns["loss"], "max"), np.float32([max(group) for group in groups]))
    ends = [min(100_000, at + size) for at in range(0, 100_000, size)]
    for place, factor in (("step", 3), ("tokens", 192)):
        found = np.frombuffer(base64.b64decode(columns[place]["mean"]), "<f8")
        assert found.tolist() == [factor * end for end in ends]

    append(tmp_path / "metrics.jsonl", line(300_003, loss=2.5))
    followed.poll(look_at_state=False)
    name, appended, _ = followed.event_after(position)
    rows = appended["tables"]["train"]
    assert (name, rows["step"], rows["loss"]) == ("append", [300_003], [2.5])
    zoomed = followed.window(30_000, 36_000)["tables"]["train"]  # finer: every record
    assert (zoomed["count"], zoomed["size"]) == (2_001, 1)

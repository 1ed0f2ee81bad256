"""Jobs: written once, and found again only by runs with the same request."""

import json
import os
import subprocess
import sys

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import FormatError
from gristmill.executors.done import Done, read_done, write_done
from gristmill.executors.job import INPUTS_FILE, JOB_FILE, PARTS_FILE, Job, job_location, open_job, reopen_job
from gristmill.executors.work_folder import LocalWorkFolder, open_work_folder

INPUTS = [{"name": "a.txt", "num_bytes": 5}, {"name": "b\udcff.txt", "num_bytes": 7}]
PARTS = [[[0, 0, None, False, False]], [[1, 0, None, False, False]]]


def _job(**changes):
    fields = {
        "kind": "count",
        "inputs": INPUTS,
        "options": {"pattern": "gpt4", "min_frequency": 2},
        "settings": {"num_partitions": 4},
        "parts": [],
    }
    return Job(**(fields | changes))


def _never(_):
    raise AssertionError("the parts were made again")


@pytest.fixture(params=["path", "memory"])
def location(request, tmp_path):
    yield f"{'memory://' * (request.param == 'memory')}{tmp_path}/deep/work"
    fsspec.filesystem("memory").store.clear()


def test_a_job_is_read_as_it_was_written(location):
    with open_job(location, _job(), lambda _: PARTS) as opened:
        assert opened.job == _job(parts=PARTS)
        assert not opened.is_resumed
    assert Job.read(open_work_folder(location)) == _job(parts=PARTS)


def test_what_every_task_reads_does_not_grow_with_the_number_of_inputs(tmp_path):
    folder = LocalWorkFolder(tmp_path)
    _job(inputs=INPUTS * 1000, parts=PARTS).write(folder)
    assert folder.size(JOB_FILE) < 1000


def test_the_id_depends_on_what_decides_the_result_alone():
    same = [_job(), _job(parts=PARTS), _job(settings={}), _job(options={"min_frequency": 2, "pattern": "gpt4"})]
    others = [_job(kind="encode"), _job(inputs=INPUTS[::-1]), _job(options={"pattern": "gpt4", "min_frequency": 3})]
    assert {job.id for job in same} == {_job().id}
    assert len({job.id for job in [_job(), *others]}) == 4


def test_a_second_run_takes_the_parts_and_settings_that_are_there(location):
    with open_job(location, _job(), lambda _: PARTS):
        pass
    with open_job(location, _job(settings={"num_partitions": 9}), _never) as opened:
        assert opened.is_resumed
        assert opened.job == _job(parts=PARTS)
    with reopen_job(location) as opened:
        assert opened.job == _job(parts=PARTS)


def test_a_job_stays_when_its_run_fails_and_is_gone_when_it_is_removed(location):
    with pytest.raises(KeyError), open_job(location, _job(), lambda _: PARTS):
        raise KeyError
    with open_job(location, _job(), _never) as opened:
        opened.folder.remove()
    with open_job(location, _job(), lambda _: []) as opened:
        assert not opened.is_resumed


def test_a_job_whose_parts_cannot_be_made_leaves_nothing(location):
    def fail(folder):
        folder.write("tokenizer.json", b"{}")
        raise KeyError

    with pytest.raises(KeyError), open_job(location, _job(), fail):
        pass
    folder = open_work_folder(location)
    assert not (folder.path.exists() if isinstance(folder, LocalWorkFolder) else folder.names())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"pattern": "gpt2", "min_frequency": 2}}, "pattern was 'gpt4' and is now 'gpt2'"),
        ({"options": {"pattern": "gpt4"}}, "min_frequency was 2 and is now None"),
        ({"inputs": INPUTS[:1]}, "the number of inputs was 2 and is now 1"),
        ({"inputs": [{**INPUTS[0], "num_bytes": 6}, INPUTS[1]]}, r"the input a\.txt is new, has changed"),
        ({"kind": "encode"}, "the job was 'count' and is now 'encode'"),
    ],
)
def test_another_job_is_refused_with_the_difference_unless_it_may_be_replaced(location, changes, words):
    with open_job(location, _job(), lambda _: PARTS) as opened:
        opened.folder.write("count-00000.ok", b"")
    with pytest.raises(FileExistsError, match=words), open_job(location, _job(**changes), _never):
        pass
    with open_job(location, _job(**changes), lambda _: [], overwrite=True) as opened:
        assert not opened.is_resumed
        assert sorted(opened.folder.names()) == [INPUTS_FILE, JOB_FILE, PARTS_FILE]


def _edited(**changes):
    def edit(folder):
        content = json.loads(folder.read(JOB_FILE))
        folder.write(JOB_FILE, json.dumps({**content, **changes}).encode())

    return edit


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: folder.write(JOB_FILE, b"\xff"), "not valid JSON"),
        (lambda folder: folder.write(JOB_FILE, b"[" * 100_000), "not valid JSON"),
        (lambda folder: folder.write(JOB_FILE, b"[]"), "it is not a job"),
        (lambda folder: folder.write(PARTS_FILE, b"[]\n"), "checksum of parts.jsonl"),
        (lambda folder: folder.write(INPUTS_FILE, b"{}\n"), "checksum of inputs.jsonl"),
        (lambda folder: folder.discard(PARTS_FILE), "parts.jsonl is missing"),
        (lambda folder: folder.discard(INPUTS_FILE), "inputs.jsonl is missing"),
        (_edited(version=2), "version 2, but this Gristmill reads version 1"),
        (_edited(format="other"), "it is not a job"),
        (_edited(options={}), "its id does not match its content"),
        (_edited(kind="delete"), "'delete' is unknown"),
        (lambda folder: _job(inputs=[1]).write(folder), "an input is not an object"),
        (_edited(settings=None), "settings is missing or not of type dict"),
        (_edited(settings={}), "the checksum of its settings"),
        (_edited(settings={"part_bytes": 4, "num_partitions": 9}), "the checksum of its settings"),
    ],
)
def test_a_damaged_job_is_an_error_that_says_what_to_do(tmp_path, damage, words):
    with open_job(str(tmp_path / "work"), _job(), lambda _: PARTS) as opened:
        damage(opened.folder)
    for use in (lambda: open_job(str(tmp_path / "work"), _job(), _never), lambda: reopen_job(str(tmp_path / "work"))):
        with pytest.raises(FormatError, match=rf"work: job\.json is damaged.*{words}.*Remove the folder"), use():
            pass
    with open_job(str(tmp_path / "work"), _job(), lambda _: PARTS, overwrite=True) as opened:
        assert not opened.is_resumed


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = [
    "format",
    "version",
    "id",
    "kind",
    "options",
    "settings",
    "settings_sha256",
    "num_inputs",
    "inputs_sha256",
    "num_parts",
    "parts_sha256",
]


@given(changes=st.dictionaries(st.sampled_from(_FIELDS), _JSON, max_size=3), cut=st.integers(0, 2000))
def test_whatever_a_job_file_holds_is_a_job_or_a_format_error(tmp_path_factory, changes, cut):
    folder = LocalWorkFolder(tmp_path_factory.getbasetemp())
    _job(parts=PARTS).write(folder)
    whole = json.dumps({**json.loads(folder.read(JOB_FILE)), **changes}).encode()
    for data in (whole, whole[:cut]):
        (folder.path / JOB_FILE).write_bytes(data)
        try:
            job = Job.read(folder)
        except FormatError as error:
            assert "Remove the folder to start again" in str(error)
        else:
            assert job.id == json.loads(data)["id"]


def test_tasks_of_a_job_that_was_removed_halfway_do_not_pass_for_those_of_a_new_one(location):
    with open_job(location, _job(), lambda _: PARTS) as opened:
        write_done(opened.folder, "count-00000", Done(result={"of": "the old job"}))
        opened.folder.discard(JOB_FILE)
    with open_job(location, _job(), lambda _: PARTS[:1]) as opened:
        assert not opened.is_resumed
        assert read_done(opened.folder, "count-00000") is None


def test_a_folder_without_a_job_cannot_be_reopened(tmp_path):
    with pytest.raises(FileNotFoundError, match="The folder holds no job"), reopen_job(str(tmp_path / "none")):
        pass
    assert not (tmp_path / "none").exists()


def test_two_processes_do_not_run_one_job(tmp_path):
    script = (
        "import sys; from gristmill.executors.job import reopen_job\n"
        "try:\n  with reopen_job(sys.argv[1]): print('open')\n"
        "except BlockingIOError as error: print(error.strerror)"
    )

    def other():
        command = [sys.executable, "-c", script, str(tmp_path / "work")]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True).stdout.strip()

    with open_job(str(tmp_path / "work"), _job(), lambda _: PARTS):
        assert other().startswith("Another process is running this job")
    assert other() == "open"


def test_the_location_of_a_job():
    job = _job()
    assert job_location(job, work_folder=None, default="out/.parts") == "out/.parts"
    assert job_location(job, work_folder="s3://bucket/work/", default="x") == f"s3://bucket/work/count-{job.id}"


def test_a_work_folder_that_is_a_file_is_refused_in_words(tmp_path):
    (tmp_path / "corpus.txt").write_bytes(b"text")
    for place in ("corpus.txt/count-0", "corpus.txt/below/count-0"):
        with (
            pytest.raises(NotADirectoryError, match="The work folder is a file"),
            open_job(str(tmp_path / place), _job(), _never),
        ):
            pass
    assert (tmp_path / "corpus.txt").read_bytes() == b"text"

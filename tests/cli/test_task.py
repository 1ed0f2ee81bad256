"""gristmill task: plan, run, finish and status, as a scheduler such as Slurm calls them."""

import signal
import time

import pytest

from gristmill.cli import main
from gristmill.cli.executors import parts_beside
from gristmill.executors.done import read_done
from gristmill.executors.work_folder import open_work_folder


@pytest.fixture(scope="module")
def made(stories_path, tokenizer_path, tmp_path_factory):
    """The output of a single process: a folder of shards and a file of word counts."""
    folder = tmp_path_factory.mktemp("made")
    encode = ["encode", stories_path, "-t", tokenizer_path, "-o", folder / "shards", "--shard-tokens", "50k"]
    count = ["count-words", stories_path, "-o", folder / "words.gmw"]
    for command in (encode, count):
        assert main([*map(str, command), "--progress", "none"]) == 0
    return folder


@pytest.fixture
def plan_encode(gristmill, stories_path, tokenizer_path, tmp_path):
    def plan(*options):
        command = ["task", "plan", "encode", stories_path, "-t", tokenizer_path, "--shard-tokens", "50k"]
        return gristmill(*command, "-o", tmp_path / "shards", "--part-size", "100k", *options)

    return plan


@pytest.fixture
def plan_count(gristmill, stories_path, tmp_path):
    def plan(*options):
        command = ["task", "plan", "count-words", stories_path, "-o", tmp_path / "words.gmw", "--part-size", "100k"]
        return gristmill(*command, *options)

    return plan


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def rows(out):
    """Return the table of tasks by stage."""
    lines = [line.split() for line in out.partition("\n\n")[2].splitlines()[1:]]
    return {line[0]: line[1:] for line in lines}


def next_command(out):
    (line,) = [line for line in out.splitlines() if line.strip().startswith("next")]
    return line.split()[2:]


def test_tasks_in_any_order_make_the_shards_of_one_process(gristmill, plan_encode, made, tmp_path):
    code, out, err = plan_encode()
    assert (code, err) == (0, "")
    assert rows(out)["encode"] == ["0-2", "3", "0", "0-2"]
    assert next_command(out) == ["task", "run", str(tmp_path / "shards"), "0-2"]
    shards = tmp_path / "shards"
    assert gristmill("task", "run", shards, "2", "0")[0] == 0
    assert rows(gristmill("task", "status", shards)[1])["encode"] == ["0-2", "3", "2", "1"]
    assert gristmill("task", "run", shards, "1")[0] == 0
    status = gristmill("task", "status", shards)[1]
    assert rows(status)["assemble"] == ["3-5", "3", "0", "3-5"]
    assert next_command(status) == ["task", "finish", str(shards)]
    code, out, _ = gristmill("task", "run", shards, "5")
    assert code == 0 and "assemble-00002  done in" in out
    assert gristmill("task", "finish", shards)[0] == 0
    assert contents(shards) == contents(made / "shards")


def test_tasks_in_any_order_make_the_words_of_one_process(gristmill, plan_count, made, tmp_path):
    code, out, err = plan_count()
    assert (code, err) == (0, "")
    assert rows(out)["count"] == ["0-2", "3", "0", "0-2"]
    words = tmp_path / "words.gmw"
    assert gristmill("task", "run", words, "2", "1")[0] == 0
    assert gristmill("task", "run", words, "0", "3-4")[0] == 0
    assert rows(gristmill("task", "status", words)[1])["merge"] == ["3-5", "3", "2", "5"]
    code, out, _ = gristmill("task", "finish", parts_beside(words))
    assert code == 0 and "5 reused" in out
    assert words.read_bytes() == (made / "words.gmw").read_bytes()
    assert names(tmp_path) == ["words.gmw"]


def test_what_is_done_is_not_done_again(gristmill, plan_encode, plan_count, tmp_path):
    for plan, output in ((plan_encode, tmp_path / "shards"), (plan_count, tmp_path / "words.gmw")):
        assert plan()[0] == 0
        assert "done in" in gristmill("task", "run", output, "1")[1]
        assert "already done" in gristmill("task", "run", output, "1")[1]
        code, out, _ = plan()
        assert code == 0
        assert next_command(out)[3:] == ["0", "2"]
        gristmill("task", "run", output, "0-2")
        assert gristmill("task", "finish", output)[0] == 0
        for again in (["finish", output], ["run", output, "1"], ["status", output]):
            assert gristmill("task", *again) == (0, f"  {output} is complete: nothing left to do.\n", "")


def test_missing_parts_are_an_error_that_lists_them(gristmill, plan_encode, plan_count, tmp_path):
    for plan, output in ((plan_encode, tmp_path / "shards"), (plan_count, tmp_path / "words.gmw")):
        plan()
        gristmill("task", "run", output, "1")
        for command in (["finish", output], ["run", output, "4"]):
            code, out, err = gristmill("task", *command)
            assert (code, out) == (1, "")
            assert f"2 parts of 3 are not done: 0, 2. Run 'gristmill task run {output} 0 2' first." in err


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([], "no task given. Pass at least one number"),
        (["x"], "'x' is not a task number. Pass a number such as 7, or a range such as 0-9."),
        (["9-1"], "'9-1' is not a task number"),
        (["0-"], "'0-' is not a task number"),
        (["1.5"], "'1.5' is not a task number"),
        (["0-2", "99"], "task 99 does not exist: the job has tasks 0 to 5."),
        (
            ["0-999999999"],
            "task 6 does not exist: the job has tasks 0 to 5.",
        ),  # a list would fill the memory
    ],
)
def test_wrong_numbers_are_wrong_usage(gristmill, plan_count, tmp_path, numbers, message):
    plan_count()
    code, _, err = gristmill("task", "run", tmp_path / "words.gmw", *numbers)
    assert code == 2
    assert message in err


def test_a_task_does_not_write_into_finished_shards_of_another_run(
    gristmill, plan_encode, made, stories_path, tokenizer_path, tmp_path
):
    work, shards = tmp_path / "work", tmp_path / "shards"
    assert plan_encode("--work-folder", work)[0] == 0
    assert gristmill("task", "run", work, "0-2")[0] == 0
    other = ["encode", stories_path, "-t", tokenizer_path, "-o", shards, "--shard-tokens", "70k", "--overwrite"]
    assert gristmill(*other)[0] == 0
    before = contents(shards)
    for command in (["run", work, "3"], ["finish", work]):
        code, _, err = gristmill("task", *command)
        assert code == 1 and "finished shards" in err
        assert contents(shards) == before


def test_a_file_that_no_job_has_written_is_not_complete(gristmill, stories_path):
    for command in (["status", stories_path], ["run", stories_path, "0"], ["finish", stories_path]):
        code, out, err = gristmill("task", *command)
        assert (code, out) == (1, "")
        assert "no job found. Plan one with 'gristmill task plan'" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing ACTION"),
        (["rum"], "ACTION 'rum' is not known. Did you mean 'run'?"),
        (["plan"], "missing COMMAND"),
        (["plan", "encoed"], "COMMAND 'encoed' is not known. Did you mean 'encode'?"),
        (["plan", "encode", "--nosuch"], "'task' has no option '--nosuch'"),
        (["run"], "missing FOLDER|URL"),
        (["finish", "a", "b"], "unexpected argument 'b'"),
    ],
)
def test_wrong_usage_is_one_line(gristmill, arguments, message):
    code, out, err = gristmill("task", *arguments)
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_a_folder_without_a_job_is_an_error(gristmill, tmp_path):
    for action in ("status", "finish"):
        for folder in (tmp_path, tmp_path / "none"):
            code, _, err = gristmill("task", action, folder)
            assert code == 1
            assert "no job found. Plan one with 'gristmill task plan'" in err


def test_jobs_in_a_work_folder_are_found_and_distinguished(gristmill, plan_encode, plan_count, made, tmp_path):
    work = tmp_path / "work"
    code, out, _ = plan_count("--work-folder", work)
    assert code == 0
    assert rows(gristmill("task", "status", work)[1]) == rows(out)
    plan_encode("--work-folder", work)
    code, _, err = gristmill("task", "run", work, "0")
    assert code == 2
    assert "contains 2 jobs. Pass one of them" in err
    for job in list(work.iterdir()):
        assert gristmill("task", "run", job, "0-2")[0] == 0
        assert gristmill("task", "finish", job)[0] == 0
    assert contents(tmp_path / "shards") == contents(made / "shards")
    assert (tmp_path / "words.gmw").read_bytes() == (made / "words.gmw").read_bytes()
    assert not list(work.iterdir())


def test_a_damaged_part_is_made_again_by_the_task_that_finds_it(gristmill, plan_count, made, tmp_path):
    plan_count()
    words = tmp_path / "words.gmw"
    gristmill("task", "run", words, "0-2")
    (job,) = parts_beside(words).iterdir()
    with (job / "count-00001.runs").open("r+b") as file:
        file.seek(20)
        file.write(b"\xff\xff\xff\xff")
    code, out, _ = gristmill("task", "run", words, "3-5")
    assert code == 0
    assert "count-00001  damaged, running it again" in out
    assert gristmill("task", "finish", words)[0] == 0
    assert words.read_bytes() == (made / "words.gmw").read_bytes()


def test_a_damaged_part_that_the_plan_of_shards_needs_counts_as_not_done(gristmill, plan_encode, tmp_path):
    # datatrove shards end at document boundaries, so the ends of the parts are read before the shards are planned.
    plan_encode("--format", "datatrove")
    out = tmp_path / "shards"
    gristmill("task", "run", out, "0-2")
    for ends in (out / ".parts").glob("encode-*.train.ends"):
        ends.write_bytes(b"\xff" + ends.read_bytes()[1:])
    code, _, err = gristmill("task", "run", out, "3")
    assert code == 1
    assert "task 3 needs all parts, but 1 part of 3 is not done" in err
    for _ in range(8):  # each status finds one more damaged part, until none is left
        if "is complete" in (status := gristmill("task", "status", out)[1]):
            break
        assert gristmill(*next_command(status))[0] == 0
    assert gristmill("verify", out)[0] == 0


def test_a_job_begun_by_tasks_is_finished_by_the_command_itself(
    gristmill, plan_encode, plan_count, made, tmp_path, stories_path, tokenizer_path
):
    shards, words = tmp_path / "shards", tmp_path / "words.gmw"
    for plan, output in ((plan_encode, shards), (plan_count, words)):
        plan()
        gristmill("task", "run", output, "1")
    encode = ["encode", stories_path, "-t", tokenizer_path, "-o", shards, "--shard-tokens", "50k"]
    for command in (encode, ["count-words", stories_path, "-o", words]):
        code, out, _ = gristmill(*command, "--progress", "none")
        assert code == 0
        assert "1 reused from an earlier run" in out
    assert contents(shards) == contents(made / "shards")
    assert words.read_bytes() == (made / "words.gmw").read_bytes()
    assert names(tmp_path) == ["shards", "words.gmw"]


def test_the_output_of_a_count_must_be_known_to_finish_it(gristmill, plan_count, tmp_path):
    plan_count()
    words = tmp_path / "words.gmw"
    gristmill("task", "run", words, "0-2")
    (job,) = parts_beside(words).iterdir()
    for content in (b"", b"[]", b'{"output": 1}', None):
        (job / "output.json").unlink(missing_ok=True)
        if content is not None:
            (job / "output.json").write_bytes(content)
        code, _, err = gristmill("task", "finish", words)
        assert code == 1
        assert "output.json, which stores the output file, is missing or damaged" in err
    assert plan_count()[0] == 0
    assert gristmill("task", "finish", words)[0] == 0


def test_planning_counted_words_is_wrong_usage(gristmill, made, tmp_path):
    code, _, err = gristmill("task", "plan", "count-words", made / "words.gmw", "-o", tmp_path / "b.gmw")
    assert code == 2
    assert "the corpus is word counts (.gmw), which need no tasks" in err


def test_an_interrupted_task_can_run_again(gristmill, gristmill_process, stories_path, tokenizer_path, tmp_path):
    shards = tmp_path / "shards"
    text = stories_path.read_bytes()
    (tmp_path / "large.txt").write_bytes(text * 100)
    plan = ["encode", tmp_path / "large.txt", "-t", tokenizer_path, "-o", shards, "--part-size", "64MB"]
    assert gristmill("task", "plan", *plan)[0] == 0
    process = gristmill_process("task", "run", shards, "0")
    parts = shards / ".parts"
    while process.poll() is None and not any("tmp" in name for name in names(parts)):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert read_done(open_work_folder(str(parts)), "encode-00000") is None
    assert not [name for name in names(parts) if ".tmp." in name]
    assert gristmill("task", "run", shards, "0")[0] == 0
    assert gristmill("task", "finish", shards)[0] == 0


def test_every_process_that_srun_starts_reports_its_own_mistake(gristmill, plan_count, tmp_path, monkeypatch):
    plan_count()
    for name, value in (("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "3")):
        monkeypatch.setenv(name, value)
    code, _, err = gristmill("task", "run", tmp_path / "words.gmw", "x")
    assert code == 2
    assert "'x' is not a task number" in err


def test_another_job_in_the_same_folder_is_refused_with_the_difference(gristmill, plan_encode):
    assert plan_encode()[0] == 0
    code, _, err = plan_encode("--val-fraction", "0.5")
    assert code == 1
    assert "val_fraction was 0.0 and is now 0.5" in err.replace("--val-fraction", "val_fraction")
    assert "--overwrite" in err
    assert plan_encode("--val-fraction", "0.5", "--overwrite")[0] == 0


@pytest.mark.parametrize("action", ["plan", "plan encode", "plan count-words", "run", "finish", "status"])
def test_help_of_an_action_fits_in_80_columns(gristmill, action, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = gristmill("task", *action.split(), "--help")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80

"""A work folder in an object store: an S3 server in this process."""

import os

import pytest

import gristmill as gm
from gristmill.executors.calls import Call, perform
from gristmill.executors.done import Done, read_done
from gristmill.executors.job import Job, open_job
from gristmill.executors.remote_folder import BLOCK_BYTES, RemoteWorkFolder
from gristmill.executors.work_folder import open_work_folder

moto_server = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def bucket():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        import fsspec

        system = fsspec.filesystem("s3", skip_instance_cache=False)
        system.mkdir("bucket")
        yield "s3://bucket"
        type(system).clear_instance_cache()
    server.stop()


def test_objects_appear_whole_and_ranges_of_them_are_fetched(bucket, monkeypatch):
    monkeypatch.setattr("gristmill.executors.remote_folder.BLOCK_BYTES", 1000)
    folder = open_work_folder(f"{bucket}/objects")
    assert folder.names() == []
    data = os.urandom(4500)
    with folder.create("a.bin") as file:
        file.write(data)
        assert folder.size("a.bin") is None
    assert folder.read("a.bin") == data
    assert folder.size("a.bin") == 4500
    for begin, end in [(0, None), (100, 3300), (4000, 9000), (4500, None), (4500, 4600), (5000, 6000)]:
        with folder.as_local_file("a.bin", begin, end) as (path, first):
            assert path.read_bytes()[first:] == data[begin:end]
    folder.write("a.bin", b"")
    assert folder.read("a.bin") == b""
    folder.write("a.bin", b"shorter")
    assert folder.read("a.bin") == b"shorter"
    assert folder.names() == ["a.bin"]
    folder.discard("a.bin")
    folder.discard("a.bin")
    assert folder.size("a.bin") is None


def test_a_large_object_is_sent_in_several_parts(bucket):
    folder = open_work_folder(f"{bucket}/large")
    block = os.urandom(1 << 20)
    with folder.create("a.bin") as file:
        for _ in range(2 * BLOCK_BYTES // len(block) + 1):
            file.write(block)
    assert folder.size("a.bin") == 2 * BLOCK_BYTES + len(block)
    with folder.as_local_file("a.bin", 2 * BLOCK_BYTES) as (path, _):
        assert path.read_bytes() == block
    folder.remove()


def test_another_machine_sees_a_new_object_at_once(bucket):
    here, there = open_work_folder(f"{bucket}/shared"), open_work_folder(f"{bucket}/shared")
    assert here.names() == there.names() == []
    there.write("a.ok", b"1")
    assert here.names() == ["a.ok"]
    assert here.size("a.ok") == 1
    there.discard("a.ok")
    assert here.size("a.ok") is None
    assert here.names() == []


def test_a_missing_bucket_is_an_error_that_names_the_url(bucket):
    folder = open_work_folder("s3://no-such-bucket/work")
    with pytest.raises(OSError, match="no-such-bucket") as caught:
        folder.write("a.bin", b"1")
    assert "skip" not in str(caught.value)


def task(folder, number, check):
    """The task that `perform` runs in these tests."""
    return Done(result={"number": number})


def test_a_job_is_run_and_resumed_in_a_bucket(bucket, monkeypatch):
    monkeypatch.setattr("gristmill.executors.calls._function", lambda name: task)
    location = f"{bucket}/work/count-1"
    job = Job("count", [{"name": "a.txt"}], {}, {}, [])
    with open_job(location, job, lambda _: [[0], [1]]) as opened:
        assert isinstance(opened.folder, RemoteWorkFolder)
        call = Call("count", "gristmill.x:y", opened.folder.location, 1)
        assert not perform(call, lambda: None).is_reused
    with open_job(location, job, lambda _: [[0], [1]]) as opened:
        assert opened.is_resumed
        assert perform(call, lambda: None).is_reused
        assert read_done(opened.folder, "count-00001") == Done(result={"number": 1})
        opened.folder.remove()
        assert opened.folder.names() == []


def test_counting_and_encoding_with_inputs_and_work_folder_in_a_bucket(bucket, tmp_path):
    import fsspec

    text = "".join(f"Story {i}: the cat sat on mat {i % 7}.<|endoftext|>" for i in range(300))
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    fsspec.filesystem("s3").put_file(str(tmp_path / "a.txt"), "bucket/inputs/a.txt")
    executor = gm.Local(num_workers=2, work_folder=f"{bucket}/run", part_bytes=5000)
    words = gm.count_words(f"{bucket}/inputs/a.txt", executor=executor, progress=None)
    expected = gm.count_words(tmp_path / "a.txt", progress=None)
    for name, each in (("words.gmw", words), ("expected.gmw", expected)):
        each.save(tmp_path / name)
    assert (tmp_path / "words.gmw").read_bytes() == (tmp_path / "expected.gmw").read_bytes()
    tokenizer = gm.Tokenizer([(b"c", b"a"), (b"ca", b"t")], special_tokens=["<|endoftext|>"])
    for name, options in (("shards", {"executor": executor}), ("expected", {})):
        gm.encode_corpus(f"{bucket}/inputs/a.txt", tokenizer, out=tmp_path / name, progress=None, **options)
    made, wanted = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("shards", "expected")
    )
    assert made == wanted
    assert open_work_folder(f"{bucket}/run").names() == []


def test_shards_in_a_bucket_are_the_bytes_of_those_in_a_folder(bucket, tmp_path):
    import fsspec

    (tmp_path / "a.txt").write_text("the cat sat<|endoftext|>" * 300, encoding="utf-8")
    tokenizer = gm.Tokenizer([(b"c", b"a"), (b"ca", b"t")], special_tokens=["<|endoftext|>"])
    out, system = f"{bucket}/out/shards", fsspec.filesystem("s3")
    gm.encode_corpus(tmp_path / "a.txt", tokenizer, out=out, shard_tokens=500, progress=None)
    gm.encode_corpus(tmp_path / "a.txt", tokenizer, out=tmp_path / "shards", progress=None)
    executor = gm.Local(num_workers=2, part_bytes=2000)
    gm.encode_corpus(tmp_path / "a.txt", tokenizer, out=out, executor=executor, overwrite=True, progress=None)
    made = {name.rpartition("/")[2]: system.cat(name) for name in system.find(out)}
    assert made == {path.name: path.read_bytes() for path in (tmp_path / "shards").iterdir()}

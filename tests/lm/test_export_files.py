"""Exports write complete files or nothing, and reject unsuitable targets."""

import errno
import os
import subprocess
import sys

import pytest

import gristmill as gm

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from gristmill.lm.use.exports import FORMATS  # noqa: E402
from gristmill.lm.use.exports.folders import named_errors  # noqa: E402
from lm.exported_runs import new_tokenizer, write_run  # noqa: E402

# By format: the output name, and the names of its files.
WRITTEN = {
    "huggingface": (
        "folder",
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
    ),
    "gguf": ("model.gguf", ["model.gguf"]),
}
every_format = pytest.mark.parametrize("format", FORMATS)


@pytest.fixture(scope="module")
def tokenizer():
    return new_tokenizer()


@pytest.fixture
def run(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer)
    return tmp_path / "run"


def names(folder):
    """Return all files next to the run, including hidden files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.name for path in files if folder / "run" not in path.parents)


@every_format
def test_the_files_are_those_of_the_format_and_are_named(tmp_path, run, format):
    name, files = WRITTEN[format]
    written = gm.lm.export(run, tmp_path / name, format=format)
    assert names(tmp_path) == files == sorted(path.name for path in written.files)
    shown = dict(written.rows())
    assert shown["checkpoint"] == "step-000001" and shown["dtype"] == "float32" and name in shown["load it with"]
    assert "<table>" in written._repr_html_()


@every_format
def test_the_same_run_gives_the_same_bytes(tmp_path, run, format):
    name, _ = WRITTEN[format]
    contents = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        gm.lm.export(run, tmp_path / folder / name, format=format)
        there = tmp_path / folder / name
        contents.append([path.read_bytes() for path in (sorted(there.iterdir()) if there.is_dir() else [there])])
    assert contents[0] == contents[1]


@every_format
def test_existing_output_is_replaced_only_with_overwrite(tmp_path, run, tokenizer, format):
    name, files = WRITTEN[format]
    gm.lm.export(run, tmp_path / name, format=format)
    victim = next(path for path in tmp_path.rglob("*") if path.name == files[-1] and run not in path.parents)
    victim.write_bytes(b"GGUF precious")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        gm.lm.export(run, tmp_path / name, format=format)
    assert victim.read_bytes() == b"GGUF precious"
    gm.lm.export(run, tmp_path / name, format=format, overwrite=True)
    assert victim.read_bytes() != b"GGUF precious"
    assert names(tmp_path) == files


def test_a_folder_with_other_files_is_never_replaced(tmp_path, run):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match=r"contains other files, such as 'thesis.tex'"):
        gm.lm.export(run, tmp_path / "home", overwrite=True)
    with pytest.raises(FileExistsError, match="contains other files"):
        gm.lm.export(run, run, overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "precious"


def test_a_file_that_is_no_gguf_is_never_replaced(tmp_path, run):
    pytest.importorskip("gguf")
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match="is not a GGUF file"):
        gm.lm.export(run, tmp_path / "thesis.tex", format="gguf", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_everybody_who_can_read_the_config_can_read_the_weights(tmp_path, run):
    before = os.umask(0o022)
    try:
        gm.lm.export(run, tmp_path / "folder")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "folder").iterdir()} == {0o644}


def test_an_exported_folder_in_the_place_of_a_run_is_named_as_such(tmp_path, run):
    gm.lm.export(run, tmp_path / "folder")
    with pytest.raises(gm.CheckpointError, match="Hugging Face folder"):
        gm.lm.export(tmp_path / "folder", tmp_path / "again")


def test_an_empty_folder_is_filled(tmp_path, run):
    (tmp_path / "folder").mkdir()
    gm.lm.export(run, tmp_path / "folder")
    assert names(tmp_path) == WRITTEN["huggingface"][1]


@every_format
def test_a_full_disk_leaves_nothing_and_keeps_what_was_there(tmp_path, run, format, monkeypatch):
    name, _ = WRITTEN[format]
    gm.lm.export(run, tmp_path / name, format=format)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        gm.lm.export(run, tmp_path / name, format=format, overwrite=True)
    assert name in str(error.value.filename)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    with pytest.raises(OSError, match="No space left"):
        gm.lm.export(run, tmp_path / f"other-{name}", format=format)
    assert not (tmp_path / f"other-{name}").exists()


LIMITED = """
import resource, sys
import gristmill as gm

resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    gm.lm.export(sys.argv[1], sys.argv[2], format=sys.argv[3])
except OSError as error:
    print(error.filename, "|", error.strerror)
"""


@every_format
def test_an_error_of_the_library_that_writes_names_the_output(tmp_path, run, format):
    """A limit on the file size simulates a full disk: a write in the middle of the file fails."""
    target = tmp_path / WRITTEN[format][0]
    command = [sys.executable, "-c", LIMITED, str(run), str(target), format]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    filename, _, message = done.stdout.partition(" | ")
    assert filename == str(target)
    assert "cannot be written" in message and "Check that the disk is not full" in message
    assert names(tmp_path) == []


@every_format
def test_ctrl_c_leaves_nothing(tmp_path, run, format, monkeypatch):
    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gm.lm.export(run, tmp_path / "out", format=format)
    assert names(tmp_path) == []


@every_format
def test_a_missing_parent_and_a_wrong_kind_of_target_are_errors_before_the_model_is_read(
    tmp_path, run, format, monkeypatch
):
    from gristmill.lm.use import export

    monkeypatch.setattr(export, "load_model", None)
    with pytest.raises(FileNotFoundError, match="output folder does not exist"):
        gm.lm.export(run, tmp_path / "nowhere" / "out", format=format)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "directory").mkdir()
    wrong = {"huggingface": "file", "gguf": "directory"}[format]
    with pytest.raises((NotADirectoryError, IsADirectoryError)):
        gm.lm.export(run, tmp_path / wrong, format=format, overwrite=True)


def test_numbers_beyond_float16_are_refused(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer, weights={"final_norm.weight": torch.full((64,), 1e5)})
    with pytest.raises(
        gm.OptionError, match=r"dtype='float16' is too small for numbers in the weight 'model.norm.weight'"
    ):
        gm.lm.export(tmp_path / "run", tmp_path / "folder", dtype="float16")
    assert not (tmp_path / "folder").exists()
    gm.lm.export(tmp_path / "run", tmp_path / "folder", dtype="bfloat16")


def test_unknown_formats_and_types_name_those_there_are(tmp_path, run):
    with pytest.raises(gm.OptionError, match=r"format='hugingface' is not valid. Did you mean 'huggingface'"):
        gm.lm.export(run, tmp_path / "out", format="hugingface")
    with pytest.raises(gm.OptionError, match="dtype='q8_0' needs format='gguf'"):
        gm.lm.export(run, tmp_path / "out", dtype="q8_0")
    with pytest.raises(gm.OptionError, match="dtype='int4' is not valid"):
        gm.lm.export(run, tmp_path / "out", dtype="int4")
    with pytest.raises(gm.CheckpointError, match="no such folder"):
        gm.lm.export(tmp_path / "typo", tmp_path / "out")


def test_a_run_without_a_tokenizer_needs_one(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer, keeps_tokenizer=False)
    with pytest.raises(gm.CheckpointError, match=r"does not store their tokenizer.* Pass tokenizer="):
        gm.lm.export(tmp_path / "run", tmp_path / "folder")
    gm.lm.export(tmp_path / "run", tmp_path / "folder", tokenizer=tokenizer)
    assert gm.Tokenizer.from_pretrained(tmp_path / "folder").vocab == tokenizer.vocab


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(tmp_path, tokenizer):
    write_run(tmp_path / "run", tokenizer, keeps_tokenizer=False, vocab_size=280)
    with pytest.raises(gm.CheckpointError, match=r"has 290 tokens, but the model has 280.*vocab_size=290"):
        gm.lm.export(tmp_path / "run", tmp_path / "folder", tokenizer=tokenizer)


def test_a_vae_cannot_be_exported_and_says_why(tmp_path, tiny_shards):
    sizes = {"d_model": 32, "num_heads": 2, "num_layers": 1, "latent_dim": 4}
    gm.lm.train(tiny_shards, out=tmp_path / "run", model="vae", max_steps=1, device="cpu", progress=None, **sizes)
    with pytest.raises(gm.OptionError, match=r"model='vae' cannot be exported: .*Models with an export: 'gpt'"):
        gm.lm.export(tmp_path / "run", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_gguf_without_its_package_names_the_extra(tmp_path, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(gm.MissingPackageError, match=r"needs gguf.*pip install 'gristmill\[export\]'"):
        gm.lm.export(run, tmp_path / "model.gguf", format="gguf")


@pytest.fixture
def own_models():
    from gristmill.lm.models import registry

    kept = dict(registry._entries)
    yield
    registry._entries.clear()
    registry._entries.update(kept)


def test_a_model_that_inherits_from_the_gpt_does_not_inherit_its_export(tmp_path, tokenizer, own_models):
    class OtherConfig(gm.lm.GPTConfig):
        pass

    @gm.lm.register_model("other", config=OtherConfig)
    class Other(gm.lm.GPT):
        def forward(self, tokens_BT, **options):
            return -super().forward(tokens_BT, **options)

    write_run(tmp_path / "run", tokenizer, model="other")
    with pytest.raises(gm.OptionError, match="model='other' cannot be exported"):
        gm.lm.export(tmp_path / "run", tmp_path / "folder")


def test_an_own_model_declares_its_export(tmp_path, tokenizer, own_models):
    transformers = pytest.importorskip("transformers")

    class TwinConfig(gm.lm.GPTConfig):
        pass

    @gm.lm.register_model("twin", config=TwinConfig)
    class Twin(gm.lm.GPT):
        EXPORTS = ("huggingface",)

        def exported(self, format, *, vocab_size):
            found = super().exported(format, vocab_size=vocab_size)
            return gm.lm.ForeignModel({**found.config, "rms_norm_eps": 0.5}, found.weights)

    write_run(tmp_path / "run", tokenizer, model="twin")
    gm.lm.export(tmp_path / "run", tmp_path / "folder")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "folder").rms_norm_eps == 0.5
    with pytest.raises(gm.OptionError, match=r"cannot be exported as format='gguf'. Pass format='huggingface'"):
        gm.lm.export(tmp_path / "run", tmp_path / "model.gguf", format="gguf")


def test_an_error_without_a_number_is_reported_with_its_own_words(tmp_path):
    error = OSError("100 requested and 0 written")
    error.filename = "model.gguf"
    words = r"cannot be written \(100 requested and 0 written\)"
    with pytest.raises(OSError, match=words), named_errors(tmp_path / "model.gguf"):
        raise error

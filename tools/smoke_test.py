"""Use an installed Gristmill once: train, encode, save, load, and the command line. Needs nothing but the package.

`make wheel` runs this in an empty virtual environment, and cibuildwheel in each of its own.
"""

import json
import subprocess
import sys
import tempfile
from importlib import resources
from importlib.metadata import distribution
from pathlib import Path

import gristmill as gm

TEXT = "low low low lower lowest newer newest wider widest\n" * 200
FILES = ("py.typed", "_core.pyi", "report/page.html", "view/static/page.js", "gpu/kernels/merge.cu")


def main() -> None:
    """Raise if anything does not work."""
    package = Path(str(resources.files(gm)))
    assert "site-packages" in package.parts, f"{package} is not an installed package"
    assert all((package / name).is_file() for name in FILES), "the wheel lacks files"
    bill = distribution("gristmill").read_text("sboms/gristmill.cdx.json")
    assert bill is not None, "the wheel lacks its software bill of materials"
    assert json.loads(bill)["metadata"]["component"]["version"] == gm.__version__
    with tempfile.TemporaryDirectory() as folder:
        corpus, tokenizer_file, shards = Path(folder, "corpus.txt"), Path(folder, "tok.json"), Path(folder, "shards")
        corpus.write_text(TEXT, encoding="utf-8")
        tokenizer = gm.train_tokenizer(corpus, vocab_size=270, progress=None)
        assert tokenizer.merges == gm.reference.train([TEXT], 270, special_tokens=["<|endoftext|>"])
        assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
        tokenizer.save(tokenizer_file)
        assert gm.Tokenizer.load(tokenizer_file) == tokenizer
        command = Path(sys.executable).with_name("gristmill")
        encode = ["encode", str(corpus), "-t", str(tokenizer_file), "-o", str(shards), "--progress", "none"]
        subprocess.run([command, *encode], check=True, stdout=subprocess.DEVNULL)
        assert gm.Shards(shards).num_tokens > 0
    print(f"gristmill {gm.__version__} works with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()

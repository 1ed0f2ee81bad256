"""Run Python tests with a core that was built for a sanitizer. `make sanitize` builds it and calls this.

    python tools/sanitize.py --build build/sanitized --sanitizer address -- -x tests/encode tests/count

The package is a folder of links to src/gristmill beside the sanitized `_core`. The sanitizer's library must be the
first one that the process loads, so LD_PRELOAD names it, also for the processes that tests start. A report ends the
process and with it the run.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gristmill"

# The tests of everything that calls the core in this process or its children.
TESTS = {
    "address": (
        "tests/pretokenize",
        "tests/merge",
        "tests/count",
        "tests/corpus",
        "tests/encode",
        "tests/tokenizer",
        "tests/shards",
        "tests/properties",
    ),
    "thread": ("tests/encode/test_threads_share_the_core.py",),
}
# Tests of limits that a sanitizer exceeds: its memory, and its time.
LEFT_OUT = (
    "tests/tokenizer/formats/test_format_malformed.py::test_json_that_would_fill_memory_is_refused_before_it_is_parsed",
    "tests/corpus/test_corpus_columns.py::test_a_huge_row_group_is_read_in_little_memory",
    "tests/corpus/test_corpus_streams.py::test_a_gigabyte_of_zeros_in_a_megabyte_is_counted_in_little_memory",
    "tests/corpus/test_corpus_columns.py::test_a_message_longer_than_its_arrow_stream_is_damage_where_memory_is_limited",
    "tests/pretokenize/test_workers.py::test_the_error_of_a_text_that_takes_too_long_shows_how_it_begins",
)
LIBRARIES = {"address": ("libasan.so", "libubsan.so", "libstdc++.so"), "thread": ("libtsan.so", "libstdc++.so")}

OPTIONS = {
    # Python and its extensions leave most of their objects to the end of the process, which LeakSanitizer reports.
    # Some tests ask for more memory than there is and expect a MemoryError.
    "address": {
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    },
    "thread": {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
}


def package(build: Path) -> Path:
    """Make the folder for PYTHONPATH, and return it."""
    built = next(build.glob("_core*.so"), None)
    if built is None:
        raise SystemExit(f"{build} has no _core*.so: run `make sanitize`, which builds it")
    folder = build / "python" / "gristmill"
    folder.mkdir(parents=True, exist_ok=True)
    sources = [path for path in SOURCE.iterdir() if path.name != "__pycache__" and path.suffix != ".so"]
    for path in [*sources, built]:
        link = folder / path.name
        if not link.is_symlink():
            link.symlink_to(path.resolve())
    return folder.parent


def library(name: str) -> str:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    found = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    if not path.is_absolute():
        raise SystemExit(f"{compiler[0]} has no {name}: install the sanitizer libraries of that compiler")
    return str(path.resolve())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, which contains _core*.so")
    parser.add_argument("--sanitizer", choices=TESTS, default="address")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run tests")
    parser.add_argument("arguments", nargs="*", help="for pytest; default: the tests of everything that uses the core")
    options = parser.parse_args()

    environment = os.environ | OPTIONS[options.sanitizer]
    environment["PYTHONPATH"] = str(package(options.build.resolve()))
    environment["PYTHONMALLOC"] = "malloc"  # one allocation per object, so that an access outside it is detected
    environment["LD_PRELOAD"] = " ".join(library(name) for name in LIBRARIES[options.sanitizer])
    environment.setdefault("HYPOTHESIS_PROFILE", "few")
    check = "import gristmill._core as core; print(core.__file__)"
    loaded = subprocess.run([sys.executable, "-c", check], env=environment, capture_output=True, text=True, check=False)
    if loaded.returncode or not Path(loaded.stdout.strip()).resolve().is_relative_to(options.build.resolve()):
        print(loaded.stderr, file=sys.stderr)
        raise SystemExit(f"Python does not load the core of {options.build}: got {loaded.stdout.strip() or 'an error'}")
    arguments = options.arguments or list(TESTS[options.sanitizer])
    jobs = ["-n", str(options.jobs)] if options.jobs > 1 else []
    left_out = [argument for test in LEFT_OUT for argument in ("--deselect", test)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *jobs, *left_out, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

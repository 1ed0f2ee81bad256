"""corpus: what a `corpus` argument may be, and the documents behind it.

| you pass | it means |
|---|---|
| `"corpus.txt"`, `Path("corpus.txt")` | that file |
| `"data/**/*.txt"` | the files that match, sorted by name |
| `"data"`, `Path("data")` | the files below that folder with a suffix that is known, hidden ones left out, sorted |
| `"s3://bucket/data/*.jsonl.zst"` | a URL of any file system that `fsspec` has a plug-in for; globs and folders too |
| `[Path("a.txt"), Path("b.txt")]` | these files: a `Path` is always a path |
| `["a.txt", "parts/*.txt"]` | these files, because every string of the list names one (or matches one, as a glob) |
| `["Once upon a time …", "The end."]` | two documents, because no string of the list names a file |
| `iter(texts)`, a generator, any other iterable | documents, `str` or `bytes`: never looked up on the disk |
| `[text]` | one document; a bare `str` is a path |

A list of strings of which some name files and some do not is an error, and so is one that looks like paths to files
that are not there: neither is guessed. `Path` objects and `iter(...)` say it without any doubt. Only the first 1,000
strings of a list are looked at, so that a long list of documents costs nothing.

| suffix | format | a document is |
|---|---|---|
| `.txt`, `.text`, any other | text | what lies between separators, a line, or the whole file: `documents=` |
| `.jsonl`, `.ndjson` | JSON, one object a line | the string in field "text": `text_field=` |
| `.parquet` | Parquet | a value of column "text": `text_field=` |
| `.arrow`, `.arrows`, `.feather` | Arrow, file or stream | a value of column "text": `text_field=` |

Text and JSON lines may also be `.gz` or `.zst`. `input_format=` says what a file is whose suffix does not;
`ReadOptions` has all options. Texts are taken byte for byte, nothing decoded, stripped or normalised (CRLF, NUL, a BOM
and invalid UTF-8 stay). A file named twice is read twice. Folders and globs follow links, except to a folder that the
path already goes through; a broken link is an error. docs/corpus.md says more.

| in reading order | holds |
|---|---|
| `options.py` | `ReadOptions`, the keyword arguments that every reader of a corpus takes, checked as `Reading` |
| `opening.py` | `open_corpus`: what a `corpus` argument means, `Files` or `Documents` |
| `inputs.py`, `files.py` | `Input` and `Files`; what paths, globs, folders and URLs mean |
| `walk.py`, `remote.py` | files of this machine by folder or glob; URLs through fsspec |
| `sources.py`, `streams.py`, `windows.py` | bytes of an input, decompressed, and the buffer that batches are cut from |
| `batches.py` | what every reader gives: `Batch`, `Spans`, `Mark` |
| `formats/` | the input formats, one module each, and their registry `READERS` |
| `documents.py` | documents of an iterable, as batches |
| `threads.py` | `read_files`: several inputs at once, in order; other work on threads that comes back in order |
| `skipped.py`, `packages.py` | inputs that were left out; packages that only some inputs need |

Adding an input format is one module in `formats/`, one line in `READERS` and one test parameter. Adding a read option
is one field of `Reading` and one of `ReadOptions`.
"""

from gristmill.corpus.batches import Spans
from gristmill.corpus.documents import Documents
from gristmill.corpus.files import find_files
from gristmill.corpus.inputs import Files, Input
from gristmill.corpus.opening import Corpus, open_corpus
from gristmill.corpus.options import Reading, ReadOptions
from gristmill.corpus.threads import read_files

__all__ = [
    "Corpus",
    "Documents",
    "Files",
    "Input",
    "ReadOptions",
    "Reading",
    "Spans",
    "find_files",
    "open_corpus",
    "read_files",
]

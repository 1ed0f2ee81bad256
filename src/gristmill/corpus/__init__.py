"""corpus: what a `corpus` argument may be, and the documents behind it.

| you pass | it means |
|---|---|
| `"corpus.txt"`, `Path("corpus.txt")` | that file |
| `"data/**/*.txt"` | the files that match, sorted by name |
| `"data"`, `Path("data")` | the files below that folder with a suffix that is known, hidden ones left out, sorted |
| `"s3://bucket/data/*.jsonl.zst"` | a URL of any file system that `fsspec` has a plug-in for; globs and folders too |
| `gm.Files("a.txt", "parts/*.txt")`, `[Path("a.txt"), Path("b.txt")]` | these files, whatever their names look like |
| `["a.txt", "parts/*.txt"]` | these files, because every string of the list names one (or matches one, as a glob) |
| `gm.Documents(texts)`, `iter(texts)`, a generator | documents, `str` or `bytes`: never looked up on the disk |
| `["Once upon a time …", "The end."]` | two documents, because no string of the list names a file |
| `[{"text": "Once …"}, …]`, any iterable of dicts | the texts of these rows: `text_field=` |
| a table of pyarrow, pandas, polars or `datasets` | the texts of its column "text": `text_field=` |
| a pandas or polars `Series`, a pyarrow array, a NumPy array of `str` | its values |
| `[text]` | one document; a bare `str` is a path |

A list of strings of which some name files and some do not is an error. So is a list of which none names a file but
which looks like paths (`["corpus.txt"]`), because training on the names of missing files would be a silent mistake.
`Files` and `Documents` leave no doubt. Only the first 1,000 strings of a list are looked at, so that a long list of
documents costs nothing. Values of rows and tables that are null (None, NaN, pandas.NA) are left out and counted.

| suffix | format | a document is |
|---|---|---|
| `.txt`, `.text`, any other | text | what lies between separators, a line, or the whole file: `documents=` |
| `.jsonl`, `.ndjson` | JSON, one object a line | the string in field "text": `text_field=` |
| `.parquet` | Parquet | a value of column "text": `text_field=` |
| `.arrow`, `.arrows`, `.feather` | Arrow, file or stream | a value of column "text": `text_field=` |

Text and JSON lines may also be `.gz` or `.zst`. `input_format=` says what a file is whose suffix does not;
`ReadOptions` has all options, and one that does not apply to the corpus is an error. Texts are taken byte for byte,
nothing decoded, stripped or normalised (CRLF, NUL, a BOM and invalid UTF-8 stay). A file named twice is read twice.
Folders and globs follow links, except to a folder that the path already goes through; a broken link is an error.
docs/corpus.md says more.

| in reading order | holds |
|---|---|
| `options.py` | `ReadOptions`, the keyword arguments that every reader of a corpus takes, checked as `Reading` |
| `given.py` | `Files` and `Documents`, with which a caller says what a list of strings is |
| `opening.py` | `open_corpus`: what a `corpus` argument means, `FoundFiles` or `DocumentStream` |
| `inputs.py`, `files.py` | `Input` and `FoundFiles`; what paths, globs, folders and URLs mean |
| `walk.py`, `remote.py` | files of this machine by folder or glob; URLs through fsspec |
| `sources.py`, `streams.py`, `windows.py` | bytes of an input, decompressed, and the buffer that batches are cut from |
| `batches.py` | what every reader gives: `Batch`, `Spans`, `Mark` |
| `formats/` | the input formats, one module each, and their registry `READERS` |
| `documents.py`, `tables.py` | documents and rows of an iterable, and of tables of other libraries, as batches |
| `threads.py` | `read_files`: several inputs at once, in order; other work on threads that comes back in order |
| `cuts.py`, `stretches.py` | places where inputs may be cut; parts of a corpus, which one task of a job reads |
| `skipped.py`, `packages.py` | inputs that were left out; packages that only some inputs need |

Adding an input format is one module in `formats/`, one line in `READERS` and one test parameter. Adding a read option
is one field of `Reading`, one of `ReadOptions` and a word on what it is about.
"""

from gristmill.corpus.batches import Spans
from gristmill.corpus.documents import DocumentStream
from gristmill.corpus.files import find_files
from gristmill.corpus.given import Documents, Files
from gristmill.corpus.inputs import FoundFiles, Input
from gristmill.corpus.opening import Corpus, Source, open_corpus
from gristmill.corpus.options import Reading, ReadOptions
from gristmill.corpus.threads import read_files

__all__ = [
    "Corpus",
    "DocumentStream",
    "Documents",
    "Files",
    "FoundFiles",
    "Input",
    "ReadOptions",
    "Reading",
    "Source",
    "Spans",
    "find_files",
    "open_corpus",
    "read_files",
]

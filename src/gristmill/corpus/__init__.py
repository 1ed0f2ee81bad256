"""corpus: what a `corpus` argument may be, and how its documents are read.

| you pass | it means |
|---|---|
| `"corpus.txt"`, `Path("corpus.txt")` | that file |
| `"data/**/*.txt"` | the files that match, sorted by name |
| `"data"`, `Path("data")` | the files below that folder with a known suffix, except hidden files, sorted |
| `"s3://bucket/data/*.jsonl.zst"` | a URL of any file system that `fsspec` has a plug-in for; globs and folders too |
| `gm.Files("a.txt", "parts/*.txt")`, `[Path("a.txt"), Path("b.txt")]` | these files, whatever their names look like |
| `["a.txt", "parts/*.txt"]` | these files, because every string of the list names a file or is a glob that matches |
| `gm.Documents(texts)`, `iter(texts)`, a generator | documents, `str` or `bytes`: never taken as paths |
| `["Once upon a time …", "The end."]` | two documents, because no string of the list names a file |
| `[{"text": "Once …"}, …]`, any iterable of dicts | the texts of these rows: `text_field=` |
| a table of pyarrow, pandas, polars or `datasets` | the texts of its column "text": `text_field=` |
| a pandas or polars `Series`, a pyarrow array, a NumPy array of `str` | its values |
| `[text]` | one document; a bare `str` is a path |

If only some strings of a list name files, that is an error. So is a list whose strings look like paths but name no file
(`["corpus.txt"]`), because training on the names of missing files would be a silent mistake. `Files` and `Documents`
avoid the ambiguity. Only the first 1,000 strings of a list are checked, so that a long list of documents costs nothing.
Null values in rows and tables (None, NaN, pandas.NA) are skipped and counted.

| suffix | format | a document is |
|---|---|---|
| `.txt`, `.text`, any other | text | the text between separators, a line, or the whole file: `documents=` |
| `.jsonl`, `.ndjson` | JSON, one object per line | the string in field "text": `text_field=` |
| `.parquet` | Parquet | a value of column "text": `text_field=` |
| `.arrow`, `.arrows`, `.feather` | Arrow, file or stream | a value of column "text": `text_field=` |

Text and JSON lines may also be `.gz` or `.zst`. `input_format=` sets the format of files with other suffixes.
`ReadOptions` has all options; passing one that does not apply to the corpus is an error. Texts are read byte for byte:
nothing is decoded, stripped or normalised (CRLF, NUL, a BOM and invalid UTF-8 stay). A file named twice is read twice.
Folders and globs follow links, except to a folder that the path already goes through; a broken link is an error.
docs/corpus.md has more.

| in reading order | contents |
|---|---|
| `options.py` | `ReadOptions`, the keyword arguments of every reader of a corpus, validated as `Reading` |
| `given.py` | `Files` and `Documents`, which state what a list of strings contains |
| `opening.py` | `open_corpus`: a `corpus` argument -> `FoundFiles` or `DocumentStream` |
| `inputs.py`, `files.py` | `Input` and `FoundFiles`; paths, globs, folders and URLs -> inputs |
| `walk.py`, `remote.py` | files of this machine by folder or glob; URLs through fsspec |
| `sources.py`, `streams.py`, `windows.py` | bytes of an input, decompressed, and the buffer that batches are cut from |
| `batches.py` | the output of every reader: `Batch`, `Spans`, `Mark` |
| `formats/` | the input formats, one module each, and their registry `READERS` |
| `documents.py`, `tables.py` | documents and rows of an iterable, and of tables of other libraries, as batches |
| `threads.py` | `read_files`: read several inputs at once, in order; other ordered work on threads |
| `cuts.py`, `stretches.py` | places where inputs may be cut; parts of a corpus, one per task of a job |
| `skipped.py`, `packages.py` | skipped inputs; packages that only some inputs need |

To add an input format, add a module in `formats/`, a line in `READERS` and a test parameter. To add a read option, add
a field to `Reading` and `ReadOptions`, and a line to `_ABOUT` in `options.py`.
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

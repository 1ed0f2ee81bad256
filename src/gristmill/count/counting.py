"""count: corpus -> words, on all threads. The native core counts; worker processes run patterns it does not have."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard, Unpack

from gristmill._core import Counter, WordTable
from gristmill.arguments import (
    DEFAULT_SPECIAL_TOKENS,
    check_kernel,
    check_memory_limit,
    check_min_frequency,
    check_num_threads,
    check_special_tokens,
    show_options,
)
from gristmill.corpus import Corpus, DocumentStream, FoundFiles, Reading, ReadOptions, Source, open_corpus, read_files
from gristmill.corpus.batches import Batch, Spans, join_spans
from gristmill.corpus.files import are_plain_texts
from gristmill.corpus.options import check_applies
from gristmill.corpus.skipped import warn_of_skipped
from gristmill.corpus.threads import find_documents
from gristmill.count.words import Words
from gristmill.errors import DeviceError, EmptyCorpusError, OptionError, PatternError, SpecialTokenError
from gristmill.executors import Executor, check_executor
from gristmill.gpu.counting import DeviceTable, GpuCounter
from gristmill.gpu.devices import Choice, Device, device_names
from gristmill.gpu.driver import Driver, all_active
from gristmill.pretokenize.patterns import DEFAULT_PATTERN, Pattern, resolve_pattern, warn_of_slow_pattern
from gristmill.profile import Stage, TaskTime
from gristmill.progress import OnProgress, ProgressOption, open_progress
from gristmill.trace import spanned

if TYPE_CHECKING:
    from gristmill.count.distributed import CountRequest

__all__ = ["count_words"]

AnyCounter: TypeAlias = Counter | GpuCounter

# Text that one call of the core counts: enough to keep its threads busy.
CALL_BYTES = 8 << 20
# Each reader keeps a file and a few batches open.
MAX_READERS = 16


@dataclass(frozen=True, slots=True)
class CountOptions:
    """The options of counting, validated."""

    pattern: Pattern
    special_tokens: tuple[str, ...]
    min_frequency: int
    memory_limit: int | None
    num_threads: int
    reading: Reading
    executor: Executor
    device: Device

    @classmethod
    def checked(
        cls,
        corpus: Any,
        *,
        pattern: str | None,
        special_tokens: Iterable[str] | None,
        min_frequency: int,
        memory_limit: int | None,
        num_threads: int | None,
        reading: ReadOptions,
        executor: Executor | str = "local",
        device: str = "cpu",
    ) -> CountOptions:
        """Return the validated options. Counted words have a pattern and specials, and only the same may be passed."""
        check_kernel()
        given_pattern = None if pattern is None else resolve_pattern(pattern)
        given_specials = None if special_tokens is None else check_special_tokens(special_tokens)
        checked_reading = Reading.checked(reading, documents="file")
        checked_executor = check_executor(executor, num_threads)
        if isinstance(corpus, Words):
            if given_pattern is not None and str(given_pattern) != corpus.pattern:
                raise PatternError(
                    f"pattern={pattern!r}, but the words were counted with pattern={corpus.pattern!r}. "
                    f"Leave pattern= out, or count again."
                )
            if given_specials is not None and given_specials != corpus.special_tokens:
                raise SpecialTokenError(
                    f"special_tokens={list(given_specials)}, but the words were counted with "
                    f"special_tokens={list(corpus.special_tokens)}. Leave special_tokens= out, or count again."
                )
            check_applies(checked_reading, (), "counted words")
            if checked_executor.runs_tasks:
                raise OptionError(
                    f"executor={checked_executor.name!r} does not apply: the words are already counted. Leave it out."
                )
            given_pattern, given_specials = resolve_pattern(corpus.pattern), corpus.special_tokens
        return cls(
            pattern=given_pattern or resolve_pattern(DEFAULT_PATTERN),
            special_tokens=DEFAULT_SPECIAL_TOKENS if given_specials is None else given_specials,
            min_frequency=check_min_frequency(min_frequency),
            memory_limit=check_memory_limit(memory_limit),
            num_threads=check_num_threads(checked_executor.num_workers if checked_executor.name == "local" else None),
            reading=checked_reading,
            executor=checked_executor,
            device=Device.checked(device),
        )


@show_options(ReadOptions, Reading(documents="file").options())
def count_words(
    corpus: Corpus | Words,
    *,
    pattern: str | None = None,
    special_tokens: Iterable[str] | None = None,
    min_frequency: int = 1,
    memory_limit: int | None = None,
    num_threads: int | None = None,
    executor: Executor | str = "local",
    device: str = "auto",
    progress: ProgressOption = "auto",
    **reading: Unpack[ReadOptions],
) -> Words:
    """Return the distinct pieces of `corpus` with their counts.

    The result does not depend on the number of threads, `memory_limit`, the executor or the device.

    Args:
        corpus: As in `train_tokenizer`.
        pattern: Pattern that cuts text into pieces; see `train_tokenizer`. Default: gpt2.
        special_tokens: Boundaries in the text that no piece crosses. Default: `["<|endoftext|>"]`.
        min_frequency: Drop words that occur fewer times than this.
        memory_limit: Memory in bytes that counting may use. When it needs more, counting writes sorted parts of the
            table to the temporary folder (`$TMPDIR`) and joins them at the end. Default: no limit. With an executor
            that runs tasks, this is the limit per worker, and the default is 200 MB.
        num_threads: Number of threads. Default: all cores available to this process.
        executor: Executor that counts: "local" (threads), "processes", "ray", or an object such as
            `gm.Ray(address="auto", work_folder="/shared/work")`. All but "local" need a corpus of files, and their
            workers use one thread each.
        device: Device that counts: "auto", "cpu", "cuda" (all GPUs) or "cuda:0" (one of them); see `train_tokenizer`.
            The tasks of an executor and regular expressions always run on the CPU.
        progress: As in `train_tokenizer`.
        **reading: How files are read: input_format, text_field, documents, separator, on_error, max_document_bytes;
            see `gristmill.corpus.ReadOptions`.

    Raises:
        OptionError: An argument is out of range, or does not apply to this corpus.
        CorpusError: The corpus is empty, damaged or not a corpus.
        OSError: A file or URL cannot be read, or changed while it was read.
        MemoryLimitError: The result does not fit in `memory_limit`.
        DeviceError: `device` asks for a GPU that cannot be used, or that failed.

    Examples:
        >>> words = count_words(["low low lower"])
        >>> words.most_common()
        [(b'low', 1), (b' low', 1), (b' lower', 1)]
        >>> words.count(" low"), words.num_pieces
        (1, 3)
    """
    options = CountOptions.checked(
        corpus,
        pattern=pattern,
        special_tokens=special_tokens,
        min_frequency=min_frequency,
        memory_limit=memory_limit,
        num_threads=num_threads,
        reading=reading,
        executor=executor,
        device=device,
    )
    check_device_counts(corpus, options)
    with open_progress(progress) as on_progress, options.device.released():
        return count(corpus, options, on_progress).words


def check_device_counts(corpus: Corpus | Words, options: CountOptions) -> None:
    """Raise OptionError if the caller asked for a GPU, and the CPU would do all of the counting."""
    if not options.device.is_required:
        return
    if isinstance(corpus, Words):
        reason = "the words are already counted"
    elif options.executor.runs_tasks:
        reason = f"the workers of executor={options.executor.name!r} count on the CPU"
    elif options.pattern.name is None:
        reason = "the pattern is a regular expression, which only the CPU matches"
    else:
        return
    raise OptionError(f"device={options.device.name!r} does not apply: {reason}. Leave device= out.")


class Counted(NamedTuple):
    """Words, and the profile of counting them."""

    words: Words
    stages: list[Stage]
    tasks: tuple[TaskTime, ...] = ()  # if an executor ran them


def count(
    corpus: Corpus | Words,
    options: CountOptions,
    on_progress: OnProgress | None,
    save: Callable[[Words], None] = lambda _: None,
    *,
    keep_on_gpu: bool = False,
) -> Counted:
    """Return the words of `corpus`, at least one. `save` receives them before the job that counted them is removed.

    keep_on_gpu: words that a GPU has counted stay in its memory until they are needed in that of the host.
    """
    if isinstance(corpus, Words):
        words = corpus.at_least(options.min_frequency) if options.min_frequency > 1 else corpus
        counted = Counted(words, [])
        num_before, source_bytes = len(corpus), corpus.source_bytes
    else:
        counted = _count_corpus(corpus, options, on_progress, save, keep_on_gpu)
        figures = counted.stages[0]
        num_before, source_bytes = figures.num_words or 0, figures.num_bytes or 0
    if len(counted.words) == 0:
        raise EmptyCorpusError(why_empty(source_bytes, num_before, options.min_frequency))
    if isinstance(corpus, Words) or not options.executor.runs_tasks:
        save(counted.words)
    return counted


def _count_corpus(
    corpus: Corpus,
    options: CountOptions,
    on_progress: OnProgress | None,
    save: Callable[[Words], None],
    keep_on_gpu: bool,
) -> Counted:
    source = open_corpus(corpus, options.reading)
    tasks: tuple[TaskTime, ...] = ()

    def as_words(table: WordTable | DeviceTable) -> Words:
        return Words(table, pattern=options.pattern, special_tokens=options.special_tokens)

    def save_table(table: WordTable) -> None:
        if len(table):
            save(as_words(table))

    table: WordTable | DeviceTable
    if not options.executor.runs_tasks:
        table, stages = _count_source(source, options, on_progress, keep_on_gpu)
    else:
        from gristmill.count.distributed import count_in_parts  # not at the top: few corpora are counted in parts

        request = count_request(source, options)
        table, stages, tasks = count_in_parts(request, options.executor, on_progress, save_table)
    return Counted(as_words(table), stages, tasks)


def count_request(source: Source, options: CountOptions) -> CountRequest:
    """Return the request for a counting job. Raises OptionError for documents in memory, which no worker can read."""
    from gristmill.count.distributed import make_request

    if not isinstance(source, FoundFiles):
        raise OptionError(
            f"executor={options.executor.name!r} cannot count documents in memory: its workers read files. Pass files, "
            f"folders or URLs, or leave the executor out."
        )
    return make_request(
        source,
        pattern=options.pattern,
        special_tokens=options.special_tokens,
        min_frequency=options.min_frequency,
        reading=options.reading.options(),
        memory_limit=options.memory_limit,
    )


def _count_source(
    source: Source, options: CountOptions, on_progress: OnProgress | None, keep_on_gpu: bool
) -> tuple[WordTable | DeviceTable, list[Stage]]:
    skipped: dict[int, str] = {}
    num_inputs = len(source.inputs) if isinstance(source, FoundFiles) else 0
    choice = _choice_for(source, options)
    table: WordTable | DeviceTable | None = None
    if choice.drivers:
        try:
            counted, figures = _count_on_gpu(source, options, on_progress, skipped, choice.drivers)
            table = counted if keep_on_gpu else counted.to_host()
        except DeviceError as error:
            if not options.device.can_do_without(error):
                raise
            skipped, choice = {}, _choice_for(source, options)
    if table is None and options.pattern.name is not None:
        table, figures = _count_natively(source, options, on_progress, skipped)
    elif table is None:
        table, figures = _count_by_regex(source, options, on_progress, skipped)
    warn_of_skipped(skipped, num_inputs)
    stages = [
        Stage(
            stage="count",
            seconds=figures["count_seconds"],
            num_bytes=figures["source_bytes"],
            num_words=figures["num_words"],
            num_pieces=figures["num_pieces"],
            num_spilled_runs=figures["num_spilled_runs"],
            device=device_names(choice.drivers),
            device_reason=choice.reason,
        ),
        Stage(
            stage="join",
            seconds=figures["join_seconds"],
            num_words=len(table),
            device=device_names(() if figures["num_spilled_runs"] else choice.drivers[:1]),
            device_reason=choice.reason,
        ),
    ]
    return table, stages


def _choice_for(source: Source, options: CountOptions) -> Choice:
    """Choose where this corpus is counted."""
    obstacle = ""
    if options.pattern.name is None:
        obstacle = "only the CPU matches regular expressions"
    elif options.memory_limit is not None and options.device.is_required:
        raise OptionError(
            f"memory_limit={options.memory_limit} applies only to counting on the CPU, and device="
            f"{options.device.name!r} counts in the memory of the GPU. Leave memory_limit= out, or pass device='cpu'."
        )
    elif options.memory_limit is not None:
        obstacle = "memory_limit applies only to counting on the CPU"
    # An iterable cannot be read again if the GPU fails.
    if isinstance(source, DocumentStream):
        unknown = "documents in memory are read once, and their size is unknown"
    else:
        unknown = "these files are read more slowly than the CPU counts"
    num_bytes = source.num_bytes if _reads_itself(source, options) else None
    return options.device.for_text(num_bytes, num_threads=options.num_threads, obstacle=obstacle, unknown=unknown)


def _reads_itself(source: Source, options: CountOptions) -> TypeGuard[FoundFiles]:
    """Return whether the core reads the files."""
    return isinstance(source, FoundFiles) and are_plain_texts(source, options.reading)


def _count_on_gpu(
    source: Source,
    options: CountOptions,
    on_progress: OnProgress | None,
    skipped: dict[int, str],
    drivers: tuple[Driver, ...],
) -> tuple[DeviceTable, dict[str, Any]]:
    meter = _meter_for(source, options, on_progress)
    with all_active(drivers):
        counter = GpuCounter(
            drivers,
            pattern=str(options.pattern),
            special_tokens=[special.encode() for special in options.special_tokens],
            num_threads=options.num_threads,
            min_frequency=options.min_frequency,
            on_progress=meter or on_progress,
        )
        _add_source(counter, source, options, meter, skipped)
        return counter.finish()


def _count_natively(
    source: Source, options: CountOptions, on_progress: OnProgress | None, skipped: dict[int, str]
) -> tuple[WordTable, dict[str, Any]]:
    meter = _meter_for(source, options, on_progress)
    counter = Counter(
        pattern=str(options.pattern),
        special_tokens=[special.encode() for special in options.special_tokens],
        num_threads=options.num_threads,
        memory_limit=options.memory_limit or 0,
        spill_folder=tempfile.gettempdir() if options.memory_limit else "",
        min_frequency=options.min_frequency,
        on_progress=meter or on_progress,
    )
    _add_source(counter, source, options, meter, skipped)
    return counter.finish()


def _meter_for(source: Source, options: CountOptions, on_progress: OnProgress | None) -> _BatchMeter | None:
    if on_progress is None or _reads_itself(source, options):
        return None
    return _BatchMeter(on_progress, source.num_bytes if isinstance(source, FoundFiles) else 0)


def _add_source(
    counter: AnyCounter, source: Source, options: CountOptions, meter: _BatchMeter | None, skipped: dict[int, str]
) -> None:
    if isinstance(source, DocumentStream):
        call_bytes = _call_bytes(options)
        # With half of `call_bytes`, each batch is one call, so its texts are joined only once.
        _add_batches(counter, _documents(source, call_bytes), [0], call_bytes // 2, meter)
    elif _reads_itself(source, options):
        counter.add_files(list(source.paths))
    else:
        _add_files(counter, source, options, meter, skipped)


def _call_bytes(options: CountOptions) -> int:
    return min(CALL_BYTES, (options.memory_limit or CALL_BYTES * 8) // 8)


def _documents(source: DocumentStream, batch_bytes: int) -> Generator[tuple[int, Batch, Spans], None, None]:
    for batch in source.read_batches(batch_bytes):
        yield 0, batch, batch.spans()


def _add_files(
    counter: AnyCounter, files: FoundFiles, options: CountOptions, meter: _BatchMeter | None, skipped: dict[int, str]
) -> None:
    batches = read_files(
        files,
        options.reading,
        cut=counter.last_cut,
        num_readers=min(options.num_threads, MAX_READERS),
        on_skip=lambda index, error: skipped.update({index: str(error)}),
    )
    bytes_before = [0, *accumulate(input.num_bytes for input in files.inputs)]
    # Close both even after an error: a thread may be waiting for room in a queue that is no longer read.
    with (
        contextlib.closing(batches),
        contextlib.closing(find_documents(batches, num_threads=options.num_threads)) as found,
    ):
        _add_batches(counter, found, bytes_before, _call_bytes(options), meter)


def _add_batches(
    counter: AnyCounter,
    found: Iterable[tuple[int, Batch, Spans]],
    bytes_before: list[int],  # size on disk of the inputs before each input
    call_bytes: int,
    meter: _BatchMeter | None,
) -> None:
    """Count the batches of the readers, at least `call_bytes` per call."""
    gathered: list[Spans] = []
    num_bytes = 0
    for index, batch, spans in found:
        gathered.append(spans)
        num_bytes += batch.num_bytes
        if num_bytes >= call_bytes:
            _add_spans(counter, gathered)
            gathered, num_bytes = [], 0
        if meter is not None and (meter.total or not gathered):  # without a total, the meter adds the core's own count
            meter.counted = bytes_before[index] + batch.position
    _add_spans(counter, gathered)


def _add_spans(counter: AnyCounter, gathered: list[Spans]) -> None:
    spans = join_spans(gathered)
    if len(spans.begins):
        counter.add_spans(spans.text, spans.begins, spans.ends)


class _BatchMeter:
    """Progress over all batches, because the core counts each call from 0. `total` is 0 if unknown."""

    def __init__(self, on_progress: OnProgress, total: int) -> None:
        self.counted = 0
        self.total = total
        self._on_progress = on_progress

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "count":
            # Bytes of a compressed file and bytes of its text cannot be added.
            done, total = (self.counted, self.total) if self.total else (self.counted + done, 0)
        self._on_progress(stage, done, total)


@spanned("count and join")
def _count_by_regex(
    source: Source, options: CountOptions, on_progress: OnProgress | None, skipped: dict[int, str]
) -> tuple[WordTable, dict[str, Any]]:
    from gristmill.count.regex_counting import count_by_regex  # not at the top: native patterns never need it

    warn_of_slow_pattern(options.pattern)
    start = time.perf_counter()
    table = count_by_regex(
        source,
        reading=options.reading,
        on_skip=lambda index, error: skipped.update({index: str(error)}),
        regex=options.pattern.regex,
        special_tokens=options.special_tokens,
        num_threads=options.num_threads,
        memory_limit=options.memory_limit,
        on_progress=on_progress,
    )
    figures = {
        "count_seconds": time.perf_counter() - start,
        "join_seconds": 0.0,
        "source_bytes": table.source_bytes,
        "num_words": len(table),
        "num_pieces": table.total,
        "num_spilled_runs": 0,
    }
    if options.min_frequency > 1:
        table = table.at_least(options.min_frequency)
    return table, figures


def why_empty(source_bytes: int, num_words: int, min_frequency: int) -> str:
    """Return the message of the EmptyCorpusError for a corpus with this many bytes and words."""
    if num_words:
        return (
            f"none of the {num_words:,} words of the corpus occurs min_frequency={min_frequency} times or more. "
            f"Pass a smaller min_frequency."
        )
    if source_bytes:
        return (
            f"the corpus contains only special tokens ({source_bytes:,} bytes) and no text to learn from. "
            f"Pass files or documents with text."
        )
    return "the corpus is empty: 0 bytes of text. Pass files or documents with text."

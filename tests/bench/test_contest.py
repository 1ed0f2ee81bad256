"""Rows run in alternation; a row that fails stops alone; an interruption keeps what was measured."""

import pytest

from gristmill.bench.contest import Entry, Rounds, run_rounds
from gristmill.bench.fresh_process import ChildFailed, Sample

QUIET = Sample(1.0, 1.0, 0.0, 1, 1)
DISTURBED = Sample(1.0, 1.0, 0.9, 1, 1)


@pytest.fixture
def calls():
    return []


def entry(name, calls, *results, slow=False):
    """An entry whose runs give the results in order, and the last one ever after."""
    left = list(results)

    def run():
        calls.append(name)
        result = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(result, BaseException):
            raise result
        return result

    return Entry(name, "", 1, run, slow)


def test_every_other_round_is_in_reverse_and_slow_systems_run_less(calls):
    entries = [entry("a", calls, QUIET), entry("b", calls, QUIET, slow=True), entry("c", calls, QUIET)]
    assert run_rounds(entries, Rounds(3, 1)) is None
    assert "".join(calls) == "abc" + "ca" + "ac"


def test_a_system_that_fails_keeps_the_reason_and_the_others_go_on(calls):
    bad, good = entry("bad", calls, QUIET, ChildFailed("timed out after 1 s")), entry("good", calls, QUIET)
    run_rounds([bad, good], Rounds(3, 3))
    assert (bad.is_measured, bad.outcome) == (False, "timed out after 1 s")
    assert (good.is_measured, len(good.runs)) == (True, 3)
    assert calls.count("bad") == 2


def test_a_disturbed_run_is_repeated_until_the_repeats_are_used_up(calls):
    calm, noisy = entry("calm", calls, DISTURBED, QUIET), entry("noisy", calls, DISTURBED)
    run_rounds([calm, noisy], Rounds(1, 1, num_extra=2))
    assert (calm.runs, calm.repeated) == ([QUIET], [DISTURBED])
    assert (noisy.runs, noisy.repeated) == ([DISTURBED], [DISTURBED, DISTURBED])


def test_an_interruption_is_returned_and_earlier_runs_are_kept(calls):
    first, second = entry("first", calls, QUIET), entry("second", calls, KeyboardInterrupt())
    interruption = run_rounds([first, second, entry("third", calls, QUIET)], Rounds(2, 2))
    assert isinstance(interruption, KeyboardInterrupt)
    assert (len(first.runs), second.outcome, calls) == (1, "not measured", ["first", "second"])

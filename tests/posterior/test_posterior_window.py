"""The ring buffer against a plain list."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gristmill
from gristmill.posterior.window import Window


def rows_of(step, number):
    """The posteriors of a step; every number identifies its origin."""
    base = torch.arange(number).float()[:, None] + 100 * step
    return base.repeat(1, 2), base + 0.25 + torch.zeros(1, 2), base + 0.5 + torch.zeros(1, 2), float(step)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    gaps=st.lists(st.integers(1, 3), min_size=30, max_size=30),
    num_steps=st.integers(1, 8),
    capacity=st.integers(2, 20),
    data=st.data(),
)
def test_the_ring_holds_what_a_list_of_the_last_rows_holds_also_after_a_resume(sizes, gaps, num_steps, capacity, data):
    window, plain, step = Window(num_steps=num_steps, capacity=capacity), [], 0
    resumed_at = data.draw(st.integers(0, len(sizes)))
    for number, size in enumerate(sizes):
        if number == resumed_at:
            state = window.state()
            window = Window(num_steps=num_steps, capacity=capacity)
            window.load(*state)
        step += gaps[number]
        mu, logvar, z, nats = rows_of(step, size)
        window.add(step, mu, logvar, z, nats)
        plain += [(step, row) for row in mu[:, 0].tolist()]
        expected = [row for at, row in plain if at > step - num_steps][-capacity:]
        rows = window.rows()
        assert rows.mu_NZ[:, 0].tolist() == expected
        assert rows.z_NZ[:, 1].tolist() == [row + 0.5 for row in expected]
        assert rows.logvar_NZ[:, 0].tolist() == [row + 0.25 for row in expected]
        assert rows.nats_N.tolist() == [row // 100 for row in expected]
        assert window.num_rows == len(expected)


def test_nothing_is_allocated_before_the_first_row():
    window = Window(num_steps=5, capacity=10**12)
    assert window.num_rows == 0
    assert window.state() == ({}, {"counts": []})


def test_another_number_of_dimensions_is_an_error_that_names_both():
    window = Window(num_steps=5, capacity=10)
    window.add(1, *[torch.zeros(2, 3)] * 3, 0.0)
    with pytest.raises(gristmill.OptionError, match=r"mu must have 3 latent dimensions as before, got 4"):
        window.add(2, *[torch.zeros(2, 4)] * 3, 0.0)


def test_a_state_that_lost_its_rows_is_refused():
    window = Window(num_steps=5, capacity=10)
    window.add(1, *[torch.zeros(2, 3)] * 3, 0.0)
    tensors, numbers = window.state()
    for broken in ({}, {"rows": tensors["rows"][:, :5]}, {"rows": torch.zeros(9, 10)}):
        with pytest.raises(gristmill.CheckpointError, match="posterior monitor"):
            Window(num_steps=5, capacity=10).load(broken, numbers)

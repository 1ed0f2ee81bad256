"""Connect to a Ray cluster, or start one on this machine, without output and with errors within seconds."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gristmill.arguments import usable_cores
from gristmill.errors import OptionError, WorkerError

# How long a host may take to accept a connection. Ray itself waits for minutes.
CONNECT_SECONDS = 5.0
# Ray's minimum. Only names and small results are sent.
OBJECT_STORE_BYTES = 80_000_000
# No usage statistics sent to Ray's makers, and no warning about GPUs.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
DEFAULT_PORTS = {"ray://": 10001, "": 6379}
_ADDRESS = re.compile(r"(ray://|)([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\])(?::(\d{1,5}))?/?")


def check_address(address: Any) -> str:
    """Return the address of a cluster, checked for a form that Ray accepts.

    >>> check_address("ray://head:10001")
    'ray://head:10001'
    >>> check_address("http://head")
    Traceback (most recent call last):
    gristmill.errors.OptionError: address='http://head' is not the address of a Ray cluster. Pass 'auto' for the \
cluster that this machine belongs to, 'HOST:6379', or 'ray://HOST:10001' from a machine outside the cluster.
    """
    if address in ("auto", "local") or (isinstance(address, str) and _host_and_port(address) is not None):
        return str(address)
    raise OptionError(
        f"address={address!r} is not the address of a Ray cluster. Pass 'auto' for the cluster that this machine "
        f"belongs to, 'HOST:6379', or 'ray://HOST:10001' from a machine outside the cluster."
    )


@contextmanager
def connected(ray: Any, address: str | None, num_workers: int | None) -> Iterator[None]:
    """A connection to a cluster within the block.

    If this process is already connected, that connection is used and kept. Without an address, RAY_ADDRESS from the
    environment is used, which `ray job submit` sets; without that, a cluster starts on this machine and ends with the
    block.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    if ray.is_initialized():
        _check_same_cluster(ray, address)
        yield
        return
    with _kept_signal_handler(), _silenced(ray):
        try:
            _connect(ray, address, num_workers)
            yield
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None, num_workers: int | None) -> None:
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address in (None, "local"):
        address = "local"
        options |= {
            "num_cpus": num_workers or usable_cores(),
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    else:
        _check_reachable(check_address(address))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, **options)
    except Exception as error:
        raise WorkerError(_failure(str(address), error)) from error


def _failure(address: str, error: Exception) -> str:
    reason = " ".join(str(error).split())[:500]
    if address == "local":
        return f"could not start Ray on this machine: {reason}"
    if address == "auto":
        advice = "Start a cluster with `ray start --head`, pass the address of one, or leave the address out."
        return f"address='auto': this machine is not part of a Ray cluster ({reason}). {advice}"
    advice = (
        "Ray and Python must have the same versions on both sides. A cluster with token authentication, the default of "
        "newer versions, needs RAY_AUTH_MODE=token in the environment and its token on this machine."
    )
    if not address.startswith("ray://"):
        host = address.partition(":")[0]
        advice += f" From a machine outside the cluster, pass address='ray://{host}:10001'."
    return f"address={address!r}: could not connect to Ray: {reason} {advice}"


def _host_and_port(address: str) -> tuple[str, int] | None:
    """Return the host and port of an address; None if it is invalid.

    >>> _host_and_port("ray://head"), _host_and_port("10.0.0.1:6379"), _host_and_port("[::1]:6379")
    (('head', 10001), ('10.0.0.1', 6379), ('::1', 6379))
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return None
    kind, host, port = match.groups()
    number = int(port or DEFAULT_PORTS[kind])
    return (host.strip("[]"), number) if 0 < number < 65_536 else None


def _check_reachable(address: str) -> None:
    if address == "auto":
        return
    place = _host_and_port(address)
    assert place is not None, address
    try:
        socket.create_connection(place, timeout=CONNECT_SECONDS).close()
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or error
        raise WorkerError(
            f"address={address!r}: no Ray cluster can be reached at {place[0]}, port {place[1]} ({reason}). Check that "
            f"it runs (`ray status` on its head node) and that no firewall blocks the port. The head node listens on "
            f"port 6379, and on port 10001 for ray:// addresses."
        ) from error


def _check_same_cluster(ray: Any, address: str | None) -> None:
    """Raise if this process is connected to a cluster with another address."""
    if address in (None, "auto"):
        return
    here = ray.get_runtime_context().gcs_address
    if str(address) not in (here, f"ray://{here}") and not str(address).startswith("ray://"):
        raise OptionError(
            f"address={address!r}: this process is already connected to the Ray cluster at {here}. Leave the address "
            f"out to use that one, or call ray.shutdown() first."
        )


@contextmanager
def _kept_signal_handler() -> Iterator[None]:
    """Restore the SIGTERM handler, which Ray replaces with its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def _silenced(ray: Any) -> Iterator[None]:
    """Silence Ray, which prints worker events to standard output, where results belong."""
    # RAY_AUTH_MODE: Ray sets it when it starts a cluster with a token, and does not unset it.
    unset = [name for name in (*QUIET, "RAY_AUTH_MODE") if name not in os.environ]
    os.environ.update({name: value for name, value in QUIET.items() if name in unset})
    module = getattr(getattr(ray, "_private", None), "worker", None)
    prints = getattr(module, "_worker_logs_enabled", None)  # the switch that Ray's debugger uses
    if prints is not None:
        module._worker_logs_enabled = False  # type: ignore[union-attr]
    try:
        yield
    finally:
        if prints is not None:
            module._worker_logs_enabled = prints  # type: ignore[union-attr]
        for name in unset:
            os.environ.pop(name, None)

"""Where a batch job's items are worked on: here, or on a cluster that the command line names."""

from __future__ import annotations

from importlib.util import find_spec

from furcate.batch import Executor
from furcate.batch.cluster import Dask, Ray
from furcate.cli._told import complain
from furcate.primitives._errors import RequestError

_NEEDED = {"dask": "distributed", "ray": "ray"}
_FORMS = "dask, dask://HOST:PORT, ray or ray://HOST:PORT"


def executor_for(where: str | None, workers: int | None) -> Executor | None:
    """Give what works on items; None is this process.

    Arguments:
        where: such as ``dask://10.0.0.1:8786``; without an address, a cluster is started on this machine for the job.
        workers: how many processes.

    Raises:
        RequestError: it names no cluster, or one whose extra is not installed.
    """
    if where is None:
        if workers is not None:
            raise RequestError("--workers goes with --on: without it, all items are worked on in this process")
        return None
    engine, _, place = where.partition("://")
    if engine not in _NEEDED or ("://" in where and not _is_address(place)):
        raise RequestError(f"--on {where} names no cluster; give {_FORMS}")
    if engine == "dask" and place and workers is not None:
        raise RequestError("--workers is for a cluster that is started here; this one has the workers that it has")
    # It would come out anyway, but not before there is a journal.
    if find_spec(_NEEDED[engine]) is None:
        raise RequestError(f"--on {engine} needs the extra {engine!r}: pip install 'furcate[{engine}]'")
    if engine == "ray":
        return Ray(address=where if place else None, workers=workers, on_notice=complain)
    return Dask(address=f"tcp://{place}" if place else None, workers=workers, on_notice=complain)


def _is_address(place: str) -> bool:
    host, _, port = place.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit()

"""Items of a job worked on by the processes of a cluster, on this machine or on many."""

from __future__ import annotations

from furcate.batch.cluster._executors import Dask, Ray

__all__ = ("Dask", "Ray")

"""The embedded model: a real, very small language model on this machine, without a key and without a network.

It is for running everything for real, offline: trying furcate out, examples, tests of one's own callbacks. Its
answers are those of a model of 135 million parameters; nobody should depend on their content.
"""

from furcate.local._fetch import OfflineError, fetch
from furcate.local._server import EmbeddedServer, ServerStatistics, serve
from furcate.local._weights import (
    MODEL_NAME,
    WEIGHTS,
    Weights,
    WeightsStatus,
    cache_folder,
    status,
    weights_path,
)

__all__ = (
    "MODEL_NAME",
    "WEIGHTS",
    "EmbeddedServer",
    "OfflineError",
    "ServerStatistics",
    "Weights",
    "WeightsStatus",
    "cache_folder",
    "fetch",
    "serve",
    "status",
    "weights_path",
)

"""The only network code: one HTTP call at a time, and what may be said of it afterwards."""

from furcate.transport._call import Call, Quiet, Transport
from furcate.transport._canonical import native_sha256, provider_request, provider_sha256
from furcate.transport._choice import TRANSPORTS, TransportName, make_transport, on_asyncio, quick_is_installed
from furcate.transport._partition import Partition, partition_reasoning
from furcate.transport._replay import KeptCall, ReplayedCall
from furcate.transport._service import ProviderCall, Transported, TransportService

__all__ = (
    "TRANSPORTS",
    "Call",
    "KeptCall",
    "Partition",
    "ProviderCall",
    "Quiet",
    "ReplayedCall",
    "Transport",
    "TransportName",
    "TransportService",
    "Transported",
    "make_transport",
    "native_sha256",
    "on_asyncio",
    "partition_reasoning",
    "provider_request",
    "provider_sha256",
    "quick_is_installed",
)

"""The only network code: one HTTP call at a time, and what may be said of it afterwards."""

from furcate.transport._canonical import native_sha256, provider_request, provider_sha256
from furcate.transport._http import HttpCall, HttpTransport
from furcate.transport._partition import Partition, partition_reasoning
from furcate.transport._replay import Call, KeptCall, ReplayedCall
from furcate.transport._service import ProviderCall, Transported, TransportService

__all__ = (
    "Call",
    "HttpCall",
    "HttpTransport",
    "KeptCall",
    "Partition",
    "ProviderCall",
    "ReplayedCall",
    "TransportService",
    "Transported",
    "native_sha256",
    "partition_reasoning",
    "provider_request",
    "provider_sha256",
)

"""A plan's call as its provider may see it, in bytes."""

from __future__ import annotations

from functools import lru_cache

import attrs
from attrs import frozen

from furcate.dialects import Dialect
from furcate.orchestrator._plan import Plan
from furcate.primitives._content import Origin
from furcate.primitives._wire import ModelCall, WireRequest
from furcate.transport import Partition, partition_reasoning


def origin_of(plan: Plan) -> Origin:
    """Give the tag of the state that a plan's answers bring."""
    return _origin(plan.backend.provider, plan.backend.dialect, plan.call.model)


@lru_cache(maxsize=256)
def _origin(provider: str, dialect: str, model: str) -> Origin:
    return Origin(provider, dialect, model)  # the very same one each time, which is quickly compared


@frozen
class Encoded:
    """Hold a call, what its provider may see of its history, and how that is written."""

    call: ModelCall
    parted: Partition
    wire: WireRequest


def encode_ahead(call: ModelCall, plan: Plan, dialect: Dialect) -> Encoded:
    """Encode a call of a plan as its provider may see it.

    Raises:
        RequestError: the dialect cannot carry it, or it holds foreign state where none may be.
    """
    parted = partition_reasoning(call.history, origin_of(plan))
    seen = call if parted.history is call.history else attrs.evolve(call, history=parted.history)
    return Encoded(call, parted, dialect.encode(seen))

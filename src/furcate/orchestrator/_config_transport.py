"""The key ``transport``: the HTTP library that requests are sent with."""

from __future__ import annotations

from furcate.orchestrator._config_read import Report, Wrong, one_of
from furcate.transport import TRANSPORTS, TransportName, quick_is_installed

TRANSPORT = "transport"
_chosen = one_of(*TRANSPORTS)


def read_transport(report: Report, given: object) -> TransportName | None:
    """Read which transport is chosen; None where none is, or where the choice is wrong.

    Arguments:
        report: takes what is wrong.
        given: what stands at the key, None where nothing does.
    """
    if given is None:
        return None
    try:
        name = _chosen(given)
    except Wrong as wrong:
        report.add("", TRANSPORT, wrong.problem, remedy=wrong.remedy)
        return None
    if name == "aiohttp" and not quick_is_installed():
        remedy = "run pip install 'furcate[quick]', or leave the key out"
        report.add("", TRANSPORT, "aiohttp is not installed, or too old", remedy=remedy)
        return None
    return next(known for known in TRANSPORTS if known == name)

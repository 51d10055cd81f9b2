"""The only network code: one HTTP call at a time, on either event loop."""

from furcate.transport._http import HttpCall, HttpTransport

__all__ = ("HttpCall", "HttpTransport")

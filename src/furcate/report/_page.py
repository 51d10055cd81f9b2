"""One page of HTML that shows a recording by itself: no network, nothing that its content could bring to life."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources

from minijinja import Environment

from furcate.primitives._json import Plain
from furcate.report._clean import clean_line
from furcate.report._page_facts import PageFacts
from furcate.report._recording import Recording
from furcate.report._trace_text import trace_data
from furcate.report._trace_totals import TraceTotals

# In HTML these could end the element that holds the data, or be taken for markup.
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
# These turn the reading direction or cannot be seen, so they are spelled out: the page shows that they are there.
_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_SCRIPTS = ("rows.js", "drawing.js", "figure.js", "details.js", "start.js")


def page(recording: Recording, name: str) -> str:
    """Read a recording to its end and make the page of it.

    Arguments:
        recording: not yet read.
        name: what it is called.

    Returns:
        A whole HTML document. Its security policy lets nothing run or load but its own script and style.
    """
    totals, facts = TraceTotals(), PageFacts()
    for recorded in recording:
        totals.add(recorded)
        facts.add(recorded)
    totals.conclude()
    style, script = _file("page.css"), _script()
    environment = Environment(templates={"page.html": _file("page.html")})
    environment.add_filter("thousands", lambda number: f"{number:,}")
    environment.add_filter("seconds", lambda number: f"{number:,.2f}")
    return environment.render_template(
        "page.html",
        name=clean_line(name),
        policy=_policy(style, script),
        style=style,
        script=script,
        data=embedded(facts.described()),
        totals=_shown(trace_data(totals, recording)),
        began=_moment(totals.first_s),
        took=_duration(totals),
    )


def embedded(data: Plain) -> str:
    """Write plain data as JSON that can stand inside any element of an HTML document."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    spelled = _UNSEEN.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)
    return spelled.translate(_MARKUP)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _script() -> str:
    """Join the script's files: they are one scope, in their order."""
    return "\n".join(('(() => {\n"use strict";', *map(_file, _SCRIPTS), "})();\n"))


def _file(name: str) -> str:
    text = resources.files("furcate.report").joinpath("web", name).read_text(encoding="utf-8")
    # A browser reads line ends as one character, and takes its hash of that.
    return text.replace("\r\n", "\n")


def _moment(at_s: float | None) -> str:
    if at_s is None:
        return "at no time"
    try:
        return f"{datetime.datetime.fromtimestamp(at_s, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{at_s:g} s after 1970"


def _duration(totals: TraceTotals) -> str:
    if totals.first_s is None or totals.last_s is None:
        return "0 s"
    seconds = totals.last_s - totals.first_s
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _shown(value: Plain) -> Plain:
    """Make every text in plain data one clean line."""
    if isinstance(value, str):
        return clean_line(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, Mapping):
        return {clean_line(key): _shown(item) for key, item in value.items()}
    return value

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
# Joiners stay after what they join: letters of scripts that need them, and pictures of which others are made; so do
# the tags of a flag.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|\r(?!\n)"
    "|(?<![\u0600-\u180d\u180f-\u1fff\u20e3\u2190-\u2bff\ua840-\ud7ff\ufb50-\ufdff\ufe0e-\ufe0f\ufe70-\ufefc"
    "\U00010a00-\U0001fbff])[\u200c\u200d]"
    "|(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0000-\U000e007f]"
)
# How JSON writes those of them that may not stand in it as they are; a pair that begins with a backslash is one.
_ESCAPED = re.compile(r"(?:\\\\)+|\\(?:u00([01][0-9a-f])|([bf]|r(?!\\n)))")
_SHORT = {"b": "08", "f": "0c", "r": "0d"}
_LONGEST_NAME = 200

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
        name=_one_line(name),
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
    text = _ESCAPED.sub(_spelled_escape, text)
    return _UNSEEN.sub(lambda found: "\\" + _spelled(found), text).translate(_MARKUP)


def _spelled(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def _spelled_escape(found: re.Match[str]) -> str:
    code, short = found.groups()
    code = code or _SHORT.get(short or "")
    return f"\\\\u00{code}" if code is not None else found[0]


def _one_line(text: str) -> str:
    """Make one line of a name that is shown in a table: clean, without what cannot be seen, and not endless."""
    half = 10 * _LONGEST_NAME
    line = clean_line(text if len(text) <= 2 * half else f"{text[:half]}…{text[-half:]}")
    if len(line) > _LONGEST_NAME:
        # Names of one plan begin alike, so it is their middle that goes.
        line = f"{line[: _LONGEST_NAME // 2]}…{line[1 - _LONGEST_NAME // 2 :]}"
    return _UNSEEN.sub(_spelled, line)


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
        return _one_line(value)
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, Mapping):
        return {_one_line(key): _shown(item) for key, item in value.items()}
    return value

"""Text that others wrote, made harmless for a terminal.

A terminal obeys what stands in the text that it shows: sequences move the cursor, rename the window, write the
clipboard or hide what follows, and bidirectional controls show words in another order than they have. What is kept of
all that is line feeds, tabs and colours. What is stored stays as it came; only what is shown goes through here.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

_State: TypeAlias = Literal["ground", "escape", "escape_more", "csi", "string", "string_escape"]

_ESC = "\x1b"
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_SPECIAL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}]")
_CANCELS = "\x18\x1a"
# What begins a string of a terminal, after an escape or as one character; only the first kind ends at a bell.
_OSC = ("]", "\x9d")
_STRINGS = ("]P^X_", "\x9d\x90\x9e\x98\x9f")
_CSI_C1 = "\x9b"
_ST_C1 = "\x9c"
# No honest colour is longer; without a bound a sequence that never ends would be kept for ever.
_LONGEST_SEQUENCE = 128

# Attributes that change how letters look and no more: bold to underlined, inverse, struck out, and what ends them.
_PLAIN_LOOKS = frozenset({0, 1, 2, 3, 4, 7, 9, *range(21, 30), 39, 49, 53, 55, 59, *range(30, 38), *range(40, 48)})
_BRIGHT = frozenset({*range(90, 98), *range(100, 108)})
_LOOKS = _PLAIN_LOOKS | _BRIGHT
_LONG_COLOURS = (38, 48, 58)


class Cleaner:
    """Clean a text that arrives in pieces; a sequence may begin in one piece and end in another.

    Arguments:
        visualise: show what is taken out, an escape as U+241B, rather than drop it.
        colours: whether colours and bold letters are kept; what conceals letters never is.
    """

    def __init__(self, *, visualise: bool = False, colours: bool = True) -> None:
        self._visualise = visualise
        self._colours = colours
        self._state: _State = "ground"
        self._begun = ""
        self._ends_at_bell = False

    def feed(self, text: str) -> str:
        """Clean the next piece."""
        if self._state == "ground" and _SPECIAL.search(text) is None:
            return text
        shown: list[str] = []
        at = 0
        while at < len(text):
            if self._state == "ground":
                found = _SPECIAL.search(text, at)
                if found is None:
                    shown.append(text[at:])
                    break
                shown.append(text[at : found.start()])
                at = found.start()
            piece, taken = self._take(text[at])
            shown.append(piece)
            at += taken
        return "".join(shown)

    def end(self) -> str:
        """Give what is left of a sequence that never ended, and be ready for another text."""
        self._state = "ground"
        return self._drop(self._take_begun())

    def _take(self, char: str) -> tuple[str, int]:
        """Give what is shown of a character, and whether it is done with: 1, or 0 where it is to be looked at again."""
        match self._state:
            case "ground":
                return self._begin(char), 1
            case "escape" | "escape_more":
                return self._escape(char)
            case "csi":
                return self._csi(char)
            case "string":
                return self._string(char), 1
            case "string_escape":
                return self._string_escape(char)

    def _begin(self, char: str) -> str:
        if char == _ESC:
            self._state, self._begun = "escape", char
            return ""
        if char == _CSI_C1:
            self._state, self._begun = "csi", char
            return ""
        if char in _STRINGS[1]:
            self._state, self._ends_at_bell = "string", char in _OSC
        return self._drop(char)

    def _escape(self, char: str) -> tuple[str, int]:
        if self._state == "escape" and char == "[":
            self._state = "csi"
            self._begun += char
            return "", 1
        if self._state == "escape" and char in _STRINGS[0]:
            self._state, self._ends_at_bell = "string", char in _OSC
            return self._drop(self._take_begun() + char), 1
        if " " <= char <= "/":
            self._state = "escape_more"
            return self._drop(self._take_begun() + char), 1
        if "0" <= char <= "~":
            self._state = "ground"
            return self._drop(self._take_begun() + char), 1
        return self._interrupted(char)

    def _csi(self, char: str) -> tuple[str, int]:
        if " " <= char <= "?":
            # What is too long goes on as a sequence, but as none that is kept.
            over = len(self._begun) >= _LONGEST_SEQUENCE
            self._begun += char
            return (self._drop(self._take_begun()) if over else ""), 1
        if "@" <= char <= "~":
            self._state = "ground"
            begun = self._take_begun()
            kept = self._kept(begun, char)
            return (kept if kept is not None else self._drop(begun + char)), 1
        return self._interrupted(char)

    def _interrupted(self, char: str) -> tuple[str, int]:
        """Take what is no part of a sequence: terminals obey most controls even there."""
        if char in "\n\t":
            return char, 1
        if char == _ESC:
            left = self._take_begun()
            self._state, self._begun = "escape", char
            return self._drop(left), 1
        if char in _CANCELS:
            self._state = "ground"
            return self._drop(self._take_begun() + char), 1
        if char <= "\x7f":
            return self._drop(char), 1
        self._state = "ground"
        return self._drop(self._take_begun()), 0

    def _string(self, char: str) -> str:
        if char == _ESC:
            self._state, self._begun = "string_escape", char
            return ""
        if char in _CANCELS or char == _ST_C1 or (self._ends_at_bell and char == "\x07"):
            self._state = "ground"
        return self._drop(char)

    def _string_escape(self, char: str) -> tuple[str, int]:
        if char == "\\":
            self._state = "ground"
            return self._drop(self._take_begun() + char), 1
        self._state = "escape"  # any other escape cuts the string off
        return "", 0

    def _take_begun(self) -> str:
        begun, self._begun = self._begun, ""
        return begun

    def _kept(self, begun: str, last: str) -> str | None:
        """Give the sequence that is kept of a whole one, or None where nothing is."""
        if not self._colours or last != "m" or not begun.startswith("\x1b["):
            return None
        looks = _looks(begun[2:])
        return f"\x1b[{looks}m" if looks is not None else None

    def _drop(self, text: str) -> str:
        return "".join(map(_pictured, text)) if self._visualise else ""


def _looks(parameters: str) -> str | None:
    """Keep the parameters of a sequence that change how letters look; None where there are none of them."""
    if not parameters:
        return ""
    if re.fullmatch(r"[0-9;:]*", parameters) is None:
        return None
    kept: list[str] = []
    left = parameters.split(";")
    while left:
        one = left.pop(0)
        look = int(one.partition(":")[0] or "0")
        if look in _LONG_COLOURS and ":" not in one:
            colour = _long_colour(left)
            if colour is None:
                break  # nobody knows where such a colour ends, so what comes after it may mean anything
            kept.append(";".join((str(look), *colour)))
            del left[: len(colour)]
        elif look in _LONG_COLOURS or (look in _LOOKS and ":" not in one) or look == 4:
            kept.append(one)
    return ";".join(kept) if kept else None


def _long_colour(after: list[str]) -> tuple[str, ...] | None:
    """Give the parameters that spell a colour after its beginning: ``5;INDEX`` or ``2;RED;GREEN;BLUE``."""
    length = {"5": 2, "2": 4}.get(after[0].lstrip("0") if after else "", 0)
    if not length or len(after) < length or not all(one.isdecimal() for one in after[:length]):
        return None
    return tuple(after[:length])


def _pictured(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\N{SYMBOL FOR DELETE}"
    if 0x80 <= code <= 0x9F:
        return "\N{SYMBOL FOR ESCAPE}" + chr(code - 0x40)
    return f"<U+{code:04X}>" if _SPECIAL.match(char) else char


def clean(text: str, *, visualise: bool = False) -> str:
    """Clean a whole text: keep what can be read, line feeds, tabs and colours.

    Arguments:
        text: what somebody else wrote.
        visualise: show what is taken out, an escape as U+241B, rather than drop it.
    """
    cleaner = Cleaner(visualise=visualise)
    return cleaner.feed(text) + cleaner.end()


def clean_line(text: str) -> str:
    """Clean a text that stands in a line of ours, such as a title or a query: one line of it, without colours."""
    cleaner = Cleaner(colours=False)
    return " ".join(cleaner.feed(text).split())

"""How much work a schema makes, known without doing the work.

A short schema can stand for a very large one: twenty definitions that each name the one before in two alternatives are
a million parts, and one that contains itself in two alternatives doubles with each level of the answer. Whoever checks
an answer against it follows every way. So the ways are counted first, each shared part once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote

from attrs import field, frozen

from furcate.primitives._json import Frozen, FrozenMap, Plain

MOST_APPLIED = 5_000
"""How many subschemas may apply to one place of an answer, each counted as often as it is named."""

_MOST_PLAIN = 1_000
"""With no more ways than this from top to bottom, a schema is harmless whatever the answer is."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")


class Parts:
    """Find a schema's parts, what its references name, and what applies where."""

    def __init__(self, root: FrozenMap) -> None:
        self._root = root
        self._named: dict[str, FrozenMap] = {}
        for part in self.all():
            for key, mark in (("$anchor", "#"), ("$dynamicAnchor", "#"), ("$id", "")):
                name = part.get(key)
                if isinstance(name, str):
                    self._named[mark + name] = part

    def all(self) -> Iterator[FrozenMap]:
        """Give every object in the schema; those that are no subschema do no harm."""
        waiting: list[Frozen] = [self._root]
        while waiting:
            item = waiting.pop()
            if isinstance(item, FrozenMap):
                yield item
                waiting += item.values()
            elif isinstance(item, tuple):
                waiting += item

    def beside(self, part: FrozenMap) -> Iterator[FrozenMap]:
        """Give the subschemas that apply to the same place as this one, as often as they are named."""
        for key in _LISTS:
            yield from _maps(part.get(key))
        for key in _SINGLES:
            yield from _maps((part.get(key),))
        yield from _maps(_values(part.get("dependentSchemas")))
        for key in ("$ref", "$dynamicRef"):
            reference = part.get(key)
            target = self._target(reference) if isinstance(reference, str) else None
            if target is not None:
                yield target

    def below(self, part: FrozenMap) -> Iterator[FrozenMap]:
        """Give the subschemas that apply to places below."""
        for key in ("properties", "patternProperties"):
            yield from _maps(_values(part.get(key)))
        yield from _maps(part.get("prefixItems"))
        for key in ("items", "contains", "unevaluatedItems", "additionalProperties", "unevaluatedProperties"):
            yield from _maps((part.get(key),))

    def on(self, part: FrozenMap, value: Plain) -> Iterator[tuple[FrozenMap, Plain]]:
        """Give what applies to the items of a list or the members of an object, each with what it applies to."""
        if isinstance(value, list):
            first = part.get("prefixItems")
            listed = first if isinstance(first, tuple) else ()
            for schema, item in zip(listed, value, strict=False):
                yield from ((found, item) for found in _maps((schema,)))
            others = ("items", "unevaluatedItems")
            yield from ((found, item) for item in value[len(listed) :] for found in _each(part, others))
            yield from ((found, item) for item in value for found in _each(part, ("contains",)))
        elif isinstance(value, dict):
            named = part.get("properties")
            known = named if isinstance(named, FrozenMap) else FrozenMap()
            patterns = list(_maps(_values(part.get("patternProperties"))))
            for name, member in value.items():
                others = ("additionalProperties", "unevaluatedProperties")
                found = _maps((known[name],)) if name in known else _each(part, others)
                yield from ((schema, member) for schema in (*found, *patterns))

    def _target(self, reference: str) -> FrozenMap | None:
        document, _, place = reference.partition("#")
        if not place.startswith("/"):
            return self._named.get(reference) if reference != "#" else self._root
        at: Frozen = self._named.get(document, self._root)
        for step in unquote(place).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, FrozenMap):
                at = at.get(name)
            elif isinstance(at, tuple) and name.isdecimal() and int(name) < len(at):
                at = at[int(name)]
            else:
                return None
        return at if isinstance(at, FrozenMap) else None


@frozen
class Weight:
    """Hold what a look at a schema found.

    Attributes:
        applied: the largest number of subschemas that apply to one place; beyond `MOST_APPLIED` it is cut off there.
        heavy: whether an answer could make the work grow out of proportion to its size.
    """

    applied: int
    heavy: bool
    _parts: Parts = field(repr=False)
    _root: FrozenMap = field(repr=False)

    def work(self, value: Plain, most: int) -> int:
        """Count how often subschemas apply in checking a value, up to `most` and one more; 0 for a harmless schema."""
        return _work(self._parts, self._root, value, most=most) if self.heavy else 0


def weigh(schema: FrozenMap) -> Weight:
    """Look at a schema without applying it; the time is in proportion to the schema's size."""
    parts = Parts(schema)
    applied, _ = _ways(parts.all(), parts.beside, MOST_APPLIED)
    paths, circular = _ways(parts.all(), lambda part: [*parts.beside(part), *parts.below(part)], _MOST_PLAIN)
    return Weight(applied, circular or paths > _MOST_PLAIN, parts, schema)


def _ways(parts: Iterable[FrozenMap], after: Callable[[FrozenMap], Iterable[FrozenMap]], most: int) -> tuple[int, bool]:
    """Count the ways from any part to all that follow, at most `most` and one; and say whether circles meet."""
    ways: dict[int, int] = {}
    meeting = False
    for circle in _circles(parts, after):
        inside = {id(part) for part in circle}
        following = [id(other) for part in circle for other in after(part)]
        meeting |= sum(key in inside for key in following) > len(circle)
        size = len(circle) + sum(ways[key] for key in following if key not in inside)
        ways.update(dict.fromkeys(inside, min(size, most + 1)))
    return max(ways.values()), meeting


def _work(parts: Parts, root: FrozenMap, value: Plain, *, most: int) -> int:
    known: dict[tuple[int, int], int] = {}

    def count(part: FrozenMap, item: Plain) -> int:
        key = id(part), id(item)
        if key not in known:
            known[key] = 0  # what leads back to its own place is walked once
            made = 1 + sum(count(other, item) for other in parts.beside(part))
            for other, inner in parts.on(part, item):
                made += count(other, inner)
                if made > most:
                    break
            known[key] = min(made, most + 1)
        return known[key]

    try:
        return count(root, value)
    except RecursionError:
        return most + 1


def _values(group: Frozen) -> Frozen:
    return tuple(group.values()) if isinstance(group, FrozenMap) else ()


def _maps(items: Frozen) -> Iterator[FrozenMap]:
    if isinstance(items, tuple):
        yield from (item for item in items if isinstance(item, FrozenMap))


def _each(part: FrozenMap, keys: Iterable[str]) -> Iterator[FrozenMap]:
    return (found for key in keys for found in _maps((part.get(key),)))


def _circles(
    parts: Iterable[FrozenMap], after: Callable[[FrozenMap], Iterable[FrozenMap]]
) -> Iterator[list[FrozenMap]]:
    """Group parts that lead to each other (Tarjan's strongly connected components), those led to first."""
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    path: list[FrozenMap] = []
    on_path: set[int] = set()
    work: list[tuple[FrozenMap, Iterator[FrozenMap]]] = []

    def visit(part: FrozenMap) -> None:
        number[id(part)] = lowest[id(part)] = len(number)
        path.append(part)
        on_path.add(id(part))
        work.append((part, iter(after(part))))

    for start in parts:
        if id(start) not in number:
            visit(start)
        while work:
            part, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    above = id(work[-1][0])
                    lowest[above] = min(lowest[above], lowest[id(part)])
                if lowest[id(part)] == number[id(part)]:
                    circle = _taken_off(path, part)
                    on_path.difference_update(map(id, circle))
                    yield circle
            elif id(following) not in number:
                visit(following)
            elif id(following) in on_path:
                lowest[id(part)] = min(lowest[id(part)], number[id(following)])


def _taken_off(path: list[FrozenMap], last: FrozenMap) -> list[FrozenMap]:
    circle = [path.pop()]
    while circle[-1] is not last:
        circle.append(path.pop())
    return circle

"""Work that the provider of ``google-generatecontent`` runs itself.

Code and the newer tools come as parts, a call and its answer, and go back as those very parts. Searches and fetched
pages of other models are told of once they are over, in metadata that has no place in a request: it is kept, and
stays here.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import msgspec
from attrs import define, field
from msgspec import Raw

from furcate.dialects._failures import read_plain
from furcate.dialects._open_work import OpenWork, recorded_version
from furcate.dialects.google_generatecontent._wire import (
    Code,
    CodeResult,
    Members,
    Retrieved,
    ServerCall,
    clean_kind,
    read_list,
    read_text,
    rewritten,
)
from furcate.primitives._content import ActivityState, HostedActivity, Origin, ProviderPayload
from furcate.primitives._json import FrozenMap, Json, Plain
from furcate.primitives._stream import HostedTransition, Noticed, StreamEvent

VERSION = "1"
PART = "google-generatecontent.part"
"""Format of a part that goes back as it came."""
UNKNOWN = "google-generatecontent.unknown"
"""Format of a part of a kind that nobody knows, which goes back as it came too."""
GROUNDING = "google-generatecontent.grounding"
"""Format of grounding metadata, which has no place in a request."""
FETCHED = "google-generatecontent.fetched"
"""Format of a fetched page's metadata, which has no place in a request."""

# What the provider calls its tools, in our words; what is not here keeps its own name.
_NAMES: Mapping[str, str] = {
    "GOOGLE_SEARCH_WEB": "web_search",
    "GOOGLE_SEARCH": "web_search",
    "GOOGLE_SEARCH_IMAGE": "image_search",
    "URL_CONTEXT": "web_fetch",
    "FILE_SEARCH": "file_search",
    "CODE_EXECUTION": "code_execution",
}

_CODES = msgspec.json.Decoder(Code)
_RESULTS = msgspec.json.Decoder(CodeResult)
_CALLS = msgspec.json.Decoder(ServerCall)
_RETRIEVED = msgspec.json.Decoder(Retrieved)


@define
class HostedBook:
    """Follow the provider-run work of one answer.

    Attributes:
        scope: the id of the response, in which the ids of the work are unique.
    """

    _origin: Origin
    _open: OpenWork
    scope: str = ""
    _begun: dict[str, tuple[str, FrozenMap]] = field(factory=dict)
    _waiting: list[str] = field(factory=list)
    _over: set[str] = field(factory=set)
    _earlier_over: set[str] = field(factory=set)
    _numbers: dict[str, int] = field(factory=dict)
    _queries: set[str] = field(factory=set)
    _urls: set[tuple[str, str]] = field(factory=set)
    _metadata: set[bytes] = field(factory=set)

    def code(self, raw: Raw, part: Raw) -> StreamEvent:
        """Take code that the provider begins to run; `part` is the whole part."""
        code = _CODES.decode(raw)
        value: dict[str, Json] = {"code": code.code}
        if code.language is not None:
            value["language"] = code.language
        return self._begin(code.id, "code_execution", FrozenMap(value), part=part)

    def result(self, raw: Raw, part: Raw) -> StreamEvent:
        """Take what running code came to."""
        result = _RESULTS.decode(raw)
        state: ActivityState = "completed" if result.outcome == "OUTCOME_OK" else "failed"
        return self._end(result.id, "code_execution", state, part=part)

    def call(self, raw: Raw, part: Raw) -> StreamEvent:
        """Take the call of a tool that the provider runs."""
        call = _CALLS.decode(raw)
        name = _named(call.tool_type)
        value = _input(name, read_plain(call.args))
        queries = value.get("queries")
        if isinstance(queries, tuple):
            self._queries.update(one for one in queries if isinstance(one, str))
        return self._begin(call.id, name, value, part=part)

    def answer(self, raw: Raw, part: Raw) -> StreamEvent:
        """Take the answer of a tool that the provider runs."""
        call = _CALLS.decode(raw)
        response = read_plain(call.response)
        failed = isinstance(response, dict) and bool(response.get("error"))
        return self._end(call.id, _named(call.tool_type), "failed" if failed else "completed", part=part)

    def unknown(self, kind: str, part: Raw) -> StreamEvent:
        """Take a part of a kind that nobody knows, to be carried."""
        payload = ProviderPayload(self._origin.provider, UNKNOWN, VERSION, rewritten(part))
        name = clean_kind(kind)
        return HostedTransition(
            HostedActivity(self._number(name), name, "completed", payload=payload, scope=self.scope)
        )

    def grounding(self, members: Members, raw: Raw) -> list[StreamEvent]:
        """Take grounding metadata: the searches it tells of are one activity, over as it is told."""
        told: list[StreamEvent] = []
        for key, name in (
            ("webSearchQueries", "web_search"),
            ("imageSearchQueries", "image_search"),
            ("retrievalQueries", "file_search"),
        ):
            listed = [text for one in read_list(members[key]) if (text := read_text(one))] if key in members else []
            queries = [one for one in dict.fromkeys(listed) if one not in self._queries]
            entry = name == "web_search" and "searchEntryPoint" in members and not self._queries
            if not queries and not entry:
                continue
            self._queries.update(queries)
            kept = rewritten(raw)
            if kept in self._metadata and not queries:
                continue
            self._metadata.add(kept)
            value = FrozenMap({"type": "search", "queries": queries})
            payload = ProviderPayload(self._origin.provider, GROUNDING, VERSION, kept)
            told.append(self._whole(name, "completed", value, payload=payload))
        return told

    def fetched(self, raw: Raw) -> list[StreamEvent]:
        """Take the metadata of fetched pages: each is an activity of its own, over as it is told."""
        told: list[StreamEvent] = []
        for one in read_list(raw):
            page = _RETRIEVED.decode(one)
            status = page.url_retrieval_status.removeprefix("URL_RETRIEVAL_STATUS_")
            if (page.retrieved_url, status) in self._urls:
                continue
            self._urls.add((page.retrieved_url, status))
            payload = ProviderPayload(self._origin.provider, FETCHED, VERSION, rewritten(one))
            value = FrozenMap({"type": "open_page", "url": page.retrieved_url})
            state: ActivityState = "completed" if status == "SUCCESS" else "failed"
            told.append(self._whole("web_fetch", state, value, payload=payload))
        return told

    def _begin(self, given: str | None, name: str, value: FrozenMap, *, part: Raw) -> StreamEvent:
        its_id = given or self._number(name)
        if its_id in self._begun or its_id in self._over:
            return Noticed("hosted.begun_twice")
        self._begun[its_id] = (name, value)
        self._waiting.append(its_id)
        return HostedTransition(
            HostedActivity(its_id, name, "started", input=value, payload=self._payload(part), scope=self.scope)
        )

    def _end(self, given: str | None, name: str, state: ActivityState, *, part: Raw) -> StreamEvent:
        earlier = self._earlier(given, name)
        if earlier is not None:
            self._earlier_over.add(earlier.id)
            kept = self._payload(part, recorded_version(earlier, VERSION))
            summary = _summary(earlier.input, state)
            return HostedTransition(attrs.evolve(earlier, state=state, summary=summary, payload=kept))
        # Without an id, an answer belongs to the call of its kind that has waited longest.
        waiting = (one for one in self._waiting if self._begun[one][0] == name)
        its_id = given or next(waiting, None) or self._number(name)
        if its_id in self._over:
            return Noticed("hosted.ended_twice")
        self._over.add(its_id)
        name, value = self._begun.get(its_id, (name, FrozenMap()))
        if its_id in self._waiting:
            self._waiting.remove(its_id)
        return HostedTransition(
            HostedActivity(
                its_id,
                name,
                state,
                input=value,
                summary=_summary(value, state),
                payload=self._payload(part),
                scope=self.scope,
            )
        )

    def _earlier(self, given: str | None, name: str) -> HostedActivity | None:
        """Find the call of an earlier answer that ends here; without an id, only what no call of this answer awaits."""
        if given is not None:
            return None if given in self._begun or given in self._earlier_over else self._open.find(given)
        if any(self._begun[one][0] == name for one in self._waiting):
            return None
        waiting = (
            one
            for one in self._open.starts
            if one.name == name and one.id not in self._earlier_over and one.payload and one.payload.format == PART
        )
        return next(waiting, None)

    def _whole(self, name: str, state: ActivityState, value: FrozenMap, *, payload: ProviderPayload) -> StreamEvent:
        return HostedTransition(
            HostedActivity(
                self._number(name),
                name,
                state,
                input=value,
                summary=_summary(value, state),
                payload=payload,
                scope=self.scope,
            )
        )

    def _payload(self, part: Raw, version: str = VERSION) -> ProviderPayload:
        return ProviderPayload(self._origin.provider, PART, version, rewritten(part))

    def _number(self, name: str) -> str:
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return f"{name}_{self._numbers[name]}"


def _named(tool_type: str) -> str:
    return _NAMES.get(tool_type) or clean_kind(tool_type).lower()


def _input(name: str, args: Plain) -> FrozenMap:
    if not isinstance(args, dict):
        args = {}
    if name in ("web_search", "image_search", "file_search"):
        listed = args.get("queries", args.get("query"))
        queries: list[Json] = [one for one in _strings(listed) if one]
        return FrozenMap({"type": "search", "queries": queries})
    if name == "web_fetch":
        urls = _strings(args.get("urls", args.get("url")))
        further: dict[str, Json] = {"urls": urls} if len(urls) > 1 else {}
        return FrozenMap({"type": "open_page", "url": urls[0] if urls else "", **further})
    return FrozenMap(args)


def _strings(value: Plain) -> list[str]:
    if isinstance(value, str):
        return [value]
    return list(dict.fromkeys(one for one in value if isinstance(one, str))) if isinstance(value, list) else []


def _summary(value: FrozenMap, state: ActivityState) -> str:
    queries, url = value.get("queries"), value.get("url")
    if isinstance(queries, tuple):
        return "; ".join(one for one in queries if isinstance(one, str))
    if isinstance(url, str):
        return url if state == "failed" else f"opened {url}".rstrip()
    return ""

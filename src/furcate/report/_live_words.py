"""How a live view puts things: counts, tokens, times, backends, and plain lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from furcate.report._live_model import LiveModel
from furcate.report._live_nodes import ORDER, SENT, BackendView, Kind, Node, State, Tokens
from furcate.report._rows import row_text

_TOLD_AT_ONCE = 10


@frozen
class Named:
    """Say how the things that stand under nothing are called, and how many there will be.

    Attributes:
        roots: in the plural, such as ``inputs``.
        expected: how many there will be in all; None where that is not known.
    """

    roots: str = "runs"
    expected: int | None = None


def tokens_in(tokens: Tokens | None) -> str:
    """Show how many tokens were read, those of caches included: ``?`` for unknown, ``+`` for at least."""
    if tokens is None:
        return ""
    return "?" if tokens.read is None else f"{tokens.read:,}{'+' if tokens.read_short else ''}"


def tokens_out(tokens: Tokens | None) -> str:
    """Show how many tokens were generated, likewise."""
    if tokens is None:
        return ""
    return "?" if tokens.made is None else f"{tokens.made:,}{'+' if tokens.made_short else ''}"


def cache_share(tokens: Tokens | None) -> str:
    """Show which part of what was read came from a cache; nothing where that is not known."""
    share = tokens.cache_share if tokens is not None else None
    return "" if share is None else f"{100 * share:.0f} %"


def age(seconds: float, *, ended: bool = False) -> str:
    """Show a duration: to the tenth where it is short and over, in whole seconds, minutes and hours otherwise."""
    if ended and seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def turns(node: Node) -> str:
    """Show which turn of how many a branch is at; nothing for what has none."""
    return "" if node.turns is None else f"{node.turn}/{node.turns}"


def detail(node: Node, now_s: float, *, rows: bool = True) -> str:
    """Say what else is to be known: what was noted, what went wrong, what runs on the provider's side.

    Arguments:
        node: what it is about.
        now_s: on the clock by which the model was fed.
        rows: whether running work of the provider is among it.
    """
    if node.state == "pausing" and node.again_s is not None:
        return f"again in {age(max(0.0, node.again_s - now_s) + 0.999)} ({node.problem})"
    if node.state == "queued" and node.again_s is not None:
        return f"again ({node.problem})"
    said = [node.note or node.problem]
    if node.state in SENT:
        said = [f"attempt {node.attempt}" if node.attempt > 1 else ""]
        said += hosted(node) if rows else ()
    return ", ".join(filter(None, said))


def hosted(node: Node, width: int | None = None) -> tuple[str, ...]:
    """Give the rows of what its provider runs for it right now."""
    if node.activities is None:
        return ()
    return tuple(row_text(row, width) for row in node.activities.rows if row.state == "running")


def states(model: LiveModel, kind: Kind) -> tuple[tuple[int, State], ...]:
    """Count what is in which state."""
    counts = model.counts[kind]
    return tuple((counts[state], state) for state in ORDER if counts[state])


def totals(model: LiveModel, named: Named) -> tuple[tuple[str, int, tuple[tuple[int, State], ...]], ...]:
    """Give what is counted: how it is called, how many there are, and how many in which state."""
    runs, branches = states(model, "run"), states(model, "branch")
    number = sum(count for count, _ in runs)
    if named.expected is not None and named.expected > number:
        runs = (*runs, (named.expected - number, "waiting"))
        number = named.expected
    found = []
    # One run that all branches come from is no number worth a line.
    if number > 1 or (number and not branches):
        found.append((named.roots if number > 1 else named.roots.removesuffix("s"), number, runs))
    number = sum(count for count, _ in branches)
    if number:
        found.append(("branches" if number > 1 else "branch", number, branches))
    return tuple(found)


def token_facts(tokens: Tokens) -> str:
    """Sum up tokens in a few words; empty before anybody reported any."""
    if tokens.read is None and tokens.made is None:
        return ""
    share = cache_share(tokens)
    return f"tokens in {tokens_in(tokens)}, out {tokens_out(tokens)}" + (f", {share} from cache" if share else "")


def backend_facts(view: BackendView, now_s: float) -> Iterator[tuple[str, bool]]:
    """Say how a backend stands, each fact with whether it is worth a warning."""
    of = f"/{view.capacity}" if view.capacity is not None else ""
    yield f"{view.in_flight}{of} in flight", False
    if view.limit is not None and view.limit != view.capacity:
        yield f"limit {view.limit}", True
    left_s = view.paused_until_s - now_s
    if left_s > 0:
        yield f"paused for {age(left_s + 0.999)} more ({view.paused_by})", True


def longest(model: LiveModel) -> Node | None:
    """Give what has been under way for the longest time in its state."""
    firsts = [next(iter(model.living[state].values())) for state in (*SENT, "callback") if model.living.get(state)]
    return min(firsts, key=lambda node: node.since_s, default=None)


def plain_status(model: LiveModel, now_s: float, named: Named, *, last: bool = False) -> str:
    """Say in one line how everything stands, or stood at last; empty before anything was heard."""
    if model.began_s is None:
        return ""
    facts = []
    for name, number, counted in totals(model, named):
        facts.append(f"{number:,} {name} ({', '.join(f'{count:,} {state}' for count, state in counted)})")
    facts.append(token_facts(model.tokens))
    if not last:
        facts += (
            f"{view.name} {', '.join(fact for fact, _ in backend_facts(view, now_s))}"
            for view in model.backends.values()
        )
        slow = longest(model)
        if slow is not None:
            facts.append(f"longest: {slow.path} {slow.state} for {age(now_s - slow.since_s)}")
    return f"after {age(now_s - model.began_s)}: {'; '.join(filter(None, facts))}"


def plain_news(model: LiveModel, told: int) -> Iterator[str]:
    """Say in lines what has ended since it was last asked, what failed first; what is too much is only counted.

    Arguments:
        model: what it knows of that is taken out of it.
        told: how much had ended then.
    """
    news = [*model.fresh_failed, *model.fresh]
    model.fresh_failed.clear()
    model.fresh.clear()
    # One that failed must not go unseen among many that did well.
    said = news[:_TOLD_AT_ONCE]
    for node in said:
        yield _ended_line(node)
    more = model.ended - told - len(said)
    if more > 0:
        yield f"and {more:,} more ended"


def _ended_line(node: Node) -> str:
    facts: list[str] = [node.state]
    if node.turns is not None:
        facts.append(f"turn {turns(node)}")
    facts.append(f"tokens in {tokens_in(node.tokens) or '-'}, out {tokens_out(node.tokens) or '-'}")
    seconds = node.seconds(node.ended_s or 0.0)
    facts.append("not begun" if seconds is None else age(seconds, ended=True))
    said = node.note or node.problem
    if said:
        facts.append(said)
    return f"{node.path}: {', '.join(facts)}"

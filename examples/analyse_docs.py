"""Question an installed package's description and keep a notebook of what was found.

The model reads the beginning of the description once. From there it is asked one question after the other, and each
answer goes into the notebook, a file of JSON lines. This program, and not the library, looks at the answers: a finding
has to quote the description, a false quotation is asked for once more, and a question with a true one is settled. A
run asks at most three times; what is still open is asked by the next run on the same notebook.

    python examples/analyse_docs.py click
    python examples/analyse_docs.py click --config furcate.toml --profile careful --loop trio

As a batch job, many packages are questioned, each once, and the journal of the job is the notebook:

    cd examples && furcate batch analyse_docs:analyse_item batch/packages.jsonl

Without ``--config`` it asks furcate's embedded model, fetched at its first use, which is too small to be right.
"""

from __future__ import annotations

import json
import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import anyio
import click
from attrs import define, field, frozen

import furcate
from furcate.batch import ItemJob

QUESTIONS = {
    "purpose": "What does the package do?",
    "users": "Who is it for?",
    "strength": "What does the description praise most?",
    "limits": "What does the package not do?",
}
TURNS = 3


@frozen
class Finding:
    """State what the model says it found, and the words in the text that it relies on."""

    claim: str = field(metadata={"schema": {"maxLength": 160}})
    quote: str = field(metadata={"schema": {"minLength": 8, "maxLength": 120}})


@define
class Notebook:
    """Keep findings in a file of JSON lines, one for each answer."""

    path: Path

    def settled(self) -> set[str]:
        """Give the topics that need no further question."""
        if not self.path.exists():
            return set()
        topics = set()
        for number, line in enumerate(self.path.read_text("utf-8", "replace").splitlines(), start=1):
            try:
                entry = json.loads(line)
                topics |= {entry["topic"]} if entry["settled"] else set()
            except (ValueError, LookupError, TypeError):
                problem = f"{self.path}, line {number}: no entry of a notebook; mend it, or name another file"
                raise click.ClickException(problem) from None
        return topics

    def record(self, entry: dict[str, object]) -> None:
        """Add an entry; it is on disk when this returns."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


@define
class Findings:
    """Keep findings in memory, where somebody else sees to it that they last."""

    entries: list[dict[str, object]] = field(factory=list)

    def record(self, entry: dict[str, object]) -> None:
        """Add an entry."""
        self.entries.append(entry)


@define
class Analysis:
    """Direct the questions about one text."""

    text: str
    notebook: Notebook | Findings
    profile: str
    open: list[str]
    doubted: bool = False

    async def next_action(self, turn: furcate.Turn) -> furcate.Action:
        """Record the newest answer, then ask the next question, or stop where none is open."""
        if turn.result is not None:
            # A topic gets two chances in a run, then the others have theirs.
            self.doubted = not self.take(turn.result) and not self.doubted
            if not self.doubted:
                self.open.pop(0)
        if not self.open:
            return furcate.Stop()
        question = QUESTIONS[self.open[0]]
        if self.doubted:
            question = f"That does not quote the description. {question} Copy your quote from one of its sentences."
        return furcate.Continue(self.ask(question))

    def ask(self, question: str) -> furcate.Request:
        """Make the request for a finding."""
        form = 'Answer as JSON: {"claim": one sentence, "quote": words copied from the description}'
        contract = furcate.Contract.of(Finding, repairs=1)
        return furcate.Request(profile=self.profile, messages=f"{question}\n{form}", contract=contract)

    def take(self, result: furcate.Result) -> bool:
        """Record an answer and tell whether it settles the question at hand."""
        entry: dict[str, object] = {"topic": self.open[0], "run_id": result.run_id, "settled": False}
        # Only an answer that passed has a finding in it; of any other the notebook keeps what was said.
        if result.validation.status == "passed":
            finding = result.value_as(Finding)
            entry |= {"claim": finding.claim, "quote": finding.quote, "settled": quoted(finding.quote, self.text)}
        else:
            faults = [str(fault) for fault in result.validation.faults]
            entry |= {"said": result.text, "validation": result.validation.status, "faults": faults}
        self.notebook.record(entry)
        return bool(entry["settled"])


def quoted(quote: str, text: str) -> bool:
    """Tell whether at least four words stand in a text, wherever its lines break."""
    words = quote.split()
    return len(words) >= 4 and " ".join(words).casefold() in " ".join(text.split()).casefold()


def description(package: str, characters: int) -> str:
    """Give the beginning of an installed package's description, without its programs, images and other markup."""
    about = metadata(package)
    text = str(about.json.get("description") or about["Summary"])
    return re.sub(r"(?s)```.*?```|<[^>]*>", "", text).strip()[:characters]


async def analyse(engine: furcate.Engine, text: str, notebook: Notebook, profile: str) -> furcate.Outcome:
    """Ask what the notebook leaves open.

    Returns:
        ``STOPPED`` where nothing is open any more, ``EXHAUSTED`` where another run has something to ask.
    """
    settled = notebook.settled()
    analysis = Analysis(text, notebook, profile, [topic for topic in QUESTIONS if topic not in settled])
    if not analysis.open:
        return furcate.Outcome.STOPPED
    return await conduct(engine, analysis, TURNS)


async def conduct(engine: furcate.Engine, analysis: Analysis, turns: int) -> furcate.Outcome:
    """Let the model read the text, and ask what is open about it."""
    message = (
        f"Here begins the description of a Python package:\n\n{analysis.text}\n\nName its subject in one sentence."
    )
    opening = await engine.run(furcate.Request(profile=analysis.profile, messages=message, capture=True))
    coordinator = furcate.Coordinator(engine, opening.exchange, analysis.next_action, additional_turns=turns)
    return await coordinator.run()


async def analyse_item(item: dict[str, str], job: ItemJob) -> dict[str, object]:
    """Question one package, as an item of a batch job: ``{"id": ..., "package": ..., "profile": ...}``.

    Each question may be asked twice, since no other run is to come. An item that is interrupted is done again from its
    beginning, and is not charged again for what it had been answered.
    """
    text = description(item["package"], 1200)
    findings = Findings()
    analysis = Analysis(text, findings, item.get("profile", "local"), list(QUESTIONS))
    await conduct(job.engine, analysis, 2 * len(QUESTIONS))
    settled = [entry["topic"] for entry in findings.entries if entry["settled"]]
    return {"package": item["package"], "settled": settled, "findings": findings.entries}


def make_engine(config: Path | None) -> furcate.Engine:
    """Make the engine of a configuration file, or of the embedded model alone."""
    if config is not None:
        return furcate.Engine.from_config(config)
    settings = furcate.Settings(max_output_tokens=150)
    return furcate.Engine(
        backends=[furcate.Backend("local", kind="embedded")],
        profiles=[furcate.Profile("local", "local", settings=settings)],
    )


@click.command(help="Question an installed PACKAGE's description.")
@click.argument("package", default="click")
@click.option("--notebook", type=click.Path(path_type=Path, dir_okay=False), help="[default: PACKAGE.findings.jsonl]")
@click.option(
    "--characters",
    type=click.IntRange(min=1),
    default=1200,
    show_default=True,
    help="How much of the description is read.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Configuration. [default: the embedded model]")
@click.option("--profile", default="local", show_default=True, help="The profile to ask.")
@click.option("--loop", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
def main(package: str, notebook: Path | None, characters: int, config: Path | None, profile: str, loop: str) -> None:
    book = Notebook(notebook or Path(f"{package}.findings.jsonl"))

    async def work() -> furcate.Outcome:
        text = description(package, characters)
        async with make_engine(config) as engine:
            return await analyse(engine, text, book, profile)

    try:
        outcome = anyio.run(work, backend=loop)
    except PackageNotFoundError:
        raise click.ClickException(f"package {package!r} is not installed; name one that 'pip list' shows") from None
    except (furcate.FurcateError, OSError) as error:
        raise click.ClickException(str(error)) from None
    print(f"{book.path}: {len(book.settled())} of {len(QUESTIONS)} questions settled")
    if outcome is furcate.Outcome.EXHAUSTED:
        print("run it again to ask what is still open")


if __name__ == "__main__":
    main()

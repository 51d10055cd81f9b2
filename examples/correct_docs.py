"""Find docstrings that break house rules and have a model correct them, each in a branch of its own.

Three rules are checked by this program itself: a docstring names every parameter, its first sentence is short, and it
ends with a full stop. The model reads the rules once. From that exchange one branch starts for each function with
faults: its first request holds the faults that are known already; each proposal is checked by the same rules, and one
that keeps them gets a second look by the model. In the end a correction is kept or dropped, or its branch has failed.

    python examples/correct_docs.py shutil
    python examples/correct_docs.py shutil --config furcate.toml --profile careful --loop trio

As a batch job, many modules are corrected, each once:

    cd examples && furcate batch correct_docs:correct_item batch/modules.jsonl

Without ``--config`` it asks furcate's embedded model, fetched at its first use, which is too small to be right.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import anyio
import click
from attrs import define, field, frozen

import furcate
from furcate.batch import ItemJob

RULES = (
    "A docstring names every parameter. "
    "Its first sentence says what the function does, in at most 12 words. "
    "It ends with a full stop. It has at most three sentences."
)
TURNS = 3


@frozen
class Proposal:
    """Hold a docstring that the model proposes."""

    docstring: str = field(metadata={"schema": {"maxLength": 300}})


@frozen
class SecondLook:
    """Say whether the proposed docstring means the same as the old one."""

    same: bool


@frozen
class Function:
    """Hold what is known of a function."""

    name: str
    parameters: tuple[str, ...]
    docstring: str

    def faults(self, docstring: str) -> tuple[str, ...]:
        """Check a docstring for this function by the rules."""
        found = [
            f"It does not name the parameter {name}."
            for name in self.parameters
            if not re.search(rf"\b{name}\b", docstring)
        ]
        first = docstring.split(". ")[0].split("\n\n")[0]
        if len(first.split()) > 12:
            found.append(f"Its first sentence has {len(first.split())} words.")
        if not docstring.rstrip().endswith("."):
            found.append("It does not end with a full stop.")
        return tuple(found)


@define
class Correction:
    """Direct the branch of one function."""

    function: Function
    engine: furcate.Engine
    group: furcate.Group
    profile: str
    verdict: str = ""
    reason: str = ""
    proposal: str = ""

    async def next_action(self, turn: furcate.Turn) -> furcate.Action:
        """Ask for a docstring, and again until one is kept or the turns are used up."""
        if turn.result is None:
            about = f"{self.function.name}({', '.join(self.function.parameters)})"
            faults = " ".join(self.function.faults(self.function.docstring))
            return self.ask(f"The function {about} has this docstring:\n\n{self.function.docstring}\n\n{faults}")
        self.reason = await self.judge(turn.result)
        self.verdict = "dropped" if self.reason else "kept"
        if not self.reason or turn.remaining == 0:
            return furcate.Stop()
        return self.ask(self.reason)

    async def judge(self, result: furcate.Result) -> str:
        """Say what is wrong with a proposal; an empty text where nothing is."""
        if result.validation.status != "passed":
            return "That was no docstring in the form that was asked for."
        self.proposal = result.value_as(Proposal).docstring
        faults = self.function.faults(self.proposal)
        if not faults and not await self.means_the_same():
            faults = ("A second reader says that it means something else.",)
        return " ".join(faults)

    async def means_the_same(self) -> bool:
        """Let the model compare both docstrings in a conversation of its own."""
        question = f"Old:\n{self.function.docstring}\n\nNew:\n{self.proposal}\n\nDo both describe the same function?"
        # The branch holds no place while this runs, so it works on a backend with a single one. The group counts the
        # look because it is named here, not because a branch that it counts asks for it.
        result = await self.engine.run(
            furcate.Request(
                profile=self.profile,
                messages=f'{question} Answer as JSON: {{"same": true or false}}',
                contract=furcate.Contract.of(SecondLook),
                groups=[self.group],
            )
        )
        return result.validation.status == "passed" and result.value_as(SecondLook).same

    def ask(self, text: str) -> furcate.Continue:
        """Continue with a request for a docstring."""
        form = 'Write a better one. Answer as JSON: {"docstring": the whole new docstring}'
        contract = furcate.Contract.of(Proposal)
        return furcate.Continue(furcate.Request(profile=self.profile, messages=f"{text}\n{form}", contract=contract))


def faulty_functions(module: str) -> list[Function]:
    """Find the public functions of a module whose docstrings break the rules, those without one left out."""
    found = importlib.import_module(module)
    functions = [
        Function(name, tuple(inspect.signature(value).parameters), inspect.getdoc(value) or "")
        for name, value in inspect.getmembers(found, inspect.isfunction)
        if value.__module__ == module and not name.startswith("_")
    ]
    return [function for function in functions if function.docstring and function.faults(function.docstring)]


async def correct(
    engine: furcate.Engine, functions: list[Function], group: furcate.Group, profile: str
) -> dict[str, Correction]:
    """Correct each function's docstring in a branch of its own; what a failed branch raised is logged.

    Returns:
        What became of each function, by its name.
    """
    if not functions:
        return {}
    message = f"These are our rules for docstrings. {RULES} Say in a few words that you understand."
    opening = await engine.run(furcate.Request(profile=profile, messages=message, capture=True, groups=[group]))
    corrections = {function.name: Correction(function, engine, group, profile) for function in functions}
    async with furcate.open_branches(engine, opening.exchange, groups=[group]) as branches:
        for name, correction in corrections.items():
            branches.start_soon(correction.next_action, additional_turns=TURNS, name=name)
    for name, correction in corrections.items():
        error = branches[name].error
        if error is not None:
            correction.verdict, correction.reason = "failed", str(error)
    return corrections


async def correct_item(item: dict[str, str], job: ItemJob) -> dict[str, object]:
    """Correct one module, as an item of a batch job: ``{"id": ..., "module": ..., "profile": ...}``.

    A branch that failed lets the whole item fail, so that ``furcate batch retry`` has it done again; what the other
    branches were answered is in the job's journal then, and is not asked again.
    """
    functions = faulty_functions(item["module"])[:4]
    corrections = await correct(job.engine, functions, job.group, item.get("profile", "local"))
    for name, correction in corrections.items():
        if correction.verdict == "failed":
            raise RuntimeError(f"{name}: {correction.reason}")
    told = {
        name: {"verdict": correction.verdict, "docstring": correction.proposal, "reason": correction.reason}
        for name, correction in corrections.items()
    }
    return {"module": item["module"], "functions": told}


def make_engine(config: Path | None) -> furcate.Engine:
    """Make the engine of a configuration file, or of the embedded model alone."""
    if config is not None:
        return furcate.Engine.from_config(config)
    settings = furcate.Settings(max_output_tokens=150)
    return furcate.Engine(
        backends=[furcate.Backend("local", kind="embedded")],
        profiles=[furcate.Profile("local", "local", settings=settings)],
    )


@click.command(help="Correct the docstrings of a MODULE's functions.")
@click.argument("module", default="shutil")
@click.option("--most", type=click.IntRange(min=1), default=4, show_default=True, help="Correct so many functions.")
@click.option("--config", type=click.Path(path_type=Path), help="Configuration. [default: the embedded model]")
@click.option("--profile", default="local", show_default=True, help="The profile to ask.")
@click.option("--loop", type=click.Choice(["asyncio", "trio"]), default="asyncio", show_default=True)
def main(module: str, most: int, config: Path | None, profile: str, loop: str) -> None:
    group = furcate.Group(module)

    async def work() -> dict[str, Correction]:
        functions = faulty_functions(module)[:most]
        async with make_engine(config) as engine:
            return await correct(engine, functions, group, profile)

    try:
        corrections = anyio.run(work, backend=loop)
    except ImportError as error:
        raise click.ClickException(f"module {module!r} cannot be imported: {error}") from None
    except furcate.FurcateError as error:
        raise click.ClickException(str(error)) from None
    for name, correction in corrections.items():
        print(f"{name}: {correction.verdict}")
        shown = correction.proposal if correction.verdict == "kept" else correction.reason
        print("    " + shown.replace("\n", "\n    "))
    print(group.summary())
    if any(correction.verdict == "failed" for correction in corrections.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

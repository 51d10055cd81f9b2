"""``furcate local``: the embedded model's weights, and its server by itself."""

from __future__ import annotations

import click

from furcate.cli._loop import Interruption, run_on
from furcate.cli._setup import loop_option
from furcate.cli._told import FAILED, WELL, changes_told, say
from furcate.local import MODEL_NAME, WEIGHTS, fetch, serve, status
from furcate.orchestrator._embedded import embedded_server
from furcate.primitives._wire import Address


@click.group()
def local() -> None:
    """Look after the embedded model: a very small one, for running everything for real without a network."""


@local.command("status")
def show() -> int:
    """Say whether the weights are there; exit status 1 where they are not."""
    found = status()
    click.echo(f"model: {WEIGHTS.package} {WEIGHTS.version}, {WEIGHTS.file} ({WEIGHTS.licence})")
    click.echo(f"place: {found.path}")
    match found.state:
        case "present":
            click.echo(f"weights: present, {found.size_bytes:,} bytes, SHA-256 {found.sha256}")
            return WELL
        case "wrong":
            click.echo(
                f"weights: wrong, {found.size_bytes:,} bytes with SHA-256 {found.sha256} instead of "
                f"{WEIGHTS.size_bytes:,} with {WEIGHTS.sha256}; run `furcate local fetch` to replace them"
            )
        case "missing":
            click.echo("weights: missing; run `furcate local fetch`")
    return FAILED


@local.command("fetch")
@loop_option
def fetch_weights(loop: str) -> int:
    """Fetch the weights into the user's cache folder, unless they are there already."""

    async def command(interruption: Interruption) -> int:
        with interruption.scope():
            click.echo(await fetch(changes_told()))
        return WELL

    return run_on(loop, command)


@local.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes one that is free."
)
@loop_option
def serve_model(host: str, port: int, loop: str) -> int:
    """Serve the embedded model until Ctrl-C, and print the table that a configuration needs for it."""
    embedded_server()  # says in a sentence what to install

    def ready(address: Address) -> None:
        click.echo(
            f'[backends.served]\nbase_url = "{_reachable(address.base_url)}"\napi_key = "{address.api_key}"\n\n'
            f'[profiles.served]\nbackend = "served"\nmodel = "{MODEL_NAME}"'
        )
        say("serving until Ctrl-C")

    async def command(interruption: Interruption) -> int:
        with interruption.scope():
            await serve(ready, host=host, port=port, progress=changes_told())
        return WELL

    return run_on(loop, command)


def _reachable(base_url: str) -> str:
    """Give an address to ask: the one that stands for all of a machine's addresses is only one to listen on."""
    return base_url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

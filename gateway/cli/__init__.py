"""The `turnout` command. Each command lives in a module of its own, imported when used, so that each starts at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gateway import __version__

app = typer.Typer(
    name="turnout",
    help="An OpenAI-compatible gateway that routes each request to your fine-tune, its base model or an upstream.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Config = Annotated[Path, typer.Option("--config", help="The configuration file.", show_default=True)]
Drain = Annotated[
    float,
    typer.Option("--drain", min=0, help="Seconds that running calls may take after a signal; a second one ends them."),
]
_DEFAULT = Path("routing.yaml")
DRAIN = 25.0
"""Below the 30 s after which Kubernetes and others kill."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"turnout {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turnout."""


@app.command()
def init(
    config: Config = _DEFAULT,
    taotoken_key: Annotated[str | None, typer.Option(help="Key for TaoToken; goes into .env.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Folder of the fine-tuned checkpoint to serve.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
) -> None:
    """Write a commented routing.yaml."""
    from gateway.cli.init import init as run

    raise typer.Exit(run(config, taotoken_key, checkpoint, force, not yes))


@app.command()
def up(
    config: Config = _DEFAULT,
    host: Annotated[str | None, typer.Option(help="Instead of gateway.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of gateway.port.", min=0, max=65535)] = None,
    drain: Drain = DRAIN,
) -> None:
    """Start the engines, wait until they are ready, serve the gateway."""
    from gateway.cli.up import up as run

    raise typer.Exit(run(config, host, port, drain))


@app.command()
def serve(
    config: Config = _DEFAULT,
    host: Annotated[str | None, typer.Option(help="Instead of gateway.host.")] = None,
    port: Annotated[int | None, typer.Option(help="Instead of gateway.port.", min=0, max=65535)] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Instead of gateway.workers.")] = None,
    drain: Drain = DRAIN,
) -> None:
    """Serve the gateway alone; engines are expected at their ports."""
    from gateway.cli.serve import serve as run

    raise typer.Exit(run(config, host, port, workers, drain))


class _BarePrint(TyperCommand):
    """`--print` alone means `--print exec`: the parser below knows no option with an optional value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See the base class."""
        bare = False
        for place, word in enumerate(args):
            if word == "--print" and args[place + 1 : place + 2] not in (["exec"], ["kubernetes"], ["ray"]):
                args, bare = [*args[: place + 1], "exec", *args[place + 1 :]], True
                break
        super().parse_args(ctx, args)
        if ctx.args:
            forms = "; --print takes exec, kubernetes or ray" if bare else ""
            raise typer.BadParameter(f"unexpected argument {ctx.args[0]!r}{forms}", ctx=ctx)
        return []


@app.command(cls=_BarePrint, context_settings={"allow_extra_args": True})
def engine(
    name: Annotated[str, typer.Argument(help="The upstream whose engine to run.")],
    config: Config = _DEFAULT,
    print_as: Annotated[
        str | None, typer.Option("--print", help="Only show how it would be started: exec, kubernetes or ray.")
    ] = None,
    gpus_per_node: Annotated[
        int, typer.Option("--gpus-per-node", min=1, help="GPUs of one machine, for kubernetes and ray.")
    ] = 8,
    parity: Annotated[
        bool, typer.Option("--parity", help="Compare greedy answers with and without speculation.")
    ] = False,
    sample: Annotated[int, typer.Option("--sample", min=1, help="Prompts to compare, at most.")] = 50,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help='JSON lines: {"prompt": ...} or chat bodies.')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The comparison for programs.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Have the running one replaced, replica by replica; no call fails.")
    ] = False,
) -> None:
    """Run one upstream's engine, restart or check it, or show what would run it elsewhere."""
    wanted = [flag for flag, on in (("--print", print_as), ("--parity", parity), ("--restart", restart)) if on]
    if len(wanted) > 1:
        raise typer.BadParameter(f"{' and '.join(wanted)} do different things; give one of them")
    if parity:
        from gateway.cli.parity import parity as check_parity

        raise typer.Exit(check_parity(config, name, sample, prompts, as_json))
    from gateway.cli.engine import engine as run
    from gateway.cli.engine import restart as replace

    raise typer.Exit(replace(config, name) if restart else run(config, name, print_as, gpus_per_node))


@app.command()
def check(
    config: Config = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Validate the configuration."""
    from gateway.cli.check import check as run

    raise typer.Exit(run(config, as_json))


@app.command()
def explain(
    config: Config = _DEFAULT,
    request: Annotated[Path | None, typer.Option(help="A file with a request body (JSON).")] = None,
    prompt: Annotated[str | None, typer.Option(help="A user message, instead of a file.")] = None,
    task: Annotated[str | None, typer.Option(help="With --prompt: the task type, as X-Task-Type.")] = None,
    model: Annotated[str | None, typer.Option(help="With --prompt: the name a client would send.")] = None,
    key: Annotated[str | None, typer.Option(help="The name of a key of the file: as if it had asked.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A request header, 'Name: value'; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """The plan for a request, and why. Nothing is sent."""
    from gateway.cli.explain import explain as run

    raise typer.Exit(run(config, request, prompt, task, model, as_json, key=key, headers=header or ()))


@app.command()
def usage(
    config: Config = _DEFAULT,
    by: Annotated[str, typer.Option(help="Any of key, team, model, upstream, route, task, day ...")] = "model",
    since: Annotated[str, typer.Option(help="7d, 24h, a date, or all.")] = "30d",
    until: Annotated[str, typer.Option(help="The same; default: now.")] = "",
    savings: Annotated[str | None, typer.Option(help="What it would have cost, had all gone to this model.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="For spreadsheets.")] = False,
) -> None:
    """Calls, tokens and cost by key, team, model, route, task or day."""
    from gateway.cli.usage import show_usage as run

    form = "json" if as_json else "csv" if as_csv else "table"
    raise typer.Exit(run(config, by, since, until, form, savings))


@app.command()
def doctor(
    config: Config = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Ask every upstream for its models and say what is wrong: key, base URL, model ids, network, engine."""
    from gateway.cli.doctor import doctor as run

    raise typer.Exit(run(config, as_json))


keys = typer.Typer(name="keys", help="Keys for callers, kept in the gateway's database.", no_args_is_help=True)
app.add_typer(keys)


@keys.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="Its name in logs, limits and usage.")],
    config: Config = _DEFAULT,
    team: Annotated[str | None, typer.Option(help="The team it counts for.")] = None,
    models: Annotated[str | None, typer.Option(help="Routes and models it may use, 'a,b'; default: all.")] = None,
    requests_per_minute: Annotated[str | None, typer.Option(help="As in routing.yaml, e.g. 600.")] = None,
    tokens_per_minute: Annotated[str | None, typer.Option(help="As in routing.yaml, e.g. 2M.")] = None,
    concurrency: Annotated[str | None, typer.Option(help="Calls at the same time.")] = None,
    budget: Annotated[str | None, typer.Option(help="USD per day, month or total, e.g. 50/month.")] = None,
    expires: Annotated[str | None, typer.Option(help="30d, 12h, or a date (00:00 UTC of it).")] = None,
    metadata: Annotated[list[str] | None, typer.Option(help="'name=value'; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Create a key. Its secret is shown once."""
    from gateway.cli.keys import create as run

    values = {"name": name, "team": team, "models": models, "budget": budget, "expires": expires}
    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "concurrency": concurrency,
    }
    raise typer.Exit(run(config, values, limits, metadata or (), as_json))


@keys.command("list")
def keys_list(
    config: Config = _DEFAULT,
    ended: Annotated[bool, typer.Option("--all", help="Also those that were revoked or have expired.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """List the created keys."""
    from gateway.cli.keys import show as run

    raise typer.Exit(run(config, ended, as_json))


@keys.command("revoke")
def keys_revoke(
    name: Annotated[str, typer.Argument(help="The key.")],
    config: Config = _DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Revoke a key: within a second it opens nothing, at any gateway."""
    from gateway.cli.keys import revoke as run

    raise typer.Exit(run(config, name, as_json))


@keys.command("rotate")
def keys_rotate(
    name: Annotated[str, typer.Argument(help="The key.")],
    config: Config = _DEFAULT,
    overlap: Annotated[str, typer.Option(help="How long the old secret lasts: 24h, 7d, or 0.")] = "24h",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Give a key a new secret, shown once; the old one lasts a while longer."""
    from gateway.cli.keys import rotate as run

    raise typer.Exit(run(config, name, overlap, as_json))


checkpoint = typer.Typer(name="checkpoint", help="Look into a checkpoint, and repair it.", no_args_is_help=True)
app.add_typer(checkpoint)


@checkpoint.command("inspect")
def checkpoint_inspect(
    path: Annotated[Path, typer.Argument(help="The checkpoint's folder.")],
    against: Annotated[Path | None, typer.Option(help="Also tell what differs from this checkpoint.")] = None,
    context: Annotated[
        int | None, typer.Option(help="Wanted context in tokens; default: the model's own.", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Will it serve, with which speculator, on which GPUs, and what is missing."""
    from gateway.cli.checkpoint import inspect as run

    raise typer.Exit(run(path, against, context, as_json))


@checkpoint.command("graft")
def checkpoint_graft(
    finetune: Annotated[Path, typer.Argument(help="The fine-tune that lost its MTP layers; it stays as it is.")],
    base: Annotated[Path, typer.Option(help="The checkpoint it was made from.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
    copy: Annotated[bool, typer.Option("--copy", help="Copy the fine-tune's files instead of linking them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Put a base's MTP layers into its fine-tune."""
    from gateway.cli.checkpoint import graft as run

    raise typer.Exit(run(finetune, base, out, copy, as_json))


@checkpoint.command("distill")
def checkpoint_distill(
    path: Annotated[Path, typer.Argument(help="The checkpoint whose MTP layer to train; it stays as it is.")],
    out: Annotated[Path, typer.Option(help="The new folder.")],
    text: Annotated[Path | None, typer.Option(help="Text to learn on: a file or a folder.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="Or prompts (JSONL): it learns on the model's replies.")] = None,
    steps: Annotated[int, typer.Option(help="Steps in all.", min=0)] = 1000,
    batch: Annotated[int, typer.Option(help="Rows in a step.", min=1)] = 8,
    window: Annotated[int, typer.Option(help="Tokens in a row.", min=8)] = 512,
    lr: Annotated[float, typer.Option(help="The highest learning rate.", min=0)] = 1e-3,
    seed: Annotated[int, typer.Option(help="Of the order of the text.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that OUT holds.")] = False,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: a GPU where there is one.")] = None,
    threads: Annotated[int | None, typer.Option(help="CPU threads; a tiny model wants 1.", min=1)] = None,
) -> None:
    """Train its MTP layer on the model's own distribution."""
    from gateway.cli.distill import distill as run

    settings = {"steps": steps, "batch": batch, "window": window, "learning_rate": lr, "seed": seed}
    raise typer.Exit(run(path, out, text, prompts, settings, resume, device, threads))


def main() -> None:
    """The entry point."""
    app()

"""`longboat completion`: what a shell needs to complete commands, options and run names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from longboat.cli.main import COMPLETE_VAR
from longboat.core.errors import UsageError


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that teaches a shell to complete longboat. To switch it on:

    \b
    bash: eval "$(longboat completion bash)"         in ~/.bashrc
    zsh:  eval "$(longboat completion zsh)"          in ~/.zshrc
    fish: longboat completion fish | source          in ~/.config/fish/config.fish
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"no completion for {shell}")
    complete = completion(ctx.find_root().command, {}, "longboat", COMPLETE_VAR)
    print(complete.source_template % complete.source_vars())

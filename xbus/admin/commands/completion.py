"""``xbus completion``: has a shell complete commands, options and names of the bus."""

import click
from click.shell_completion import get_completion_class

VARIABLE = "_XBUS_COMPLETE"
"""By this variable the shell asks ``xbus``, as click has it."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Write the script by which SHELL completes what you type behind xbus.

    \b
      bash  eval "$(xbus completion bash)" in ~/.bashrc
      zsh   eval "$(xbus completion zsh)" in ~/.zshrc
      fish  xbus completion fish | source in ~/.config/fish/config.fish

    Names of roles, services, types and emitters come from the bus that -c or XBUS_CONFIG names.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that can be chosen"
    click.echo(kind(ctx.find_root().command, {}, "xbus", VARIABLE).source())

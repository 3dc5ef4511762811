"""``xbus completion``: has a shell complete commands, options and names of the bus."""

from typing import Literal

import click
from click.shell_completion import get_completion_class

from xbus.admin.signatures import argument, command

VARIABLE = "_XBUS_COMPLETE"
"""By this variable the shell asks ``xbus``, as click has it."""

BASH = r"""
_xbus_completion() {
    local IFS=$'\n' completion value
    while read -r completion; do
        value=${completion#*,}
        case ${completion%%,*} in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                # The shell itself closes a quote that was begun.
                [[ ${COMP_WORDS[COMP_CWORD]} == [\"\']* ]] || printf -v value %q "$value"
                COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _XBUS_COMPLETE=bash_complete "$1")
}

complete -o nosort -F _xbus_completion xbus
"""
"""The script of click inserts a name with a blank or a quote as several words."""

FISH = r"""
function _xbus_completion
    for completion in (env _XBUS_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) xbus)
        set -l parts (string split -m 1 "," -- $completion)
        switch $parts[1]
            case dir
                __fish_complete_directories $parts[2]
            case file
                __fish_complete_path $parts[2]
            case plain
                echo $parts[2]
        end
    end
end

complete --no-files --command xbus --arguments "(_xbus_completion)"
"""
"""The script of click cuts a name at its comma."""

OWN_SCRIPTS = {"bash": BASH, "fish": FISH}


@command()
def completion(shell: Literal["bash", "zsh", "fish"] = argument()) -> None:
    """Write the script by which SHELL completes what you type behind xbus.

    \b
      bash  eval "$(xbus completion bash)" in ~/.bashrc
      zsh   eval "$(xbus completion zsh)" in ~/.zshrc
      fish  xbus completion fish | source in ~/.config/fish/config.fish

    Names of roles, services, types and emitters come from the bus that -c or XBUS_CONFIG names.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that can be chosen"
    of_click = kind(click.get_current_context().find_root().command, {}, "xbus", VARIABLE)
    click.echo(OWN_SCRIPTS.get(shell) or of_click.source())

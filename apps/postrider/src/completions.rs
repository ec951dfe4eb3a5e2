//! `postrider completions`: what a shell needs to complete the commands, made from their definition.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use crate::terminal;

/// Write the completions of a shell to standard output
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider completions bash > \\
    ~/.local/share/bash-completion/completions/postrider
  postrider completions zsh > ~/.zfunc/_postrider
  postrider completions fish > ~/.config/fish/completions/postrider.fish")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let text = script(args.shell);
    terminal::data(text.trim_end()).map_err(Failure::of_stdout)?;
    Ok(Exit::Success)
}

/// The completions of one shell.
pub(crate) fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "postrider", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

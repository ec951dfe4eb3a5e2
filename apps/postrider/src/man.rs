//! `postrider man`: the manual pages, made from the commands' definition.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};
use crate::terminal;

/// Write the manual pages
///
/// Without a folder, the page of the program goes to standard output.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  postrider man | man -l -
  postrider man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder for all pages, one per command
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    match &args.dir {
        Some(dir) => {
            let pages = pages()?;
            write_all(dir, &pages)?;
            terminal::note(&format!("wrote {} pages to {}", pages.len(), dir.display()));
        }
        None => {
            let (_, text) = page(Cli::command())?;
            terminal::data(text.trim_end()).map_err(Failure::of_stdout)?;
        }
    }
    Ok(Exit::Success)
}

fn write_all(dir: &Path, pages: &[(String, String)]) -> Result<(), Failure> {
    let failed = |path: &Path, e| Failure::plain(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
    for (name, text) in pages {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// Every page, by its file name: the program's, and one for each command that is not hidden.
pub(crate) fn pages() -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    let mut program = Cli::command();
    program.build();
    collect(program, &mut all)?;
    Ok(all)
}

fn collect(command: Command, all: &mut Vec<(String, String)>) -> Result<(), Failure> {
    let parts: Vec<Command> = command
        .get_subcommands()
        .filter(|part| !part.is_hide_set() && part.get_name() != "help")
        .cloned()
        .collect();
    all.push(page(command)?);
    parts.into_iter().try_for_each(|part| collect(part, all))
}

fn page(command: Command) -> Result<(String, String), Failure> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).replace(' ', "-");
    let mut text = Vec::new();
    // Without a date: the same program makes the same pages.
    Man::new(command.name(name.clone()).display_name(name.clone()))
        .render(&mut text)
        .map_err(|e| Failure::plain(format!("the page of {name}: {e}")))?;
    Ok((format!("{name}.1"), String::from_utf8_lossy(&text).into_owned()))
}

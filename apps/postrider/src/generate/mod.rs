//! `postrider generate`: the reference pages that are made from the code, for `cargo x docs`.
//!
//! Invariant: the same program writes the same bytes; nothing of the machine or the moment is in them.

mod contract;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory as _};
use postrider_core::Code;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};

/// Write the generated reference pages into a folder.
#[derive(Args, Debug)]
pub(crate) struct GenerateArgs {
    /// The folder; pages get the paths they have below docs/reference
    #[arg(long, value_name = "PATH")]
    dir: PathBuf,
}

pub(crate) fn run(args: &GenerateArgs) -> Result<Exit, Failure> {
    for (name, text) in pages()? {
        write(&args.dir.join(name), &text)?;
    }
    Ok(Exit::Success)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let folder = path.parent().unwrap_or(path);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, text))
        .map_err(|e| Failure::plain(format!("{}: {e}", path.display())))
}

/// Every page, by its path.
fn pages() -> Result<Vec<(String, String)>, Failure> {
    let mut all = vec![
        ("commands.md".to_owned(), commands()),
        ("errors.md".to_owned(), errors()),
        ("metrics.md".to_owned(), crate::serve::page()),
        ("configuration.md".to_owned(), configuration()),
        ("sql-contract.md".to_owned(), contract::page(MADE)?),
    ];
    let codes = Code::ALL.iter();
    all.extend(codes.map(|code| (format!("errors/{code}.md"), code.page().to_owned())));
    Ok(all)
}

const MADE: &str = "<!-- Made by `cargo x docs`. Change the code it is made from. -->\n\n";

/// What every command's `--help` says, at 80 columns.
fn commands() -> String {
    let mut text = format!("# Commands\n\n{MADE}Each section is what `--help` prints.\n");
    let mut program = Cli::command();
    program.build();
    describe(&program, &mut text);
    text
}

fn describe(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let help = command.clone().term_width(80).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    // Writing to a String cannot fail.
    _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    let parts = command.get_subcommands();
    for part in parts.filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        describe(part, text);
    }
}

/// Every key of the configuration.
fn configuration() -> String {
    format!("# Configuration\n\n{MADE}{}", postrider_config::reference())
}

const CODES: &str = "\
An error that a person must act on carries a code, `PR-1001`, for ever the same. The program prints it with what
happened and what to do, and `postrider explain PR-1001` prints its page:

```text
error[PR-1001]: open store: the database has no Postrider tables (store=shop.db)
  Nothing was read or written. Run `postrider init URL` to create the tables, or
  check that the URL names the right database.
```

A running relay does not end because of one of these: it says `blocked by …` on standard error with the code, tries
again, and goes on by itself when the cause is gone. At the start of a command the same errors end it, with exit code 1
unless its page says otherwise.

| Code | Name | What to do |
|---|---|---|
";

fn errors() -> String {
    let mut text = format!("# Operator codes\n\n{MADE}{CODES}");
    for code in Code::ALL {
        _ = writeln!(text, "| [{code}](errors/{code}.md) | {code:?} | {} |", code.advice());
    }
    text
}

//! The project's tasks, run as `cargo x <command>`.
//!
//! Each command is a module; this file only chooses between them. A command prints what it did and
//! ends with 0, with 1 where something failed, or with 2 where it was called wrongly.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its purpose")]

mod bench;
mod check;
mod docs;
mod example;
mod fuzz;
mod lean;
mod lexed;
mod programs;
mod provision;
mod recipes;
mod requirements;
mod rustdoc;
mod services;
mod sim;
mod step;
mod suggestion;
mod summary;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

/// Commands with what they do, in the order in which `help` shows them.
const COMMANDS: [(&str, &str); 11] = [
    ("check", "the quick part: format, clippy, tidy, generated pages, unit tests"),
    (
        "test",
        "everything a change must pass, with integration tests, the simulator, doc tests, docs",
    ),
    ("tidy", "the project's own rules; --bless records the present lengths in xtask/ratchet.txt"),
    ("requirements", "write docs/requirements.md; --check only says whether it is up to date"),
    (
        "docs",
        "write the generated pages of docs/reference; --check only says whether they are up to date",
    ),
    ("bench", "NAME [--store S] [--broker B] [--json] …: run a benchmark in release mode"),
    (
        "example",
        "NAME: an example that needs servers, with the servers it needs; without a name, the list",
    ),
    (
        "sim",
        "worlds in simulated time: --seed N [--trace], --seeds N, …; without arguments, the list",
    ),
    (
        "fuzz",
        "[TARGET…] [--for 10m]: inputs led by the code they reach, for what reads them from outside",
    ),
    (
        "services",
        "up|down|status|env [name…]: real servers for the tests; `services` alone lists them",
    ),
    ("help", "this list"),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let rest: Vec<String> = arguments.collect();
    let root = tree::root();
    match command.as_deref() {
        Some("check") => accept(&rest, &[]).unwrap_or_else(|| check::run(&root)),
        Some("test") => accept(&rest, &[]).unwrap_or_else(|| test::run(&root)),
        Some("tidy") => accept(&rest, &["--bless"])
            .unwrap_or_else(|| tidy::run(&root, rest.iter().any(|flag| flag == "--bless"))),
        Some("requirements") => accept(&rest, &["--check"])
            .unwrap_or_else(|| requirements::run(&root, rest.iter().any(|flag| flag == "--check"))),
        Some("docs") => accept(&rest, &["--check"])
            .unwrap_or_else(|| docs::run(&root, rest.iter().any(|flag| flag == "--check"))),
        Some("bench") => bench::run(&root, &rest),
        Some("example") => example::run(&root, &rest),
        Some("fuzz") => fuzz::run(&root, &rest),
        Some("sim") => sim::run(&root, &rest),
        Some("services") => services::run(&rest),
        Some("help" | "--help" | "-h") => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        None => {
            eprint!("{}", help());
            ExitCode::from(2)
        }
        Some(unknown) => {
            eprintln!("error: there is no command `{unknown}`{}", hint(unknown));
            eprint!("{}", help());
            ExitCode::from(2)
        }
    }
}

/// Refuses arguments that the command does not know.
fn accept(given: &[String], known: &[&str]) -> Option<ExitCode> {
    let unknown = given.iter().find(|flag| !known.contains(&flag.as_str()))?;
    eprintln!("error: unknown argument `{unknown}`");
    if !known.is_empty() {
        eprintln!("known: {}", known.join(", "));
    }
    Some(ExitCode::from(2))
}

fn hint(unknown: &str) -> String {
    let names = COMMANDS.map(|(name, _)| name);
    suggestion::nearest(unknown, &names)
        .map(|name| format!("; did you mean `{name}`?"))
        .unwrap_or_default()
}

fn help() -> String {
    let mut text = String::from("usage: cargo x <command>\n\n");
    for (name, purpose) in COMMANDS {
        text.push_str(&format!("  {name:<14}{purpose}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command() {
        let text = help();
        for (name, purpose) in COMMANDS {
            assert!(text.contains(name) && text.contains(purpose), "{name}");
        }
    }

    #[test]
    fn an_unknown_command_brings_the_nearest_one() {
        assert_eq!(hint("chekc"), "; did you mean `check`?");
        assert_eq!(hint("deploy-everything"), "");
    }

    #[test]
    fn an_unknown_argument_is_refused_and_a_known_one_is_not() {
        assert!(accept(&["--blss".to_owned()], &["--bless"]).is_some());
        assert!(accept(&["--bless".to_owned()], &["--bless"]).is_none());
    }
}

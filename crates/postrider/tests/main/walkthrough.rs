//! The front page's commands, run as they stand there.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::pages::read;

/// The program as it was built last, if it was: `cargo x test` builds it first.
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent()?.parent()?;
    let program = folder.join(format!("postrider{}", std::env::consts::EXE_SUFFIX));
    program.exists().then_some(program)
}

#[expect(clippy::print_stdout, reason = "skips are listed at the end of the run")]
fn skipped(what: &str, why: &str) {
    println!("skipped: {what}: {why}");
}

/// Whether a tool is there.
fn starts(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The code blocks of a language in a section.
fn blocks(page: &str, section: &str, language: &str) -> Vec<String> {
    let start = page.find(section).unwrap_or_else(|| panic!("no section {section}"));
    let rest = &page[start + section.len()..];
    let text = rest.find("\n## ").map_or(rest, |end| &rest[..end]);
    let fence = format!("```{language}\n");
    let opened = text.split(&fence).skip(1);
    opened.map(|block| block[..block.find("```").unwrap()].to_owned()).collect()
}

fn succeed(output: Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A first event needs this program and the database's own shell.
#[test]
fn the_front_pages_commands_deliver_both_events() {
    let what = "the front page's commands";
    let Some(program) = program() else {
        return skipped(what, "the program was not built; run `cargo build`");
    };
    if cfg!(windows) || !starts("sqlite3") || !starts("python3") {
        return skipped(what, "sqlite3, python3, or a POSIX shell is missing");
    }
    let page = read("README.md");
    let section = "## Quick start: the program";
    let (shell, python) = (blocks(&page, section, "sh"), blocks(&page, section, "python"));
    let ([setup, relay], [insert]) = (&shell[..], &python[..]) else {
        panic!("the walkthrough has other blocks than this test runs");
    };
    let folder = tempfile::tempdir().unwrap();
    let mut path = vec![program.parent().unwrap().to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let path = std::env::join_paths(path).unwrap();
    let run = |tool: &str, script: &str| {
        let mut command = Command::new(tool);
        command.args(if tool == "sh" { ["-e", "-c"] } else { ["-I", "-c"] }).arg(script);
        for name in postrider_testkit::services::variables() {
            command.env_remove(name);
        }
        succeed(command.current_dir(&folder).env("PATH", &path).output().unwrap())
    };
    run("sh", setup);
    run("python3", insert);
    let delivered = run("sh", relay);
    let ids: Vec<bool> = delivered.lines().map(|line| line.contains("order.placed")).collect();
    assert_eq!(ids, [true, true], "{delivered}");
}

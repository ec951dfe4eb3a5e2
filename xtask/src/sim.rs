//! `cargo x sim`: builds the simulator with its probes, and starts it.
//!
//! Probes are compiled in by a flag of the compiler, so that no other build can have them. A build with
//! another flag is another build of everything, so it has a target folder of its own.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::step::{self, Verdict};
use crate::summary::Summary;
use crate::test;

/// What compiles the probes in.
const FLAGS: [&str; 2] = ["--cfg", "postrider_sim"];

/// What is built with them: the engines, what they rest on, and the simulator.
const PACKAGES: [&str; 5] =
    ["postrider-core", "postrider-relay", "postrider-inbox", "postrider-testkit", "postrider-sim"];

/// Runs the simulator with `arguments`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let program = match build(root) {
        Ok(program) => program,
        Err(reason) => {
            eprintln!("error: {reason}");
            return ExitCode::FAILURE;
        }
    };
    match Command::new(&program).args(arguments).status() {
        // A program that a signal ended has no code of its own.
        Ok(status) => status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("error: {} did not start: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}

/// The part of `cargo x test`: its results are counted as those of a test program.
pub(crate) fn gate(root: &Path, summary: &mut Summary) -> Verdict {
    let program = build(root)?;
    test::count(Command::new(program).arg("--gate"), summary)
}

/// Clippy over the code that only the simulator compiles.
pub(crate) fn lint(root: &Path) -> Verdict {
    let mut command = cargo(root, &["clippy", "--quiet", "--profile", "sim", "--all-targets"]);
    command.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    step::complete(command.args(["--", "-D", "warnings"]))
}

/// Builds it; the path of the program.
fn build(root: &Path) -> Result<PathBuf, String> {
    let name = "postrider-sim";
    let mut command = cargo(root, &["build", "--quiet", "--profile", "sim", "-p", name]);
    step::complete(command.args(["--bin", name]))?;
    Ok(target(root).join("sim").join(format!("{name}{}", env::consts::EXE_SUFFIX)))
}

/// A cargo command whose build has the probes.
fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = step::cargo(root, arguments);
    let (name, value) =
        flags(&FLAGS, env::var_os("CARGO_ENCODED_RUSTFLAGS"), env::var_os("RUSTFLAGS"));
    command.env(name, value).arg("--target-dir").arg(target(root));
    command
}

/// Where the build with probes stands.
fn target(root: &Path) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target")).join("sim")
}

/// The variable that tells the flags, and what it says: those that are there already, and ours. The
/// encoded form goes before the plain one, as it does in cargo.
pub(crate) fn flags(
    ours: &[&str],
    encoded: Option<OsString>,
    plain: Option<OsString>,
) -> (&'static str, OsString) {
    let (name, before, between) = match (encoded, plain) {
        (Some(encoded), _) => ("CARGO_ENCODED_RUSTFLAGS", encoded, "\u{1f}"),
        (None, plain) => ("RUSTFLAGS", plain.unwrap_or_default(), " "),
    };
    let mut value = before;
    for flag in ours {
        if !value.is_empty() {
            value.push(between);
        }
        value.push(flag);
    }
    (name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_environment_are_kept() {
        let said = |encoded: Option<&str>, plain: Option<&str>| {
            let (name, value) = flags(&FLAGS, encoded.map(Into::into), plain.map(Into::into));
            (name, value.into_string().expect("text"))
        };
        let ours = "--cfg postrider_sim".to_owned();
        assert_eq!(said(None, None), ("RUSTFLAGS", ours.clone()));
        assert_eq!(said(None, Some("-g")), ("RUSTFLAGS", format!("-g {ours}")));
        let encoded = "-C\u{1f}debuginfo=1\u{1f}--cfg\u{1f}postrider_sim".to_owned();
        let given = said(Some("-C\u{1f}debuginfo=1"), Some("-g"));
        assert_eq!(given, ("CARGO_ENCODED_RUSTFLAGS", encoded));
    }
}

//! What the tests need from the machine: installed where we may, and named where we may not.
//!
//! A missing program never fails a run. The cases that need it print a `skipped:` line, and so do we.

use std::process::{Command, Stdio};

/// A program, its package, and what cannot be tested without it.
const NEEDED: [(&str, &str, &str); 3] = [
    ("sqlite3", "sqlite3", "producers in plain SQL through the sqlite3 shell"),
    ("python3", "python3", "producers in another language"),
    ("faketime", "faketime", "clocks that jump"),
];

/// Sees to it that the needed programs are here; answers with a line for each that is not.
pub(crate) fn provide() -> Vec<String> {
    let missing: Vec<_> =
        NEEDED.iter().filter(|(program, ..)| !starts(program, "--version")).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let outcome = install(&missing.iter().map(|(_, package, _)| *package).collect::<Vec<_>>());
    missing
        .iter()
        .filter(|(program, ..)| !starts(program, "--version"))
        .map(|(program, _, cases)| {
            let reason = outcome.as_ref().err().map_or("it does not start", String::as_str);
            format!("skipped: {cases}: {program} is missing and {reason}")
        })
        .collect()
}

/// Whether the program starts and ends well with this argument.
pub(crate) fn starts(program: &str, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Installs packages of the system, where this user may.
pub(crate) fn install(packages: &[&str]) -> Result<(), String> {
    if !is_root() {
        return Err("only root may install packages".to_owned());
    }
    if !starts("apt-get", "--version") {
        return Err("there is no apt-get to install it with".to_owned());
    }
    eprintln!("    installing {}", packages.join(" "));
    let _guard = Unstarted::begin();
    apt(&["update", "-qq"])?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    apt(&arguments)
}

/// One apt-get, with short patience: a machine without a network should say so soon.
fn apt(arguments: &[&str]) -> Result<(), String> {
    let done = Command::new("apt-get")
        .args(["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o"])
        .arg("DPkg::Lock::Timeout=300")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if done { Ok(()) } else { Err(format!("apt-get {} failed", arguments[0])) }
}

/// Keeps the system from starting the servers of packages while it installs them: whoever asked
/// for a package starts what is needed, as it is needed.
struct Unstarted {
    ours: bool,
}

/// Asked by the system's packages; 101 says that starting is forbidden.
const POLICY: &str = "/usr/sbin/policy-rc.d";

impl Unstarted {
    fn begin() -> Self {
        use std::io::Write as _;
        // Only where the machine has no policy of its own.
        let ours = std::fs::File::create_new(POLICY)
            .and_then(|mut file| file.write_all(b"#!/bin/sh\nexit 101\n"))
            .is_ok()
            && Command::new("chmod").args(["755", POLICY]).status().is_ok();
        Self { ours }
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if self.ours {
            let _ = std::fs::remove_file(POLICY);
        }
    }
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_does_not_start() {
        assert!(!starts("no-such-program-here", "--version"));
        assert!(starts("true", "--version"));
    }
}

//! The account that servers run under: this user, or, for root, an account that may do nothing else.
//!
//! PostgreSQL refuses to run as root, and the other servers have no reason to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What root's servers run under. Created where it is missing, and never removed.
const NAME: &str = "postrider-svc";

/// A user and a group by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether it is another one than ours, so that a command must change to it.
    other: bool,
}

impl Account {
    /// Finds the account for this user's servers; for root it is created at need.
    pub(crate) fn find() -> Result<Self, String> {
        let (uid, gid) = ours()?;
        if uid != 0 {
            return Ok(Self { uid, gid, other: false });
        }
        if number("-u").is_none() {
            create()?;
        }
        match (number("-u"), number("-g")) {
            (Some(uid), Some(gid)) => Ok(Self { uid, gid, other: true }),
            _ => Err(format!("the account {NAME} was created and is not found")),
        }
    }

    /// The account of whoever runs this. What is started under it may be anything, so for tests alone.
    #[cfg(test)]
    pub(crate) fn own() -> Result<Self, String> {
        let (uid, gid) = ours()?;
        Ok(Self { uid, gid, other: false })
    }

    /// A command that runs under this account. Variables of ours do not reach it: a server must
    /// not behave differently because of who started it.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LANG", "C.UTF-8").stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
        if self.other {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }
}

/// The numbers of whoever runs this.
pub(crate) fn ours() -> Result<(u32, u32), String> {
    let own = fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?;
    Ok((own.uid(), own.gid()))
}

fn number(flag: &str) -> Option<u32> {
    let output = Command::new("id").args([flag, NAME]).output().ok()?;
    str::from_utf8(&output.stdout).ok()?.trim().parse().ok()
}

fn create() -> Result<(), String> {
    let status = Command::new("useradd")
        .args(["--system", "--no-create-home", "--user-group", "--home-dir", "/nonexistent"])
        .args(["--shell", "/usr/sbin/nologin", NAME])
        .status()
        .map_err(|error| format!("useradd did not start: {error}"))?;
    // Another run may have been faster: what counts is whether the account is there now.
    if status.success() || number("-u").is_some() {
        Ok(())
    } else {
        Err(format!("the account {NAME} could not be created: useradd ended with {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_under_our_own_account_runs_without_our_variables() {
        let output = Account::own().unwrap().command("env").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("LANG=C.UTF-8"), "{text}");
        assert!(!text.contains("CARGO"), "{text}");
    }
}

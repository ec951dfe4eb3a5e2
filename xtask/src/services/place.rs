//! One server's place in the private folder: what is recorded of it, and its home.
//!
//! Records (`pid`, `url`, ports, the log) belong to us; the home belongs to the account under which
//! the server runs. So no server can point us at a process or a file that is not its own.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::Account;
use super::folder::open_to;
use super::identity::Identity;

/// Lines of the log that a failure shows.
const TAIL: usize = 15;

/// See the module.
pub(crate) struct Place {
    pub(crate) name: String,
    path: PathBuf,
    /// Shared by all servers: what was downloaded.
    pub(crate) cache: PathBuf,
    pub(crate) account: Account,
}

impl Place {
    pub(crate) fn new(name: &str, path: PathBuf, cache: PathBuf, account: Account) -> Self {
        Self { name: name.to_owned(), path, cache, account }
    }

    /// The place of another server.
    pub(crate) fn neighbour(&self, name: &str) -> Self {
        Self::new(name, self.path.with_file_name(name), self.cache.clone(), self.account)
    }

    /// Waits until no other run is at work on this server. The lock ends with the file, also when
    /// this process is killed.
    pub(crate) fn lock(&self) -> Result<File, String> {
        self.create()?;
        let path = self.path.join("lock");
        File::create(&path)
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The folder in which the server may write; created at need.
    pub(crate) fn home(&self) -> Result<PathBuf, String> {
        self.create()?;
        let home = self.path.join("home");
        self.owned(&home)?;
        Ok(home)
    }

    /// Creates a folder for the server's account.
    pub(crate) fn owned(&self, path: &Path) -> Result<(), String> {
        fs::create_dir_all(path)
            .and_then(|()| chown(path, Some(self.account.uid), Some(self.account.gid)))
            .and_then(|()| open_to(path, 0o700))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// A command under the server's account, in its home.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command, String> {
        let home = self.home()?;
        let mut command = self.account.command(program);
        command.current_dir(&home).env("HOME", &home);
        Ok(command)
    }

    /// A record, or a configuration that the server reads and may not write.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        self.create()?;
        let path = self.path.join(name);
        // Renamed into place: a run that is killed here leaves the old record or the new one.
        let draft = self.path.join(format!("{name}.new"));
        fs::write(&draft, text)
            .and_then(|()| open_to(&draft, 0o644))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok()
    }

    /// The process that was started here, where it still runs.
    pub(crate) fn running(&self) -> Option<Identity> {
        self.read("pid")?.parse().ok().filter(Identity::lives)
    }

    /// The URL of the server that runs, or is reused.
    pub(crate) fn url(&self) -> Option<String> {
        let gone = self.read("pid").is_some() && self.running().is_none();
        self.read("url").filter(|_| !gone)
    }

    /// Drops what is recorded of a server that is gone.
    pub(crate) fn forget(&self) -> Result<(), String> {
        for name in ["pid", "url"] {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(format!("{}: {error}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A fresh log, for the server's standard output and error.
    pub(crate) fn log(&self) -> Result<File, String> {
        self.create()?;
        let path = self.path.join("log");
        File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The end of the log, for a person.
    pub(crate) fn tail(&self) -> String {
        let log = fs::read(self.path.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Progress, for a person.
    pub(crate) fn say(&self, what: impl AsRef<str>) {
        eprintln!("{:<10}{}", self.name, what.as_ref());
    }

    fn create(&self) -> Result<(), String> {
        fs::create_dir_all(&self.path)
            .and_then(|()| open_to(&self.path, 0o755))
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::folder::Folder;

    #[test]
    fn a_server_whose_process_is_gone_does_not_run_and_is_forgotten() {
        let folder = Folder::temporary("place");
        let place = folder.place("pg");
        assert!(place.running().is_none());
        let own = Identity::of(std::process::id()).unwrap();
        place.write("pid", &own.to_string()).unwrap();
        place.write("url", "x://y").unwrap();
        assert_eq!(place.running(), Some(own));
        place.write("pid", &format!("{} 1", own.pid)).unwrap();
        assert!(place.running().is_none(), "the number is used again");
        place.forget().unwrap();
        place.forget().unwrap();
        assert_eq!(place.read("url"), None);
        fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn one_run_at_a_time_is_at_work_on_a_server() {
        let folder = Folder::temporary("lock");
        let place = folder.place("pg");
        let held = place.lock().unwrap();
        let again = File::create(folder.path.join("pg/lock")).unwrap();
        again.try_lock().expect_err("the lock is held");
        drop(held);
        again.try_lock().unwrap();
        fs::remove_dir_all(&folder.path).unwrap();
    }
}

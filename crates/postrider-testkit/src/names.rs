//! Names of hosts that lead a process where the test says, and elsewhere under way: an `/etc/hosts` that the process and
//! its children alone see.
//!
//! Invariant: nobody else on this machine sees the names, or a trace of them afterwards.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::proxy::Proxy;

/// What a name leads to, the preferred address first.
type Entry<'a> = (&'a str, &'a [Ipv4Addr]);

/// The names that a process knows besides the machine's own.
#[derive(Debug)]
pub struct Names {
    file: PathBuf,
}

/// The file has room for so many bytes: it is written anew in place and at once, so that nobody reads a half of it.
const ROOM: usize = 4_096;

impl Names {
    /// Names in a file of this folder.
    ///
    /// # Errors
    /// The reason why this machine lets nobody have names of his own, for the skip of the test.
    pub fn new(folder: &Path) -> Result<Names, String> {
        let names = Names { file: folder.join("hosts") };
        names.lead(&[]);
        let tried =
            names.wrap(&Command::new("true")).output().map_err(|error| error.to_string())?;
        match tried.status.success() {
            true => Ok(names),
            false => Err(format!(
                "no namespace of mounts for a process: {}",
                String::from_utf8_lossy(&tried.stderr).trim()
            )),
        }
    }

    /// From now on the names lead there, and no others anywhere but `localhost`.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn lead(&self, entries: &[Entry<'_>]) {
        let mut text = String::from("127.0.0.1 localhost\n");
        for (name, addresses) in entries {
            for address in *addresses {
                text += &format!("{address} {name}\n");
            }
        }
        self.write(&text).expect("the file of the names is written");
    }

    fn write(&self, text: &str) -> io::Result<()> {
        assert!(text.len() < ROOM, "more names than there is room for");
        if !self.file.exists() {
            fs::write(&self.file, "")?;
        }
        // The same file as before: that is what the processes see.
        let mut file = File::options().write(true).open(&self.file)?;
        file.write_all(format!("{text:<ROOM$}").as_bytes())
    }

    /// The same command, run by a process that knows the names: its arguments, folder, and environment.
    pub fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("unshare");
        wrapped.args(["-rm", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
        wrapped.arg(&self.file).arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }
}

/// How a server leaves an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// Connections are closed, and new ones refused: somebody is there, and it is not the server.
    Refused,
    /// Connections stand, and new ones are taken, with nobody behind them: what a machine that is gone looks like.
    Silent,
}

/// A server of this machine that a name leads to, and that moves from one address to another.
#[derive(Debug)]
pub struct Moving {
    names: Names,
    name: &'static str,
    /// Where the server itself is, on 127.0.0.1.
    behind: u16,
    port: u16,
    at: Proxy,
    last: u8,
    /// What stands where it was.
    left: Vec<Proxy>,
}

fn host(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

impl Moving {
    /// One on a port of 127.0.0.1, which need not be there yet.
    ///
    /// # Errors
    /// As [`Names::new`].
    pub async fn new(folder: &Path, name: &'static str, behind: u16) -> Result<Moving, String> {
        let names = Names::new(folder)?;
        let at = Proxy::at((host(2), 0).into(), behind).await;
        names.lead(&[(name, &[host(2)])]);
        Ok(Moving { names, name, behind, port: at.port, at, last: 2, left: Vec::new() })
    }

    /// Its name and its port.
    pub fn address(&self) -> String {
        format!("{}:{}", self.name, self.port)
    }

    /// See [`Names::wrap`].
    pub fn wrap(&self, command: &Command) -> Command {
        self.names.wrap(command)
    }

    /// So many places one after the other: where it is, and behind each way to leave it.
    pub const PLACES: usize = 4;

    /// Goes to one of the [`PLACES`](Moving::PLACES), in their order: it stays at the first.
    pub async fn goes_to(&mut self, place: usize) {
        match place {
            1 => self.moves_behind(Leaving::Refused, &[]).await,
            2 => self.moves_behind(Leaving::Silent, &[]).await,
            3 => self.moves_behind_silence(Leaving::Refused).await,
            _ => {}
        }
    }

    /// Moves, and the name leads to an address at which nobody ever says anything as well, and there first.
    async fn moves_behind_silence(&mut self, leaving: Leaving) {
        let (silent, proxy) = self.next().await;
        proxy.cut(true);
        self.left.push(proxy);
        self.moves_behind(leaving, &[silent]).await;
    }

    /// To the next address: there first, then it leaves the old one, and then the name follows, behind others.
    async fn moves_behind(&mut self, leaving: Leaving, others: &[Ipv4Addr]) {
        let (address, next) = self.next().await;
        let old = std::mem::replace(&mut self.at, next);
        if leaving == Leaving::Refused {
            old.end().await;
        } else {
            old.cut(true);
            self.left.push(old);
        }
        self.names.lead(&[(self.name, &[others, &[address]].concat())]);
    }

    async fn next(&mut self) -> (Ipv4Addr, Proxy) {
        self.last += 1;
        let address = host(self.last);
        (address, Proxy::at((address, self.port).into(), self.behind).await)
    }
}

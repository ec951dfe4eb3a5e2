//! PostgreSQL, of the major that the system's packages have, as `pg`.
//!
//! Ordinary tests do without `fsync`: what they ask does not depend on it, and it is half the time.
//! A test that claims durability starts a cluster of its own from `POSTRIDER_PG_BIN`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::identity::Identity;
use super::place::Place;
use super::{Service, daemon, package, port, probe};

const DATABASE: &str = "postgres";
const PATIENCE: Duration = Duration::from_secs(30);
/// What the tests need beyond the defaults, and bounds on what a forgotten slot keeps on the disk.
pub(super) const SETTINGS: [&str; 9] = [
    "listen_addresses=127.0.0.1",
    // Loopback alone: the path of a socket may be no longer than 107 bytes.
    "unix_socket_directories=",
    "wal_level=logical",
    "max_wal_senders=50",
    "max_replication_slots=50",
    "max_connections=300",
    "max_prepared_transactions=50",
    "max_slot_wal_keep_size=4GB",
    "fsync=off",
];
/// Asked of a server on the standard port: whether it can do all that the tests ask of one.
const CAPABLE: &str = "select current_setting('wal_level') = 'logical' \
    and current_setting('max_prepared_transactions')::int >= 10 \
    and current_setting('server_version_num')::int >= 150000 \
    and (rolsuper or (rolcreatedb and rolreplication)) \
    from pg_roles where rolname = current_user";

/// From the system's packages.
pub(crate) struct Postgres;

impl Service for Postgres {
    fn name(&self) -> &'static str {
        "pg"
    }

    fn purpose(&self) -> &'static str {
        "PostgreSQL of the system's packages, 15 or later"
    }

    fn offset(&self) -> u16 {
        32
    }

    fn reusable(&self) -> Option<String> {
        let url = format!("postgres://postgres:postgres@127.0.0.1:5432/{DATABASE}");
        (probe::answers(5432) && query(&url, CAPABLE).as_deref() == Some("t")).then_some(url)
    }

    fn start(&self, place: &Place) -> Result<String, String> {
        if binaries().is_none() {
            package::system(place, &["postgresql"])?;
        }
        let folder = binaries().ok_or("its programs are not below /usr/lib/postgresql")?;
        start(place, &folder, self.offset())
    }

    fn stop(&self, place: &Place) -> Result<(), String> {
        // "Fast": connections are cut, and what is in memory is written.
        daemon::stop(place, "INT")
    }

    fn facts(&self, _place: &Place) -> Vec<(&'static str, String)> {
        binaries().map(|folder| ("BIN", folder.display().to_string())).into_iter().collect()
    }
}

/// Prepares a cluster where there is none, and starts it. `folder` has the server's programs.
pub(super) fn start(place: &Place, folder: &Path, offset: u16) -> Result<String, String> {
    package::program(place, "psql", "postgresql-client")?;
    let data = place.home()?.join("data");
    end_unrecorded(&data)?;
    let fresh = initialise(place, folder, &data)?;
    match serve(place, folder, &data, offset) {
        // Without fsync a crash of the machine may leave what no server can read. Nothing of value
        // stands in it: tests make what they need.
        Err(reason) if !fresh => {
            place.say(format!("{reason}; trying once more with an empty cluster"));
            daemon::stop(place, "QUIT")?;
            fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
            initialise(place, folder, &data)?;
            serve(place, folder, &data, offset)
        }
        outcome => outcome,
    }
}

/// Makes the cluster; whether there was none. One that a killed run left half made is made again.
fn initialise(place: &Place, folder: &Path, data: &Path) -> Result<bool, String> {
    if data.join("made").exists() {
        return Ok(false);
    }
    let _ = fs::remove_dir_all(data);
    place.say("making a cluster");
    let output = place
        .command(folder.join("initdb"))?
        .args(["-U", DATABASE, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
        .args(["--no-instructions", "-D"])
        .arg(data)
        .output()
        .map_err(|error| format!("initdb did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("initdb: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    fs::write(data.join("made"), "").map_err(|error| error.to_string())?;
    Ok(true)
}

fn serve(place: &Place, folder: &Path, data: &Path, offset: u16) -> Result<String, String> {
    let port = port::choose(place, "sql", offset)?;
    let mut command = Command::new(folder.join("postgres"));
    command.arg("-D").arg(data).args(["-p", &port.to_string()]);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    daemon::start(place, &command)?;
    let url = format!("postgres://{DATABASE}@127.0.0.1:{port}/{DATABASE}");
    daemon::ready(place, PATIENCE, || query(&url, "select 1").as_deref() == Some("1"))?;
    Ok(url)
}

/// A server whose number was lost (a run was killed between start and record) is ended; one that was
/// just killed is waited for, since its lock file bars the next one until the kernel has buried it.
/// The lock file itself stays: it also guards against backends that outlived their server.
fn end_unrecorded(data: &Path) -> Result<(), String> {
    let Some(pid) = owner(&fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default())
    else {
        return Ok(());
    };
    let ours = fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| String::from_utf8_lossy(&line).contains(&*data.to_string_lossy()));
    if let (true, Some(identity)) = (ours, Identity::of(pid)) {
        daemon::end(identity, "INT")?;
    }
    let process = PathBuf::from(format!("/proc/{pid}"));
    if ours || is_dead(&process) {
        daemon::gone(|| !process.exists(), PATIENCE);
    }
    Ok(())
}

/// Whether the process is dead and not yet buried.
fn is_dead(process: &Path) -> bool {
    fs::read_to_string(process.join("status")).is_ok_and(|status| status.contains("State:\tZ"))
}

/// The process that holds a cluster, from the first line of its lock file.
fn owner(lock: &str) -> Option<u32> {
    lock.lines().next()?.trim().parse().ok()
}

/// The newest folder with a server's programs among the system's packages.
pub(super) fn binaries() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib/postgresql").ok()?;
    let majors = folders
        .filter_map(|folder| folder.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .map(|major| (major, PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))))
        .filter(|(_, folder)| folder.join("initdb").exists());
    majors.max().map(|(_, folder)| folder)
}

/// One value, where the server answers.
pub(super) fn query(url: &str, statement: &str) -> Option<String> {
    let output = Command::new("psql")
        .args(["--no-psqlrc", "--tuples-only", "--no-align", "--no-password", "-c", statement, url])
        .env("PGCONNECT_TIMEOUT", "2")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_cluster_stands_in_the_first_line() {
        assert_eq!(owner("4711\n/var/data\n1700000000\n27032\n"), Some(4711));
        assert_eq!(owner(""), None);
        assert_eq!(owner("half"), None);
    }
}

//! Where tests find real servers: what `cargo x services up` started, or what somebody named.
//!
//! A lookup answers with a URL, or with the reason why there is none, which the test prints as its
//! skip. It starts nothing, asks no network, and never panics:
//!
//! ```
//! use postrider_testkit::services;
//!
//! let url = match services::postgres() {
//!     Ok(url) => url,
//!     Err(reason) => return println!("skipped: claims on PostgreSQL: {reason}"),
//! };
//! # drop(url);
//! ```
//!
//! A server may be shared with other tests, and with a person: make a database, a vhost, a prefix of
//! your own.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// PostgreSQL 15 or later, as a superuser, with `wal_level=logical` and without fsync.
///
/// # Errors
///
/// The reason why there is none.
pub fn postgres() -> Result<String, String> {
    url("pg")
}

/// The server of this name: `POSTRIDER_<NAME>_URL`, else what `cargo x services` recorded for this
/// user and still runs.
///
/// # Errors
///
/// The reason why there is none, with the command that mends it.
pub fn url(name: &str) -> Result<String, String> {
    match set(&format!("POSTRIDER_{}_URL", name.to_uppercase())) {
        Some(url) => Ok(url),
        None => recorded(&folder()?, name),
    }
}

/// The folder with the PostgreSQL server's programs (`initdb`, `pg_ctl`, `postgres`), for a test that
/// needs a cluster of its own: `POSTRIDER_PG_BIN`, else the newest of the system's packages.
///
/// # Errors
///
/// The reason why there is none.
pub fn postgres_programs() -> Result<PathBuf, String> {
    if let Some(folder) = set("POSTRIDER_PG_BIN") {
        return Ok(folder.into());
    }
    let majors = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    majors
        .filter_map(|major| major.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .map(|major| (major, PathBuf::from(format!("/usr/lib/postgresql/{major}/bin"))))
        .filter(|(_, folder)| folder.join("initdb").exists())
        .max()
        .map(|(_, folder)| folder)
        .ok_or_else(|| "no PostgreSQL server is installed; `cargo x services up pg`".to_owned())
}

/// The folder with the programs of the server of this name: `POSTRIDER_<NAME>_BIN`, which `cargo x test` sets,
/// and `cargo x services env`.
///
/// # Errors
///
/// The reason why it is not known.
pub fn programs(name: &str) -> Result<PathBuf, String> {
    let variable = format!("POSTRIDER_{}_BIN", name.to_uppercase());
    set(&variable)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{variable} is not set; `cargo x services env {name}` says it"))
}

/// The names of the variables of this process that say where servers are. A test that starts the program
/// takes them out of its environment: the program refuses names under its prefix that it does not know.
pub fn variables() -> Vec<String> {
    let set = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    ours(set.collect())
}

/// `POSTRIDER_PG_URL`, and everything else about `POSTRIDER_PG_`.
fn ours(set: Vec<String>) -> Vec<String> {
    let of_server = |name: &String| {
        let stem = name.strip_suffix("URL").filter(|stem| !stem.contains("__"));
        stem.filter(|stem| stem.starts_with("POSTRIDER_") && stem.ends_with('_')).map(str::to_owned)
    };
    let mut stems: Vec<String> = set.iter().filter_map(of_server).collect();
    stems.extend(["POSTRIDER_SERVICES_".to_owned(), "POSTRIDER_PG_".to_owned()]);
    set.into_iter().filter(|name| stems.iter().any(|stem| name.starts_with(&**stem))).collect()
}

/// The account for servers that a test starts itself, as user and group id: PostgreSQL refuses to run
/// as root. Hand it to `std::os::unix::process::CommandExt::{uid, gid}`, and give it the server's
/// folder. None where the tests do not run as root, and no other account is needed.
///
/// # Errors
///
/// The tests run as root, and the account is not known.
pub fn account() -> Result<Option<(u32, u32)>, String> {
    let own = user()?;
    if own != 0 {
        return Ok(None);
    }
    let text = set("POSTRIDER_SERVICES_ACCOUNT")
        .or_else(|| fs::read_to_string(folder().ok()?.join("account")).ok());
    text.and_then(|text| numbers(&text)).map(Some).ok_or_else(|| {
        "root needs an account for servers; `cargo x services up pg` makes it".to_owned()
    })
}

fn numbers(text: &str) -> Option<(u32, u32)> {
    let (uid, gid) = text.trim().split_once(':')?;
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

/// The private folder of this user's servers.
pub(crate) fn folder() -> Result<PathBuf, String> {
    match set("POSTRIDER_SERVICES_DIR") {
        Some(folder) => Ok(folder.into()),
        None => Ok(format!("/var/tmp/postrider-services-{}", user()?).into()),
    }
}

fn recorded(folder: &Path, name: &str) -> Result<String, String> {
    let place = folder.join(name);
    let advice = format!("`cargo x services up {name}` starts one");
    let url = fs::read_to_string(place.join("url"))
        .map_err(|_| format!("no server {name} is known here; {advice}"))?;
    // One that was reused has no process of ours: whoever started it watches over it.
    match fs::read_to_string(place.join("pid")) {
        Ok(process) if !lives(&process) => Err(format!("the server {name} is gone; {advice}")),
        _ => Ok(url.trim().to_owned()),
    }
}

/// Whether the process runs that is recorded by its number and its start time.
fn lives(process: &str) -> bool {
    let mut words = process.split_whitespace();
    let (Some(pid), Some(began)) = (words.next(), words.next()) else { return false };
    // Behind the program's name, which may hold anything: the state, and 19 words on the start.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let words: Vec<&str> =
            stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        words.first() != Some(&"Z") && words.get(19) == Some(&began)
    })
}

#[cfg(target_os = "linux")]
fn user() -> Result<u32, String> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").map(|own| own.uid()).map_err(|error| format!("/proc/self: {error}"))
}

#[cfg(not(target_os = "linux"))]
fn user() -> Result<u32, String> {
    Err("`cargo x services` needs Linux; deploy/compose.yaml has the servers, and \
         POSTRIDER_<NAME>_URL names one"
        .to_owned())
}

/// A variable that says something.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_while_its_process_lives() {
        let folder = env::temp_dir().join(format!("postrider-testkit-{}", std::process::id()));
        fs::create_dir_all(folder.join("pg")).unwrap();
        let reason = recorded(&folder, "pg").unwrap_err();
        assert!(reason.contains("cargo x services up pg"), "{reason}");
        fs::write(folder.join("pg/url"), "postgres://a@b/c\n").unwrap();
        assert_eq!(recorded(&folder, "pg").unwrap(), "postgres://a@b/c", "a reused one");
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let own = std::process::id();
        let began = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
        fs::write(folder.join("pg/pid"), format!("{own} {began}")).unwrap();
        assert_eq!(recorded(&folder, "pg").unwrap(), "postgres://a@b/c");
        fs::write(folder.join("pg/pid"), format!("{own} 1")).unwrap();
        let reason = recorded(&folder, "pg").unwrap_err();
        assert!(reason.contains("gone"), "{reason}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn variables_of_servers_are_told_from_keys() {
        let set = [
            "PATH",
            "POSTRIDER_DYNAMODB_REGION",
            "POSTRIDER_DYNAMODB_URL",
            "POSTRIDER_OBSERVE__TOKEN_URL",
            "POSTRIDER_PG_BIN",
            "POSTRIDER_SERVICES_DIR",
            "POSTRIDER_STORE",
        ];
        let ours = ours(set.map(str::to_owned).to_vec());
        assert_eq!(ours, [set[1], set[2], set[4], set[5]]);
    }

    #[test]
    fn an_account_is_two_numbers() {
        assert_eq!(numbers("999:998\n"), Some((999, 998)));
        assert_eq!(numbers("root"), None);
    }
}

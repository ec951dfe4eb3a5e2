//! Presence: proof of life that ends with the process, so that a restart need not wait for a lease.
//!
//! A relay holds an advisory lock on a file of its own; the kernel lets it go when the process ends,
//! however it ends. Another relay on the same machine, since the same boot, that gets the lock has
//! proof of death. Anything else (no file, another host, another boot) proves nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use postrider_core::lease::HeldLease;
use postrider_core::{Presence, RelayId};

/// The lock that this process holds while it lives.
#[derive(Debug)]
pub(crate) struct Alive {
    _lock: File,
    path: PathBuf,
    presence: Presence,
}

impl Alive {
    /// Takes the lock. `None` where the machine has no such means: the lease alone decides then.
    pub(crate) fn announce(owner: &RelayId) -> Option<Alive> {
        let (host, boot) = machine()?;
        let path = std::env::temp_dir().join(format!("postrider-{owner}.lock"));
        let lock = OpenOptions::new().create_new(true).write(true).open(&path).ok()?;
        lock.try_lock().ok()?;
        let presence = Presence { host, boot, path: path.to_str()?.to_owned() };
        Some(Alive { _lock: lock, path, presence })
    }

    /// Where others find the proof.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // The leases are let go, or expire; a file without its lock would be proof enough.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the holder of a lease is proved dead.
pub(crate) fn is_dead(held: &HeldLease) -> bool {
    let Some(presence) = &held.presence else {
        return false;
    };
    let same = machine().is_some_and(|(host, boot)| host == presence.host && boot == presence.boot);
    let path = Path::new(&presence.path);
    let dead = same && is_unlocked(path);
    if dead && is_ours(path) {
        // What a killed relay leaves behind. Without the file there is no proof, only the lease: one
        // prover is enough.
        let _ = std::fs::remove_file(path);
    }
    dead
}

/// Whether a path is one that [`Alive::announce`] makes. The path comes from a row of the store, and
/// nothing else is ever deleted because a row says so.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.parent() == Some(std::env::temp_dir().as_path())
        && name.starts_with("postrider-relay-")
        && name.ends_with(".lock")
}

fn is_unlocked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    match file.try_lock() {
        // The lock goes again with the file, at the end of this scope.
        Ok(()) => true,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}

#[cfg(target_os = "linux")]
fn machine() -> Option<(String, String)> {
    let host = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some((host, boot.trim().to_owned()))
}

#[cfg(not(target_os = "linux"))]
fn machine() -> Option<(String, String)> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use postrider_core::{Lease, PartitionId};
    use std::time::Duration;

    fn held(presence: Presence) -> HeldLease {
        let lease = Lease { partition: PartitionId(0), owner: RelayId::mint(), token: 1 };
        HeldLease { lease, expires_in: Duration::from_secs(9), presence: Some(presence) }
    }

    #[test]
    fn the_living_are_not_dead_and_the_unknown_are_not_either() {
        let alive = Alive::announce(&RelayId::mint()).unwrap();
        let presence = alive.presence().clone();
        assert!(!is_dead(&held(presence.clone())));
        let elsewhere = Presence { host: "elsewhere".into(), ..presence.clone() };
        let rebooted = Presence { boot: "another".into(), ..presence.clone() };
        drop(alive);
        // The file is gone with a clean end: no proof, the released lease says it all.
        assert!(!is_dead(&held(presence.clone())));
        // What a killed process leaves: the file without its lock.
        File::create(&presence.path).unwrap();
        assert!(!is_dead(&held(elsewhere)) && !is_dead(&held(rebooted)));
        assert!(is_dead(&held(presence.clone())));
        assert!(!Path::new(&presence.path).exists(), "the proof is cleaned up");
    }

    #[test]
    fn only_our_own_files_are_cleaned_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("postrider-relay-1.lock");
        File::create(&path).unwrap();
        let (host, boot) = machine().unwrap();
        let presence = Presence { host, boot, path: path.to_str().unwrap().to_owned() };
        assert!(is_dead(&held(presence)));
        assert!(path.exists());
    }
}

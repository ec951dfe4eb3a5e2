//! A disk of a test's own that can be full: a small file system in memory.
//!
//! Invariant: it is gone with the value.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::own_server::shown;

/// See the module.
#[derive(Debug)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// One with so many MiB, that every user may write to.
    ///
    /// # Errors
    /// The reason why there is none: only root may mount.
    pub fn new(mib: u32) -> Result<Disk, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("postrider-disk-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).map_err(shown)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).map_err(shown)?;
        let disk = Disk { folder };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m,mode=777"), "postrider-test"])
            .arg(&disk.folder)
            .output()
            .map_err(shown)?;
        match mounted.status.success() {
            true => Ok(disk),
            false => Err(format!(
                "a file system of its own cannot be mounted: {}",
                String::from_utf8_lossy(&mounted.stderr).trim()
            )),
        }
    }

    /// What is on it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    /// Leaves no byte.
    ///
    /// # Panics
    /// If nothing can be written to it.
    pub fn fill(&self) {
        pour(&mut File::create(self.ballast()).expect("the ballast"));
    }

    /// The same once more, where something has let go of some.
    ///
    /// # Panics
    /// If it was not filled before.
    pub fn fill_up(&self) {
        pour(&mut File::options().append(true).open(self.ballast()).expect("the ballast"));
    }

    /// Takes away what it was filled with.
    ///
    /// # Panics
    /// If it was not filled before.
    pub fn relieve(&self) {
        fs::remove_file(self.ballast()).expect("the ballast");
    }
}

fn pour(file: &mut File) {
    for size in [1 << 20, 1 << 12] {
        let block = vec![0; size];
        while file.write_all(&block).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server that just ended may hold it for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).output();
        let _ = fs::remove_dir(&self.folder);
    }
}

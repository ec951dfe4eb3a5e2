//! A wall clock that is wrong, for one process and its children.
//!
//! The library of `faketime` stands before the clock that they read; the monotonic clock, which no step of a wall clock
//! moves, stays what it is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::suite::skip;

/// See the module.
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// One whose offset stands in a file of this name in a folder; `None`, with the reason printed, where there is no library
    /// for it.
    pub fn new(folder: &Path, name: &str) -> Option<WallClock> {
        let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
            .map(|machine| format!("/usr/lib/{machine}/faketime/libfaketimeMT.so.1"));
        let Some(library) = library.iter().map(PathBuf::from).find(|path| path.exists()) else {
            skip("clocks that jump", "faketime is not installed");
            return None;
        };
        let clock = WallClock { library, offset: folder.join(name) };
        clock.set("+0");
        Some(clock)
    }

    /// How far it is off from now on, such as `-10m`. Who reads the clock looks at it every second.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set(&self, offset: &str) {
        let fresh = self.offset.with_extension("fresh");
        fs::write(&fresh, format!("{offset}\n")).expect("the offset");
        fs::rename(&fresh, &self.offset).expect("the offset");
    }

    /// What a process has to find in its environment to go by it.
    pub fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.offset.display().to_string()),
            ("FAKETIME_CACHE_DURATION", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    /// Whether a process that runs goes by one.
    pub fn is_of(process: u32) -> bool {
        let maps = fs::read_to_string(format!("/proc/{process}/maps"));
        maps.is_ok_and(|maps| maps.contains("libfaketime"))
    }
}

//! A folder that tests copy instead of making it each time: what takes a second to make is made once on a machine, and stands
//! beside what `cargo x services` fetched.
//!
//! Invariant: one that is found under its name is whole. One process at a time makes it, under another name, and renames it;
//! what a run that was killed left half made is never copied, and goes with the next try.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::own_server::shown;
use crate::services;

/// The name of such a folder.
#[derive(Debug)]
pub(crate) struct Template(String);

impl Template {
    /// The one of this name, and of all that its content depends on: of anything else it is another one. One that nobody
    /// asks for any more stays until somebody removes it.
    pub(crate) fn of(name: &str, from: &[&str]) -> Template {
        // Another release of Rust may come to another number: then it is made once more.
        let mut number = DefaultHasher::new();
        from.hash(&mut number);
        Template(format!("{name}-{:016x}", number.finish()))
    }

    /// Copies it to where nothing is yet, with its owners and modes. Where there is none, `make` makes it, in an empty folder.
    ///
    /// # Errors
    /// There is no place for it, or it cannot be made or copied. Nothing is there then, and a test makes its own.
    pub(crate) fn copy(
        &self,
        to: &Path,
        make: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        // Who makes it may work in another folder than we do.
        let cache = std::path::absolute(services::folder()?.join("cache")).map_err(shown)?;
        self.copy_of(&cache, to, make)
    }

    fn copy_of(
        &self,
        cache: &Path,
        to: &Path,
        make: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<(), String> {
        let whole = self.found(cache, make)?;
        let mut copy = Command::new("cp");
        let copied = copy.arg("-a").args([&*whole, to]).stdin(Stdio::null()).output();
        let copied = copied.map_err(shown)?;
        if copied.status.success() {
            return Ok(());
        }
        // Nothing of a copy that failed is left.
        _ = fs::remove_dir_all(to);
        Err(String::from_utf8_lossy(&copied.stderr).into_owned())
    }

    /// Where it is in this folder.
    fn found(
        &self,
        cache: &Path,
        make: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<PathBuf, String> {
        let whole = cache.join(&self.0);
        if whole.exists() {
            return Ok(whole);
        }
        // Held until the file is closed, which the end of this process does as well.
        let held = File::create(cache.join(format!("{}.lock", self.0))).map_err(shown)?;
        held.lock().map_err(shown)?;
        // Who had the lock before has made it.
        if whole.exists() {
            return Ok(whole);
        }
        self.clear(cache);
        let half = cache.join(format!("{}{}", self.half(), std::process::id()));
        fs::create_dir(&half).map_err(shown)?;
        let made = make(&half).and_then(|()| fs::rename(&half, &whole).map_err(shown));
        if made.is_err() {
            _ = fs::remove_dir_all(&half);
        }
        made.map(|()| whole)
    }

    /// How the name of one begins that is not whole. Each process has its own: a program that outlived a killed run may still
    /// write into that of the run.
    fn half(&self) -> String {
        format!("{}.part-", self.0)
    }

    /// Removes what killed runs left.
    fn clear(&self, cache: &Path) {
        let half = self.half();
        for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&half) {
                _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;
    use crate::own_server::OwnServer;

    #[test]
    fn of_many_at_once_one_makes_it_and_all_have_it_whole() {
        const MANY: usize = 4;
        let place = OwnServer::new("template").unwrap();
        let cache = place.folder();
        let (template, begin, made) =
            (Template::of("a", &[]), Barrier::new(MANY), AtomicU32::new(0));
        let make = |half: &Path| -> Result<(), String> {
            made.fetch_add(1, Ordering::Relaxed);
            fs::write(half.join("one"), "1").map_err(shown)?;
            fs::write(half.join("two"), "2").map_err(shown)
        };
        let copies: Vec<PathBuf> =
            (0..MANY).map(|number| cache.join(format!("copy-{number}"))).collect();
        thread::scope(|scope| {
            for copy in &copies {
                let (template, begin, make) = (&template, &begin, &make);
                scope.spawn(move || {
                    begin.wait();
                    template.copy_of(cache, copy, make).unwrap();
                });
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        for copy in copies {
            assert!(copy.join("one").exists() && copy.join("two").exists(), "{copy:?}");
        }
    }

    #[test]
    fn what_was_left_half_made_is_never_copied() {
        let place = OwnServer::new("template").unwrap();
        let (cache, template) = (place.folder(), Template::of("a", &[]));
        let to = cache.join("copy");
        let cut = template.copy_of(cache, &to, |half| {
            fs::write(half.join("half"), "").unwrap();
            Err("cut off".to_owned())
        });
        assert_eq!(cut.unwrap_err(), "cut off");
        assert!(!to.exists());
        let killed = cache.join(template.half() + "1");
        fs::create_dir(&killed).unwrap();
        fs::write(killed.join("half"), "").unwrap();
        let make = |half: &Path| -> Result<(), String> {
            assert!(fs::read_dir(half).unwrap().next().is_none(), "it is empty");
            fs::write(half.join("whole"), "").map_err(shown)
        };
        template.copy_of(cache, &to, make).unwrap();
        assert!(to.join("whole").exists() && !killed.exists());
        let again = cache.join("again");
        template.copy_of(cache, &again, |_| panic!("it is there already")).unwrap();
        assert!(again.join("whole").exists());
    }

    #[test]
    fn without_a_place_for_it_that_is_said() {
        let place = OwnServer::new("template").unwrap();
        let (cache, to) = (place.folder().join("nowhere"), place.folder().join("copy"));
        Template::of("a", &[]).copy_of(&cache, &to, |_| Ok(())).unwrap_err();
        assert!(!to.exists());
    }

    #[test]
    fn of_something_else_it_is_another_one() {
        let name = |from: &[&str]| Template::of("a", from).0;
        assert_eq!(name(&["b", "c"]), name(&["b", "c"]));
        assert_ne!(name(&["b", "c"]), name(&["bc"]));
        assert_ne!(name(&["b", ""]), name(&["b"]));
    }
}

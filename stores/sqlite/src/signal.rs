//! What a watching thread sleeps on: the kernel's word that the database's files were written to,
//! and a bell that others ring.
//!
//! On Linux both are file descriptors and the thread costs nothing while nothing happens. Elsewhere
//! the thread looks every 20 ms while somebody waits.

use std::time::Duration;

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stir {
    /// The files may have been written to.
    Written,
    /// The bell, or the time was over.
    Other,
}

#[cfg(target_os = "linux")]
pub(crate) use linux::Signal;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::Signal;

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{OsStr, OsString};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::fs::inotify;

    use super::{Duration, Stir};

    /// A bell, and a watch on the folder of a database.
    pub(crate) struct Signal {
        bell: OwnedFd,
        writes: OwnedFd,
        /// The database's own name; its log and journal begin with it.
        name: OsString,
    }

    impl Signal {
        pub(crate) fn new(database: &Path) -> io::Result<Signal> {
            let writes =
                inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
            let folder = database.parent().unwrap_or_else(|| Path::new("/"));
            let what = inotify::WatchFlags::MODIFY
                | inotify::WatchFlags::CREATE
                | inotify::WatchFlags::DELETE
                | inotify::WatchFlags::MOVE;
            inotify::add_watch(&writes, folder, what)?;
            Ok(Signal {
                bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
                writes,
                name: database.file_name().unwrap_or_default().to_owned(),
            })
        }

        /// Ends the thread's sleep, or its next one.
        pub(crate) fn ring(&self) {
            // It fails only when it was rung 2^64 times without being heard.
            _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }

        /// Sleeps until the bell rings.
        pub(crate) fn sleep_until_rung(&self) {
            let mut fds = [PollFd::new(&self.bell, PollFlags::IN)];
            _ = poll(&mut fds, None);
            self.hush();
        }

        /// Sleeps until something is written, the bell rings, or the time is over.
        pub(crate) fn sleep(&self, longest: Option<Duration>) -> Stir {
            let longest = longest.and_then(|span| Timespec::try_from(span).ok());
            let mut fds =
                [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.writes, PollFlags::IN)];
            _ = poll(&mut fds, longest.as_ref());
            self.hush();
            if self.was_written() { Stir::Written } else { Stir::Other }
        }

        fn hush(&self) {
            let mut count = [0; 8];
            _ = rustix::io::read(&self.bell, &mut count);
        }

        /// Takes all that the kernel has to say, and whether any of it was about our files.
        fn was_written(&self) -> bool {
            let mut space = [MaybeUninit::uninit(); 4_096];
            let mut reader = inotify::Reader::new(&self.writes, &mut space);
            let mut ours = false;
            while let Ok(event) = reader.next() {
                let lost_count = event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                ours |= lost_count
                    || event.file_name().is_some_and(|name| {
                        OsStr::from_bytes(name.to_bytes())
                            .as_bytes()
                            .starts_with(self.name.as_bytes())
                    });
            }
            ours
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use std::io;
    use std::path::Path;
    use std::sync::{Condvar, Mutex, PoisonError};

    use super::{Duration, Stir};

    /// How often the database is looked at while somebody waits.
    const PACE: Duration = Duration::from_millis(20);

    /// A bell; the files are looked at by the clock.
    pub(crate) struct Signal {
        rung: Mutex<bool>,
        bell: Condvar,
    }

    impl Signal {
        pub(crate) fn new(_: &Path) -> io::Result<Signal> {
            Ok(Signal { rung: Mutex::new(false), bell: Condvar::new() })
        }

        /// Ends the thread's sleep, or its next one.
        pub(crate) fn ring(&self) {
            *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.bell.notify_all();
        }

        /// Sleeps until the bell rings.
        pub(crate) fn sleep_until_rung(&self) {
            let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rung =
                self.bell.wait_while(rung, |rung| !*rung).unwrap_or_else(PoisonError::into_inner);
            *rung = false;
        }

        /// Sleeps until the bell rings or it is time to look.
        pub(crate) fn sleep(&self, longest: Option<Duration>) -> Stir {
            let pace = longest.unwrap_or(PACE).min(PACE);
            let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut rung, _) = self
                .bell
                .wait_timeout_while(rung, pace, |rung| !*rung)
                .unwrap_or_else(PoisonError::into_inner);
            *rung = false;
            Stir::Written
        }
    }
}

//! Which kind of error a failure of the operating system is.

use std::io;

use postrider_core::{ErrorKind, Fault};

/// What an error of reading or writing comes to.
pub(crate) fn fault(error: &io::Error) -> Fault {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::DiskFull
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput => ErrorKind::Config,
        io::ErrorKind::WouldBlock => ErrorKind::Busy,
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        // A closed pipe among them: the other side is gone, and may be started again.
        _ => ErrorKind::Unavailable,
    };
    Fault::new(kind, error.to_string())
}

//! How much of one partition may wait: what is over it is left at the servers.

use crate::window::Window;

/// What may wait of one partition. One record always may.
pub(super) struct Limits {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Limits {
    pub(super) fn are_reached(&self, window: &Window) -> bool {
        window.len() >= self.records || window.bytes() >= self.bytes
    }

    /// Half of it, so that the server is not asked for each record.
    pub(super) fn leave_room(&self, window: &Window) -> bool {
        window.len() <= self.records / 2 && window.bytes() <= self.bytes / 2
    }
}

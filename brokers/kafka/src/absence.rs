//! Whether the topics of a consumer are there, as it looks now and then.

use std::time::Instant;

/// What is said when a topic is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// There is none.
    Missing,
    /// That it is there, or something else.
    Answered,
    Silence,
}

/// The topics that are gone, and when it was asked for last.
pub(crate) struct Absence {
    pub(crate) gone: Vec<String>,
    pub(crate) asked: Instant,
}

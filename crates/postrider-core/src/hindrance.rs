//! Hindrances: what keeps a relay from delivering, in its own words, for whoever reads the store.
//!
//! Keeps INV-8 for those who have no access to the relay: a backlog that stands has a cause, and the store can name it.

use serde::{Deserialize, Serialize};

use crate::DestinationId;

/// Hindrances that a relay tells of at once, at most: a screen of them says enough.
pub const HINDRANCES_MAX: usize = 8;

/// Characters of one, at most.
const WORDS_CHARS_MAX: usize = 300;

/// Something that keeps a relay from delivering.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hindrance {
    /// Whose events stand; `None` where it is the store's trouble, and so everybody's.
    pub destination: Option<DestinationId>,
    /// What the relay says of it.
    pub words: String,
}

impl Hindrance {
    /// A hindrance. Of very long words the beginning is kept.
    pub fn new(destination: Option<DestinationId>, words: &str) -> Hindrance {
        Hindrance { destination, words: words.chars().take(WORDS_CHARS_MAX).collect() }
    }

    /// Hindrances as the text that a store keeps, [`HINDRANCES_MAX`] of them; nothing is an empty text.
    ///
    /// ```
    /// use postrider_core::Hindrance;
    /// let told = [Hindrance::new(None, "the disk is full")];
    /// assert_eq!(Hindrance::read(&Hindrance::write(&told)), told);
    /// assert_eq!(Hindrance::write(&[]), "");
    /// assert_eq!(Hindrance::read("[{"), []);
    /// ```
    pub fn write(all: &[Hindrance]) -> String {
        if all.is_empty() {
            return String::new();
        }
        let all = &all[..all.len().min(HINDRANCES_MAX)];
        serde_json::to_string(all).unwrap_or_default()
    }

    /// What [`write`](Hindrance::write) wrote. What cannot be read, as a newer program's, is nothing, and whoever wrote more of
    /// them than that does has the first read.
    pub fn read(text: &str) -> Vec<Hindrance> {
        let mut told: Vec<Hindrance> = serde_json::from_str(text).unwrap_or_default();
        told.truncate(HINDRANCES_MAX);
        told
    }
}

//! Typed identifiers: no bare string or integer crosses a crate's border.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Error, ErrorKind};

/// The identity of an event: a UUID, minted once, at enqueue, and never changed after that.
///
/// Together with the event's source it is the deduplication key of every inbox. Version 7 is what we
/// mint, so that an index on it grows at one end; any version is accepted from outside. Order never
/// comes from the id: it comes from the store's sequence.
///
/// ```
/// use postrider_core::EventId;
/// let id = EventId::mint();
/// assert_eq!(id.to_string().parse::<EventId>().unwrap(), id);
/// assert!("not-a-uuid".parse::<EventId>().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventId(Uuid);

impl EventId {
    /// Mints a new UUIDv7.
    pub fn mint() -> EventId {
        EventId(Uuid::now_v7())
    }

    /// An id from its 128 bits, as a store or a seeded test has them.
    pub const fn from_u128(bits: u128) -> EventId {
        EventId(Uuid::from_u128(bits))
    }

    /// The 128 bits.
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    /// A 64-bit digest of the id, for the additive checksums of the settled log.
    ///
    /// It covers the id alone, so that erasing a payload does not break a checksum. The function is
    /// part of the store format: multiply-xor folding of both halves, never to be changed.
    pub const fn digest(self) -> u64 {
        let bits = self.0.as_u128();
        let high = (bits >> 64) as u64;
        let low = bits as u64;
        (high ^ low.rotate_left(29)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for EventId {
    type Err = Error;

    fn from_str(text: &str) -> Result<EventId, Error> {
        Uuid::try_parse(text).map(EventId).map_err(|source| {
            Error::new(ErrorKind::Invalid, "parse event id")
                .message(format!("`{}` is not a UUID", text.escape_debug()))
                .source(source)
        })
    }
}

macro_rules! name_type {
    ($(#[$meta:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and wraps a name: 1 to the limit of characters out of `[A-Za-z0-9._:-]`, so
            /// that it can stand in a table, a URL, a metric label, and a shell without quoting.
            ///
            /// # Errors
            /// [`ErrorKind::Invalid`] with the character or the length that is refused.
            pub fn new(name: impl AsRef<str>) -> Result<$name, Error> {
                let name = name.as_ref();
                check_name($what, name, $max)?;
                Ok($name(Arc::from(name)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<$name, Error> {
                $name::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<$name, Error> {
                $name::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.to_string()
            }
        }
    };
}

name_type!(
    /// The stable name of a destination, the primary key of its row in the store.
    DestinationId,
    "destination",
    64
);
name_type!(
    /// The name of a handler. Each handler has its own inbox rows, so two handlers of one event are
    /// independent of each other.
    HandlerName,
    "handler",
    128
);
name_type!(
    /// The name of one relay process: random per process, so that a restarted relay is never taken
    /// for the one that held the lease before.
    RelayId,
    "relay",
    64
);

impl RelayId {
    /// A new random name.
    pub fn mint() -> RelayId {
        RelayId(Arc::from(format!("relay-{}", Uuid::now_v7().simple())))
    }
}

fn check_name(what: &'static str, name: &str, max: usize) -> Result<(), Error> {
    let refuse = |why: String| {
        Err(Error::new(ErrorKind::Invalid, "name")
            .message(format!("{what} name `{}` {why}", name.escape_debug())))
    };
    if name.is_empty() || name.len() > max {
        return refuse(format!("must have 1 to {max} characters, has {}", name.len()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    match name.chars().find(|c| !allowed(*c)) {
        Some(c) => refuse(format!("has {c:?}; allowed are letters, digits, and . _ : -")),
        None => Ok(()),
    }
}

/// One of the P partitions of a store: the unit of ownership between relays.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PartitionId(pub u16);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R011: ids are minted once and are unique.
    #[test]
    fn minted_ids_differ_and_survive_a_round_trip() {
        let (a, b) = (EventId::mint(), EventId::mint());
        assert_ne!(a, b);
        assert_eq!(EventId::from_u128(a.as_u128()), a);
    }

    #[test]
    fn names_refuse_what_would_need_quoting() {
        assert!(DestinationId::new("kafka-eu.orders").is_ok());
        for bad in ["", "a b", "a/b", "ü", "x'; drop table outbox"] {
            assert!(DestinationId::new(bad).is_err(), "{bad:?}");
        }
        assert!(DestinationId::new("x".repeat(65)).is_err());
    }

    #[test]
    fn the_digest_is_part_of_the_store_format() {
        assert_eq!(EventId::from_u128(0).digest(), 0);
        assert_eq!(
            EventId::from_u128(1).digest(),
            (1u64 << 29).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        );
    }
}

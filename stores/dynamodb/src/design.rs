//! The design of the tables: their keys, the sparse index, the stream, and the time to live, in one place for
//! whoever makes them and whoever prints how they are made.

use crate::control::{PK, SK, TTL};
use crate::record::{AT, SHARD};
use crate::settings::Names;

/// What records of the stream carry.
pub(crate) const STREAM_VIEW: &str = "NEW_IMAGE";
/// What an entry of the index carries: it names where to look.
pub(crate) const INDEX_PROJECTION: &str = "KEYS_ONLY";
/// The keys of the index, in order.
pub(crate) const INDEX_KEYS: [(&str, &str); 2] = [(SHARD, "HASH"), (AT, "RANGE")];

/// One table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Design<'a> {
    pub(crate) table: &'a str,
    /// Whether it is the application's.
    pub(crate) shared: bool,
    pk: &'a str,
    sk: &'a str,
    /// The attribute with the time to live.
    pub(crate) ttl: &'a str,
    /// The sparse index, which the table with the events has, and the stream with it.
    pub(crate) index: Option<&'a str>,
}

impl<'a> Design<'a> {
    /// The three tables.
    pub(crate) fn all(names: &'a Names) -> [Design<'a>; 3] {
        let ours =
            |table: &'a str| Design { table, shared: false, pk: PK, sk: SK, ttl: TTL, index: None };
        let outbox = Design {
            table: &names.outbox,
            shared: names.shared,
            pk: &names.pk,
            sk: &names.sk,
            ttl: &names.ttl,
            index: Some(&names.index),
        };
        [outbox, ours(&names.store), ours(&names.inbox)]
    }

    /// The attributes that keys are made of, with their types.
    pub(crate) fn attributes(&self) -> Vec<(&'a str, &'static str)> {
        let mut all = vec![(self.pk, "S"), (self.sk, "S")];
        if self.index.is_some() {
            all.extend([(SHARD, "S"), (AT, "N")]);
        }
        all
    }

    /// The keys, in order.
    pub(crate) fn keys(&self) -> [(&'a str, &'static str); 2] {
        [(self.pk, "HASH"), (self.sk, "RANGE")]
    }
}

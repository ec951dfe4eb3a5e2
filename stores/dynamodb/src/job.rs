//! What is read at once of a collection: a job, and what it found.
//!
//! Invariant: a job can be made back into the names that it was made of, so that none is lost with a read
//! that failed.

use std::sync::Arc;

use postrider_core::Result;

use crate::collection::{self, From};
use crate::derived;
use crate::item::{Item, text};
use crate::record::{Decoded, Place, SHARD, numbered_sk};
use crate::store::DynamoStore;

/// How the next events of a collection are read.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    Window(Arc<str>, From),
    Singles(Vec<Place>),
}

/// What a job found.
pub(crate) struct Found {
    pub(crate) items: Vec<Pending>,
    /// Whether each stands for itself: else the first that is named leads to the others.
    pub(crate) is_apart: bool,
    /// Where there may be more of the key, and up to which number everything was looked at.
    pub(crate) next: Option<(Place, u64)>,
}

/// An event that is pending, with its item as it was read.
pub(crate) struct Pending {
    pub(crate) place: Place,
    pub(crate) item: Item,
    pub(crate) decoded: Decoded,
}

impl Job {
    /// The places that it was made of.
    pub(crate) fn names(&self) -> Vec<Place> {
        let place = |pk: &Arc<str>, n| Place::new(pk, &numbered_sk(n));
        match self {
            Job::Window(pk, From::Named(least, most)) if least == most => vec![place(pk, *least)],
            Job::Window(pk, From::Named(least, most)) => vec![place(pk, *least), place(pk, *most)],
            Job::Window(pk, From::Behind(_, named)) => vec![place(pk, *named)],
            Job::Singles(places) => places.clone(),
        }
    }

    /// Reads what is pending of it under an index key.
    pub(crate) async fn read(self, store: &DynamoStore, shard: &str) -> Result<Found> {
        match self {
            Job::Window(pk, from) => {
                let pending = collection::read(store.connection(), &pk, shard, from).await?;
                let place = |n| Place::new(&pk, &numbered_sk(n));
                let next = pending.next.map(|(named, next)| (place(named), next - 1));
                let read = |(place, item)| derived::pending(store, place, item);
                let items = pending.items.into_iter().filter_map(read).collect();
                Ok(Found { items, next, is_apart: false })
            }
            Job::Singles(places) => {
                let mut found = collection::singles(store.connection(), "fetch", &places).await?;
                let pending = |place: Place| {
                    let item =
                        found.remove(&place).filter(|item| text(item, SHARD) == Some(shard))?;
                    derived::pending(store, place, item)
                };
                let items = places.into_iter().filter_map(pending).collect();
                Ok(Found { items, next: None, is_apart: true })
            }
        }
    }
}

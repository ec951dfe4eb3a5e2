//! Derivations: how an event is made of a version of a business item.
//!
//! Invariants: a mapping that refuses, panics, or breaks a limit makes a dead letter, and stops nobody; and whatever
//! a mapping says, the event has the id of the version and the time of its write.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use postrider_core::source::Malformed;
use postrider_core::waiting::Reason;
use postrider_core::{Error, ErrorKind, Event, EventLimits, KeyHash, NewEvent, Result};

use crate::item::{Item, weight};
use crate::mapping::Mapping;
use crate::record::{Decoded, Place};
use crate::version::Version;

/// What an item that no event can be made of weighs beside its attributes.
const ENVELOPE_BYTES: u64 = 256;

/// A mapping, as it is called.
type Map = dyn Fn(&Version<'_>) -> Result<NewEvent> + Send + Sync;

/// Makes events of business items. Cheap to clone.
#[derive(Clone)]
pub struct Derivation {
    map: Arc<Map>,
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivation").finish_non_exhaustive()
    }
}

impl Derivation {
    /// By a function of the program's. Of the same version it must say the same each time: a version may be sent
    /// more than once. [`Version::event`] begins an event that does. It is called while the relay reads, so it should
    /// neither wait nor ask anybody.
    pub fn new(
        map: impl Fn(&Version<'_>) -> Result<NewEvent> + Send + Sync + 'static,
    ) -> Derivation {
        Derivation { map: Arc::new(map) }
    }

    /// By the names of attributes.
    pub fn declared(mapping: Mapping) -> Derivation {
        Derivation::new(move |version| mapping.event(version))
    }

    /// Makes the event of a version, or says why there is none.
    pub(crate) fn decode(&self, item: &Item, place: &Place, source: &Arc<str>) -> Decoded {
        match Version::of(item, place).and_then(|version| self.event(&version, source)) {
            Ok(event) => Decoded {
                id: event.id,
                key_hash: event.key_hash(),
                bytes: event.size_bytes(),
                event: Ok(Arc::new(event)),
            },
            Err(malformed) => Decoded {
                id: Version::of(item, place).map_or_else(|_| place.made_up_id(), |it| it.id()),
                // Which key it has nobody can say, and no other one is to wait for it.
                key_hash: KeyHash::of(&format!("{}\0{}", place.pk, place.sk)),
                bytes: ENVELOPE_BYTES + weight(item),
                event: Err(malformed),
            },
        }
    }

    fn event(&self, version: &Version<'_>, source: &Arc<str>) -> Result<Event, Malformed> {
        let made = catch_unwind(AssertUnwindSafe(|| (self.map)(version))).unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "derive").message("the mapping panicked"))
        });
        made.and_then(|made| checked(&made, version, source)).map_err(|error| Malformed {
            reason: Reason::Malformed,
            detail: format!("no event can be made of the business item: {error}"),
            event: None,
        })
    }
}

/// What a mapping said, as the event of the version.
fn checked(made: &NewEvent, version: &Version<'_>, source: &Arc<str>) -> Result<Event> {
    if made.due().is_some() {
        return Err(Error::new(ErrorKind::Invalid, "derive")
            .message("an event of a business item cannot be scheduled"));
    }
    EventLimits::default().check(made.event())?;
    let mut event = made.event().clone();
    (event.id, event.created_at) = (version.id(), version.written_at());
    if event.source.is_empty() {
        event.source = Arc::clone(source);
    }
    Ok(event)
}

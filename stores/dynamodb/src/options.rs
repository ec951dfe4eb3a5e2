//! Options: how a store is read and kept.

use std::time::Duration;

use crate::derivation::Derivation;
use crate::fetch::BACKSTOP_DEFAULT;
use crate::inbox::InboxOptions;

/// How a store is read and kept.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How long the item of a published event stays, before the time to live removes it: a week, so that
    /// what was said can be looked up while somebody may ask.
    pub retention: Duration,
    /// How often the index is read from its front, whatever told of commits meanwhile: the longest that
    /// an event waits whose entry came late, or whose writer's clock is behind.
    pub backstop: Duration,
    /// Whether the table's stream is read, so that commits are heard of at once and an idle relay leaves the
    /// index alone. The service serves two readers of a stream well: of more relays, let the others poll.
    pub stream: bool,
    /// Whether relays read the stream, for an examination by a handle that does not relay: what is wrong with a
    /// stream that nobody reads stops nobody. True.
    pub relays_read_stream: bool,
    /// How the inbox of the same tables works, where the handle is used as one.
    pub inbox: InboxOptions,
    /// Whether an event's item is marked *before* the event is published, under the lease's token, and the
    /// publication confirmed afterwards. An owner that is none any more gets no event that its successor has
    /// marked. The promise of the mark is weaker: from the mark until the confirmation, or until the next
    /// owner has read it, `published_at` tells of a publication that may not have been. Nothing is lost by
    /// it: the item stays in the index, without a time to live, and is sent by the next owner as soon as
    /// the lease has run out. Costs a write more for each event. Off.
    pub mark_first: bool,
    /// How events are made of business items whose writes carry a [`Stamp`](crate::Stamp). Without it they are let
    /// be, and stay pending for a relay that has one. None.
    pub derivation: Option<Derivation>,
    /// From so many waiting events of a partition and destination on, dead letters included, nothing new is
    /// read there until there are fewer: what its owner remembers of each takes about 300 bytes. 100,000. A relay's own
    /// bound (`Settings::waiting_max`) is of a destination in all partitions, for what the table holds; this one is for
    /// the memory of one owner, and stands where nobody counts: a publisher in a function.
    pub waiting_max: usize,
}

/// The default of [`Options::waiting_max`].
pub(crate) const WAITING_MAX: usize = 100_000;

impl Default for Options {
    fn default() -> Options {
        Options {
            retention: Duration::from_secs(7 * 86_400),
            backstop: BACKSTOP_DEFAULT,
            stream: true,
            relays_read_stream: true,
            inbox: InboxOptions::default(),
            mark_first: false,
            derivation: None,
            waiting_max: WAITING_MAX,
        }
    }
}

//! The spine of Postrider: what an event is, where it may go, what may go wrong, and the contracts
//! that every store and every broker keeps.
//!
//! There is no I/O here, no task, and no clock of its own: those stand at the edge, in the engines'
//! shells and in the adapters. Spine crates know no vendor; adapters know only this crate.
//!
//! | To read about | look at |
//! |---|---|
//! | what an application enqueues and a handler receives | [`NewEvent`], [`Event`], [`TypedEvent`] |
//! | where events go | [`Destination`], [`Route`], [`Template`] |
//! | when a failure is tried again, and when it is given up | [`RetryPolicy`], [`DeadKeyPolicy`] |
//! | what can go wrong, and what to do then | [`Error`], [`Code`] |
//! | the relay's side of a store | [`OutboxSource`] |
//! | the operator's side of a store | [`Operator`] |
//! | the relay's side of a broker | [`Broker`] |
//! | the consumer's side of a broker | [`Subscription`] |
//! | the consumer's side of a store | [`InboxStore`] |
//! | the promise | [`Invariant`] |

pub mod archive;
pub mod broker;
pub mod clock;
pub mod cloudevents;
pub mod code;
pub mod codec;
pub mod cursor;
pub mod destination;
pub mod error;
pub mod event;
pub mod glob;
pub mod hindrance;
pub mod id;
pub mod inbox;
pub mod invariant;
pub mod key;
pub mod lease;
pub mod limits;
pub mod operate;
pub mod payload;
pub mod plain;
pub mod preflight;
pub mod probe;
pub mod range;
pub mod record_key;
mod retire;
pub mod retry;
pub mod route;
pub mod schema_id;
pub mod snapshot;
pub mod source;
pub mod subscription;
pub mod template;
pub mod text;
pub mod timestamp;
pub mod topic_rule;
pub mod typed;
pub mod url;
pub mod waiting;

pub use archive::Archive;
pub use broker::{Broker, BrokerCapabilities, Fault, Marks, Outcome, Outgoing};
pub use clock::{Clock, Tick};
pub use code::Code;
pub use codec::PayloadCodec;
pub use cursor::Cursor;
pub use destination::{Destination, DestinationRow, DestinationState, Start};
pub use error::{Error, ErrorKind, Result, RetryClass};
pub use event::{Event, Headers, NewEvent};
pub use glob::Glob;
pub use hindrance::Hindrance;
pub use id::{DestinationId, EventId, HandlerName, PartitionId, RelayId};
pub use inbox::{Claim, ClaimLease, ClaimRequest, InboxKey, InboxStore, Tried};
pub use invariant::Invariant;
pub use key::KeyHash;
pub use lease::{Acquired, HeldLease, Lease, Presence, Renewed};
pub use limits::{EventLimits, WAITING_MAX, WindowLimits};
pub use operate::Operator;
pub use payload::Payload;
pub use preflight::Preflight;
pub use record_key::RecordKey;
pub use retry::{Jitter, RetryPolicy};
pub use route::{DeadKeyPolicy, Format, Layout, Match, Route};
pub use source::OutboxSource;
pub use subscription::{Delivery, Subscription};
pub use template::Template;
pub use text::Text;
pub use timestamp::Timestamp;
pub use topic_rule::TopicRule;
pub use typed::TypedEvent;
pub use url::{TargetUrl, http_hosts};

/// A boxed future, so that the contracts are object-safe and name no runtime.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

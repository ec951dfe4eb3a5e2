//! Tests of Postrider with real processes, real files, and SIGKILL.
//!
//! The binary `child` plays every part: a relay, a producer, a consumer, and a relay that breaks the
//! rules. The tests start it, kill it, start it again, and judge what the files say afterwards. What
//! both sides must agree on stands here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider_core::{Destination, DestinationId, Result, Route};

/// The one destination.
pub const DESTINATION: &str = "queue";

/// The destination of the webhooks: an endpoint for each tenant.
pub const PARTNERS: &str = "partners";

/// The key with which all requests are signed.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What a producer says; also the topic.
pub const PLACED: &str = "order.placed";

/// What the handler `shipping` says in turn; also the topic.
pub const SHIPPED: &str = "order.shipped";

/// The files of one stage.
#[derive(Clone, Debug)]
pub struct Files {
    /// The shop's database, with its outbox.
    pub shop: PathBuf,
    /// The broker's file.
    pub queue: PathBuf,
    /// The database of the transactional handler.
    pub billing: PathBuf,
    /// The inbox of the handler with leases.
    pub inbox: PathBuf,
    /// What the mail provider sent, a line each: the idempotency key and the event.
    pub sent: PathBuf,
    /// Every call to the mail provider, also those that it absorbed.
    pub calls: PathBuf,
    /// What the receiver of webhooks took, a JSON object a line, written before it answered.
    pub received: PathBuf,
    /// Where processes keep what is theirs alone.
    pub scratch: PathBuf,
}

impl Files {
    /// The files in a folder.
    pub fn within(folder: &Path) -> Files {
        Files {
            shop: folder.join("shop.db"),
            queue: folder.join("queue.db"),
            billing: folder.join("billing.db"),
            inbox: folder.join("inbox.db"),
            sent: folder.join("sent.log"),
            calls: folder.join("calls.log"),
            received: folder.join("received.ndjson"),
            scratch: folder.join("scratch"),
        }
    }
}

/// The definition of the destination: every event, to the topic of its type.
///
/// # Errors
/// None; the names are valid.
pub fn destination() -> Result<Destination> {
    let id = DestinationId::new(DESTINATION)?;
    Ok(Destination::new(id, "local", vec![Route::all("{event_type}".parse()?)]))
}

/// The definition of the webhooks: every event, to the endpoint that its tenant is called.
///
/// # Errors
/// None; the names are valid.
pub fn partners() -> Result<Destination> {
    let id = DestinationId::new(PARTNERS)?;
    Ok(Destination::new(id, "webhook", vec![Route::all("{tenant}".parse()?)]))
}

/// The name of a tenant; also of its endpoint.
pub fn tenant(number: u64) -> String {
    format!("tenant-{number}")
}

/// An error of SQLite in the parts that the tests play themselves.
pub fn trouble(error: rusqlite::Error) -> postrider_core::Error {
    let full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
    let kind = match full {
        true => postrider_core::ErrorKind::DiskFull,
        false => postrider_core::ErrorKind::Internal,
    };
    postrider_core::Error::new(kind, "play").message(error.to_string()).source(Arc::new(error))
}

//! The doctor: looks for what will go wrong, and says what to do about it.
//!
//! Invariant: nothing is changed. What cannot be examined is a finding, and the others still say what they
//! say.

use postrider_core::operate::Finding;
use postrider_core::operate::findings::{critical, flow, warning};
use postrider_core::{Code, ErrorKind, Result, Timestamp};

use super::overview;
use crate::examine::findings;
use crate::store::DynamoStore;

/// Examines everything.
pub(super) async fn examine(store: &DynamoStore, now: Timestamp) -> Result<Vec<Finding>> {
    let names = store.connection().names();
    let mut found = match findings(store.connection(), store.options().relays_read_stream).await {
        Ok(found) => found,
        // Without tables there is nothing to examine.
        Err(error) if error.kind() == ErrorKind::SchemaMissing => return Err(error),
        Err(error) => vec![unexamined("tables", &error)],
    };
    match overview::read(store).await {
        Ok(overview) => {
            let option = format!("--store dynamodb://… (table {})", names.outbox);
            // The clock that is compared is this machine's own: the service gives none.
            let flowing = flow(&overview, now, &option).into_iter();
            found.extend(flowing.filter(|finding| finding.subject != "clock"));
        }
        Err(error) => found.push(unexamined("flow", &error)),
    }
    Ok(found)
}

fn unexamined(subject: &str, error: &postrider_core::Error) -> Finding {
    let message = format!("could not be examined: {error}");
    match error.kind() {
        // A relay with these credentials would be refused as well.
        ErrorKind::Unauthorized => {
            let advice = "Give it credentials that may; deploy/aws has the policy of each part.";
            critical(subject, message, advice, Some(Code::Unauthorized))
        }
        _ => warning(subject, message, None),
    }
}

//! Limits, each with its default and the reason for it.

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, Event, Result};

/// What one event may weigh: checked at enqueue, in the caller's transaction, and again before
/// publishing.
///
/// ```
/// use postrider_core::{EventLimits, NewEvent};
/// let limits = EventLimits { payload_bytes_max: 8, ..EventLimits::default() };
/// let event = NewEvent::new("order", "1", "order.placed").bytes("123456789", "text/plain");
/// assert!(limits.check(event.event()).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventLimits {
    /// The payload, in bytes. Default 1 MiB: what the stores' own CHECK allows. Destinations that
    /// carry less (262,144 for most cloud queues) set less.
    pub payload_bytes_max: u64,
    /// All headers together, names and values, in bytes. Default 16 KiB, a common limit of proxies.
    pub headers_bytes_max: u64,
    /// How many headers. Default 64: trace context, correlation, and room for the application's.
    pub headers_max: u32,
    /// The key, in bytes. Default 512: indexes and brokers take it; longer ones are a mistake.
    pub key_bytes_max: u32,
    /// The whole message as its route writes it, key and headers included, in bytes. Default none: a destination
    /// whose server has such a limit sets it, for the [pre-flight](crate::preflight) alone. When it is published, the
    /// server's own limit counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes_max: Option<u64>,
    /// Types, ids, tenants and other names, in bytes. Default 255, as the stores' CHECKs have it.
    pub name_bytes_max: u32,
}

impl Default for EventLimits {
    fn default() -> EventLimits {
        EventLimits {
            payload_bytes_max: 1024 * 1024,
            headers_bytes_max: 16 * 1024,
            headers_max: 64,
            key_bytes_max: 512,
            message_bytes_max: None,
            name_bytes_max: 255,
        }
    }
}

impl EventLimits {
    /// Checks an event against the limits and the character rules.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] or [`ErrorKind::Invalid`], naming the field, its size, and the limit.
    pub fn check(&self, event: &Event) -> Result<()> {
        self.check_size(event)?;
        let names = [
            ("aggregate_type", Some(&*event.aggregate_type)),
            ("aggregate_id", Some(&*event.aggregate_id)),
            ("event_type", Some(&*event.event_type)),
            ("tenant", event.tenant.as_deref()),
            ("content_type", Some(&*event.content_type)),
        ];
        for (field, value) in names {
            if let Some(value) = value {
                check_text(field, value, self.name_bytes_max)?;
            }
        }
        if let Some(key) = event.key.as_deref() {
            check_text("key", key, self.key_bytes_max)?;
        }
        if event.event_version == 0 {
            return Err(invalid("event_version starts at 1"));
        }
        event.headers.iter().try_for_each(|(name, value)| check_header(name, value))
    }

    /// Checks only what a destination may set lower than the store: the sizes.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], naming the field, its size, and the limit.
    pub fn check_size(&self, event: &Event) -> Result<()> {
        too_large("payload", event.payload.len() as u64, self.payload_bytes_max)?;
        if event.headers.is_empty() {
            return Ok(());
        }
        let headers: usize =
            event.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        too_large("headers", headers as u64, self.headers_bytes_max)?;
        if event.headers.len() > self.headers_max as usize {
            return Err(Error::new(ErrorKind::TooLarge, "check event").message(format!(
                "{} headers, at most {}",
                event.headers.len(),
                self.headers_max
            )));
        }
        Ok(())
    }
}

fn too_large(field: &'static str, size: u64, max: u64) -> Result<()> {
    if size <= max {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TooLarge, "check event")
        .message(format!("the {field} has {size} bytes, the limit is {max}")))
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, "check event").message(message)
}

fn check_text(field: &'static str, value: &str, max: u32) -> Result<()> {
    if value.is_empty() {
        return Err(invalid(format!("{field} is empty")));
    }
    too_large(field, value.len() as u64, u64::from(max))?;
    match value.chars().find(|c| c.is_control()) {
        Some(c) => Err(invalid(format!("{field} has the control character {c:?}"))),
        None => Ok(()),
    }
}

/// Header names travel as HTTP, Kafka, and NATS headers, so they are lower case and plain; values
/// must not be able to start a line of their own.
fn check_header(name: &str, value: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if name.is_empty() || name.len() > 128 || !name.chars().all(plain) {
        return Err(invalid(format!(
            "header name `{}` must have 1 to 128 characters out of a-z 0-9 . _ -",
            name.escape_debug()
        )));
    }
    if name.starts_with("postrider-") {
        return Err(invalid(format!("header `{name}`: the prefix `postrider-` is reserved")));
    }
    match value.chars().find(|c| c.is_control()) {
        Some(c) => Err(invalid(format!("header `{name}` has the control character {c:?}"))),
        None => Ok(()),
    }
}

/// So many events of a destination may wait unless a relay is told otherwise: enough that nobody meets it who looks
/// at alarms, and few enough that a store counts them in a tenth of a second, or in one.
pub const WAITING_MAX: u64 = 1_000_000;

/// How much a relay reads ahead of what is settled: what a crash may redeliver, and what memory
/// may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Rows of one (partition, destination) between the saved cursor and the newest row read.
    /// Default 8,192: eight full pages, enough to keep reading, publishing and settling at once.
    pub rows_max: u32,
    /// Bytes of the same. Default 16 MiB.
    pub bytes_max: u64,
    /// Bytes of all windows of one relay. Default 24 MiB: what a crash may deliver again. Each window is
    /// sure of one page.
    pub total_bytes_max: u64,
    /// What of them is in memory: an event leaves it with its outcome, and 32 to 48 bytes stay until that is saved.
    /// Default 8 MiB, so that a relay fits in a small container however many partitions it owns, and takes little
    /// more before a million events than before ten thousand. A window without open events is sure of one page.
    pub memory_bytes_max: u64,
    /// Rows of one page. Default 1,000: larger pages read no faster.
    pub page_rows_max: u32,
    /// Bytes of one page, counted by the store; a page has at least one row. Default 4 MiB.
    pub page_bytes_max: u64,
}

impl Default for WindowLimits {
    fn default() -> WindowLimits {
        WindowLimits {
            rows_max: 8_192,
            bytes_max: 16 * 1024 * 1024,
            total_bytes_max: 24 * 1024 * 1024,
            memory_bytes_max: 8 * 1024 * 1024,
            page_rows_max: 1_000,
            page_bytes_max: 4 * 1024 * 1024,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewEvent;

    fn check(event: &NewEvent) -> Result<()> {
        EventLimits::default().check(event.event())
    }

    /// R123: what cannot be delivered is refused in the caller's transaction.
    #[test]
    fn oversized_and_malformed_events_are_refused() {
        let plain = || NewEvent::new("order", "1", "order.placed");
        assert!(check(&plain()).is_ok());
        let large = check(&plain().bytes(vec![0; 1024 * 1024 + 1], "a/b")).unwrap_err();
        assert_eq!(large.kind(), ErrorKind::TooLarge);
        assert!(large.to_string().contains("1048577"), "{large}");
        for bad in [
            NewEvent::new("", "1", "t"),
            NewEvent::new("order", "1\n2", "t"),
            NewEvent::new("order", "1", "t".repeat(256)),
            plain().header("X-Upper", "1"),
            plain().header("evil", "a\r\nset-cookie: b"),
            plain().header("postrider-late", "true"),
            plain().version(0),
            plain().ordered_by(""),
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn too_many_headers_are_refused() {
        let event = (0..65)
            .fold(NewEvent::new("order", "1", "t"), |event, n| event.header(format!("h{n}"), "v"));
        assert_eq!(check(&event).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}

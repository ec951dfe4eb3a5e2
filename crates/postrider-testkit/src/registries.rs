//! Headers by which the readers of schema registries find a schema, as an event has them: the same on every broker.

use postrider_core::Event;

/// One of each kind of value, and one that is nothing of its kind.
pub const OF_REGISTRIES: [(&str, &str); 5] = [
    ("__value_schema_id", "89791762-2336-4186-9674-299b90a802e2"),
    ("apicurio.value.globalid", "7"),
    ("apicurio.value.encoding", "BINARY"),
    ("value.schema.version.id", "0x0300000001"),
    ("key.schema.version.id", "of no registry: %20"),
];

/// The event with such headers besides its own.
#[must_use]
pub fn with_headers_of_registries(mut event: Event) -> Event {
    event.headers.extend(OF_REGISTRIES.map(|(name, value)| (name.to_owned(), value.to_owned())));
    event
}

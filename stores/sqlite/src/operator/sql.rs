//! The statements of the operator's side, one file each under `sql/operator/`, named by what they do.

macro_rules! statements {
    ($($name:ident = $file:literal),+ $(,)?) => {
        $(pub(super) const $name: &str =
            include_str!(concat!("../../sql/operator/", $file, ".sql"));)+
    };
}

statements! {
    AUDIT = "audit",
    AUDIT_INSERT = "audit_insert",
    BACKLOG = "backlog",
    CANCEL = "cancel",
    CREATED_AT = "created_at",
    DEAD_SINCE = "dead_since",
    DELIVERY_BUCKET = "delivery_bucket",
    DELIVERY_WAITING = "delivery_waiting",
    DESTINATION = "destination",
    DESTINATIONS = "destinations",
    ENDPOINT = "endpoint",
    ENDPOINTS = "endpoints",
    EVENT = "event",
    EVENT_SCHEDULED = "event_scheduled",
    EVENT_SEQ = "event_seq",
    EVENT_VIEW = "event_view",
    EVENT_WAITING = "event_waiting",
    EVENTS_SCAN = "events_scan",
    EVENTS_TOP = "events_top",
    FIRST_SINCE = "first_since",
    PARTITIONS = "partitions",
    POSITION_LEAST = "position_least",
    REASONS = "reasons",
    RELAYS = "relays",
    REQUEST = "request",
    REQUEST_INSERT = "request_insert",
    REQUEST_PARTS = "request_parts",
    REQUEST_PARTS_COUNT = "request_parts_count",
    REQUEST_ROW = "request_row",
    REQUESTS_OPEN = "requests_open",
    REQUESTS_OPEN_COUNT = "requests_open_count",
    RETRY_NEXT = "retry_next",
    SCHEDULED_LIST = "scheduled_list",
    SCHEDULED_TOTALS = "scheduled_totals",
    SEQUENCE = "sequence",
    SETTLED_TOTALS = "settled_totals",
    WAITING_BEHIND = "waiting_behind",
    WAITING_COUNTS = "waiting_counts",
    WAITING_CREATED_AT = "waiting_created_at",
    WAITING_DESTINATION = "waiting_destination",
    WAITING_DESTINATION_AFTER = "waiting_destination_after",
    WAITING_LIST = "waiting_list",
}

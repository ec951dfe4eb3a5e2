//! Postrider's relay engine: carries events from an outbox to a broker.

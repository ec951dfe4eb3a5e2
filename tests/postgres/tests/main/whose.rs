//! Whose table the events stand in: Postrider's, or one of the application's that has the same columns and a time at which each
//! row was published.

use postrider_postgres::Names;

/// What relays are told by the word `own`.
const APPLICATIONS: &str = "public.events";

/// Whose it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whose {
    #[default]
    Postriders,
    Applications,
}

impl Whose {
    /// What makes the application's own.
    pub(crate) const MAKE: &str = "create table public.events (seq bigserial unique,
        id uuid primary key default gen_random_uuid(), aggregate_type text not null,
        aggregate_id text not null, event_type text not null, event_version int not null,
        payload text not null, created_at timestamptz not null default clock_timestamp(),
        published_at timestamptz);
        create index on public.events (seq) where published_at is null";

    /// The tables beside it have one partition.
    pub(crate) fn partitions(self) -> u16 {
        match self {
            Whose::Postriders => 8,
            Whose::Applications => 1,
        }
    }

    /// What a relay process is told of it.
    pub(crate) fn words(self) -> &'static [&'static str] {
        match self {
            Whose::Postriders => &[],
            Whose::Applications => &["own"],
        }
    }

    /// A statement with the names in their places, and `{outbox}` for the table, whosever it is.
    pub(crate) fn named(self, names: &Names, statement: &str) -> String {
        match self {
            Whose::Postriders => names.render(statement),
            Whose::Applications => names.render(&statement.replace("{outbox}", APPLICATIONS)),
        }
    }

    /// How many events no save of a relay has passed.
    pub(crate) fn open(self) -> &'static str {
        match self {
            Whose::Postriders => {
                "select (select count(*) from {outbox})
                    - (select coalesce(sum(count), 0)::bigint from {outbox_settled} where destination = 'a')"
            }
            Whose::Applications => "select count(*) from {outbox} where published_at is null",
        }
    }

    /// And with those that wait. A row that waits is not published.
    pub(crate) fn unsaved(self) -> &'static str {
        match self {
            Whose::Postriders => {
                "select (select count(*) from {outbox})
                    - (select coalesce(sum(count), 0)::bigint from {outbox_settled} where destination = 'a')
                    + (select count(*) from {outbox_waiting} where destination = 'a')"
            }
            Whose::Applications => self.open(),
        }
    }
}

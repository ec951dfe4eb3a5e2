//! The scenarios, by name.

use std::pin::Pin;

use crate::chaos::scene::Scene;
use crate::chaos::{
    broker_down, effect_before_inbox, lost_ack, manual_fix, poison, premature_mark,
    regenerated_key, stream_gap, stuck_claim, two_relays,
};
use crate::failure::Failure;

/// A play in two halves.
pub(crate) struct Scenario {
    /// As it is called on the command line.
    pub(crate) name: &'static str,
    /// What goes wrong, in a sentence.
    pub(crate) summary: &'static str,
    /// The page to read.
    pub(crate) page: &'static str,
    /// On which stores it can be played.
    pub(crate) plays: Where,
    /// Whether it is played by queues of a service as well: its broker matters, and one that others see.
    pub(crate) by_queue: bool,
    /// Plays it, and judges it on the scene's story.
    pub(crate) play: for<'a> fn(&'a mut Scene) -> Play<'a>,
}

/// A play under way. It stays in the task of its command, so it need not be `Send`.
pub(crate) type Play<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

/// On which stores a scenario can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// It reaches into the database file, or commits in it.
    Embedded,
    /// On every store.
    Anywhere,
}

impl Where {
    /// The kinds of stores, as addresses name them.
    pub(crate) const fn stores(self) -> &'static [&'static str] {
        match self {
            Where::Embedded => &["sqlite"],
            Where::Anywhere => &["sqlite", "postgres", "dynamodb"],
        }
    }
}

/// All of them, in the order in which they are told.
pub(crate) static SCENARIOS: [Scenario; 10] = [
    Scenario {
        name: "stuck-claim",
        summary: "a worker dies holding its claim for 10 s; the message is back after 5 s",
        page: "docs/internals/inbox.md",
        plays: Where::Anywhere,
        by_queue: true,
        play: |scene| Box::pin(stuck_claim::play(scene)),
    },
    Scenario {
        name: "manual-fix",
        summary: "an operator deletes the inbox row and sends the dead letter again",
        page: "docs/guide/when-not.md",
        plays: Where::Embedded,
        by_queue: true,
        play: |scene| Box::pin(manual_fix::play(scene)),
    },
    Scenario {
        name: "lost-ack",
        summary: "the broker stores a batch, and its answer is lost",
        page: "docs/guide/guarantees.md",
        plays: Where::Anywhere,
        by_queue: true,
        play: |scene| Box::pin(lost_ack::play(scene)),
    },
    Scenario {
        name: "premature-mark",
        summary: "the sender is gone after it wrote \"sent\" and before it sent",
        page: "docs/guide/guarantees.md",
        plays: Where::Anywhere,
        by_queue: false,
        play: |scene| Box::pin(premature_mark::play(scene)),
    },
    Scenario {
        name: "regenerated-key",
        summary: "each try to send mints a new id, which no inbox knows",
        page: "docs/guide/events.md",
        plays: Where::Anywhere,
        by_queue: false,
        play: |scene| Box::pin(regenerated_key::play(scene)),
    },
    Scenario {
        name: "effect-before-inbox",
        summary: "a handler dies after its effect and before it wrote it down",
        page: "docs/guide/consuming.md",
        plays: Where::Embedded,
        by_queue: false,
        play: |scene| Box::pin(effect_before_inbox::play(scene)),
    },
    Scenario {
        name: "stream-gap",
        summary: "a change stream is trimmed while its reader is away",
        page: "docs/operate/running.md",
        plays: Where::Anywhere,
        by_queue: false,
        play: |scene| Box::pin(stream_gap::play(scene)),
    },
    Scenario {
        name: "poison",
        summary: "one message is refused for good, and others stand behind it",
        page: "docs/operate/runbook.md",
        plays: Where::Anywhere,
        by_queue: true,
        play: |scene| Box::pin(poison::play(scene)),
    },
    Scenario {
        name: "two-relays",
        summary: "two senders work on one outbox, and one of them vanishes",
        page: "docs/internals/leases.md",
        plays: Where::Anywhere,
        by_queue: false,
        play: |scene| Box::pin(two_relays::play(scene)),
    },
    Scenario {
        name: "broker-down",
        summary: "the broker is away when the change is committed",
        page: "docs/guide/guarantees.md",
        plays: Where::Anywhere,
        by_queue: false,
        play: |scene| Box::pin(broker_down::play(scene)),
    },
];

//! Operator codes: a stable number for each error that a person must act on, with its advice.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $advice:literal,)+) => {
        /// A stable code, `PR-1001`, that names an operator's error for ever.
        ///
        /// A code is printed with the error, can be searched for, and has a page that says what was
        /// not lost and what to do next.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];

            /// What was not lost, and what to do next: one or two sentences for the person who is
            /// awake.
            pub const fn advice(self) -> &'static str {
                match self { $(Code::$name => $advice,)+ }
            }

            /// The page about it, in Markdown: what happened, what was not lost, and what to do next.
            pub const fn page(self) -> &'static str {
                match self {
                    $(Code::$name => {
                        include_str!(concat!("pages/PR-", stringify!($number), ".md"))
                    })+
                }
            }
        }
    };
}

codes! {
    /// The store has no Postrider tables.
    SchemaMissing = 1001,
        "Nothing was read or written. Run `postrider init URL` to create the tables, or check that \
         the URL names the right database.",
    /// The store was made by a newer Postrider.
    SchemaTooNew = 1002,
        "Nothing was read or written. Run the Postrider version that made these tables, or a newer \
         one.",
    /// The store cannot be written to.
    ReadOnly = 1003,
        "Committed events stay in the store and are delivered once it can be written to. Of a \
         server: connect to the primary, as a user whose transactions may write. Of a file: check \
         its owner, its permissions, and how its file system is mounted.",
    /// The store's disk is full.
    DiskFull = 1004,
        "Committed events stay in the store. Free space; the relay goes on by itself.",
    /// The store's file is damaged or is no database.
    Corrupt = 1005,
        "Nothing was written. Check that the URL names a database, then run the database's own \
         integrity check before anything else.",
    /// The store's sequence lies behind a cursor.
    Rewound = 1006,
        "Nothing was published past the cursor. The database was probably restored from a backup: \
         new events would get numbers that were already passed. Run `postrider repair sequence` \
         before the relay runs again.",
    /// The store is locked by another writer for longer than the relay waits.
    Busy = 1007,
        "Nothing was lost; the relay tries again. Look for a transaction that stays open for \
         seconds in the application; for `repair` and `adopt`, stop the relays first.",
    /// The store's file went away while it was in use.
    StoreVanished = 1008,
        "The file the relay had open is no longer at its path. Put it back and start the relay \
         again; writing to a deleted file would be lost.",
    /// The file or database is not the one that published last.
    StoreMoved = 1009,
        "Nothing was published. This file or database is not the one that published last: a copy, \
         or a restored backup. If this one is to publish from now on, run `postrider adopt --reason \
         TEXT`.",
    /// The backlog is over the producer's watermark.
    Backpressure = 1010,
        "Nothing was written. The outbox holds more undelivered events than its watermark allows: \
         look at `postrider status` for who holds them up.",
    /// The database gives keys other partitions than it did when the tables were made.
    PartitionsMoved = 1011,
        "Nothing was read or written. New events of a key would go to another partition than those \
         before them, and could overtake them. Go back to the server version that made the tables, \
         or run `postrider repair partitions`.",
    /// The outbox's sequence hands out numbers in advance.
    SequenceCached = 1012,
        "Nothing was read or written. A number that is drawn in advance can come after higher ones \
         were passed, and its event would be missed. Set the sequence to CACHE 1, and then run \
         `postrider reconcile`.",
    /// A pooler hands the store's sessions to others.
    SessionsShared = 1013,
        "Nothing is lost: statements are sent unprepared, and commits are found by polling. Let the \
         store connect to the server itself or to a pool in session mode, or set `pooler = \
         \"transaction\"` to say that it is meant.",
    /// The table for events that no table was made for has grown large.
    DefaultTableGrew = 1014,
        "Nothing is lost, and nothing waits: its events are delivered as others. Let a relay run that \
         may alter the tables; it splits the table off within minutes.",
    /// As many events of a destination wait as may, and nothing new of it is read.
    WaitingFull = 1015,
        "Nothing is lost: committed events stay pending, and what waits is tried again. Find out with \
         `postrider dead` why so many wait, and redrive or discard them; reading goes on by itself.",
    /// Business items carry stamps and are pending, and nobody was told how to make events of them.
    MappingMissing = 1016,
        "Nothing is lost: the items stay pending. Name the attributes of their events in \
         [dynamodb.derived] of the relay's configuration.",
    /// The same event id came with another payload.
    PayloadMismatch = 1101,
        "The handler was not called. Two different events carry one id: find the producer that \
         reuses ids.",
    /// This relay's definition of a destination is not the one in the store.
    DefinitionOutdated = 1201,
        "Its events wait. Start this relay with the current definition, or apply the new \
         definition to the store: `postrider destinations apply`.",
    /// No route matches the event.
    NoRoute = 1202,
        "The event is kept as a dead letter. Add a route that matches it, or one that drops it.",
    /// The lease is held by another relay.
    LeaseHeld = 1203,
        "Events are delivered by the relay that holds the lease. Stop it first, or let it run.",
    /// No relay is alive to carry out a request.
    NoRelay = 1204,
        "The request is written down, and nothing was changed yet. Start a relay on this store: it \
         carries the request out.",
    /// The history that was asked for is deleted.
    HistoryGone = 1205,
        "Nothing was changed. Retention has deleted what was asked for; the message names the \
         oldest moment that is left.",
    /// The destination does not accept our credentials.
    Unauthorized = 1301,
        "Its events wait and no attempt is counted. Correct the credentials.",
    /// The topic, queue, or subject does not exist.
    Unroutable = 1302,
        "Its events wait and no attempt is counted. Create the topic, or correct the route's \
         template.",
    /// The endpoint said that it is gone.
    EndpointDisabled = 1303,
        "Its events wait, in order, and no attempt is counted. When the partner is ready again, \
         run `postrider destinations enable NAME ENDPOINT`.",
    /// The endpoint's address is one that may not be called.
    AddressRefused = 1304,
        "Its events wait and no attempt is counted. The endpoint's name leads to a private, \
         loopback, or link-local address; if that is meant, set `allow_private` for this \
         destination.",
    /// An endpoint refuses every event of one type.
    TypeHeld = 1305,
        "Its events wait as held, and no attempt is counted; other types flow. Mend what refuses the \
         type, as the answer says: one event is tried now and then, and the others follow.",
    /// The configuration contradicts itself.
    Config = 1401,
        "Nothing was started. Correct the value that the message names.",
    /// The broker keeps acknowledged events in one place alone, or in memory.
    CopiesFew = 1501,
        "Nothing is lost yet. What the broker acknowledged, the relay does not send again: give the \
         stream or topic three replicas on disk, or accept that a lost machine loses its events.",
    /// The broker lets go of events that nobody has read.
    KeptTooShort = 1502,
        "Nothing is lost yet. What the broker drops before it is read, nobody sends again by itself: \
         let it refuse new events when it is full, and keep events longer than a consumer may be away.",
    /// The broker forgets ids sooner than an event may be sent again.
    DuplicatesKept = 1503,
        "Nothing is lost. What is sent again later than that is there twice; an inbox absorbs it. Let \
         the broker remember ids for as long as the route's attempts take.",
    /// Events are sent where nobody says that they arrived.
    Unacknowledged = 1504,
        "Events may be lost on the way or on arrival, and nobody would know. Send them where the \
         broker keeps and acknowledges them.",
    /// The broker will soon take nothing more.
    NearlyFull = 1505,
        "Nothing is lost: when the broker is full, events wait in the outbox. Make room, or raise its \
         limit.",
    /// A replica that lacks acknowledged events may become the one that counts.
    ElectedUnclean = 1506,
        "Nothing is lost yet. Do not let a replica that lags take the lead: a topic without a leader \
         loses nothing, its events wait.",
    /// The topic acknowledges only while all of its replicas are there.
    SpareNone = 1507,
        "Nothing is lost: while one server is away, events wait in the outbox. Want one replica fewer \
         in sync than there are.",
    /// The broker takes less than an event may weigh.
    LimitLow = 1508,
        "An event that is larger becomes a dead letter when it is published. Raise the broker's limit, \
         or let the application enqueue nothing larger.",
    /// The topic needs keys, and records have none.
    KeysMissing = 1509,
        "Each event is refused for good and becomes a dead letter, kept whole. Give records a key, and \
         redrive the dead letters.",
    /// A group takes fewer partitions than there are.
    PartitionsUntaken = 1510,
        "Nothing is lost yet: what is in the other partitions waits in the broker until it is too old \
         for it. Let the group's consumers name as many partitions as the route does.",
    /// Routes give the records of one topic different keys.
    KeysApart = 1511,
        "Nothing is lost. Events of one ordering key that come by different routes may overtake each other in \
         the topic. Give these routes the same record key.",
    /// A broker is not set up for what is sent to it.
    BrokerUnfit = 1512,
        "Events that it refuses wait in the outbox, or are kept as dead letters. Change the \
         broker as the finding says.",
    /// A broker's version is known to lose what it acknowledged.
    ServerOutdated = 1513,
        "Nothing is lost yet. Beside a fault of one of its servers a broker of this version may lose events \
         that it acknowledged, and the relay does not send them again by itself: bring it up to date.",
    /// A claim in the inbox and its delivery at the broker do not end together.
    ClaimsApart = 1601,
        "Nothing is lost, and nothing is acted on twice. What a crashed sidecar had in work comes back too \
         early, and is left alone, or later than it could. Let the broker give it back a little after the \
         lease has ended.",
    /// Something could not be examined.
    Unexamined = 1701,
        "What it holds is not known, and nothing was changed. Mend what the message names, or let \
         the user of `doctor` see it, and examine it again.",
    /// What is committed may be taken back by a crash.
    DurabilityOff = 1702,
        "Nothing is lost before the machine crashes. Turn on what forces commits to the disk, as \
         the finding says.",
    /// A standby is missing, or lies far behind.
    StandbyShort = 1703,
        "What was committed is on the primary. Bring the standby back, or look at its disk and \
         its network.",
    /// Old rows cannot be cleaned away.
    CleanupHeld = 1704,
        "Nothing is lost, and events flow. End the oldest transaction, then vacuum the tables \
         that the finding names.",
    /// The write-ahead log cannot be let go.
    LogKept = 1705,
        "Nothing is lost. Start whoever reads the log, or let it be forgotten, before the log \
         fills the disk.",
    /// Nobody cleans dead rows away.
    AutovacuumOff = 1706,
        "Nothing is lost, and the tables grow and get slow. Turn autovacuum on, for the server \
         and for the tables that are named.",
    /// Triggers or indexes of the store's tables are missing.
    GuardsMissing = 1707,
        "Nothing is lost yet. Take what is missing over from `postrider init --print`.",
    /// Somebody may write past the rules of the outbox.
    WritersUnchecked = 1708,
        "Nothing is lost by that alone. Let producers write only the columns that are theirs, and \
         keep the checks on.",
    /// New events go to a table that was not made for them.
    TablesShort = 1709,
        "Nothing is lost, and nothing waits: its events are delivered as others. Let a relay run \
         that may create tables.",
    /// The store grows, and its room ends.
    StoreGrows = 1710,
        "Nothing is lost yet: when the disk is full, producers fail. Set a retention for the \
         relay, or give the store more room.",
    /// The inbox may forget an event before it comes for the last time.
    HorizonShort = 1711,
        "Nothing is done twice yet. Keep rows of the inbox for longer than any broker, dead \
         letter, or replay may bring their events again.",
    /// Claims of the inbox were left behind.
    ClaimsStuck = 1712,
        "Nothing is lost while the messages are at their broker: the next delivery takes the \
         claim over. Start the consumer, and look at its queue.",
    /// The clocks of the store and of a program are apart.
    ClocksApart = 1713,
        "Nothing is lost: leases go by the store's clock alone. Set the clocks of both machines \
         by NTP.",
    /// Events wait, and no relay is alive.
    RelayAbsent = 1714,
        "Committed events stay in the store. Start a relay on this store; it delivers them in \
         order.",
    /// Relays die at their work.
    RelaysDie = 1715,
        "Committed events stay in the store. Look at the end of the relays' logs, and at the \
         memory that they may use.",
    /// Somebody paused a destination or a partition, and events wait.
    FlowPaused = 1716,
        "Nothing is lost: events wait in order. Resume it with the command that the finding has.",
    /// Events were given up.
    DeadLetters = 1717,
        "Nothing is lost: dead letters are kept whole. Find out why with `postrider dead ls`, \
         then redrive or discard them.",
    /// The way to the server can be listened to, or leads to another.
    ServerUnproven = 1718,
        "Nothing is known to be lost. Let the connection prove the server's certificate: \
         `sslmode=verify-full` in the address.",
    /// Readers and the writer of the file wait for each other.
    ReadersBlocked = 1719,
        "Nothing is lost. Stop what has the file open, and run `postrider init` on it: it sets \
         the journal mode to WAL.",
    /// A table of DynamoDB is not as relays need it.
    TablesUnfit = 1720,
        "Nothing is lost: events stay in the table. Change the table as the finding says; \
         `postrider init --print` has what it should be.",
    /// A table's capacity is set, and what is beyond it is refused.
    CapacityShort = 1721,
        "Nothing is lost: events wait, and calls are tried again. Switch the table to on-demand, \
         or scale it with its load.",
    /// A table of your own is read as a source, and lacks an index or a number.
    OwnTableSlow = 1722,
        "Nothing is lost. Add the index or the column that the finding has.",
    /// Our certificate for a broker's servers ends soon, or has ended.
    CertificateEnds = 1723,
        "Nothing is lost: once it has ended, events wait until the servers let the program in again. Renew \
         the certificate, and let the program read it.",
}

impl Code {
    /// The code that a kind of error carries by default.
    pub const fn of_kind(kind: ErrorKind) -> Option<Code> {
        Some(match kind {
            ErrorKind::SchemaMissing => Code::SchemaMissing,
            ErrorKind::SchemaTooNew => Code::SchemaTooNew,
            ErrorKind::ReadOnly => Code::ReadOnly,
            ErrorKind::DiskFull => Code::DiskFull,
            ErrorKind::Corrupt => Code::Corrupt,
            ErrorKind::Rewound => Code::Rewound,
            ErrorKind::Busy => Code::Busy,
            ErrorKind::Backpressure => Code::Backpressure,
            ErrorKind::Unauthorized => Code::Unauthorized,
            ErrorKind::Unroutable => Code::Unroutable,
            ErrorKind::Config => Code::Config,
            _ => return None,
        })
    }
}

impl FromStr for Code {
    type Err = Error;

    /// Reads `PR-1001`, whatever its case, or the number alone.
    fn from_str(text: &str) -> Result<Code, Error> {
        let upper = text.trim().to_ascii_uppercase();
        let number = upper.strip_prefix("PR-").unwrap_or(&upper);
        let found = Code::ALL.iter().find(|code| (**code as u16).to_string() == number);
        found.copied().ok_or_else(|| {
            let known: Vec<String> = Code::ALL.iter().map(Code::to_string).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let nearest = crate::template::nearest(&upper, &known);
            Error::new(ErrorKind::Invalid, "find code").message(format!(
                "there is no code `{}`; did you mean {nearest}?",
                text.escape_debug()
            ))
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PR-{}", *self as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        let lines = text.lines().map(|line| line.trim_start_matches("> "));
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_code_has_a_page_with_its_name_and_its_advice() {
        for code in Code::ALL {
            let page = code.page();
            assert!(page.starts_with(&format!("# {code} {code:?}\n")), "{code}");
            assert!(plain(page).contains(&plain(code.advice())), "{code}: {}", code.advice());
            assert_eq!(code.to_string().parse::<Code>().unwrap(), *code);
        }
    }

    #[test]
    fn a_code_is_read_however_it_is_written() {
        assert_eq!("pr-1004".parse::<Code>().unwrap(), Code::DiskFull);
        assert_eq!("1004".parse::<Code>().unwrap(), Code::DiskFull);
        let unknown = "PR-1904".parse::<Code>().unwrap_err().to_string();
        assert!(unknown.contains("did you mean PR-1004"), "{unknown}");
    }
}

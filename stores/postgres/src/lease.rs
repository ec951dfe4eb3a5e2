//! Who owns a partition, decided by the database's clock in one statement.
//!
//! Invariants: the token grows at every acquisition and never goes back; a write under a lease takes
//! effect only in the statement that locked the lease's row with its owner and token. The statements are
//! functions of the schema (`sql/schema/001/50_lease.sql`), so that nothing is locked while a client thinks.

use postrider_core::lease::{
    AcquireRequest, Acquired, Census, Granted, HeldLease, Presence, Renewed,
};
use postrider_core::source::RenewRequest;
use postrider_core::{Hindrance, Lease, PartitionId, RelayId, Result};
use tokio_postgres::Row;

use crate::open;
use crate::schema;
use crate::sessions::Line;
use crate::sql::{Sql, sql};
use crate::store::PostgresStore;
use crate::typed::{micros, params, partition, signed, span, unsigned};

const ACQUIRE: Sql = sql!("lease/acquire");
const RENEW: Sql = sql!("lease/renew");
const RELEASE: Sql = sql!("lease/release");
const REPORT: Sql = sql!("lease/report");

/// Announces the asker, and grants what is free or lost, up to what is wanted. A paused partition is
/// granted to nobody, and whoever still holds it is about to let it go.
///
/// # Errors
/// `SchemaTooNew` if a migration replaced the tables that does not serve this program; nothing is granted then, and
/// `renew` keeps nothing.
pub(crate) async fn acquire(store: &PostgresStore, request: &AcquireRequest) -> Result<Acquired> {
    let session = store.sessions().line(Line::Lease, "acquire").await?;
    store.sessions().home().enter(&session).await?;
    if !store.maintained().counters_were_checked() {
        open::check_counters(&session).await?;
        store.maintained().counters_checked();
    }
    let presence = request.presence.as_ref();
    let dead = request.dead.as_ref();
    let found = session
        .rows(
            "acquire",
            &ACQUIRE,
            params![
                request.owner.as_str(),
                micros(request.lease_duration),
                i32::from(request.wanted),
                micros(request.free_for),
                presence.map(|presence| &*presence.host),
                presence.map(|presence| &*presence.boot),
                presence.map(|presence| &*presence.path),
                request.current,
                dead.map(|lease| partition(lease.partition)),
                dead.map(|lease| lease.owner.as_str()),
                dead.map(|lease| signed(lease.token)),
                i64::from(schema::VERSION)
            ],
        )
        .await?;
    // The census is there always.
    if let Some(serves) = found.first().and_then(|row| row.get::<_, Option<i64>>(9))
        && serves > i64::from(schema::VERSION)
    {
        // Replaced under a relay at work; who starts is told so before.
        let version = schema::found(&session).await?.version;
        return Err(schema::too_new(version, schema::VERSION));
    }
    let mut answer = Acquired::default();
    for row in &found {
        match row.get(0) {
            "census" => answer.census = census(row.get(3), row.get(4)),
            "granted" => {
                let takeovers = u32::try_from(row.get::<_, i32>(8)).unwrap_or_default();
                answer.granted.push(Granted { lease: lease(row)?, takeovers });
            }
            _ => answer.held.push(held(row)?),
        }
    }
    answer.granted.sort_by_key(|granted| granted.lease.partition);
    Ok(answer)
}

fn lease(row: &Row) -> Result<Lease> {
    Ok(Lease {
        partition: of_partition(row.get(1)),
        owner: RelayId::new(row.get::<_, &str>(2))?,
        token: unsigned(row.get(3)),
    })
}

fn held(row: &Row) -> Result<HeldLease> {
    let (host, boot, path): (Option<String>, Option<String>, Option<String>) =
        (row.get(5), row.get(6), row.get(7));
    Ok(HeldLease {
        lease: lease(row)?,
        expires_in: span(row.get(4)),
        presence: match (host, boot, path) {
            (Some(host), Some(boot), Some(path)) => Some(Presence { host, boot, path }),
            _ => None,
        },
    })
}

fn census(relays: i64, current: i64) -> Census {
    let count = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Census { relays: count(relays), current: count(current) }
}

/// A partition's number out of the database.
pub(crate) fn of_partition(number: i16) -> PartitionId {
    PartitionId(u16::try_from(number).unwrap_or_default())
}

/// Prolongs the leases that still stand, and announces the asker.
pub(crate) async fn renew(store: &PostgresStore, request: &RenewRequest) -> Result<Renewed> {
    let session = store.sessions().line(Line::Lease, "renew").await?;
    let own = request.leases.iter().filter(|lease| lease.owner == request.owner);
    let (partitions, tokens): (Vec<i16>, Vec<i64>) =
        own.map(|lease| (partition(lease.partition), signed(lease.token))).unzip();
    let found = session
        .rows(
            "renew",
            &RENEW,
            params![
                request.owner.as_str(),
                micros(request.lease_duration),
                request.current,
                partitions,
                tokens,
                i64::from(schema::VERSION)
            ],
        )
        .await?;
    let mut answer =
        Renewed { saves_apart: store.maintained().saves_apart(), ..Renewed::default() };
    for row in &found {
        match row.get::<_, Option<i16>>(0) {
            None => {
                answer.definitions = unsigned(row.get(1));
                answer.census = census(row.get(2), row.get(3));
            }
            Some(place) => answer.kept.push(Lease {
                partition: of_partition(place),
                owner: request.owner.clone(),
                token: unsigned(row.get(1)),
            }),
        }
    }
    Ok(answer)
}

/// Keeps what a relay says of itself, in the row that goes with it.
pub(crate) async fn report(
    store: &PostgresStore,
    relay: &RelayId,
    hindrances: &[Hindrance],
) -> Result<()> {
    let session = store.sessions().line(Line::Lease, "report").await?;
    let told = Hindrance::write(hindrances);
    session.execute("report", &REPORT, params![relay.as_str(), told]).await.map(drop)
}

/// Lets leases go. Those that are lost already are not touched.
pub(crate) async fn release(store: &PostgresStore, leases: &[Lease]) -> Result<()> {
    let session = store.sessions().line(Line::Lease, "release").await?;
    let partitions: Vec<i16> = leases.iter().map(|lease| partition(lease.partition)).collect();
    let owners: Vec<String> = leases.iter().map(|lease| lease.owner.as_str().to_owned()).collect();
    let tokens: Vec<i64> = leases.iter().map(|lease| signed(lease.token)).collect();
    session.execute("release", &RELEASE, params![partitions, owners, tokens]).await.map(drop)
}

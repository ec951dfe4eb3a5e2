//! Who owns a partition, decided by the database's clock in one write.
//!
//! Invariants: the token grows at every acquisition and never goes back; a write under a lease
//! takes effect only in the transaction that saw the lease's owner and token in their row.

use postrider_core::lease::{
    AcquireRequest, Acquired, Census, Granted, HeldLease, Presence, Renewed,
};
use postrider_core::source::RenewRequest;
use postrider_core::{Error, ErrorKind, KeyHash, Lease, PartitionId, RelayId, Result};
use rusqlite::{Connection, Row, params};

use crate::error::During;
use crate::store::{millis, now, signed, span, unsigned};
use crate::{schema, sql};

/// A row of `outbox_lease`.
struct Standing {
    partition: i64,
    owner: Option<String>,
    token: i64,
    expires_at: i64,
    free_since: i64,
    presence: Option<Presence>,
    takeovers: u32,
    cursors: i64,
    /// An operator said that nobody is to own it.
    paused: bool,
}

impl Standing {
    fn read(row: &Row<'_>) -> rusqlite::Result<Standing> {
        let (host, boot, path): (Option<_>, Option<_>, Option<_>) =
            (row.get(5)?, row.get(6)?, row.get(7)?);
        Ok(Standing {
            partition: row.get(0)?,
            owner: row.get(1)?,
            token: row.get(2)?,
            expires_at: row.get(3)?,
            free_since: row.get(4)?,
            presence: match (host, boot, path) {
                (Some(host), Some(boot), Some(path)) => Some(Presence { host, boot, path }),
                _ => None,
            },
            takeovers: row.get(8)?,
            cursors: row.get(9)?,
            paused: row.get(10)?,
        })
    }

    fn lease(&self, owner: &str) -> Result<Lease> {
        Ok(Lease {
            partition: PartitionId(u16::try_from(self.partition).unwrap_or(u16::MAX)),
            owner: RelayId::new(owner)?,
            token: unsigned(self.token),
        })
    }

    /// Whether this is the lease whose holder was proved dead.
    fn is(&self, lease: &Lease) -> bool {
        self.partition == i64::from(lease.partition.0)
            && self.owner.as_deref() == Some(lease.owner.as_str())
            && self.token == signed(lease.token)
    }
}

/// What a row is to the one who asks.
enum Availability {
    /// Nobody's, since then.
    Free(i64),
    /// Its owner did not let go, and its time is over since then.
    Lost(i64),
    /// Somebody else's, or the asker's own: it has it already.
    Held,
}

fn availability(standing: &Standing, request: &AcquireRequest, now: i64) -> Availability {
    match standing.owner.as_deref() {
        None => Availability::Free(standing.free_since),
        // Whoever is dead is dead in all his partitions.
        Some(owner) if request.dead.as_ref().is_some_and(|dead| dead.owner.as_str() == owner) => {
            Availability::Lost(standing.expires_at.min(now))
        }
        Some(_) if standing.expires_at <= now => Availability::Lost(standing.expires_at),
        Some(_) => Availability::Held,
    }
}

/// Announces the asker, and grants what is free or lost, up to what is wanted. A paused partition is
/// granted to nobody, and whoever still holds it is about to let it go.
///
/// # Errors
/// `SchemaTooNew` if the tables were replaced by such as do not serve this program; `renew` keeps nothing then.
pub(crate) fn acquire(connection: &Connection, request: &AcquireRequest) -> Result<Acquired> {
    schema::check_served(connection)?;
    let now = now(connection)?;
    let standings = standings(connection)?;
    let mut request = request.clone();
    // What is proved of another lease than the one that stands proves nothing.
    request.dead = request.dead.filter(|dead| standings.iter().any(|standing| standing.is(dead)));
    let request = &request;
    if let Some(dead) = &request.dead {
        // He gets no share any more.
        connection
            .prepare_cached(sql::LEASE_FORGET_DEAD)
            .and_then(|mut statement| statement.execute([dead.owner.as_str()]))
            .during("acquire")?;
    }
    let census =
        announce(connection, &request.owner, request.current, now, request.lease_duration)?;
    let mut answer = Acquired { census, ..Acquired::default() };
    let mut wanted = usize::from(request.wanted);
    for standing in standings.into_iter().filter(|standing| !standing.paused) {
        let free_since = match availability(&standing, request, now) {
            Availability::Free(since) | Availability::Lost(since) => since,
            Availability::Held => {
                answer.held.push(held(&standing, now)?);
                continue;
            }
        };
        // A clock that stepped back since then makes it free in the future: free all the same.
        let long_enough = now.saturating_sub(free_since).max(0) >= millis(request.free_for);
        if wanted > 0 && long_enough {
            wanted -= 1;
            answer.granted.push(grant(connection, &standing, request, now)?);
        }
    }
    Ok(answer)
}

fn standings(connection: &Connection) -> Result<Vec<Standing>> {
    let mut statement = connection.prepare_cached(sql::LEASE_READ).during("acquire")?;
    let rows = statement
        .query_map((), Standing::read)
        .and_then(Iterator::collect::<rusqlite::Result<_>>)
        .during("acquire")?;
    Ok(rows)
}

fn held(standing: &Standing, now: i64) -> Result<HeldLease> {
    Ok(HeldLease {
        lease: standing.lease(standing.owner.as_deref().unwrap_or_default())?,
        expires_in: span(now, standing.expires_at),
        presence: standing.presence.clone(),
    })
}

fn grant(
    connection: &Connection,
    standing: &Standing,
    request: &AcquireRequest,
    now: i64,
) -> Result<Granted> {
    let cursors = cursors(connection, standing.partition)?;
    let takeovers = match availability(standing, request, now) {
        Availability::Lost(_) if cursors == standing.cursors => standing.takeovers + 1,
        // The one before got further before it died: this is the first at this position.
        Availability::Lost(_) => 1,
        Availability::Free(_) | Availability::Held => 0,
    };
    let presence = request.presence.as_ref();
    let token: i64 = connection
        .prepare_cached(sql::LEASE_GRANT)
        .and_then(|mut statement| {
            let row = params![
                standing.partition,
                request.owner.as_str(),
                now.saturating_add(millis(request.lease_duration)),
                presence.map(|presence| &*presence.host),
                presence.map(|presence| &*presence.boot),
                presence.map(|presence| &*presence.path),
                takeovers,
                cursors,
            ];
            statement.query_row(row, |row| row.get(0))
        })
        .during("acquire")?;
    let mut lease = standing.lease(request.owner.as_str())?;
    lease.token = unsigned(token);
    Ok(Granted { lease, takeovers })
}

/// A digest of where all cursors of a partition stand.
fn cursors(connection: &Connection, partition: i64) -> Result<i64> {
    let mut statement = connection.prepare_cached(sql::LEASE_POSITIONS).during("acquire")?;
    let mut rows = statement.query([partition]).during("acquire")?;
    let mut text = String::new();
    while let Some(row) = rows.next().during("acquire")? {
        let (destination, position): (String, i64) = row.try_into().during("acquire")?;
        text.push_str(&format!("{destination}={position};"));
    }
    Ok(KeyHash::of(&text).0.cast_signed())
}

/// Prolongs the leases that still stand, and announces the asker.
pub(crate) fn renew(connection: &Connection, request: &RenewRequest) -> Result<Renewed> {
    let now = now(connection)?;
    let until = now.saturating_add(millis(request.lease_duration));
    let mut kept = Vec::new();
    let mut statement = connection.prepare_cached(sql::LEASE_RENEW).during("renew")?;
    let served = match schema::check_served(connection) {
        Err(error) if error.kind() == ErrorKind::SchemaTooNew => false,
        checked => checked.map(|()| true)?,
    };
    for lease in request.leases.iter().filter(|_| served) {
        let renewed = statement
            .execute(params![lease.partition.0, lease.owner.as_str(), signed(lease.token), until])
            .during("renew")?;
        if renewed == 1 {
            kept.push(lease.clone());
        }
    }
    Ok(Renewed {
        kept,
        census: announce(connection, &request.owner, request.current, now, request.lease_duration)?,
        definitions: schema::read_number(connection, "definitions_version")?,
        saves_apart: std::time::Duration::ZERO,
    })
}

/// Lets leases go. Those that are lost already are not touched.
pub(crate) fn release(connection: &Connection, leases: &[Lease]) -> Result<()> {
    let now = now(connection)?;
    let mut statement = connection.prepare_cached(sql::LEASE_RELEASE).during("release")?;
    for lease in leases {
        statement
            .execute(params![lease.partition.0, lease.owner.as_str(), signed(lease.token), now])
            .during("release")?;
    }
    // Whoever let its last partition go is stopping, and is not to be counted on. If it is not, it
    // announces itself again within a heartbeat.
    let mut leave = connection.prepare_cached(sql::LEASE_LEAVE).during("release")?;
    for lease in leases {
        leave.execute([lease.owner.as_str()]).during("release")?;
    }
    Ok(())
}

fn announce(
    connection: &Connection,
    owner: &RelayId,
    current: bool,
    now: i64,
    lease_duration: std::time::Duration,
) -> Result<Census> {
    let until = now.saturating_add(millis(lease_duration));
    let announced = || -> rusqlite::Result<Census> {
        connection.prepare_cached(sql::LEASE_FORGET_RELAYS)?.execute([now])?;
        connection.prepare_cached(sql::LEASE_ANNOUNCE)?.execute(params![
            owner.as_str(),
            until,
            current
        ])?;
        connection
            .prepare_cached(sql::LEASE_CENSUS)?
            .query_row((), |row| Ok(Census { relays: row.get(0)?, current: row.get(1)? }))
    };
    announced().during("announce")
}

/// Keeps what a relay says of itself, in the row that goes with it.
pub(crate) fn report(connection: &Connection, relay: &RelayId, told: &str) -> Result<()> {
    let mut keep = connection.prepare_cached(sql::LEASE_REPORT).during("report")?;
    keep.execute(params![relay.as_str(), told]).during("report").map(drop)
}

/// Refuses a write whose lease was lost. Called inside the transaction of that write.
pub(crate) fn fence(connection: &Connection, lease: &Lease, operation: &'static str) -> Result<()> {
    if stands(connection, lease).during(operation)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Fenced, operation)
        .message("the lease was taken over; nothing was written")
        .context("partition", lease.partition)
        .context("owner", &lease.owner)
        .context("token", lease.token))
}

/// Whether a lease has its owner and token in its row still.
pub(crate) fn stands(connection: &Connection, lease: &Lease) -> rusqlite::Result<bool> {
    let row = params![lease.partition.0, lease.owner.as_str(), signed(lease.token)];
    connection.prepare_cached(sql::LEASE_FENCE)?.exists(row)
}

/// The partitions that an operator paused.
pub(crate) fn paused(connection: &Connection) -> Result<Vec<PartitionId>> {
    connection
        .prepare_cached(sql::LEASE_PAUSED)
        .and_then(|mut statement| {
            let rows = statement.query_map((), |row| row.get(0).map(PartitionId))?;
            rows.collect()
        })
        .during("destinations")
}

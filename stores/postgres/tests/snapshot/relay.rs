//! A relay reduced to its calls on the real store: it takes partitions, reads in pages, settles a part of
//! what it read, hands partitions over, and dies.
//!
//! What it read counts as delivered. What was read and not settled when a partition was given up may be
//! read again; nothing else may.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::lease::{AcquireRequest, Acquired};
use postrider_core::source::{FetchRequest, FetchedRow, OutboxSource};
use postrider_core::waiting::{Passed, RowRef, Settlement, SettlementPart};
use postrider_core::{Cursor, Error, ErrorKind, Lease, RelayId};
use postrider_postgres::PostgresStore;
use uuid::Uuid;

use crate::place::Read;
use crate::record::{Facts, Record, lock};
use crate::shop::{Shop, here};

/// Longer than any test: such a lease ends by death or release alone.
const LONG: Duration = Duration::from_secs(3_600);

/// So many turns a drain takes at most.
const TURNS_MAX: usize = 20_000;

/// A partition as its owner remembers it.
#[derive(Debug)]
struct Owned {
    lease: Lease,
    /// Where the cursor is saved, and how far it was read.
    saved: Cursor,
    read: Cursor,
    unsettled: Vec<(RowRef, Cursor)>,
    /// Sent and not answered: to be sent again as it was.
    unanswered: Option<(Settlement, usize)>,
}

/// One relay with a handle of its own.
pub(crate) struct Relay {
    pub(crate) store: PostgresStore,
    owner: RelayId,
    owned: BTreeMap<u16, Owned>,
    /// Partitions that it lost without noticing.
    stale: Vec<Owned>,
    /// It is the last one: whoever else holds something has ended.
    alone: bool,
    /// Whether the database answered all of the last turn.
    pub(crate) answered: bool,
    record: Arc<Record>,
}

impl Relay {
    pub(crate) fn new(name: &str, shop: &Shop) -> Relay {
        Relay::with(name, shop, &Arc::new(Record::default()))
    }

    /// One of several relays that share a record.
    pub(crate) fn with(name: &str, shop: &Shop, record: &Arc<Record>) -> Relay {
        let owner = RelayId::new(format!("{name}-{}", Uuid::now_v7().simple())).expect("a name");
        let (owned, stale, record) = (BTreeMap::new(), Vec::new(), Arc::clone(record));
        Relay { store: shop.store(), owner, owned, stale, alone: false, answered: true, record }
    }

    pub(crate) fn read(&self) -> Vec<Read> {
        self.record.reads()
    }

    pub(crate) fn facts(&self) -> Facts {
        self.record.facts()
    }

    pub(crate) fn owns(&self) -> usize {
        self.owned.len()
    }

    /// The numbers of the partitions it owns.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        self.owned.keys().copied().collect()
    }

    /// Takes so many partitions more, one of a dead relay among them, and loads them.
    pub(crate) async fn acquire(&mut self, wanted: u16) {
        let orphan = {
            let mut facts = self.record.facts_mut();
            (!facts.orphans.is_empty()).then(|| facts.orphans.remove(0))
        };
        let request = AcquireRequest {
            owner: self.owner.clone(),
            lease_duration: LONG,
            wanted,
            free_for: Duration::ZERO,
            presence: None,
            current: true,
            dead: orphan.clone(),
        };
        let acquired = match self.store.acquire(&request).await {
            Ok(acquired) => acquired,
            Err(error) => {
                self.record.facts_mut().orphaned(orphan);
                return self.note("acquire", &error);
            }
        };
        // One of its own that it does not know: the answer was lost when the server went away.
        let is_unknown = |lease: &&Lease| {
            lease.owner == self.owner && !self.owned.contains_key(&lease.partition.0)
        };
        let unknown: Vec<Lease> =
            acquired.held.iter().map(|held| &held.lease).filter(is_unknown).cloned().collect();
        for lease in self.granted(orphan, acquired) {
            self.load(lease).await;
        }
        if !unknown.is_empty() {
            self.record.facts_mut().orphaned(unknown);
            self.die();
        }
    }

    /// Writes down who died and who took over, and returns what was granted. Whoever is proved dead is dead in
    /// all his partitions.
    fn granted(&self, orphan: Option<Lease>, acquired: Acquired) -> Vec<Lease> {
        let leases: Vec<Lease> = acquired.granted.into_iter().map(|it| it.lease).collect();
        let mut facts = self.record.facts_mut();
        facts.orphaned(orphan.clone());
        for lease in &leases {
            let is_of = |it: &Lease| it.partition == lease.partition && it.token < lease.token;
            let (taken, kept) = std::mem::take(&mut facts.orphans).into_iter().partition(is_of);
            let taken: Vec<Lease> = taken;
            facts.orphans = kept;
            for dead in taken {
                facts.taken.insert((dead.partition.0, dead.token));
                facts.takeovers += 1;
            }
        }
        // One that somebody else took before is over; one that nobody could take now stays an orphan.
        if let Some(orphan) = orphan.filter(|_| !self.alone) {
            let stands = acquired.held.iter().any(|held| held.lease == orphan);
            facts.orphans.retain(|it| stands || *it != orphan);
        }
        if self.alone {
            let others = acquired.held.into_iter().map(|held| held.lease);
            facts.orphaned(others.filter(|lease| lease.owner != self.owner));
        }
        leases
    }

    async fn load(&mut self, lease: Lease) {
        match self.store.load(&lease, &here()).await {
            Ok(loaded) => {
                let (saved, read) = (loaded.cursor.clone(), loaded.cursor);
                let partition = lease.partition.0;
                let owned = Owned { lease, saved, read, unsettled: Vec::new(), unanswered: None };
                self.owned.insert(partition, owned);
            }
            Err(error) => {
                self.note("load", &error);
                self.record.facts_mut().orphaned([lease]);
            }
        }
    }

    /// One page of each partition that it owns. Returns how much was read, and whether there is certainly
    /// nothing left.
    pub(crate) async fn turn(&mut self, rows_max: u32) -> (usize, bool) {
        let requests = self.owned.values().map(|it| it.after(rows_max)).collect();
        self.fetch(requests).await
    }

    /// The same, but only what is committed now, as in a drain.
    pub(crate) async fn turn_until_now(&mut self, rows_max: u32) {
        let mut requests: Vec<FetchRequest> = Vec::new();
        for owned in self.owned.values() {
            match self.store.head(&owned.lease).await {
                Ok(head) => {
                    requests.push(FetchRequest { until: Some(head), ..owned.after(rows_max) });
                }
                Err(error) => self.note("head", &error),
            }
        }
        // Several pages, the later ones behind a head that is older than they are.
        for _ in 0..3 {
            for request in &mut requests {
                if let Some(owned) = self.owned.get(&request.lease.partition.0) {
                    request.after = owned.read.clone();
                }
            }
            requests.retain(|request| self.owned.contains_key(&request.lease.partition.0));
            self.fetch(requests.clone()).await;
        }
    }

    async fn fetch(&mut self, requests: Vec<FetchRequest>) -> (usize, bool) {
        let pages = requests.iter().map(|request| self.store.fetch(request));
        let pages = futures_util::future::join_all(pages).await;
        let (mut found, mut finished) = (0, true);
        self.answered = true;
        for (request, page) in requests.iter().zip(pages) {
            let partition = request.lease.partition.0;
            match page {
                Ok(page) => {
                    assert!(page.rows.len() <= request.rows_max as usize, "a page keeps its limit");
                    found += page.rows.len();
                    finished &= page.rows.is_empty() && !page.more;
                    self.deliver(partition, &page.rows, page.end);
                }
                Err(error) => {
                    (finished, self.answered) = (false, false);
                    self.note("fetch", &error);
                    self.outlive(&error);
                }
            }
        }
        (found, finished)
    }

    fn deliver(&mut self, partition: u16, rows: &[FetchedRow], end: Cursor) {
        // Another page of the same moment may have ended the process before it acts on this one.
        let Some(owned) = self.owned.get_mut(&partition) else { return };
        owned.read = end;
        let ascend = rows.windows(2).all(|pair| pair[0].row.seq < pair[1].row.seq);
        assert!(ascend, "a page is in the order of its numbers");
        let mut reads = lock(&self.record.reads);
        for row in rows {
            let id = Uuid::from_u128(row.row.id.as_u128());
            reads.push(Read { partition, seq: row.row.seq, id });
            owned.unsettled.push((row.row, row.cursor.clone()));
        }
        drop(reads);
        self.record.facts_mut().pages += 1;
    }

    /// Settles what it has read of a partition, but for the last so many. Whether that is written now.
    pub(crate) async fn settle(&mut self, partition: u16, but: usize) -> bool {
        let Some(owned) = self.owned.get_mut(&partition) else { return false };
        if owned.unanswered.is_none() {
            let count = owned.unsettled.len().saturating_sub(but);
            owned.unanswered = owned.settlement(count).map(|settlement| (settlement, count));
        }
        let Some((settlement, count)) = owned.unanswered.clone() else { return true };
        match self.store.settle(&settlement).await {
            Ok(()) => {
                owned.unanswered = None;
                owned.unsettled.drain(..count);
                let moved = settlement.parts[0].cursor.as_ref().expect("it moves");
                owned.saved = moved.1.clone();
                self.record.facts_mut().settlements += 1;
                true
            }
            Err(error) => {
                self.note("settle", &error);
                self.outlive(&error);
                false
            }
        }
    }

    /// What is done about an error: it waits and tries again, or begins anew.
    fn outlive(&mut self, error: &Error) {
        if !passes(error) {
            self.die();
        }
    }

    fn note(&self, operation: &str, error: &Error) {
        let what = format!("{operation}: {:?}", error.kind());
        *self.record.facts_mut().trouble.entry(what).or_default() += 1;
    }

    /// Stops as a killed process does, except that it may still believe to own what it did. What goes on is
    /// another process.
    pub(crate) fn die(&mut self) {
        let name = self.owner.as_str().split('-').next().unwrap_or("relay").to_owned();
        self.owner = RelayId::new(format!("{name}-{}", Uuid::now_v7().simple())).expect("a name");
        for (_, owned) in std::mem::take(&mut self.owned) {
            let mut facts = self.record.facts_mut();
            let given_up = owned.unsettled.iter().map(|(row, _)| Uuid::from_u128(row.id.as_u128()));
            facts.given_up.extend(given_up);
            facts.orphaned([owned.lease.clone()]);
            drop(facts);
            self.stale.push(owned);
        }
    }

    /// The dead one wakes up, and settles what it believes to own. Once it was taken over, it is refused.
    pub(crate) async fn wake_the_dead(&mut self) {
        let taken = self.record.facts().taken;
        let is_taken = |it: &Owned| taken.contains(&(it.lease.partition.0, it.lease.token));
        let (gone, kept) = std::mem::take(&mut self.stale).into_iter().partition(is_taken);
        self.stale = kept;
        let gone: Vec<Owned> = gone;
        for owned in gone {
            let settlement = owned.settlement(owned.unsettled.len());
            let unanswered = owned.unanswered.map(|(settlement, _)| settlement);
            let Some(settlement) = unanswered.or(settlement) else { continue };
            let refused = self.store.settle(&settlement).await.expect_err("the lease is lost");
            if !passes(&refused) {
                assert_eq!(refused.kind(), ErrorKind::Fenced, "{refused}");
                self.record.facts_mut().fenced += 1;
            }
        }
    }

    /// Settles everything of a partition, and lets it go.
    pub(crate) async fn hand_over(&mut self, partition: u16) {
        if !(self.settle(partition, 0).await && self.settle(partition, 0).await) {
            return;
        }
        let Some(owned) = self.owned.remove(&partition) else { return };
        match self.store.release(std::slice::from_ref(&owned.lease)).await {
            Ok(()) => self.record.facts_mut().handovers += 1,
            Err(error) => {
                self.note("release", &error);
                self.owned.insert(partition, owned);
                self.die();
            }
        }
    }

    pub(crate) async fn hand_all_over(&mut self) {
        for partition in self.partitions() {
            self.hand_over(partition).await;
        }
    }

    /// Takes every partition, reads and settles everything, and lets them go.
    pub(crate) async fn drain(&mut self) {
        self.alone = true;
        let partitions = usize::from(self.store.open().await.expect("it opens").partitions);
        for _ in 0..TURNS_MAX {
            if self.owns() < partitions {
                self.acquire(u16::MAX).await;
            }
            let (found, finished) = self.turn(1_000).await;
            for partition in self.partitions() {
                self.settle(partition, 0).await;
            }
            if finished && self.owns() == partitions {
                return self.hand_all_over().await;
            }
            if found == 0 {
                // waits: a server that starts tells nobody when it is ready
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        panic!("it does not come to an end: {:?}", self.facts());
    }
}

/// Whether the same call may succeed later.
fn passes(error: &Error) -> bool {
    [ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::Busy].contains(&error.kind())
}

impl Owned {
    fn after(&self, rows_max: u32) -> FetchRequest {
        FetchRequest {
            lease: self.lease.clone(),
            destinations: vec![here()],
            after: self.read.clone(),
            until: None,
            rows_max,
            bytes_max: 4 << 20,
        }
    }

    /// The settlement of the first so many; `None` if nothing moves.
    fn settlement(&self, count: usize) -> Option<Settlement> {
        let whole = count == self.unsettled.len();
        let to = match self.unsettled.get(count.checked_sub(1).unwrap_or(usize::MAX)) {
            Some((_, cursor)) if !whole => cursor.clone(),
            _ if whole => self.read.clone(),
            _ => return None,
        };
        if to == self.saved {
            return None;
        }
        let mut part = SettlementPart::new(here());
        part.cursor = Some((self.saved.clone(), to));
        part.passed =
            self.unsettled[..count].iter().map(|(row, _)| (*row, Passed::Acked)).collect();
        Some(Settlement { lease: self.lease.clone(), parts: vec![part] })
    }
}

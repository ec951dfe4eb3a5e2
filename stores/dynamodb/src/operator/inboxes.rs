//! Pages of the inbox.
//!
//! Invariant: one call looks at a bounded number of rows, and says where the next goes on. They come in the
//! table's own order: no index sorts them, because every claim would pay for it.

use std::time::Duration;

use postrider_core::operate::listing::{Gathering, misplaced};
use postrider_core::operate::{InboxFilter, InboxState, InboxView, Listed, PageRequest};
use postrider_core::{Result, Timestamp};

use super::inbox::{FORGOTTEN, FORGOTTEN_AT};
use super::scan::LOOKED_MAX;
use super::waiting::moment;
use crate::connection::call;
use crate::control::{PK, SK, key};
use crate::inbox::parts::Pointer;
use crate::inbox::row::{
    ATTEMPTS, EVENT_ID, HANDLER, PROCESSED, PROCESSED_AT, RECEIVED_AT, RELEASED, RESULT, SOURCE,
    STATUS, STEPS, TYPE, UNTIL,
};
use crate::item::{Item, number, text, truth};
use crate::store::{DynamoStore, now_ms};

/// Rows of one page of the scan.
const PAGE_ITEMS: i32 = 1_000;

/// Steps of one row that are named.
const STEPS_MAX: usize = 100;

/// A page of the inbox.
pub(super) async fn list(
    store: &DynamoStore,
    filter: &InboxFilter,
    page: &PageRequest,
) -> Result<Listed<InboxView>> {
    let mut gathering = Gathering::new(page.check()?);
    let table = &store.connection().names().inbox;
    let client = store.connection().tables().await;
    let mut from = page.after.as_deref().map(read_place).transpose()?;
    let mut looked = 0;
    loop {
        let scan =
            client.scan().table_name(table).limit(PAGE_ITEMS).set_exclusive_start_key(from.take());
        let found = call("inbox", table, scan.send()).await?;
        for item in found.items.unwrap_or_default() {
            looked += 1;
            let Some(view) = view(&item).filter(|view| passes(view, filter)) else { continue };
            if gathering.is_full() {
                return Ok(gathering.more());
            }
            gathering.push(view, place(&item));
        }
        let Some(next) = found.last_evaluated_key else { return Ok(gathering.end()) };
        if looked >= LOOKED_MAX {
            return Ok(gathering.more_after(place(&next)));
        }
        from = Some(next);
    }
}

fn place(item: &Item) -> String {
    let of = |name| text(item, name).unwrap_or_default();
    format!("{}\0{}", of(PK), of(SK))
}

fn read_place(text: &str) -> Result<Item> {
    let place = text.rsplit_once('\0').filter(|(pk, sk)| !pk.is_empty() && !sk.is_empty());
    place.map(|(pk, sk)| key(pk, sk)).ok_or_else(|| misplaced("inbox", text))
}

/// A row as a person sees it.
fn view(item: &Item) -> Option<InboxView> {
    let at = |name: &str| number::<i64>(item, name).map(moment);
    let until: i64 = number(item, UNTIL).unwrap_or_default();
    let left = u64::try_from(until.saturating_sub(now_ms())).ok().filter(|left| *left > 0);
    let state = match text(item, STATUS)? {
        FORGOTTEN => InboxState::Forgotten,
        PROCESSED => InboxState::Processed,
        _ if left.is_some() && !truth(item, RELEASED) => InboxState::Leased,
        _ => InboxState::Expired,
    };
    let of = |name: &str| text(item, name).unwrap_or_default().to_owned();
    let steps = item.get(STEPS).and_then(|steps| steps.as_m().ok()).into_iter().flatten();
    let mut steps: Vec<String> = steps.map(|(name, _)| name.clone()).collect();
    steps.sort();
    steps.truncate(STEPS_MAX);
    let result = item.get(RESULT).and_then(|result| result.as_b().ok());
    Some(InboxView {
        source: of(SOURCE),
        event_id: text(item, EVENT_ID)?.parse().ok()?,
        handler: of(HANDLER),
        event_type: of(TYPE),
        state,
        attempts: number(item, ATTEMPTS).unwrap_or_default(),
        received_at: at(RECEIVED_AT).unwrap_or_else(Timestamp::default),
        ended_at: at(FORGOTTEN_AT).or_else(|| at(PROCESSED_AT)),
        lease_left: left.filter(|_| state == InboxState::Leased).map(Duration::from_millis),
        steps,
        result_bytes: match Pointer::of(item) {
            Some(pointer) => pointer.bytes,
            None => result.map_or(0, |result| result.as_ref().len() as u64),
        },
        forgotten_by: text(item, "forgotten_by").map(str::to_owned),
    })
}

fn passes(view: &InboxView, filter: &InboxFilter) -> bool {
    filter.event_id.is_none_or(|wanted| view.event_id == wanted)
        && filter.handler.as_ref().is_none_or(|wanted| view.handler == wanted.as_str())
        && filter.source.as_ref().is_none_or(|wanted| view.source == *wanted)
        && filter.event_type.as_ref().is_none_or(|glob| glob.matches(&view.event_type))
        && filter.state.is_none_or(|wanted| view.state == wanted)
        && filter.since.is_none_or(|since| view.received_at >= since)
        && filter.until.is_none_or(|until| view.received_at < until)
}

//! A handler behind the embedded store's inbox that answers more than is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postrider::inbox::leased::RESULT_BYTES_MAX;
use postrider::inbox::{Context, Leased, Outcome, Performed};
use postrider::sqlite::{SqliteStore, init};
use postrider::{Event, EventId, HandlerName};

/// Longer than any machine takes for this: the claim does not end by itself.
const LEASE: Duration = Duration::from_secs(600);

/// R080, R085: in the embedded store, whose tables refuse such an answer, the charge is made once, and so it is by a
/// process that comes later.
#[tokio::test]
async fn a_charge_with_a_large_answer_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("billing.db");
    init(&path).unwrap();
    let mut event = Event::new(EventId::from_u128(1), "order", "42", "order.placed");
    event.source = Arc::from("/shop");
    let charges = Arc::new(AtomicU32::new(0));
    let process = || {
        let charges = Arc::clone(&charges);
        let charging = move |_: Arc<Event>, _: Context| {
            charges.fetch_add(1, Ordering::SeqCst);
            async { Ok(Outcome::Ack(vec![7; RESULT_BYTES_MAX + 1].into())) }
        };
        let store = Arc::new(SqliteStore::new(&path).unwrap());
        let name = HandlerName::new("billing").unwrap();
        Leased::builder(name, store, charging).lease(LEASE).build().unwrap()
    };
    let first = process().perform(&event).await.unwrap();
    assert!(matches!(first, Performed::Now(answer) if answer.len() == RESULT_BYTES_MAX + 1));
    for _ in 0..2 {
        let again = process().perform(&event).await.unwrap();
        assert!(matches!(&again, Performed::Before(answer) if answer.is_empty()));
    }
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

//! An erasure beside a relay that lets scheduled events in.

use std::time::Duration;

use postrider_core::NewEvent;
use postrider_core::operate::Operator;

use super::{Play, everything, later, note, of_type};

/// Until the erasure waits for a row, or two seconds where it does not.
async fn it_waits(play: &Play) {
    let waits = format!(
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%{}%outbox_scheduled%'",
        play.fresh.names.schema()
    );
    for _ in 0..200 {
        if play.fresh.number(&waits).await > 0 {
            return;
        }
        // waits: for the other side to come to its lock.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A scheduled event that is entering the outbox, with a number below others that are committed already, is erased there.
#[tokio::test]
async fn a_scheduled_event_that_is_just_entering_is_erased() {
    let Some(play) = Play::begin(&[everything("a")]).await else { return };
    let anna =
        NewEvent::new("customer", "7", "customer.reminder").json(&"Long Lane 5").expect("JSON");
    play.commit(&[anna.deliver_after(later())]).await;
    play.fresh.run("update {outbox_scheduled} set due_at = now()").await;
    let mut client = play.fresh.connect().await;
    let tx = client.transaction().await.unwrap();
    let admit = format!(
        "select moved from {{outbox_admit}}(0::smallint, '{}', {}, 10)",
        play.lease.owner.as_str(),
        play.lease.token
    );
    let moved: i32 = tx.query_one(&play.fresh.sql(&admit), &[]).await.unwrap().get(0);
    assert_eq!(moved, 1);
    play.commit(&[of_type("order.placed", 1)]).await;
    let ends = async {
        it_waits(&play).await;
        tx.commit().await.unwrap();
    };
    let by = note();
    let (done, ()) = tokio::join!(play.store.erase("customer/7", &by), ends);
    let left = "select count(*) from {outbox} where payload like '%Long Lane%'";
    assert_eq!(play.fresh.number(left).await, 0, "its payload is still there");
    assert_eq!(done.unwrap().total(), 1);
}

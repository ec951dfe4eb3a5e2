//! What is held, as an operator sees it.

use postrider_core::waiting::Counts;

use super::*;

/// What is held is told apart from what is tried again, by whatever is asked, and with the time at which it is tried.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_is_shown_as_that_with_its_time() {
    let Some(owned) = Owned::start().await else { return };
    owned.store.stage(&[event("1", 1), event("1", 2), event("2", 3)]).await.unwrap();
    let placement = || {
        let detail = "401 Unauthorized".to_owned();
        let attempted = Attempted { attempts: 3, reason: Reason::Held, detail };
        Placement::Retry { delay: Duration::from_secs(600), attempted }
    };
    owned.settle(|_| Some(placement())).await;
    assert_eq!(owned.due().await, [], "not before its time");
    let of = async |status| owned.waiting(&filter(|ask| ask.status = vec![status]), 50).await;
    let (held, parked) = (of(Status::Held).await, of(Status::Parked).await);
    assert_eq!((held.len(), parked.len(), of(Status::Retrying).await.len()), (2, 1, 0));
    assert!(held.iter().all(|row| row.next_at.is_some() && row.reason == "held"), "{held:?}");
    assert_eq!(parked[0].next_at, None);
    let seen = &owned.store.overview().await.unwrap().destinations[0];
    assert_eq!(seen.waiting, Counts { held: 2, parked: 1, ..Counts::default() });
    assert_eq!(seen.retry_next, held.iter().filter_map(|row| row.next_at).min());
    assert!(seen.errors.iter().any(|group| group.reason == "held" && group.count >= 2));
    let told = owned.store.event(held[0].id.unwrap()).await.unwrap().deliveries.remove(0);
    assert_eq!((told.status, told.next_at), (Status::Held, held[0].next_at));
}

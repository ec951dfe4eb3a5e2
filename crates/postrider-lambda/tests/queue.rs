//! Messages of a queue, as the service invokes a function with them, and what it does with the answer.

use std::time::Duration;

use postrider_core::{ClaimRequest, InboxStore as _};

use crate::line::{Fresh, LONG, VISIBILITY, handler, take};

fn pair(key: &str, event_type: &str) -> (String, String) {
    (key.to_owned(), event_type.to_owned())
}

/// R077, R096: each event is acted on once, however often it comes; what is no event is a dead letter; what fails is named,
/// comes again, and is done then.
#[tokio::test]
async fn each_message_is_acted_on_once_and_what_fails_comes_again() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    let first = fresh.send("1", "placed").await;
    fresh.send_again(&first).await;
    fresh.fail("late", 1);
    fresh.send("2", "late").await;
    let junk = fresh.client.send_message().queue_url(&fresh.queue).message_body("no event");
    Box::pin(junk.send()).await.unwrap();
    let all = fresh.drain().await;
    assert_eq!((all.done, all.duplicates, all.dead), (2, 1, 1), "{all:?}");
    assert_eq!(all.failures.0.len(), 1, "the late one, once");
    let mut acted = fresh.acted();
    acted.sort();
    assert_eq!(acted, [pair("1", "placed"), pair("2", "late")]);
    let dead = take(&fresh.client, &fresh.dead).await;
    assert_eq!(dead[0].body(), Some("no event"));
    assert!(dead[0].message_attributes().unwrap().contains_key("postrider-dead-reason"));
    fresh.remove().await;
}

/// After a failure the rest of its group is named as well, and not begun; other groups are done.
#[tokio::test]
async fn after_a_failure_the_rest_of_its_group_waits() {
    let Some(fresh) = Fresh::new(true, VISIBILITY).await else { return };
    fresh.fail("a", 1);
    for event_type in ["a", "b", "c"] {
        fresh.send("1", event_type).await;
    }
    fresh.send("2", "x").await;
    let first = fresh.invoke(LONG).await;
    assert_eq!((first.done, first.failures.0.len()), (1, 3), "{first:?}");
    assert_eq!(fresh.acted(), [pair("2", "x")], "nothing of the group but the first was begun");
    let rest = fresh.drain().await;
    assert_eq!(rest.done, 3, "{rest:?}");
    assert_eq!(fresh.acted()[1..], [pair("1", "a"), pair("1", "b"), pair("1", "c")]);
    fresh.remove().await;
}

/// R082: a worker was killed with its claim. Whether the lease is longer than the visibility or shorter, the message comes
/// again until it is done, once.
#[tokio::test]
async fn lease_and_visibility_converge_whichever_is_longer() {
    for (lease, finds_it_taken) in
        [(Duration::from_secs(15), true), (Duration::from_secs(1), false)]
    {
        let Some(fresh) = Fresh::new(false, lease).await else { return };
        let event = fresh.send("1", "placed").await;
        // The queue gave the message to the worker that was killed.
        let killed = take(&fresh.client, &fresh.queue).await;
        let claim = ClaimRequest::new(&event, &handler(), lease).unwrap();
        fresh.inbox.claim(&claim).await.unwrap();
        assert_eq!(killed.len(), 1);
        let mut taken = 0;
        let done = loop {
            let one = fresh.invoke(LONG).await;
            taken += one.failures.0.len();
            if one.done > 0 {
                break one.done;
            }
        };
        assert_eq!((done, taken > 0), (1, finds_it_taken), "a lease of {lease:?}");
        assert_eq!(fresh.acted(), [pair("1", "placed")]);
        assert_eq!(take(&fresh.client, &fresh.dead).await.len(), 0, "and nothing was given up");
        fresh.remove().await;
    }
}

/// What fails for ever becomes a dead letter with its reason, after so many receives.
#[tokio::test]
async fn what_fails_for_ever_is_a_dead_letter() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.fail("poison", usize::MAX);
    fresh.send("1", "poison").await;
    let all = fresh.drain().await;
    assert_eq!((all.dead, all.failures.0.len()), (1, 3), "the fourth receive is the last");
    let dead = take(&fresh.client, &fresh.dead).await;
    let reason = &dead[0].message_attributes().unwrap()["postrider-dead-reason"];
    assert!(reason.string_value().unwrap().contains("not yet"));
    fresh.remove().await;
}

/// What there is no time for is not begun, and comes again soon.
#[tokio::test]
async fn what_there_is_no_time_for_is_not_begun() {
    let Some(fresh) = Fresh::new(false, VISIBILITY).await else { return };
    fresh.send("1", "placed").await;
    let late = fresh.invoke(Duration::ZERO).await;
    assert_eq!((late.done, late.failures.0.len(), fresh.acted().len()), (0, 1, 0));
    assert_eq!(fresh.drain().await.done, 1);
    fresh.remove().await;
}

//! Retention: what is done and old goes, in bounded portions; nothing else does (R087).

use std::time::Duration;

use postrider_core::{Claim, InboxStore};

use super::{LONG, claim, claimed, event, handler};
use crate::suite::InboxHarness;

/// Says that nothing comes again, so that a purge goes by what it is asked alone.
async fn nothing_comes_again(inbox: &dyn InboxStore) {
    let said = inbox.record_horizon(&handler("billing"), Duration::ZERO).await;
    said.expect("the horizon is recorded");
}

/// Does so many events.
async fn done(inbox: &dyn InboxStore, events: u128) {
    for n in 1..=events {
        let lease = claimed(inbox, &event(n), LONG).await;
        inbox.complete(&lease, b"").await.expect("complete");
    }
}

/// R087: old enough and done.
pub async fn a_purge_deletes_what_is_done_and_old<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    nothing_comes_again(&*inbox).await;
    done(&*inbox, 3).await;
    harness.pass(unit * 4).await;
    assert_eq!(inbox.purge(unit * 2, 100).await.expect("purge"), 3);
    assert_eq!(inbox.purge(unit * 2, 100).await.expect("purge"), 0);
    claimed(&*inbox, &event(1), LONG).await;
}

/// R087: what is young must stay, or a redelivery would act again; and a claim stays, however old.
pub async fn a_purge_keeps_what_is_young_or_claimed<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    nothing_comes_again(&*inbox).await;
    claimed(&*inbox, &event(1), LONG).await;
    claimed(&*inbox, &event(2), unit).await;
    harness.pass(unit * 4).await;
    let young = claimed(&*inbox, &event(3), LONG).await;
    inbox.complete(&young, b"").await.expect("complete");
    assert_eq!(inbox.purge(unit * 2, 100).await.expect("purge"), 0);
    let held = claim(&*inbox, &event(1), LONG).await;
    assert!(matches!(held, Claim::Leased { .. }), "{held:?}");
    let done = claim(&*inbox, &event(3), LONG).await;
    assert!(matches!(done, Claim::Processed { .. }), "{done:?}");
}

/// INV-6: a purge is told how much it may do at once.
pub async fn a_purge_is_bounded<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    nothing_comes_again(&*inbox).await;
    done(&*inbox, 5).await;
    harness.pass(unit).await;
    let mut portions = Vec::new();
    for _ in 0..4 {
        portions.push(inbox.purge(Duration::ZERO, 2).await.expect("purge"));
    }
    assert_eq!(portions, [2, 2, 1, 0]);
}

/// R087 R121: where no consumer has said for how long its messages may come again, a short retention deletes
/// nothing that may.
pub async fn a_purge_leaves_what_may_come_again<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    done(&*inbox, 1).await;
    harness.pass(unit * 2).await;
    assert_eq!(inbox.purge(Duration::ZERO, 100).await.expect("purge"), 0);
    let again = claim(&*inbox, &event(1), LONG).await;
    assert!(matches!(again, Claim::Processed { .. }), "{again:?}");
}

/// R087 R121: whatever a purge is asked, the longest time that a consumer has said stands, until it says
/// another.
pub async fn a_purge_goes_by_the_longest_horizon<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    let say = async |name: &str, horizon| {
        inbox.record_horizon(&handler(name), horizon).await.expect("the horizon is recorded");
    };
    done(&*inbox, 1).await;
    harness.pass(unit * 2).await;
    say("billing", LONG * 24).await;
    say("mail", unit).await;
    assert_eq!(inbox.purge(Duration::ZERO, 100).await.expect("purge"), 0);
    say("billing", Duration::ZERO).await;
    assert_eq!(inbox.purge(LONG * 24, 100).await.expect("purge"), 0, "the retention is longer");
    assert_eq!(inbox.purge(Duration::ZERO, 100).await.expect("purge"), 1);
}

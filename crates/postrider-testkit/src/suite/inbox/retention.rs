//! Retention: what is done and old goes, in bounded portions; nothing else does (R087).

use std::time::Duration;

use postrider_core::Claim;

use super::{LONG, claim, claimed, event};
use crate::suite::InboxHarness;

/// R087: old enough and done.
pub async fn a_purge_deletes_what_is_done_and_old<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    for n in 1..=3 {
        let lease = claimed(&*inbox, &event(n), LONG).await;
        inbox.complete(&lease, b"").await.expect("complete");
    }
    harness.pass(unit * 4).await;
    assert_eq!(inbox.purge(unit * 2, 100).await.expect("purge"), 3);
    assert_eq!(inbox.purge(unit * 2, 100).await.expect("purge"), 0);
    claimed(&*inbox, &event(1), LONG).await;
}

/// R087: what is young must stay, or a redelivery would act again; and a claim stays, however old.
pub async fn a_purge_keeps_what_is_young_or_claimed<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
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
    for n in 1..=5 {
        let lease = claimed(&*inbox, &event(n), LONG).await;
        inbox.complete(&lease, b"").await.expect("complete");
    }
    harness.pass(unit).await;
    let mut portions = Vec::new();
    for _ in 0..4 {
        portions.push(inbox.purge(Duration::ZERO, 2).await.expect("purge"));
    }
    assert_eq!(portions, [2, 2, 1, 0]);
}

//! Retention: what is done and old goes, in bounded portions; nothing else does (R087).

use std::time::Duration;

use postrider_core::{Claim, InboxStore, Tried};

use super::{LONG, claim, claimed, event, handler};
use crate::suite::late::{Span, in_time};
use crate::suite::{InboxHarness, skip};

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

/// R087: what is young must stay, or a redelivery would act again; and so must a claim that runs, or ended a short time
/// ago, however old its row is.
pub async fn a_purge_keeps_what_is_young_or_claimed<H: InboxHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let (inbox, unit) = (harness.inbox(), harness.unit() * times);
        nothing_comes_again(&*inbox).await;
        claimed(&*inbox, &event(1), LONG).await;
        // Then this one has ended for longer than is asked for, and nothing else before it.
        let young = Span::begin(unit * 7);
        claimed(&*inbox, &event(2), unit * 3).await;
        let let_go = claimed(&*inbox, &event(4), LONG).await;
        harness.pass(unit * 4).await;
        inbox.release(&let_go, Tried::Failed).await.expect("release");
        let third = claimed(&*inbox, &event(3), LONG).await;
        inbox.complete(&third, b"").await.expect("complete");
        let purged = inbox.purge(unit * 4, 100).await.expect("purge");
        young.insist(purged == 0, &purged)?;
        let held = claim(&*inbox, &event(1), LONG).await;
        assert!(matches!(held, Claim::Leased { .. }), "{held:?}");
        let done = claim(&*inbox, &event(3), LONG).await;
        assert!(matches!(done, Claim::Processed { .. }), "{done:?}");
        Ok(())
    })
    .await;
}

/// R087: a claim that was let go, or whose lease ran out, and that nobody took again, is past its retention like what was
/// done, and goes with its steps, under the same limit and the same horizon.
pub async fn a_purge_takes_claims_that_nobody_took_again<H: InboxHarness>() {
    let harness = H::start().await;
    if !harness.purges_claims() {
        return skip(
            "a_purge_takes_claims_that_nobody_took_again",
            "claims stay here, however old",
        );
    }
    let (inbox, unit) = (harness.inbox(), harness.unit());
    for n in 1..=3 {
        let lease = claimed(&*inbox, &event(n), if n == 1 { unit } else { LONG }).await;
        inbox.complete_step(&lease, "charge", b"ch_1").await.expect("a step");
        if n == 2 {
            inbox.release(&lease, Tried::Failed).await.expect("release");
        }
    }
    harness.pass(unit * 4).await;
    assert_eq!(inbox.purge(unit * 2, 100).await.expect("purge"), 0, "they may come again");
    nothing_comes_again(&*inbox).await;
    let mut portions = Vec::new();
    for _ in 0..3 {
        portions.push(inbox.purge(unit * 2, 1).await.expect("purge"));
    }
    assert_eq!(portions, [1, 1, 0]);
    let held = claim(&*inbox, &event(3), LONG).await;
    assert!(matches!(held, Claim::Leased { .. }), "{held:?}");
    for n in 1..=2 {
        let lease = claimed(&*inbox, &event(n), LONG).await;
        assert_eq!(inbox.step(&lease, "charge").await.expect("step"), None);
    }
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

/// R087 R121: a consumer that has said nothing is not forgotten because another one has: what its handler did stays, until
/// it says something.
pub async fn a_purge_keeps_what_a_silent_handler_did<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    done(&*inbox, 2).await;
    inbox.record_horizon(&handler("mail"), unit).await.expect("the horizon is recorded");
    harness.pass(unit * 3).await;
    assert_eq!(inbox.purge(unit, 100).await.expect("purge"), 0, "billing's may come again");
    let again = claim(&*inbox, &event(1), LONG).await;
    assert!(matches!(again, Claim::Processed { .. }), "{again:?}");
    nothing_comes_again(&*inbox).await;
    assert_eq!(inbox.purge(unit, 100).await.expect("purge"), 2);
}

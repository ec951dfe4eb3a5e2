//! Steps: an external effect's result is stored, so that whoever takes over resumes (R088).

use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
use postrider_core::{Claim, ErrorKind, Tried};

use super::{LONG, claimed, event, request};
use crate::suite::InboxHarness;

/// R088: a step that was done is found, byte for byte; another is not.
pub async fn a_stored_step_is_found_again<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let lease = claimed(&*inbox, &event(1), LONG).await;
    assert_eq!(inbox.step(&lease, "charge").await.expect("step"), None);
    let result: Vec<u8> = (0..=255).collect();
    inbox.complete_step(&lease, "charge", &result).await.expect("store");
    let again = inbox.complete_step(&lease, "charge", &result).await;
    again.expect("the same write, after a lost answer");
    let stored = inbox.step(&lease, "charge").await.expect("step");
    assert_eq!(stored.as_deref(), Some(&*result));
    assert_eq!(inbox.step(&lease, "mail").await.expect("step"), None);
    inbox.complete_step(&lease, "empty", b"").await.expect("store");
    let empty = inbox.step(&lease, "empty").await.expect("step");
    assert_eq!(empty.as_deref(), Some(&b""[..]), "done with nothing is done");
}

/// R088: so is one whose result is too large to be kept: whoever takes over is told that it was made.
pub async fn a_step_whose_result_was_left_out_is_found_again<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let large = vec![7; RESULT_BYTES_MAX + 1];
    let left_out = LeftOut::instead_of(&large).expect("it is above the limit");
    let first = claimed(&*inbox, &event(1), LONG).await;
    inbox.complete_step(&first, "print", &left_out.to_bytes()).await.expect("store");
    inbox.release(&first, Tried::Failed).await.expect("release");
    let second = claimed(&*inbox, &event(1), LONG).await;
    let stored = inbox.step(&second, "print").await.expect("step").expect("it was made");
    assert_eq!(LeftOut::read(&stored), Some(left_out));
}

/// R088, R089: after a takeover, and after a release, the steps are there, under the same keys.
pub async fn steps_survive_a_takeover<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    let first = claimed(&*inbox, &event(1), unit * 4).await;
    inbox.complete_step(&first, "charge", b"ch_1").await.expect("store");
    harness.pass(unit * 6).await;
    let second = claimed(&*harness.inbox(), &event(1), LONG).await;
    let stored = inbox.step(&second, "charge").await.expect("step");
    assert_eq!(stored.as_deref(), Some(&b"ch_1"[..]));
    assert_eq!(first.key.step_key("charge"), second.key.step_key("charge"));
    inbox.release(&second, Tried::Failed).await.expect("release");
    let third = claimed(&*inbox, &event(1), LONG).await;
    let stored = inbox.step(&third, "charge").await.expect("step");
    assert_eq!(stored.as_deref(), Some(&b"ch_1"[..]));
}

/// R114: a worker that lost its lease neither stores a step nor goes on from one.
pub async fn a_late_worker_stores_no_step<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    let old = claimed(&*inbox, &event(1), unit).await;
    harness.pass(unit * 2).await;
    let new = claimed(&*inbox, &event(1), LONG).await;
    let refused = inbox.complete_step(&old, "charge", b"late").await;
    assert_eq!(refused.expect_err("a stale token").kind(), ErrorKind::Fenced);
    let refused = inbox.step(&old, "charge").await;
    assert_eq!(refused.expect_err("a stale token").kind(), ErrorKind::Fenced);
    assert_eq!(inbox.step(&new, "charge").await.expect("step"), None);
}

/// R073: handlers share no steps.
pub async fn steps_of_two_handlers_are_apart<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let billing = claimed(&*inbox, &event(1), LONG).await;
    inbox.complete_step(&billing, "notify", b"x").await.expect("store");
    let request = request(&event(1), "shipping", LONG);
    let Claim::Claimed(shipping) = inbox.claim(&request).await.expect("claim") else {
        panic!("another handler's row is its own");
    };
    assert_eq!(inbox.step(&shipping, "notify").await.expect("step"), None);
}

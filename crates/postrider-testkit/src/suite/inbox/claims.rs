//! Claims: one conditional write, the store's clock, a token.

use std::sync::Arc;

use bytes::Bytes;
use postrider_core::inbox::{LeftOut, RESULT_BYTES_MAX};
use postrider_core::{Claim, ErrorKind, Tried};

use super::{LONG, claim, claimed, event, request};
use crate::suite::InboxHarness;
use crate::suite::late::{Span, in_time};

/// R077: absent, claimed, expired, processed.
pub async fn the_four_row_states_answer_as_documented<H: InboxHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let (inbox, unit) = (harness.inbox(), harness.unit() * times);
        let event = event(1);
        let lasts = Span::begin(unit * 4);
        let first = claimed(&*inbox, &event, unit * 4).await;
        match claim(&*harness.inbox(), &event, LONG).await {
            Claim::Leased { remaining } => assert!(remaining <= unit * 4, "{remaining:?}"),
            other => lasts.insist(false, &("claimed, and its lease runs", other))?,
        }
        harness.pass(unit * 6).await;
        let second = claimed(&*inbox, &event, LONG).await;
        assert!(second.token > first.token);
        assert_eq!(second.key, first.key);
        inbox.complete(&second, b"done").await.expect("complete");
        let processed = Claim::Processed { result: bytes::Bytes::from_static(b"done") };
        assert_eq!(claim(&*inbox, &event, LONG).await, processed);
        Ok(())
    })
    .await;
}

/// Claims at once from so many tasks, and says how many won.
async fn race<H: InboxHarness>(harness: &H, tasks: usize) -> usize {
    let request = request(&event(1), "billing", LONG);
    let handles: Vec<_> = (0..8).map(|_| harness.inbox()).collect();
    let start = Arc::new(tokio::sync::Barrier::new(tasks));
    let claims: Vec<_> = (0..tasks)
        .map(|n| {
            let inbox = Arc::clone(&handles[n % handles.len()]);
            let (request, start) = (request.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                loop {
                    match inbox.claim(&request).await {
                        Ok(claim) => return matches!(claim, Claim::Claimed(_)),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                    }
                }
            })
        })
        .collect();
    let mut won = 0;
    for claim in claims {
        won += usize::from(claim.await.expect("the task ends"));
    }
    won
}

/// R078: a thousand at once, and one acts.
pub async fn of_a_thousand_claims_at_once_one_wins<H: InboxHarness>() {
    let harness = H::start().await;
    assert_eq!(race(&harness, 1_000).await, 1);
}

/// R078: also when a row is there, expired.
pub async fn of_many_that_reclaim_at_once_one_wins<H: InboxHarness>() {
    let harness = H::start().await;
    let unit = harness.unit();
    claimed(&*harness.inbox(), &event(1), unit).await;
    harness.pass(unit * 2).await;
    assert_eq!(race(&harness, 100).await, 1);
}

/// R076, R083, R115: a crashed worker's claim becomes free when the store's clock says so.
pub async fn a_claim_expires_by_the_stores_clock<H: InboxHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let (inbox, unit) = (harness.inbox(), harness.unit() * times);
        let lasts = Span::begin(unit * 4);
        claimed(&*inbox, &event(1), unit * 4).await;
        harness.pass(unit * 2).await;
        let early = claim(&*inbox, &event(1), LONG).await;
        lasts.insist(matches!(early, Claim::Leased { .. }), &early)?;
        harness.pass(unit * 3).await;
        claimed(&*inbox, &event(1), LONG).await;
        Ok(())
    })
    .await;
}

/// R081: a handler slower than its lease keeps it by heartbeats.
pub async fn a_heartbeat_keeps_a_claim<H: InboxHarness>() {
    in_time(async |times| {
        let harness = H::start().await;
        let (inbox, unit) = (harness.inbox(), harness.unit() * times);
        let mut lasts = Span::begin(unit * 4);
        let lease = claimed(&*inbox, &event(1), unit * 4).await;
        for _ in 0..3 {
            harness.pass(unit * 2).await;
            let prolonged = Span::begin(unit * 4);
            let kept = inbox.heartbeat(&lease, unit * 4).await;
            lasts.insist(kept.is_ok(), &("its lease runs", kept))?;
            lasts = prolonged;
        }
        let other = claim(&*harness.inbox(), &event(1), LONG).await;
        lasts.insist(matches!(other, Claim::Leased { .. }), &other)?;
        inbox.complete(&lease, b"").await.expect("complete");
        Ok(())
    })
    .await;
}

/// R114: a worker that lost its lease can neither prolong, complete, nor release.
pub async fn a_late_worker_is_refused<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    let old = claimed(&*inbox, &event(1), unit).await;
    harness.pass(unit * 2).await;
    let new = claimed(&*harness.inbox(), &event(1), LONG).await;
    let refused = [inbox.heartbeat(&old, LONG).await, inbox.complete(&old, b"old").await];
    for refused in refused {
        assert_eq!(refused.expect_err("a stale token").kind(), ErrorKind::Fenced);
    }
    // Letting go of what is lost may be refused or do nothing, but frees nothing.
    let _ = inbox.release(&old, Tried::Failed).await;
    let other = claim(&*inbox, &event(1), LONG).await;
    assert!(matches!(other, Claim::Leased { .. }), "{other:?}");
    inbox.complete(&new, b"new").await.expect("the new worker");
    let refused = inbox.complete(&old, b"old").await.expect_err("too late");
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    let processed = Claim::Processed { result: bytes::Bytes::from_static(b"new") };
    assert_eq!(claim(&*inbox, &event(1), LONG).await, processed);
}

/// A failed handler's event need not wait for the lease; and who let go cannot complete.
pub async fn a_released_claim_is_free_at_once<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let first = claimed(&*inbox, &event(1), LONG).await;
    inbox.release(&first, Tried::Failed).await.expect("release");
    let second = claimed(&*inbox, &event(1), LONG).await;
    assert!(second.token > first.token);
    let refused = inbox.complete(&first, b"").await.expect_err("it let go");
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    inbox.complete(&second, b"").await.expect("complete");
}

/// R079: what was given back uncounted is no try, whoever has it next; a claim that just ended is one, since its worker
/// may have died of it, and is told from those that failed and said so.
pub async fn tries_are_all_that_was_not_given_back<H: InboxHarness>() {
    let harness = H::start().await;
    let (inbox, unit) = (harness.inbox(), harness.unit());
    let again = async || claimed(&*harness.inbox(), &event(1), LONG).await;
    let first = again().await;
    assert_eq!((first.tries, first.lost), (1, 0));
    inbox.release(&first, Tried::NotCounted).await.expect("release");
    let second = again().await;
    assert_eq!((second.tries, second.lost), (1, 0), "the first was none");
    inbox.release(&second, Tried::Failed).await.expect("release");
    let third = claimed(&*inbox, &event(1), unit).await;
    assert_eq!((third.tries, third.lost), (2, 0), "the second said that it failed");
    harness.pass(unit * 2).await;
    let fourth = again().await;
    assert_eq!((fourth.tries, fourth.lost), (3, 1), "nobody knows what became of the third");
    inbox.release(&fourth, Tried::NotCounted).await.expect("release");
    let fifth = again().await;
    assert_eq!((fifth.tries, fifth.lost), (3, 1), "what is given back takes no other's try along");
    inbox.release(&fifth, Tried::Failed).await.expect("release");
    let sixth = claimed(&*inbox, &event(1), unit).await;
    assert_eq!((sixth.tries, sixth.lost), (4, 0), "it came to an end, so it ended nobody");
    harness.pass(unit * 2).await;
    let seventh = again().await;
    assert_eq!((seventh.tries, seventh.lost), (5, 1));
    inbox.release(&seventh, Tried::Refused).await.expect("release");
    let anew = again().await;
    assert_eq!((anew.tries, anew.lost), (1, 0), "a dead letter that is sent again begins anew");
}

/// R085: whoever asks again gets the stored bytes, whatever they are.
pub async fn the_stored_result_is_returned<H: InboxHarness>() {
    let harness = H::start().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    for (n, result) in (1..).zip([&b""[..], b"{\"status\":201}", &every_byte]) {
        let lease = claimed(&*harness.inbox(), &event(n), LONG).await;
        harness.inbox().complete(&lease, result).await.expect("complete");
        for _ in 0..2 {
            match claim(&*harness.inbox(), &event(n), LONG).await {
                Claim::Processed { result: stored } => assert_eq!(&*stored, result),
                other => panic!("it was done: {other:?}"),
            }
        }
    }
}

/// R085: a result of the largest size that is kept is returned, byte for byte.
pub async fn the_largest_result_is_returned<H: InboxHarness>() {
    let harness = H::start().await;
    let largest: Vec<u8> = (0..=255).cycle().take(RESULT_BYTES_MAX).collect();
    let lease = claimed(&*harness.inbox(), &event(1), LONG).await;
    harness.inbox().complete(&lease, &largest).await.expect("complete");
    match claim(&*harness.inbox(), &event(1), LONG).await {
        Claim::Processed { result } => assert!(result == largest, "{} bytes", result.len()),
        other => panic!("it was done: {other:?}"),
    }
}

/// R085: of a result that is too large to be kept it is kept that the event is done, and how large it was.
pub async fn a_result_that_was_left_out_is_told_from_an_empty_one<H: InboxHarness>() {
    let harness = H::start().await;
    let large = vec![7; RESULT_BYTES_MAX + 1];
    let left_out = LeftOut::instead_of(&large).expect("it is above the limit");
    for (n, kept) in (1..).zip([left_out.to_bytes(), Bytes::new()]) {
        let lease = claimed(&*harness.inbox(), &event(n), LONG).await;
        harness.inbox().complete(&lease, &kept).await.expect("complete");
    }
    for (n, told) in [(1, Some(left_out)), (2, None)] {
        match claim(&*harness.inbox(), &event(n), LONG).await {
            Claim::Processed { result } => assert_eq!(LeftOut::read(&result), told),
            other => panic!("it was done: {other:?}"),
        }
    }
}

/// R005: a completion whose answer was lost may be sent again; it never becomes another result.
pub async fn completing_twice_is_completing_once<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let lease = claimed(&*inbox, &event(1), LONG).await;
    inbox.complete(&lease, b"first").await.expect("complete");
    let _ = inbox.complete(&lease, b"first").await;
    let _ = inbox.release(&lease, Tried::Failed).await;
    match claim(&*inbox, &event(1), LONG).await {
        Claim::Processed { result } => assert_eq!(&*result, b"first"),
        other => panic!("it was done: {other:?}"),
    }
}

/// R073: each handler of an event has a row of its own.
pub async fn two_handlers_are_independent<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let billing = claimed(&*inbox, &event(1), LONG).await;
    inbox.complete(&billing, b"billed").await.expect("complete");
    let shipping = request(&event(1), "shipping", LONG);
    let claim = inbox.claim(&shipping).await.expect("claim");
    assert!(matches!(claim, Claim::Claimed(_)), "{claim:?}");
}

/// R119: ids of two services are two things.
pub async fn two_sources_may_use_the_same_id<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let lease = claimed(&*inbox, &event(1), LONG).await;
    inbox.complete(&lease, b"").await.expect("complete");
    let mut other = event(1);
    other.source = "/warehouse".into();
    claimed(&*inbox, &other, LONG).await;
}

/// The same identity with other content is an error, in every state of the row.
pub async fn the_same_id_with_another_payload_is_no_duplicate<H: InboxHarness>() {
    let harness = H::start().await;
    let inbox = harness.inbox();
    let mut other = event(1);
    other.payload = event(2).payload;
    let lease = claimed(&*inbox, &event(1), LONG).await;
    assert_eq!(claim(&*inbox, &other, LONG).await, Claim::Mismatch);
    inbox.complete(&lease, b"").await.expect("complete");
    assert_eq!(claim(&*inbox, &other, LONG).await, Claim::Mismatch);
}

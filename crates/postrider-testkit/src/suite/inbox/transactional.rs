//! The marker shares the handler's transaction: both are there, or neither (R074).

use std::sync::Arc;

use postrider_core::inbox::Accepted;
use postrider_core::{ErrorKind, Event, Result};

use super::{event, handler};
use crate::suite::{InboxHarness, Then, TransactionalProbe, skip};

fn probe<H: InboxHarness>(harness: &H, case: &str) -> Option<Arc<dyn TransactionalProbe>> {
    let probe = harness.transactional();
    if probe.is_none() {
        skip(case, "this inbox has claims only");
    }
    probe
}

/// Accepts, and tries again while another transaction is in the way.
async fn accept(
    probe: &dyn TransactionalProbe,
    event: &Event,
    name: &str,
    then: Then,
) -> Result<Accepted> {
    let handler = handler(name);
    loop {
        match probe.accept(event, &handler, then).await {
            Err(error) if error.kind() == ErrorKind::Busy => tokio::task::yield_now().await,
            answer => return answer,
        }
    }
}

/// R074, R080: a duplicate is told, and does nothing.
pub async fn a_committed_effect_happens_once<H: InboxHarness>() {
    let harness = H::start().await;
    let Some(probe) = probe(&harness, "a_committed_effect_happens_once") else {
        return;
    };
    let first = accept(&*probe, &event(1), "billing", Then::Commit).await;
    assert_eq!(first.expect("accept"), Accepted::FirstTime);
    for _ in 0..3 {
        let again = accept(&*probe, &event(1), "billing", Then::Commit).await;
        assert_eq!(again.expect("accept"), Accepted::Duplicate);
    }
    assert_eq!(probe.effects().await, 1);
}

/// R074: a handler that fails leaves no marker; the redelivery acts.
pub async fn a_failed_handler_leaves_no_marker<H: InboxHarness>() {
    let harness = H::start().await;
    let Some(probe) = probe(&harness, "a_failed_handler_leaves_no_marker") else {
        return;
    };
    for _ in 0..2 {
        let failed = accept(&*probe, &event(1), "billing", Then::Fail).await;
        assert_eq!(failed.expect("accept"), Accepted::FirstTime);
        assert_eq!(probe.effects().await, 0);
    }
    let again = accept(&*probe, &event(1), "billing", Then::Commit).await;
    assert_eq!(again.expect("accept"), Accepted::FirstTime);
    assert_eq!(probe.effects().await, 1);
}

/// R074: nor does one that vanishes.
pub async fn an_abandoned_handler_leaves_no_marker<H: InboxHarness>() {
    let harness = H::start().await;
    let Some(probe) = probe(&harness, "an_abandoned_handler_leaves_no_marker") else {
        return;
    };
    let gone = accept(&*probe, &event(1), "billing", Then::Abandon).await;
    assert_eq!(gone.expect("accept"), Accepted::FirstTime);
    let again = accept(&*probe, &event(1), "billing", Then::Commit).await;
    assert_eq!(again.expect("accept"), Accepted::FirstTime);
    assert_eq!(probe.effects().await, 1);
}

/// R004: every message delivered many times at once, and one effect.
pub async fn of_many_transactions_at_once_one_acts<H: InboxHarness>() {
    let harness = H::start().await;
    let Some(probe) = probe(&harness, "of_many_transactions_at_once_one_acts") else {
        return;
    };
    let start = Arc::new(tokio::sync::Barrier::new(32));
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let (probe, start) = (Arc::clone(&probe), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                accept(&*probe, &event(1), "billing", Then::Commit).await
            })
        })
        .collect();
    let mut first = 0;
    for task in tasks {
        let accepted = task.await.expect("the task ends").expect("accept");
        first += u32::from(accepted == Accepted::FirstTime);
    }
    assert_eq!(first, 1);
    assert_eq!(probe.effects().await, 1);
}

/// The same identity with other content is refused, and acts on nothing.
pub async fn a_transaction_refuses_another_payload<H: InboxHarness>() {
    let harness = H::start().await;
    let Some(probe) = probe(&harness, "a_transaction_refuses_another_payload") else {
        return;
    };
    let first = accept(&*probe, &event(1), "billing", Then::Commit).await;
    assert_eq!(first.expect("accept"), Accepted::FirstTime);
    let mut other = event(1);
    other.payload = event(2).payload;
    let refused = accept(&*probe, &other, "billing", Then::Commit).await;
    assert_eq!(refused.expect_err("another payload").kind(), ErrorKind::Conflict);
    assert_eq!(probe.effects().await, 1);
}

/// R073, R119: other handlers and other sources are other rows.
pub async fn transactions_of_two_handlers_both_act<H: InboxHarness>() {
    let harness = H::start().await;
    let Some(probe) = probe(&harness, "transactions_of_two_handlers_both_act") else {
        return;
    };
    let mut elsewhere = event(1);
    elsewhere.source = "/warehouse".into();
    let all = [(event(1), "billing"), (event(1), "shipping"), (elsewhere, "billing")];
    for (event, name) in &all {
        let accepted = accept(&*probe, event, name, Then::Commit).await;
        assert_eq!(accepted.expect("accept"), Accepted::FirstTime);
    }
    assert_eq!(probe.effects().await, 3);
}

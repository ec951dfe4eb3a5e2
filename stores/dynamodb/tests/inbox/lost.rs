//! Answers that are lost on the way: the client asks again, and finds what it has written itself.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Claim, InboxStore as _, Tried};
use postrider_dynamodb::{Connection, Inbox, InboxOptions, Settings};
use postrider_testkit::proxy::{Proxy, Traffic};

use super::schema::rows;
use super::{LONG, claim, claimed, event};
use crate::fresh::{Fresh, url};

/// An inbox behind a network that loses what it is told to.
struct Lossy {
    fresh: Fresh,
    proxy: Proxy,
    inbox: Inbox,
}

impl Lossy {
    async fn new() -> Option<Lossy> {
        let fresh = Fresh::new(1).await?;
        let port = url().ok()?.rsplit(':').next()?.trim_end_matches('/').parse().ok()?;
        let proxy = Proxy::to(port).await;
        let names = fresh.connection.names().clone();
        let mut settings = Settings::at(format!("http://127.0.0.1:{}", proxy.port), names);
        // An attempt takes half of it.
        settings.call_time_max = Duration::from_secs(20);
        let connection = Connection::new(settings).unwrap();
        let inbox = Inbox::new(connection, InboxOptions::default()).unwrap();
        Some(Lossy { fresh, proxy, inbox })
    }

    /// Runs a call whose first answer is lost: the network is mended when the call has done its work.
    async fn unheard<T>(&self, call: impl Future<Output = T>, worked: impl AsyncFn() -> bool) -> T {
        self.proxy.set(Traffic::AnswersLost);
        let mended = async {
            while !worked().await {
                // waits: for a request to reach the server, which does not tell us
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            self.proxy.set(Traffic::Open);
        };
        let ((), answer) = tokio::join!(mended, call);
        answer
    }

    async fn status(&self) -> Option<String> {
        let rows = rows(&self.fresh).await;
        rows.first().map(|row| row["status"].as_s().unwrap().clone())
    }
}

/// R078, R005: a claim whose answer is lost is the claimant's: the client asks again, finds its own beat, and
/// does not take itself for somebody else.
#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_ours() {
    let Some(lossy) = Lossy::new().await else { return };
    let wanted = event(1);
    let call = claim(&lossy.inbox, &wanted, LONG);
    let answer = lossy.unheard(call, async || lossy.status().await.is_some()).await;
    let Claim::Claimed(lease) = answer else { panic!("it is ours: {answer:?}") };
    let row = rows(&lossy.fresh).await.remove(0);
    assert_eq!(*row["token"].as_n().unwrap(), lease.token.to_string());
    assert_eq!(row["attempts"].as_n().unwrap(), "1", "written once");
    lossy.inbox.heartbeat(&lease, LONG).await.expect("it stands");
}

/// R005: so is a completion, a step, and a release; each is said again without harm.
#[tokio::test]
async fn what_was_written_unheard_is_not_refused() {
    let Some(lossy) = Lossy::new().await else { return };
    let inbox = Arc::new(lossy.inbox.clone());
    let lease = claimed(&inbox, &event(1), LONG).await;
    let stored = async || {
        let rows = rows(&lossy.fresh).await;
        !rows[0]["steps"].as_m().unwrap().is_empty()
    };
    let step = lossy.unheard(inbox.complete_step(&lease, "charge", b"receipt"), stored).await;
    step.expect("stored, and said twice");
    let found = inbox.step(&lease, "charge").await.unwrap();
    assert_eq!(found.as_deref(), Some(&b"receipt"[..]));
    let free = async || rows(&lossy.fresh).await[0].contains_key("released");
    lossy
        .unheard(inbox.release(&lease, Tried::Failed), free)
        .await
        .expect("let go, and said twice");
    let lease = claimed(&inbox, &event(1), LONG).await;
    let done = async || lossy.status().await.as_deref() == Some("processed");
    lossy.unheard(inbox.complete(&lease, b"done"), done).await.expect("done, and said twice");
    match claim(&inbox, &event(1), LONG).await {
        Claim::Processed { result } => assert_eq!(&*result, b"done"),
        other => panic!("it was done: {other:?}"),
    }
}

//! What a cluster promises before it has agreed: somebody of the test's answers in the stream's place, since no server does so
//! when it is asked to.

use futures_util::StreamExt as _;
use postrider_core::{Broker, ErrorKind, Fault, Outcome};
use postrider_nats::NatsBroker;

use crate::publishing::{event, outgoing};
use crate::server::Server;

/// Answers each message with the next of these.
pub(crate) async fn answers<const N: usize>(
    server: &Server,
    subject: &str,
    texts: [&'static str; N],
) {
    let client = async_nats::connect(server.address()).await.unwrap();
    let mut asked = client.subscribe(subject.to_owned()).await.unwrap();
    // The server reads a connection in its order: it has the first subscription when it sends this one's message.
    let inbox = client.new_inbox();
    let mut own = client.subscribe(inbox.clone()).await.unwrap();
    client.publish(inbox, "".into()).await.unwrap();
    own.next().await.unwrap();
    tokio::spawn(async move {
        for text in texts {
            let message = asked.next().await.expect("it is asked");
            let reply = message.reply.expect("an answer is wanted");
            client.publish(reply, text.into()).await.unwrap();
            client.flush().await.unwrap();
        }
    });
}

/// INV-1, F6, F8: an answer without a place in the stream confirms nothing, whether it calls the event a copy or not: the
/// leader has only heard of the id, and if another one leads by then, nothing was stored.
#[tokio::test]
async fn a_promise_without_a_place_confirms_nothing() {
    let Some(server) = Server::start() else { return };
    let promise = r#"{"stream":"orders","seq":0,"duplicate":true}"#;
    let (other, kept) = (r#"{"stream":"orders","seq":0}"#, r#"{"stream":"orders","seq":7}"#);
    answers(&server, "orders", [promise, promise, other, kept]).await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let sent = event("1", 1, 10);
    for _ in 0..3 {
        let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
        let [Outcome::Retry { fault: Fault { kind, detail }, .. }] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(*kind, ErrorKind::Unavailable);
        assert!(detail.contains("no place for it yet"), "{detail}");
    }
    let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Acked]);
}

/// INV-1: what the stream calls a copy is looked at by its id too. Where another event stands in its place, as after a server
/// lost what it had, it is sent again, and is not believed to be there.
#[tokio::test]
async fn a_copy_in_whose_place_another_stands_is_sent_again() {
    let Some(server) = Server::start() else { return };
    let stream = server.stream("orders", "orders").await;
    let broker = NatsBroker::new(server.settings()).unwrap();
    let other = event("2", 1, 10);
    assert_eq!(broker.publish(&[outgoing("orders", &other)]).await.unwrap(), [Outcome::Acked]);
    // From now on somebody else answers.
    let mut config = stream.cached_info().config.clone();
    config.subjects = vec!["elsewhere".to_owned()];
    server.jetstream().await.update_stream(config).await.unwrap();
    let (copy, kept) =
        (r#"{"stream":"orders","seq":1,"duplicate":true}"#, r#"{"stream":"orders","seq":7}"#);
    answers(&server, "orders", [copy, copy, copy, kept]).await;
    let sent = event("1", 1, 10);
    let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
    let [Outcome::Retry { fault: Fault { kind: ErrorKind::Unavailable, detail }, .. }] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}");
    };
    assert!(detail.contains("shows another one"), "{detail}");
    let outcomes = broker.publish(&[outgoing("orders", &sent)]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Acked]);
}

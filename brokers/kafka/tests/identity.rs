//! Who we are, and servers that do not know us.

use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Outcome, Subscription};
use postrider_kafka::{KafkaBroker, KafkaSubscription, Mechanism, Sasl, SubscriptionSettings};
#[cfg(feature = "tls")]
use postrider_kafka::{KafkaSettings, Tls};
#[cfg(feature = "tls")]
use postrider_testkit::authority::Authority;
use postrider_testkit::carry::until_acked;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout};

use crate::publishing::{event, outgoing};
use crate::server::Server;

fn sasl(mechanism: Mechanism, password: &str) -> Option<Sasl> {
    Some(Sasl { mechanism, user: "joe".to_owned(), password: password.into() })
}

async fn says(server: &Server, sasl: Option<Sasl>) -> Result<Vec<Outcome>, postrider_core::Error> {
    let mut settings = server.settings();
    settings.sasl = sasl;
    settings.deadline = Duration::from_secs(3);
    let broker = KafkaBroker::new(settings)?;
    broker.publish(&[outgoing("orders", &event("1", 1, 10))]).await
}

/// F36, R107: who we are is shown, and a server that does not know us is said to, without a secret.
#[tokio::test]
async fn credentials_are_shown_and_refused() {
    let login = |kind: &str, options: &str| {
        format!("org.apache.kafka.common.security.{kind} required {options};")
    };
    let plain = login(
        "plain.PlainLoginModule",
        "username=\"broker\" password=\"hush\" user_broker=\"hush\" user_joe=\"sesame\"",
    );
    let scram = login("scram.ScramLoginModule", "username=\"broker\" password=\"hush\"");
    let properties = format!(
        "listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         sasl.mechanism.inter.broker.protocol=PLAIN\n\
         listener.name.client.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n\
         listener.name.client.plain.sasl.jaas.config={plain}\n\
         listener.name.client.scram-sha-256.sasl.jaas.config={scram}\n"
    );
    let users = ["SCRAM-SHA-256=[name=joe,password=sesame]"];
    let Some(server) = Server::with(&properties, &users).await else { return };
    // There is no such topic: we were let in.
    let let_in = says(&server, sasl(Mechanism::Plain, "sesame")).await.unwrap();
    assert!(matches!(let_in[..], [Outcome::Unroutable(_)]), "{let_in:?}");
    let mut wrong = vec![(sasl(Mechanism::Plain, "guess"), "`user` and `password`")];
    if cfg!(feature = "tls") {
        let let_in = says(&server, sasl(Mechanism::ScramSha256, "sesame")).await.unwrap();
        assert!(matches!(let_in[..], [Outcome::Unroutable(_)]), "{let_in:?}");
        wrong.push((sasl(Mechanism::ScramSha256, "guess"), "`user` and `password`"));
        // A mechanism that the server does not have.
        wrong.push((sasl(Mechanism::ScramSha512, "sesame"), "`mechanism`"));
    } else {
        let refused = says(&server, sasl(Mechanism::ScramSha256, "sesame")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
        println!("skipped: SCRAM on Kafka: built without OpenSSL");
    }
    for (sasl, setting) in wrong {
        let shown = format!("{sasl:?}");
        let refused = says(&server, sasl).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{shown}: {refused:?}");
        for secret in ["guess", "sesame"] {
            assert!(!format!("{refused:?}").contains(secret), "{refused:?}");
        }
        assert!(refused.to_string().contains(setting), "{refused}");
    }
    // Nobody is let in without a name; the server closes the connection without a word.
    let refused = says(&server, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    assert!(refused.to_string().contains("`mechanism`"), "{refused}");
}

/// What the guide's example configures, a password that is proved over an encrypted connection, lets a destination
/// and a subscription in; each half alone does not.
#[cfg(feature = "tls")]
#[tokio::test]
async fn a_password_is_proved_over_tls() {
    let authority = Authority::new();
    let Some(mut server) = Server::with(
        &authority.of_kafka_with_users(),
        &["SCRAM-SHA-512=[name=joe,password=sesame]"],
    )
    .await
    else {
        return;
    };
    let roots = authority.roots();
    server.let_in_as_broker(&roots);
    let topic = server.topic("orders", 1, &[]).await;
    let mut settings = server.settings();
    settings.tls = Some(Tls { roots: Some(roots), identity: None });
    settings.sasl = sasl(Mechanism::ScramSha512, "sesame");
    let broker = KafkaBroker::new(settings.clone()).unwrap();
    let sent = event("1", 1, 10);
    until_acked(&broker, &topic, &sent).await;
    let subscription =
        KafkaSubscription::open(settings.clone(), SubscriptionSettings::new(&topic, "billing"));
    let subscription = subscription.await.unwrap();
    let received = timeout(PATIENCE, async {
        loop {
            let came = subscription.receive(1).await.unwrap();
            if let Some(first) = came.into_iter().next() {
                return first;
            }
        }
    });
    let received = received.await.expect("it comes");
    assert_eq!(received.event.as_ref().map(|event| event.id), Ok(sent.id));
    subscription.ack(&received).await.unwrap();
    subscription.close().await.unwrap();
    let refused = async |change: &dyn Fn(&mut KafkaSettings)| {
        let mut settings = settings.clone();
        change(&mut settings);
        let broker = KafkaBroker::new(settings).unwrap();
        broker.publish(&[outgoing(&topic, &event("1", 2, 10))]).await.unwrap_err()
    };
    let wrong = refused(&|settings| settings.sasl = sasl(Mechanism::ScramSha512, "guess")).await;
    assert_eq!(wrong.kind(), ErrorKind::Unauthorized, "{wrong:?}");
    assert!(wrong.to_string().contains("`user` and `password`"), "{wrong}");
    let stranger = Authority::new();
    let unknown = Tls { roots: Some(stranger.roots()), identity: None };
    let wrong = refused(&|settings| settings.tls = Some(unknown.clone())).await;
    assert_eq!(wrong.kind(), ErrorKind::Unauthorized, "{wrong:?}");
    assert!(wrong.to_string().contains("correct `roots`"), "{wrong}");
    let wrong = refused(&|settings| settings.sasl = None).await;
    assert_eq!(wrong.kind(), ErrorKind::Unavailable, "{wrong:?}");
    let wrong = refused(&|settings| settings.tls = None).await;
    assert_eq!(wrong.kind(), ErrorKind::Unavailable, "{wrong:?}");
    assert_eq!(server.count(&topic).await, 1, "nothing else was sent");
}

/// Long enough for a session and for the clients' pauses, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// F36: a sidecar whose server went away before it answered a commit, and does not know it any more when it is back, says so.
/// The library tries that commit again for as long as it is not let in; whoever waits for its end hears of nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_password_is_told_although_a_commit_was_under_way() {
    let login = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let properties = format!(
        "listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         sasl.mechanism.inter.broker.protocol=PLAIN\n\
         listener.name.client.sasl.enabled.mechanisms=PLAIN\n\
         listener.name.client.plain.sasl.jaas.config={login} username=\"broker\" \
         password=\"hush\" user_broker=\"hush\" user_joe=\"sesame\";\n"
    );
    let Some(mut server) = Server::with(&properties, &[]).await else { return };
    server.let_in(&[
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "broker"),
        ("sasl.password", "hush"),
    ]);
    let topic = server.topic("orders", 1, &[]).await;
    let mut kafka = server.settings();
    kafka.sasl = sasl(Mechanism::Plain, "sesame");
    let broker = KafkaBroker::new(kafka.clone()).unwrap();
    for key in ["1", "2"] {
        until_acked(&broker, &topic, &event(key, 1, 10)).await;
    }
    let mut settings = SubscriptionSettings::new(&topic, "billing");
    settings.session = Duration::from_secs(2);
    let subscription = KafkaSubscription::open(kafka, settings).await.unwrap();
    let mut deliveries = Vec::new();
    while deliveries.len() < 2 {
        let more = timeout(PATIENCE, subscription.receive(2)).await.expect("they come");
        deliveries.extend(more.unwrap());
    }
    assert!(server.signal("-STOP"));
    subscription.ack(&deliveries[0]).await.unwrap();
    // waits: for the commit to be sent, which nobody tells; where it was not, the test shows less
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.kill();
    let begun = Instant::now();
    // The other delivery is ours until the session has ended.
    while subscription.extend(&deliveries[1], PATIENCE).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the thread that reads waits for the commit");
        // waits: the session ends by the library's clock, which tells nobody
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let file = server.folder().join("server.properties");
    let rotated = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, rotated.replace("\"sesame\"", "\"another\"")).unwrap();
    block_in_place(|| server.run().unwrap());
    let told = async {
        loop {
            match subscription.receive(1).await {
                Err(error) if error.kind() == ErrorKind::Unauthorized => return error,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                Ok(came) => panic!("nobody is let in: {came:?}"),
            }
        }
    };
    let told = timeout(PATIENCE, told).await.expect("it is told");
    assert!(told.to_string().contains("`user` and `password`"), "{told}");
}

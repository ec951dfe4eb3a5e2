//! Who we are, and servers that do not know us.

use std::time::Duration;

use postrider_core::{Broker, ErrorKind, Outcome};
use postrider_kafka::{KafkaBroker, Mechanism, Sasl};

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

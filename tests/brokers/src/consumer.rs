//! One consumer process for the tests: from a real broker to an effect in a PostgreSQL database.
//!
//! `broker-consumer DATABASE BROKER_URL [careless | poison ID | forgetful ID]`: an effect is a row of the table `effects`,
//! written in the transaction of the inbox. A careless one has no inbox, and writes a row for each delivery: what the checker
//! has to find. The event with the id ends the process of the other two, of which a forgetful one knows nothing of what earlier
//! processes began.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::inbox::{Receiver, Verdict};
use postrider_core::{
    BoxFuture, Delivery, Error, ErrorKind, Event, HandlerName, Result, Subscription,
};
use postrider_inbox::Consumer;
use postrider_kafka::{KafkaSettings, KafkaSubscription, Notices};
use postrider_nats::{NatsSettings, NatsSubscription};
use postrider_postgres::Transactional;

/// Believes that no process was before it.
struct Forgetful {
    inner: Transactional,
}

impl Receiver for Forgetful {
    fn handler(&self) -> &HandlerName {
        self.inner.handler()
    }

    fn counts_tries(&self) -> bool {
        self.inner.counts_tries()
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        let mut delivery = delivery.clone();
        delivery.begun_before = false;
        Box::pin(async move { self.inner.receive(event, &delivery).await })
    }
}

/// The write of an effect.
const EFFECT: &str = include_str!("effect.sql");

/// Writes one row for each delivery, with an inbox that forgets everything.
struct Careless {
    inner: Transactional,
}

impl Receiver for Careless {
    fn handler(&self) -> &HandlerName {
        self.inner.handler()
    }

    fn receive<'a>(
        &'a self,
        event: &'a Arc<Event>,
        delivery: &'a Delivery,
    ) -> BoxFuture<'a, Result<Verdict>> {
        // Another id each time is as good as no inbox; the effect names the real one.
        let mut other = Event::clone(event);
        other.headers.insert("real".to_owned(), event.id.to_string());
        other.id = postrider_core::EventId::mint();
        Box::pin(async move { self.inner.receive(&Arc::new(other), delivery).await })
    }
}

fn ledger(database: &str, poison: Option<String>) -> Result<Transactional> {
    Transactional::new(database, HandlerName::new("ledger")?, move |tx, event| {
        let poison = poison.clone();
        Box::pin(async move {
            if poison.is_some_and(|poison| event.id.to_string() == poison) {
                // waits: until its neighbours are at work as well
                tokio::time::sleep(Duration::from_millis(100)).await;
                std::process::abort();
            }
            let id = event.headers.get("real").cloned().unwrap_or_else(|| event.id.to_string());
            tx.execute(EFFECT, &[&id]).await?;
            Ok(Verdict::Done)
        })
    })
}

/// Few, so that what ends its process is known soon: it is tried alone at its second try without an end, the third is refused.
const DELIVERIES_MAX: u32 = 4;

/// How long a delivery is hidden without a sign of life.
const VISIBILITY: Duration = Duration::from_secs(2);

/// The group `ledger` of the topic `orders`. The order of a key is judged as well.
async fn subscription(url: &str) -> Result<Arc<dyn Subscription>> {
    if url.starts_with("kafka://") {
        let mut settings = postrider_kafka::SubscriptionSettings::new("orders", "ledger");
        settings.visibility = VISIBILITY;
        settings.session = VISIBILITY;
        let mut kafka = KafkaSettings::new(url);
        kafka.notices = Notices::to(|notice| tracing::warn!("{notice}"));
        return Ok(Arc::new(KafkaSubscription::open(kafka, settings).await?));
    }
    let mut settings = postrider_nats::SubscriptionSettings::new("orders", "ledger");
    settings.visibility = VISIBILITY;
    settings.unsettled_max = 1;
    Ok(Arc::new(NatsSubscription::open(NatsSettings::new(url), settings).await?))
}

async fn run(args: &[String]) -> Result<ExitCode> {
    let [database, url, others @ ..] = args else {
        return Err(Error::new(ErrorKind::Config, "start")
            .message("broker-consumer DATABASE BROKER_URL [careless | poison ID | forgetful ID]"));
    };
    let words: Vec<&str> = others.iter().map(String::as_str).collect();
    let receiver: Arc<dyn Receiver> = match *words {
        [] => Arc::new(ledger(database, None)?),
        ["poison", id] => {
            Arc::new(ledger(database, Some(id.to_owned()))?.deliveries_max(DELIVERIES_MAX))
        }
        ["forgetful", id] => Arc::new(Forgetful {
            inner: ledger(database, Some(id.to_owned()))?.deliveries_max(DELIVERIES_MAX),
        }),
        _ => Arc::new(Careless { inner: ledger(database, None)? }),
    };
    Consumer::builder(subscription(url).await?).receiver(receiver).start()?.stopped().await;
    Ok(ExitCode::FAILURE)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let told = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
    told.with_max_level(tracing_subscriber::filter::LevelFilter::WARN).init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args).await.unwrap_or_else(|error| {
        _ = writeln!(std::io::stderr(), "{error}");
        ExitCode::from(2)
    })
}

//! The client: made when it is first needed, and made anew when it gave up for good.
//!
//! Invariant: no thread of the runtime waits for it. It is made, asked, and ended on threads of their own.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use postrider_core::{Error, ErrorKind, Result};
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
    ThreadedProducer,
};
use rdkafka::statistics::Statistics;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use crate::encode::Encoded;
use crate::flight::{Answer, Ticket};
use crate::settings::{KafkaSettings, Tls, wrong};
use crate::trouble::Trouble;

/// Takes what the library's own threads report.
pub(crate) struct Context {
    trouble: Arc<Trouble>,
}

impl Context {
    pub(crate) fn new(trouble: &Arc<Trouble>) -> Context {
        Context { trouble: Arc::clone(trouble) }
    }
}

impl ClientContext for Context {
    fn stats(&self, said: Statistics) {
        self.trouble.throttle.hear(&said, Instant::now());
    }

    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {
        // What matters comes as an error too, and a library prints nothing.
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.trouble.note(&error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        ticket.answer(match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(code_of(error)),
        });
    }
}

pub(crate) fn code_of(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)
}

/// One producer of the library, with the thread that takes its answers.
pub(crate) struct Producer(Option<ThreadedProducer<Context>>);

impl Producer {
    pub(crate) fn make(
        settings: &KafkaSettings,
        alone: bool,
        trouble: Arc<Trouble>,
    ) -> Result<Producer> {
        let config = settings.producer(alone);
        let made = ThreadedProducer::from_config_and_context(&config, Context { trouble });
        let producer = made.map_err(|error| refused(&error, settings))?;
        Ok(Producer(Some(producer)))
    }

    fn inner(&self) -> &ThreadedProducer<Context> {
        self.0.as_ref().expect("invariant: taken when it is dropped, and not before")
    }

    /// The library's client, to ask questions on a thread that may wait.
    pub(crate) fn client(&self) -> &rdkafka::client::Client<Context> {
        self.inner().client()
    }

    /// Queues a record, for a partition if one is named. Never waits; the answer comes with the ticket.
    pub(crate) fn send(
        &self,
        topic: &str,
        partition: Option<i32>,
        record: Encoded<'_>,
        ticket: Box<Ticket>,
    ) {
        let mut base = BaseRecord::with_opaque_to(topic, ticket).headers(record.headers);
        base.key = record.key.as_deref();
        base.payload = record.value;
        base.partition = partition;
        if let Err((error, base)) = self.inner().send::<[u8], [u8]>(base) {
            base.delivery_opaque.answer(refusal(&error));
        }
    }

    /// Whether it will never send again: the library says so after a gap that it cannot close.
    fn is_dead(&self) -> bool {
        self.client().fatal_error().is_some()
    }

    /// Waits until nothing is queued, and gives up what then is. Blocks.
    fn finish(&self, settings: &KafkaSettings) {
        // What is not sent in time is purged, and its callers are told.
        let _ = self.inner().flush(settings.delivery());
        self.give_up();
    }

    /// Gives up what is queued and under way. Blocks.
    fn give_up(&self) {
        self.inner().purge(PurgeConfig::default().queue().inflight());
    }
}

fn refusal(error: &KafkaError) -> Answer {
    Err(code_of(error))
}

/// The library's words about its settings name values, and a value may be a secret.
fn refused(error: &KafkaError, settings: &KafkaSettings) -> Error {
    let said = match error {
        KafkaError::ClientConfig(_, said, key, _) => format!("{key}: {said}"),
        KafkaError::ClientCreation(said) => said.clone(),
        other => other.to_string(),
    };
    wrong(format!("the settings cannot be used: {said}")).context("servers", settings.shown())
}

/// Has the library read certificates and key, as it does only when a client is made: by one that knows no servers. A
/// certificate beside another one's key is found here, before anything is given up for it.
fn check_files(tls: &Tls, settings: &KafkaSettings) -> Result<()> {
    let mut config = settings.connection();
    config.remove("bootstrap.servers");
    let context = Context::new(&Arc::new(Trouble::default()));
    let made: KafkaResult<BaseProducer<Context>> =
        BaseProducer::from_config_and_context(&config, context);
    let error = match made {
        Ok(client) => {
            end(client);
            return Ok(());
        }
        Err(error) => refused(&error, settings),
    };
    Err(tls.named().fold(error, |error, (name, path)| error.context(name, path.display())))
}

impl Drop for Producer {
    fn drop(&mut self) {
        end(self.0.take());
    }
}

/// Asks for a topic, or for all, as consumers do: for them no server makes a topic that is not there.
///
/// # Errors
/// Nobody answered in time, and why.
pub(crate) fn metadata<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: Option<&str>,
    settings: &KafkaSettings,
    trouble: &Trouble,
) -> Result<Metadata> {
    let asked = consumer.fetch_metadata(topic, settings.deadline);
    asked.map_err(|_| {
        // A consumer tells its troubles to whoever polls it. Lines of its log come the same way, and look as if there were
        // nothing.
        (0..TROUBLES_MAX).for_each(|_| drop(consumer.poll(Duration::ZERO)));
        trouble.unreachable(&settings.shown())
    })
}

/// Troubles of a consumer that nobody polled: a few for each server.
const TROUBLES_MAX: usize = 64;

/// Drops what waits while it is dropped.
pub(crate) fn end<T: Send + 'static>(thing: T) {
    // Where no thread can be had, this one waits.
    let _ = thread::Builder::new().name("kafka end".to_owned()).spawn(move || drop(thing));
}

/// See the module.
pub(crate) struct Client {
    settings: Arc<KafkaSettings>,
    alone: bool,
    trouble: Arc<Trouble>,
    made: Mutex<Option<Arc<Producer>>>,
}

impl Client {
    pub(crate) fn new(
        settings: &Arc<KafkaSettings>,
        alone: bool,
        trouble: &Arc<Trouble>,
    ) -> Client {
        Client {
            settings: Arc::clone(settings),
            alone,
            trouble: Arc::clone(trouble),
            made: Mutex::new(None),
        }
    }

    /// Refuses settings that the library does not know, and files that it cannot use, with nobody called yet.
    pub(crate) fn check(&self) -> Result<()> {
        let checked = self.settings.producer(self.alone).create_native_config();
        checked.map(drop).map_err(|error| refused(&error, &self.settings))?;
        match &self.settings.tls {
            Some(tls) => check_files(tls, &self.settings),
            None => Ok(()),
        }
    }

    /// The producer; a new one where the last one is dead. What was queued in that fails, and its callers
    /// are told before anything that follows is given to the new one.
    ///
    /// # Errors
    /// `Config` if none can be made.
    pub(crate) async fn producer(&self) -> Result<Arc<Producer>> {
        let mut made = self.made.lock().await;
        if let Some(producer) = made.as_ref().filter(|producer| !producer.is_dead()) {
            return Ok(Arc::clone(producer));
        }
        *made = None;
        let (settings, trouble) = (Arc::clone(&self.settings), Arc::clone(&self.trouble));
        let alone = self.alone;
        let producer = spawn_blocking(move || Producer::make(&settings, alone, trouble)).await;
        let producer = producer.map_err(|error| {
            Error::new(ErrorKind::Internal, "open kafka").message(error.to_string())
        })??;
        Ok(Arc::clone(made.insert(Arc::new(producer))))
    }

    /// The producer, if there is one: nobody waits for one to be made.
    pub(crate) async fn made(&self) -> Option<Arc<Producer>> {
        self.made.lock().await.as_ref().map(Arc::clone)
    }

    /// The next one to ask gets a new producer. What the old one has queued counts as not published, and it is told to give that up,
    /// on a thread of its own: it may answer nobody.
    pub(crate) async fn renew(&self) {
        let Some(producer) = self.made.lock().await.take() else { return };
        let _ =
            thread::Builder::new().name("kafka end".to_owned()).spawn(move || producer.give_up());
    }

    /// Sends what is queued, and nothing after that.
    pub(crate) async fn close(&self) {
        let Some(producer) = self.made.lock().await.take() else { return };
        let settings = Arc::clone(&self.settings);
        // Whoever drops this call leaves the end to the thread.
        let _ = spawn_blocking(move || producer.finish(&settings)).await;
    }
}

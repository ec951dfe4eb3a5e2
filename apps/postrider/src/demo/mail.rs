//! The handler `mail`, in a process of its own: its effect is outside any database, so it works under
//! a claim, and in a step whose result is kept.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use postrider_core::{BoxFuture, Event, HandlerName, Result as CoreResult};
use postrider_inbox::{Consumer, Context, Leased, LeasedHandler, Outcome};
use postrider_local::{LocalBroker, SubscribeOptions};
use postrider_sqlite::SqliteStore;

use crate::demo::child::{asked_to_finish, say};
use crate::demo::plan::Step;
use crate::failure::{Exit, Failure};

/// The handler's name, also that of its group.
pub(crate) const NAME: &str = "mail";

/// How long a claim and a delivery last without a sign of life: short, as a crash is what is shown.
const LEASE: Duration = Duration::from_secs(2);

/// What the parent asks of its mail handler.
#[derive(Args, Debug)]
pub(crate) struct DemoMailArgs {
    #[arg(long)]
    inbox: PathBuf,
    #[arg(long)]
    queue: PathBuf,
    /// Where mails go: a line each.
    #[arg(long)]
    sent: PathBuf,
    /// The order at which the process waits to be killed, holding its claim.
    #[arg(long)]
    crash: Option<String>,
}

pub(crate) async fn run(args: DemoMailArgs) -> Result<Exit, Failure> {
    let store = Arc::new(SqliteStore::new(&args.inbox)?);
    let provider = Provider::open(&args.sent)?;
    let handler = Mailer { provider: Arc::new(provider), crash: args.crash };
    let receiver = Leased::builder(HandlerName::new(NAME)?, store, handler).lease(LEASE).build()?;
    let options = SubscribeOptions { visibility: LEASE, ..SubscribeOptions::default() };
    let broker = LocalBroker::open(&args.queue)?;
    let subscription = broker.subscribe(NAME, Step::Shipped.event_type(), options).await?;
    let consumer =
        Consumer::builder(Arc::new(subscription)).receiver(Arc::new(receiver)).start()?;
    say("ready");
    asked_to_finish().await;
    consumer.drain(Duration::from_secs(5));
    consumer.stopped().await;
    Ok(Exit::Success)
}

/// Sends one mail for each shipped order.
struct Mailer {
    provider: Arc<Provider>,
    crash: Option<String>,
}

impl LeasedHandler for Mailer {
    fn act(&self, event: Arc<Event>, context: Context) -> BoxFuture<'_, CoreResult<Outcome>> {
        Box::pin(async move {
            let send = |key: String| {
                let sent = self.provider.send(&key, &event);
                async move { sent }
            };
            let receipt = context.step("send", send).await?;
            if self.crash.as_deref() == Some(&*event.aggregate_id) {
                // The mail is sent, the claim is held, and nobody will ever complete it.
                say("held");
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Ack(receipt))
        })
    }
}

/// The mail provider: an append-only file outside every transaction. Like any provider worth its
/// money it does nothing for a key that it has seen.
struct Provider {
    sent: Mutex<(File, HashSet<String>)>,
}

impl Provider {
    fn open(path: &Path) -> Result<Provider, Failure> {
        let fail = |e: std::io::Error| Failure::plain(format!("{}: {e}", path.display()));
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(fail)?;
        let text = std::fs::read_to_string(path).map_err(fail)?;
        let keys = text.lines().filter_map(|line| line.split('\t').next());
        let keys = keys.map(str::to_owned).collect();
        Ok(Provider { sent: Mutex::new((file, keys)) })
    }

    fn send(&self, key: &str, event: &Event) -> std::io::Result<&'static str> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if sent.1.contains(key) {
            return Ok("sent before");
        }
        // One write of one line: a process that dies leaves all of it or nothing.
        sent.0.write_all(format!("{key}\t{}\t{}\n", event.id, event.aggregate_id).as_bytes())?;
        sent.1.insert(key.to_owned());
        Ok("sent")
    }
}

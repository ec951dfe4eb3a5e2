//! A broker whose answers are late: by less than a publish may take, and then by twice the lease of those who wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use postrider_core::broker::BrokerCapabilities;
use postrider_core::{BoxFuture, Broker, Destination, Outcome, Outgoing, Result, Route};
use postrider_relay::{Relay, RelayHandle, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use crate::server::Server;
use crate::shop::{id, stop};
use crate::stage::{KEYS, PATIENCE, Stage};

/// The longest delay, in milliseconds; `POSTRIDER_LATE_MS=30000` is that of the fault matrix, with the default times.
const LATE_MS: &str = "15000";
/// Events of one step.
const STEP: u32 = 200;

/// A way to a server on which each answer takes so much longer, whatever comes before it.
pub(crate) struct Line {
    pub(crate) port: u16,
    late: Arc<AtomicU64>,
}

impl Line {
    /// Listens, and leads to a port of this machine.
    pub(crate) async fn to(port: u16) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let late = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&late);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, port, Arc::clone(&told)));
            }
        });
        Line { port: own, late }
    }

    fn set(&self, late: Duration) {
        self.late.store(late.as_millis().try_into().unwrap(), SeqCst);
    }
}

async fn carry(mut near: TcpStream, port: u16, late: Arc<AtomicU64>) {
    let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let ((mut asked, mut answered), (mut said, mut heard)) = (near.split(), far.split());
    let (put, mut due) = mpsc::channel(10_000);
    let later = async {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = said.read(&mut bytes).await {
            let at = tokio::time::Instant::now() + Duration::from_millis(late.load(SeqCst));
            if put.send((at, bytes[..count].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let answers = async {
        while let Some((at, bytes)) = due.recv().await {
            // waits: that is what late means
            sleep_until(at).await;
            if answered.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = copy(&mut asked, &mut heard) => {}
        () = later => {}
        () = answers => {}
    }
}

/// What relays gave a broker.
#[derive(Default)]
struct Figures {
    sent: AtomicU64,
    under_way: AtomicU64,
    most_under_way: AtomicU64,
}

struct Measured {
    inner: Arc<dyn Broker>,
    figures: Arc<Figures>,
}

/// A call that is not answered yet, and was not dropped.
struct Call<'a>(&'a Figures, u64);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(self.1, SeqCst);
    }
}

impl Broker for Measured {
    fn capabilities(&self) -> BrokerCapabilities {
        self.inner.capabilities()
    }

    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> BoxFuture<'a, Result<Vec<Outcome>>> {
        Box::pin(async {
            let (figures, count) = (&*self.figures, batch.len() as u64);
            figures.sent.fetch_add(count, SeqCst);
            let under_way = figures.under_way.fetch_add(count, SeqCst) + count;
            figures.most_under_way.fetch_max(under_way, SeqCst);
            let _call = Call(figures, count);
            self.inner.publish(batch).await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }
}

async fn relay(stage: &Stage, settings: Settings, broker: Measured) -> RelayHandle {
    let topic = Route::all("orders".parse().unwrap());
    let definition = Destination::new(id("a"), "broker", vec![topic]);
    let relay = Relay::builder(Arc::new(stage.store())).presence(false).settings(settings);
    relay.destination(definition, Arc::new(broker)).start().await.unwrap()
}

/// Waits until the store knows that everything was delivered.
async fn saved(stage: &Stage) -> Duration {
    let begun = Instant::now();
    let (mut since, mut fewest) = (begun, None);
    loop {
        let unsaved = stage.unsaved();
        if unsaved == 0 {
            return begun.elapsed();
        }
        // However slow it is, it gets on.
        if fewest.is_none_or(|fewest| unsaved < fewest) {
            (since, fewest) = (Instant::now(), Some(unsaved));
        }
        assert!(since.elapsed() < PATIENCE, "{unsaved} are not delivered");
        // waits: relays tell nobody what they saved
        sleep(Duration::from_millis(20)).await;
    }
}

/// Two relays, and answers that are late by a fifteenth of the longest delay, and by all of it, which is twice their lease.
/// The first go on, slowly. In the second nobody loses a lease and nobody sends more than one event of a key at a time; what
/// was sent in vain comes again, in its order, and everything goes on when the answers are in time again.
pub(crate) async fn answers<S: Server>(
    server: &S,
    line: &Line,
    broker: impl Fn(u16, Duration) -> Arc<dyn Broker>,
) {
    let longest = std::env::var("POSTRIDER_LATE_MS").unwrap_or_else(|_| LATE_MS.to_owned());
    let longest = Duration::from_millis(longest.parse().unwrap());
    let settings = Settings::with_lease(longest / 2);
    let deadline = settings.publish_deadline * 4 / 5;
    let (mut stage, figures) = (Stage::open(), Arc::new(Figures::default()));
    let measured =
        || Measured { inner: broker(line.port, deadline), figures: Arc::clone(&figures) };
    let relays =
        [relay(&stage, settings, measured()).await, relay(&stage, settings, measured()).await];
    stage.write(STEP);
    saved(&stage).await;
    let acquired = stage.acquisitions();
    line.set(longest / 15);
    stage.write(STEP);
    let slow = saved(&stage).await;
    let before = figures.sent.load(SeqCst);
    let begun = Instant::now();
    line.set(longest);
    stage.write(STEP);
    // waits: until the first late answers have come, and some more
    sleep(longest * 5 / 4).await;
    let in_vain = figures.sent.load(SeqCst) - before;
    assert!(stage.unsaved() > 0, "no answer came in time");
    line.set(Duration::ZERO);
    let goes_on = saved(&stage).await;
    let sent = figures.sent.load(SeqCst) - before;
    // Before they end: who is left takes what another one leaves.
    let kept = stage.acquisitions();
    for relay in relays {
        stop(relay).await;
    }
    let arrived = server.arrived().await;
    let committed = stage.judge(&arrived);
    let (most, twice) = (figures.most_under_way.load(SeqCst), arrived.len() - committed);
    eprintln!(
        "{}: answers {:?} late, {STEP} in {slow:?}; then {longest:?} late: {in_vain} sent, {most} under way at most, \
         all delivered {goes_on:?} after that; {committed} committed, {twice} came twice",
        S::NAME,
        longest / 15,
    );
    assert_eq!(committed, 3 * STEP as usize);
    assert_eq!(kept, acquired, "a lease was lost");
    assert!(most <= u64::from(KEYS), "{most} were under way at once");
    // Each of a key once in the time that an attempt takes.
    let attempts = begun.elapsed().as_millis() / (deadline / 2).as_millis() + 1;
    let again = sent - u64::from(STEP);
    assert!(u128::from(again) <= u128::from(KEYS) * attempts, "{again} were sent again");
}

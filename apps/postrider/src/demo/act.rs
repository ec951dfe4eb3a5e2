//! The play itself: clerks take orders, relays come and are killed, handlers act.
//!
//! Everything here runs in one future, so that dropping it (at an error, at ctrl-C) kills every
//! child, by its id, and sends the clerks home.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_local::LocalBroker;
use tokio::task::JoinSet;

use crate::demo::charge::Charge;
use crate::demo::child::{Kid, in_time};
use crate::demo::evidence;
use crate::demo::plan::{CLERKS, Plan, SHARES, Shift};
use crate::demo::shop::Shop;
use crate::demo::tally::{Fault, Tally};
use crate::failure::{Exit, Failure};

/// How long the handlers may stand still before they count as finished, right or not.
const STILL_MAX: Duration = Duration::from_secs(10);

/// How long a finished queue is watched for duplicates that are still on their way.
const QUIET: Duration = Duration::from_millis(400);

/// How long events that are tried again may take: their delay is the demo's lease, 2 s, and grows.
const RETRIED_MAX: Duration = Duration::from_secs(15);

/// How long a play may last: far beyond any that goes well, so that one that hangs ends.
const PLAY_MAX: Duration = Duration::from_secs(180);

/// The files of one demo.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    pub(crate) shop: PathBuf,
    pub(crate) queue: PathBuf,
    pub(crate) billing: PathBuf,
    pub(crate) inbox: PathBuf,
    pub(crate) sent: PathBuf,
}

impl Files {
    pub(crate) fn in_folder(folder: &Path) -> Files {
        Files {
            folder: folder.to_owned(),
            shop: folder.join("shop.db"),
            queue: folder.join("queue.db"),
            billing: folder.join("billing.db"),
            inbox: folder.join("mail.db"),
            sent: folder.join("mail.log"),
        }
    }
}

/// Plays the plan to its end.
///
/// # Errors
/// What kept it from being played; what it proved is not judged here.
pub(crate) async fn play(
    plan: &Arc<Plan>,
    files: &Files,
    shop: &Arc<Shop>,
    tally: &Tally,
) -> Result<(), Failure> {
    let queue = LocalBroker::open(&files.queue)?;
    let charge = Charge::start(&queue, &files.billing).await?;
    postrider_sqlite::init(&files.inbox)?;
    let home = SendHome(shop);
    let mut clerks = JoinSet::new();
    for clerk in 0..CLERKS {
        let (shop, plan) = (Arc::clone(shop), Arc::clone(plan));
        clerks.spawn_blocking(move || shop.work(&plan, clerk));
    }
    let scenes = async {
        tokio::try_join!(relay(plan, files, shop, tally, clerks), crash_mail(plan, files, tally))
    };
    let ((), mail) = tokio::time::timeout(PLAY_MAX, scenes).await.map_err(|_| {
        Failure::plain(format!("the demo was not done after {} s", PLAY_MAX.as_secs()))
    })??;
    wait_for_handlers(files, &queue).await?;
    let status = mail.finish(|_| {}).await?;
    if !status.success() {
        return Err(Failure::plain(format!("the mail handler ended with {status}")));
    }
    charge.finish().await;
    for _ in shop.done().rolled_back {
        tally.strike(Fault::RolledBack);
    }
    drop(home);
    Ok(())
}

/// Sends the clerks home when the play ends, however it ends.
struct SendHome<'a>(&'a Shop);

impl Drop for SendHome<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Runs one relay after the other, and a last one that delivers what is left.
async fn relay(
    plan: &Plan,
    files: &Files,
    shop: &Shop,
    tally: &Tally,
    mut clerks: JoinSet<Result<(), Failure>>,
) -> Result<(), Failure> {
    let last = plan.shifts.len() - 1;
    for (number, shift) in plan.shifts.iter().enumerate() {
        let mut kid =
            Kid::start("demo-relay", &relay_args(plan, files, shift, false), &files.folder)?;
        in_time("the relay", hear_until(&mut kid, "ready", tally)).await??;
        shop.admit(if number == last { SHARES - 1 } else { number });
        if let Some((point, _)) = shift.kill {
            in_time("the relay", hear_until(&mut kid, "held", tally)).await??;
            kid.kill().await?;
            tally.tell(Fault::of_point(point));
            grow_backlog(plan, shop, number).await?;
            continue;
        }
        // Until the clerks are done, whatever the relay says meanwhile.
        loop {
            tokio::select! {
                word = kid.word() => match word? {
                    Some(word) => hear(&word, tally),
                    None => return Err(Failure::plain("the demo's relay ended by itself")),
                },
                clerk = clerks.join_next() => match clerk {
                    Some(outcome) => outcome.map_err(|e| Failure::plain(e.to_string()))??,
                    None => break,
                },
            }
        }
        let status = kid.finish(|word| hear(word, tally)).await?;
        if !status.success() {
            return Err(Failure::plain(format!("a drained relay ended with {status}")));
        }
    }
    deliver_the_rest(plan, files, tally).await
}

/// Leaves the shop without a relay until most of a share is taken, so that the next relay finds work
/// and the faults spread over the play.
async fn grow_backlog(plan: &Plan, shop: &Shop, share: usize) -> Result<(), Failure> {
    let enough = plan.transactions_until(share) * 7 / 10;
    let grown = async {
        while shop.committed() < enough {
            tokio::time::sleep(Duration::from_millis(5)).await; // waits: for the clerks
        }
    };
    in_time("the shop", grown).await
}

/// Runs one-shot relays until nothing is to be tried again: an event whose attempt was under way when
/// a relay ended has its next one only after a while.
async fn deliver_the_rest(plan: &Plan, files: &Files, tally: &Tally) -> Result<(), Failure> {
    let quiet = Shift { kill: None, lose: None, double: None };
    let args = relay_args(plan, files, &quiet, true);
    let started = Instant::now();
    loop {
        let mut kid = Kid::start("demo-relay", &args, &files.folder)?;
        // It says no more when it is done.
        while let Some(word) = in_time("the last relay", kid.word()).await?? {
            hear(&word, tally);
        }
        let status = kid.finish(|_| {}).await?;
        let retrying = evidence::retrying(files)?;
        let remains = retrying > 0 || plan.poison.is_some();
        let expected = if remains { Exit::Remaining } else { Exit::Success };
        if status.code() != Some(expected as i32) {
            let code = expected as i32;
            return Err(Failure::plain(format!(
                "the last relay ended with {status}, not with exit code {code}"
            )));
        }
        if retrying == 0 || started.elapsed() >= RETRIED_MAX {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await; // waits: for the next attempt's time
    }
}

fn relay_args(plan: &Plan, files: &Files, shift: &Shift, once: bool) -> Vec<String> {
    let mut args = vec![
        format!("--store={}", files.shop.display()),
        format!("--queue={}", files.queue.display()),
    ];
    let poison = plan.poison.as_ref().map(|order| format!("--refuse={order}"));
    let lose = shift.lose.map(|batch| format!("--lose={batch}"));
    let double = shift.double.map(|batch| format!("--double={batch}"));
    let once = once.then(|| "--once".to_owned());
    args.extend([poison, lose, double, once].into_iter().flatten());
    if let Some((point, nth)) = shift.kill {
        args.extend([format!("--hang={point}"), format!("--nth={nth}")]);
    }
    args
}

async fn hear_until(kid: &mut Kid, awaited: &str, tally: &Tally) -> Result<(), Failure> {
    while let Some(word) = kid.word().await? {
        if word == awaited {
            return Ok(());
        }
        hear(&word, tally);
    }
    Err(Failure::plain(format!("a child of the demo ended before it said `{awaited}`")))
}

/// A word that a relay says about a fault.
fn hear(word: &str, tally: &Tally) {
    match word.split(' ').next() {
        Some("lost") => tally.tell(Fault::LostAnswer),
        Some("doubled") => tally.tell(Fault::Doubled),
        Some("refused") => tally.tell(Fault::Poison),
        _ => {}
    }
}

/// Starts the mail handler, lets it die where it is planned, and starts it again.
async fn crash_mail(plan: &Plan, files: &Files, tally: &Tally) -> Result<Kid, Failure> {
    let args = [
        format!("--inbox={}", files.inbox.display()),
        format!("--queue={}", files.queue.display()),
        format!("--sent={}", files.sent.display()),
    ];
    if let Some(order) = &plan.crash {
        let crash = [args.as_slice(), &[format!("--crash={order}")]].concat();
        let mut kid = Kid::start("demo-mail", &crash, &files.folder)?;
        // The event comes when it comes; the play as a whole has its limit.
        hear_until(&mut kid, "held", tally).await?;
        kid.kill().await?;
        tally.tell(Fault::MailCrash);
    }
    Kid::start("demo-mail", &args, &files.folder)
}

/// Waits until the handlers' own records cover what the broker has, and nothing more comes.
async fn wait_for_handlers(files: &Files, queue: &LocalBroker) -> Result<(), Failure> {
    let wanted = evidence::wanted(queue).await?;
    let mut seen = 0;
    let mut moved = Instant::now();
    while moved.elapsed() < STILL_MAX {
        let now = evidence::acted(files)?;
        if now > seen {
            (seen, moved) = (now, Instant::now());
        }
        if now >= wanted && moved.elapsed() >= QUIET {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(40)).await; // waits: for the handlers' next record
    }
    // The ledger says what is missing.
    Ok(())
}

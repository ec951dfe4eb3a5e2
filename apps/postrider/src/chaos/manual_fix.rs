//! `manual-fix`: a message is among the dead letters though its effect happened. An operator deletes the
//! inbox row, so that "it runs again", and sends it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::operate::{InboxFilter, InboxState, PageRequest};
use postrider_core::{Event, EventId, HandlerName, Subscription};
use postrider_inbox::{Context, Leased, Outcome, Performed};

use crate::chaos::bank::Bank;
use crate::chaos::by_hand;
use crate::chaos::queue::Queue;
use crate::chaos::scene::{self, HANDLER, Scene};
use crate::failure::{Exit, Failure};

/// How long a message stays with a worker that says nothing.
const VISIBILITY: Duration = Duration::from_millis(300);

pub(crate) async fn play(scene: &mut Scene) -> Result<(), Failure> {
    scene.story.wrong("an inbox, a charge without a key, and a row deleted by hand");
    let charges = charge_without_key(scene, "by-hand").await?;
    scene.story.judge(format!("the customer was charged {charges} times"), charges == 2);

    scene.story.right("the same dead letter, with the inbox as a guard");
    let charges = match scene.is_guarded() {
        true => guarded(scene).await?,
        false => charge_without_key(scene, "without-a-guard").await?,
    };
    scene.story.judge("the customer was charged once, whatever was tried", charges == 1);
    Ok(())
}

/// A handler behind the inbox whose charge has a new key each time.
async fn charge_without_key(scene: &mut Scene, name: &str) -> Result<usize, Failure> {
    let bank = Arc::new(Bank::default());
    let paying = Arc::clone(&bank);
    let act = move |event: Arc<Event>, _: Context| {
        let receipt = paying.charge_anew(&event.aggregate_id);
        async move { Ok(Outcome::Ack(receipt.into())) }
    };
    let inbox = Arc::clone(&scene.store.inbox);
    let payer = Leased::builder(HandlerName::new(HANDLER)?, inbox, act).build()?;
    let work = Work::lay(scene, name, payer).await?;
    let id = work.die_after_the_charge(scene, "1").await?;
    delete_row(scene, id)?;
    work.send_again(scene).await?;
    Ok(bank.charges("1"))
}

async fn guarded(scene: &mut Scene) -> Result<usize, Failure> {
    let bank = Arc::new(Bank::default());
    let payer = scene.payer(&bank)?;
    let work = Work::lay(scene, "queue", payer).await?;
    let id = work.die_after_the_charge(scene, "1").await?;
    let refused = forget(scene, id, None).await?;
    scene.story.judge("`inbox forget` without a reason is refused", refused == Exit::Usage as i32);
    work.send_again(scene).await?;
    let once = bank.charges("1") == 1 && bank.calls() == 1;
    scene.story.judge("sent again with its row there, it is a duplicate", once);

    let id = work.die_after_the_charge(scene, "2").await?;
    delete_row(scene, id)?;
    work.send_again(scene).await?;
    let once = bank.charges("2") == 1 && bank.calls() == 2;
    scene.story.judge("with its row deleted, the step's result is still there", once);

    let forgotten = forget(scene, id, Some("the bank lost the charge")).await?;
    let traced = forgotten == 0 && leaves_a_trace(scene, id).await?;
    scene.story.judge("forgotten with a reason, it leaves a tombstone and an audit row", traced);
    Ok(bank.charges("1").max(bank.charges("2")))
}

/// A queue that gives a message out once, a worker at it, and what the worker does.
struct Work {
    queue: Queue,
    worker: Arc<dyn Subscription>,
    payer: Leased,
    visibility: Duration,
}

impl Work {
    async fn lay(scene: &mut Scene, name: &str, payer: Leased) -> Result<Work, Failure> {
        let queue = scene.lay(name, 1).await?;
        let visibility = queue.visibility(VISIBILITY);
        let worker = queue.subscribe(visibility).await?;
        Ok(Work { queue, worker, payer, visibility })
    }

    /// Sends a message, lets the worker charge for it and vanish before it acknowledges, and waits until the
    /// broker gives the message up.
    async fn die_after_the_charge(
        &self,
        scene: &mut Scene,
        order: &str,
    ) -> Result<EventId, Failure> {
        let message = by_hand::message(order);
        let id = message.event.id;
        self.queue.send(message).await?;
        let Some((_, event)) = by_hand::next(&*self.worker, scene::PATIENCE).await? else {
            return Err(Failure::plain("the message did not come"));
        };
        let Performed::Now(_) = self.payer.perform(&event).await? else {
            return Err(Failure::plain("the first delivery was no first one"));
        };
        let buried = scene::until(async || {
            let again = by_hand::next(&*self.worker, self.visibility).await?;
            Ok(again.is_none() && self.queue.dead().await? > 0)
        });
        if !buried.await? {
            return Err(Failure::plain("the broker did not give the message up"));
        }
        scene.story.tell(format!(
            "a worker charges for order {order}, and dies before it acknowledges: a dead letter"
        ));
        Ok(id)
    }

    /// Sends every dead letter again, and lets the worker have what comes. It waits for it meanwhile: what lies there
    /// unread would be given up again.
    async fn send_again(&self, scene: &mut Scene) -> Result<(), Failure> {
        let come = by_hand::next(&*self.worker, scene::PATIENCE);
        let (sent, come) = tokio::join!(self.queue.redrive(), come);
        sent?;
        let Some((delivery, event)) = come? else {
            return Err(Failure::plain("the dead letter did not come again"));
        };
        let outcome = match self.payer.perform(&event).await? {
            Performed::Now(_) => "the handler runs",
            Performed::Before(_) => "the inbox knows it, the handler does not run",
            other => return Err(Failure::plain(format!("the inbox answered {other:?}"))),
        };
        self.worker.ack(&delivery).await?;
        scene.story.tell(format!("the operator sends the dead letter again: {outcome}"));
        Ok(())
    }
}

fn delete_row(scene: &mut Scene, id: EventId) -> Result<(), Failure> {
    let trouble = |e: rusqlite::Error| Failure::plain(format!("the inbox's database: {e}"));
    let connection = postrider_sqlite::connect(scene.path("shop.db"))?;
    let sql = include_str!("../../sql/chaos/delete_inbox_row.sql");
    match connection.execute(sql, [id.to_string()]).map_err(trouble)? {
        1 => {
            scene.story.tell("the operator deletes the inbox row in the database");
            Ok(())
        }
        rows => Err(Failure::plain(format!("{rows} inbox rows were deleted, and not 1"))),
    }
}

/// Asks this very program to forget, as an operator does, and says its exit code.
async fn forget(scene: &mut Scene, id: EventId, reason: Option<&str>) -> Result<i32, Failure> {
    let fail = |e: std::io::Error| Failure::plain(format!("postrider inbox: {e}"));
    let mut command = tokio::process::Command::new(std::env::current_exe().map_err(fail)?);
    command.args(["inbox", "forget", &id.to_string(), "--handler", HANDLER, "--yes", "--store"]);
    command.arg(format!("sqlite://{}", scene.path("shop.db").display()));
    command.args(reason.map(|reason| format!("--reason={reason}")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let code = command.status().await.map_err(fail)?.code().unwrap_or_default();
    let with = reason.map_or("without --reason", |_| "with --reason");
    scene.story.tell(format!("postrider inbox forget … {with}: exit code {code}"));
    Ok(code)
}

async fn leaves_a_trace(scene: &Scene, id: EventId) -> Result<bool, Failure> {
    let mut filter = InboxFilter::default();
    filter.event_id = Some(id);
    filter.state = Some(InboxState::Forgotten);
    let page = PageRequest { after: None, limit: 10 };
    let tombstones = scene.store.operator.inbox(&filter, &page).await?;
    let audit = scene.store.operator.audit(&page).await?;
    Ok(tombstones.rows.len() == 1 && audit.rows.iter().any(|row| row.why.contains("bank")))
}

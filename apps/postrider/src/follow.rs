//! Following requests until the partitions' owners have carried them out.
//!
//! Invariant: nothing is said to be done before the store says so.

use std::time::{Duration, Instant};

use clap::Args;
use postrider_core::operate::{RequestState, Submission};
use postrider_core::{Code, RetryClass};

use crate::duration;
use crate::failure::{Exit, Failure};
use crate::global::{Global, Store};
use crate::shape;
use crate::signals::Signals;
use crate::status::start_relay;
use crate::terminal::{Progress, count, note};

/// The first look comes soon: a relay that is alive takes up a request within a poll.
const LOOK_FIRST: Duration = Duration::from_millis(100);

/// Later looks are rarer, so that a long request does not cost the store anything.
const LOOK_LATER: Duration = Duration::from_secs(1);

/// How long a command waits for what it asked for.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WaitArgs {
    /// Wait so long until it is carried out; 0 does not wait
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_or_zero)]
    wait: Duration,
}

/// Writes the requests down, and follows them.
///
/// # Errors
/// What the store says. What was written down before is carried out all the same, and is named.
pub(crate) async fn submit(
    store: &Store,
    global: &Global,
    wait: WaitArgs,
    submissions: Vec<Submission>,
) -> Result<Exit, Failure> {
    let mut requests: Vec<RequestState> = Vec::new();
    for submission in submissions {
        let submitted = store.operator.submit(&submission).await;
        let state = match submitted {
            Ok(id) => store.operator.request(id).await,
            Err(error) => Err(error),
        };
        match state {
            Ok(state) => requests.push(state),
            Err(error) => {
                note(&written_down(&requests));
                return Err(error.into());
            }
        }
    }
    let exit = follow(store, wait.wait, &mut requests).await?;
    let rows = requests.into_iter().map(shape::Request::from).collect();
    global.out().rows::<shape::Request>(rows)?;
    Ok(exit)
}

async fn follow(
    store: &Store,
    wait: Duration,
    requests: &mut [RequestState],
) -> Result<Exit, Failure> {
    let finished = |requests: &[RequestState]| requests.iter().all(|request| request.finished);
    if !finished(requests)
        && let Some(start) = missed(store).await?
    {
        return Ok(nobody(requests, wait, &start));
    }
    if wait.is_zero() {
        note(&written_down(requests));
        return Ok(Exit::Success);
    }
    let mut signals = Signals::catch().map_err(|e| Failure::plain(format!("signals: {e}")))?;
    let mut watch = Watch::new();
    let deadline = watch.started + wait;
    let mut pause = LOOK_FIRST;
    while !finished(requests) {
        watch.show(requests);
        let now = Instant::now();
        if now >= deadline {
            watch.progress.clear();
            note(&format!(
                "{}, and not carried out within the time. It goes on; `postrider status` says what \
                 holds it up",
                written_down(requests)
            ));
            return Ok(Exit::Accepted);
        }
        tokio::select! {
            // waits: no store tells a client that a request is done
            () = tokio::time::sleep(pause.min(deadline - now)) => {}
            _ = signals.next() => {
                watch.progress.clear();
                note(&format!("{}, and is carried out all the same", written_down(requests)));
                return Ok(Exit::Aborted);
            }
        }
        // A relay that was stopped a moment ago counts as alive until its time is over.
        if pause == LOOK_LATER
            && let Some(start) = missed(store).await?
        {
            watch.progress.clear();
            return Ok(nobody(requests, wait, &start));
        }
        pause = (pause * 3 / 2).min(LOOK_LATER);
        look(store, requests).await?;
    }
    watch.progress.clear();
    note(&done(requests));
    Ok(outcome(requests))
}

/// Whether anything of what was chosen was done. A script that takes an event back has to hear that it was delivered
/// meanwhile; one that reads on has what it wanted where others were faster with some of it.
fn outcome(requests: &[RequestState]) -> Exit {
    let of_rows = |request: &RequestState| !["rewind", "enable"].contains(&&*request.verb);
    let done: u64 = requests.iter().map(|request| request.done).sum();
    match requests.iter().any(|request| of_rows(request) && request.skipped > 0) && done == 0 {
        true => Exit::Failure,
        false => Exit::Success,
    }
}

/// Reads how far the requests are. A store that is busy for a moment is read again at the next look.
async fn look(store: &Store, requests: &mut [RequestState]) -> Result<(), Failure> {
    for request in requests.iter_mut().filter(|request| !request.finished) {
        match store.operator.request(request.id).await {
            Ok(state) => *request = state,
            Err(error) if error.retry_class() == RetryClass::Transient => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// How to start a relay, if none is there, as far as a store that may be busy tells.
async fn missed(store: &Store) -> Result<Option<String>, Failure> {
    match store.operator.overview().await {
        Ok(overview) if overview.relays.is_empty() => {
            Ok(Some(start_relay(&overview, store.config.as_deref())))
        }
        Ok(_) => Ok(None),
        Err(error) if error.retry_class() == RetryClass::Transient => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Says that there is no relay, and how to start one.
fn nobody(requests: &[RequestState], wait: Duration, start: &str) -> Exit {
    note(&format!(
        "{}, and no relay is alive to carry it out [{}]. It will be, once one runs:\n  {start}",
        written_down(requests),
        Code::NoRelay
    ));
    if wait.is_zero() { Exit::Success } else { Exit::Accepted }
}

fn written_down(requests: &[RequestState]) -> String {
    let ids: Vec<String> = requests.iter().map(|request| request.id.to_string()).collect();
    match &*ids {
        [] => "nothing was written down".to_owned(),
        [id] => format!("request {id} is written down"),
        ids => format!("requests {} are written down", ids.join(", ")),
    }
}

/// What was done, and why some was not.
fn done(requests: &[RequestState]) -> String {
    let sum = |part: fn(&RequestState) -> u64| requests.iter().map(part).sum::<u64>();
    let (done, skipped) = (sum(|request| request.done), sum(|request| request.skipped));
    let verb = requests.first().map_or("", |request| &*request.verb);
    if verb == "rewind" {
        // A request of one row for each partition.
        let rest = match skipped {
            0 => String::new(),
            _ => format!("; in {} it had passed nothing since then", count(skipped)),
        };
        return format!("{verb}: set back in {} partitions{rest}", count(done));
    }
    if done == 0 && skipped > 0 {
        return format!(
            "{verb}: nothing was changed: none of the {} was in the state any more in which it was counted",
            count(skipped)
        );
    }
    let mut text = format!("{verb}: {} done", count(done));
    if skipped > 0 {
        text.push_str(&format!(
            ", {} skipped: they were not in the state any more in which they were counted",
            count(skipped)
        ));
    }
    text
}

/// The line on the terminal.
struct Watch {
    progress: Progress,
    started: Instant,
}

impl Watch {
    fn new() -> Watch {
        Watch { progress: Progress::new(), started: Instant::now() }
    }

    fn show(&mut self, requests: &[RequestState]) {
        let sum = |part: fn(&RequestState) -> u64| requests.iter().map(part).sum::<u64>();
        let dealt = sum(|request| request.done + request.skipped);
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = (dealt as f64 / seconds.max(0.001)).round() as u64;
        self.progress.show(&format!(
            "{} of {} · {}/s · {} s",
            count(dealt),
            count(sum(|request| request.total)),
            count(rate),
            seconds as u64
        ));
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::operate::RequestId;

    use super::*;

    fn state(id: u64, done: u64, skipped: u64) -> RequestState {
        RequestState {
            id: RequestId(id),
            verb: "redrive".into(),
            who: "anna".into(),
            why: String::new(),
            total: done + skipped,
            done,
            skipped,
            finished: true,
            relay: None,
        }
    }

    #[test]
    fn what_was_done_and_what_was_not_is_said() {
        assert_eq!(done(&[state(1, 1_000, 0), state(2, 5, 0)]), "redrive: 1,005 done");
        assert!(done(&[state(1, 3, 2)]).contains("3 done, 2 skipped: they were not"));
        let overtaken = [state(1, 0, 2), state(2, 0, 3)];
        assert!(done(&overtaken).contains("nothing was changed: none of the 5 was"));
        assert!(matches!(outcome(&overtaken), Exit::Failure));
        assert!(matches!(outcome(&[state(1, 0, 2), state(2, 1, 3)]), Exit::Success));
        assert!(matches!(outcome(&[state(1, 0, 0)]), Exit::Success));
        let rewound = |skipped| RequestState { verb: "rewind".into(), ..state(1, 21, skipped) };
        assert_eq!(done(&[rewound(0)]), "rewind: set back in 21 partitions");
        let nowhere = RequestState { done: 0, ..rewound(11) };
        assert!(matches!(outcome(&[nowhere]), Exit::Success), "it is where it was asked to be");
        assert!(done(&[rewound(11)]).ends_with("; in 11 it had passed nothing since then"));
        assert_eq!(written_down(&[state(7, 0, 0)]), "request 7 is written down");
        assert_eq!(
            written_down(&[state(7, 0, 0), state(8, 0, 0)]),
            "requests 7, 8 are written down"
        );
    }
}

//! Publishing with core NATS, which keeps nothing: the server has read an event, and let this user publish it.
//!
//! Invariant: nothing is acknowledged that the server did not read over the connection that it was given to. What it
//! refused of that, it says by the way.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::{Client, Subject};
use bytes::Bytes;
use futures_util::StreamExt as _;
use postrider_core::{Error, ErrorKind, Outcome, Outgoing, Result};
use tokio::time::{Instant, timeout_at};

use crate::connection::{Connection, Hindrance, Up};
use crate::copy::identity;
use crate::encode::{Documents, Encoded, encode};
use crate::send::{deaf, forbidden, refused};

/// How long a refusal may take to be noted, from when it was read: a task of the client's does that, which a busy
/// machine keeps waiting. A batch takes so much longer if it has a subject that was not published to before over
/// this connection.
const REFUSAL_MAX: Duration = Duration::from_millis(200);
/// Subjects of a batch of which all refusals are noted for sure. The client drops what it is told beyond 128 at once,
/// and eight batches are under way by default.
const REFUSED_MAX: usize = 128 / 8;

/// The server has read everything when it answers what was asked behind it.
pub(crate) async fn publish(
    connection: &Connection,
    up: &mut Up,
    batch: &[Outgoing],
    deadline: Instant,
) -> Result<Vec<Outcome>> {
    let begun = Instant::now();
    let mut outcomes = give(up, batch, deadline).await?;
    let (client, inbox) = (up.client.clone(), up.client.new_inbox());
    tokio::select! {
        biased;
        heard = timeout_at(deadline, hear_oneself(&client, &inbox)) => match heard {
            Ok(Ok(())) => {}
            Ok(Err(said)) => return Err(unknown(&said)),
            Err(_) => return Err(unknown("NATS did not answer in time")),
        },
        hindrance = up.hindered(&inbox, begun) => match hindrance {
            Hindrance::Lost => return Err(unknown("the connection to NATS was lost")),
            Hindrance::Refused => return Ok(vec![mute(); batch.len()]),
            Hindrance::Deaf => return Ok(vec![deaf(); batch.len()]),
        },
    }
    let subjects: BTreeSet<&str> = batch.iter().map(|outgoing| &*outgoing.topic).collect();
    up.heed(&subjects, begun, deadline.min(Instant::now() + REFUSAL_MAX)).await;
    let refusals: BTreeSet<&str> =
        subjects.iter().copied().filter(|subject| up.is_refused(subject, begun)).collect();
    if refusals.len() > REFUSED_MAX {
        return Err(unknown("NATS refuses more subjects of one batch than it can be heard to"));
    }
    connection.pass(subjects.difference(&refusals));
    for (outgoing, outcome) in batch.iter().zip(&mut outcomes) {
        if *outcome == Outcome::Acked && refusals.contains(&*outgoing.topic) {
            *outcome = refused(&outgoing.topic);
        }
    }
    Ok(outcomes)
}

/// Gives all of it to the connection. What it took counts as acknowledged, unless something else is found out.
async fn give(up: &mut Up, batch: &[Outgoing], deadline: Instant) -> Result<Vec<Outcome>> {
    let bytes_max = up.client.max_payload();
    let mut outcomes = Vec::with_capacity(batch.len());
    let mut documents = Documents::default();
    for outgoing in batch {
        outcomes.push(match encode(outgoing, identity(outgoing), bytes_max, &mut documents) {
            Ok(message) => {
                let subject = outgoing.topic.to_string();
                let Encoded { headers, body } = message;
                let sending = up.client.publish_with_headers(subject, headers, body);
                let sent = up.line.give(sending, deadline).await;
                let sent = sent.map_err(|unsent| unknown(unsent.what()))?;
                sent.map_err(|error| unknown(&error.to_string()))?;
                Outcome::Acked
            }
            Err(fault) => Outcome::Rejected(fault),
        });
    }
    Ok(outcomes)
}

/// Returns when the server has read what was sent before: it sends us our own message back, and a connection is
/// read in its order.
async fn hear_oneself(client: &Client, inbox: &str) -> std::result::Result<(), String> {
    let inbox = Subject::from(inbox);
    let mut listener = client.subscribe(inbox.clone()).await.map_err(|error| error.to_string())?;
    client.publish(inbox, Bytes::new()).await.map_err(|error| error.to_string())?;
    match listener.next().await {
        Some(_) => Ok(()),
        None => Err("the connection to NATS was closed".to_owned()),
    }
}

fn unknown(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "publish")
        .message(format!("{what}; whether the events arrived is not known"))
}

/// Of an event of which the server cannot be asked whether it has read it.
fn mute() -> Outcome {
    forbidden(
        "NATS does not let this user publish to `_INBOX.>`, by which it is asked how far it has read: grant it; \
         whether the event arrived is not known"
            .to_owned(),
    )
}

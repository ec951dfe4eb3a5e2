//! The conditional writes: what each sets, and what must be so.
//!
//! Invariant: every write names what it has seen or what it holds, so of any number at once one wins.

use std::time::Duration;

use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use postrider_core::{ClaimLease, ClaimRequest, Tried};

use crate::control::PK;
use crate::inbox::parts::Pointer;
use crate::inbox::row::{
    ATTEMPTS, BEAT, CLAIMED, CLAIMED_AT, DURATION, EVENT_ID, EXPIRES_AT, FAILED, HANDLER, HASH,
    PARTS, PROCESSED, PROCESSED_AT, RECEIVED_AT, RELEASED, RESULT, SOURCE, STATUS, STEPS, TOKEN,
    TOO_LARGE, TYPE, UNTIL,
};
use crate::item::{Item, b, n, s};

type Update = UpdateItemFluentBuilder;

/// What a completion sets.
const DONE: &str = "#status = :processed, #done = :now, #expires = :expires, #result = :result";

/// A claim that is about to be sent.
pub(crate) struct Claiming<'a> {
    pub(crate) request: &'a ClaimRequest,
    /// The sign of life that it leaves.
    pub(crate) beat: &'a str,
    /// The sign of life of a lease that ran out under our eyes.
    pub(crate) watched_out: Option<String>,
    pub(crate) now_ms: i64,
    pub(crate) skew_max: Option<Duration>,
}

impl Claiming<'_> {
    /// Absent, or claimed for this very payload by somebody who let go, whom we have watched to the end of
    /// the lease, or, if clocks are believed, whose lease ended long enough ago.
    pub(crate) fn put_into(&self, update: Update) -> Update {
        let key = &self.request.key;
        let mut free = "attribute_exists(#released)".to_owned();
        let mut update = names(
            update,
            &[
                ("#pk", PK),
                ("#source", SOURCE),
                ("#event", EVENT_ID),
                ("#handler", HANDLER),
                ("#type", TYPE),
                ("#hash", HASH),
                ("#status", STATUS),
                ("#token", TOKEN),
                ("#attempts", ATTEMPTS),
                ("#failed", FAILED),
                ("#received", RECEIVED_AT),
                ("#claimed", CLAIMED_AT),
                ("#beat", BEAT),
                ("#duration", DURATION),
                ("#until", UNTIL),
                ("#steps", STEPS),
                ("#released", RELEASED),
            ],
        );
        if let Some(watched) = &self.watched_out {
            free.push_str(" OR #beat = :watched");
            update = update.expression_attribute_values(":watched", s(watched));
        }
        if let Some(skew) = self.skew_max {
            free.push_str(" OR #until < :ended");
            let ended = self.now_ms.saturating_sub(millis(skew));
            update = update.expression_attribute_values(":ended", n(ended));
        }
        update
            .update_expression(
                "SET #source = :source, #event = :event, #handler = :handler, #type = :type, \
                 #hash = :hash, #status = :claimed, #token = if_not_exists(#token, :begin) + :one, \
                 #attempts = if_not_exists(#attempts, :none) + :one, \
                 #failed = if_not_exists(#failed, if_not_exists(#attempts, :none)) + :outlived, \
                 #received = if_not_exists(#received, :now), #claimed = :now, #beat = :beat, \
                 #duration = :duration, #until = :until, \
                 #steps = if_not_exists(#steps, :empty) REMOVE #released",
            )
            .condition_expression(format!(
                "attribute_not_exists(#pk) OR \
                 (#status = :claimed AND #hash = :hash AND ({free}))"
            ))
            .expression_attribute_values(":source", s(&*key.source))
            .expression_attribute_values(":event", s(key.event_id.to_string()))
            .expression_attribute_values(":handler", s(key.handler.as_str()))
            .expression_attribute_values(":type", s(&*self.request.event_type))
            .expression_attribute_values(":hash", b(self.request.payload_hash.to_vec()))
            .expression_attribute_values(":claimed", s(CLAIMED))
            .expression_attribute_values(":none", n(0))
            .expression_attribute_values(":begin", n(token_begin(self.now_ms)))
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":outlived", n(self.request.outlived))
            .expression_attribute_values(":now", n(self.now_ms))
            .expression_attribute_values(":beat", s(self.beat))
            .expression_attribute_values(":duration", n(millis(self.request.duration)))
            .expression_attribute_values(":until", n(until(self.now_ms, self.request.duration)))
            .expression_attribute_values(":empty", AttributeValue::M(Item::new()))
    }
}

/// A claim that is held, as its holder believes.
pub(crate) struct Kept<'a> {
    pub(crate) lease: &'a ClaimLease,
    pub(crate) now_ms: i64,
}

impl Kept<'_> {
    /// The condition: the claim stands, under its token.
    pub(crate) fn hold(&self, update: Update) -> Update {
        let used = [("#status", STATUS), ("#token", TOKEN), ("#released", RELEASED)];
        names(update, &used)
            .condition_expression(
                "#status = :held AND #token = :token AND attribute_not_exists(#released)",
            )
            .expression_attribute_values(":held", s(CLAIMED))
            .expression_attribute_values(":token", n(self.lease.token))
    }

    /// Prolongs it from now.
    pub(crate) fn prolong(&self, update: Update, beat: &str, duration: Duration) -> Update {
        let used = [("#beat", BEAT), ("#duration", DURATION), ("#until", UNTIL)];
        names(self.hold(update), &used)
            .update_expression("SET #beat = :beat, #duration = :duration, #until = :until")
            .expression_attribute_values(":beat", s(beat))
            .expression_attribute_values(":duration", n(millis(duration)))
            .expression_attribute_values(":until", n(until(self.now_ms, duration)))
    }

    /// Records that it is done, for as long as the retention. The steps stay: who forgets the row has them made
    /// no second time.
    pub(crate) fn complete(&self, update: Update, result: &[u8], retention: Duration) -> Update {
        let used = [
            ("#done", PROCESSED_AT),
            ("#expires", EXPIRES_AT),
            ("#result", RESULT),
            ("#beat", BEAT),
            ("#duration", DURATION),
            ("#until", UNTIL),
        ];
        names(self.hold(update), &used)
            .update_expression(format!("SET {DONE} REMOVE #beat, #duration, #until"))
            .expression_attribute_values(":processed", s(PROCESSED))
            .expression_attribute_values(":now", n(self.now_ms))
            .expression_attribute_values(":expires", n(expires(self.now_ms, retention)))
            .expression_attribute_values(":result", b(result))
    }

    /// The same, with other steps, for an item in which theirs and the result have no room together.
    pub(crate) fn complete_with(
        &self,
        update: Update,
        result: &[u8],
        retention: Duration,
        steps: AttributeValue,
    ) -> Update {
        names(self.complete(update, result, retention), &[("#steps", STEPS)])
            .update_expression(format!(
                "SET {DONE}, #steps = :steps REMOVE #beat, #duration, #until"
            ))
            .expression_attribute_values(":steps", steps)
    }

    /// The same for a result that stands in parts beside the row; with other steps where the pointer to them has no
    /// room.
    pub(crate) fn complete_in_parts(
        &self,
        update: Update,
        pointer: &Pointer,
        retention: Duration,
        steps: Option<AttributeValue>,
    ) -> Update {
        let (update, other) = match steps {
            Some(steps) => (self.complete_with(update, b"", retention, steps), ", #steps = :steps"),
            None => (self.complete(update, b"", retention), ""),
        };
        names(update, &[("#parts", PARTS)])
            .update_expression(format!(
                "SET {DONE}, #parts = :parts{other} REMOVE #beat, #duration, #until"
            ))
            .expression_attribute_values(":parts", pointer.value())
    }

    /// The same without the result, which has no room: how large it was.
    pub(crate) fn complete_without(
        &self,
        update: Update,
        bytes: usize,
        retention: Duration,
        steps: AttributeValue,
    ) -> Update {
        names(self.complete_with(update, b"", retention, steps), &[("#large", TOO_LARGE)])
            .update_expression(format!(
                "SET {DONE}, #steps = :steps, #large = :large REMOVE #beat, #duration, #until"
            ))
            .expression_attribute_values(":large", n(bytes))
    }

    /// Lets it go.
    pub(crate) fn release(&self, update: Update, tried: Tried) -> Update {
        let update =
            self.hold(update).expression_attribute_values(":yes", AttributeValue::Bool(true));
        // A claim has added one.
        let less = "SET #released = :yes, #attempts = #attempts - :one";
        let said = match tried {
            Tried::Failed => "SET #released = :yes, #failed = #attempts".to_owned(),
            Tried::NotCounted => less.to_owned(),
            Tried::Refused => "SET #released = :yes, #attempts = :none, #failed = :none".to_owned(),
        };
        let update = update.update_expression(&said);
        let update = match said.contains(":one") {
            true => update.expression_attribute_values(":one", n(1)),
            false => update,
        };
        let update = match said.contains(":none") {
            true => update.expression_attribute_values(":none", n(0)),
            false => update,
        };
        match said.contains("#failed") {
            true => names(update, &[("#attempts", ATTEMPTS), ("#failed", FAILED)]),
            false => names(update, &[("#attempts", ATTEMPTS)]),
        }
    }
}

/// The names of a step's place.
pub(crate) fn step_names(update: Update, step: &str) -> Update {
    names(update, &[("#steps", STEPS), ("#step", step)])
}

fn names(mut update: Update, used: &[(&str, &str)]) -> Update {
    for (place, name) in used {
        update = update.expression_attribute_names(*place, *name);
    }
    update
}

/// Behind which the tokens of a new row begin: this moment, in microseconds. What stood here before is forgotten, and
/// counted from a moment of the past, less often than once in a microsecond: a worker that slept through its row's
/// time to live never holds the token of another claim.
pub(crate) fn token_begin(now_ms: i64) -> i64 {
    now_ms.saturating_mul(1_000)
}

/// When an item goes: seconds since 1970, as the time to live has it.
pub(crate) fn expires(now_ms: i64, retention: Duration) -> i64 {
    now_ms.saturating_add(millis(retention)).div_euclid(1_000)
}

fn until(now_ms: i64, duration: Duration) -> i64 {
    now_ms.saturating_add(millis(duration))
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

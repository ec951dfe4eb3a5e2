//! Log: notices as lines, with a field for each thing that a person would search by.
//!
//! What happens to every event is at the level debug; what somebody should look at is a warning; a
//! dead letter, and a promise that is broken, are errors. Payloads are never written, keys are.

use std::time::Duration;

use postrider_core::{Code, RelayId};

use crate::notice::{Filling, Notice};

/// Writes a notice to the log, with a field for each thing that a person would search by.
pub(crate) fn write(notice: &Notice, owner: &RelayId) {
    match notice {
        Notice::Delivered { .. }
        | Notice::AttemptFailed { .. }
        | Notice::DeadLetter { .. }
        | Notice::Parked { .. }
        | Notice::RangeOpened { .. } => log_event(notice),
        Notice::EndpointFailed { .. }
        | Notice::EndpointRecovered { .. }
        | Notice::EndpointDisabled { .. }
        | Notice::EndpointEnabled { .. }
        | Notice::TypeHeld { .. }
        | Notice::TypeTaken { .. } => log_endpoint(notice),
        Notice::LeaseTaken { .. }
        | Notice::LeaseReleased { .. }
        | Notice::LeaseLost { .. }
        | Notice::Fenced { .. } => log_lease(notice, owner),
        _ => log_store(notice),
    }
}

fn log_event(notice: &Notice) {
    match notice {
        Notice::Delivered { subject, attempt, marks, took, lag, .. } => tracing::debug!(
            event_id = %subject.id(), key = subject.key(), event_type = subject.event_type(),
            seq = subject.row.seq, partition = subject.partition.0,
            destination = %subject.destination, endpoint = subject.endpoint(), route = subject.route,
            attempt, late = marks.late, replay = marks.replay, took_ms = millis(*took),
            lag_ms = lag.map(millis), "delivered"
        ),
        Notice::AttemptFailed { subject, attempt, detail, delay } => tracing::warn!(
            event_id = %subject.id(), key = subject.key(), event_type = subject.event_type(),
            seq = subject.row.seq, partition = subject.partition.0,
            destination = %subject.destination, endpoint = subject.endpoint(), route = subject.route,
            attempt, detail, delay_ms = delay.map(millis), "attempt failed"
        ),
        Notice::DeadLetter { subject, reason, detail, attempts, holds_key } => tracing::error!(
            event_id = %subject.id(), key = subject.key(), event_type = subject.event_type(),
            seq = subject.row.seq, partition = subject.partition.0,
            destination = %subject.destination, endpoint = subject.endpoint(), route = subject.route,
            attempts, reason = reason.as_str(), detail, holds_key, "dead letter"
        ),
        Notice::Parked { subject } => tracing::info!(
            event_id = %subject.id(), key = subject.key(), event_type = subject.event_type(),
            seq = subject.row.seq, partition = subject.partition.0,
            destination = %subject.destination, "key parked behind an event that waits"
        ),
        Notice::RangeOpened { subject, waiting } => tracing::warn!(
            event_id = %subject.id(), key = subject.key(), event_type = subject.event_type(),
            seq = subject.row.seq, partition = subject.partition.0,
            destination = %subject.destination, waiting,
            "so many events of a key wait that what follows stays in the outbox until its turn comes; nothing is lost: \
             redrive or discard what is dead"
        ),
        _ => {}
    }
}

fn log_endpoint(notice: &Notice) {
    match notice {
        Notice::EndpointFailed { destination, topic, failures, detail, is_new, pause } => {
            // An outage is said at its first failure, and ever more seldom after that; another reason for it at once.
            if *is_new || failures.is_power_of_two() {
                tracing::warn!(
                    %destination, endpoint = &**topic, failures, detail, delay_ms = millis(*pause),
                    "endpoint failed"
                );
            } else {
                tracing::debug!(
                    %destination, endpoint = &**topic, failures, detail, delay_ms = millis(*pause),
                    "endpoint failed"
                );
            }
        }
        Notice::EndpointRecovered { destination, topic, failures, away } => tracing::info!(
            %destination, endpoint = &**topic, failures, away_ms = millis(*away),
            "endpoint recovered"
        ),
        Notice::EndpointDisabled { destination, topic, detail } => tracing::warn!(
            %destination, endpoint = &**topic, detail, code = %Code::EndpointDisabled,
            "endpoint disabled until an operator enables it"
        ),
        Notice::TypeHeld { destination, topic, event_type, refused, detail } => tracing::error!(
            %destination, endpoint = &**topic, event_type, refused, detail, code = %Code::TypeHeld,
            "endpoint refuses every event of a type; they wait, and one is tried now and then"
        ),
        Notice::TypeTaken { destination, topic, event_type, refused, away } => tracing::info!(
            %destination, endpoint = &**topic, event_type, refused, away_ms = millis(*away),
            "endpoint takes the type again"
        ),
        Notice::EndpointEnabled { destination, topic } => {
            tracing::info!(%destination, endpoint = &**topic, "endpoint in service again");
        }
        _ => {}
    }
}

fn log_lease(notice: &Notice, owner: &RelayId) {
    match notice {
        Notice::LeaseTaken { partition, token, takeovers } => tracing::info!(
            partition = partition.0, token, takeovers, relay = %owner, "partition taken"
        ),
        Notice::LeaseReleased { partition, token } => {
            tracing::info!(partition = partition.0, token, relay = %owner, "partition released");
        }
        Notice::LeaseLost { partition, token, why } => tracing::warn!(
            partition = partition.0, token, reason = why.as_str(), relay = %owner,
            "partition lost"
        ),
        // That the partition is lost is a warning, and so is what the store said, once for all partitions that it says it of.
        Notice::Fenced { partition, token, detail } => tracing::debug!(
            partition = partition.0, token, detail, relay = %owner,
            "settlement refused; nothing was written"
        ),
        _ => {}
    }
}

fn log_store(notice: &Notice) {
    match notice {
        Notice::Settled { partition, rows, waiting } => {
            tracing::debug!(partition = partition.0, rows, waiting, "settled");
        }
        Notice::CarriedOut { rows, freed, surrendered } => {
            tracing::info!(rows, freed, surrendered, "requests carried out");
        }
        Notice::Retired { partition, rows } => {
            tracing::info!(partition = partition.0, rows, "old events deleted");
        }
        Notice::Waiting { destination, waiting, most, filling } => match filling {
            Filling::Full => tracing::error!(
                %destination, waiting, most, code = %Code::WaitingFull,
                "so many events wait that nothing new is read; nothing is lost, and what waits is tried again: \
                 redrive or discard what is dead"
            ),
            Filling::Half => tracing::warn!(
                %destination, waiting, most, code = %Code::WaitingFull,
                "half as many events wait as may; at the bound nothing new is read"
            ),
            Filling::Room => {
                tracing::info!(%destination, waiting, most, "what is new is read again")
            }
            Filling::Less => tracing::info!(%destination, waiting, most, "fewer events wait"),
        },
        Notice::StoreTrouble { operation, kind, detail, code } => tracing::warn!(
            operation, kind = ?kind, detail, code = code.map(tracing::field::display),
            "the store refuses"
        ),
        Notice::StoreRecovered { operation } => {
            tracing::info!(operation, "the store does again what it refused");
        }
        Notice::NotServed { blocker } => tracing::warn!("not served: {blocker}"),
        Notice::Violated { invariant, what } => {
            tracing::error!(%invariant, what, "a promise is broken: report this defect");
        }
        _ => {}
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

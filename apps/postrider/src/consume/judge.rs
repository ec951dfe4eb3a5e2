//! What an answer of the endpoint means: a pure table.
//!
//! Invariant: only a failure that names the event counts against it. An endpoint that is away, that
//! is being deployed, or that was configured wrong makes events wait, and kills none (INV-1).

use std::time::Duration;

/// What came back from one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A whole answer.
    Status {
        /// The status code.
        status: u16,
        /// The server's wish, bounded.
        after: Option<Duration>,
    },
    /// Nothing, in the time that a call may take.
    TimedOut,
    /// The connection was there, and broke off before the answer was whole.
    BrokenOff,
    /// No connection: refused, or no such name.
    NotConnected,
}

/// What a failure says about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Nothing: it took another event since.
    None,
    /// One more failure without a success between.
    Bad,
    /// It is not there at all.
    Away,
}

/// What becomes of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It was acted on.
    Done,
    /// It failed, and the try counts.
    Counts {
        /// The server's wish.
        after: Option<Duration>,
    },
    /// It waits; no try counts.
    Waits {
        /// The server's wish.
        after: Option<Duration>,
        /// What that says about the endpoint.
        sign: Sign,
    },
    /// The endpoint will never take it.
    Refused,
}

/// Judges an answer. `took_another`: whether the endpoint took another event since this one was
/// tried before, or, at a first try, since it was sent. Who takes others and not this one has
/// something against this one; who takes none is itself to blame.
pub(crate) fn judge(reply: Reply, took_another: bool) -> Judgement {
    let sign = if took_another { Sign::None } else { Sign::Bad };
    let failed = |after| match took_another {
        true => Judgement::Counts { after },
        false => Judgement::Waits { after, sign },
    };
    match reply {
        Reply::NotConnected => Judgement::Waits { after: None, sign: Sign::Away },
        Reply::TimedOut | Reply::BrokenOff => failed(None),
        Reply::Status { status, after } => match status {
            200..=299 => Judgement::Done,
            408 | 409 | 425 | 429 | 500..=599 => failed(after),
            // A wrong address, if it says so to all. Where others are taken, it means what this event is
            // about, or a firewall that dislikes this one: held for ever, it would hold what is behind.
            403 | 404 | 410 => failed(after),
            // Who we are and how we speak: never about one event.
            401 | 405 | 407 | 421 | 426 => Judgement::Waits { after, sign },
            400..=499 => Judgement::Refused,
            // A redirect would carry the event to an address that nobody configured.
            _ => Judgement::Waits { after, sign },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Judgement = Judgement::Done;
    const COUNTS: Judgement = Judgement::Counts { after: None };
    const REFUSED: Judgement = Judgement::Refused;

    const fn waits(sign: Sign) -> Judgement {
        Judgement::Waits { after: None, sign }
    }

    fn status(status: u16, took_another: bool) -> Judgement {
        judge(Reply::Status { status, after: None }, took_another)
    }

    /// Each class of status, while the endpoint takes others and while it takes none.
    #[test]
    fn a_status_means_what_the_guide_says() {
        let table: [(&[u16], Judgement, Judgement); 6] = [
            (&[200, 201, 202, 204, 299], DONE, DONE),
            (&[408, 409, 425, 429, 500, 502, 503, 504, 599], COUNTS, waits(Sign::Bad)),
            (&[403, 404, 410], COUNTS, waits(Sign::Bad)),
            (&[401, 405, 407, 421, 426], waits(Sign::None), waits(Sign::Bad)),
            (&[400, 402, 406, 411, 413, 415, 418, 422, 431, 451, 499], REFUSED, REFUSED),
            (
                &[100, 101, 300, 301, 302, 304, 307, 308, 600, 999],
                waits(Sign::None),
                waits(Sign::Bad),
            ),
        ];
        for (statuses, taking, silent) in table {
            for code in statuses {
                assert_eq!(status(*code, true), taking, "{code} while others are taken");
                assert_eq!(status(*code, false), silent, "{code} while none is taken");
            }
        }
    }

    #[test]
    fn no_answer_counts_only_where_others_got_one() {
        for reply in [Reply::TimedOut, Reply::BrokenOff] {
            assert_eq!(judge(reply, true), COUNTS, "{reply:?}");
            assert_eq!(judge(reply, false), waits(Sign::Bad), "{reply:?}");
        }
        for took_another in [true, false] {
            assert_eq!(judge(Reply::NotConnected, took_another), waits(Sign::Away));
        }
    }

    /// Whatever a server answers, an endpoint that took nothing since kills nothing by failing.
    #[test]
    fn an_outage_counts_against_no_event() {
        let unlike_a_refusal =
            |code: &u16| [403, 404, 410].contains(code) || !(400..=499).contains(code);
        for code in (100..=999).filter(unlike_a_refusal) {
            let judged = status(code, false);
            assert!(!matches!(judged, Judgement::Counts { .. } | REFUSED), "{code}: {judged:?}");
        }
    }

    #[test]
    fn the_servers_wish_is_passed_on() {
        let after = Some(Duration::from_secs(7));
        let reply = Reply::Status { status: 429, after };
        assert_eq!(judge(reply, true), Judgement::Counts { after });
        assert_eq!(judge(reply, false), Judgement::Waits { after, sign: Sign::Bad });
    }
}

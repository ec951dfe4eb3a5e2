//! Parts: that a part of an endpoint takes nothing while others do, as where some of a topic's partitions have no leader.
//!
//! Keeps INV-8: what the others take neither hides that nor turns the relay's state to and fro with each event.

use std::time::Duration;

use postrider_core::waiting::Reason;
use postrider_core::{DestinationId, Jitter, Outcome, RetryPolicy, Tick};

use crate::attempt::attempted;
use crate::endpoint::Endpoint;
use crate::health::{Blocker, NAMED_MAX};
use crate::machine::Machine;
use crate::outlet::Outlet;
use crate::settings::Settings;

/// How long what nobody tried again counts: what is put off for an endpoint stays in the store for five minutes at most.
const KEPT: Duration = Duration::from_secs(330);

/// See the module.
#[derive(Debug)]
pub(crate) struct Part {
    /// When it was first said.
    since: Tick,
    /// When that event had been sent.
    sent: Tick,
    /// When it was last said.
    at: Tick,
    /// What was said then.
    said: Box<str>,
    /// When the rest last took something that was sent since the first: until then it may be all of the endpoint.
    beside: Option<Tick>,
}

/// When an event is tried again that a part of its endpoint hindered, and that was tried so long ago before: as pauses of
/// endpoints grow, by halves of them apart.
pub(crate) fn put_off(
    since: Option<Duration>,
    retry: &RetryPolicy,
    settings: &Settings,
    jitter: &mut Jitter,
) -> Duration {
    let pause = since.map_or(Duration::ZERO, |since| since * 2);
    let pause = pause.min(settings.pause_max).max(retry.delay_min);
    pause.mul_f64(1.0 - 0.5 * jitter.unit())
}

impl Endpoint {
    /// An event that was sent then is hindered by a part of the endpoint, or by all of it: nobody knows yet.
    fn hindered(&mut self, now: Tick, sent: Tick, said: &str) {
        let kept = self.part.take().filter(|part| now < part.at + KEPT);
        let new = Part { since: now, sent, at: now, said: Box::default(), beside: None };
        let part = kept.map_or(new, |part| *part);
        self.part = Some(Box::new(Part { at: now, said: said.into(), ..part }));
    }

    /// It took an event that was sent then.
    fn takes(&mut self, now: Tick, sent: Tick) {
        if let Some(part) = self.part.as_mut().filter(|part| sent >= part.since) {
            part.beside = Some(now);
        }
    }

    /// It takes an event that was tried then in vain. If others are still hindered, their next try says so.
    pub(crate) fn relents(&mut self, tried: Tick) {
        if self.part.as_ref().is_some_and(|part| tried >= part.sent) {
            self.part = None;
        }
    }

    /// What was said last, if a part of it takes nothing while others do.
    pub(crate) fn hindrance(&self, now: Tick) -> Option<&str> {
        let part = self.part.as_ref().filter(|part| now < part.at + KEPT)?;
        part.beside.is_some_and(|beside| now < beside + KEPT).then_some(&*part.said)
    }
}

impl Outlet {
    /// Endpoints that count as down, or pause for long because they asked for it.
    pub(crate) fn down(&self, settings: &Settings, now: Tick) -> impl Iterator<Item = &Endpoint> {
        let (settings, long) = (*settings, now + settings.pause_min * 8);
        self.endpoints.iter().filter(move |endpoint| {
            endpoint.is_down(&settings) || (endpoint.failures > 0 && endpoint.paused_until > long)
        })
    }

    /// What was answered to a batch that was sent then to an endpoint.
    pub(crate) fn note_hindered(&mut self, index: u32, now: Tick, sent: Tick, said: &[Outcome]) {
        if said.contains(&Outcome::Acked) {
            self.endpoints[index as usize].takes(now, sent);
        }
        let fault = said.iter().find_map(|outcome| match outcome {
            Outcome::Hindered(fault) => Some(fault),
            _ => None,
        });
        if let Some(fault) = fault {
            let detail = attempted(0, Reason::EndpointDown, fault.to_string()).detail;
            self.endpoints[index as usize].hindered(now, sent, &detail);
        }
    }

    /// An endpoint took events, of which one was tried in vain then, if any was.
    pub(crate) fn relents(&mut self, index: u32, tried: Option<Tick>) {
        if let Some(tried) = tried {
            self.endpoints[index as usize].relents(tried);
        }
    }

    /// Since when some of it takes nothing, if so: an endpoint is down, a part of one, or one refuses a type.
    pub(crate) fn ails_since(&self, settings: &Settings, now: Tick) -> Option<Tick> {
        let down = self.down(settings, now).map(|endpoint| endpoint.failing_since);
        let parts = self.endpoints.iter().filter(|endpoint| endpoint.hindrance(now).is_some());
        let parts = parts.filter_map(|endpoint| Some(endpoint.part.as_ref()?.since));
        down.chain(parts).chain(self.holds.since(now)).min()
    }
}

impl Machine {
    /// Endpoints that take nothing at all, of each destination a screen of them.
    pub(crate) fn failing<'a>(
        &'a self,
        standing: &'a [DestinationId],
    ) -> impl Iterator<Item = (&'a DestinationId, &'a Endpoint)> {
        self.outlets.iter().flat_map(move |(destination, outlet)| {
            // While nothing of a destination moves, one that has failed once is named already.
            let stands = standing.contains(destination);
            let failing = outlet.endpoints.iter().filter(move |e| stands && e.failures() > 0);
            let down = outlet.down(&self.settings, self.now).filter(move |_| !stands);
            // Of what a part of takes nothing, failures since the others took something say less.
            let whole = move |endpoint: &&Endpoint| endpoint.hindrance(self.now).is_none();
            let named = down.chain(failing).filter(whole).take(NAMED_MAX);
            named.map(move |endpoint| (destination, endpoint))
        })
    }

    /// Endpoints of which a part takes nothing, of each destination a screen of them, with what was said of it.
    pub(crate) fn hindered(&self) -> impl Iterator<Item = (&DestinationId, &Endpoint, &str)> {
        self.outlets.iter().flat_map(move |(destination, outlet)| {
            let part = move |it| Some((destination, it, Endpoint::hindrance(it, self.now)?));
            outlet.endpoints.iter().filter_map(part).take(NAMED_MAX)
        })
    }

    /// Types that endpoints refuse, of each destination a screen of them.
    pub(crate) fn held_types(&self) -> impl Iterator<Item = Blocker> {
        self.outlets.iter().flat_map(|(destination, outlet)| {
            let held = outlet.holds.held(self.now).take(NAMED_MAX);
            held.map(|(topic, event_type, detail)| Blocker::Held {
                destination: destination.clone(),
                topic: topic.to_owned(),
                event_type: event_type.to_owned(),
                detail: detail.to_owned(),
            })
        })
    }
}

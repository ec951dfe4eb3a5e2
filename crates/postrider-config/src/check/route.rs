//! Routes: those that are never reached, those that drop, those without a topic, and those that ask for what their
//! destination cannot write.

use crate::choice::Kind;
use crate::destination::{DestinationConfig, MatchConfig, RouteConfig};
use crate::path::Path;
use crate::reading::{Complaint, Reading};

pub(super) fn examine(destination: &DestinationConfig, at: &Path, reading: &mut Reading) {
    let kind_is_known = reading.is_sound(&[at.key("kind")]);
    let (routes, kind, of) = (&destination.routes, at.key("kind"), at.key("routes"));
    let at = &of;
    for (index, route) in routes.iter().enumerate() {
        let here = at.index(index);
        examine_one(route, &here, reading);
        if kind_is_known && !route.drop {
            examine_format(route, &here, (destination.kind, &kind), reading);
        }
        let before = routes[..index].iter().position(|first| first.matches.covers(&route.matches));
        if let Some(first) = before {
            let message = format!(
                "this route is never reached: route {first} takes all of its events, and the \
                 first that matches decides"
            );
            let advice = "put it before the other, or narrow the other's match";
            reading.contradict(&[here, at.index(first)], Complaint::new(message, advice));
        }
    }
}

fn examine_one(route: &RouteConfig, at: &Path, reading: &mut Reading) {
    let topic = at.key("topic");
    if route.drop {
        for name in ["topic", "format", "record_key", "add_headers", "dead_key", "retry"] {
            if reading.is_given(&at.key(name)) {
                let message = format!("a route that drops its events has no use for `{name}`");
                let advice = format!("leave {name} out, or leave drop out");
                let paths = [at.key(name), at.key("drop")];
                reading.contradict(&paths, Complaint::new(message, advice));
            }
        }
    } else if route.topic.is_none() {
        let message = "this route has no topic";
        let advice = "write topic = \"{event_type}\", or drop = true to deliver its events nowhere";
        reading.contradict(std::slice::from_ref(&topic), Complaint::new(message, advice));
    }
    let retry = &route.retry;
    if retry.delay_min > retry.delay_max {
        let paths = [at.key("retry").key("delay_min"), at.key("retry").key("delay_max")];
        let message = "the first delay is longer than the longest";
        let advice = "raise delay_max, or lower delay_min";
        reading.contradict(&paths, Complaint::new(message, advice));
    }
    let by_tenant = route.topic.as_ref().is_some_and(|text| text.to_string().contains("{tenant}"));
    if by_tenant && route.matches.tenant.is_none() && !route.drop {
        let message = "events without a tenant come here too, and `{tenant}` is empty for them";
        let advice = "write match = { tenant = \"*\" } to take only events with one";
        reading.warn(&[topic], Complaint::new(message, advice));
    }
}

fn examine_format(
    route: &RouteConfig,
    at: &Path,
    (kind, kind_at): (Kind, &Path),
    reading: &mut Reading,
) {
    let (format, word) = (at.key("format"), kind.word());
    let known = kind.shape().formats;
    if !known.contains(&route.format) {
        let words: Vec<String> = known.iter().map(|known| format!("\"{known}\"")).collect();
        let message = format!("a destination of the kind {word} does not write {}", route.format);
        let advice = format!("write format = {}", words.join(" or "));
        reading.contradict(&[format.clone(), kind_at.clone()], Complaint::new(message, advice));
    }
    if route.record_key.is_some() && !kind.shape().has_record_key {
        let message = format!("messages of the kind {word} have no key");
        let advice = "leave record_key out: what is in order follows from the ordering key";
        reading
            .contradict(&[at.key("record_key"), kind_at.clone()], Complaint::new(message, advice));
    }
    if !route.add_headers.is_empty() && !route.format.has_open_headers() {
        let message = format!("in the format {} a message has no headers to add to", route.format);
        let advice = "leave add_headers out, or write format = \"plain\" or \"debezium\"";
        reading.contradict(&[at.key("add_headers"), format], Complaint::new(message, advice));
    }
}

impl MatchConfig {
    /// Whether every event that the other takes is taken by this one.
    pub(super) fn covers(&self, other: &MatchConfig) -> bool {
        let pairs =
            [(&self.event_type, &other.event_type), (&self.aggregate_type, &other.aggregate_type)];
        let always_there = pairs.into_iter().all(|pair| match pair {
            (None, _) => true,
            (Some(one), None) => one.is_any(),
            (Some(one), Some(other)) => one.covers(other),
        });
        // A tenant may be missing, and then no pattern takes the event.
        always_there
            && match (&self.tenant, &other.tenant) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(one), Some(other)) => one.covers(other),
            }
    }
}

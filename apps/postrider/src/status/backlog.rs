//! The backlog by route: what has not been passed, folded through the routes of the definition.

use std::collections::BTreeMap;

use postrider_core::operate::BacklogGroup;
use postrider_core::{Destination, Event, EventId, Timestamp};

use crate::shape::Backlog;

/// What each route of a destination will take of its backlog, the largest first.
pub(crate) fn by_route(
    definition: &Destination,
    groups: &[BacklogGroup],
    at_least: bool,
) -> Vec<Backlog> {
    let mut routes: BTreeMap<Option<String>, (u64, Timestamp)> = BTreeMap::new();
    for group in groups {
        let route = definition.route(&example(group));
        let topic = route.map(|route| match route.drop {
            true => "(dropped)".to_owned(),
            false => route.topic.to_string(),
        });
        let (count, oldest) = routes.entry(topic).or_insert((0, group.oldest));
        *count += group.count;
        *oldest = group.oldest.min(*oldest);
    }
    let mut rows: Vec<Backlog> = routes
        .into_iter()
        .map(|(topic, (count, oldest_at))| Backlog {
            destination: definition.id.to_string(),
            topic,
            count,
            oldest_at,
            at_least,
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

/// An event that routes cannot tell from those of the group.
fn example(group: &BacklogGroup) -> Event {
    let mut event = Event::new(EventId::from_u128(0), &group.aggregate_type, "", &group.event_type);
    event.tenant = group.tenant.as_deref().map(Into::into);
    event
}

#[cfg(test)]
mod tests {
    use postrider_core::{DestinationId, Match, Route};

    use super::*;

    fn group(event_type: &str, count: u64, oldest: i64) -> BacklogGroup {
        BacklogGroup {
            event_type: event_type.into(),
            aggregate_type: "order".into(),
            tenant: None,
            count,
            oldest: Timestamp::from_micros(oldest),
        }
    }

    #[test]
    fn groups_are_counted_with_the_route_that_takes_them() {
        let route = |topic: &str, types: &str| {
            Route::all(topic.parse().unwrap()).only(Match::event_type(types))
        };
        let routes = vec![
            route("orders", "order.*"),
            route("nowhere", "noise.*").dropping(),
            route("{event_type}", "mail.*"),
        ];
        let definition = Destination::new(DestinationId::new("d").unwrap(), "k", routes);
        let groups = [
            group("order.placed", 5, 9),
            group("order.paid", 7, 3),
            group("noise.made", 2, 1),
            group("mail.sent", 1, 1),
            group("stray", 4, 1),
        ];
        let rows = by_route(&definition, &groups, false);
        let shown: Vec<(Option<&str>, u64)> =
            rows.iter().map(|row| (row.topic.as_deref(), row.count)).collect();
        assert_eq!(
            shown,
            [(Some("orders"), 12), (None, 4), (Some("(dropped)"), 2), (Some("{event_type}"), 1)]
        );
        assert_eq!(rows[0].oldest_at, Timestamp::from_micros(3));
    }
}

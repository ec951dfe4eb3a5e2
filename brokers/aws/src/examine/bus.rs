//! Buses of EventBridge.

use aws_sdk_eventbridge::Client;
use aws_sdk_eventbridge::types::RuleState;
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Result, Route};
use tokio::time::Instant;

use super::{LOOKED_AT, PAGES_MAX, refused, unknown, within, written};
use crate::answer::{Call, judge};
use crate::connection::Connection;

/// Looks at the buses that the routes write to.
///
/// # Errors
/// The service could not be asked.
pub(crate) async fn buses(connection: &Connection, routes: &[Route]) -> Result<Vec<Finding>> {
    let settings = connection.settings();
    let until = Instant::now() + settings.deadline;
    let client = Client::new(connection.config(until).await?);
    let asked = async {
        let mut found = Vec::new();
        for (name, open) in written(routes).into_iter().take(LOOKED_AT) {
            if open {
                found.push(unknown(&format!("buses {name}…"), "names"));
                continue;
            }
            let subject = format!("bus {}", name.rsplit('/').next().unwrap_or(&name));
            match rules(&client, &name).await {
                Ok(rules) => found.extend(of_bus(&client, &subject, &name, &rules).await),
                Err(error) => {
                    let make =
                        format!("aws events create-event-bus --name {name}, or correct the route");
                    found.push(refused(&subject, error, &make)?);
                }
            }
        }
        Ok(found)
    };
    within(settings.deadline, asked).await
}

/// The rules of a bus that are on.
async fn rules(client: &Client, bus: &str) -> Result<Vec<String>> {
    let call = Call { action: "events:DescribeEventBus", what: "the bus", name: bus };
    let there = client.describe_event_bus().name(bus).send().await;
    there.map_err(|error| judge(call, &error).error("examine"))?;
    let call = Call { action: "events:ListRules", ..call };
    let (mut names, mut from) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let ask = client.list_rules().event_bus_name(bus).set_next_token(from.take());
        let answer = ask.send().await.map_err(|error| judge(call, &error).error("examine"))?;
        let on = answer.rules().iter().filter(|rule| rule.state() != Some(&RuleState::Disabled));
        names.extend(on.filter_map(|rule| rule.name().map(str::to_owned)));
        from = answer.next_token;
        if from.is_none() {
            break;
        }
    }
    Ok(names)
}

async fn of_bus(client: &Client, subject: &str, bus: &str, rules: &[String]) -> Vec<Finding> {
    if rules.is_empty() {
        return vec![findings::critical(
            subject,
            "no rule is on: it takes what comes, and keeps nothing",
            format!(
                "aws events put-rule --event-bus-name {bus} --name NAME --event-pattern PATTERN"
            ),
            Code::KeptTooShort,
        )];
    }
    let mut lossy = Vec::new();
    for rule in rules.iter().take(LOOKED_AT) {
        let asked = client.list_targets_by_rule().event_bus_name(bus).rule(rule).send().await;
        // Who may not look at targets is told of rules all the same.
        let Ok(answer) = asked else { continue };
        if answer.targets().iter().any(|target| target.dead_letter_config().is_none()) {
            lossy.push(rule.clone());
        }
    }
    if !lossy.is_empty() {
        return vec![findings::coded(
            subject,
            format!(
                "targets of {} have no queue for dead letters: what cannot be handed over for a day is dropped",
                findings::listed(&lossy)
            ),
            format!(
                "aws events put-targets --event-bus-name {bus} --rule NAME --targets with a DeadLetterConfig"
            ),
            Code::KeptTooShort,
        )];
    }
    vec![findings::good(subject, format!("{} rules are on", rules.len()))]
}

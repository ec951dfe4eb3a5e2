//! What `doctor` says of sidecars: whether a claim in the inbox and its delivery at the broker end together.
//!
//! Invariant: nothing is joined, made, or taken.

use std::time::Duration;

use postrider_config::{Config, Consume, Secrets};
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, HandlerName, Timestamp};

use super::source::{Source, Wishes, visibility};
use crate::certificate;
use crate::failure::Failure;
use crate::store::Place;

/// The findings about all sidecars of a configuration.
pub(crate) async fn examine(config: &Config, secrets: &Secrets) -> Vec<Finding> {
    let mut found = Vec::new();
    for (handler, consumer) in &config.consume {
        let asked = of_sidecar(handler, consumer, secrets).await;
        found.extend(asked.unwrap_or_else(|failure| vec![failure.finding(&subject(handler))]));
        if let Some(path) = certificate::of_source(Some(&consumer.kafka), Some(&consumer.nats)) {
            let subject = format!("{}, certificate", subject(handler));
            found.push(certificate::examine(&subject, path, Timestamp::now()));
        }
        let asked = of_inbox(handler, consumer, config, secrets).await;
        found.extend(asked.unwrap_or_else(|failure| {
            Some(failure.finding(&format!("inbox of {}", subject(handler))))
        }));
    }
    found
}

/// How long the inbox remembers by this configuration, and how long anybody's messages may come again there. Only
/// PostgreSQL is told of that by its consumers.
async fn of_inbox(
    handler: &HandlerName,
    consumer: &Consume,
    config: &Config,
    secrets: &Secrets,
) -> Result<Option<Finding>, Failure> {
    let place = Place::read(secrets.address(&consumer.inbox).unwrap_or_default())?;
    if !matches!(place, Place::Postgres(_)) {
        return Ok(None);
    }
    let place = place.of_inbox(&config.postgres, Some(&consumer.inbox));
    let Some(store) = place.open().await?.postgres else { return Ok(None) };
    let longest = store.longest_horizon().await?;
    let subject = format!("inbox of {}", subject(handler));
    Ok(Some(of_retention(&subject, handler.as_str(), config.retention.inbox, longest)))
}

/// `longest`: the handler whose messages may come again for the longest time, and that time.
fn of_retention(
    subject: &str,
    own: &str,
    kept: Duration,
    longest: Option<(String, Duration)>,
) -> Finding {
    let told = format!("it remembers for {} what was done", shown(kept));
    match longest {
        Some((handler, horizon)) if kept < horizon && handler == own => findings::good(
            subject,
            format!("{told}, and will say so when it starts; until then {}", shown(horizon)),
        ),
        Some((handler, horizon)) if kept < horizon => findings::critical(
            subject,
            format!("{told}, and messages of `{handler}` may come again for {}", shown(horizon)),
            format!("write inbox = \"{}\" in [retention], or longer", shown(horizon)),
            Code::HorizonShort,
        ),
        Some((_, horizon)) => findings::good(
            subject,
            format!("{told}, and messages may come again for {}", shown(horizon)),
        ),
        None => findings::good(subject, format!("{told}; no consumer has recorded more")),
    }
}

fn subject(handler: &HandlerName) -> String {
    format!("consumer `{handler}`")
}

async fn of_sidecar(
    handler: &HandlerName,
    consumer: &Consume,
    secrets: &Secrets,
) -> Result<Vec<Finding>, Failure> {
    let from = Source::parse(secrets.address(&consumer.from).unwrap_or_default())?;
    let group = consumer.group.clone().unwrap_or_else(|| handler.to_string());
    let wishes = Wishes {
        group: group.clone(),
        handler: None,
        visibility: visibility(consumer.lease),
        deliveries_max: u32::MAX,
        dead_letters: None,
        nats: Some(consumer.nats.clone()),
        kafka: Some(consumer.kafka.clone()),
        sqs: Some(consumer.sqs.clone()),
        secrets: secrets.clone(),
    };
    let kept = from.visibility_kept(&wishes).await?;
    let (subject, lease) = (subject(handler), consumer.lease);
    Ok(vec![match &from {
        Source::Kafka { servers, topics } => {
            let looked = super::kafka::look(servers, topics, &wishes).await;
            let found = match looked {
                Ok(None) => findings::good(&subject, of_topics(topics)),
                Ok(Some(dead)) => {
                    let message = format!(
                        "whether the topic `{dead}` of its dead letters is there, this user may not see"
                    );
                    let advice = format!("grant this user DESCRIBE and WRITE on `{dead}`");
                    findings::coded(&subject, message, advice, Code::Unauthorized)
                }
                Err(failure) => failure.finding(&subject),
            };
            return Ok(vec![found, of_session(&subject, lease, consumer.kafka.session)]);
        }
        Source::Local { .. } => of_visibility(&subject, lease, wishes.visibility, ""),
        Source::Nats { stream, .. } => {
            let advice =
                format!("nats consumer edit {stream} {group} --wait {}", shown(wishes.visibility));
            of_visibility(&subject, lease, kept.unwrap_or(wishes.visibility), &advice)
        }
        Source::Sqs { region, queue } => {
            // Each receive brings the time with it, whatever the queue says.
            let mut found = super::sqs::examine(region, queue, &wishes, consumer.attempts).await?;
            found.push(of_visibility(&subject, lease, wishes.visibility, ""));
            return Ok(found);
        }
    }])
}

fn of_topics(topics: &[String]) -> String {
    let [topic] = topics else {
        return format!("its {} topics and the one of its dead letters are there", topics.len());
    };
    format!("its topic `{topic}` and the one of its dead letters are there")
}

/// A broker that hides an event for a time.
fn of_visibility(subject: &str, lease: Duration, hidden: Duration, advice: &str) -> Finding {
    let (claimed, back) = (shown(lease), shown(hidden));
    if hidden < lease {
        let message = format!(
            "the broker gives an event back after {back}, before its claim ends after {claimed}: what a crashed \
             sidecar had in work comes back in vain until then"
        );
        return findings::coded(subject, message, advice, Code::ClaimsApart);
    }
    if hidden > lease * 2 {
        let message = format!(
            "a claim ends after {claimed}, but the broker gives the event back after {back}: a crash delays it so long"
        );
        return findings::coded(subject, message, advice, Code::ClaimsApart);
    }
    let message = format!(
        "what a crashed sidecar had in work comes back after {back}, when its claim of {claimed} has ended"
    );
    findings::good(subject, message)
}

/// A broker that gives the partitions of a silent member to others.
fn of_session(subject: &str, lease: Duration, session: Duration) -> Finding {
    let (claimed, silent) = (shown(lease), shown(session));
    if session > lease * 2 {
        let message = format!(
            "a claim ends after {claimed}, but the partitions of a crashed sidecar go to others after {silent}: a \
             crash delays all of their events so long"
        );
        let advice = format!("write session = \"{claimed}\" in its table kafka, or less");
        return findings::coded(subject, message, advice, Code::ClaimsApart);
    }
    let message = format!(
        "the partitions of a crashed sidecar go to others after {silent}; what it had in work waits there until its \
         claim of {claimed} has ended, and other keys flow"
    );
    findings::good(subject, message)
}

fn shown(span: Duration) -> String {
    postrider_config::duration::print(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::operate::Level;

    const LEASE: Duration = Duration::from_secs(60);

    /// R082: visibility against lease, in both directions and at their borders.
    #[test]
    fn visibility_is_compared_in_both_directions() {
        let of = |seconds| of_visibility("c", LEASE, Duration::from_secs(seconds), "mend it");
        for (seconds, words) in [(59, "before its claim ends"), (121, "a crash delays it")] {
            let finding = of(seconds);
            assert_eq!(finding.level, Level::Warning, "{seconds}");
            assert_eq!(finding.code, Some(Code::ClaimsApart));
            assert_eq!(finding.advice.as_deref(), Some("mend it"));
            assert!(finding.message.contains(words), "{}", finding.message);
        }
        for seconds in [60, 66, 120] {
            assert_eq!(of(seconds).level, Level::Good, "{seconds}");
        }
    }

    /// R121: what is remembered for as long as messages may come again is enough, and less is not.
    #[test]
    fn retention_is_compared_with_the_longest_horizon() {
        const DAY: Duration = Duration::from_secs(86_400);
        let of = |days| {
            of_retention("inbox", "billing", DAY * 35, Some(("mail".to_owned(), DAY * days)))
        };
        let short = of(36);
        assert_eq!((short.level, short.code), (Level::Critical, Some(Code::HorizonShort)));
        assert!(short.message.contains("`mail` may come again for 36d"), "{short:?}");
        assert!(short.advice.unwrap().contains("inbox = \"36d\""));
        assert_eq!(of(35).level, Level::Good);
        assert_eq!(of_retention("inbox", "billing", DAY * 35, None).level, Level::Good);
        let shortened = Some(("mail".to_owned(), DAY * 36));
        assert_eq!(of_retention("inbox", "mail", DAY * 35, shortened).level, Level::Good);
    }

    /// R082: a session may be shorter than the lease, and not much longer.
    #[test]
    fn a_session_is_not_much_longer_than_a_lease() {
        let of = |seconds| of_session("c", LEASE, Duration::from_secs(seconds));
        for (seconds, level) in [(10, Level::Good), (120, Level::Good), (121, Level::Warning)] {
            assert_eq!(of(seconds).level, level, "{seconds}");
        }
        assert!(of(121).advice.unwrap().contains("session = \"1m\""));
    }
}

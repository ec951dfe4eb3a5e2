//! Topics of SNS.

use aws_sdk_sns::Client;
use postrider_core::operate::{Finding, findings};
use postrider_core::{Code, Error, ErrorKind, Result, Route};
use tokio::time::Instant;

use super::{LOOKED_AT, PAGES_MAX, refused, unknown, within, written};
use crate::answer::{Call, judge};
use crate::connection::Connection;
use crate::topics::arn;

/// Looks at the topics that the routes write to.
///
/// # Errors
/// The service could not be asked.
pub(crate) async fn topics(connection: &Connection, routes: &[Route]) -> Result<Vec<Finding>> {
    let settings = connection.settings();
    let until = Instant::now() + settings.deadline;
    let config = connection.config(until).await?;
    let region = config.region().map(AsRef::as_ref).unwrap_or_default();
    let client = Client::new(config);
    let asked = async {
        let mut found = Vec::new();
        for (name, open) in written(routes).into_iter().take(LOOKED_AT) {
            let subject = format!("topic {}", name.rsplit(':').next().unwrap_or(&name));
            if open {
                found.push(unknown(&format!("topics {name}…"), "names"));
                continue;
            }
            let arn = arn(settings, region, &name)
                .map_err(|fault| Error::new(ErrorKind::Config, "examine").message(fault.detail))?;
            let call = Call { action: "sns:GetTopicAttributes", what: "the topic", name: &arn };
            match client.get_topic_attributes().topic_arn(&arn).send().await {
                Err(error) => {
                    let error = judge(call, &error).error("examine");
                    let make = format!("aws sns create-topic --name {name}, or correct the route");
                    found.push(refused(&subject, error, &make)?);
                }
                // The attributes count subscribers as well, but late, and LocalStack never.
                Ok(_) => {
                    let call = Call { action: "sns:ListSubscriptionsByTopic", ..call };
                    found.push(match subscribers(&client, call).await {
                        Ok(count) => of_topic(&subject, &arn, count),
                        Err(error) => refused(&subject, error, "correct the route")?,
                    });
                }
            }
        }
        Ok(found)
    };
    within(settings.deadline, asked).await
}

/// How many are subscribed to a topic. Those who have not confirmed have no ARN yet.
async fn subscribers(client: &Client, call: Call<'_>) -> Result<usize> {
    let (mut count, mut from) = (0, None);
    for _ in 0..PAGES_MAX {
        let ask =
            client.list_subscriptions_by_topic().topic_arn(call.name).set_next_token(from.take());
        let answer = ask.send().await.map_err(|error| judge(call, &error).error("examine"))?;
        let there = answer.subscriptions().iter();
        let confirmed =
            there.filter(|it| it.subscription_arn().is_some_and(|arn| arn.starts_with("arn:")));
        count += confirmed.count();
        from = answer.next_token;
        if from.is_none() {
            break;
        }
    }
    Ok(count)
}

fn of_topic(subject: &str, arn: &str, subscribers: usize) -> Finding {
    if subscribers == 0 {
        return findings::critical(
            subject,
            "nobody is subscribed to it: it takes what comes, and keeps nothing",
            format!(
                "aws sns subscribe --topic-arn {arn} --protocol sqs --notification-endpoint QUEUE-ARN"
            ),
            Code::KeptTooShort,
        );
    }
    findings::good(subject, format!("it hands on to {subscribers} subscribers"))
}

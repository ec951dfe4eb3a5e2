//! From the name of a topic of SNS to its ARN.
//!
//! Invariant: nobody is asked: an ARN follows from region, account, and name.

use postrider_core::{ErrorKind, Fault};

use crate::fifo::{NOT_FIFO, is_fifo};
use crate::settings::AwsSettings;

/// Characters of a topic's name.
const NAME_MAX: usize = 256;

/// The ARN of a topic, which may be given by its name or by its ARN.
///
/// # Errors
/// `Invalid` if it can be no topic; `Unroutable` if it is of the wrong kind; `Config` if only the account's number would tell.
pub(crate) fn arn(settings: &AwsSettings, region: &str, topic: &str) -> Result<String, Fault> {
    let name = topic.strip_prefix("arn:").map_or(Some(topic), name_in);
    let stem = name.map(|name| name.strip_suffix(".fifo").unwrap_or(name));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let wrong = match stem {
        None => "it is no ARN of a topic",
        Some("") => "it is empty",
        Some(_) if name.is_some_and(|name| name.len() > NAME_MAX) => {
            "it is longer than 256 characters"
        }
        Some(stem) if !stem.chars().all(plain) => {
            "it has other characters than a-z A-Z 0-9 _ - and an ending .fifo"
        }
        Some(_) if settings.fifo && !is_fifo(topic) => NOT_FIFO,
        Some(_) => "",
    };
    if !wrong.is_empty() {
        // Whose kind is wrong is the route's fault, and not the event's.
        let kind = if wrong == NOT_FIFO { ErrorKind::Unroutable } else { ErrorKind::Invalid };
        let detail = format!("`{}` is no topic that can be meant: {wrong}", topic.escape_debug());
        return Err(Fault::new(kind, detail));
    }
    if topic.starts_with("arn:") {
        return Ok(topic.to_owned());
    }
    let Some(account) = &settings.account else {
        let detail =
            format!("whose topic `{topic}` is, is not said: set `account`, or write its ARN");
        return Err(Fault::new(ErrorKind::Config, detail));
    };
    Ok(format!("arn:{}:sns:{region}:{account}:{topic}", partition(region)))
}

/// The name in what stands behind `arn:`.
fn name_in(rest: &str) -> Option<&str> {
    let parts: Vec<&str> = rest.split(':').collect();
    match parts[..] {
        [_, "sns", _, _, name] => Some(name),
        _ => None,
    }
}

/// The part of AWS that a region belongs to.
fn partition(region: &str) -> &'static str {
    match region {
        _ if region.starts_with("cn-") => "aws-cn",
        _ if region.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_an_arn() {
        let mut settings = AwsSettings::new("eu-west-1");
        let none = arn(&settings, "eu-west-1", "orders").unwrap_err();
        assert_eq!(none.kind, ErrorKind::Config);
        settings.account = Some("123456789012".to_owned());
        for (region, topic, expected) in [
            ("eu-west-1", "orders", "arn:aws:sns:eu-west-1:123456789012:orders"),
            ("cn-north-1", "a.fifo", "arn:aws-cn:sns:cn-north-1:123456789012:a.fifo"),
            ("us-gov-west-1", "a", "arn:aws-us-gov:sns:us-gov-west-1:123456789012:a"),
            ("eu-west-1", "arn:aws:sns:x:1:a", "arn:aws:sns:x:1:a"),
        ] {
            assert_eq!(arn(&settings, region, topic).unwrap(), expected);
        }
        for topic in ["", "a b", "a.b", "arn:aws:sqs:x:1:a", "arn:aws:sns:x", &"a".repeat(257)] {
            let refused = arn(&settings, "eu-west-1", topic).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Invalid, "{topic}");
        }
        settings.fifo = true;
        let refused = arn(&settings, "eu-west-1", "orders").unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unroutable);
    }
}

//! From what a service said to what became of the events of a call.
//!
//! Invariant (INV-7): only the service's yes is an acknowledgement. Whatever is the queue's, the topic's, or the
//! account's trouble is never counted against the event, and no answer is ever taken for one.

use std::error::Error as StdError;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use postrider_core::{Error, ErrorKind, Fault, Outcome};

/// Characters of a service's answer that are repeated. What is behind may be what was signed.
const SAID_MAX: usize = 300;

/// What is called, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// The permission that it takes, `sqs:SendMessage`.
    pub(crate) action: &'static str,
    /// What it is asked of, `the queue`.
    pub(crate) what: &'static str,
    /// Its name.
    pub(crate) name: &'a str,
}

/// A call that failed as a whole.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Nobody answered: what became of its events is not known.
    Silent(Fault),
    /// The answer holds for each of its events.
    Said(Outcome),
    /// One of its events is to blame, and the answer does not say which.
    Blames(Outcome),
}

impl Trouble {
    /// What became of each event, if it was the only one.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Trouble::Silent(fault) => Outcome::Retry { fault, after: None },
            Trouble::Said(outcome) | Trouble::Blames(outcome) => outcome,
        }
    }

    /// What is wrong.
    pub(crate) fn fault(self) -> Fault {
        match self.outcome() {
            Outcome::Retry { fault, .. }
            | Outcome::Rejected(fault)
            | Outcome::Unroutable(fault)
            | Outcome::Hindered(fault)
            | Outcome::Gone(fault) => fault,
            Outcome::Acked | Outcome::Skipped => Fault::new(ErrorKind::Internal, "no answer"),
        }
    }

    /// The same, for who asked something else than to publish.
    pub(crate) fn error(self, operation: &'static str) -> Error {
        let fault = self.fault();
        Error::new(fault.kind, operation).message(fault.detail)
    }
}

/// What a word of the service means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Missing,
    Denied,
    /// The bus takes others, and not this event.
    NotAdmitted,
    Unknown,
    Busy,
    TooLarge,
    Malformed,
    Down,
}

/// What the failure of a call means.
pub(crate) fn judge<E, R>(call: Call<'_>, error: &SdkError<E, R>) -> Trouble
where
    E: ProvideErrorMetadata + StdError + 'static,
    R: std::fmt::Debug + 'static,
{
    if let Some(service) = error.as_service_error() {
        let code = service.meta().code().unwrap_or("an error without a code");
        let said = service.meta().message().unwrap_or_default();
        let outcome = judge_words(call, code, said, false);
        return match means(code, said, false) {
            Means::TooLarge | Means::Malformed => Trouble::Blames(outcome),
            _ => Trouble::Said(outcome),
        };
    }
    let said = cut(&described(error));
    let lower = said.to_ascii_lowercase();
    if lower.contains("credential") || lower.contains("identity") {
        let detail = format!(
            "there are no credentials for {}: {said}; nothing was sent. Name a profile or a key, or let the \
             machine have a role",
            call.action
        );
        return Trouble::Said(Outcome::Unroutable(Fault::new(ErrorKind::Unauthorized, detail)));
    }
    match error {
        SdkError::ConstructionFailure(_) => Trouble::Blames(Outcome::Rejected(Fault::new(
            ErrorKind::Invalid,
            format!("the request cannot be made: {said}"),
        ))),
        SdkError::TimeoutError(_) => {
            Trouble::Silent(Fault::new(ErrorKind::Timeout, unknown(&said)))
        }
        _ => Trouble::Silent(Fault::new(ErrorKind::Unavailable, unknown(&said))),
    }
}

/// What the failure of one entry of a call means. `blamed`: the service says that the sender is at fault.
pub(crate) fn judge_words(call: Call<'_>, code: &str, said: &str, blamed: bool) -> Outcome {
    let Call { action, what, name } = call;
    let words = match said {
        "" => code.to_owned(),
        said => format!("{code}: {}", cut(said)),
    };
    let fault = |kind, detail| Fault::new(kind, detail);
    let retry = |kind| Outcome::Retry { fault: fault(kind, words.clone()), after: None };
    match means(code, said, blamed) {
        Means::Missing => Outcome::Unroutable(fault(
            ErrorKind::Unroutable,
            format!(
                "there is no such thing as {what} `{name}` in this region and account ({words}): create it, or \
                 correct the route's topic, `region`, or `account`"
            ),
        )),
        Means::Denied => Outcome::Unroutable(fault(
            ErrorKind::Unauthorized,
            format!("{action} on {what} `{name}` is not allowed ({words}): grant it to who we are"),
        )),
        Means::NotAdmitted => Outcome::Rejected(fault(
            ErrorKind::Unauthorized,
            format!(
                "the policy of {what} `{name}` does not admit events of this source and type ({words}): let it, or \
                 leave them out of the route"
            ),
        )),
        Means::Unknown => Outcome::Unroutable(fault(
            ErrorKind::Unauthorized,
            format!(
                "{action} on {what} `{name}`: the service does not accept who we are ({words}): renew or correct \
                 the credentials, `region`, or this machine's clock"
            ),
        )),
        Means::Busy => retry(ErrorKind::Busy),
        Means::Down => retry(ErrorKind::Unavailable),
        Means::TooLarge => Outcome::Rejected(fault(ErrorKind::TooLarge, words)),
        Means::Malformed => Outcome::Rejected(fault(ErrorKind::Rejected, words)),
    }
}

/// The services spell the same in several ways, so words are looked for, not codes compared.
fn means(code: &str, said: &str, blamed: bool) -> Means {
    let lower = code.to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let said = said.to_ascii_lowercase();
    if is(&["throttl", "toomanyrequests", "limitexceeded", "requestlimit", "overlimit", "slowdown"])
    {
        Means::Busy
    } else if is(&["notauthorizedforsource", "notauthorizedfordetailtype"]) {
        Means::NotAdmitted
    } else if is(&["kms"])
        || is(&["accessdenied", "authorizationerror", "optinrequired", "notauthorized"])
    {
        Means::Denied
    } else if is(&["invalidsecurity"])
        || is(&["expired", "invalidclienttokenid", "unrecognizedclient", "signature"])
        || is(&[
            "missingauthentication",
            "invalidaccesskey",
            "notauthorized",
            "requesttimetooskewed",
        ])
    {
        Means::Unknown
    } else if is(&["nonexistentqueue", "queuedoesnotexist", "notfound"])
        || is(&["invalidaddress", "invalidaccountid"])
        || (is(&["invalidparameter", "validation"]) && names_the_place(&said))
    {
        // What was named wrongly is the route's, or the settings', never the event's.
        Means::Missing
    } else if is(&["toolong", "toolarge"]) || said.contains("must be shorter than") {
        Means::TooLarge
    } else if is(&["internal", "unavailable", "failure", "deletedrecently", "timeout"]) {
        Means::Down
    } else if blamed
        || is(&["invalid", "malformed", "validation", "missing", "unsupported", "batch"])
    {
        Means::Malformed
    } else {
        Means::Down
    }
}

/// Whether an answer complains of where the event should go.
fn names_the_place(said: &str) -> bool {
    ["topicarn", "targetarn", "queueurl", "eventbusname"].iter().any(|name| said.contains(name))
}

pub(crate) fn unknown(said: &str) -> String {
    format!("{said}; whether the events arrived is not known")
}

/// As much of an answer as may be repeated: a signature that is refused is explained by what was signed.
fn cut(said: &str) -> String {
    let line = said.lines().next().unwrap_or_default();
    let line = line.split("The Canonical String").next().unwrap_or_default();
    line.trim_end().chars().take(SAID_MAX).collect()
}

/// The error with its causes, each said once.
fn described(error: &(dyn StdError + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call<'_> = Call { action: "sqs:SendMessage", what: "the queue", name: "orders" };

    #[test]
    fn words_of_the_services_are_understood() {
        for (code, said, expected) in [
            ("AWS.SimpleQueueService.NonExistentQueue", "", Means::Missing),
            ("QueueDoesNotExist", "", Means::Missing),
            ("ResourceNotFoundException", "", Means::Missing),
            ("NotFound", "", Means::Missing),
            ("InvalidAddress", "The address is not valid for this endpoint", Means::Missing),
            ("InvalidAccountIdException", "", Means::Missing),
            ("InvalidParameter", "Invalid parameter: TopicArn", Means::Missing),
            ("InvalidParameter", "Invalid parameter: Message", Means::Malformed),
            ("AccessDenied", "", Means::Denied),
            ("AccessDeniedException", "", Means::Denied),
            ("AuthorizationError", "", Means::Denied),
            ("NotAuthorizedForSourceException", "", Means::NotAdmitted),
            ("NotAuthorizedForDetailTypeException", "", Means::NotAdmitted),
            ("KMS.DisabledException", "", Means::Denied),
            ("KMSThrottling", "", Means::Busy),
            ("InvalidClientTokenId", "", Means::Unknown),
            ("ExpiredTokenException", "", Means::Unknown),
            ("UnrecognizedClientException", "", Means::Unknown),
            ("SignatureDoesNotMatch", "", Means::Unknown),
            ("InvalidSignatureException", "", Means::Unknown),
            ("RequestThrottled", "", Means::Busy),
            ("ThrottlingException", "", Means::Busy),
            ("TooManyRequestsException", "", Means::Busy),
            ("BatchRequestTooLong", "", Means::TooLarge),
            (
                "InvalidParameterValue",
                "Reason: Message must be shorter than 1024 bytes",
                Means::TooLarge,
            ),
            ("InvalidMessageContents", "", Means::Malformed),
            ("MalformedDetail", "", Means::Malformed),
            ("InvalidArgument", "", Means::Malformed),
            ("InternalError", "", Means::Down),
            ("InternalFailure", "", Means::Down),
            ("ServiceUnavailable", "", Means::Down),
            ("SomethingNew", "", Means::Down),
        ] {
            assert_eq!(means(code, said, false), expected, "{code}");
        }
        assert_eq!(means("SomethingNew", "", true), Means::Malformed);
    }

    /// F32: what was signed holds the session's token.
    #[test]
    fn what_was_signed_is_not_repeated() {
        let said = "It does not match.\n\nThe Canonical String was 'x-amz-security-token:hush'";
        for said in [said, &said.replace('\n', " ")] {
            let outcome = judge_words(CALL, "SignatureDoesNotMatch", said, false);
            let text = format!("{outcome:?}");
            assert!(!text.contains("hush") && text.contains("does not match"), "{text}");
        }
    }

    #[test]
    fn a_missing_permission_is_named() {
        let Outcome::Unroutable(fault) = judge_words(CALL, "AccessDenied", "no", false) else {
            panic!("it is the queue's trouble");
        };
        assert_eq!(fault.kind, ErrorKind::Unauthorized);
        assert!(fault.detail.contains("sqs:SendMessage on the queue `orders`"), "{fault}");
    }
}

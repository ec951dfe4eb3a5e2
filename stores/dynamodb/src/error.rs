//! Errors: what the service says, as what a caller can do about it.
//!
//! Invariant: what may have happened and what did not are told apart; a missing permission is named.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use postrider_core::{Error, ErrorKind};

/// The longest text of the service that is repeated in a message, in bytes.
const TEXT_MAX: usize = 300;

/// An error of a call, with the table it was about.
pub(crate) fn failed<E>(operation: &'static str, table: &str, error: SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let code = error.code().unwrap_or_default().to_owned();
    let (kind, message) = match &error {
        SdkError::ServiceError(_) => said(&code, error.message().unwrap_or_default()),
        SdkError::TimeoutError(_) => (
            ErrorKind::Timeout,
            "no answer in time; what was asked for may have happened. A relay asks again by itself"
                .to_owned(),
        ),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => (
            ErrorKind::Timeout,
            "the endpoint did not answer in time; it is tried again".to_owned(),
        ),
        SdkError::DispatchFailure(_) if is_about_credentials(&error) => (
            ErrorKind::Unauthorized,
            "there are no credentials that can be used; give them by environment, profile, or role"
                .to_owned(),
        ),
        SdkError::DispatchFailure(_) => (
            ErrorKind::Unavailable,
            "the endpoint cannot be reached, or went away; nothing was lost, and it is tried again"
                .to_owned(),
        ),
        SdkError::ResponseError(_) => (
            ErrorKind::Unavailable,
            "the answer broke off; what was asked for may have happened".to_owned(),
        ),
        _ => (ErrorKind::Internal, "the request cannot be made".to_owned()),
    };
    let mut told = Error::new(kind, operation).message(message).context("table", table);
    if is_throttled(&code) {
        told = told.of_store();
    }
    if !code.is_empty() {
        told = told.context("code", code);
    }
    told.source(error.into_source().unwrap_or_else(|error| Box::new(error)))
}

/// Whether a request could not be signed. The clients say so only in the texts of the causes.
fn is_about_credentials(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        let text = inner.to_string().to_lowercase();
        if text.contains("credential") || text.contains("identity") {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// Whether the table takes no more now, of any item.
fn is_throttled(code: &str) -> bool {
    matches!(
        code,
        "ProvisionedThroughputExceededException"
            | "ThrottlingException"
            | "RequestLimitExceeded"
            | "LimitExceededException"
    )
}

/// What a code of the service means.
fn said(code: &str, text: &str) -> (ErrorKind, String) {
    let text = &text[..text.floor_char_boundary(TEXT_MAX)];
    match code {
        code if is_throttled(code) => (
            ErrorKind::Busy,
            "the table is throttled; nothing was written, and it is tried again: raise its capacity, \
             or switch it to on-demand"
                .to_owned(),
        ),
        // The client has asked again under the same token, and the service is still at it.
        "TransactionInProgressException" => (
            ErrorKind::Timeout,
            "the transaction is still under way at the service, and what was asked for may happen: read before \
             it is asked for again"
                .to_owned(),
        ),
        "TransactionConflictException" => (
            ErrorKind::Busy,
            "another transaction is writing the same items; nothing was written".to_owned(),
        ),
        "ConditionalCheckFailedException" => {
            (ErrorKind::Conflict, "the item is not as expected; nothing was written".to_owned())
        }
        "TransactionCanceledException" => {
            (ErrorKind::Conflict, "the transaction was cancelled; nothing was written".to_owned())
        }
        "ResourceNotFoundException" => (
            ErrorKind::SchemaMissing,
            "there is no such table in this region; make it with `postrider init`, or name the region \
             that has it"
                .to_owned(),
        ),
        "AccessDeniedException" | "AccessDenied" => (ErrorKind::Unauthorized, denied(text)),
        "ExpiredTokenException" | "ExpiredToken" => (
            ErrorKind::Unauthorized,
            "the credentials have expired; nothing was lost: renew them, and what was under way goes on".to_owned(),
        ),
        "RequestTimeTooSkewed" | "RequestExpired" => (ErrorKind::Unauthorized, skewed(text)),
        "InvalidSignatureException" | "SignatureDoesNotMatch" if is_about_time(text) => {
            (ErrorKind::Unauthorized, skewed(text))
        }
        "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "MissingAuthenticationTokenException"
        | "IncompleteSignature" => (ErrorKind::Unauthorized, strange(text)),
        "ItemCollectionSizeLimitExceededException" => (
            ErrorKind::TooLarge,
            "the key's items are over the limit of a table with a local index; nothing was written"
                .to_owned(),
        ),
        "ValidationException" if text.contains("Item size") => (
            ErrorKind::TooLarge,
            "an item is larger than 400 KB; nothing was written".to_owned(),
        ),
        "ValidationException" => (ErrorKind::Invalid, format!("the service refuses it: {text}")),
        "InternalServerError" | "ServiceUnavailable" | "InternalFailure" => {
            (ErrorKind::Unavailable, "the service failed; it is tried again".to_owned())
        }
        _ => (ErrorKind::Rejected, format!("the service refuses it: {text}")),
    }
}

/// Who we are is not known there.
fn strange(text: &str) -> String {
    format!(
        "the credentials are not accepted in this region, or the clock is wrong; nothing was lost: correct the region, \
         the credentials, or this machine's clock: {text}"
    )
}

/// Whether a signature is refused because of the time that is in it.
fn is_about_time(text: &str) -> bool {
    text.contains("Signature expired") || text.contains("Signature not yet current")
}

/// The client signs by the time that the service's answers say, and has tried again.
fn skewed(text: &str) -> String {
    format!(
        "the service takes this request to be of another time; nothing was written: set this machine's clock (is \
         its time service running?), and see whether something between here and the service answers with a wrong \
         `Date`: {text}"
    )
}

/// The permission that is missing, as the service names it.
fn denied(text: &str) -> String {
    let action = text
        .split_once("perform: ")
        .map(|(_, rest)| rest.split_whitespace().next().unwrap_or_default())
        .filter(|action| action.contains(':'));
    match action {
        Some(action) => format!(
            "the permission {action} is missing; nothing was lost: add it to the policy of this role"
        ),
        None => format!("a permission is missing; nothing was lost: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_action_names_the_permission() {
        let text = "User: arn:aws:sts::1:assumed-role/relay is not authorized to perform: \
                    dynamodb:Query on resource: arn:aws:dynamodb:eu-central-1:1:table/outbox";
        let (kind, message) = said("AccessDeniedException", text);
        assert_eq!(kind, ErrorKind::Unauthorized);
        assert!(message.contains("dynamodb:Query is missing"), "{message}");
    }

    #[test]
    fn throttling_is_passing_and_an_absent_table_is_the_operators() {
        assert_eq!(said("ThrottlingException", "").0, ErrorKind::Busy);
        let (kind, message) = said("ResourceNotFoundException", "");
        assert_eq!(kind, ErrorKind::SchemaMissing);
        assert!(message.contains("region"), "{message}");
        assert_eq!(said("ExpiredTokenException", "").0, ErrorKind::Unauthorized);
        let (kind, message) = said("TransactionInProgressException", "");
        assert_eq!(kind, ErrorKind::Timeout, "it may happen yet, so nothing is sent anew");
        assert!(!message.contains("nothing was written"), "{message}");
    }
}

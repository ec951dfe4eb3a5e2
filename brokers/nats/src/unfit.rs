//! Consumers that a group cannot use.

use postrider_core::{Error, ErrorKind};

use crate::group::Wanted;
use crate::settings::SubscriptionSettings;

/// That a consumer is not used, why, and what to do.
pub(crate) fn unfit(
    settings: &SubscriptionSettings,
    wanted: &Wanted,
    said: &str,
    advice: &str,
) -> Error {
    Error::new(ErrorKind::Config, "subscribe")
        .message(format!("the group's consumer `{}` {said}; {advice}", wanted.name))
        .context("stream", &settings.stream)
        .context("group", &settings.group)
}

/// What to do where the server makes no consumer. A work-queue stream refuses each group but the first, and one that has as
/// many consumers as it may have refuses all: another one would not be made either.
pub(crate) fn advice(said: &str) -> &'static str {
    match () {
        () if said.contains("must be deliver all on workqueue stream") => "leave `from_now` out",
        () if said.contains("workqueue stream") => {
            "a work-queue stream gives each message to one group alone: join the one that is there, or take other subjects"
        }
        () if said.contains("maximum consumers limit") => {
            "raise the limit of the stream or the account, delete consumers that nobody uses, or take fewer partitions: another group \
             would be refused as well"
        }
        () => "choose another group",
    }
}

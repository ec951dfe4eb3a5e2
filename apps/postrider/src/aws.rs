//! Connections to services of AWS: from the configuration to the client's settings.
//!
//! Invariant: what is secret was read before, and stands in no message.

use postrider_aws::{AwsSettings, Credentials};
use postrider_config::{AwsLogin, Secrets};

use crate::failure::Failure;
use crate::relay::brokers::text;

/// The settings of a connection to a region, whose times are the defaults.
///
/// # Errors
/// A configuration failure: a secret was not read.
pub(crate) fn settings(
    region: &str,
    login: &AwsLogin<'_>,
    secrets: &Secrets,
) -> Result<AwsSettings, Failure> {
    let mut settings = AwsSettings::new(region);
    settings.credentials = credentials(login, secrets)?;
    settings.account = login.account.map(str::to_owned);
    settings.endpoint = login.endpoint.map(str::to_owned);
    settings.roots = login.roots.cloned();
    Ok(settings)
}

/// Who we are. The configuration was checked: it says it once.
fn credentials(login: &AwsLogin<'_>, secrets: &Secrets) -> Result<Credentials, Failure> {
    let text = |reference| text(secrets, reference).map_err(Failure::config);
    Ok(if let (Some(id), Some(secret)) = (login.access_key, login.secret_key) {
        let session = login.session_token.map(text).transpose()?.map(Into::into);
        Credentials::Key { id: id.to_owned(), secret: text(secret)?.into(), session }
    } else if let Some(profile) = login.profile {
        Credentials::Profile(profile.to_owned())
    } else {
        Credentials::Chain
    })
}

//! Connections to NATS: from the configuration to the client's settings.
//!
//! Invariant: what is secret was read before, and stands in no message.

use postrider_config::{NatsLogin, Secrets};
use postrider_nats::{Credentials, NatsSettings};

use crate::failure::Failure;
use crate::relay::brokers::text;

/// The settings of a connection, whose times are the defaults.
///
/// # Errors
/// A configuration failure: a secret was not read.
pub(crate) fn settings(
    url: &str,
    login: &NatsLogin<'_>,
    secrets: &Secrets,
) -> Result<NatsSettings, Failure> {
    let mut settings = NatsSettings::new(url);
    settings.credentials = credentials(login, secrets)?;
    settings.domain = login.domain.map(str::to_owned);
    settings.tls.required = login.require_tls;
    settings.tls.roots = login.roots.cloned();
    settings.tls.identity = login.certificate.cloned().zip(login.certificate_key.cloned());
    Ok(settings)
}

/// Who we are. The configuration was checked: it says it once.
fn credentials(login: &NatsLogin<'_>, secrets: &Secrets) -> Result<Credentials, Failure> {
    let text = |reference| text(secrets, reference).map_err(Failure::config);
    Ok(if let (Some(name), Some(password)) = (login.user, login.password) {
        Credentials::User { name: name.to_owned(), password: text(password)?.into() }
    } else if let Some(token) = login.token {
        Credentials::Token(text(token)?.into())
    } else if let Some(seed) = login.nkey {
        Credentials::Nkey(text(seed)?.into())
    } else if let Some(content) = login.creds {
        Credentials::Creds(text(content)?.into())
    } else {
        Credentials::None
    })
}

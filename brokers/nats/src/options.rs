//! What the client is told: where the servers are, who we are, and whom we believe.
//!
//! Invariant: no address that the client logs has a secret in it.

use std::path::Path;

use async_nats::{ConnectOptions, ServerAddr};
use postrider_core::Result;

use crate::settings::{Credentials, NatsSettings, wrong};

/// Where the servers are, with nothing of a secret.
pub(crate) fn addresses(settings: &NatsSettings) -> Result<Vec<ServerAddr>> {
    settings.servers.iter().map(|server| Ok(server.parse()?.0)).collect()
}

/// Files that the client reads at each attempt are looked at first, so that the setting can be named.
fn readable(name: &str, path: &Path) -> Result<()> {
    std::fs::File::open(path).map(drop).map_err(|error| {
        let path = path.display();
        wrong(format!("`{name}` cannot be read: {path}: {error}; nothing was sent"))
    })
}

/// The options that say who we are, and whom we believe.
pub(crate) fn identified(settings: &NatsSettings) -> Result<ConnectOptions> {
    let options = ConnectOptions::new();
    let options = match settings.identity()? {
        Credentials::None => options,
        Credentials::Token(token) => options.token(token.expose().to_owned()),
        Credentials::User { name, password } => {
            options.user_and_password(name, password.expose().to_owned())
        }
        Credentials::Nkey(seed) => options.nkey(seed.expose().trim().to_owned()),
        Credentials::Creds(content) => options
            .credentials(content.expose())
            .map_err(|_| wrong("the credentials file has no JWT and seed that can be read"))?,
    };
    let options = options.require_tls(settings.tls.required);
    let options = match &settings.tls.roots {
        Some(path) => {
            readable("roots", path)?;
            options.add_root_certificates(path.clone())
        }
        None => options,
    };
    Ok(match &settings.tls.identity {
        Some((certificate, key)) => {
            readable("certificate", certificate)?;
            readable("certificate_key", key)?;
            options.add_client_certificate(certificate.clone(), key.clone())
        }
        None => options,
    })
}

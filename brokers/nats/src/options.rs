//! What the client is told: where the servers are, who we are, and whom we believe.
//!
//! Invariant: no address that the client logs has a secret in it.

use std::path::Path;

use async_nats::rustls::pki_types::pem::PemObject as _;
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{ClientConfig, RootCertStore};
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

/// Reads what the client reads at each attempt, and refuses what it cannot use, before anything is given up for it: of a certificate
/// beside another one's key the client would say so at each attempt, and name no file.
pub(crate) fn usable(settings: &NatsSettings) -> Result<()> {
    identified(settings)?;
    let Some((certificate, key)) = &settings.tls.identity else { return Ok(()) };
    let fits = || -> std::result::Result<(), Box<dyn std::error::Error>> {
        let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)?
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| format!("the certificate: {error}"))?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("the key: {error}"))?;
        let builder = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        builder.with_client_auth_cert(chain, key).map(drop)?;
        Ok(())
    };
    fits().map_err(|said| {
        wrong(format!(
            "`certificate` and `certificate_key` cannot be used together: {said}; nothing was sent"
        ))
        .context("certificate", certificate.display())
        .context("certificate_key", key.display())
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
        // The client asks for the end of the last line, which is not there where a secret was trimmed.
        Credentials::Creds(content) => options
            .credentials(&format!("{}\n", content.expose()))
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
